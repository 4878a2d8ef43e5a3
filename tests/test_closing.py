"""What is opened is closed: sessions of every kind of work, copies by `fork`, and those that a call still is in."""

from __future__ import annotations

import gc
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest

import agentq
from agentq import envs
from agentq.agent.actions import format_action
from agentq.envs import own
from agentq.envs.calls import CallThread, call, session
from agentq.envs.contract import from_file
from agentq.errors import ConfigError
from agentq.policies.scripted import ScriptedPolicy
from agentq.recipes import resources
from agentq.recipes.executor import _unfit
from agentq.searching.branching import at_random
from agentq.searching.choices import by_majority
from agentq.searching.collect import Item, Work, choices, rollouts, trees
from agentq.searching.faults import Resets
from agentq.searching.rollout import RolloutSettings
from agentq.searching.run import each, wait_for
from agentq.searching.selection import SearchSettings
from agentq.types import Command, EnvAction, History, Proposal, StepResult
from tests.conftest import forget_environments
from tests.count_world import Counting

UP, STOP = EnvAction(Command.CLICK, 1), EnvAction(Command.STOP)


class Count(Counting):
    """Counts. `alive` has the instances that were made and are not closed."""

    alive: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.goal = self.count = 0
        self.alive.append(self)

    def expert(self) -> dict[str, Any]:
        return {"command": "STOP"} if self.count == self.goal else {"command": "CLICK", "element": 1}

    def close(self) -> None:
        self.alive.remove(self)  # raises if it is closed twice


class Forked(Count):
    def fork(self) -> Forked:
        twin = type(self)()
        twin.goal, twin.count = self.goal, self.count
        return twin


class Alone(Count):
    """A world that only one instance at a time can open, such as a game on a fixed port."""

    def __init__(self) -> None:
        if self.alive:
            raise RuntimeError("port 5000 is in use")
        super().__init__()


class Bound(Count):
    """Waits for another process, and holds what only the thread may use that made it."""

    blocking = True

    def __init__(self) -> None:
        super().__init__()
        self.db = sqlite3.connect(":memory:")

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        self.db.execute("select 1")
        return super().step(command, element, text)

    def close(self) -> None:
        self.db.close()
        super().close()


@pytest.fixture(autouse=True)
def forgets() -> Iterator[None]:
    Count.alive.clear()
    yield
    forget_environments()


def both(history: History, k: int) -> list[str]:
    return ["CLICK [1]", "STOP"][:k]


def act(history: object, rng: Any) -> tuple[str, float]:
    return format_action((UP, STOP)[rng.integers(2)]), -1.0


class Believing:
    """A judge that lets every result stand."""

    async def settle(self, history: History, result: StepResult) -> StepResult:
        return result


class Writing(ScriptedPolicy):
    """A policy that can encode what an expert says."""

    def write(self, history: History, text: str) -> Proposal:
        return ScriptedPolicy(lambda h, r: (text, -1.0))._one(history, np.random.default_rng(0), 1.0)


def works(make: Callable[[], Any]) -> dict[str, Work]:
    policy, settings, sampling = Writing(act), SearchSettings(num_iterations=4), RolloutSettings()
    run = SimpleNamespace(env="count")
    given: Any = SimpleNamespace(make_env=make, settings=SimpleNamespace(run=run), policy=lambda name: policy)
    kept: Any = None
    halves = {"initial": 2, "total": 4, "branching": at_random(2)}
    return {
        "rollouts": rollouts(make, policy, sampling),
        "trees": trees(make, policy, None, settings, judge=Believing()),
        "leaves": trees(make, policy, None, SearchSettings(num_iterations=4, leaves_in_flight=2)),
        "steps": trees(make, policy, None, settings, by_steps=True),
        "choices": choices(make, policy, settings, by_majority),
        "branches": resources.branches(given, kept, policy="", sampling=sampling, **halves),
        "demonstrations": resources.demonstrations(given, kept, policy=""),
        "inspections": resources.inspections(given, kept, policy="", sampling=sampling, rollout=True),
    }


KINDS = ["rollouts", "trees", "leaves", "steps", "choices", "branches", "demonstrations", "inspections"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [Count, Forked, Bound], ids=["plain", "forked", "blocking"])
def test_every_kind_of_work_closes_its_sessions(kind: str, world: type[Count]) -> None:
    envs.register("count", world)
    task = envs.task("count", "train", 1)
    if kind == "branches" and world is not Forked:
        pytest.skip("it cannot fork")
    assert wait_for(works(lambda: envs.make("count"))[kind](Item(task), Resets())) is not None
    gc.collect()
    assert Count.alive == []


def test_a_session_that_tasks_were_asked_of_is_the_next_one_or_is_closed_at_the_end() -> None:
    envs.register("alone", Alone)
    envs.tasks("alone", "train", 3)
    assert len(Count.alive) == 1
    env = envs.make("alone")
    assert len(Count.alive) == 1 and envs.tasks("alone", "train", 3)  # known, so no other session is needed
    assert envs.expert("alone")
    env.close()
    envs.tasks("alone", "train", 4)
    assert len(Count.alive) == 1
    own._close_kept()
    assert Count.alive == []


def test_an_environment_of_which_one_may_be_open_is_searched_and_measured() -> None:
    envs.register("alone", Alone)
    for world in (Alone, "alone", lambda: Alone()):
        assert agentq.search(world, 0, both, num_iterations=12, num_proposals=2).success
        assert agentq.evaluate(both, world, 3, in_flight=1).n == 3
    own._close_kept()
    assert Count.alive == []


def test_a_run_that_asks_whether_an_environment_waits_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentq.recipes.executor.can_be_sent", lambda resources: True)
    settings = SimpleNamespace(run=SimpleNamespace(engine="", env="count"))
    given: Any = SimpleNamespace(settings=settings, make_env=lambda: envs.make(Bound))
    assert _unfit(given, []) == "count runs in other processes" and Count.alive == []


@pytest.mark.parametrize("make", [Bound, lambda: Bound()], ids=["class", "function"])
def test_a_blocking_environment_is_made_and_called_in_one_thread(make: Callable[[], Any]) -> None:
    assert agentq.search(make, 0, both, num_iterations=12, num_proposals=2).success
    assert agentq.evaluate(both, make, 4, in_flight=4).broken == 0
    envs.register("bound", make)
    env = envs.make("bound")  # and from the thread of a caller without a loop
    env.reset(envs.task("bound", "train", 0))
    assert env.step(UP).error_kind is None
    env.close()
    own._close_kept()
    assert Count.alive == []


def test_copies_are_closed_and_the_instance_of_the_caller_is_not() -> None:
    given = Forked()
    for env in (Forked, given):
        agentq.search(env, 0, both, num_iterations=16, num_proposals=2, leaves_in_flight=2)
        gc.collect()
        assert Count.alive == [given]
    kept = weakref.ref(given)
    del given, env
    Count.alive.clear()
    gc.collect()
    assert kept() is None  # nothing of agentq keeps it


def test_an_instance_cannot_be_two_sessions() -> None:
    class Restored(Count):
        def snapshot(self) -> Any:
            return self.goal, self.count

        def restore(self, token: Any) -> None:
            self.goal, self.count = token

    assert agentq.search(Restored, 0, both, num_iterations=12, num_proposals=2, leaves_in_flight=2).success
    env = own.given(Restored())
    with pytest.raises(ConfigError, match="a second session must have a separate instance; got the same one: give the"):
        env.fork()  # type: ignore[attr-defined]


def test_a_failing_close_is_told_and_hides_no_error_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    class Sticky(Count):
        def close(self) -> None:
            raise KeyError("stuck")

    async def work(error: Exception | None) -> None:
        async with session(lambda: envs.make(Sticky)):
            if error:
                raise error

    with pytest.raises(ValueError, match="the work"):
        wait_for(work(ValueError("the work")))
    wait_for(work(None))
    assert re.fullmatch(
        r"agentq: close\(\) failed: \S+test_closing.py:\d+: KeyError: 'stuck'\n", capsys.readouterr().err
    )


class Hangs(Count):
    """Its steps wait until they may go on."""

    blocking = True
    begun, go_on = threading.Event(), threading.Event()

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        self.begun.set()
        assert self.go_on.wait(60)
        return super().step(command, element, text)


def test_work_that_is_cancelled_does_not_wait_for_a_call_that_hangs() -> None:
    Hangs.begun.clear()
    Hangs.go_on.clear()

    async def work(hangs: bool) -> None:
        async with session(lambda: envs.make(Hangs)) as env:
            await call(env, env.reset, envs.task(Hangs, "train", 0))
            if hangs:
                await call(env, env.step, UP)
            while not Hangs.begun.is_set():
                await call(env, time.sleep, 0.01)
            raise ValueError("another one fails")

    begun = time.monotonic()
    with pytest.raises(ValueError, match="another one fails"):
        wait_for(each([True, False], work, in_flight=2, on_done=lambda _: None))
    assert time.monotonic() - begun < 30 and len(Count.alive) == 1
    Hangs.go_on.set()
    until = time.monotonic() + 30
    while Count.alive and time.monotonic() < until:
        time.sleep(0.01)
    assert Count.alive == []  # it is closed when the call ends


HANGS = """
import sys, time, agentq

class Hangs:
    blocking, max_steps = True, 3
    def reset(self, seed): return {"instruction": "go", "text": "button Up [1]"}
    def step(self, command, element, text):
        sys.stdout.write("in a step\\n")  # in one write, since two threads may be here at once
        sys.stdout.flush()
        time.sleep(3600)

agentq.evaluate(lambda history, k: ["STOP"], Hangs, 2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to a process")
def test_an_interrupt_ends_a_process_whose_environment_hangs() -> None:
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"in a step\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) != 0
        finally:
            process.kill()


def test_a_thread_makes_its_own_calls_at_once_and_is_busy_to_others() -> None:
    thread, go_on = CallThread(), threading.Event()
    assert thread.run(lambda: (thread.run(threading.get_ident), thread.busy)) == (thread._thread.ident, False)
    assert not thread.busy
    done = thread.submit(go_on.wait)
    assert thread.busy
    go_on.set()
    assert done.result(30) and not thread.busy
    thread.end()
    thread._thread.join(30)
    assert not thread._thread.is_alive()


STATE = """
from dataclasses import dataclass

@dataclass
class State:
    said: str = "{said}"

def make():
    return State()
"""


def test_classes_of_a_file_are_pickled_and_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "state.py").write_text(STATE.format(said=folder))
    makes = [from_file(f"{tmp_path}/{folder}/state.py:make") for folder in "ab"]
    made = [make() for make in makes]
    assert [pickle.loads(pickle.dumps(each)) for each in made] == made and [each.said for each in made] == ["a", "b"]
    assert type(made[0]) is from_file(f"{tmp_path}/a/state.py:State")  # the file is run once
    (tmp_path / "a" / "state.py").write_text(STATE.format(said="changed"))
    assert from_file(f"{tmp_path}/a/state.py:make")().said == "changed"


def test_sys_exit_of_an_environment_is_its_own_fault() -> None:
    class Exits(Count):
        def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
            sys.exit("no licence")

    class Never(Count):
        def __init__(self) -> None:
            sys.exit("no licence")

    class Resets(Count):
        def reset(self, seed: int) -> dict[str, Any]:
            sys.exit("no licence")

    for world in (Exits, Never, Resets, type("Blocking", (Exits,), {"blocking": True})):
        with pytest.raises(ConfigError, match=r"test_closing.py:\d+: SystemExit: no licence"):
            agentq.search(world, 0, both, num_iterations=1)


def test_a_factory_without_a_hash_makes_sessions() -> None:
    class Maker:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, world: type[Count]) -> None:
            self.world = world

        def __call__(self) -> Count:
            return self.world()

    for world in (Count, Bound):
        assert agentq.search(Maker(world), 0, both, num_iterations=12, num_proposals=2).success
    assert Count.alive == []


def test_what_only_looks_like_a_session_is_told() -> None:
    class Stepping:
        def reset(self, *, seed: int | None = None) -> None: ...

        def step(self, action: int) -> None: ...

    said = r"or step\(env_action\), name and max_steps as an agentq Env; got Stepping; agentq.envs.gym_world.GymWorld"
    with pytest.raises(ConfigError, match=said):
        agentq.search(cast(Any, Stepping()), 0, both)

    class Open(Count):
        def step(self, *args: Any) -> dict[str, Any]:
            return super().step(*args)

    assert agentq.search(Open(), 0, both, num_iterations=12, num_proposals=2).success
