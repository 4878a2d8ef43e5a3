"""What an episode that searches at each step knows of successes."""

from __future__ import annotations

from dataclasses import replace

from agentq.errors import BudgetSpent
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.faults import Resets
from agentq.searching.run import wait_for
from agentq.searching.selection import SearchSettings
from agentq.searching.steps import search_steps
from agentq.searching.tree import TreeSearch
from agentq.types import History, Proposal, StepResult
from tests.test_search import TASK, Lock, Passing, _click


class Spends(ScriptedPolicy):
    """Has no budget left once a rollout has succeeded."""

    spent = False

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        if self.spent:
            raise BudgetSpent("a budget must be left")
        return await super().propose(history, k, seed=seed, temperature=temperature)


def test_no_rollout_follows_a_known_success_if_the_search_stops_there() -> None:
    ends: list[bool] = []
    settings = SearchSettings(num_iterations=40, num_proposals=12, stop_on_success=True)
    search = TreeSearch(
        Lock(), TASK, ScriptedPolicy(_click), settings, on_rollout=lambda history, result: ends.append(result.success)
    )
    tree = wait_for(search_steps(search))
    assert ends.count(True) == 1 and ends[-1] and tree.info["iterations"] == len(ends)
    assert tree.info["succeeded"] and tree.success[-1] and len(tree) == 4


def test_a_search_at_each_step_tells_of_all_its_rollouts_and_of_a_share_only_by_its_calls() -> None:
    for max_calls in (0, 100):
        told: list[tuple[int, float]] = []
        resets = Resets(grew=lambda seed, rollouts, share, told=told: told.append((rollouts, share)))  # type: ignore[misc]
        settings = SearchSettings(num_iterations=3, num_proposals=12, max_calls=max_calls)
        tree = wait_for(search_steps(TreeSearch(Lock(), TASK, ScriptedPolicy(_click), settings, resets=resets)))
        assert [n for n, _ in told] == [*range(1, tree.info["iterations"] + 1)] and len(told) > 3
        shares = [share for _, share in told]
        assert shares == sorted(shares) and shares[-1] == (tree.info["calls"] / max_calls if max_calls else 0.0)


def test_a_success_on_the_way_is_no_success_of_a_search_at_each_step() -> None:
    settings = SearchSettings(num_iterations=4, num_proposals=3, stop_on_success=True)
    search = TreeSearch(Passing(), TASK, ScriptedPolicy(_click), settings)
    tree = wait_for(search_steps(search))
    assert len(tree) == 4 and not tree.info["succeeded"] and not search.succeeded and not tree.success.any()
    cut = TreeSearch(Passing(), TASK, ScriptedPolicy(_click), replace(settings, max_calls=21))
    tree = wait_for(search_steps(cut))  # goes on along its tree, over a page that says success
    assert len(tree) == 4 and tree.info["calls"] == 21 and not tree.info["succeeded"] and not tree.success.any()


def test_an_episode_whose_budget_is_spent_goes_on_to_the_success_it_knows() -> None:
    policy = Spends(_click)

    def told(history: History, result: StepResult) -> None:
        policy.spent |= result.success

    settings = SearchSettings(num_iterations=60, num_proposals=12, seed=12)
    search = TreeSearch(Lock(), TASK, policy, settings, on_rollout=told)
    tree = wait_for(search_steps(search))
    assert policy.spent and search.succeeded and len(tree) == 4
    assert tree.info["succeeded"] and tree.success[-1]
