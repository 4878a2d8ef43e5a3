"""The reading base's exercises in code, in text games and in checking: possible answers to what a policy is shown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic_monty")
from agentq import envs
from agentq.agent.actions import format_action, parse_action
from agentq.agent.prompts import policy_messages
from agentq.base.reading.checking import checked, chosen, leaves
from agentq.base.reading.copying import guest
from agentq.base.reading.encoding import encode
from agentq.base.reading.games import game
from agentq.base.reading.mixture import own_texts
from agentq.base.reading.programs import SITE, Programs, session
from agentq.base.reading.proposing import likely_instead, miscopied
from agentq.base.reading.sites import Sites
from agentq.base.reading.tokenizer import train_reading_tokenizer
from agentq.base.reading.words import Words
from agentq.types import Command, EnvAction, History, Language, Split


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_reading_tokenizer(own_texts(5, 0), vocab_size=800, context_tokens=2048)


def test_each_line_of_a_game_is_one_that_its_page_lists() -> None:
    said = set()
    for seed in range(200):
        example = game(Words(np.random.default_rng(seed)))
        page = example.messages[-1]["content"]
        for question, answer in ((page, example.answer), *example.more):
            action = parse_action(answer, language=Language.TEXT).env_action
            listed = question.rsplit("You can: ", 1)[1].split("; ")
            assert action is not None and str(action) in listed
            said.add(str(action).split()[0])
    assert said == {"go", "take", "open", "close", "unlock", "insert", "drop"}


def test_a_game_tells_its_steps_in_order() -> None:
    for seed in range(50):
        example = game(Words(np.random.default_rng(seed)))
        told = example.messages[-1]["content"].partition("\n")[0]
        at = 0
        for answer in (example.answer, *(text for _, text in example.more)):
            line = str(parse_action(answer, language=Language.TEXT).env_action)
            what = line.split(" ", 1)[1].split(" with ")[0].split(" from ")[0].split(" into ")[0]
            assert what in told[at:], (line, told[at:])
            at = told.index(what, at)


def test_an_episode_of_apps_is_learned_as_the_policy_is_asked(tokenizer: Any) -> None:
    (example,) = Programs.collect(1, first_task=4).episodes
    env, expert = envs.make(SITE), envs.expert(SITE)
    task = envs.task(SITE, Split.BASE, 4)
    history = History.of(task, env.reset(task))
    learned, turns, won = tokenizer.decode(encode(tokenizer, example).ids), 0, False
    while True:
        prompt = tokenizer.apply_chat_template(policy_messages(history), add_generation_prompt=True, tokenize=False)
        advice = expert(task, env)
        text = format_action(advice.env_action, thought=advice.thought, status=advice.status)
        assert learned.startswith(f"{prompt}{text}<|end|>")
        result, turns = env.step(advice.env_action), turns + 1
        if result.terminated:
            won = result.success
            break
        history = history.then(text, result.observation)
    assert won and turns == 1 + len(example.more)


def test_a_session_with_an_app_that_does_not_exist_is_python_about_what_was_asked() -> None:
    for seed in range(50):
        example = session(Words(np.random.default_rng(seed)))
        answers = [example.answer, *(text for _, text in example.more)]
        blocks = [str(parse_action(answer, language=Language.CODE).env_action) for answer in answers]
        assert len(blocks) == 3 and all(ast.parse(block) for block in blocks)
        row = ast.literal_eval(example.more[-1][0].partition("\n")[2])
        if "answer=answer" in blocks[2]:
            field = blocks[1].rsplit('["', 1)[1].removesuffix('"]')
            assert field in row and field in example.messages[-1]["content"].partition("\n")[0]
        else:
            assert "update_" in blocks[2] and row["title"] in example.messages[-1]["content"]


FORM = "heading Blue Fox\ncombobox Date [1]: June 22\ncombobox Party [2]\nbutton Find table [3]\nlink Home [4]"
LIST = "textbox Search [1]: Fox\nlink Blue Fox Diner [2]\ntext cheap\nlink Old Fox Diner [3]\nlink Next [4]"


@pytest.mark.parametrize(
    ("page", "due", "said"),
    [
        (FORM, EnvAction(Command.SELECT, 1, "May 3"), "Date June 22 no , Date [1] May 3"),
        (FORM, EnvAction(Command.SELECT, 2, "4"), "Date June 22 yes , Party empty no , Party [2] 4"),
        (FORM, EnvAction(Command.CLICK, 3), "Date June 22 yes , Party empty yes , Find table [3]"),
        (
            LIST,
            EnvAction(Command.CLICK, 3),
            "Search Fox yes , Blue Fox Diner no , Old Fox Diner yes , Old Fox Diner [3]",
        ),
        (
            LIST,
            EnvAction(Command.CLICK, 4),
            "Search Fox yes , Blue Fox Diner no , Old Fox Diner no , Next yes , Next [4]",
        ),
        (FORM, EnvAction(Command.STOP), "done"),
        (FORM, EnvAction(Command.CLICK, 9), "done"),
    ],
)
def test_a_critic_checks_what_stands_before_the_due_element(page: str, due: EnvAction, said: str) -> None:
    assert checked(page, due, "done") == said
    assert checked(page, due, "[3] 61 no , open [4]") == "[3] 61 no , open [4]", "it has verdicts of its own"


DETAILS = """heading Your details
text Blue Fox Diner Marina
text May 4 at 7:30 PM , party of 2
textbox First name [1]
combobox Seating [2]
link Change [3]
link Home [4]"""


@pytest.mark.parametrize(
    ("thought", "said"),
    [
        ("change to May 4 at 8:00 PM , Change [3]", ["Blue Fox Diner Marina yes", "May 4 at 7:30 PM , party of 2 no"]),
        ("go back to find Old Fox Diner , Home [4]", ["Blue Fox Diner Marina no"]),
        ("First name [1] Ann", ["Blue Fox Diner Marina yes", "May 4 at 7:30 PM , party of 2 yes"]),
    ],
)
def test_a_critic_checks_first_what_was_chosen_on_earlier_pages(thought: str, said: list[str]) -> None:
    assert chosen(DETAILS, thought) == said
    form = "heading Blue Fox Diner Marina\ntext Thai , cheap\ncombobox Date [1]: May 4\nlink Home [2]"
    assert chosen(form, thought) == said[:1] and chosen(FORM, thought) == []
    assert [leaves(DETAILS, EnvAction(Command.CLICK, i)) for i in range(1, 6)] == [False, False, True, True, False]


def test_clicks_that_leave_and_entries_are_offered_beside_each_other() -> None:
    sites = Sites.collect(walks=1, acted=1, ranked=40, slip_rate=0.3, seed=0)
    words, due = Words(np.random.default_rng(0)), Counter[str]()
    for _ in range(3000):
        example = sites.rank(words)
        page, _, offered = example.messages[-1]["content"].rpartition("OBSERVATION:")[2].partition("PROPOSALS:")
        best = parse_action(f"COMMANDS: {example.answer.rpartition('BEST: ')[2]}").env_action
        away = re.findall(r"^link (?:Change|Home|Back) \[(\d+)\]", page, re.MULTILINE)
        if best is not None and re.search(r"^(?:TYPE|SELECT)", offered, re.MULTILINE):
            if any(f"CLICK [{i}]" in offered for i in away):
                due["leave" if str(best.element) in away else "stay"] += 1
            if leaves(page, best):
                assert not re.search(r"(?:First name|Date|Color|Size) .*yes", example.answer.partition("BEST")[0])
    assert due["stay"] > due["leave"] > 20


def test_several_words_are_miscopied_in_three_ways() -> None:
    found = Counter(
        text for seed in range(200) for text in miscopied("warm wool vest", Words(np.random.default_rng(seed)))
    )
    left_out = ["wool vest", "warm vest", "warm wool"]
    repeated = ["warm warm wool vest", "warm wool wool vest", "warm warm vest", "warm wool wool"]
    assert sorted(found) == sorted(left_out + repeated)
    assert not miscopied("vest", Words(np.random.default_rng(0)))


def test_a_product_that_was_left_is_offered_beside_the_one_that_is_due() -> None:
    sites = Sites.collect(walks=1, acted=1, ranked=1, slip_rate=0.0, seed=0, corrected=3)
    again = [d for d in sites.ranked if "color no" in d.thought]
    for d in again:
        passed = {int(found) for found in re.findall(r"\[(\d+)\] \d+ color no", d.thought)}
        offered = likely_instead(d, sites.values, "", Words(np.random.default_rng(0)))
        clicks = {a.element for a in offered if a.command is Command.CLICK}
        assert passed <= clicks
    assert again


def test_a_query_has_all_words_of_its_request_in_their_order() -> None:
    sites = Sites.collect(walks=5, acted=1, ranked=1, slip_rate=0.0, seed=0)
    for seed in range(60):
        example = sites.kinds["search"](Words(np.random.default_rng(seed)))
        told = example.messages[-1]["content"].partition("QUERY: ")[2].partition("\n")[0]
        for request, answer in ((told, example.answer), *example.more):
            typed = parse_action(answer).env_action
            assert typed is not None and typed.command is Command.TYPE
            wanted = re.search(r" a (?:pair of )?(.+?) (?:in|,)", request)
            assert wanted is not None and wanted[1] == typed.text


def test_a_guests_name_is_asked_for_in_two_fields() -> None:
    for seed in range(60):
        example = guest(Words(np.random.default_rng(seed)))
        told, _, page = example.messages[-1]["content"].partition("\n\nQUERY: ")[2].partition("\nOBSERVATION:\n")
        due = parse_action(example.answer).env_action
        assert due is not None
        empty = [line for line in page.splitlines() if line.startswith("textbox") and line.endswith("]")]
        if due.command is Command.CLICK:
            assert not empty
        else:
            assert f"[{due.element}]" in empty[0] and due.text is not None and due.text in told
