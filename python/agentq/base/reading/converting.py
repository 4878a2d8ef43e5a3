"""Exercises in writing what is shown in another form: dates, times, sums, letters in a row, odd and even."""

from __future__ import annotations

from collections.abc import Callable

from agentq.base.exercises import TrainingExample
from agentq.base.reading.copying import ALONE, LABELS, act, ask, quoted
from agentq.base.reading.words import Words
from agentq.types import Command

Draw = Callable[[Words], tuple[str, str, str]]  # what is shown or said, the thought, what is typed


def convert(w: Words) -> TrainingExample:
    """Values to type as they are, or in another form than they have in the instruction or on the page."""
    letters, turns, label = w.code(), [], w.one(LABELS) if w.chance(0.4) else ""
    for _ in range(1 + w.below(4)):
        said, thought, text = w.one(_DRAWS)(w) if w.chance(0.8) else (_BELOW, "", letters)
        told = f"{label or 'textbox'} [1] {text}"
        turns.append((said, act(Command.TYPE, 1, f"{thought} , {told}" if thought else told, text)))
    shown = f"text {' '.join(letters)}\n" if any(said == _BELOW for said, _ in turns) else ""
    return ask(turns, f"{shown}textbox {label + ' ' if label else ''}[1]\nbutton Submit [2]")


_BELOW = "Type the text below into the text field and press Submit."


def sums(w: Words) -> TrainingExample:
    """Sums, differences, products and equations, each solved on its page or among several."""
    asked = [_sum(w) for _ in range(1 if w.chance(0.3) else 2 + w.below(6))]
    if len(asked) > 1:
        return ask([(shown, solved) for shown, solved, _ in asked])
    (shown, solved, result), more = asked[0], "text x =\n" if "x" in asked[0][0].split()[::2] else ""
    told = w.one(
        ("Solve the math problem and type your answer into the textbox .", "Solve for x and type your answer .")
    )
    answer = act(Command.TYPE, 1, f"{solved} , textbox [1] {result}", str(result))
    return ask([(told, answer)], f"text {shown}\n{more}textbox [1]\nbutton Submit [2]")


def _sum(w: Words) -> tuple[str, str, int]:
    """What is shown, how it is solved, and the result."""
    top = w.one((10, 10, 20, 100))
    a, b, sign = w.below(top + 1), w.below(top + 1), w.one("++--x")
    if sign == "x":
        a, b = w.below(11), w.below(11)
    result = {"+": a + b, "-": a - b, "x": a * b}[sign]
    if sign == "x" or w.chance(0.5):
        return f"{a} {sign} {b} =", f"{a} {sign} {b} = {result}", result
    known = w.chance(0.5)  # the first number, else the second
    x = b if known else a
    shown = f"{a} {sign} x = {result}" if known else f"x {sign} {b} = {result}"
    if not known:
        back = f"{result} {'-' if sign == '+' else '+'} {b}"
    else:
        back = f"{result} - {a}" if sign == "+" else f"{a} - {result}"
    return shown, f"{back} = {x}", x


def parity(w: Words) -> TrainingExample:
    """Rows of a number between two buttons: after those pressed, the one that fits the number."""
    numbers = [w.below(21) - 10 if w.chance(0.5) else w.below(100) for _ in range(2 + w.below(4))]
    lines = [
        line
        for i, n in enumerate(numbers)
        for line in (f"button Odd [{2 * i + 1}]", f"text {n}", f"button Even [{2 * i + 2}]")
    ]
    end = 2 * len(numbers) + 1
    lines.append(f"button Submit [{end}]")
    steps = [act(Command.CLICK, 2 * i + 2 - n % 2, even(n, 2 * i + 2 - n % 2)) for i, n in enumerate(numbers)]
    steps.append(act(Command.CLICK, end, f"Submit [{end}]"))
    done = w.below(len(steps))
    told = w.one(("Mark the numbers below as odd or even and press submit when done.", "odd or even ?"))
    return ask([(told, steps[done])], "\n".join(lines), tuple(steps[:done]))


def even(number: int, element: int) -> str:
    """The thought about a number and its button."""
    name = "Odd" if number % 2 else "Even"
    return f"{number} , {name} [{element}]"


def _date(w: Words) -> tuple[str, str, str]:
    month, day, year = f"{1 + w.below(12):02d}", f"{1 + w.below(28):02d}", f"{1990 + w.below(40)}"
    said = w.one(("Enter {} as the date and hit submit.", "the date {}")).format(f"{month}/{day}/{year}")
    return said, f"year {year} month {month} day {day}", f"{year}-{month}-{day}"


def _time(w: Words) -> tuple[str, str, str]:
    hour, minute, half = 1 + w.below(12), f"{w.below(60):02d}", w.one(("AM", "PM"))
    of_day = f"{hour % 12 + 12 * (half == 'PM'):02d}"
    said = w.one(("Enter {} as the time and press submit.", "the time {}")).format(f"{hour}:{minute} {half}")
    return said, f"{hour} {half} is {of_day}", f"{of_day}:{minute}"


def _case(w: Words) -> tuple[str, str, str]:
    word, upper = w.word(), w.chance(0.5)
    shown, wanted = (word.lower(), word.upper()) if upper else (word.upper(), word.lower())
    kind = "upper" if upper else "lower"
    return f'Type "{shown}" in all {kind} case letters in the text input and press Submit.', "", wanted


def _same(w: Words) -> tuple[str, str, str]:
    text = w.value()
    return w.one(ALONE).format(quoted(w, text), "Submit"), "", text


_DRAWS: tuple[Draw, ...] = (_date, _time, _case, _same, _same)
