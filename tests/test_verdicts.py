"""Answers of critics and judges as models write them: read as a person would read them, or not at all."""

from __future__ import annotations

import pytest

from agentq.agent.verdicts import parse_critic_answer, parse_judgement
from agentq.types import Command, EnvAction

LISTED = [EnvAction(Command.CLICK, 3), EnvAction(Command.TYPE, 2, "Ann")]


@pytest.mark.parametrize(
    "text",
    [
        "**BEST**: B",
        "**BEST**: TYPE [2] Ann (B)",
        "**Best Action**: B",
        "**BEST:**\nTYPE [2] Ann (B)",
        "BEST:\n\n**TYPE [2] Ann (B)**",
        "BEST:\nB\n\nA would be too early.",
        "**Answer:**\n\nBEST: B because the box is empty",
        "BEST：B",
        "BEST: Option (B): TYPE [2] Ann",
        "BEST: B – the box is empty",
        '{"best_action": "B"}',
        'The box is empty.\n```json\n{"best_action": "TYPE [2] Ann (B)"}\n```',
        'BEST: {"name": "find", "answer": "A"} (B)',
    ],
)
def test_a_critics_answer_is_read_wherever_its_colon_stands(text: str) -> None:
    assert parse_critic_answer(text, LISTED) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The best action is to fill in the name.",
        "The best action is\n\na matter of taste.",
        "BEST:\nA: opens the menu\nB: fills in the name",
        "BEST:\nCLICK [3] (A)\nTYPE [2] Ann (B)",
        "Answer:\nBEST: A\nBEST: B",
        "BEST: Option A or B",
        "BEST: A–B",
        'BEST: A\n{"best": "B"}',
        "BEST:",
    ],
)
def test_a_critics_answer_that_names_none_or_two_is_not_read(text: str) -> None:
    assert parse_critic_answer(text, LISTED) is None


@pytest.mark.parametrize(
    "said",
    [
        "1. Restaurant is La Piazza: YES\n2. Date is May 5:\n   NO, it shows May 6",
        *(
            f"- Restaurant: YES\n- Date: {verdict}"
            for verdict in ("Incorrect", "FAIL", "False", "N", "✘", "**Missing**", "UNVERIFIED", "CANNOT DETERMINE")
        ),
        *(f"Restaurant: YES\nDate: {verdict}" for verdict in ("Incorrect", "FAILED", "✘", "Missing", "UNVERIFIED")),
        "- Restaurant: YES\n- NO: Date",
        "- Restaurant: YES\n  NO, it shows La Porta",
        "- Restaurant: YES\n- Date: the page shows May 6\n\nOverall: YES",
        "- Date: the page shows May 6\nOverall: YES",
        "Restaurant: YES\n❌ Date",
        "**Restaurant**\nFinal page shows La Piazza: YES\n\n**Date**\n\n**NO**",
        "| Thing | Verdict |\n|---|---|\n| Restaurant | YES |\n| Date | May 6 |",
        "1. Restaurant: YES\n2. Date\n   - asked: May 5\n   - shown: May 6\n3. Time: YES",
        "- Checks:\n  - Date: shows May 6\n  - Restaurant: YES",
        'Here:\n{"restaurant": "YES",\n "date": false}',
        'Here: {"restaurant": "YES", "date": false}',
        'Restaurant: NO\n\n```json\n{"date": true}\n```',
        "Restaurant: YES\nOverall verdict: FAILURE",
        "NO",
    ],
)
def test_a_no_is_read_wherever_it_stands(said: str) -> None:
    findings = parse_judgement(said)
    assert findings and not all(holds for _, holds in findings)


@pytest.mark.parametrize(
    "said",
    [
        "1. Restaurant\n   YES\n2. Date\n   YES",
        "1. Restaurant\nYES, it shows La Piazza\n\n2. Date\n\n**YES**",
        "1. Restaurant\n   - asked: La Piazza\n   - shown: La Piazza\n   - Verdict: YES\n2. Date: YES",
        "1. Restaurant: YES\n   - the page shows La Piazza\n2. Date: PASS",
        "### 1. Restaurant\nVerdict: YES\n\n### 2. Date\nVerdict: YES",
        "- YES: Restaurant\n- YES: Date",
        "| Thing | Verdict |\n|:--|:-:|\n| Restaurant | YES |\n| Date | ✔️ |",
        'Here:\n```json\n{"Restaurant": true, "Date": "YES"}\n```\nAll is done.',
        "The user asked for:\n- La Piazza\n- May 5\n\n**Verdicts**\n- Restaurant: YES\n- Date: YES",
        "- Restaurant: YES\n- Date: YES\n\n## Evidence\n1. The page says La Piazza\n2. It says May 5",
    ],
)
def test_an_items_verdict_may_stand_below_it(said: str) -> None:
    assert [(what.split()[-1], holds) for what, holds in parse_judgement(said)] == [
        ("Restaurant", True),
        ("Date", True),
    ]


def test_an_item_that_only_heads_others_is_no_finding() -> None:
    said = "1. Restaurant\n   - Page shows La Piazza: YES\n2. Date\nThe page shows May 5: YES\n3. No smoking\n   YES"
    assert parse_judgement(said) == [
        ("Page shows La Piazza", True),
        ("The page shows May 5", True),
        ("No smoking", True),
    ]
    for unread in ("- Restaurant\n- Date", "YES", "Yes, all is done.", "All is well."):
        assert parse_judgement(unread) == []
