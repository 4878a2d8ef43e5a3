"""TextWorld in a Python of its own: games from seeds, its own way to the end as the expert, copies as forks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq import envs
from agentq.envs.check import check
from agentq.envs.protocol import SiteEnv
from agentq.envs.remote.env_server import EnvServer
from agentq.envs.remote.textworld_games import readable
from agentq.envs.web_env import Expert
from agentq.errors import ConfigError
from agentq.types import Command, EnvAction, Language, StepResult, Task, Verb
from tests.remote_lab import ROOT

PYTHON = ROOT / "build" / "textworld" / "bin" / "python"
STOP = EnvAction(Command.STOP)


def played(expert: Expert, env: SiteEnv, task: Task, said: list[str | None] | None = None) -> StepResult:
    """The last step of an episode that the expert goes on with to its end. Its lines are added to `said`."""
    while True:
        action = expert(task, env).env_action
        if said is not None:
            said.append(action.text)
        result = env.step(action)
        if result.terminated or result.truncated:
            return result


@pytest.fixture(scope="module")
def game() -> Iterator[str]:
    with EnvServer("textworld/2.3.2", str(PYTHON), "127.0.0.1:0", 4) as server:
        yield f"textworld/2.3.2@{server.at}"


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="TextWorld needs a Python of its own: make textworld")
def test_the_expert_wins_games_and_stopping_does_not(game: str) -> None:
    expert, env = envs.expert(game), envs.make(game)
    instructions = set()
    for index in range(3):
        task = envs.task(game, "test", index)
        assert (task.language, task.keeps_pages) == (Language.TEXT, True)
        instructions.add(task.instruction)
        assert "You can: " in env.reset(task).text
        result = played(expert, env, task)
        assert (result.reward, result.success) == (1, True)
        env.reset(task)
        assert env.step(EnvAction(Verb.SAY, None, "sing a song")).observation.text.startswith("That's not a verb")
        assert not env.step(STOP).success
    assert len(instructions) == 3
    env.close()


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="TextWorld needs a Python of its own: make textworld")
def test_games_keep_what_search_relies_on(game: str) -> None:
    findings = list(check(game, 1))
    assert findings and all(finding.holds is not False for finding in findings), findings


FORK = """
import sys, types, os
for name in ("agentq", "agentq.envs", "agentq.envs.browser", "agentq.envs.remote"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(sys.argv[1], *name.split("."))]
from agentq.envs.remote.textworld_games import TextWorldEnv
env = TextWorldEnv("textworld/2.3.2")
env.reset(2_000_000_000)
twin = env.fork()
while not (done := env.step(**{"element": None, **env.expert()}))["terminated"]:
    pass
assert done["success"] and twin.expert()["command"] == "SAY"
while not (done := twin.step(**{"element": None, **twin.expert()}))["terminated"]:
    pass
assert done["success"]
"""


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="TextWorld needs a Python of its own: make textworld")
def test_a_copy_goes_its_own_way() -> None:
    subprocess.run([PYTHON, "-c", FORK, ROOT / "python"], check=True)


def test_a_served_class_offers_its_expert(tmp_path: Path) -> None:
    given = (ROOT / "examples" / "own_env.py").read_text()
    for file, source in {"given.py": given, "without.py": given + "\ndel Count.expert\n"}.items():
        (tmp_path / file).write_text(source)
        with EnvServer(f"{tmp_path / file}:make", sys.executable, "127.0.0.1:0", 2) as server:
            name = f"count@{server.at}"
            if file == "without.py":
                with pytest.raises(ConfigError, match="a scripted expert must be known"):
                    envs.expert(name)
                continue
            env, task = envs.make(name), envs.task(name, "train", 5)
            env.reset(task)
            assert played(envs.expert(name), env, task).success
            env.close()


@pytest.fixture(scope="module")
def household(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("alfworld")
    subprocess.run([PYTHON, ROOT / "benchmarks" / "worlds_alfworld.py", data, "3"], check=True)
    (data / "json_2.1.1" / "train" / "0002" / "traj_data.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALFWORLD_DATA", str(data))
        with EnvServer("alfworld/train", str(PYTHON), "127.0.0.1:0", 4) as server:
            yield f"alfworld/train@{server.at}"


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="ALFWorld needs TextWorld's Python: make textworld")
def test_experts_do_household_tasks_and_stopping_does_not(household: str) -> None:
    expert, env = envs.expert(household), envs.make(household)
    instructions = set()
    for index in range(3):
        task = envs.task(household, "test", index)
        instructions.add(task.instruction)
        assert "countertop 1" in env.reset(task).text and "UNKNOWN" not in task.instruction
        assert env.step(EnvAction(Verb.SAY, None, "sing a song")).observation.text.startswith("Nothing happens.")
        result = played(expert, env, task)
        assert (result.reward, result.success) == (1, True)
        env.reset(task)
        assert not env.step(STOP).success
    assert len(instructions) == 3
    assert envs.task(household, "train", 3).instruction == envs.task(household, "train", 0).instruction
    env.close()


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="ALFWorld needs TextWorld's Python: make textworld")
def test_the_scripted_expert_finds_things_and_the_planner_knows_where_they_are(household: str) -> None:
    expert, env = envs.expert(household), envs.make(household)
    scripted, planned = (envs.task(household, "test", index) for index in (0, 2))
    env.reset(scripted)
    said: list[str | None] = []
    assert played(expert, env, scripted, said).success
    assert said[0] == "look"
    env.reset(scripted)  # what it had seen before counts no more
    again: list[str | None] = []
    assert played(expert, env, scripted, again).success and again == said
    env.reset(planned)  # a game without traj_data.json
    known: list[str | None] = []
    assert played(expert, env, planned, known).success
    places = [line for line in known if line and line.startswith("go to")]
    assert known[0] != "look" and len(places) <= 3  # to the thing, to what changes it, to where it is put
    env.close()


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="ALFWorld needs TextWorld's Python: make textworld")
def test_the_scripted_expert_says_which_things_it_needs(household: str) -> None:
    expert, env, task = envs.expert(household), envs.make(household), envs.task(household, "test", 0)
    env.reset(task)
    wanted, verdicts, taken = task.instruction.rstrip("."), {}, set()
    while not env.step((advice := expert(task, env)).env_action).terminated:
        told, _, seen = advice.thought.partition(" : ")
        assert told == wanted
        verdicts |= dict(each.rsplit(" ", 1) for each in seen.split(" , ") if each)
        line = advice.env_action.text or ""
        taken |= {line.removeprefix("take ").partition(" from ")[0]} if line.startswith("take ") else set()
    env.close()
    assert taken and {thing for thing, verdict in verdicts.items() if verdict == "yes"} >= taken
    for thing, verdict in verdicts.items():
        assert verdict == ("yes" if thing.split()[0] in wanted.split() else "no"), verdicts


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="ALFWorld needs TextWorld's Python: make textworld")
def test_the_scripted_expert_puts_two_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([PYTHON, ROOT / "benchmarks" / "worlds_alfworld.py", tmp_path, "1", "two"], check=True)
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with EnvServer("alfworld/train", str(PYTHON), "127.0.0.1:0", 2) as server:
        name = f"alfworld/train@{server.at}"
        env, task = envs.make(name), envs.task(name, "train", 0)
        env.reset(task)
        said: list[str | None] = []
        assert task.instruction.startswith("put two ") and played(envs.expert(name), env, task, said).success
        assert len([line for line in said if line and line.startswith("move ")]) == 2
        env.close()


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="ALFWorld needs TextWorld's Python: make textworld")
def test_household_games_keep_what_search_relies_on(household: str) -> None:
    findings = list(check(household, 1))
    assert findings and all(finding.holds is not False for finding in findings), findings


PLANNERS = """
import os, sys, types
for name in ("agentq", "agentq.envs", "agentq.envs.browser", "agentq.envs.remote"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(sys.argv[1], *name.split("."))]
from agentq.envs.remote.textworld_games import AlfWorldEnv
env, loaded = AlfWorldEnv("alfworld/train"), []
for seed in (0, 1, 2, 0, 1):
    env.reset(seed)
    with open("/proc/self/maps") as maps:
        loaded.append(len({line.split()[4] for line in maps if "libdownward" in line}))  # by inode
print(loaded)
"""


@pytest.mark.rest
@pytest.mark.skipif(not PYTHON.exists(), reason="ALFWorld needs TextWorld's Python: make textworld")
def test_a_games_planner_goes_with_it(household: str) -> None:
    run = subprocess.run([PYTHON, "-c", PLANNERS, ROOT / "python"], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[-2] == "[1, 2, 2, 2, 2]", run.stdout  # not one per game


def test_things_have_alfworlds_names() -> None:
    ids = ["apple_bar__minus_01", "apple_bar__plus_02", "sink_bar_1_bar_sinkbasin", "agent1", "loc_start"]
    names = {
        "apple_bar__minus_01": "apple 2",
        "apple_bar__plus_02": "apple 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "agent1": "agent1",
        "loc_start": "loc_start",
    }
    assert readable(ids) == names
