"""A search in a browser that dies by SIGKILL: it goes on where it was, to the same trees, and leaves no process."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentq import envs
from agentq.agent.actions import format_action
from agentq.envs.browser import processes
from agentq.envs.browser.pool import BrowserPool
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.collect import attempts, collect, inline
from agentq.searching.collect import trees as searches
from agentq.searching.tree import SearchSettings
from agentq.store.records import encode_tree
from agentq.store.run import TREE, RunStore
from agentq.types import Command, EnvAction, History, Split
from tests.browser_lab import living

SETTINGS = SearchSettings(num_iterations=5, num_proposals=3)
TASKS = envs.tasks("booking", Split.TRAIN, 3)


def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
    """Clicks about and types; stops after four actions."""
    choices = [EnvAction(Command.CLICK, int(rng.integers(1, 6))), EnvAction(Command.TYPE, 1, "Blue")]
    chosen = choices[rng.random() < 0.3] if len(history.actions) < 4 else EnvAction(Command.STOP)
    return format_action(chosen), -1.0


def search(out: Path, pool: BrowserPool, before_act: Callable[[RunStore], None] = lambda store: None) -> None:
    """The run: one tree of each task, or what is left to do of it."""
    with RunStore.open(out, {}) as store:

        def watched(history: History, rng: np.random.Generator) -> tuple[str, float]:
            before_act(store)
            return act(history, rng)

        work = searches(lambda: envs.make("chromium/booking", browser=pool), ScriptedPolicy(watched), None, SETTINGS)
        collect(store, "search", attempts(TASKS), inline(work), in_flight=1, on_item=lambda *_: None)


def trees(out: Path) -> list[object]:
    """What is stored of each tree, less the seconds it took."""
    with RunStore.read(out) as store:
        found = list(store.trees("search"))
    return [encode_tree(replace(tree, info={**tree.info, "seconds": 0})) for tree in found]


@pytest.mark.browser
def test_a_killed_search_goes_on_to_the_same_trees_and_leaves_no_browser(browser: BrowserPool, tmp_path: Path) -> None:
    search(tmp_path / "whole", browser)
    command = [sys.executable, "-m", "tests.test_browser_kill", str(tmp_path / "killed")]
    dying = subprocess.Popen([*command, "halts"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert dying.stdout is not None and dying.stdin is not None
    mark = dying.stdout.readline().strip()  # it is in the middle of its second tree now
    ends = [os.pidfd_open(pid) for pid in processes.tree(dying.pid, mark)]
    assert len(ends) > 3 and any("--type=renderer" in line for line in living(mark))
    dying.kill()
    for end in ends:
        assert select.select([end], [], [], 30)[0], "a process outlives its owner"
        os.close(end)
    assert living(mark) == []
    with RunStore.read(tmp_path / "killed") as store:
        assert store.count("search", TREE) == 1
    subprocess.run(command, check=True)
    assert trees(tmp_path / "killed") == trees(tmp_path / "whole")
    assert len(trees(tmp_path / "whole")) == len(TASKS)
    dying.wait()
    dying.stdin.close()
    dying.stdout.close()


def main(out: str, *words: str) -> None:
    """The search in a process of its own; "halts": in its second tree it says its worker's mark and waits."""
    calls = []

    def halt(store: RunStore) -> None:
        calls.append(store.count("search", TREE))
        if words and calls.count(1) == 5:
            print(pool._workers[0].mark, flush=True)
            sys.stdin.read()

    with BrowserPool() as pool:
        search(Path(out), pool, halt)


if __name__ == "__main__":
    main(*sys.argv[1:])
