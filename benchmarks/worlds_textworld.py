"""TextWorld and ALFWorld for worlds.py: steps through the env server, and copies beside replay in their own Python."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from agentq import envs
from agentq.envs.remote.env_server import EnvServer
from agentq.types import EnvAction, Verb

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / "build" / "textworld" / "bin" / "python"
GAME = "textworld/5.10.5"
_COPIES = """
import json, os, sys, time, types
from statistics import median
for name in ("agentq", "agentq.envs", "agentq.envs.browser", "agentq.envs.remote"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(sys.argv[1], *name.split("."))]
from agentq.envs.remote.textworld_games import TextWorldEnv
env, found = TextWorldEnv(sys.argv[2]), {}
def replay(depth):
    env.reset(0)
    for i in range(depth):
        env.step("SAY", None, ("inventory", "look")[i % 2])
def timed(work):
    times = []
    for _ in range(10):
        at = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - at))
    return median(times)
for depth in (1, 2, 4, 8, 16):
    found[depth] = {"replay_ms": timed(lambda: replay(depth)), "copy_ms": timed(lambda: env.fork().close())}
print(json.dumps(found))
"""


def textworld(games: int) -> dict[str, Any]:
    """Games that the expert wins, milliseconds per new game, reset and step through the server; copies by depth."""
    copies = subprocess.run([PYTHON, "-c", _COPIES, ROOT / "python", GAME], capture_output=True, text=True, check=True)
    return {**_played(GAME, games), "going_back": json.loads(copies.stdout)}


def alfworld(games: int) -> dict[str, Any]:
    """The same, without copies, for household tasks of our own (worlds_alfworld.py)."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"ALFWORLD_DATA": folder}):
        subprocess.run([PYTHON, Path(__file__).with_name("worlds_alfworld.py"), folder, str(games)], check=True)
        return _played("alfworld/train", games)


def _played(game: str, games: int) -> dict[str, Any]:
    with EnvServer(game, str(PYTHON), "127.0.0.1:0", 1) as server:  # one reset at a time
        name = f"{game}@{server.at}"
        begun = time.perf_counter()
        tasks = envs.tasks(name, "train", games)
        making = time.perf_counter() - begun
        env, expert, steps, resets = envs.make(name), envs.expert(name), [], []
        won = 0
        for task in tasks:
            at = time.perf_counter()
            env.reset(task)
            resets.append(time.perf_counter() - at)
            for _ in range(5):
                at = time.perf_counter()
                env.step(EnvAction(Verb.SAY, None, "look"))
                steps.append(time.perf_counter() - at)
            over, result = False, None
            while not over:
                result = env.step(expert(task, env).env_action)
                over = result.terminated or result.truncated
            won += bool(result and result.success)
        env.close()
    return {
        "games": games,
        "won_by_expert": won,
        "first_reset_ms": 1000 * making / games,
        "reset_ms": 1000 * median(resets),
        "step_ms": 1000 * median(steps),
    }
