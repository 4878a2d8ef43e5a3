"""The samples of several leaves in flight, and what searches and rollouts count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import wait_for
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.seeds import Stream, task_seed
from agentq.types import EnvAction, History, Proposal, StepResult
from tests.test_sampling import Noted
from tests.test_search import TASK, Lock, _click


class Talks(Noted):
    """Its actions have four tokens each."""

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        found = await super().propose(history, k, seed=seed, temperature=temperature)
        return [replace(p, token_ids=np.zeros(4, np.int32), logps=np.full(4, -0.5, np.float32)) for p in found]


def test_leaves_in_flight_have_seeds_of_their_own() -> None:
    policy, settings = Noted(), SearchSettings(num_iterations=9, num_proposals=3, seed=5, leaves_in_flight=3)
    tree = wait_for(TreeSearch(Lock(), TASK, policy, settings, make_env=Lock).run())
    seeds = [seed for _, seed, _ in policy.asked]
    assert len(set(seeds)) == len(seeds) == np.isin(np.arange(len(tree)), tree.parent).sum()
    assert set(seeds) <= {task_seed(5, TASK, Stream.TREE, i) for i in range(3 * len(seeds))}


def test_a_search_counts_a_nodes_prompt_once_and_the_tokens_of_all_its_actions() -> None:
    policy, settings = Talks(), SearchSettings(num_iterations=4, num_proposals=3)
    tree = wait_for(TreeSearch(Lock(), TASK, policy, settings).run())
    asked = len(policy.asked)
    assert tree.info["generated_tokens"] == 4 * 3 * asked
    assert tree.info["prompt_tokens"] == asked * len(tree.proposal[1].prompt_ids)  # type: ignore[union-attr]


def test_an_episode_whose_last_step_broke_is_no_success() -> None:
    class Drops(Lock):
        def step(self, env_action: EnvAction | None) -> StepResult:
            return replace(super().step(env_action), success=True, error_kind="session_lost")

    episode = wait_for(rollout(Drops(), TASK, ScriptedPolicy(_click), RolloutSettings()))
    assert episode is not None and episode.broken and not episode.success
