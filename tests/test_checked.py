"""Search without a checker: a judge tells it, and the checker sees only the path that it chose."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentq.evaluation.endings import NOT_FOUND, TAKEN_FOR, end_of_tree
from agentq.evaluation.outcomes import counted_episode, of_tree
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.choices import by_value
from agentq.searching.collect import attempts, trees
from agentq.searching.faults import Resets
from agentq.searching.selection import SearchSettings
from agentq.store.records import TreeRecord
from agentq.types import History, StepResult
from tests.test_search import TASK, Lock, _click


class Verdicts:
    """A judge that approves of what it is told to, whatever the checker says."""

    def __init__(self, *approved: int) -> None:
        self.approved, self.asked, self.seen = approved, 0, list[bool]()

    async def settle(self, history: History, result: StepResult) -> StepResult:
        self.asked += 1
        self.seen.append(bool(result.success))
        holds = self.asked in self.approved
        return replace(result, reward=float(holds), success=holds)


def search(judge: Verdicts) -> TreeRecord:
    settings = SearchSettings(60, 20, seed=1, stop_on_success=True)
    work = trees(Lock, ScriptedPolicy(_click), None, settings, judge=judge)
    (item,) = attempts([TASK])
    found = asyncio.run(work(item, Resets()))  # type: ignore[arg-type]
    assert isinstance(found, TreeRecord)
    return found


def test_without_an_approval_the_checker_sees_one_path_alone() -> None:
    judge = Verdicts()
    tree = search(judge)
    end = by_value(tree)
    assert end in tree.info["ends"] and not tree.success.any()
    assert any(judge.seen) and not judge.seen[0]  # with the checker, the search would have succeeded
    right = judge.seen[tree.info["ends"].index(end)]
    assert of_tree(tree)[:3] == (right, float(right), tree.depth[end]) and tree.info["succeeded"] is right
    assert end_of_tree(tree).stop == ("" if right else NOT_FOUND)


@pytest.mark.parametrize("right", [False, True])
def test_a_search_ends_at_the_first_approval_and_the_checker_decides_about_that_path(right: bool) -> None:
    alone = Verdicts()
    search(alone)
    judge = Verdicts(alone.seen.index(right) + 1)
    tree = search(judge)
    end = by_value(tree)
    assert judge.asked == judge.approved[0] == len(tree.info["ends"]) and end == tree.info["ends"][-1]
    assert tree.success[end] and tree.info["succeeded"] is right  # as the judge sees it, and as the checker does
    assert of_tree(tree)[:3] == (right, float(right), tree.depth[end])
    assert end_of_tree(tree).stop == ("" if right else TAKEN_FOR)
    chosen = counted_episode(tree)
    assert [step.proposal for step in chosen.steps] == [tree.proposal[node] for node in tree.path(end)[1:]]
    assert (chosen.success, chosen.return_) == (right, float(right))  # the checker's, whatever the judge told
