"""Gymnasium both ways: agentq's environments pass its checker, and its environments pass agentq's."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium.utils.env_checker import check_env

from agentq import envs
from agentq.agent.actions import format_action
from agentq.envs import gym_env, own
from agentq.envs.check import check
from agentq.envs.gym_world import GymWorld
from agentq.errors import ConfigError


@pytest.mark.parametrize("name", gym_env.NAMES)
def test_gymnasiums_checker_accepts_agentqs_environments(name: str) -> None:
    if name == "apps":
        pytest.importorskip("pydantic_monty")
    with warnings.catch_warnings(action="error"):
        check_env(gymnasium.make(f"agentq/{name}-v0", render_mode="ansi").unwrapped)


def test_a_program_makes_one_by_its_module() -> None:
    program = "import gymnasium; print(gymnasium.make('agentq.envs.gym_env:agentq/booking-v0').reset(seed=3)[1])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "'task_seed': " in done.stdout


def test_an_episode_there_is_the_episode_here() -> None:
    there, expert, here = (
        gymnasium.make("agentq/booking-v0", split="test"),
        envs.expert("booking"),
        envs.make("booking"),
    )
    task = envs.task("booking", "test", 5)
    here.reset(task)
    seen, info = there.reset(options={"index": 5})
    assert info == {"instruction": task.instruction, "task_seed": task.seed} and task.instruction in seen
    while True:
        advice = expert(task, here)
        result = here.step(advice.env_action)
        seen, reward, terminated, truncated, told = there.step(format_action(advice.env_action, thought="so"))
        assert seen.endswith(result.observation.text) and (reward, terminated) == (result.reward, result.terminated)
        if terminated:
            break
    assert told["success"] and reward == 1 and not truncated
    there.close()


@pytest.mark.parametrize("name", ["gymnasium/FrozenLake-v1", "gymnasium/Blackjack-v1"])
def test_an_environment_of_gymnasium_keeps_the_contract(name: str) -> None:
    broken = [finding for finding in check(name, 3) if finding.holds is False]
    assert not broken, broken


def test_an_environment_of_another_package_is_named_with_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakes.py").write_text(
        "import gymnasium\n"
        "entry = 'gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv'\n"
        "gymnasium.register('Pond-v0', entry_point=entry, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the other process
    with pytest.raises(ConfigError, match=r"must know the environment; got 'Pond-v0'; write gymnasium/MODULE:ID for"):
        envs.make("gymnasium/Pond-v0")
    name = "gymnasium/lakes:Pond-v0"
    assert (envs.make(name).name, envs.task(name, "train", 3).env) == (name, name)
    elsewhere = list(check(name, 2))[-1]
    assert elsewhere.promise.startswith("Another process") and elsewhere.holds
    assert not own.is_registered(name)  # so worker processes may collect
    with pytest.raises(ConfigError, match="must name a module that can be imported; got No module named 'ponds'"):
        envs.make("gymnasium/ponds:Pond-v0")
    with pytest.raises(ConfigError, match="got 'FrozenLak-v1'; did you mean 'FrozenLake-v1'"):
        envs.make("gymnasium/FrozenLak-v1")


def test_lines_become_actions_of_the_space_or_are_refused() -> None:
    world = GymWorld(gymnasium.make("FrozenLake-v1", is_slippery=False))
    first = world.reset(0)
    assert first["text"] == "0" and "Discrete(4)" in first["instruction"]
    assert world.step("SAY", None, "2")["text"] == "1"
    for wrong in ("right", "7", "-1", "[1]", "1.5", ""):
        refused = world.step("SAY", None, wrong)
        assert refused["error_kind"] == "bad_argument" and refused["text"] == "1", wrong
    for move in ("2", "1", "1", "1"):
        result = world.step("SAY", None, move)
    assert not result["terminated"]
    result = world.step("SAY", None, "2")
    assert result == {"text": "15", "reward": 1.0, "terminated": True, "truncated": False, "success": True}


class Paid(gymnasium.Env):  # type: ignore[misc]
    """Pays what it is told, a step each."""

    observation_space, action_space = gymnasium.spaces.Discrete(99), gymnasium.spaces.Discrete(2)

    def __init__(self, *rewards: float, **info: bool) -> None:
        self.rewards, self.info, self.taken = rewards, info, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.taken = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        over = self.taken == len(self.rewards)
        return self.taken, self.rewards[self.taken - 1], over, False, self.info if over else {}


def ended(env: gymnasium.Env, *, threshold: float | None = None, **more: Any) -> tuple[float, bool]:
    """The return and success of the one episode of an environment."""
    env.spec = gymnasium.envs.registration.EnvSpec("Paid-v0", reward_threshold=threshold)
    world = GymWorld(env, **more)
    world.reset(0)
    results = [world.step("SAY", None, "0") for _ in env.rewards]
    assert [r["success"] for r in results[:-1]] == [False] * (len(results) - 1)
    return sum(r["reward"] for r in results), results[-1]["success"]


WON, LOST = (1.0, True), (0.0, False)


def test_a_success_is_told_by_info_or_the_threshold_or_the_last_reward_alone() -> None:
    assert ended(Paid(1, 1, 1, is_success=False)) == LOST and ended(Paid(-9, 0, success=True)) == WON
    assert ended(Paid(1, 1, 1), threshold=3) == WON and ended(Paid(1, 1, 1), threshold=475) == LOST
    assert ended(Paid(0, 0, 7)) == WON and ended(Paid(0, 0)) == LOST and ended(Paid(0, -1)) == LOST
    assert ended(Paid(1, 1, 1), success=lambda reward, info: reward == 1) == WON
    with pytest.raises(ConfigError, match=r"Paid-v0 must show success .*; got rewards along the way: .*success="):
        ended(Paid(1, 1, 1))


def test_functions_of_ones_own_show_and_read() -> None:
    names = {"left": 0, "down": 1, "right": 2, "up": 3}

    def act(line: str) -> int:
        if line not in names:
            raise ValueError(f"a move must be one of {', '.join(names)}; got {line}")
        return names[line]

    def make() -> Any:
        env = gymnasium.make("FrozenLake-v1", is_slippery=False)
        return GymWorld(env, lambda seen, info: f"you are in field {seen}", act, "Walk to field 15")

    envs.register("lake", make)
    task = envs.task("lake", "train", 0)
    env = envs.make("lake")
    assert (task.instruction, env.reset(task).text) == ("Walk to field 15", "you are in field 0")
    with pytest.raises(ConfigError, match="act must be given for actions of this kind"):
        GymWorld(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ConfigError, match="Gymnasium must know the environment; got 'FrozenLak-v1'"):
        envs.make("gymnasium/FrozenLak-v1")
