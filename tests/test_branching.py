"""Branches by hand: where they may begin, and what they pay."""

from __future__ import annotations

import numpy as np

from agentq import envs
from agentq.errors import EnvError
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.branching import BranchNode, Grown, at_random, branched
from agentq.searching.rollout import RolloutSettings
from agentq.searching.run import wait_for
from agentq.types import History, Observation, StepResult
from tests.test_sampling import Pays
from tests.test_search import TASK, Passing, _click

PAGE = Observation("page")


class Forks(Pays):
    """A lock that pays a quarter per click and can be forked."""

    def fork(self) -> Forks:
        return Forks()


def test_random_branches_begin_in_their_own_tree_before_its_ends() -> None:
    ended = StepResult(PAGE, terminated=True)
    rows = [(-1, 0, None), (0, 0, None), (1, 0, ended), (0, 1, None), (3, 1, None), (4, 1, ended)]
    nodes = [BranchNode(History("q", PAGE), None, parent, tree=tree, result=result) for parent, tree, result in rows]
    places = at_random(2)(Grown(nodes, ends=[2, 5]), 60, np.random.default_rng(0))
    assert set(places) == {(0, 0), (1, 0), (0, 1), (3, 1), (4, 1)} and len(places) == 60


def test_a_branch_has_the_rewards_of_its_whole_path() -> None:
    policy, settings = ScriptedPolicy(_click), RolloutSettings(seed=5)
    tree = wait_for(branched(Forks(), TASK, policy, settings, initial=2, total=6, branching=at_random(2)))
    assert tree.info["returns"] == [0.75] * 6
    assert max(tree.visit_count[1:]) > 1  # some begin on the way
    assert tree.value_sum.tolist() == (0.75 * tree.visit_count).tolist()


def test_a_success_on_the_way_is_no_success_of_a_branch() -> None:
    policy, settings = ScriptedPolicy(_click), RolloutSettings(seed=5)
    tree = wait_for(branched(Passing(), TASK, policy, settings, initial=2, total=4, branching=at_random(2)))
    assert len(tree.info["ends"]) == 4 and not tree.success.any() and not tree.info["succeeded"]


def test_forks_are_closed_if_a_later_one_of_their_wave_fails() -> None:
    made, closed = list[object](), list[object]()

    class Few:
        name, max_steps = "few", 5

        def __init__(self) -> None:
            made.append(self)

        def reset(self, seed: int) -> dict[str, str]:
            return {"instruction": "stop", "text": "link Go [1]"}

        def step(self, command: str, element: int | None, text: str | None) -> dict[str, object]:
            return {"text": "end", "terminated": True}

        def fork(self) -> Few:
            if len(made) == 3:
                raise EnvError("no more sessions")
            return Few()

        def close(self) -> None:
            closed.append(self)

    env, task, policy = envs.make(Few), envs.task(Few, "train", 0), ScriptedPolicy(_click)
    made.clear()
    tree = wait_for(branched(env, task, policy, RolloutSettings(), initial=4, total=4, branching=at_random(2)))
    assert tree.info["faults"] == {"session_lost": 1} and tree.info["ends"] == []
    assert len(made) == 3 and all(fork in closed for fork in made)
