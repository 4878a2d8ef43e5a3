"""Experts of forms: fields to fill, boxes to check, options to choose."""

from __future__ import annotations

import calendar
import re

from agentq.envs.browser.experts.look import Look, PageExpert
from agentq.envs.browser.experts.thoughts import beside, counted, in_month, numbered
from agentq.envs.web_env import Advice
from agentq.types import Command

_HEX = {
    "black": "000000",
    "white": "FFFFFF",
    "gray": "808080",
    "silver": "C0C0C0",
    "red": "FF0000",
    "lime": "00FF00",
    "blue": "0000FF",
    "aqua": "00FFFF",
    "magenta": "FF00FF",
    "yellow": "FFFF00",
    "maroon": "800000",
    "navy": "000080",
    "green": "008000",
    "teal": "008080",
    "purple": "800080",
    "olive": "808000",
    "pink": "FFC0CB",
    "gold": "FFD700",
    "orange": "FFA500",
}


def _enter(look: Look) -> Advice:
    return look.fill({look.all("textbox")[0]: look.quoted[0]})


def _case(look: Look) -> Advice:
    text = look.quoted[0]
    return look.fill({look.all("textbox")[0]: text.upper() if "upper" in look.said else text.lower()})


def _password(look: Look) -> Advice:
    return look.fill(dict.fromkeys(look.all("textbox"), look.quoted[0]), labelled=True)


def _login(look: Look) -> Advice:
    if cancel := look.find("Cancel"):  # a dialog that offers to leave
        return look.click(cancel, "stay here")
    values = dict(zip(look.all("textbox"), look.quoted, strict=True))
    return look.fill(values, look.name(look.all("button")[0]), labelled=True)


def _date(look: Look) -> Advice:
    month, day, year = look.words(r"(\d+)/(\d+)/(\d+)")
    return look.because(
        f"year {year} month {month} day {day}", look.fill({look.all("textbox")[0]: f"{year}-{month}-{day}"})
    )


def _time(look: Look) -> Advice:
    hour, minute, half = look.words(r"(\d+):(\d+) (AM|PM)")
    of_day = int(hour) % 12 + 12 * (half == "PM")
    return look.because(f"{hour} {half} is {of_day:02}", look.fill({look.all("textbox")[0]: f"{of_day:02}:{minute}"}))


def _number(look: Look) -> Advice:
    return look.fill({look.all("textbox")[0]: look.words(r"Select (-?\d+)")[0]})


def _nth_word(look: Look) -> Advice:
    said = look.line(look.lines[0]).split()[: look.nth() + 1]
    word = said[-1].strip(".,")
    advice = look.fill({look.all("textbox")[0]: word})
    return look.thinking(f"{numbered(said)} , {word}", advice)


def _last_word(look: Look) -> Advice:
    text, field = look.all("textbox")
    said = look.value(text).split()[-2:]
    word, advice = said[-1].strip(".,"), look.fill({field: said[-1].strip(".,")})
    return look.thinking(f"{' '.join(said)} , {word}", advice)


def _transform(look: Look) -> Advice:
    return look.fill({look.all("textbox")[0]: look.line(look.lines[0]).replace(" ", "")})


def _copy(look: Look) -> Advice:
    empty = [e for e in look.all("textbox") if not look.value(e)]
    field = empty[0] if empty else next(a.element or 0 for a in look.done if a.command is Command.TYPE)
    texts = [e for e in look.all("textbox") if e != field]
    text = look.value(texts[look.nth() if len(texts) > 1 else 0])
    if text.strip() == look.value(field).strip() and text != text.strip() and not look.did(Command.PRESS):
        return look.press("Space", why="the space at its end")
    upto = texts[: texts.index(next(e for e in texts if look.value(e) == text)) + 1]
    return look.because(counted("textbox", upto), look.fill({field: text}))


def _sum(look: Look) -> Advice:
    a, sign, b = look.line(look.lines[0]).removesuffix("=").split()
    result = {"+": int(a) + int(b), "-": int(a) - int(b), "x": int(a) * int(b)}[sign]
    return look.because(f"{a} {sign} {b} = {result}", look.fill({look.all("textbox")[0]: str(result)}))


def _equation(look: Look) -> Advice:
    """`a + x = c`, `x - b = c` and so on."""
    a, sign, b, _, c = look.line(look.lines[0]).split()
    if a == "x":
        first, back, second = c, "-" if sign == "+" else "+", b
    else:
        first, back, second = (c, "-", a) if sign == "+" else (a, "-", c)
    x = int(first) + int(second) if back == "+" else int(first) - int(second)
    return look.because(f"{first} {back} {second} = {x}", look.fill({look.all("textbox")[0]: str(x)}))


def _table(look: Look) -> Advice:
    """Rows of a label and its value; the labels of the fields end in a colon."""
    texts = [look.line(line) for line in look.lines if isinstance(line, str)]
    row = dict(zip(texts[0:10:2], texts[1:10:2], strict=True))
    if asked := look.words(r"value of (.+) into"):
        field, value = look.all("textbox")[0], row[asked[0]]
        advice = look.fill({field: value})
        return look.thinking(f"{asked[0]} [{field}] {value}", advice)
    return look.fill({field: row[look.label(field).removesuffix(":")] for field in look.all("textbox")}, labelled=True)


def _movies(look: Look) -> Advice:
    """Three fields with labels above or below them, in any order and wording."""
    genre, director, year = look.words(r"Search for (.+) movies directed by (.+) from year (\d+)")
    lines = look.lines
    fields = [i for i, line in enumerate(lines) if isinstance(line, int) and look.role(line) == "textbox"]
    step = 1 if isinstance(lines[fields[0] - 1], int) or fields[0] == 0 else -1
    values, labels = {}, {}
    for i in fields:
        label = look.line(lines[i + step])
        labels[int(lines[i])] = label
        values[int(lines[i])] = director if "Dir" in label else genre if "Genre" in label else year
    button = next(e for e in look.all() if look.role(e) != "textbox")
    left = next((field for field, value in values.items() if look.value(field) != value), 0)
    advice = look.fill(values, look.name(button))
    return look.thinking(beside("textbox", left, labels[left], values[left]), advice) if left else advice


def _checkboxes(look: Look) -> Advice:
    names = look.words(r"Select (.+) and click Submit")[0].split(", ")
    boxes = {look.name(e): e for e in look.all("checkbox")}
    return look.check([boxes[name] for name in names if name in boxes])


def _option(look: Look) -> Advice:
    return look.check([look.find(look.words(r"Select (.+) and click")[0], "radio")])


def _list(look: Look) -> Advice:
    return _choose(look, look.words(r"Select (.+) from the (?:scroll )?list")[0].split(", "))


def _choose(look: Look, options: list[str]) -> Advice:
    field = look.all("combobox")[0]
    missing = [each for each in options if each not in look.value(field).split(" , ")]
    return look.act(Command.SELECT, field, "choose it", missing[0]) if missing else look.submit()


def _guess(look: Look) -> Advice:
    """Halves the rest of 0 to 9. The answer to an earlier guess follows from the guess after it."""
    field = look.all("textbox")[0]
    told = re.search(r"The number is (lower|higher) than (\d+)", look.line(look.lines[0]))
    low, high, value = 0, 9, look.value(field)
    if told is None:
        return look.fill({field: "4"})
    if value != told[2]:
        return look.submit()
    guesses = [int(a.text or "") for a in look.done if a.command is Command.TYPE]
    for guess, following in zip(guesses, [*guesses[1:], 10 if told[1] == "higher" else -1], strict=True):
        low, high = (guess + 1, high) if following > guess else (low, guess - 1)
    return look.act(Command.TYPE, field, "guess", str((low + high) // 2))


def _radio_and_text(look: Look) -> Advice:
    radio, number, field = look.words(r'the (\w+) radio button and enter the number "(-?\d+)" into the (\w+) textbox')
    boxes, fields = look.all("radio")[: int(radio[0])], look.all("textbox")[: int(field[0])]
    if not look.value(boxes[-1]):
        return look.thinking(counted("radio", boxes), look.click(boxes[-1], "check it"))
    advice = look.fill({fields[-1]: number})
    return look.thinking(f"{counted('textbox', fields)} {number}", advice)


def _search(look: Look) -> Advice:
    """Three results per page: turn to the page with the requested result."""
    field, nth = look.all("textbox")[0], look.nth()
    turned = look.count(Command.CLICK)
    if turned == 0:
        return look.fill({field: look.quoted[0]}, "Search")
    if turned <= nth // 3:
        return look.because(f"{nth + 1} is on page {nth // 3 + 1}", look.click(look.find(">"), "next page"))
    links = look.all("link")[: nth % 3 + 1]
    return look.thinking(f"{nth % 3 + 1} here , {counted('link', links)}", look.click(links[-1]))


def _complete(look: Look) -> Advice:
    """Type the beginning, then take the option with the requested end."""
    field, (start, *end) = look.all("textbox")[0], look.quoted
    fits = [e for e in look.all("clickable") if look.name(e).endswith(end[0] if end else "")]
    if fits:
        return look.click(fits[0], "take it")
    return look.submit() if look.value(field) else look.act(Command.TYPE, field, "enter it", start)


def _complete_later(look: Look) -> Advice:
    """The same where the options take a moment to appear."""
    return look.wait(1) if look.done and look.done[-1].command is Command.TYPE else _complete(look)


def _calendar(look: Look) -> Advice:
    """A date picker that begins in December 2016."""
    month, day, _ = map(int, look.words(r"Select (\d+)/(\d+)/(\d+)"))
    if look.view.scroll:
        return look.click(look.find(str(day), "link"))
    field = look.all("textbox")[0]
    if look.value(field):
        return look.submit()
    if not look.find("Prev"):
        return look.click(field, "open it")
    shown = next(look.line(line).split()[0] for line in look.lines if str(line).endswith(" 2016"))
    here = list(calendar.month_name).index(shown)
    if here > month:
        return look.because(in_month(month, here), look.click(look.find("Prev"), "previous month"))
    return look.because(in_month(month, here), look.click(look.find(str(day), "link")))


def _color(look: Look) -> Advice:
    """A colour picker takes hexadecimal digits as well."""
    return look.fill({look.all("textbox")[0]: _HEX[look.words(r"Select (\w+)")[0]]})


def _dropdown(look: Look) -> Advice:
    """A button opens a list beside an editable field; then one of three buttons."""
    option, button = look.words(r'Choose (.+) from the dropdown, then click the button labeled "(\w+)"')
    if look.did(Command.CLICK, look.find(option)) or look.count(Command.CLICK) > 1:
        return look.click(look.find(button))
    return look.click(look.find(option) or look.find("▾"), "choose it" if look.find(option) else "open it")


EXPERTS: dict[str, PageExpert] = {
    **dict.fromkeys(("enter-text", "enter-text-dynamic"), _enter),
    **dict.fromkeys(("login-user", "login-user-popup"), _login),
    **dict.fromkeys(("copy-paste", "copy-paste-2"), _copy),
    **dict.fromkeys(("read-table", "read-table-2"), _table),
    **dict.fromkeys(("multi-layouts", "multi-orderings"), _movies),
    **dict.fromkeys(("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer"), _checkboxes),
    **dict.fromkeys(("choose-list", "click-scroll-list"), _list),
    **dict.fromkeys(("choose-date", "choose-date-nodelay", "choose-date-easy", "choose-date-medium"), _calendar),
    "enter-text-2": _case,
    "enter-password": _password,
    "enter-date": _date,
    "enter-time": _time,
    "use-spinner": _number,
    "find-word": _nth_word,
    "scroll-text": _last_word,
    "text-transform": _transform,
    "simple-arithmetic": _sum,
    "simple-algebra": _equation,
    "click-option": _option,
    "guess-number": _guess,
    "use-colorwheel": _color,
    "form-sequence-3": _dropdown,
    "form-sequence-2": _radio_and_text,
    "search-engine": _search,
    "use-autocomplete-nodelay": _complete,
    "use-autocomplete": _complete_later,
}
