"""Languages of actions: code and lines are read, printed and compared; conversations; environments that use them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from agentq import envs
from agentq.agent.actions import action_key, format_action, history_text, parse_action, same_action
from agentq.agent.patterns import action_pattern
from agentq.agent.prompts import critic_messages, plain_text, policy_messages
from agentq.envs.check import check
from agentq.types import Command, EnvAction, History, Language, Observation, Split, Status, Task, Verb

CODE, TEXT = Language.CODE, Language.TEXT
STOP = EnvAction(Command.STOP)


def block(code: str) -> EnvAction:
    return EnvAction(Verb.RUN, None, code)


@pytest.mark.parametrize(
    "code", ["x = 1", "def f():\n    return '''\nSTATUS: DONE\n'''\nf()", "s = '''\n```\n'''", "PLAN: int = 3"]
)
def test_a_block_is_read_back_as_it_was_printed(code: str) -> None:
    text = format_action(block(code), plan="look", thought="it is there", explanation="try", status=Status.DONE)
    action = parse_action(text, language=CODE)
    assert (action.env_action, action.mended) == (block(code), ())
    assert (action.plan, action.thought, action.explanation, action.status) == ("look", "it is there", "try", "DONE")
    assert re.fullmatch(action_pattern(History("q", Observation("o"), language=CODE)), text) or "```\n'" in code


@pytest.mark.parametrize(
    "text, code, mended",
    [
        ("I look first.\n\n```python\nprint(1)\n```", "print(1)", ("remark",)),
        ("```\nprint(1)\n```\nOutput: 1\n```python\nprint(2)\n```", "print(1)", ("imagined",)),
        ("COMMANDS:\n~~~py\nprint(1)\n~~~", "print(1)", ("fence",)),
        ("THOUGHT: so\nCOMMANDS:\n```python\nprint(1)", "print(1)", ("fence",)),
        ("COMMANDS: print(1)", "print(1)", ("bare",)),
        ("x = f(1)\nprint(x)", "x = f(1)\nprint(x)", ("bare",)),
        ("<think>a ```python\nno()\n``` b</think>\nCOMMANDS:\n```python\nyes()\n```", "yes()", ("thinking",)),
    ],
)
def test_a_block_in_another_form_is_read_and_its_correction_named(
    text: str, code: str, mended: tuple[str, ...]
) -> None:
    action = parse_action(text, language=CODE)
    assert (action.env_action, action.mended) == (block(code), mended)
    again = parse_action(history_text(action), language=CODE)
    assert (again.env_action, again.mended) == (block(code), ())


@pytest.mark.parametrize("text", ["", "I am done.", "```python\n```", "x", "```python\nf(1)" + "a" * 30_000])
def test_what_is_no_block_is_unreadable(text: str) -> None:
    action = parse_action(text, language=CODE)
    assert action.env_action is None and action.parse_error


def test_a_block_that_is_cut_off_is_unreadable_and_a_closed_one_is_not() -> None:
    assert parse_action("```python\nprint(1)", cut=True, language=CODE).env_action is None
    assert parse_action("print(1)", cut=True, language=CODE).env_action is None
    assert parse_action("```python\nprint(1)\n```\nSTAT", cut=True, language=CODE).env_action == block("print(1)")


def test_stop_ends_in_every_language() -> None:
    for language in Language:
        assert parse_action(format_action(STOP), language=language).env_action == STOP


@pytest.mark.parametrize(
    "a, b, same",
    [
        ("f(a=1, b=x)", "f(b=x,  a=1)  # again", True),
        ('x = "a"', "x = 'a'", True),
        ("f(a=g(), b=h())", "f(b=h(), a=g())", False),
        ("x = 1", "x = 2", False),
        ("if (", "if  (", False),
    ],
)
def test_blocks_that_do_the_same_are_one_proposal(a: str, b: str, same: bool) -> None:
    assert same_action(block(a), block(b)) is same
    assert action_key(block("STOP")) != action_key(STOP)


@pytest.mark.parametrize(
    "text, line",
    [
        ("THOUGHT: dark\nCOMMANDS: light the lamp\nSTATUS: CONTINUE", "light the lamp"),
        ("> go north", "go north"),
        ("I think.\nAction: go north", "go north"),
        ("go north\ngo south", None),
        ("", None),
    ],
)
def test_a_line_is_read(text: str, line: str | None) -> None:
    expected = None if line is None else EnvAction(Verb.SAY, None, line)
    action = parse_action(text, language=TEXT)
    assert action.env_action == expected
    assert expected is None or parse_action(format_action(expected), language=TEXT).env_action == expected
    assert parse_action("COMMANDS: go nor", cut=True, language=TEXT).env_action is None


@pytest.mark.parametrize(
    "text, said, mended",
    [
        ("COMMANDS:\n```\n3 1\n 2 4\n```\nSTATUS: DONE", "3 1\n 2 4", ()),
        ("Filled in:\n```text\n3 1\n2 4\n```\nI checked the rows.", "3 1\n2 4", ("remark",)),
        ("Action:\n```\n3 1\n2 4\n```", "3 1\n2 4", ("remark",)),
        ("COMMANDS: ```\nopen chest\n```", "open chest", ("fence",)),
        ("```\nTHOUGHT: dark\nCOMMANDS: go north\n```", "go north", ("remark",)),  # the answer in a fence
        ("THOUGHT: as in\n```\na\nb\n```\nCOMMANDS: go north", "go north", ()),
        ("```\na\n```\n```\nb\n```", None, ()),
        ("```\n3 1\n2 4", None, ()),
        ("COMMANDS: a place for the block", "a place for the block", ()),
    ],
)
def test_a_text_of_several_lines_is_a_block(text: str, said: str | None, mended: tuple[str, ...]) -> None:
    action = parse_action(text, language=TEXT)
    assert action.env_action == (None if said is None else EnvAction(Verb.SAY, None, said))
    assert action.mended == mended
    if action.env_action is not None:
        again = parse_action(format_action(action.env_action, thought="so"), cut=True, language=TEXT)
        assert again.env_action == action.env_action and not again.mended and again.thought == "so"


def test_a_conversation_only_grows_and_the_compact_form_forgets() -> None:
    for keeps in (True, False):
        task = Task("e", 0, Split.TRAIN, "do it", language=CODE, keeps_pages=keeps)
        history = History.of(task, Observation("page 0"))
        prompts = [policy_messages(history)]
        for i in (1, 2, 3):
            history = history.then(f"action {i}", Observation(f"page {i}"))
            prompts.append(policy_messages(history))
        said = plain_text(prompts[-1])
        if keeps:
            assert all(later[: len(before)] == before for before, later in pairwise(prompts))
            order = [said.index(each) for i in (1, 2, 3) for each in (f"page {i - 1}", f"action {i}")]
            assert order == sorted(order) and said.count("ASSISTANT:") == 4
        else:
            assert "page 2" not in said and len(prompts[-1]) == 2 and history.pages == ()
        critic = critic_messages(history, [block("a()"), None])
        assert critic[:-1] == prompts[-1][:-1] and critic[-1]["content"].startswith(prompts[-1][-1]["content"])
        short = history.shortened()
        assert "action 1" not in plain_text(policy_messages(short)) and short.observation.text == "page 3"
        for _ in range(2):
            short = short.shortened()
        assert "page 3" in plain_text(policy_messages(short)) and short.actions == ()
        assert ("page 0" in plain_text(policy_messages(short))) is keeps


class Adder:
    """Code that only adds: `n = 2`, `n = n + 1`."""

    name, language, keeps_pages, max_steps = "adder", "code", True, 8

    def reset(self, seed: int) -> dict[str, Any]:
        self.said: list[str] = []
        return {"instruction": f"add {seed}", "text": "nothing yet"}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        if command == "RUN" and "no_such" in (text or ""):
            return {"text": "error", "error_kind": "exception"}
        self.said.append(f"{command} {text}")
        return {"text": "\n".join(self.said), "terminated": len(self.said) > 6}

    def expert(self) -> dict[str, Any]:
        return {"command": "RUN", "text": "n = 1", "thought": "add"}


class Cave(Adder):
    name, language, keeps_pages = "cave", "text", False


@pytest.mark.parametrize("make", [Adder, Cave])
def test_a_class_names_its_language_and_keeps_the_contract(make: Any) -> None:
    envs.register(make.name, make)
    task = envs.task(make.name, "train", 3)
    assert (task.language, task.keeps_pages) == (Language(make.language), make.keeps_pages)
    broken = [finding for finding in check(make.name, 2) if finding.holds is False]
    assert not broken, broken
    assert isinstance(envs.expert(make.name)(task, _begun(make.name, task)).env_action.command, Verb)


def _begun(name: str, task: Task) -> Any:
    env = envs.make(name)
    env.reset(task)
    return env
