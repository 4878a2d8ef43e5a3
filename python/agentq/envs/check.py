"""`agentq env check`: draws tasks and actions, and says which promises an environment holds. See `promises`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

from agentq import envs
from agentq.envs import own
from agentq.envs.explore import plausible
from agentq.envs.promises import NEEDS_MOVES, OPTIONAL, PROMISES, Advised, Case, NotOffered, SessionPool
from agentq.envs.protocol import SiteEnv
from agentq.errors import AgentqError, ConfigError, EnvError
from agentq.types import EnvAction, Split, StepResult, Task

WALK = 6  # actions on a task
UNTRIED = "the world accepted no action of the walk; with a method expert(), its actions are walked"
TWICE = (
    ". Unless they differ in something hidden, rates are over fewer tasks than n says, or over training tasks: "
    'see "A benchmark with a list of tasks" in docs/protocol.md'
)
ELSEWHERE_S = 300.0  # also walked in another process


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a promise holds; None if it was not made or could not be tried. `said`: what is broken, what that means,
    or of one that holds, what is better changed."""

    promise: str
    holds: bool | None
    said: str = ""

    def __str__(self) -> str:
        absent = "absent" if self.said.startswith(OPTIONAL) else "unknown"
        verdict = "warn" if self.holds and self.said else {True: "holds", False: "BROKEN", None: absent}[self.holds]
        start = self.said.partition(": ")[0]  # of a file, its name, which keeps its case
        is_word = ".py" not in start and start.partition(" ")[0].isalpha()
        said = self.said[:1].upper() + self.said[1:] if is_word else self.said
        return f"{verdict:7} {self.promise}" + (f" {said}." if said else "")


def check(name: str, num_tasks: int) -> Iterator[Finding]:
    """Findings for every promise on the first `num_tasks` training tasks. Raises ConfigError for an unknown name."""
    with closing(SessionPool(lambda: envs.make(name), envs.max_sessions(name))) as sessions:
        with sessions.take(1):
            pass  # an unknown name, or a server that is not there
        try:
            cases = [_case(name, task, sessions) for task in envs.tasks(name, Split.TRAIN, num_tasks)]
        except (EnvError, AssertionError) as error:
            yield Finding("Every task begins.", False, str(error))
            return
        tried = any(case.accepted for case in cases)
        for promise in PROMISES:
            yield _as_tried(_hold(promise, cases), tried or promise not in NEEDS_MOVES)
        yield _differ(name, num_tasks, sessions)
    yield _as_tried(_hold_elsewhere(name, num_tasks), tried)


def _as_tried(found: Finding, tried: bool) -> Finding:
    """A finding; unknown if it holds and nothing was tried."""
    return replace(found, holds=None, said=UNTRIED) if found.holds and not tried else found


def _hold(promise: Callable[[Case], None], cases: list[Case]) -> Finding:
    words = (promise.__doc__ or "").strip()
    for case in cases:
        try:
            promise(case)
        except NotOffered as reason:
            return Finding(words, None, str(reason))
        except Advised as advice:
            return Finding(words, True, f"task {case.task.seed}: {advice}")
        except (AssertionError, AgentqError) as error:
            return Finding(words, False, f"task {case.task.seed}: {error}")
    return Finding(words, True)


def _differ(name: str, num_tasks: int, sessions: SessionPool) -> Finding:
    """Whether tasks differ by instruction and first page, for as long as `ELSEWHERE_S / 10`."""
    words, begun = "Tasks differ, within a split and between splits.", time.monotonic()
    shown: dict[Split, list[tuple[str, str]]] = {Split.TRAIN: [], Split.VALIDATION: [], Split.TEST: []}
    tasks = list[tuple[Split, Task]]()
    sessions.close()  # a server may have one alone, by which it tells its tasks
    for index, split in product(range(4 * num_tasks), shown):
        if time.monotonic() > begun + ELSEWHERE_S / 20:
            break
        with suppress(AgentqError):  # a benchmark may have few tasks, and other findings name what is broken
            tasks.append((split, envs.task(name, split, index)))
    with sessions.take(1) as (env,):
        for split, task in tasks:
            if time.monotonic() > begun + ELSEWHERE_S / 10:
                break
            with suppress(AgentqError):
                shown[split].append((task.instruction, env.reset(task).text))
    said = []
    if few := [f"{len(set(f))} of {len(f)} {split}" for split, f in shown.items() if len(set(f)) < len(f)]:
        said.append(f"only {' and '.join(few)} tasks are distinct by instruction and first page")
    for split, others in ((Split.VALIDATION, [Split.TRAIN]), (Split.TEST, [Split.TRAIN, Split.VALIDATION])):
        known = {each for other in others for each in shown[other]}
        if n := sum(each in known for each in shown[split]):
            said.append(f"{n} of {len(shown[split])} {split} tasks are also {' or '.join(others)} tasks")
    return Finding(words, True, "; ".join(said) + TWICE if said else "")


def _hold_elsewhere(name: str, num_tasks: int) -> Finding:
    words = "Another process has the same tasks and pages."
    envs.release()  # it needs sessions, too
    if own.is_registered(name):
        return Finding(words, None, "registered in this process alone")
    command = [sys.executable, "-m", "agentq.envs.check", name, str(num_tasks)]
    there = {**os.environ, "PYTHONHASHSEED": "7"}
    try:
        done = subprocess.run(command, env=there, capture_output=True, text=True, timeout=ELSEWHERE_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding(words, False, f"it did not end within {ELSEWHERE_S:.0f} s there")
    if done.returncode:
        return Finding(words, False, done.stderr.strip().rpartition("\n")[2])
    said = json.loads(done.stdout.strip().rpartition("\n")[2])  # after what the environment prints
    for here, other in zip(walks(name, num_tasks), said, strict=True):
        for what, value in here.items():
            if other[what] != value:
                return Finding(words, False, f"task {here['seed']}: {what}: '{value}' here; '{other[what]}' there")
    return Finding(words, True)


def walks(name: str, num_tasks: int) -> list[dict[str, Any]]:
    """Instructions of the first tasks, and fingerprints of the pages on a walk through each."""
    found = []
    with closing(SessionPool(lambda: envs.make(name))) as sessions:
        for task in envs.tasks(name, Split.TRAIN, num_tasks):
            case, row = _case(name, task, sessions), {"seed": task.seed, "instruction": task.instruction}
            with sessions.take(1) as (env,):
                pages = [env.reset(task), *(env.step(action).observation for action in case.walk)]
            found.append(row | {f"page {i}": page.fingerprint for i, page in enumerate(pages)})
    return found


def _case(name: str, task: Task, sessions: SessionPool) -> Case:
    """A task with the expert's actions, or with those of a random walk if there is no expert."""
    rng, actions, end, accepted = random.Random(task.seed), list[EnvAction](), None, 0
    try:
        expert = envs.expert(name)
    except ConfigError:
        expert = None
    with sessions.take(1) as (env,):
        text = env.reset(task).text
        while len(actions) < min(WALK, env.max_steps):
            action = expert(task, cast(SiteEnv, env))[0] if expert and task.seed % 2 else plausible(text, task, rng)
            result: StepResult = env.step(action)
            accepted += result.error_kind is None
            if result.terminated or result.truncated:
                end = action
                break
            actions.append(action)
            text = result.observation.text
    return Case(sessions, task, actions, end, accepted)


if __name__ == "__main__":
    print(json.dumps(walks(sys.argv[1], int(sys.argv[2]))))
