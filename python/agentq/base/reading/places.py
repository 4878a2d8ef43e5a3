"""Exercises in finding by place: fields beside their labels, buttons that look alike, the nth of something, days.

A thought walks to the place in steps that need one look each: the id of what is due, the label beside it, the value; or
the entry that is named, and from there control by control to the one that is asked for.
"""

from __future__ import annotations

from calendar import month_name, monthrange

from agentq.agent.actions import format_action
from agentq.base.exercises import TrainingExample
from agentq.base.reading.copying import ENDS, LABELS, act, ask, instruction
from agentq.base.reading.words import Words, ordinal
from agentq.envs.browser.experts.thoughts import beside, counted, in_month, numbered, pressed, walk
from agentq.types import Command, EnvAction

ROLES = ("textbox", "textbox", "checkbox", "radio", "button", "link")
_ROWS = (
    ("trash", "star"),
    ("-", "+"),
    ("reply", "retweet", "like", "share"),
    ("reply", "retweet", "like", "more"),
    ("Edit", "Delete"),
    ("Open", "Copy", "Remove"),
)
_ASKED_OF_ROWS = (
    "Find the email by {0} and click the {1} icon .",
    'For the user {0}, click on the "{1}" button.',
    "click {1} of {0}",
    "{1} for {0}",
    'Press "{1}" beside {0} .',
    "{0} : {1}",
)
_SHOWN_DAYS = 27  # of a month, at most, before the page has to be scrolled


def labelled(w: Words) -> TrainingExample:
    """Fields without a name, each below or above its label; the values are in the instruction, or in a table above."""
    count = 1 + w.below(5)
    labels = w.shuffled([*LABELS])[:count] if w.chance(0.6) else list(dict.fromkeys(w.title() for _ in range(count)))
    value = {label: w.value() for label in labels}
    end, lines = w.one(ENDS), [f"heading {w.title()}"] if w.chance(0.3) else []
    if tabled := w.chance(0.35):
        others = [label for label in w.shuffled([*LABELS])[: w.below(4)] if label not in value]
        cell = w.one(("text", "cell"))
        for label in w.shuffled([*labels, *others]):
            lines += [f"{cell} {label}", f"{cell} {value.get(label) or w.value()}"]
        told = w.one(_COPIED).format(end)
    else:
        told, _ = instruction(w, [(label, value[label]) for label in w.shuffled(labels)], end)
    first, above, colon = 1 + w.below(4), w.chance(0.75), ":" if w.chance(0.3) else ""
    lines += [f"link {w.title()} [{i}]" for i in range(1, first)]
    filled, last = w.below(len(labels) + 1), first + len(labels)
    for i, label in enumerate(labels):
        field = f"textbox [{first + i}]" + (f": {value[label]}" if i < filled else "")
        lines += [f"text {label}{colon}", field] if above else [field, f"text {label}{colon}"]
    lines.append(f"{w.one(('button', 'button', 'clickable'))} {end} [{last}]")

    def step(i: int) -> str:
        if i == len(labels):
            return act(Command.CLICK, last, f"{end} [{last}]")
        element, label = first + i, labels[i]
        return act(Command.TYPE, element, beside("textbox", element, f"{label}{colon}", value[label]), value[label])

    past = tuple(map(step, range(max(0, filled - 3), filled))) if w.chance(0.5) else ()
    named = [] if tabled and filled else [(f"fill {labels[i]}", step(i)) for i in w.rng.permutation(len(labels))]
    return ask([(told, step(filled)), *named], "\n".join(lines), past)


_COPIED = (
    "Enter the value that corresponds with each label into the form and submit when done.",
    "Fill the form with the values above . Then {} .",
    "Copy each value of the table into its field and press {}",
)


def rows(w: Words) -> TrainingExample:
    """Entries with the same buttons each; the thought goes from the entry to the button, control by control."""
    buttons, kind, first = w.one(_ROWS) if w.chance(0.7) else _drawn(w), w.below(3), 1 + w.below(3)
    lines = [f"clickable {w.word()} [{i}]" for i in range(1, first)]
    found, element = dict[str, list[tuple[str, int]]](), first
    for _ in range(3 + w.below(6)):
        name = (w.name(), f"@{w.word().lower()}", w.title())[kind]
        if name in found:
            continue
        lines += [f"heading {w.title()}"] if w.chance(0.1) else []
        found[name] = []
        if kind == 0:
            lines.append(f"clickable {name} {sentence(w, 5)}.. [{element}]")
            found[name].append((name, element))
            element += 1
        else:
            ago = f" {1 + w.below(20)}h ago" if w.chance(0.4) else ""
            lines += [f"text {w.surname()} {name}{ago}" if kind == 1 else f"text {name}", f"text {sentence(w, 5)}"]
        for button in buttons:
            lines.append(f"clickable {button} [{element}]")
            found[name].append((button, element))
            element += 1
    turns = []
    for name in w.shuffled([*found])[: 2 + w.below(4)]:
        here, at = found[name], w.below(len(buttons))
        if kind == 0 and w.chance(0.3):
            said = w.one(
                ("Find the email by {} and reply to them .", "open the email by {}", "Forward the email from {}")
            )
            turns.append((said.format(name), act(Command.CLICK, here[0][1], f"by {name} [{here[0][1]}]")))
            continue
        button, target = here[len(here) - len(buttons) + at]
        turns.append((w.one(_ASKED_OF_ROWS).format(name, button), act(Command.CLICK, target, walk(name, here, target))))
    return ask(turns, "\n".join(lines))


def _drawn(w: Words) -> tuple[str, ...]:
    return tuple(dict.fromkeys(w.word() for _ in range(2 + w.below(3))))


def posts(w: Words) -> TrainingExample:
    """The same button below each of a user's posts, or below so many of them; pressed ones say so. Then the end."""
    users = [f"@{w.word().lower()}" for _ in range(2 + w.below(2))]
    user, buttons, end = users[0], w.one(_ROWS[2:4]), w.one(("Submit", "Done", "OK"))
    written = [w.one(users) for _ in range(3 + w.below(6))]
    written = written if user in written else [*written, user]
    many, button = written.count(user), w.one(buttons)
    most = many if w.chance(0.5) else 1 + w.below(many)
    done, lines, element, here = w.below(most + 1), list[str](), 1, list[int]()
    surnames = {name: w.surname() for name in users}
    for name in written:
        lines += [f"text {surnames[name]} {name}", f"text {sentence(w, 4)}"]
        for each in buttons:
            mine = name == user and each == button
            here += [element] if mine else []
            lines.append(f"clickable {each}{' active' if mine and len(here) <= done else ''} [{element}]")
            element += 1
    lines.append(f"button {end} [{element}]")
    count = "all posts" if most == many and w.chance(0.7) else f"{most} post{'s' if most > 1 else ''}"
    told = f'Click the "{button.title()}" button on {count} by {user} and then click {end}.'
    if done == most:
        return ask(
            [(told, act(Command.CLICK, element, pressed(button, here[:done], f"{end} [{element}]")))], "\n".join(lines)
        )
    due = f"{button} [{here[done]}]"
    return ask(
        [(told, act(Command.CLICK, here[done], f"{user} , {pressed(button, here[:done], due)}"))], "\n".join(lines)
    )


def nth(w: Words) -> TrainingExample:
    """Controls without names, or links; the nth of a kind is clicked, checked or filled."""
    kinds = list(dict.fromkeys(w.one(ROLES) for _ in range(1 + w.below(3))))
    lines, ids, element = [f"text {sentence(w, 4)}"] if w.chance(0.3) else [], dict[str, list[int]](), 1 + w.below(3)
    lines += [f"button {w.title()} [{i}]" for i in range(1, element)] if "button" not in kinds else []
    for kind in kinds:
        ids[kind] = []
        for _ in range(2 + w.below(6)):
            named = f" {w.value()}" if kind in ("button", "link") or w.chance(0.1) else ""
            lines.append(f"{kind}{named} [{element}]")
            lines += [f"text {sentence(w, 4)}"] if kind == "link" and w.chance(0.5) else []
            ids[kind].append(element)
            element += 1
    turns = []
    for _ in range(2 + w.below(4)):
        kind = w.one(kinds)
        at = w.below(len(ids[kind]))
        place, target = ordinal(at + 1), ids[kind][at]
        if kind == "textbox" and w.chance(0.7):
            text = w.value()
            told = w.one(
                ('enter "{}" into the {} textbox', "Type {} in the {} input .", 'the number "{}" in the {} textbox')
            )
            answer = act(Command.TYPE, target, f"{counted(kind, ids[kind][: at + 1])} {text}", text)
            turns.append((told.format(text, place), answer))
        else:
            told = w.one(("Focus into the {} {} .", "click the {} {}", "Check the {} {} .", "find and click the {} {}"))
            turns.append((told.format(place, kind), act(Command.CLICK, target, counted(kind, ids[kind][: at + 1]))))
    return ask(turns, "\n".join(lines))


def word_at(w: Words) -> TrainingExample:
    """The nth or the last word of a text, without its punctuation, into a field."""
    text = sentence(w, 4 + w.below(14))
    said, inside = text.split(), w.chance(0.4)
    lines = [
        f"textbox [1]: {text}" if inside else f"text {text}",
        f"textbox [{1 + inside}]",
        f"button Submit [{2 + inside}]",
    ]
    field, turns = 1 + inside, []
    for _ in range(1 + w.below(3)):
        at = w.below(len(said))
        word = said[at].strip(".,")
        told = w.one(
            ("Find the {} word in the paragraph, type that into the textbox and press Submit .", "the {} word ?")
        )
        turns.append(
            (told.format(ordinal(at + 1)), act(Command.TYPE, field, f"{numbered(said[: at + 1])} , {word}", word))
        )
    last = said[-1].strip(".,")
    told = "Find the last word in the text area, enter it into the text field and hit Submit."
    turns.insert(w.below(2), (told, act(Command.TYPE, field, f"{' '.join(said[-2:])} , {last}", last)))
    return ask(turns, "\n".join(lines))


def passage(w: Words) -> TrainingExample:
    """Texts in fields, one of them to copy whole into the empty field."""
    texts = [sentence(w, 3 + w.below(6)) for _ in range(1 + w.below(4))]
    field = len(texts) + 1
    lines = [f"textbox [{i}]: {text}" for i, text in enumerate(texts, 1)]
    lines += [f"textbox [{field}]", f"button Submit [{field + 1}]"]
    turns = []
    for at in w.rng.permutation(len(texts)).tolist():
        told = "Copy the text in the textarea below, paste it into the textbox and press Submit."
        if len(texts) > 1:
            told = w.one(("Copy the text from the {} text area below and paste it", "copy the {} textbox")).format(
                ordinal(at + 1)
            )
        thought = f"{counted('textbox', [*range(1, at + 2)])} , textbox [{field}] {texts[at]}"
        turns.append((told, act(Command.TYPE, field, thought, texts[at])))
    return ask(turns, "\n".join(lines))


def calendar(w: Words) -> TrainingExample:
    """A month with its days and several dates: the day, or the month before or after; days below are scrolled to."""
    year, month, first = 2010 + w.below(20), 1 + w.below(12), 1 + w.below(40)
    prev, follow, start = first, first + 1, first + 2
    lines = ["text Date:", f"textbox [{start - 3}]"] if first > 1 else []
    lines += [f"link Prev [{prev}]", f"link Next [{follow}]", f"text {month_name[month]} {year}"]
    lines += [f"text {day}" for day in ("Su", "Mo", "Tu", "We", "Th", "Fr", "Sa")]
    days = monthrange(year, month)[1]
    shown = min(days, _SHOWN_DAYS) if w.chance(0.5) else days
    lines += [f"link {day} [{start + day - 1}]" for day in range(1, shown + 1)]
    turns = []
    for _ in range(2 + w.below(4)):
        wanted = month if w.chance(0.5) else 1 + w.below(12)
        day = 1 + w.below(monthrange(year, wanted)[1])
        told = w.one(("Select {} as the date and hit submit.", "the date is {}", "choose {}"))
        thought = in_month(wanted, month)
        if wanted != month:
            to, name = (prev, "Prev") if wanted < month else (follow, "Next")
            answer = act(Command.CLICK, to, f"{thought} , {name} [{to}]")
        elif day > shown:
            answer = format_action(EnvAction(Command.SCROLL, text="DOWN"), thought=f"{thought} , {day} is not here")
        else:
            answer = act(Command.CLICK, start + day - 1, f"{thought} , {day} [{start + day - 1}]")
        turns.append((told.format(f"{wanted:02d}/{day:02d}/{year}"), answer))
    return ask(turns, "\n".join(lines))


def record(w: Words) -> TrainingExample:
    """One person's record at a time: what is asked of that person, or the next page."""
    name, other, first = w.name(), w.name(), 1 + w.below(20)
    values = {"Phone": w.phone(), "Email": w.email(), "Address": f"{w.digits(3)} {w.title()}"}
    lines = [f"heading {name}"]
    for i, (label, value) in enumerate(values.items()):
        lines += [f"text {label}:", f"link {value} [{first + i}]"]
    lines += [f"link {text} [{first + 3 + i}]" for i, text in enumerate(("<", "1", ">"))]
    turns = []
    for label in w.shuffled([*values]):
        i, who = [*values].index(label), name if w.chance(0.6) else other
        told = f"Find {who} in the contact book and click on their {label.lower()}."
        if who == name:
            answer = act(Command.CLICK, first + i, f"{name} , {label}: [{first + i}]")
        else:
            answer = act(Command.CLICK, first + 5, f"{name} , not {who} , > [{first + 5}]")
        turns.append((told, answer))
    return ask(turns, "\n".join(lines))


def sentence(w: Words, n: int) -> str:
    """`n` words with capitals and stops here and there, as in a text that fills a page."""
    said, fresh = list[str](), True
    for _ in range(n):
        word = w.word()
        stop = w.one(("", "", "", "", ".", ","))
        said.append((word.capitalize() if fresh else word.lower()) + stop)
        fresh = stop == "."
    return " ".join(said).rstrip(",")
