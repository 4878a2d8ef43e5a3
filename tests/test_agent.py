"""The action grammar and the prompts: printing and reading back, and every text a model can emit."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.agent import thinking
from agentq.agent.actions import action_key, format_action, parse_action, same_action
from agentq.agent.commands import KEYS, MAX_PRESSES, parse_env_action
from agentq.agent.prompts import SYSTEM, critic_messages, policy_messages
from agentq.agent.verdicts import parse_critic_answer, parse_ranking
from agentq.types import ELEMENT_COMMANDS, Command, EnvAction, History, Observation, Split, Status, Task
from agentq.verbs import BROWSER_COMMANDS, TEXT_COMMANDS

# Without marks of thinking and of an answer's end: what they enclose or what follows them is no part of the answer.
line = (
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: not thinking._MARK.search(text))
)
plain_line = line.filter(lambda text: not (text.startswith("[") and text.endswith("]")))


@st.composite
def env_actions(draw: st.DrawFn) -> EnvAction:
    command = draw(st.sampled_from(list(Command)))
    element = draw(st.integers(0, 999_999)) if command in ELEMENT_COMMANDS else None
    text = None
    if command is Command.SCROLL:
        text = draw(st.sampled_from(["UP", "DOWN", "[7]"]))
    elif command in (Command.WAIT, Command.TAB, Command.DIALOG):
        forms = {
            Command.WAIT: ["1", "10"],
            Command.TAB: ["2", "CLOSE 3"],
            Command.DIALOG: ["ACCEPT", "ACCEPT a b", "DISMISS"],
        }
        text = draw(st.sampled_from(forms[command]))
    elif command is Command.DRAG:
        x, y = draw(st.tuples(st.integers(-9999, 9999), st.integers(-9999, 9999)))
        text = draw(st.sampled_from([f"TO [{abs(x)}]", f"BY {x} {y}"]))
    elif command is Command.PRESS:
        times = draw(st.integers(1, MAX_PRESSES))
        text = draw(st.sampled_from(KEYS)) + (f" {times}" if times > 1 else "")
    elif command is Command.CLICK_AT:
        text = "{} {}".format(*draw(st.tuples(st.integers(0, 9999), st.integers(0, 9999))))
    elif command is Command.ASK_USER:
        text = draw(plain_line)
    elif command in TEXT_COMMANDS:
        text = draw(plain_line.filter(bool))
    return EnvAction(command, element, text)


@given(env_actions(), line, line, line, st.sampled_from(list(Status)))
def test_parse_action_reads_back_what_format_action_prints(
    env_action: EnvAction, plan: str, thought: str, explanation: str, status: Status
) -> None:
    text = format_action(env_action, plan=plan, thought=thought, explanation=explanation, status=status)
    action = parse_action(text)
    assert action.parse_error is None
    assert action.env_action == env_action
    assert (action.plan, action.thought, action.explanation, action.status) == (plan, thought, explanation, status)
    assert action.text == text


@given(st.binary(max_size=200))
def test_parse_action_turns_any_bytes_into_an_action_or_a_recorded_failure(data: bytes) -> None:
    action = parse_action(data.decode("utf-8", "replace"))
    assert (action.env_action is None) == (action.parse_error is not None)
    assert action.parse_error is None or ("\n" not in action.parse_error and "got" in action.parse_error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CLICK [5]", EnvAction(Command.CLICK, 5)),
        ("CLICK 5", EnvAction(Command.CLICK, 5)),
        ("CLICK[5]", EnvAction(Command.CLICK, 5)),
        ("TYPE [3] [Blue Harbor]", EnvAction(Command.TYPE, 3, "Blue Harbor")),
        ("TYPE [3] Blue Harbor", EnvAction(Command.TYPE, 3, "Blue Harbor")),
        ("GOTO /find?q=a", EnvAction(Command.GOTO, None, "/find?q=a")),
        ("SCROLL down", EnvAction(Command.SCROLL, None, "DOWN")),
        ("ASK USER which day?", EnvAction(Command.ASK_USER, None, "which day?")),
        ("ASK USER HELP", EnvAction(Command.ASK_USER, None, "")),
        ("STOP", EnvAction(Command.STOP)),
        ("HOVER 5", EnvAction(Command.HOVER, 5)),
        ("DRAG [5] to 6", EnvAction(Command.DRAG, 5, "TO [6]")),
        ("DRAG [5] by 40, -10", EnvAction(Command.DRAG, 5, "BY 40 -10")),
        ("PRESS enter", EnvAction(Command.PRESS, None, "Enter")),
        ("PRESS control+a 1", EnvAction(Command.PRESS, None, "Control+A")),
        ("PRESS control+shift+k", EnvAction(Command.PRESS, None, "Control+Shift+K")),
        ("PRESS # 2", EnvAction(Command.PRESS, None, "# 2")),
        ("SCROLL [12]", EnvAction(Command.SCROLL, None, "[12]")),
        ("BACK", EnvAction(Command.BACK)),
        ("WAIT", EnvAction(Command.WAIT, None, "1")),
        ("TAB close [2]", EnvAction(Command.TAB, None, "CLOSE 2")),
        ("DIALOG accept Ann Clark", EnvAction(Command.DIALOG, None, "ACCEPT Ann Clark")),
        ("UPLOAD [3] photo.png", EnvAction(Command.UPLOAD, 3, "photo.png")),
        ("FIND total due", EnvAction(Command.FIND, None, "total due")),
        ("PRESS [ArrowUp 12]", EnvAction(Command.PRESS, None, "ArrowUp 12")),
    ],
)
def test_parse_env_action_reads_the_spellings_models_use(text: str, expected: EnvAction) -> None:
    assert parse_env_action(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hello", "a COMMANDS section must be present"),
        ("COMMANDS:", "COMMANDS must start with a command"),
        ("COMMANDS: JUMP [3]", "the command must be one of"),
        ("COMMANDS: CLICK", "CLICK must name an element id"),
        ("COMMANDS: CLICK [99999999]", "CLICK must name an element id"),
        ("COMMANDS: CLICK [3] or [4]", "COMMANDS must hold one command"),
        ("COMMANDS: CLICK [3], [4]", "COMMANDS must hold one command"),
        ("COMMANDS: CLICK [3.5]", "CLICK must name an element id"),
        ("COMMANDS: TYPE [3]", "TYPE must have a text"),
        ("COMMANDS: CLICK [3]\nor CLICK [4]", "COMMANDS must hold one command"),
        ("COMMANDS: TYPE [3] Ann or TYPE [3] Bob", "COMMANDS must hold one command"),
        ('COMMANDS: TYPE [3] ""', "TYPE must have a text"),
        ("COMMANDS: DRAG [3]", "DRAG must say TO [id] or BY right down"),
        ("COMMANDS: DRAG [3] BY 40", "DRAG must say TO [id] or BY right down"),
        ("COMMANDS: PRESS F13", "PRESS must name one of Enter, Tab"),
        ("COMMANDS: PRESS Enter 0", "1 to 100 times; got 'Enter 0'"),
        ("COMMANDS: PRESS Enter 101", "1 to 100 times; got 'Enter 101'"),
        ("COMMANDS: STOP\nCOMMANDS: CLICK [1]", "COMMANDS must be one"),
    ],
)
def test_parse_action_says_why_a_text_is_no_action(text: str, complaint: str) -> None:
    action = parse_action(text)
    assert action.env_action is None
    assert action.parse_error is not None and complaint in action.parse_error


def test_same_action_ignores_white_space_and_thoughts_only() -> None:
    a, b = (parse_action(f"THOUGHT: {t}\nCOMMANDS: TYPE [1] Ann  Miller") for t in "ab")
    assert same_action(a.env_action, b.env_action)
    assert not same_action(a.env_action, EnvAction(Command.TYPE, 2, "Ann Miller"))
    assert not same_action(a.env_action, EnvAction(Command.TYPE, 1, "Ann Mille"))
    assert same_action(None, None) and action_key(None) != action_key(EnvAction(Command.STOP))


def test_policy_messages_keep_all_past_actions_and_only_the_current_page() -> None:
    history = History("Book it", Observation("heading First"))
    later = history.then("COMMANDS: CLICK [1]", Observation("heading Second")).then(
        "COMMANDS: STOP", Observation("end")
    )
    text = policy_messages(later)[-1]["content"]
    assert text.index("CLICK [1]") < text.index("STOP") < text.index("Book it") < text.index("end")
    assert "First" not in text and "Second" not in text


def test_the_prompt_says_what_more_an_environment_takes_and_nothing_where_it_takes_no_more() -> None:
    page = Observation("textbox [1]")
    plain = History.of(Task("booking", 0, Split.TRAIN, "Book it"), page).then("COMMANDS: STOP", page)
    more = History.of(Task("miniwob/x", 0, Split.TRAIN, "Do it", (Command.HOVER, Command.PRESS)), page).then("", page)
    for messages in (policy_messages, lambda history: critic_messages(history, [])):
        assert messages(plain)[0]["content"] == SYSTEM
        line = "\nCOMMANDS may also hold: HOVER [id] | PRESS key times (one of Enter Tab "
        assert messages(more)[0]["content"].startswith(SYSTEM + line)
    site = History.of(Task("own", 0, Split.TRAIN, "Do it", BROWSER_COMMANDS), page)
    assert r" | TYPE [id] text (\n is a line break) | " in policy_messages(site)[0]["content"]
    assert hashlib.sha256(SYSTEM.encode()).hexdigest()[:16] == "df67f8cef7308ef8"  # the base's


def test_critic_messages_begin_with_the_policys_prompt_so_that_prefixes_are_shared() -> None:
    history = History("Book it", Observation("heading First"))
    listed = [EnvAction(Command.CLICK, 1), None]
    policy, critic = policy_messages(history), critic_messages(history, listed)
    assert critic[0] == policy[0]
    assert critic[1]["content"].startswith(policy[1]["content"])
    assert "CLICK [1] (A)\nunreadable (B)" in critic[1]["content"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BEST: B", 1),
        ("BEST: B.", 1),
        ("THOUGHT: x\nBEST: (A)", 0),
        ("BEST: CLICK [3] (B)", 1),
        ("BEST: TYPE [1] (A) (B)", 1),
        ("BEST: C", None),
        ("BEST: CLICK [3] (C)", None),
        ("BEST: CLICK [3]", None),
        ("B", 1),
        ("(B)", 1),
        ("**BEST:** b", 1),
        ("**Best action: CLICK [3] (B)**", 1),
        ("Answer: B", 1),
        ("The best action is B.", 1),
        ("BEST: B because it opens the form", 1),
        ("BEST: CLICK [2] (B) rather than (A)", 1),
        ("BEST: CLICK [2]", 1),
        ("BEST: A good choice is (B)", 1),
        ('```json\n{"best": "B"}\n```', 1),
        ("<think>\nBEST: A\n</think>\nBEST: B", 1),
        ("", None),
        ("BEST: Because", None),
        ("BEST: A button", None),
        ("A or B", None),
        ("I like B", None),
        ("BEST: A\nBEST: B", None),
        ('{"best": "C"}', None),
    ],
)
def test_parse_critic_answer_names_a_listed_proposal_or_nothing(text: str, expected: int | None) -> None:
    assert parse_critic_answer(text, [EnvAction(Command.CLICK, 1), EnvAction(Command.CLICK, 2)]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RANKING: B > A > C", [1, 0, 2]),
        ("RANKING: B > A > C.\n\nB opens the form, so it comes first.", [1, 0, 2]),
        ("**RANKING:** B, A, C", [1, 0, 2]),
        ("The ranking is: b -> a -> c", [1, 0, 2]),
        ("C > B > A", [2, 1, 0]),
        ("C B A", [2, 1, 0]),
        ("RANKING: CLICK [4] (B) > TYPE [1] Ann, Bob (A) > unreadable (C)", [1, 0, 2]),
        ("RANKING:\n1. B - it opens the form\n2. (A)\n3. **C**", [1, 0, 2]),
        ("1. CLICK [4] (B)\n2. CLICK [5] (C)\n3. CLICK [6] (A)", [1, 2, 0]),
        ('```json\n{"ranking": ["B", "C", "A"]}\n```', [1, 2, 0]),
        ('["B", "C", "A"]', [1, 2, 0]),
        ('{"ranking": "B > C > A"}', [1, 2, 0]),
        ("<think>\nA > B > C\n</think>\nRANKING: B > A > C", [1, 0, 2]),
        ("RANKING: B > C > A because C is worse", [1, 2, 0]),
        ('A is set already.\n\n```json\n{\n  "ranking": ["B", "C", "A"]\n}\n```', [1, 2, 0]),
        ("Here is my ranking:\n1. B\n2. A\n3. C", [1, 0, 2]),
        ("## Ranking (best first)\n\n1. **B** - it opens the form\n\n2. **A**\n\n3. **C**", [1, 0, 2]),
        ("Based on the page, I rank them:\nB > A > C", [1, 0, 2]),
        ("The order from best to worst is B, then A, and C", [1, 0, 2]),
        (
            "In order of use:\n- A sets the date.\n- B opens it.\n\nRANKING - B > A > C\n\nThe order is clear.",
            [1, 0, 2],
        ),
        ("First the menu.\n\nB > A > C", [1, 0, 2]),
        ("RANKING: A > B > C\nNo.\nRANKING: B > A > C", None),
        ("A: good\nB: bad\nC: worse\n\nB > A > C", None),
        ("RANKING: B > A", None),
        ("RANKING: B > A > B", None),
        ("RANKING: B > A > C > D", None),
        ("RANKING: B > A > D", None),
        ("RANKING:", None),
        ("", None),
        ("I like B most, then A", None),
        ("{}", None),
    ],
)
def test_parse_ranking_names_every_letter_once_or_nothing(text: str, expected: list[int] | None) -> None:
    assert parse_ranking(text, 3) == expected
