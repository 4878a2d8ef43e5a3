"""Scripted experts of MiniWoB++ pages. They see what an agent sees: the instruction, the page, the actions so far."""

from __future__ import annotations

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.experts import clicking, drawings, forms, gestures, mail
from agentq.envs.browser.experts.look import Look, PageExpert
from agentq.envs.protocol import SiteEnv
from agentq.envs.web_env import Advice, Expert
from agentq.errors import ConfigError, did_you_mean
from agentq.types import Task

PREFIX = "miniwob/"
_KINDS = (clicking, drawings, forms, gestures, mail)
PAGES: dict[str, PageExpert] = dict(
    sorted((PREFIX + name, page) for kind in _KINDS for name, page in kind.EXPERTS.items())
)


class MiniwobExpert:
    """The expert of every page that has one; see `agentq.envs.web_env.Expert`."""

    plan = "find what the query names , act on it"

    def __call__(self, task: Task, env: SiteEnv) -> Advice:
        """The next step. Raises ConfigError for a page without an expert."""
        if task.env not in PAGES or not isinstance(env, BrowserEnv):
            raise ConfigError(f"task.env must be a page with an expert, shown in a browser; got '{task.env}'")
        look = Look(task.instruction, env.view, env.done)
        try:
            return PAGES[task.env](look)
        except (LookupError, StopIteration):  # the page lacks an expected element
            return look.click(0)


def miniwob_expert(name: str) -> Expert:
    """The expert of `miniwob` or `miniwob/TASK`. Raises ConfigError for a page without one."""
    if "/" in name and name not in PAGES:
        raise ConfigError(f"no expert for '{name}'{did_you_mean(name, PAGES)}")
    return MiniwobExpert()
