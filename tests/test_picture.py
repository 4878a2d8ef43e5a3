"""The picture of a tree, as text and as SVG: each tried action once, with its figures, the best path marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lxml import etree

from agentq.agent.calls import call
from agentq.evaluation.endings import NOT_CHOSEN, TAKEN_FOR
from agentq.report.examples import explain
from agentq.report.picture import svg_picture, text_picture
from agentq.results import SearchResult
from agentq.store.records import EXHAUSTED, TreeRecord
from agentq.viewer.data import of_tree, tree_data
from tests.records_factory import click, make_proposal, make_tree

# node:   0 -> 1, 2, 3;  1 -> 4, 5;  2 -> 6;  6 -> 7;  5 is a success, 3 was never tried
PARENT = [-1, 0, 0, 0, 1, 1, 2, 6]
VISITS = [4, 3, 1, 0, 1, 2, 1, 1]
VALUES = [2, 2, 0, 0, 0, 2, 0, 0]


@pytest.fixture
def tree() -> TreeRecord:
    some = make_tree(num_nodes=8)
    some.task = replace(some.task, instruction="Click <b> & go")
    error: list[str | None] = [None] * 8
    error[7] = "loop"
    return replace(
        some,
        parent=np.array(PARENT),
        depth=np.array([0, 1, 1, 1, 2, 2, 2, 3]),
        visit_count=np.array(VISITS),
        value_sum=np.array(VALUES, dtype=float),
        success=np.arange(8) == 5,
        proposal=[None, *(make_proposal(n, env_action=click(n)) for n in range(1, 8))],
        error_kind=error,
    )


def test_text_picture_by_hand(tree: TreeRecord) -> None:
    assert text_picture(tree).splitlines() == [
        "Click <b> & go",
        "4 rollouts, 8 nodes, solved in 2 steps",
        "* ├─ CLICK [1]     N 3   Q 0.67",
        "  │  ├─ CLICK [4]  N 1   Q 0.00",
        "* │  └─ CLICK [5]  N 2   Q 1.00  success",
        "  └─ CLICK [2]     N 1   Q 0.00  a rollout of 3 steps, loop",
        "proposed and not tried: 1",
    ]


def test_a_call_is_shown_by_its_name_and_arguments(tree: TreeRecord) -> None:
    tree.proposal[4] = make_proposal(
        4, env_action=call("move", {"to": "the end of the shelf", "from": "a very low place"})
    )
    assert text_picture(tree).splitlines()[3].split("  N ")[0].rstrip() == (
        '  │  ├─ move {"from": "a very low place", "to": "the en…'
    )


def test_a_picture_says_that_returns_are_not_in_bounds(tree: TreeRecord) -> None:
    tree.value_sum[[5, 6]] = 6, -0.5
    assert text_picture(tree).splitlines()[1] == (
        "4 rollouts, 8 nodes, solved in 2 steps, returns from -0.5 to 3: search expects them in [0, 1]"
    )
    tree.value_sum[[5, 6]] = 2, -0.5
    assert text_picture(tree).splitlines()[1].endswith("returns from -0.5 to 1: search expects them in [0, 1]")


def test_a_picture_says_what_the_world_broke(tree: TreeRecord) -> None:
    tree.info |= {"faults": {"replay_mismatch": 5, "network": 1}}
    assert text_picture(tree).splitlines()[1] == (
        "4 rollouts, 8 nodes, solved in 2 steps, 6 broken by the world (replay_mismatch, network; see agentq env check)"
    )


def test_pictures_stories_and_the_viewer_show_the_chosen_end_where_the_checker_did_not_tell(tree: TreeRecord) -> None:
    tree.info |= {"checked": {"success": False, "return": 0.0, "steps": 2, "broken": False, "end": 4}}
    assert text_picture(tree).splitlines()[1:5] == [
        "4 rollouts, 8 nodes, not solved",  # 5 is a success to the judge alone
        "* ├─ CLICK [1]     N 3   Q 0.67",
        "* │  ├─ CLICK [4]  N 1   Q 0.00",
        "  │  └─ CLICK [5]  N 2   Q 1.00  success, says the judge",
    ]
    shown = of_tree(tree)
    data = tree_data(shown, None, [])
    assert (shown.outcome, shown.stop, data["best"], data["judged"]) == ("failed", TAKEN_FOR, 4, True)
    story = explain("eval", tree)
    assert not story.succeeded and [c.action for m in story.moments for c in m.choices if c.taken] == [
        "CLICK [1]",
        "CLICK [4]",
    ]
    tree.info |= {"answers": [4, 5]}  # of a vote: the checker told each episode
    assert text_picture(tree).splitlines()[4].endswith("success") and of_tree(tree).stop == NOT_CHOSEN


def test_text_picture_says_what_is_searched_completely(tree: TreeRecord) -> None:
    tree.flags = np.where(np.isin(np.arange(8), [2, 3, 5, 6, 7]), EXHAUSTED, 0)  # 3 was never tried
    assert [line.split("  ")[-1].strip() for line in text_picture(tree).splitlines()[2:-1]] == [
        "Q 0.67",
        "Q 0.00",
        "success, done",
        "a rollout of 3 steps, loop, done",
    ]
    tree.flags, tree.visit_count = np.full(8, EXHAUSTED), np.minimum(tree.visit_count, 1)
    tree.value_sum = np.minimum(tree.value_sum, 1)
    assert text_picture(tree).splitlines()[1] == "1 rollout, 8 nodes, solved in 2 steps, searched completely"
    tree.success[1] = True
    assert text_picture(tree).splitlines()[1] == "1 rollout, 8 nodes, solved in 1 step, searched completely"


def test_text_picture_keeps_the_best_path_and_the_most_visited(tree: TreeRecord) -> None:
    lines = text_picture(tree, max_rows=2).splitlines()
    assert [line.split()[-1] for line in lines[2:4]] == ["0.67", "success"]
    assert lines[-1] == "not shown: 4, proposed and not tried: 1"


def test_svg_picture_is_a_document_with_the_same_rows(tree: TreeRecord) -> None:
    root = etree.fromstring(svg_picture(tree))
    names = {"s": "http://www.w3.org/2000/svg"}
    texts = root.xpath("//s:text/text()", namespaces=names)
    assert (
        texts[0] == "Click <b> & go"
        and texts[-1] == "4 rollouts, 8 nodes, solved in 2 steps; proposed and not tried: 1"
    )
    for shown in ("CLICK [1]", "CLICK [4]", "CLICK [5]", "CLICK [2]", "0.67", "success", "a rollout of 3 steps, loop"):
        assert shown in texts
    assert "CLICK [3]" not in texts and "CLICK [6]" not in texts
    circles = root.xpath("//s:circle/@fill", namespaces=names)
    assert len(circles) == 5 and circles[3] == "#1a7f37" and circles[2] == "#ffffff"  # Q of 5 and of 4
    assert len(root.xpath("//s:path[@stroke-width]", namespaces=names)) == 2
    width = float(root.get("width"))
    for text in root.xpath("//s:text[not(@text-anchor)]", namespaces=names):
        assert float(text.get("x")) + 7 * len(text.text) <= width


def test_a_notebook_shows_a_tree_by_itself(tree: TreeRecord) -> None:
    found = SearchResult(tree)
    assert found._repr_html_() == svg_picture(tree) and found.show() == text_picture(tree)


def test_a_picture_has_no_character_that_a_terminal_obeys_or_xml_forbids(tree: TreeRecord) -> None:
    odd = "a\x1b[31m\x00\u202e\ud800 b"
    named = replace(tree, task=replace(tree.task, instruction=odd), proposal=list(tree.proposal))
    named.proposal[1] = make_proposal(1, env_action=replace(click(1), text=odd))
    svg, text = svg_picture(named), text_picture(named)
    assert etree.fromstring(svg.encode()).tag.endswith("svg")
    for shown in (svg, text):
        assert "a [31m    b" in shown and all(c.isprintable() or c == "\n" for c in shown)
