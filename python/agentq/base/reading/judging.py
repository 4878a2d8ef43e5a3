"""Exercises in judging: which proposal is best, and whether a final page shows all that the user asked for."""

from __future__ import annotations

from agentq.agent.actions import format_action
from agentq.agent.prompts import critic_answer, critic_messages, judge_messages
from agentq.base.exercises import TrainingExample
from agentq.base.reading.checking import checked
from agentq.base.reading.words import Words
from agentq.types import Command, EnvAction, History, Observation


def finding(what: str, asked: str, shown: str, *, holds: bool | None = None) -> str:
    """One line of a judge's answer: what was asked for, what the page shows, the verdict (default: whether equal)."""
    holds = asked == shown if holds is None else holds
    return f"{what}: {asked} / {shown or 'none'}: {'YES' if holds else 'NO'}"


def final(w: Words) -> TrainingExample:
    """A confirmation page of our own beside the request; some values differ, or are missing."""
    labels = w.shuffled(list(_THINGS))[: 2 + w.below(4)]
    asked = {label: w.value() for label in labels}
    wrong = set(w.shuffled(labels)[: w.below(3)]) if w.chance(0.6) else set()
    shown = {label: w.value() if label in wrong else value for label, value in asked.items()}
    form = w.below(3)
    lines = [f"heading {w.one(('Confirmation', 'Thank you', 'Order complete', 'Sent', 'Saved'))}"]
    if form == 0:
        lines += [f"text {label} {value}" for label, value in shown.items()]
    elif form == 1:
        lines += [f"text {label}: {value}" for label, value in shown.items()]
    else:
        lines.append("text " + " , ".join(shown.values()))
    lines.append("link Home [1]")
    told = " , ".join(f"{label.lower()} {value}" for label, value in asked.items())
    past = tuple(format_action(EnvAction(Command.TYPE, i, value)) for i, value in enumerate(shown.values(), 1))
    history = History(
        f"{w.one(('Order it with', 'Send', 'Save', 'Please enter'))} {told} .",
        Observation("\n".join(lines), "/done"),
        (*past[: w.below(4)], format_action(EnvAction(Command.STOP))),
    )
    if w.chance(0.1):  # nothing has been done: the page is another one
        history = History(
            history.instruction, Observation(f"heading {w.title()}\nlink {w.title()} [1]", "/"), history.actions
        )
        shown = dict.fromkeys(labels, "")
    answer = "\n".join(finding(label, asked[label], shown[label]) for label in labels)
    return TrainingExample(judge_messages(history), answer)


_THINGS = (
    "Name",
    "Date",
    "Time",
    "Place",
    "Phone",
    "Email",
    "Color",
    "Size",
    "Amount",
    "To",
    "Subject",
    "Code",
    "Title",
)


def choose(w: Words) -> TrainingExample:
    """Proposals for one form or list, of which one does what the instruction asks; some are wrong in one thing."""
    fields = w.shuffled(["Name", "Search", "Email", "Phone", "City", "Date", "Code", "Note"])[: 1 + w.below(4)]
    values, names = [w.value() for _ in fields], w.similar(2 + w.below(4))
    done = w.below(len(fields) + 1)
    lines, element = [], 0
    for i, (field, value) in enumerate(zip(fields, values, strict=True)):
        element += 1
        lines.append(f"textbox {field} [{element}]" + (f": {value}" if i < done else ""))
    ids = {name: element + i for i, name in enumerate(names, 1)}
    lines += [f"link {name} [{i}]" for name, i in ids.items()]
    goal = w.one(names)
    told = (
        " , ".join(f"{field.lower()} {value}" for field, value in zip(fields, values, strict=True)) + f" , then {goal}"
    )
    clicks = [EnvAction(Command.CLICK, i) for i in ids.values()]
    if done == len(fields):
        best = EnvAction(Command.CLICK, ids[goal])
        others = [*clicks, *(EnvAction(Command.TYPE, i, w.value()) for i in range(1, done + 1))]
    else:
        best = EnvAction(Command.TYPE, done + 1, values[done])
        others = [EnvAction(Command.TYPE, i, value) for i in range(1, len(fields) + 1) for value in values]
        others += [EnvAction(Command.TYPE, done + 1, w.value()) for _ in range(3)] + clicks
    same = [EnvAction(Command.TYPE, i + 1, values[i]) for i in range(done + 1, len(fields))]  # as good as the best
    distinct = [o for o in dict.fromkeys(others) if o != best and o not in same]
    listed = [best, *(distinct[i] for i in w.rng.permutation(len(distinct))[: 1 + w.below(4)])]
    listed = [listed[i] for i in w.rng.permutation(len(listed))]
    past = tuple(format_action(EnvAction(Command.TYPE, i + 1, values[i])) for i in range(done)) if w.chance(0.5) else ()
    history = History(told, Observation("\n".join(lines)), past)
    thought = checked(history.observation.text, best, "")
    return TrainingExample(critic_messages(history, listed), f"THOUGHT: {thought}\n{critic_answer(best)}")
