"""Exercises in copying: words repeated, values typed into fields that an instruction names, names found on a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from agentq.agent.actions import format_action
from agentq.agent.prompts import policy_messages
from agentq.base.exercises import TrainingExample
from agentq.base.reading.seeing import compared
from agentq.base.reading.words import Words
from agentq.envs.lexicon import words
from agentq.types import Command, EnvAction, History, Observation, Status

Turns = Sequence[tuple[str, str]]
LABELS = tuple(
    field.replace("_", " ")
    for field in words(
        "Username Password Name First_name Last_name Email Phone Address City Zip Search Date From To Subject Message "
        "Amount Company Title Verify_password Year_of_Birth Religion Country Color Answer Note Code Comment Quantity "
        "User_ID Topic"
    )
)
ENDS = ("Submit", "Login", "Search", "OK", "Send", "Save", "Next", "Enter", "Sign in", "Find", "Done", "Order")


def ask(turns: Turns, page: str = "", past: tuple[str, ...] = ()) -> TrainingExample:
    """Questions about one page, the first in the form of a prompt."""
    (question, answer), *more = turns
    return TrainingExample(policy_messages(History(question, Observation(page), past)), answer, tuple(more))


def act(command: Command, element: int, thought: str, text: str | None = None) -> str:
    """The text of a composite action."""
    return format_action(EnvAction(command, element, text), thought=thought)


def put(label: str, element: int, value: str, command: Command = Command.TYPE) -> str:
    """The text of typing a value, whose thought names the field, its id and the value."""
    return act(command, element, f"{label} [{element}] {value}", value)


def say(w: Words, longest: int = 12) -> TrainingExample:
    """Words to repeat: all, some of them, in reverse, or those that follow a given word."""
    said = list(dict.fromkeys(w.value() if w.chance(0.3) else w.word() for _ in range(2 + w.below(longest - 1))))
    kind, listed = w.below(4), " , ".join(said)
    turns = [(f"say {listed}", listed)]
    if kind == 1:
        turns += [("again", listed), ("backwards", " , ".join(reversed(said)))]
    elif kind == 2 and len(said) > 1:
        after = [(f"after {a}", f"{a} , {b}") for a, b in pairwise(said)]  # what is looked up is repeated first
        turns = [after[i] for i in w.rng.permutation(len(after)).tolist()]
        turns = [(f"{listed} . {turns[0][0]}", turns[0][1]), *turns[1:]]
    elif kind == 3:
        some = w.shuffled(said)[: 1 + w.below(len(said))]
        turns.append(("say " + " , ".join(some), " , ".join(some)))
    if not w.chance(0.4) or not turns:
        return ask(turns) if turns else ask([(f"say {listed}", listed)])
    others = "\n".join(f"text {w.value()}" for _ in range(w.below(6)))
    return ask(turns, others)


def quoted(w: Words, text: str) -> str:
    """The value as an instruction may write it."""
    return (f'"{text}"', text, text, f"'{text}'", f'"{text}"')[w.below(5)]


def form(w: Words) -> TrainingExample:
    """A form to fill from an instruction; some fields are filled already. Further turns ask for one field each.

    In half of them the instruction has more than the page asks for. The thought repeats what the instruction has, in
    its order, each with its state, up to the field that is due.
    """
    count = 1 + w.below(5)
    labels = w.shuffled([*LABELS])[:count] if w.chance(0.7) else list(dict.fromkeys(w.title() for _ in range(count)))
    pairs = [(label, w.value()) for label in labels]
    end = w.one(ENDS)
    told, said = instruction(w, pairs, end)
    shown = pairs
    if w.chance(0.5):
        shown = [pairs[i] for i in sorted(w.rng.permutation(len(pairs))[: 1 + w.below(len(pairs))].tolist())]
    lines, ids, element = [f"heading {w.title()}"] if w.chance(0.4) else [], dict[str, int](), 0
    filled = w.below(len(shown) + 1)
    for i, (label, value) in enumerate(shown):
        if w.chance(0.2):
            element += 1
            lines.append(f"link {w.title()} [{element}]")
        element += 1
        ids[label] = element
        named = w.chance(0.9)
        lines += [] if named else [f"text {label}"]
        lines.append(f"textbox {label + ' ' if named else ''}[{element}]" + (f": {value}" if i < filled else ""))
    lines.append(f"button {end} [{element + 1}]")

    def step(done: int) -> str:
        thought = list[str]()
        for pair in pairs:
            if pair in shown[done:]:
                thought.append(f"{said(*pair)} [{ids[pair[0]]}]")
                return act(Command.TYPE, ids[pair[0]], " , ".join(thought), pair[1])
            thought.append(f"{said(*pair)} {'yes' if pair in shown else 'no'}")
        return act(Command.CLICK, element + 1, " , ".join([*thought, f"{end} [{element + 1}]"]))

    past = tuple(step(i) for i in range(max(0, filled - w.below(4)), filled)) if w.chance(0.5) else ()
    more = [shown[i] for i in w.rng.permutation(len(shown)).tolist()]
    turns = [(told, step(filled)), *((f"fill {label}", put(label, ids[label], value)) for label, value in more)]
    return ask(turns, "\n".join(lines), past)


def guest(w: Words) -> TrainingExample:
    """A person in the middle of a request, whose name the page asks for in two fields."""
    first, last, phone, mail = w.name(), w.surname(), w.phone(), w.email()
    said = {
        "name": w.one((f"Name {first} {last}", f"I am {first} {last}", f"for {first} {last}", f"{first} {last}")),
        "phone": f"phone {phone}",
        "mail": f"{w.one(('email', 'e-mail', 'mail'))} {mail}",
    }
    person = " , ".join(said[part] for part in ("name", *w.shuffled(["phone", "mail"])))
    other = f"{w.one(('Book', 'Order', 'I want', 'Reserve'))} {w.title()} on {w.day()} at {w.time()}"
    told = w.one((f"{other} . {person} .", f"{person} : {other} .", f"{other} , {person} , thanks"))
    values = {"First name": first, "Last name": last, "Phone": phone, "Email": mail}
    labels = list(values) if w.chance(0.7) else w.shuffled(list(values))
    filled = w.below(len(labels) + 1)
    lines = [f"heading {w.title()}"] if w.chance(0.5) else []
    lines += [f"text {w.day()} , {w.title()}"] if w.chance(0.5) else []
    ids = {label: element for element, label in enumerate(labels, 1)}
    lines += [f"textbox {label} [{i}]" + (f": {values[label]}" if i <= filled else "") for label, i in ids.items()]
    end = w.one(ENDS)
    lines.append(f"button {end} [{len(labels) + 1}]")
    steps = {label: put(label, ids[label], value) for label, value in values.items()}
    due = steps[labels[filled]] if filled < len(labels) else act(Command.CLICK, len(labels) + 1, f"{end} [5]")
    turns = [(told, due), *((f"fill {label}", steps[label]) for label in w.shuffled(labels)[: w.below(4)])]
    return ask(turns, "\n".join(lines))


ALONE = ("Enter {} into the text field and press {}.", "type {} in the field , {}", "put {} into the field and {}")


def instruction(w: Words, pairs: list[tuple[str, str]], end: str) -> tuple[str, Callable[[str, str], str]]:
    """What a person asks for, and how a label and its value are said in the same order."""
    kind, said = w.below(6), [(label, quoted(w, value)) for label, value in pairs]
    if len(pairs) == 1 and w.chance(0.4):
        return w.one(ALONE).format(said[0][1], end), _label_first
    if kind == 0:
        named = " and ".join(f"the {label.lower()} {value}" for label, value in said)
        return f"Enter {named} into the text fields and press {end.lower()} .", _label_first
    if kind == 1:
        return " , ".join(f"{label} {value}" for label, value in said), _label_first
    if kind == 2:
        listed = " ; ".join(f"{label} : {value}" for label, value in said)
        return f"Fill the form . {listed} . Then {end} .", _label_first
    if kind == 3:
        return " ".join(f"Type {value} into {label} ." for label, value in said), _value_first
    if kind == 4:
        return " and ".join(f"type {value} in {label}" for label, value in said), _value_first
    return f"{end} with " + " , ".join(f"{value} as {label.lower()}" for label, value in said), _value_first


def _label_first(label: str, value: str) -> str:
    return f"{label} {value}"


def _value_first(label: str, value: str) -> str:
    return f"{value} {label}"


def pick(w: Words) -> TrainingExample:
    """Elements with similar names to click, or boxes to check; a name may be missing and the next page is due.

    If names share words, the thought compares each with the wanted one, up to the right one.
    """
    role = w.one(("link", "link", "button", "checkbox", "radio", "tab", "clickable"))
    names = w.similar(3 + w.below(7)) if w.chance(0.8) else list(dict.fromkeys(w.word() for _ in range(3 + w.below(7))))
    absent = names[len(names) - 1 - w.below(2) :]
    shown = names[: len(names) - len(absent)] or names[:1]
    first = 1 + w.below(6)
    ids = {name: first + i for i, name in enumerate(shown)}
    texts = [f"text {w.title()}" for _ in range(w.below(3))]
    lines = texts[:]
    for name in shown:
        lines.append(f"{role} {name} [{ids[name]}]")
        lines += [f"text {w.value()}"] if w.chance(0.15) else []
    onward = w.one(("Next", "More", "Submit", ">"))
    last = first + len(shown)
    lines.append(f"{'link' if onward != 'Submit' else 'button'} {onward} [{last}]")
    verb, turns = w.one(("Click", "click on the", "Open", "Select", "choose", "press", "go to")), []
    shared = len({word for name in shown for word in name.split()}) < sum(len(name.split()) for name in shown)
    for name in w.shuffled([*shown, *absent])[: 2 + w.below(5)]:
        said = compared(ids, name) if shared else []
        if name in ids:
            answer = act(Command.CLICK, ids[name], " , ".join(said) or f"{name} [{ids[name]}]")
        elif onward == "Submit":
            thought = " , ".join([*said, f"{name} is not here"])
            answer = format_action(EnvAction(Command.STOP), thought=thought, status=Status.FAIL)
        else:
            answer = act(Command.CLICK, last, " , ".join([*said, f"{name} is not here , {onward} [{last}]"]))
        turns.append((f"{verb} {quoted(w, name)}", answer))
    return ask(turns, "\n".join(lines))


def several(w: Words) -> TrainingExample:
    """Several boxes to check one after the other; the page shows which are checked. Then the button.

    The thought names the wanted ones in turn, each with its state, up to the first that is not checked.
    """
    names = list(dict.fromkeys(w.value() for _ in range(3 + w.below(5))))
    wanted = [name for name in names if w.chance(0.5)] or names[:1]
    done = w.below(len(wanted) + 1)
    end, ids = w.one(ENDS), {name: element for element, name in enumerate(names, 1)}
    lines = [f"checkbox {name} [{i}]" + (": checked" if name in wanted[:done] else "") for name, i in ids.items()]
    lines.append(f"button {end} [{len(names) + 1}]")
    told = w.shuffled(wanted) if w.chance(0.3) else wanted

    def step(checked: Sequence[str]) -> str:
        said = list[str]()
        for name in told:
            if name not in checked:
                return act(Command.CLICK, ids[name], " , ".join([*said, f"{name} [{ids[name]}]"]))
            said.append(f"{name} [{ids[name]}] checked")
        return act(Command.CLICK, len(names) + 1, " , ".join([*said, f"{end} [{len(names) + 1}]"]))

    past = tuple(step(told[:i]) for i in range(done)) if told == wanted and w.chance(0.5) else ()
    return ask([(f"Select {' , '.join(told)} and click {end} .", step(wanted[:done]))], "\n".join(lines), past)


def code(w: Words) -> TrainingExample:
    """Calls of Python functions: names from their documentation, arguments from the instruction."""
    app = w.word().lower()
    functions, docs = [], []
    for _ in range(1 + w.below(4)):
        function = f"{w.one(_VERBS)}_{w.word()}"
        names = list(dict.fromkeys(w.one(_ARGUMENTS) for _ in range(1 + w.below(3))))
        functions.append((function, names))
        docs.append(f"text apis.{app}.{function}({', '.join(names)})")
    turns = []
    for function, names in functions:
        values = [w.digits(1 + w.below(4)) if w.chance(0.3) else w.value() for _ in names]
        said = " and ".join(f"{name} {quoted(w, value)}" for name, value in zip(names, values, strict=True))
        given = ", ".join(
            f"{name}={value}" if value.isdigit() else f'{name}="{value}"'
            for name, value in zip(names, values, strict=True)
        )
        turns.append((f"call {function.replace('_', ' ')} with {said}", f"print(apis.{app}.{function}({given}))"))
    return ask(turns, "\n".join(docs))


_VERBS = words("show create delete update send search add remove like")
_ARGUMENTS = words(
    "access_token email password page_index page_limit query user_id song_id playlist_id note_id title content "
    "amount receiver_email product_id quantity phone_number username text min_price max_price sort_by date "
    "transaction_id"
)
