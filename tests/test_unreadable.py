"""`run.max_unreadable`: an agent that no longer writes actions ends its episode, however episodes are collected."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentq.cli import main
from agentq.policies.scripted import ScriptedPolicy
from agentq.recipes.recipe import sampling_of
from agentq.recipes.settings import RECIPES
from agentq.searching.branching import at_random, branched
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import wait_for
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.searching.unreadable import ended_if_unreadable
from agentq.store.run import RunStore
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


@pytest.mark.parametrize("search", [False, True])
def test_a_model_of_random_weights_ends_its_episodes_early(search: bool, base: Path, tmp_path: Path) -> None:
    words = ["--eval.num_tasks=2", "--run.max_unreadable=2", "--model.max_new_tokens=4", f"--out={tmp_path / 'run'}"]
    more = (
        [
            "--search",
            "--eval.num_iterations=2",
            "--critic.model=none",
            "--search.num_proposals=1",
            "--search.temperature=2",
        ]
        if search
        else ["--eval.temperature=2"]
    )
    assert main(["eval", str(base), *words, *more]) == 0
    with RunStore.read(tmp_path / "run") as store:
        (stage,) = [stage for stage in store.stages() if stage.endswith("eval")]
        paths = [[step.proposal for step in t.steps] for t in store.trajectories(stage)]
        paths += [[t.proposal[node] for node in t.path(len(t) - 1)[1:]] for t in store.trees(stage)]
    assert len(paths) == 2 and all(2 <= len(path) < 9 for path in paths)  # a site has 15 steps and more
    assert all(proposal.action.env_action is None for path in paths for proposal in path[-2:])


def test_the_search_of_agent_q_ends_paths_early(base: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "run", ["--run.num_tasks=2", "--search.num_iterations=3", "--eval.num_tasks=1"]
    words += ["--run.max_unreadable=1", "--search.temperature=2", "--model.max_new_tokens=4", "--critic.model=none"]
    main(["train", "agent_q", f"--base={base}", f"--out={out}", *words, "--eval.measure_base=false"])
    with RunStore.read(out) as store:
        trees = list(store.trees("agent_q/round1/collect"))
    unread = [(t, n) for t in trees for n in range(1, len(t)) if t.proposal[n].action.env_action is None]
    assert unread and not any(len(tree.children(node)) for tree, node in unread)
