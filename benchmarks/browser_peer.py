"""BrowserGym's part of benchmarks/browser.py. Run by the interpreter of `make browsergym`, which has no agentq.

    python benchmarks/browser_peer.py defaults|no_delays EXECUTABLE

Both browsers that it starts at a reset (its chat window is the second) are EXECUTABLE. `no_delays` sets slow_mo to 0
and removes the half second that a step sleeps. MINIWOB_URL names MiniWoB++'s pages.
"""

from __future__ import annotations

import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import browsergym.core.env
import browsergym.miniwob  # registers its environments
import gymnasium
from browser_workload import Move, serve, turn
from browsergym.utils.obs import flatten_axtree_to_str
from playwright.sync_api import BrowserType

_CONTROL = re.compile(r"\[(\w+)\] (button|textbox|checkbox) '((?:[^'\\]|\\.)*)'")


class Gym:
    """One of its environments; see browser_workload.Player."""

    def __init__(self, task: str, **settings: Any) -> None:
        self.env = gymnasium.make(f"browsergym/miniwob.{task}", **settings)
        self.tree = ""

    def reset(self, seed: int) -> str:
        seen, _ = self.env.reset(seed=seed)
        self.tree = flatten_axtree_to_str(seen["axtree_object"])
        return str(seen["goal"])

    def play(self, move: Move) -> float | None:
        what, role, which, text = move
        found = [(bid, name) for bid, is_a, name in _CONTROL.findall(self.tree) if is_a == role]
        bid = found[which][0] if isinstance(which, int) else next(bid for bid, name in found if name == which)
        seen, reward, terminated, _, _ = self.env.step(
            f'click("{bid}")' if what == "click" else f'fill("{bid}", "{text}")'
        )
        self.tree = flatten_axtree_to_str(seen["axtree_object"])
        return float(reward) if terminated else None

    def close(self) -> None:
        self.env.close()


def main() -> None:
    mode, executable = sys.argv[1:]
    launch = BrowserType.launch
    BrowserType.launch = lambda self, **kwargs: launch(self, executable_path=executable, **kwargs)  # type: ignore[method-assign]
    settings = {}
    if mode == "no_delays":
        browsergym.core.env.time = SimpleNamespace(time=time.time, sleep=lambda seconds: None)
        settings["slow_mo"] = 0
    held: list[Gym] = []  # so that memory can be read while an environment is open

    def answer(asked: Any) -> Any:
        while held:
            held.pop().close()
        if "hold" in asked:
            held.append(Gym(asked["hold"], **settings))
            return held[0].reset(0)
        return turn(lambda task: Gym(task, **settings), asked["tasks"], asked["seeds"])

    serve(answer)


if __name__ == "__main__":
    main()
