"""Which episode of a search tree counts, and what it is worth: trees of a few nodes, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentq.evaluation.outcomes import best_end, best_episode, counted_end, counted_episode, judged, of_tree, solved
from agentq.results import SearchResult
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import Observation
from tests.records_factory import click, make_proposal, make_task


def tree(parent: list[int], *, ends: list[int], won: list[int] = [], **columns: Any) -> TreeRecord:  # noqa: B006
    """A tree all of whose nodes were executed, unless `columns` say otherwise."""
    n = len(parent)
    depth = [0] * n
    for node in range(1, n):
        depth[node] = depth[parent[node]] + 1
    given = {
        "visit_count": [1] * n,
        "reward": [0.0] * n,
        "error_kind": [None] * n,
        "observation": [Observation(f"page {node}") for node in range(n)],
        "info": {},
    } | columns
    return TreeRecord(
        task=make_task(3),
        parent=np.array(parent),
        depth=np.array(depth),
        value_sum=np.zeros(n),
        critic_value=np.zeros(n),
        flags=np.array([TERMINAL * (node in ends) for node in range(n)]),
        proposal=[None, *(make_proposal(node, env_action=click(node)) for node in range(1, n))],
        success=np.array([node in won for node in range(n)]),
        **given,
    )


def test_a_success_counts_before_a_higher_return_and_then_the_shorter_way() -> None:
    found = tree([-1, 0, 0, 0, 3, 0], ends=[1, 2, 4, 5], won=[2, 4, 5], reward=[0, 0.9, 0.5, 0.25, 0.5, 0.75])
    assert best_end(found) == 5  # 1 is no success, 2 is worth 0.5, 4 the same 0.75 in two steps
    assert of_tree(found) == (True, 0.75, 1, "booking", False, "")
    found.success[5] = False
    assert best_end(found) == 4 and of_tree(found)[:3] == (True, 0.75, 2)
    assert [step.result.reward for step in best_episode(found).steps] == [0.25, 0.5]
    found.success[:] = False
    assert of_tree(found)[:2] == (False, float(np.float32(0.9)))  # what a failure was worth


def test_a_search_succeeds_by_any_of_its_episodes() -> None:
    found = SearchResult(tree([-1, 0, 0], ends=[1, 2], won=[1]))
    assert found.success and found.trajectory.success
    assert not SearchResult(tree([-1, 0, 0], ends=[1, 2])).success


def test_an_episode_that_the_world_broke_does_not_count() -> None:
    found = tree([-1, 0, 0], ends=[1, 2], reward=[0, 1, 0.5], error_kind=[None, "session_lost", "timeout"])
    assert best_end(found) == 2 and of_tree(found)[:3] == (False, 0.5, 1)


def test_without_an_end_the_most_visited_way_is_shown_and_is_worth_nothing() -> None:
    pages = [Observation("page") if node != 5 else None for node in range(6)]
    found = tree([-1, 0, 0, 0, 2, 4], ends=[], visit_count=[5, 1, 2, 2, 1, 0], reward=[0.5] * 6, observation=pages)
    assert best_end(found) == 4  # of 2 and 3 the critic's better one; 5 was never executed
    assert of_tree(found)[:3] == (False, 0.0, 0)


def test_the_checker_decides_about_the_chosen_episode_alone() -> None:
    checked = {"success": False, "return": 0.25, "steps": 7, "broken": True, "end": 1}
    found = tree([-1, 0, 0], ends=[1, 2], won=[2], reward=[0, 0.5, 1], info={"checked": checked})
    assert of_tree(found) == (False, 0.25, 7, "booking", True, "")
    assert counted_end(found) == 1 and best_end(found) == 2 and not solved(found)
    chosen = counted_episode(found)
    assert (chosen.success, chosen.return_) == (False, 0.25)
    assert [step.proposal for step in chosen.steps] == [found.proposal[1]]
    assert judged(found)
    found.info["answers"] = ["a", "b"]  # a vote: no judge told of success
    assert not judged(found)
    found.info.clear()
    assert not judged(found) and solved(found) and counted_end(found) == 2
