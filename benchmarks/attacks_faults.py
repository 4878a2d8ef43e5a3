"""Attacks by a faulty world: pages that differ when revisited, resets and steps that raise."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from attack import agentq, attack

from agentq.agent.actions import format_action
from agentq.credit.pairs import node_pairs
from agentq.envs.remote.env_server import EnvServer
from agentq.policies.engine_names import embedded_base
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import Command, EnvAction, History, Observation, Split, StepResult, Task

NUM_TASKS, EVERY = 21, 7  # so 3 tasks break
CODE = (2, 0, 1, 2)


class Changing:
    """A lock of four clicks whose page sometimes shows an advertisement, so that a replay may reach another page."""

    name, max_steps = "changing", len(CODE)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clicked: tuple[int, ...] = ()
        self.executed: set[tuple[int, ...]] = set()

    def reset(self, task: Task) -> Observation:
        """The first page."""
        self.clicked = ()
        return self.page()

    def step(self, env_action: EnvAction | None) -> StepResult:
        """One click."""
        assert env_action is not None and env_action.element is not None
        self.clicked += (env_action.element,)
        self.executed.add(self.clicked)
        opened = self.clicked == CODE
        return StepResult(self.page(), float(opened), terminated=len(self.clicked) == len(CODE), success=opened)

    def page(self) -> Observation:
        """The clicks so far, and in one of ten cases an advertisement."""
        shown = f"heading {' '.join(map(str, self.clicked))}"
        return Observation(f"{shown}\ntext Buy {self.rng.random()}" if self.rng.random() < 0.1 else shown)

    def close(self) -> None:
        """Nothing to release."""


@attack(
    "2.5", "search on a page that changes between visits", expected="pairs, 0 of which reject an action never taken"
)
def changing_page(_: Path) -> str:
    pairs = never = 0
    settings = SearchSettings(num_iterations=20, num_proposals=6)
    for seed in range(12):
        env = Changing(seed)
        task = Task(env.name, seed, Split.TRAIN, "open the lock")
        tree = asyncio.run(TreeSearch(env, task, ScriptedPolicy(_code_or_not), settings).run())
        for pair in node_pairs(tree, alpha=1.0, threshold=0.01):
            pairs += 1
            never += _clicks(tree, pair.rejected[0].token_ids) not in env.executed
    return f"{'pairs' if pairs else 'no pairs'}, {never} of which reject an action never taken"


def _code_or_not(history: History, rng: np.random.Generator) -> tuple[str, float]:
    element = CODE[len(history.actions)] if rng.random() < 0.6 else int(rng.integers(3))
    return format_action(EnvAction(Command.CLICK, element)), -1.0


def _clicks(tree: TreeRecord, token_ids: np.ndarray) -> tuple[int, ...]:
    """The clicks on the way to the node of these tokens, including the node's own."""
    (end,) = [i for i, p in enumerate(tree.proposal) if p is not None and p.token_ids is token_ids]
    path = [tree.proposal[node] for node in tree.path(end)[1:]]
    return tuple(
        p.action.env_action.element
        for p in path
        if p and p.action.env_action and p.action.env_action.element is not None
    )


ODD = f"""
class Odd:
    name, max_steps = "odd", 2
    def reset(self, seed):
        self.seed = seed
        if WHERE == "reset" and seed % {EVERY} == 0:
            raise RuntimeError("no page")
        return {{"instruction": f"Task {{seed}}", "text": "button Up [1]"}}
    def step(self, command, element, text):
        if WHERE == "step" and self.seed % {EVERY} == 0:
            raise RuntimeError("no answer")
        return {{"text": "button Up [1]", "terminated": command == "STOP"}}
def make():
    return Odd()
"""


@contextmanager
def _odd(where: str, folder: Path) -> Iterator[str]:
    """The name of a served environment that fails on every seventh task."""
    file = folder / "odd.py"
    file.write_text(f'WHERE = "{where}"{ODD}', encoding="utf-8")
    with tempfile.TemporaryDirectory() as short, EnvServer(f"{file}:make", sys.executable, f"{short}/at", 4) as server:
        yield f"odd@{server.at}"


def _measured(name: str, folder: Path) -> str:
    """How `agentq eval` of the embedded base on the environment ended, and which outputs report broken tasks."""
    said = agentq(
        "eval",
        str(embedded_base()),
        f"--env={name}",
        f"--eval.num_tasks={NUM_TASKS}",
        "--run.constrained=true",
        "--out=run",
        cwd=folder,
    )
    if said.code:
        return str(said)
    (row,) = json.loads((folder / "run" / "summary.json").read_text())
    counted = f"{row.get('broken', 0)} of {row['n']} broken"
    report = (folder / "run" / "report.html").read_text(encoding="utf-8")
    tells = [word for word, text in (("terminal", said.out), ("report", report)) if "broken" in text]
    return f"exit 0: {counted}; told by {' and '.join(tells) or 'nothing'}"


EXPECTED = f"exit 0: {NUM_TASKS // EVERY} of {NUM_TASKS} broken; told by terminal and report"


@attack(
    "3.41", "an environment whose reset raises for one task in seven, and the same command again", expected=EXPECTED
)
def reset_raises(folder: Path) -> str:
    with _odd("reset", folder) as name:
        first, again = _measured(name, folder), _measured(name, folder)
    return first if first == again else f"{first}; again: {again}"


@attack("3.42", "an environment whose step raises for one task in seven", expected=EXPECTED)
def step_raises(folder: Path) -> str:
    with _odd("step", folder) as name:
        return _measured(name, folder)
