"""What does a served environment cost: reset, step and memory of a session?

    make bench-setup
    make bench BENCH=remote [ARGS="--tasks 10 --json"]

`count` is examples/own_env.py, which does nothing: its step costs what server and protocol cost. The pages of the
others are also driven by agentq's own browsers, as `miniwob/TASK`. A step types into the page's first element.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import commit, machine

from agentq import envs
from agentq.envs.browser import processes
from agentq.envs.protocol import Env
from agentq.envs.remote.env_server import EnvServer
from agentq.types import Command, EnvAction

ROOT = Path(__file__).parents[1]
BROWSERGYM = ROOT / "build" / "browsergym" / "bin" / "python"
PAGES = ("login-user", "enter-text", "book-flight")
STEPS = 4


def seconds(call: Callable[[], Any]) -> float:
    """The duration of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def timed(env: Env, tasks: int, action: EnvAction) -> dict[str, float]:
    """Median and best seconds of a reset and of a step, without the first episode."""
    resets, steps = [], []
    for task in envs.tasks(env.name, "validation", tasks + 1):
        resets.append(seconds(lambda task=task: env.reset(task)))
        steps += [seconds(lambda: env.step(action)) for _ in range(STEPS)]
    resets, steps = resets[1:], steps[STEPS:]
    return {
        "reset_s": statistics.median(resets),
        "reset_best_s": min(resets),
        "step_s": statistics.median(steps),
        "step_best_s": min(steps),
    }


def served(what: str, python: str, tasks: int, action: EnvAction) -> dict[str, float]:
    """The same for a served environment, with the seconds to open a session and the MiB of its processes."""
    with EnvServer(what, python, "127.0.0.1:0", 1) as server:
        name = f"{what if what.startswith('browsergym/') else 'count'}@{server.at}"
        opened = seconds(lambda: envs.make(name))
        env = envs.make(name)
        figures = timed(env, tasks, action)
        held = processes.memory_mb(processes.tree(os.getpid(), "") - {os.getpid()})
        env.close()
    return {"open_s": opened, **figures, "memory_mb": held}


def measure(tasks: int) -> dict[str, Any]:
    """Figures by environment."""
    write = EnvAction(Command.TYPE, 1, "word")
    figures = {
        "count": served(f"{ROOT / 'examples' / 'own_env.py'}:make", sys.executable, tasks, EnvAction(Command.CLICK, 1))
    }
    for page in PAGES:
        name = f"browsergym/miniwob.{page}"
        figures[name] = served(name, str(BROWSERGYM), tasks, write)
    for page in PAGES:
        figures[f"miniwob/{page}"] = timed(envs.make(f"miniwob/{page}"), tasks, write)
    return {"figures": figures, "targets": {}, "machine": machine("playwright"), "commit": commit()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not BROWSERGYM.exists():
        parser.error("BrowserGym needs a Python of its own: make browsergym")
    result = measure(args.tasks)
    if args.json:
        print(json.dumps(result))
        return
    for name, row in result["figures"].items():
        print(f"{name:<34}" + "  ".join(f"{key} {value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
