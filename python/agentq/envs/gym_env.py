"""agentq's environments for Gymnasium: `gymnasium.make("agentq.envs.gym_env:agentq/booking-v0")`.

Gymnasium then imports this module, which registers `agentq/booking-v0`, `agentq/shop-v0` and `agentq/apps-v0`.
Observations and actions are texts: the instruction with the page, and an action in the environment's language, alone or
within a composite action. A text that is no action costs a step, as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq import envs
from agentq.agent.actions import parse_action
from agentq.errors import require
from agentq.types import Language, Observation, Task

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = require("gymnasium", extra="gymnasium", for_="agentq.envs.gym_env")

NAMES = ("booking", "shop", "apps")
TASKS = 1_000_000  # a seed draws one of these
_SAMPLES = {
    Language.WEB: ("CLICK [1]", "CLICK [2]", "SCROLL DOWN", "TYPE [1] a", "GOTO /"),
    Language.CODE: ("```python\nn = 1\n```", "```python\nprint(apis.supervisor.show_profile())\n```"),
    Language.TEXT: ("look", "wait"),
    Language.TOOL: ('{"name": "look", "arguments": {}}',),
}


class Texts(gymnasium.spaces.Space):  # type: ignore[misc]
    """All texts; samples are from a few."""

    def __init__(self, samples: tuple[str, ...]) -> None:
        super().__init__(None, None)
        self.samples = samples

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """One of the samples."""
        return self.samples[int(self.np_random.integers(len(self.samples)))]

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text."""
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Texts) and other.samples == self.samples

    def __repr__(self) -> str:
        return "Texts()"


class GymEnv(gymnasium.Env):  # type: ignore[misc]
    """One of agentq's environments, with the tasks of a split.

    `reset(seed=..)` draws a task, `reset(options={"index": 7})` takes that one.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # Gymnasium's form

    def __init__(self, name: str, split: str = "train", render_mode: str | None = None) -> None:
        self.name, self.split, self.render_mode = name, split, render_mode
        self._env = envs.make(name)
        self._task: Task = envs.task(name, split, 0)
        self._page = Observation("")
        self.observation_space, self.action_space = Texts(("",)), Texts(_SAMPLES[self._task.language])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The first observation of a task, and `instruction` and `task_seed` of it."""
        super().reset(seed=seed)
        given = (options or {}).get("index")
        self._task = envs.task(self.name, self.split, int(self.np_random.integers(TASKS)) if given is None else given)
        self._page = self._env.reset(self._task)
        return self._shown(), {"instruction": self._task.instruction, "task_seed": self._task.seed}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The next observation, reward, terminated, truncated; `success`, `error_kind` and `error_message`."""
        result = self._env.step(parse_action(action, language=self._task.language).env_action)
        self._page = result.observation
        told = {"success": result.success, "error_kind": result.error_kind, "error_message": result.error_message}
        return self._shown(), float(result.reward), result.terminated, result.truncated, told

    def render(self) -> str | None:
        """The page, if the render mode is `ansi`."""
        return self._page.text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the session."""
        self._env.close()

    def _shown(self) -> str:
        return f"QUERY: {self._task.instruction}\nOBSERVATION:\n{self._page.text}"


for _name in NAMES:
    gymnasium.register(f"agentq/{_name}-v0", entry_point=f"{__name__}:GymEnv", kwargs={"name": _name})
