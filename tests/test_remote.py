"""Environments behind a server: what an Env promises, and what happens when processes hang or die."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentq import SearchResult, envs, search, search_async
from agentq.agent.actions import format_action
from agentq.config import Run, Settings
from agentq.envs.browser.budget import MAX_TOKENS, tokens
from agentq.envs.check import check
from agentq.envs.promises import check_env
from agentq.envs.protocol import BROKEN_IN_A_ROW, can_restore, is_blocking
from agentq.envs.remote import client, env_server
from agentq.envs.remote.client import RemoteEnv
from agentq.envs.remote.connection import Connection
from agentq.envs.remote.env_server import EnvServer
from agentq.errors import ConfigError, EnvError
from agentq.policies.function_policy import FunctionPolicy
from agentq.policies.protocol import Policy
from agentq.policies.scripted import ScriptedPolicy
from agentq.recipes.pipeline import Pipeline
from agentq.searching.collect import attempts, rollouts
from agentq.searching.faults import take
from agentq.searching.rollout import RolloutSettings
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.run import TRAJECTORY, RunStore
from agentq.types import Command, EnvAction, Split, StepResult, Task
from tests.recipes_factory import Quiet
from tests.remote_lab import FRAIL, OWN, begun, gone, mishap, process

GROWS = """
class Grows:
    name, max_steps = "grows", {max_steps}

    def reset(self, seed):
        return {{"instruction": "Version {version}", "text": "button Up [1]"}}

    def step(self, command, element, text):
        return {{"text": "button Up [1]"}}


make = Grows
"""
UP, STOP = EnvAction(Command.CLICK, 1), EnvAction(Command.STOP)


@pytest.fixture(scope="module")
def count() -> Iterator[str]:
    """The name of the environment of examples/own_env.py."""
    with EnvServer(f"{OWN}:make", sys.executable, "127.0.0.1:0", 4) as server:
        yield f"count@{server.at}"


@pytest.fixture
def frail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Serves tests/frail_env.py, by an address of the file system; gives the name."""
    monkeypatch.setenv("FRAIL_FOLDER", str(tmp_path))
    servers: list[EnvServer] = []

    def serve(*, deadline_s: float = 60.0, sessions: int = 2) -> str:
        monkeypatch.setenv("FRAIL_DEADLINE_S", str(deadline_s))
        servers.append(EnvServer(f"{FRAIL}:make", sys.executable, str(tmp_path / f"{len(servers)}"), sessions))
        return f"frail@{servers[-1].at}"

    yield serve
    for server in servers:
        server.close()


def test_the_conformance_check_holds(count: str) -> None:
    task = envs.task(count, "test", 4)
    assert (task.seed, task.instruction) == (2_000_000_004, "Count to 2 and stop")
    check_env(lambda: envs.make(count), task, [UP, EnvAction(Command.CLICK, 9), UP])
    env = envs.make(count)
    env.reset(task)
    assert [env.step(action).success for action in (UP, UP)] == [False, False]
    won = env.step(STOP)
    assert (won.reward, won.terminated, won.success) == (1.0, True, True)
    env.close()


def test_what_a_server_says_becomes_a_page_and_notes(frail: Callable[..., str]) -> None:
    env = begun(frail())
    asked = env.step(EnvAction(Command.ASK_USER, text="may I?"))
    assert asked.observation.text == f"{env._shown.text}\nuser as you like"
    paged = env.step(EnvAction(Command.GOTO, text="/"))
    first, huge, note = paged.observation.text.split("\n")
    assert (first, note) == ("text a  b", "cut 1 lines") and huge.startswith("text c c") and huge.endswith(" c…")
    assert tokens(huge) < MAX_TOKENS
    assert env.step(None).observation.text == f"{paged.observation.text}\nerror unreadable action"
    half = env.step(EnvAction(Command.SCROLL, text="DOWN"))
    assert (half.reward, half.success, half.terminated, half.truncated) == (0.5, True, False, True)
    with pytest.raises(EnvError, match="this one is over, call reset"):
        env.step(None)
    env.reset(Task(env.name, 0, Split.TRAIN, "Seed 0"))
    assert env.step(STOP).terminated  # whatever the server says
    env.close()


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("die", "the session's process ended with exit code -9"),
        ("raise", "KeyError: 'nothing'"),
        ("typo", "the reply to step is wrong in the unknown field 'truncate'; did you mean 'truncated'?"),
        ("nan", "the reply to step is wrong in reward: input should be a finite number, not nan"),
        ("number", "the reply to step is wrong in text: input should be a valid string, not 5"),
    ],
)
def test_a_session_that_fails_is_data_and_is_replaced(frail: Callable[..., str], which: str, message: str) -> None:
    env = begun(frail())
    was = process(env)
    result = mishap(env, which)
    assert (result.error_kind, result.error_message) == ("session_lost", message)
    assert (result.terminated, result.truncated, result.reward, result.success) == (False, True, 0.0, False)
    assert result.observation == env._shown and gone(was)
    env.reset(Task(env.name, 1, Split.TRAIN, "Seed 1"))
    assert process(env) != was and env.step(UP).error_kind is None
    env.close()


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("object", "Object of type object is not JSON serializable"),
        ("none", "input should be a valid dictionary, not NoneType"),
    ],
)
def test_a_class_that_breaks_the_contract_ends_the_run_as_in_process(
    frail: Callable[..., str], which: str, said: str
) -> None:
    env = begun(frail())
    was = process(env)
    with pytest.raises(ConfigError) as error:
        take(env, EnvAction(Command.TYPE, 1, which), env._shown)
    line = FRAIL.read_text().split("\n").index("    def step(self, command, element, text):") + 1
    assert str(error.value) == f"{FRAIL}:{line}: step must return what docs/protocol.md names; got {said}"
    assert gone(was)


def test_numpys_scalars_are_plain_values(tmp_path: Path) -> None:
    file = tmp_path / "scalars.py"
    file.write_text(
        "import numpy as np\n\n\nclass Numbers:\n"
        "    def reset(self, seed):\n        return {'instruction': 'go', 'text': 'a'}\n\n"
        "    def step(self, command, element, text):\n"
        "        return {'text': 'b', 'reward': np.float32(0.5), 'success': np.bool_(True), 'terminated': np.True_}\n"
    )

    def walk(name: str) -> StepResult:
        task, env = envs.task(name, "train", 0), envs.make(name)
        env.reset(task)
        return env.step(STOP)

    with EnvServer(f"{file}:Numbers", sys.executable, str(tmp_path / "at"), 1) as server:
        served = walk(f"numbers@{server.at}")
    assert served == walk(f"{file}:Numbers") and (served.reward, served.success) == (0.5, True)


def test_a_session_above_1024_descriptors_is_used_again() -> None:
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2048), most[1]))
    ours, theirs = socket.socketpair()
    try:
        connection = Connection.__new__(Connection)
        with ours, theirs, socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 1500)) as high:
            connection._socket = high
            assert connection.alive()
            theirs.close()
            assert not connection.alive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


@pytest.mark.parametrize("which", ["hang", "linger"])
def test_a_session_that_hangs_is_ended_with_all_that_it_started(frail: Callable[..., str], which: str) -> None:
    env = begun(frail(deadline_s=2.0))
    was = process(env)
    result = mishap(env, which)
    assert (result.error_kind, result.truncated) == ("session_lost", True)
    assert result.error_message == "step must be answered within 2 s; got nothing"
    assert gone(was)
    env.reset(Task(env.name, 0, Split.TRAIN, "Seed 0"))
    assert process(env) != was
    env.close()


def test_a_stopped_process_is_ended_too(frail: Callable[..., str]) -> None:
    env = begun(frail(deadline_s=2.0))
    was = process(env)
    os.kill(was.pid, signal.SIGSTOP)
    assert env.step(UP).error_kind == "session_lost" and gone(was)
    env.close()


def test_a_seed_that_does_not_start_is_a_task_that_breaks(frail: Callable[..., str]) -> None:
    name = frail()
    twelve, thirteen, fourteen = client.tasks(name, range(12, 15), Split.TRAIN)
    assert [t.instruction for t in (twelve, thirteen, fourteen)] == ["Seed 12", "", "Seed 14"]
    with pytest.raises(EnvError, match="must reset; got RuntimeError: seed 13 does not start"):
        RemoteEnv(name).reset(thirteen)
    env = RemoteEnv(name)
    env.reset(replace(twelve, instruction=""))  # it did not start when it was asked, and does now
    assert env.instruction == "Seed 12"
    with pytest.raises(EnvError, match="seed 13 does not start"):
        client.tasks(name, [13] * BROKEN_IN_A_ROW, Split.TRAIN)


def test_several_sessions_are_reset_at_once_to_learn_the_instructions(frail: Callable[..., str]) -> None:
    assert [t.instruction for t in client.tasks(frail(), range(19, 22), Split.TRAIN)] == [
        "Seed 19",
        "Seed 20",
        "Seed 21",
    ]


def test_a_reset_that_fails_is_tried_once_more(frail: Callable[..., str]) -> None:
    env = RemoteEnv(frail())
    env.reset(Task(env.name, 7, Split.TRAIN, "Seed 7"))
    assert env.lost == ["RuntimeError: seed 7 does not start"]
    with pytest.raises(EnvError) as error:
        env.reset(Task(env.name, 13, Split.TRAIN, "Seed 13"))
    assert str(error.value) == f"{env.name} must reset; got RuntimeError: seed 13 does not start"
    assert len(env.lost) == 3
    env.close()
    with pytest.raises(ConfigError, match=f"a scripted expert must be known for this, .*; got {env.name}"):
        client.expert(env.name)


def test_a_seed_that_gives_another_instruction_is_told(frail: Callable[..., str]) -> None:
    env = envs.make(frail())
    task = envs.task_from_seed(env.name, 5)
    with pytest.raises(EnvError, match="a seed must give one instruction, 'Reset 1'; got 'Reset 2'"):
        env.reset(task)
    env.close()


def test_sessions_are_used_again_and_no_more_than_may_be(
    frail: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_server, "_WAIT_S", 0.1)
    monkeypatch.setattr(client, "PATIENCE_S", 0.3)
    name = frail(sessions=2)
    first, second = begun(name), begun(name)
    both = {process(first), process(second)}
    assert len(both) == 2
    with pytest.raises(ConfigError, match=r"free within 0.3 s; got a server must have at most 2 sessions"):
        begun(name)
    first.close()
    third = begun(name)
    second.itself = second  # type: ignore[attr-defined]
    del second  # as a finished search lets go of its environment
    gc.collect()
    assert {process(third), process(begun(name))} == both
    third.close()


def test_a_session_of_a_server_that_has_none_free_is_waited_for(
    frail: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(env_server, "_WAIT_S", 0.1)
    name = frail(sessions=1)
    first = begun(name)
    freed = threading.Timer(1.0, lambda: (first.close(), envs.release()))
    freed.start()
    second = begun(name)
    assert process(second)
    assert capsys.readouterr().err.count("waits for a session of") == 1
    client._waited.clear()
    second.close()


def test_a_session_that_broke_is_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import os\n\nclass Odd:\n    name, max_steps = 'odd', 5\n\n"
        "    def reset(self, seed):\n        return {'instruction': 'go', 'text': 'link Go [1]'}\n\n"
        "    def step(self, command, element, text):\n        return 7\n\n"
        "    def expert(self):\n        os._exit(3)\n"
    )
    with EnvServer(f"{tmp_path / 'odd.py'}:Odd", sys.executable, str(tmp_path / "at"), 4) as server:
        name = f"odd@{server.at}"
        task = envs.task(name, "train", 0)
        for broken in (lambda env: env.step(UP), lambda env: envs.expert(name)(task, env)):
            env = envs.make(name)
            env.reset(task)
            with pytest.raises((ConfigError, EnvError)):
                broken(env)
            env.close()
            again = envs.make(name)
            assert again.reset(task).text == "link Go [1]"
            again.close()


def test_a_server_that_came_back_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAIL_FOLDER", str(tmp_path))
    monkeypatch.setattr(client, "AWAY_S", 0.0)
    at = str(tmp_path / "socket")
    for _ in range(2):
        with EnvServer(f"{FRAIL}:make", sys.executable, at, 2):
            held = [begun(f"frail@{at}") for _ in range(2)]
            was = process(held[0])
            for env in held:
                env.close()  # idle, and then gone with their server
        assert gone(was) and not Path(at).exists()
    assert RemoteEnv(f"frail@{at}").max_steps == 20  # known from before; a run goes on, and only resets fail
    with pytest.raises(EnvError) as error:
        begun(f"frail@{at}")
    assert str(error.value) == f"a server must listen at {at}: agentq env serve; got No such file or directory"


def test_a_reset_waits_for_a_server_that_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the tasks of these seconds would be kept as broken, or the run would end."""
    at = str(tmp_path / "socket")
    with EnvServer(f"{OWN}:make", sys.executable, at, 2):
        RemoteEnv(f"count@{at}").start(3)
    back = threading.Timer(1.0, lambda: servers.append(EnvServer(f"{OWN}:make", sys.executable, at, 2)))
    servers: list[EnvServer] = []
    back.start()
    RemoteEnv(f"count@{at}").start(3)
    assert capsys.readouterr().err.count("agentq: waits 60 s for a server that was there: a server must listen at") == 1
    envs.release()
    servers[0].close()
    monkeypatch.setattr(client, "AWAY_S", 2.0)
    for least, most in ((2.0, 60.0), (0.0, 2.0)):  # together, not each
        since = time.monotonic()
        with pytest.raises(EnvError, match="a server must listen at"):
            RemoteEnv(f"count@{at}").start(3)
        assert least <= time.monotonic() - since < most


@pytest.mark.parametrize("in_use", [False, True])
def test_a_server_that_came_back_with_another_version_is_asked_again(tmp_path: Path, in_use: bool) -> None:
    source, at = tmp_path / "grows.py", str(tmp_path / "socket")
    for version, max_steps in enumerate((5, 6)):
        source.write_text(GROWS.format(version=version, max_steps=max_steps))
        with EnvServer(f"{source}:make", sys.executable, at, 1):
            (task,) = client.tasks(f"grows@{at}", [0], Split.TRAIN)
            assert task.instruction == f"Version {version}"
            env = RemoteEnv(f"grows@{at}")
            assert env.max_steps == max_steps
            assert env.reset(task).text == "button Up [1]"
            if not in_use:
                env.close()
        if in_use:  # lost in the middle of an episode
            assert env.step(UP).error_kind == "session_lost"


def test_a_server_that_lost_one_of_its_sessions_is_not_asked_again(frail: Callable[..., str]) -> None:
    name = frail(sessions=2)
    assert envs.task_from_seed(name, 5).instruction == "Reset 1"
    held = [begun(name) for _ in range(2)]
    first = process(held[0])
    for env in held:
        env.close()
    os.kill(first.pid, signal.SIGKILL)
    assert gone(first)
    while len(client._kept(name)) == 2:
        pass
    assert name not in client._gone and len(client._idle[name]) == 1
    assert envs.task_from_seed(name, 5).instruction == "Reset 1"  # from before


def test_search_goes_back_by_replay(count: str) -> None:
    def act(history: object, rng: object) -> tuple[str, float]:
        texts = [format_action(action) for action in (UP, STOP, EnvAction(Command.CLICK, 5))]
        return texts[rng.integers(3)], -1.0  # type: ignore[attr-defined]

    tasks = envs.tasks(count, "train", 2, start=1)
    trees = []

    async def work(task: Task) -> object:
        settings = SearchSettings(num_iterations=30, num_proposals=3, stop_on_success=True)
        return await TreeSearch(envs.make(count), task, ScriptedPolicy(act), settings).run()

    run_all(tasks, work, in_flight=2, on_done=trees.append)
    for tree in trees:
        assert tree.info["succeeded"] and tree.info["replay_mismatches"] == 0
        assert set(tree.restored) == {None, "approximate"}
        assert tree.info["env_steps"] > len(tree) - 1 - tree.observation.count(None)  # the replayed ones count


def test_names_and_what_is_not_offered(count: str) -> None:
    at = count.partition("@")[2]
    task = envs.task(count, "train", 0)
    env = envs.make(count)
    for error, said, call in (
        (ConfigError, f"the server at {at} serves 'count'; got 'county'", lambda: envs.make(f"county@{at}")),
        (ConfigError, "named NAME@HOST:PORT or NAME@/PATH; got 'count@'", lambda: envs.make("count@")),
        (ConfigError, "HOST:PORT or the path of a Unix socket; got 'here'", lambda: envs.make("count@here")),
        (ConfigError, f"task.env must be '{count}'; got 'shop'", lambda: env.reset(envs.task("shop", "train", 0))),
    ):
        with pytest.raises(error) as raised:
            call()
        assert said in str(raised.value)
    assert not can_restore(env) and is_blocking(env) and can_restore(envs.make("shop"))
    assert envs.max_sessions(count) == 4 and envs.max_sessions("shop") is None
    assert task.env == count
    env.close()


# servers with fewer sessions than are wanted


@pytest.mark.parametrize("sessions", [1, 2])
def test_the_check_needs_no_more_sessions_than_there_are(
    sessions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 1.0)
    with EnvServer(f"{OWN}:make", sys.executable, str(tmp_path / "at"), sessions) as server:
        found = list(check(f"count@{server.at}", 2))
    assert not [str(each) for each in found if each.holds is False]
    alone = [each.promise for each in found if each.said.startswith("it takes 2 sessions at once; the server has 1")]
    assert len(alone) == 2 * (sessions == 1)


def _stop(history: object, k: int) -> list[str]:
    return [format_action(STOP)]


def test_searches_in_one_event_loop_take_turns_in_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def searches(name: str) -> list[SearchResult]:
        return await asyncio.gather(*(search_async(name, task, _stop, num_iterations=2) for task in range(3)))

    monkeypatch.setattr(client, "PATIENCE_S", 20.0)
    with EnvServer(f"{OWN}:make", sys.executable, str(tmp_path / "at"), 1) as server:
        found = asyncio.run(searches(name := f"count@{server.at}"))
        assert [each.tree.task.seed for each in found] == [0, 1, 2]
        with pytest.raises(ConfigError, match=f"leaves_in_flight must be at most 1 with {name}; got 2"):
            search(name, 0, _stop, leaves_in_flight=2)


def test_a_run_that_has_collected_keeps_no_session(tmp_path: Path) -> None:
    with EnvServer(f"{OWN}:make", sys.executable, str(tmp_path / "at"), 2) as server:
        name = f"count@{server.at}"
        with RunStore.open(tmp_path / "run", {}) as store:
            p = Pipeline(store, Settings(run=Run(env=name)), "none", Quiet())
            job = partial(_rollouts, name=name, policy=FunctionPolicy(_stop))
            p.collect("eval", attempts(p.tasks(Split.TEST, 4)), job)
            assert store.count("eval", TRAJECTORY) == 4 and not any(client._idle.values())
            p.close()


def _rollouts(p: Pipeline, store: RunStore, *, name: str, policy: Policy) -> Any:
    return rollouts(lambda: envs.make(name), policy, RolloutSettings(0.0, 0))
