"""Exercises in finding by place and in writing in another form: each answer is what its page and question say."""

from __future__ import annotations

import re
from calendar import month_name
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("transformers")

from agentq.agent.actions import parse_action
from agentq.base.reading import converting, places
from agentq.base.reading.mixture import KINDS
from agentq.base.reading.words import Words, ordinal
from agentq.envs.browser.experts.thoughts import best, counted, in_month, numbered, pressed, walk
from agentq.types import Command, EnvAction

_QUERY = re.compile(r"QUERY: (.*?)\nOBSERVATION:\n?(.*)\Z", re.DOTALL)


class Turn(NamedTuple):
    said: str
    page: list[str]
    thought: str
    action: EnvAction


def turns(kind: str, n: int = 40) -> Iterator[Turn]:
    """The questions and answers of `n` exercises."""
    for seed in range(n):
        example = KINDS[kind](Words(np.random.default_rng(seed)))
        found = _QUERY.search(example.messages[-1]["content"])
        assert found
        for said, answer in ((found[1], example.answer), *example.more):
            action = parse_action(answer)
            assert action.env_action
            yield Turn(said, found[2].rstrip().splitlines(), action.thought, action.env_action)


def line_of(page: list[str], element: int | None) -> int:
    """The index of the line of an element."""
    return next(i for i, line in enumerate(page) if f"[{element}]" in line)


def test_thoughts_walk_to_the_element() -> None:
    row = [("trash", 3), ("star", 4)]
    assert walk("Toby", [("Toby", 2), *row], 4) == "Toby [2] , trash [3] , star [4]"
    assert walk("@kasie", row, 3) == "@kasie , trash [3]"
    assert counted("radio", [4, 7]) == "1 radio [4] , 2 radio [7]"
    assert pressed("like", [3, 9], "like [12]") == "1 like [3] , 2 like [9] , like [12]"
    assert numbered(["A", "b."]) == "1 A 2 b."
    assert in_month(6, 12) == "06 is June , here is December 12"
    assert [ordinal(n) for n in (1, 2, 3, 4, 11)] == ["1st", "2nd", "3rd", "4th", "11th"]


def test_an_extreme_is_the_first_of_its_value_with_a_verdict_on_each() -> None:
    values = [(5, "$7"), (6, "$9"), (8, "$7"), (9, "$3")]
    assert best(values, [7, 9, 7, 3], min) == ("[5] $7 , [6] $9 no , [8] $7 no , [9] $3 yes", 9)
    assert best(values[:3], [7, 9, 7], max) == ("[5] $7 , [6] $9 yes , [8] $7 no", 6)
    assert best(values[:1], [7], max) == ("[5] $7", 5)


def test_a_field_gets_the_value_of_the_label_beside_it() -> None:
    typed = 0
    for turn in turns("labelled"):
        if turn.action.command is Command.CLICK:
            assert not any(re.fullmatch(r"textbox \[\d+\]", line) for line in turn.page) or "fill" in turn.said
            continue
        typed += 1
        at = line_of(turn.page, turn.action.element)
        found = re.fullmatch(r"textbox \[(\d+)\] (.+) , (.+)", turn.thought)
        assert found and int(found[1]) == turn.action.element and found[3] == turn.action.text
        assert f"text {found[2]}" in (turn.page[at - 1], turn.page[at + 1])
        label = found[2].removesuffix(":")
        assert label.lower() in turn.said.lower() or f"text {label}" in turn.page or f"cell {label}" in turn.page
    assert typed > 60


def test_a_button_is_the_one_of_the_entry_that_is_named() -> None:
    pressed_here, opened = 0, 0
    for turn in turns("rows"):
        at = line_of(turn.page, turn.action.element)
        if turn.thought.startswith("by "):
            name = turn.thought.removeprefix("by ").partition(" [")[0]
            assert turn.page[at].startswith(f"clickable {name} ") and name in turn.said
            opened += 1
            continue
        name = re.split(r" (?:\[\d+\] )?, ", turn.thought)[0]
        button = turn.page[at].removeprefix("clickable ").partition(" [")[0]
        above = [i for i, line in enumerate(turn.page) if name in line]
        assert name in turn.said and button in turn.said and len(above) == 1 and above[0] < at
        between = re.findall(r"\[(\d+)\]", turn.thought)
        assert between == re.findall(r"\[(\d+)\]", "\n".join(turn.page[above[0] : at + 1]))
        pressed_here += 1
    assert pressed_here > 60 and opened > 3


def test_posts_are_pressed_in_turn_until_there_are_as_many_as_asked_for() -> None:
    ends = 0
    for turn in turns("posts", 80):
        asked = re.match(r'Click the "(.+)" button on (all|\d+) posts? by (@\w+)', turn.said)
        assert asked
        button, user = asked[1].lower(), asked[3]
        mine, owner = list[tuple[int, bool]](), ""
        for line in turn.page:
            owner = line.split()[-1] if re.match(r"text \w+ @", line) else owner
            if found := re.fullmatch(rf"clickable {button}( active)? \[(\d+)\]", line):
                mine += [(int(found[2]), bool(found[1]))] if owner == user else []
        left = [element for element, active in mine if not active]
        done = len(mine) - len(left)
        if not left or (asked[2] != "all" and done == int(asked[2])):
            assert turn.page[line_of(turn.page, turn.action.element)].startswith("button ")
            ends += 1
        else:
            assert turn.action.element == left[0]
    assert ends > 10


def test_the_nth_is_counted_among_its_kind() -> None:
    for turn in turns("nth"):
        place, kind = re.findall(r"\d+(?=st|nd|rd|th)", turn.said)[-1], turn.thought.split()[1]
        same = [line for line in turn.page if line.startswith(f"{kind} ")]
        assert f"[{turn.action.element}]" in same[int(place) - 1]


def test_a_word_is_counted_in_its_text() -> None:
    for turn in turns("word_at"):
        text = turn.page[0].removeprefix("text ").removeprefix("textbox [1]: ").split()
        found = re.search(r"(\d+)(?:st|nd|rd|th)", turn.said)
        assert turn.action.text == text[int(found[1]) - 1 if found else -1].strip(".,")


def test_a_day_is_reached_through_its_month() -> None:
    names = list(month_name)
    ways = set()
    for turn in turns("calendar"):
        month, day, _ = (int(n) for n in re.findall(r"(\d+)/(\d+)/(\d+)", turn.said)[0])
        here = next(names.index(line.split()[1]) for line in turn.page if line.split()[1] in names)
        links = {line.split()[1]: line for line in turn.page if line.startswith("link ")}
        wanted = str(day) if here == month else "Prev" if month < here else "Next"
        if wanted in links:
            assert f"[{turn.action.element}]" in links[wanted]
        else:
            assert turn.action.command is Command.SCROLL and int(wanted) > 27
        ways.add(wanted if not wanted.isdigit() else turn.action.command)
    assert ways == {"Prev", "Next", Command.CLICK, Command.SCROLL}


def test_a_record_is_of_the_person_that_is_looked_for_or_the_next_one_is_due() -> None:
    for turn in turns("record"):
        here = turn.page[0].removeprefix("heading ")
        at = line_of(turn.page, turn.action.element)
        if f"Find {here} in" in turn.said:
            assert turn.page[at - 1].removeprefix("text ").lower().removesuffix(":") in turn.said
        else:
            assert turn.page[at].startswith("link > ")


def test_a_passage_is_copied_whole() -> None:
    for turn in turns("passage"):
        found = re.search(r"(\d+)(?:st|nd|rd|th)", turn.said)
        assert (
            turn.page[int(found[1]) - 1 if found else 0] == f"textbox [{found[1] if found else 1}]: {turn.action.text}"
        )


def test_values_are_written_in_the_form_of_the_field() -> None:
    kinds = set()
    for turn in turns("convert", 60):
        text = turn.action.text
        if date := re.search(r"(?:Enter|the date) (\d\d)/(\d\d)/(\d{4})", turn.said):
            assert text == f"{date[3]}-{date[1]}-{date[2]}"
        elif time := re.search(r"(?:Enter|the time) (\d+):(\d\d) (AM|PM)", turn.said):
            assert text == f"{int(time[1]) % 12 + 12 * (time[3] == 'PM'):02d}:{time[2]}"
        elif case := re.search(r'"(.+)" in all (upper|lower)', turn.said):
            assert text == (case[1].upper() if case[2] == "upper" else case[1].lower())
        elif "text below" in turn.said:
            assert turn.page[0] == f"text {' '.join(text or '')}"
        else:
            assert text and text in turn.said
        kinds.add(turn.said.split()[0])
    assert len(kinds) > 2


def test_sums_and_equations_are_solved() -> None:
    w = Words(np.random.default_rng(0))
    for _ in range(300):
        shown, solved, result = converting._sum(w)
        a, sign, b, _, *right = shown.split()
        done = {"+": int.__add__, "-": int.__sub__, "x": int.__mul__}
        if right:
            left, second = (result if n == "x" else int(n) for n in (a, b))
            assert done[sign](left, second) == int(right[0])
        else:
            assert done[sign](int(a), int(b)) == result
        first, how, other, _, last = solved.split()
        assert done[how](int(first), int(other)) == int(last) == result


def test_each_number_gets_the_button_that_fits() -> None:
    for turn in turns("parity"):
        numbers = [int(line.split()[1]) for line in turn.page if line.startswith("text ")]
        line = turn.page[line_of(turn.page, turn.action.element)]
        if not line.startswith("button Submit"):
            n = numbers[((turn.action.element or 0) - 1) // 2]
            assert line.split()[1] == ("Odd" if n % 2 else "Even")


def test_a_sentence_ends_without_a_comma() -> None:
    w = Words(np.random.default_rng(0))
    assert all(len(text.split()) == 5 and text[-1] != "," for text in (places.sentence(w, 5) for _ in range(50)))
