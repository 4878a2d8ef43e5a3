"""Faults of the world in one task: a rollout is cancelled, an episode is tried once more, a reset costs its task."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agentq import envs
from agentq._core import ALL_EXHAUSTED, EXHAUSTED, TERMINAL, Forest
from agentq.agent.actions import parse_action
from agentq.credit.pairs import node_pairs
from agentq.credit.samples import tree_success_samples
from agentq.error_kinds import WORLD_FAULTS
from agentq.errors import ConfigError, EnvError
from agentq.evaluation.outcomes import of_tree
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.faults import Resets
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.types import (
    EnvAction,
    Observation,
    StepResult,
    Task,
)
from tests.faults_lab import SCRIPTS, TASK, Fails, episode, right, search
from tests.records_factory import make_task

# the forest


def test_an_abandoned_leaf_is_never_asked_again_and_changes_no_number() -> None:
    forest = Forest()
    (tree,) = forest.add_trees(1).tolist()
    ticket, root = forest.ask_one(tree)
    forest.expand([ticket], [3], [1.0, 0.5, 0.0])
    forest.extend([ticket], [0])
    forest.tell_one(ticket, 1.0)
    before = forest.table(tree)
    for first in (1, 2):
        while True:
            ticket, leaf = forest.ask_one(tree)
            if leaf == root + 2 + first or leaf == forest.children(root)[first]:
                break
            forest.tell_one(ticket, 0.0)
        forest.abandon([ticket])
        with pytest.raises(ValueError, match="in flight"):
            forest.tell_one(ticket, 1.0)
    after = forest.table(tree)
    assert after["visit_count"][2:].tolist() == before["visit_count"][2:].tolist() == [0, 0]
    assert after["flags"].tolist() == [0, 0, TERMINAL | EXHAUSTED, TERMINAL | EXHAUSTED]
    assert after["in_flight"].tolist() == [0, 0, 0, 0]
    ticket, leaf = forest.ask_one(tree)
    assert leaf == forest.children(root)[0]
    with pytest.raises(ValueError, match="is good once"):
        forest.abandon([ticket, ticket])
    assert not forest.table(tree)["flags"][0] and not forest.table(tree)["flags"][1]  # nothing was changed
    forest.abandon([ticket])
    assert forest.ask([tree])[4].tolist() == [ALL_EXHAUSTED]


def test_an_abandoned_leaf_survives_a_snapshot_and_needs_exhaustion() -> None:
    forest = Forest()
    forest.add_trees(1)
    ticket, _ = forest.ask_one(0)
    forest.expand([ticket], [2])
    with pytest.raises(ValueError, match="must be a leaf to be abandoned; got 2 children"):
        forest.abandon([ticket])
    forest.extend([ticket], [0])
    forest.abandon([ticket])
    again = Forest.from_bytes(forest.to_bytes())
    assert again.table(0)["flags"].tolist() == [0, TERMINAL | EXHAUSTED, 0]
    assert again.ask_one(0)[1] == again.children(again.root(0))[1]
    loose = Forest(exhaust=False)
    loose.add_trees(1)
    ticket, _ = loose.ask_one(0)
    with pytest.raises(ValueError, match="exhaust must be on to abandon a leaf"):
        loose.abandon([ticket])


# search


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("kind", ["session_lost", "browser_lost", "network"])
def test_a_rollout_that_the_world_breaks_is_cancelled_and_its_action_tried_again(kind: str, restores: bool) -> None:
    """The first rollout breaks at its third step: the tree is as if it had not been."""
    count = iter(range(10**6))
    env = Fails(lambda resets, steps: kind if next(count) == 2 else None, restores=restores)
    tree, plain = search(env, 13), search(Fails(restores=restores), 12)
    assert tree.info["faults"] == {kind: 1} and tree.info["iterations"] == tree.visit_count[0] == 12
    for column in ("parent", "visit_count", "value_sum", "flags", "reward"):
        assert getattr(tree, column).tolist() == getattr(plain, column).tolist(), column
    assert tree.error_kind == plain.error_kind and tree.fault is None


def test_a_node_that_breaks_again_is_left_alone() -> None:
    """The expert's first three actions lead to a page that never answers; the rest of the tree is searched."""
    trap = [str(parse_action(text).env_action) for text in SCRIPTS[TASK.instruction][:3]]

    class Trap(Fails):
        def reset(self, task: Task) -> Observation:
            self.path: list[str] = []
            return super().reset(task)

        def step(self, env_action: EnvAction | None) -> StepResult:
            self.path.append(str(env_action))
            self.when = lambda *_: "session_lost" if self.path == trap else None
            return super().step(env_action)

    tree = search(Trap(), 40, width=6)
    (node,) = np.flatnonzero(tree.broken).tolist()
    assert tree.info["faults"] == {"session_lost": 2} and tree.error_kind[node] == "session_lost"
    assert tree.visit_count[node] == 0 and tree.observation[node] is None and not tree.flags[node] & TERMINAL
    assert tree.visit_count[0] == tree.info["iterations"] == 38
    for parent in range(len(tree)):
        if len(children := tree.children(parent)):
            assert tree.visit_count[children].sum() == tree.visit_count[parent]
    tokens = {id(tree.proposal[node].token_ids)}  # type: ignore[union-attr]
    pairs = node_pairs(tree, alpha=0.5, threshold=0.0)
    assert not tokens & {id(s.token_ids) for pair in pairs for s in (*pair.chosen, *pair.rejected)}


def test_a_tree_whose_every_rollout_breaks_ends_and_is_broken() -> None:
    tree = search(Fails(lambda resets, steps: "session_lost"), 30, width=6)
    children = len(tree.children(0))
    assert tree.info["faults"] == {"session_lost": 2 * children} and tree.visit_count[0] == 0
    assert tree.fault == "session_lost" and of_tree(tree) == (False, 0.0, 0, "booking", True, "")
    assert node_pairs(tree, alpha=0.5, threshold=0.0) == tree_success_samples(tree) == []


def test_a_replay_that_does_not_reach_its_page_is_cancelled() -> None:
    class Changed(Fails):
        def reset(self, task: Task) -> Observation:
            page = super().reset(task)
            return page if self.resets != 2 else Observation(page.text + "\ntext Buy now", page.url)

    tree, plain = search(Changed(), 13), search(Fails(), 12)
    assert tree.info["faults"] == {"replay_mismatch": 1} and tree.info["replay_mismatches"] == 1
    assert tree.value_sum.tolist() == plain.value_sum.tolist() and tree.error_kind == plain.error_kind


def test_a_reset_in_the_middle_of_a_tree_costs_one_rollout() -> None:
    tree, plain = search(Fails(starts=lambda resets: resets not in (3, 4)), 13), search(Fails(), 12)
    assert tree.info["faults"] == {"reset_failed": 1}
    assert tree.value_sum.tolist() == plain.value_sum.tolist()
    once = search(Fails(starts=lambda resets: resets != 3), 12)
    assert once.info["faults"] == {} and once.value_sum.tolist() == plain.value_sum.tolist()


def test_tasks_without_a_first_page_are_counted_once_each() -> None:
    resets = Resets(most_in_a_row=3)
    for seed in (1, 2, 2, 1, 2):
        resets.failed("booking", seed, "no route")
    assert resets.in_a_row == 2
    resets.shown()
    for seed in (2, 3):
        resets.failed("booking", seed, "no route")
    with pytest.raises(EnvError, match="booking must show a first page; 3 tasks in a row had none, the last: gone"):
        resets.failed("booking", 4, "gone")


def test_a_task_without_a_first_page_has_a_record() -> None:
    for env in (Fails(starts=lambda resets: False), Fails(starts=lambda resets: False, restores=True)):
        tree = search(env)
        assert len(tree) == 1 and env.resets == 2 and tree.fault == tree.error_kind[0] == "reset_failed"
        assert tree.info["error_message"] == "ValueError: reset 2 failed"
        assert node_pairs(tree, alpha=0.5, threshold=0.0) == tree_success_samples(tree) == []


def test_what_the_caller_did_wrong_is_raised() -> None:
    with pytest.raises(ConfigError, match=r"task\.env must be 'booking'"):
        asyncio.run(rollout(envs.make("booking"), make_task(env="shop"), ScriptedPolicy(right), RolloutSettings()))


# episodes


@pytest.mark.parametrize("kind", ["session_lost", "browser_lost"])
def test_an_episode_that_breaks_is_made_once_more_by_the_same_seed(kind: str) -> None:
    plain = episode(Fails())
    again = episode(Fails(lambda resets, steps: kind if (resets, steps) == (1, 3) else None))
    assert again.steps[-1].result == plain.steps[-1].result and again.success and again.fault is None
    assert [s.proposal.action for s in again.steps] == [s.proposal.action for s in plain.steps]
    assert again.info["retried"]["env_steps"] == 3 and "retried" not in plain.info
    lost = episode(Fails(lambda resets, steps: kind if steps == 3 else None))
    assert lost.broken and lost.fault == kind and len(lost.steps) == 3 and not lost.success
    assert lost.steps[-1].result.error_message == "gone"


def test_an_episode_without_a_first_page_is_a_record() -> None:
    env = Fails(starts=lambda resets: False)
    lost = episode(env)
    assert (lost.fault, lost.steps, lost.return_, env.resets) == ("reset_failed", (), 0.0, 2)
    assert lost.info["error_message"] == "ValueError: reset 2 failed"
    assert episode(Fails(starts=lambda resets: resets > 1)).success


def test_kinds_are_the_worlds_or_the_agents() -> None:
    page = Observation("page")
    assert all(StepResult(page, error_kind=kind).broken for kind in WORLD_FAULTS)
    lessons = ("unreadable", "no_such_element", "loop", "held", "refused", "http_404", "http_500", "blocked", None)
    assert not any(StepResult(page, error_kind=kind).broken for kind in lessons)
