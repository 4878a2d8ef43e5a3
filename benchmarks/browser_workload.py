"""The work of benchmarks/browser.py on MiniWoB++ pages. Needs NumPy only: agentq's part and its peer both import it.

A turn takes the pages of TASKS one after the other, several episodes each. An episode is a reset and the moves of
`moves`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

TASKS = ("click-test", "click-button", "enter-text", "login-user", "click-checkboxes")
Move = tuple[str, str, str | int, str]  # click or fill; role; name, or place among those of the role; text


class Player(Protocol):
    """An environment of one page."""

    def reset(self, seed: int) -> str:
        """Start the episode of `seed`; return the page's instruction."""
        ...

    def play(self, move: Move) -> float | None:
        """The reward if the episode is over. Observes the page in any case."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Episode:
    """`first`: the environment's first episode, for which it opened its browser or session."""

    task: str
    seed: int
    first: bool
    goal: str
    reset_s: float
    steps_s: list[float] = field(default_factory=list)
    reward: float | None = None


def page_seed(seed: int) -> int:
    """The seed that BrowserGym gives to the page in the episode `seed`."""
    return int(np.random.RandomState(seed).randint(0, 1_000_000))


def moves(task: str, goal: str) -> list[Move]:
    """The moves that earn the reward."""
    said = re.findall('"([^"]*)"', goal)
    match task:
        case "click-test":
            return [("click", "button", "Click Me!", "")]
        case "click-button":
            return [("click", "button", said[0], "")]
        case "enter-text":
            return [("fill", "textbox", 0, said[0]), ("click", "button", "Submit", "")]
        case "login-user":
            return [("fill", "textbox", i, text) for i, text in enumerate(said)] + [("click", "button", "Login", "")]
    names = goal.removeprefix("Select ").removesuffix(" and click Submit.").split(", ")
    boxes: list[Move] = [("click", "checkbox", name, "") for name in names if name != "nothing"]
    return [*boxes, ("click", "button", "Submit", "")]


def turn(make: Callable[[str], Player], tasks: Iterable[str], seeds: Sequence[int]) -> list[Episode]:
    """The episodes `seeds` on each page, timed."""
    episodes = []
    for task in tasks:
        player = make(task)
        for seed in seeds:
            start = time.perf_counter()
            goal = player.reset(seed)
            episode = Episode(task, seed, seed == seeds[0], goal, time.perf_counter() - start)
            for move in moves(task, goal):
                start = time.perf_counter()
                episode.reward = player.play(move)
                episode.steps_s.append(time.perf_counter() - start)
            episodes.append(episode)
        player.close()
    return episodes


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer each line of standard input, a JSON value, with a line of JSON."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line)), default=asdict), flush=True)
