"""`run.max_unreadable`: an agent that no longer writes actions ends its episode, however episodes are collected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentq.policies.scripted import ScriptedPolicy
from agentq.recipes.pipeline import search_settings
from agentq.recipes.recipe import sampling_of
from agentq.recipes.settings import RECIPES
from agentq.searching.branching import at_random, branched
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import wait_for
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.searching.unreadable import ended_if_unreadable
from agentq.types import EnvAction, History, Language, Observation, Split, StepResult, Task
from tests.reads import made

TASK = Task("hall", 7, Split.TRAIN, "leave")
SAID = ("?", "?", "CLICK [1]", "?", "?", "?", "?", "?", "?")


class Hall:
    """Nine steps that lead nowhere; an unreadable action costs one."""

    name, max_steps, restored = "hall", 9, "exact"

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, task: Task) -> Observation:
        self.steps = 0
        return Observation("link Out [1]")

    def step(self, env_action: EnvAction | None) -> StepResult:
        self.steps += 1
        over = self.steps == self.max_steps
        return StepResult(Observation(f"link Out [1]\ntext {self.steps}"), truncated=over)

    def snapshot(self) -> int:
        return self.steps

    def restore(self, token: int) -> Observation:
        self.steps = token
        return Observation("")

    def fork(self) -> Hall:
        return Hall()

    def close(self) -> None:
        pass


def _says(history: History, rng: np.random.Generator) -> tuple[str, float]:
    return SAID[len(history.actions)], -0.5


@pytest.mark.parametrize(("most", "steps"), [(0, 9), (1, 1), (2, 2), (3, 6), (4, 7), (7, 9)])
def test_an_episode_ends_after_so_many_in_a_row_wherever_it_is_collected(most: int, steps: int) -> None:
    policy, sampling = ScriptedPolicy(_says), RolloutSettings(max_unreadable=most)
    episode = wait_for(rollout(Hall(), TASK, policy, sampling))
    assert episode is not None and len(episode.steps) == steps and not episode.success
    assert [step.result.truncated for step in episode.steps] == [False] * (steps - 1) + [True]

    settings = SearchSettings(num_iterations=1, num_proposals=1, max_unreadable=most)
    tree = wait_for(TreeSearch(Hall(), TASK, policy, settings).run())
    assert len(tree) == steps + 1 and tree.info["env_steps"] == steps

    grown = wait_for(branched(Hall(), TASK, policy, sampling, initial=1, total=1, branching=at_random(1)))
    assert len(grown) == steps + 1


def test_an_action_is_read_in_the_language_of_its_environment() -> None:
    block, result = "COMMANDS:\n```python\nprint(1)\n```", StepResult(Observation(""))
    for language, over in ((Language.CODE, False), (Language.WEB, True)):
        history = History("go", Observation(""), (block,), language=language)
        assert ended_if_unreadable(result, history, 1).truncated == over


def test_the_setting_reaches_every_recipe_that_samples() -> None:
    words = ["--run.max_unreadable=3"]
    assert all(made(settings, words).run.max_unreadable == 3 for settings in RECIPES.values())
    r: Any = SimpleNamespace(settings=made(RECIPES["loop"], words), seed=5)
    assert sampling_of(r) == RolloutSettings(1.0, 5, max_unreadable=3)
    search = made(RECIPES["agent_q"], words).search  # type: ignore[attr-defined]
    assert search_settings(search, 2, 0, max_unreadable=3).max_unreadable == 3
