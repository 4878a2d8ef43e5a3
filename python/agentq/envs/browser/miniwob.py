"""MiniWoB++ on our Chromium: the pages of the `miniwob` package, with their own seeding, timer and reward.

Each page draws its problem from `Math.random`, which `Math.seedrandom(seed)` makes a function of the task's seed; the
sentence it then shows is the instruction. The page itself ends the episode. Source: Liu et al. 2018, arXiv:1802.08802.
"""

from __future__ import annotations

import importlib.util
import random
import re
import threading
from functools import cache, lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agentq.envs.browser.hosts import Start, Verdict
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.tab import ActionError, View
from agentq.errors import ConfigError, MissingExtra, did_you_mean
from agentq.types import Task

PREFIX = "miniwob/"
MAX_STEPS = 10
_HIDDEN = (
    "['query', 'reward-display', 'click-canvas', 'sync-task-cover']"  # shown to people, or shown as the instruction
)
_WIDGETS = re.compile(r'src="[^"]*(jquery-ui\.min|special/|jscolor)')  # what they hold outlives an episode
_START = """(() => {{
  if (!{timed}) core.EPISODE_MAX_TIME = 1e7;
  Math.seedrandom({seed});
  core.startEpisodeReal();
  for (const id of {hidden}) document.getElementById(id)?.setAttribute('aria-hidden', 'true');
  const said = core.getUtterance();
  return said.utterance ?? said;
}})()"""


def names() -> tuple[str, ...]:
    """`miniwob/TASK` for every page of the package. Raises MissingExtra without it."""
    return tuple(PREFIX + page.stem for page in sorted((_folder() / "miniwob").glob("*.html")))


def _folder() -> Path:
    """The package's pages, found without importing it (it would import selenium)."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("miniwob environments need miniwob: pip install --no-deps miniwob")
    return Path(spec.submodule_search_locations[0]) / "html"


class _Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


@cache
def _origin() -> str:
    """One server of the pages a process, on a loopback port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(_folder())))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class MiniwobHost:
    """One task's page. See `agentq.envs.browser.hosts.Host`.

    The reward is the page's own without its discount by the clock, negative ones as 0; success is a positive reward.
    `timed`: the page's time limit and discount hold, in the seconds that pass while the agent thinks; episodes are then
    not repeatable. Without it the limit is out of reach.
    """

    max_steps = MAX_STEPS
    strict = False
    announces = True
    quiet_ms = 35  # two frames: animations change something in each

    def __init__(self, name: str, timed: bool = False) -> None:
        if name not in names():
            raise ConfigError(f"no environment '{name}'{did_you_mean(name, names())}")
        self.name, self.timed, self.repeatable = name, timed, not timed
        self.allow = [_origin()]
        self.url = f"{_origin()}/miniwob/{name.removeprefix(PREFIX)}.html"
        self.in_place = not _WIDGETS.search((_folder() / self.url.removeprefix(_origin() + "/")).read_text())
        self.probe = f"[WOB_DONE_GLOBAL, {'WOB_REWARD_GLOBAL' if timed else 'WOB_RAW_REWARD_GLOBAL'}]"

    def start(self, task: Task) -> Start:
        if task.env != self.name:
            raise ConfigError(f"task.env must be '{self.name}'; got '{task.env}'")
        return Start(self.url, script=self.script(task.seed), in_place=self.in_place)

    def script(self, seed: int) -> str:
        """Draws the problem of `seed` and starts the episode; its value is the instruction."""
        return _START.format(timed=str(self.timed).lower(), seed=seed, hidden=_HIDDEN)

    def memory(self, visitor: str) -> None:
        return None

    def resume(self, memory: Any) -> Start:
        raise AssertionError("a page without a server has no memory to resume")

    def remember(self, visitor: str, memory: Any) -> None:
        raise AssertionError("a page without a server has no memory to resume")

    def dismiss(self, visitor: str) -> None:
        """There is no server to tell."""

    def shown_url(self, url: str) -> str:
        return url.removeprefix(_origin())

    def target(self, view: View, text: str) -> str:
        raise ActionError("bad_url", "GOTO is not part of this task")

    def judge(self, task: Task, memory: Any, probe: Any, stopped: bool) -> Verdict:
        done, reward = probe or (False, 0.0)
        return Verdict(stopped or done, max(0.0, float(reward)), done and reward > 0)

    def answer(self, task: Task, question: str) -> str:
        return task.instruction

    def random_query(self, rng: random.Random) -> str:
        return rng.choice(["one", "two", "three"])


@lru_cache(maxsize=65536)
def instruction(name: str, seed: int, browser: BrowserPool) -> str:
    """What the page of task `name` asks for with `seed`; drawn in a browser."""
    host = MiniwobHost(name)
    session = browser.open(host.allow, probe=host.script(seed), quiet_ms=0)
    try:
        return str(session.call("visit", url=host.url)["probe"])
    finally:
        session.close()
