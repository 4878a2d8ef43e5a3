"""Environments of Gymnasium as agentq's: `gymnasium/FrozenLake-v1`, or any other by two functions of yours.

`gymnasium/MODULE:ID` imports a module that registers the environment first, as `gymnasium.make("MODULE:ID")` does.

The agent writes a line (the language `text`). Without functions, an observation is shown as Python prints it, and the
line is read by the action space: a number for `Discrete`, numbers for `MultiDiscrete` and `MultiBinary`, the line as it
is for `Text`. Search goes back by replay, since most of these environments cannot be copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

from agentq.envs import own
from agentq.envs.protocol import SiteEnv
from agentq.envs.web_env import Expert
from agentq.errors import ConfigError, require
from agentq.types import Split, Task

PREFIX = "gymnasium/"
MAX_STEPS = 100  # of an environment that names no limit

Observe = Callable[[Any, dict[str, Any]], str]
Act = Callable[[str], Any]


class GymWorld:
    """A class of the contract over an environment of Gymnasium.

    Args:
        env: the environment, made.
        observe: the text of an observation and its info; None: as Python prints it.
        act: the action of a line; raises ValueError for one that it does not read. None: by the action space.
        instruction: what the agent is asked, the same for all seeds.
        success: whether an episode that ended with this reward and info is a success. None: what the last info says
            under `success` or `is_success`; else whether the sum of rewards reaches Gymnasium's `reward_threshold`;
            else, if only the last reward was not 0, whether it was positive.

    An episode's return is 1 for a success and 0 otherwise, since returns must be in [0, 1].
    """

    language, keeps_pages = "text", True

    def __init__(
        self,
        env: Any,
        observe: Observe | None = None,
        act: Act | None = None,
        instruction: str = "",
        success: Callable[[float, dict[str, Any]], bool] | None = None,
    ) -> None:
        spaces = require("gymnasium.spaces", extra="gymnasium", for_="agentq.envs.gym_world")
        known = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text)
        if act is None and not isinstance(env.action_space, known):
            raise ConfigError(f"act must be given for actions of this kind; got {env.action_space}")
        self.env, self.success = env, success
        self.observe = observe or (lambda seen, info: str(seen))
        self.act = act or self._read
        spec = env.spec
        self.name = spec.id if spec is not None else type(env.unwrapped).__name__
        self.max_steps = (spec.max_episode_steps if spec is not None else None) or MAX_STEPS
        self.instruction = instruction or f"Reach the goal of {self.name}. Actions: {env.action_space}"
        self._threshold: float | None = spec.reward_threshold if spec is not None else None
        self._shown, self._rewards = "", list[float]()

    def reset(self, seed: int) -> dict[str, Any]:
        """The first observation of a seed."""
        seen, info = self.env.reset(seed=seed)
        self._shown, self._rewards = self._text(seen, info), []
        return {"instruction": self.instruction, "text": self._shown}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        """Say a line. One that is no action of the space changes nothing."""
        if command == "STOP":
            return {"text": self._shown, "terminated": True}
        try:
            action = self.act(text or "")
        except ValueError as error:
            return self._refused(str(error))
        if not self.env.action_space.contains(action):
            return self._refused(f"an action must be in {self.env.action_space}; got {text!r:.60}")
        seen, reward, terminated, truncated, info = self.env.step(action)
        self._shown = self._text(seen, info)
        self._rewards.append(float(reward))
        won = bool(terminated or truncated) and self._won(info)
        return {
            "text": self._shown,
            "reward": float(won),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "success": won,
        }

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _won(self, info: dict[str, Any]) -> bool:
        """Whether the episode that has ended is a success. Raises ConfigError if nothing tells."""
        if self.success is not None:
            return bool(self.success(self._rewards[-1], info))
        told = [key for key in ("success", "is_success") if key in info]
        if told:
            return bool(info[told[0]])
        if self._threshold is not None:
            return sum(self._rewards) >= self._threshold
        if any(self._rewards[:-1]):
            raise ConfigError(
                f"{self.name} must show success by info['success'], a reward_threshold or its last reward alone; got "
                f"rewards along the way: make it by a function with GymWorld(env, success=lambda reward, info: ..)"
            )
        return self._rewards[-1] > 0

    def _refused(self, said: str) -> dict[str, Any]:
        return {"text": self._shown, "error_kind": "bad_argument", "error_message": said}

    def _text(self, seen: Any, info: dict[str, Any]) -> str:
        if not self.env.observation_space.contains(seen):
            raise ValueError(f"an observation must be in {self.env.observation_space}; got {seen!r:.60}")
        return self.observe(seen, info) or "nothing"

    def _read(self, line: str) -> Any:
        """The action of a line by the space; numbers as JSON."""
        space = self.env.action_space
        if type(space).__name__ == "Text":
            return line
        numpy = require("numpy", extra="gymnasium", for_="agentq.envs.gym_world")
        try:
            value = json.loads(line)
            return numpy.asarray(value, dtype=space.dtype)[()] if isinstance(value, int | list) else None
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"an action must be a number or a list of numbers; got {line[:60]!r}") from None


def _known(name: str) -> str:
    """`name`, of the form `gymnasium/ID` or `gymnasium/MODULE:ID`, once known. Raises ConfigError if it cannot be."""
    gymnasium = require("gymnasium", extra="gymnasium", for_=name)
    module, _, wanted = name.removeprefix(PREFIX).rpartition(":")
    if module:
        try:
            import_module(module)
        except (ImportError, TypeError, ValueError) as error:
            raise ConfigError(f"{name} must name a module that can be imported; got {error}") from None
    if wanted not in gymnasium.registry:
        more = "" if module else "; write gymnasium/MODULE:ID for an environment that a package registers"
        near = get_close_matches(wanted, gymnasium.registry, n=1)
        raise ConfigError(
            f"Gymnasium must know the environment; got '{wanted}'" + (f"; did you mean '{near[0]}'?" if near else more)
        )
    if not own.knows(name):
        own.register(name, lambda: GymWorld(gymnasium.make(wanted)), here=False)
    return name


def make(name: str, browser: object = None) -> SiteEnv:
    """A session; see `agentq.envs.make`."""
    return cast(SiteEnv, own.make(_known(name)))


def tasks(name: str, seeds: Sequence[int], split: Split) -> list[Task]:
    """Tasks by seed, which is Gymnasium's."""
    return own.tasks(_known(name), seeds, split)


def expert(name: str) -> Expert:
    """Raises ConfigError: there is none."""
    return cast(Expert, own.expert(_known(name)))


def max_sessions(name: str) -> None:
    """Limited by memory only."""
