"""MiniWoB++ on our Chromium: the pages of the `miniwob` package, with their own seeding, timer and reward.

`miniwob/TASK` is one page; `miniwob`, the suite, is all pages with an expert.
Each page draws its problem from `Math.random`, which `Math.seedrandom(seed)` makes a function of the task's seed; the
sentence it shows is the instruction. The page itself ends the episode. Source: Liu et al. 2018, arXiv:1802.08802.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.experts import PAGES, PREFIX, miniwob_expert
from agentq.envs.browser.hosts import Start, Verdict, WithoutMemory
from agentq.envs.browser.pool import BrowserPool, RemoteSession, default_browser
from agentq.envs.browser.site_server import LocalServer
from agentq.envs.tab import ActionError, View
from agentq.envs.web_env import Expert
from agentq.errors import ConfigError, EnvError, MissingExtra, did_you_mean
from agentq.types import Command, Split, Task
from agentq.verbs import INPUT_COMMANDS

SUITE = "miniwob"
MAX_STEPS = 10
LONG = {"terminal": 30, "choose-date": 20, "choose-date-nodelay": 20, "click-checkboxes-large": 20}
"""More steps for pages that need them."""
_MORE = {
    **dict.fromkeys(("button-delay", "use-autocomplete"), (Command.WAIT,)),
    **dict.fromkeys(("bisect-angle", "circle-center", "find-midpoint", "right-angle"), (Command.CLICK_AT,)),
}
"""Commands beyond INPUT_COMMANDS that a page needs."""
_FLIGHT = PREFIX + "flight."
_HIDDEN = [  # for people only, or equal to the instruction
    *("query", "query-pretty", "reward-reason", "reward-display", "click-canvas", "sync-task-cover"),
]
_WIDGETS = re.compile(r'src="[^"]*(jquery-ui\.min|special/|jscolor)')  # their state outlives an episode
_START = """(() => {{
  if (!{timed}) core.EPISODE_MAX_TIME = 1e7;
  Math.seedrandom({seed});
  core.startEpisodeReal();
  document.activeElement?.blur();
  for (const id of {hidden}) document.getElementById(id)?.setAttribute('aria-hidden', 'true');
}})()"""
_SAID = "(said => said.utterance ?? said)(core.getUtterance())"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]+")  # page.js reads these as a space, too


def names() -> tuple[str, ...]:
    """`miniwob/TASK` for every page of the package. Raises MissingExtra without it."""
    return tuple(_paths())


@cache
def _paths() -> dict[str, str]:
    """The path of each page in the package. FlightWoB's pages, framed airline sites, are `miniwob/flight.NAME`."""
    pages = {PREFIX + page.stem: f"{PREFIX}{page.name}" for page in sorted((_folder() / "miniwob").glob("*.html"))}
    flights = sorted((_folder() / "flight").glob("*/wrapper.html"))
    return pages | {_FLIGHT + page.parent.name: f"flight/{page.parent.name}/{page.name}" for page in flights}


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

    def end_headers(self) -> None:
        """Let the browser cache scripts for good."""
        self.send_header("Cache-Control", "max-age=86400")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@cache
def _origin() -> str:
    """The server of the pages: one per process, on a loopback port."""
    server = LocalServer(("127.0.0.1", 0), partial(_Quiet, directory=str(_folder())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


@cache
def _starts_in_place(path: str) -> bool:
    """Whether a page's own script can start it again without loading it."""
    return path.startswith("miniwob/") and not _WIDGETS.search((_folder() / path).read_text())


class MiniwobHost(WithoutMemory):
    """One page, or the suite. See `agentq.envs.browser.hosts.Host`.

    The reward is the page's own without its discount by time; negative ones count as 0. Success is a positive reward;
    for FlightWoB, which pays per correct field, it is the full reward.
    `timed`: the page's time limit and discount apply in real seconds, so episodes are not repeatable. Without it the
    limit is never reached.
    """

    strict = False
    announces = True
    full = False
    quiet_ms = 35  # two frames: animations change something in every frame

    def __init__(self, name: str, timed: bool = False) -> None:
        if name != SUITE and name not in names():
            raise ConfigError(f"no environment '{name}'{did_you_mean(name, names())}")
        self.name, self.timed, self.repeatable = name, timed, not timed
        self.max_steps = LONG.get(name.removeprefix(PREFIX), MAX_STEPS)
        self.allow = [_origin()]
        self.probe = f"[WOB_DONE_GLOBAL, {'WOB_REWARD_GLOBAL' if timed else 'WOB_RAW_REWARD_GLOBAL'}]"

    def start(self, task: Task) -> Start:
        pages = PAGES if self.name == SUITE else (self.name,)
        if task.env not in pages:
            raise ConfigError(f"task.env must be {'in ' * (len(pages) > 1)}'{self.name}'; got '{task.env}'")
        self.max_steps = LONG.get(task.env.removeprefix(PREFIX), MAX_STEPS)
        return self.draw(task.env, task.seed)

    def draw(self, page: str, seed: int) -> Start:
        """A page, and the script that draws the problem of `seed` there and starts the episode."""
        path = _paths()[page]
        return Start(f"{_origin()}/{path}", script=self._script(seed), in_place=_starts_in_place(path))

    def _script(self, seed: int) -> str:
        return _START.format(timed=str(self.timed).lower(), seed=seed, hidden=_HIDDEN)

    def shown_url(self, url: str) -> str:
        return url.removeprefix(_origin())

    def target(self, view: View, text: str) -> str:
        raise ActionError("bad_url", "GOTO is not part of this task")

    def judge(self, task: Task, memory: Any, probe: Any, stopped: bool) -> Verdict:
        done, reward = probe or (False, 0.0)
        success = done and (reward >= 1 if task.env.startswith(_FLIGHT) else reward > 0)
        return Verdict(stopped or done, max(0.0, float(reward)), success)

    def answer(self, task: Task, question: str) -> str:
        return task.instruction


def make(name: str, browser: BrowserPool | None) -> BrowserEnv:
    """A session of a page, or of the suite; see `agentq.envs.make`."""
    return BrowserEnv(MiniwobHost(name), browser or default_browser())


def tasks(name: str, seeds: Sequence[int], split: Split) -> list[Task]:
    """Tasks by seed; in the suite the seeds go round the pages. Instructions come from the pages."""
    pages, browser = list(PAGES) if name == SUITE else [name], default_browser()
    by_page = sorted(seeds, key=lambda seed: seed % len(pages))  # a page that is shown already draws fast
    said = {seed: instruction(pages[seed % len(pages)], seed, browser) for seed in by_page}
    return [Task(page := pages[seed % len(pages)], seed, split, said[seed], commands(page)) for seed in seeds]


def commands(page: str) -> tuple[Command, ...]:
    """What a page takes beyond the paper's commands."""
    return INPUT_COMMANDS + _MORE.get(page.removeprefix(PREFIX), ())


def expert(name: str) -> Expert:
    """See `agentq.envs.expert`."""
    return miniwob_expert(name)


def max_sessions(name: str) -> None:
    """Limited by memory only."""


@lru_cache(maxsize=65536)
def instruction(page: str, seed: int, browser: BrowserPool) -> str:
    """The instruction of a page with `seed`, drawn in a browser. Raises ConfigError for an unknown page."""
    start = MiniwobHost(page).draw(page, seed)
    try:
        return _drawn(start, browser)
    except EnvError:  # its worker was lost
        _drawing.cache_clear()
        return _drawn(start, browser)


def _drawn(start: Start, browser: BrowserPool) -> str:
    session = _drawing(browser)
    session.call("visit", url=start.url, script=start.script, in_place=start.in_place)
    return _CONTROL.sub(" ", session.call("observe")["probe"])


@cache
def _drawing(browser: BrowserPool) -> RemoteSession:
    """The session in which instructions are drawn."""
    return browser.open([_origin()], probe=_SAID, quiet_ms=0, announces=True)
