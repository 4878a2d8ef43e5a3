"""A run for the tests of the viewer: two searches, a wide tree, episodes, and texts that try to become markup."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agentq
from agentq.store import RunStore
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import Action, Observation, StepResult, Trajectory
from tests.records_factory import click, make_proposal, make_trajectory, make_tree

PAIRS = {"alpha": 0.75, "threshold": 0.5, "max_pairs_per_node": 4, "min_visits": 1}
HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">\u202e'
CONFIG = {"run": {"env": "count"}, "search": {"selection": "ucb1", "c_exp": 1.0}}


class Count:
    """Count to the goal by clicks and stop."""

    def reset(self, seed: int) -> dict[str, str]:
        self.goal, self.count = 2 + seed % 3, 0
        return {"instruction": f"Count to {self.goal} and stop", "text": "count 0\nbutton Up [1]"}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, object]:
        self.count += command == "CLICK"
        won = command == "STOP" and self.count == self.goal
        page = f"count {self.count}\nbutton Up [1]"
        return {"text": page, "reward": float(won), "success": won, "terminated": command == "STOP"}


def searched(task: int, rollouts: int = 8) -> TreeRecord:
    return agentq.search(
        Count, task, lambda history, k: ["STOP", "CLICK [1]", "SCROLL DOWN"][:k], num_iterations=rollouts
    ).tree


def ranked(task: int) -> TreeRecord:
    """`searched`, where a critic ranked all siblings."""
    tree = searched(task)
    tree.critic_value[1:] = np.linspace(1.0, 0.0, len(tree) - 1)
    return tree


def wide(seed: int = 7, width: int = 12) -> TreeRecord:
    """A root with `width` tried children, the last one visited most."""
    tree = make_tree(seed, num_nodes=width + 1, width=width)
    tree.visit_count[:] = [width * (width + 1) // 2, *range(1, width + 1)]
    return tree


def hostile(seed: int = 8) -> TreeRecord:
    """Every text of the tree tries to run a script."""
    tree = make_tree(seed, num_nodes=3)
    tree.task = replace(tree.task, instruction=HOSTILE)
    tree.visit_count[:] = [2, 1, 1]
    tree.observation[:] = [Observation(f"{HOSTILE}\nlone \ud800 [1]", HOSTILE) for _ in range(3)]
    for node in (1, 2):
        proposal = make_proposal(node, env_action=click(1))
        action = Action(HOSTILE, replace(click(1), text=HOSTILE), thought=HOSTILE, explanation=HOSTILE, plan=HOSTILE)
        tree.proposal[node] = replace(proposal, action=action)
    tree.error_kind[1] = HOSTILE
    return tree


def looped(seed: int = 1) -> Trajectory:
    """An episode that was cut because the agent repeated itself."""
    t = make_trajectory(seed, success=False)
    last = replace(t.steps[-1].result, terminated=False, truncated=True, error_kind="loop", error_message="again")
    return replace(t, steps=(*t.steps[:-1], replace(t.steps[-1], result=last)))


def lost(seed: int = 2) -> Trajectory:
    """An episode that the world broke at its second step."""
    t = make_trajectory(seed, 2, success=False)
    result = StepResult(t.steps[1].observation, truncated=True, error_kind="network", error_message="no route")
    return replace(t, steps=(t.steps[0], replace(t.steps[1], result=result)))


def large(nodes: int) -> TreeRecord:
    """A tree of tried nodes."""
    tree = make_tree(9, num_nodes=nodes, width=4)
    tree.visit_count[:] = 1
    tree.flags[:] = np.where(np.arange(nodes) % 7 == 6, TERMINAL, 0)
    return tree


def make_run(path: Path) -> Path:
    """The run directory."""
    with RunStore.open(path, CONFIG) as store:
        for task in (0, 1):
            store.add_tree("agent_q/round1/collect", searched(task))
        store.set_note("agent_q/round1/collect", {"pairs": PAIRS})
        store.add_tree("odd", wide())
        store.add_tree("odd", hostile())
        for attempt, t in enumerate([make_trajectory(3), replace(looped(), task=make_trajectory(3).task)]):
            store.add_trajectory("agent_q/eval", f"3/{attempt}", t)
        store.add_trajectory("agent_q/eval", "2/0", lost())
    return path


def damaged(path: Path) -> Path:
    """`make_run` with a damaged tree, episode and note."""
    make_run(path)
    with closing(sqlite3.connect(path / "run.sqlite", isolation_level=None)) as database:
        where = "(kind = 'tree' AND key = '1') OR key = '2/0'"
        database.execute(f"UPDATE items SET record = substr(record, 1, 50) WHERE {where}")
        database.execute("UPDATE stages SET note = '{' WHERE name = 'agent_q/round1/collect'")
    return path


@contextmanager
def a_chromium() -> Iterator[Any]:
    """Playwright's Chromium; the test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        sandbox, path = os.environ.get("AGENTQ_NO_SANDBOX", "0") == "0", shutil.which("chromium-headless-shell")
        try:
            browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=sandbox)
        except api.Error as error:
            pytest.skip(str(error).splitlines()[0])
        yield browser
        browser.close()


def opened(tab: Any, page_file: str, address: str = "") -> Any:
    tab.goto(f"{page_file}#{address}")
    tab.wait_for_selector("html[data-ready]")
    return tab
