"""What searches, rollouts, branches and inspections ask the policy for, and what of the rewards they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agentq import envs
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.branching import at_random, branched
from agentq.searching.demonstrate import inspect, with_rollout
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import wait_for
from agentq.searching.selection import SearchSettings, forest_for
from agentq.searching.tree import TreeSearch
from agentq.seeds import Stream, task_seed
from agentq.types import EnvAction, History, Proposal, Split, StepResult
from tests.test_search import TASK, Lock, Passing, _click

SAMPLING = RolloutSettings(temperature=0.3, seed=5, attempt=2)


class Noted(ScriptedPolicy):
    """Notes what it is asked for."""

    def __init__(self, act: object = _click) -> None:
        super().__init__(act)  # type: ignore[arg-type]
        self.asked: list[tuple[int, int, float]] = []

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        self.asked.append((k, seed, temperature))
        return await super().propose(history, k, seed=seed, temperature=temperature)


class Pays(Lock):
    """A lock each of whose clicks pays a quarter."""

    def step(self, env_action: EnvAction | None) -> StepResult:
        result = super().step(env_action)
        return StepResult(result.observation, 0.25, terminated=result.terminated, success=result.success)


def _stop(history: History, rng: np.random.Generator) -> tuple[str, float]:
    return ("COMMANDS: STOP" if len(history.actions) == 3 else "COMMANDS: SCROLL DOWN"), -1.0


def test_every_expansion_of_a_search_has_a_seed_of_its_own() -> None:
    policy, settings = Noted(), SearchSettings(num_iterations=4, num_proposals=3, temperature=0.3, seed=5)
    wait_for(TreeSearch(Lock(), TASK, policy, settings).run())
    assert len(policy.asked) > 4
    assert policy.asked == [(3, task_seed(5, TASK, Stream.TREE, i), 0.3) for i in range(len(policy.asked))]


def test_every_turn_of_a_rollout_has_a_seed_of_its_own() -> None:
    policy = Noted()
    wait_for(rollout(Lock(), TASK, policy, SAMPLING))
    assert policy.asked == [(1, task_seed(5, TASK, 2, t), 0.3) for t in range(3)]


def test_an_action_that_is_the_last_one_is_sampled_again_with_the_seed_of_its_turn() -> None:
    said = iter(["COMMANDS: CLICK [1]", "COMMANDS: CLICK [2]", "COMMANDS: CLICK [2]", "COMMANDS: CLICK [2]"])
    policy = Noted(lambda history, rng: (next(said), -1.0))
    episode = wait_for(rollout(Lock(), TASK, policy, replace(SAMPLING, temperature=0.0, repeat_temperature=0.7)))
    assert episode is not None
    assert [str(step.proposal.action.env_action) for step in episode.steps] == [f"CLICK [{n}]" for n in (1, 2, 2)]
    turns = [(0, 0.0), (1, 0.0), (2, 0.0), (2, 0.7)]  # what it says again is taken
    assert policy.asked == [(1, task_seed(5, TASK, 2, t), temperature) for t, temperature in turns]
    read = len(episode.steps[-1].proposal.prompt_ids)
    assert episode.info["repeats"] == {"steps": 1, "prompt_tokens": read, "generated_tokens": 1}


def test_without_a_temperature_for_them_actions_are_repeated() -> None:
    policy = Noted(lambda history, rng: ("COMMANDS: CLICK [1]", -1.0))
    episode = wait_for(rollout(Lock(), TASK, policy, SAMPLING))
    assert episode is not None and len(policy.asked) == len(episode.steps) == 3 and "repeats" not in episode.info


def test_every_turn_of_a_branch_has_a_seed_of_its_own() -> None:
    policy, task = Noted(_stop), envs.task("booking", Split.TRAIN, 0)
    tree = wait_for(branched(envs.make("booking"), task, policy, SAMPLING, initial=2, total=5, branching=at_random(2)))
    # the first two rollouts take four turns each at the same time; the others what is left of theirs
    turns = [4, 4, *(4 - tree.depth[_branched_at(tree, end)] for end in tree.info["ends"][2:])]
    wanted = {(1, task_seed(5, task, Stream.BRANCH, n, t), 0.3) for n, left in enumerate(turns) for t in range(left)}
    assert set(policy.asked) == wanted and len(policy.asked) == len(wanted) == tree.info["env_steps"]


def _branched_at(tree: object, end: int) -> int:
    """The node from which the rollout that ends at `end` went on: the last that another rollout passed, too."""
    return next(node for node in tree.path(end)[::-1] if tree.visit_count[node] > 1)  # type: ignore[attr-defined]


def test_every_state_of_an_inspection_has_a_seed_of_its_own() -> None:
    demonstration = wait_for(rollout(Lock(), TASK, ScriptedPolicy(_click), RolloutSettings()))
    assert demonstration is not None
    policy = Noted()
    tree = wait_for(inspect(demonstration, policy, SAMPLING))
    assert policy.asked == [(1, task_seed(5, TASK, 2, Stream.INSPECTION, t), 0.3) for t in range(3)]
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 3, 3]


def test_a_success_on_the_way_is_no_success_of_a_demonstration_or_of_the_episode_beside_it() -> None:
    passing = wait_for(rollout(Passing(), TASK, ScriptedPolicy(_click), RolloutSettings()))
    assert passing is not None and [step.result.success for step in passing.steps] == [False, True, False]
    tree = wait_for(inspect(passing, ScriptedPolicy(_click), SAMPLING))
    assert not with_rollout(tree, passing).success.any()
    won = replace(passing, success=True)
    tree = with_rollout(wait_for(inspect(won, ScriptedPolicy(_click), SAMPLING)), won)
    assert np.flatnonzero(tree.success).tolist() == [5, 9]  # the last step of each


def test_a_return_is_the_sum_of_an_episodes_rewards() -> None:
    policy = ScriptedPolicy(_click)
    episode = wait_for(rollout(Pays(), TASK, policy, SAMPLING))
    assert episode is not None and episode.return_ == 0.75
    for restores in (True, False):
        tree = wait_for(TreeSearch(Pays(restores), TASK, policy, SearchSettings(num_iterations=5)).run())
        assert tree.visit_count[0] == 5 and tree.value_sum[0] == 5 * 0.75


def test_a_forest_has_the_rule_of_the_settings() -> None:
    forest = forest_for(SearchSettings(c_exp=0.5, alpha=0.3, selection="puct", num_iterations=7, seed=4), TASK)
    assert (forest.c_exp, forest.alpha, forest.selection) == (0.5, 0.3, "puct")
    assert (forest.exhaust, forest.num_simulations) == (True, 0)
    assert forest.seed == task_seed(4, TASK, Stream.SELECTION)
    assert forest_for(SearchSettings(selection="gumbel", num_iterations=7)).num_simulations == 7
