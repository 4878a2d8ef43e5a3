"""A class of one's own as an environment: in process, registered, from a package, served; and the check of it."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentq import envs, plugins, search
from agentq.agent.actions import format_action
from agentq.agent.prompts import policy_messages
from agentq.cli import main
from agentq.envs import check as check_module
from agentq.envs import makers, own
from agentq.envs.check import UNTRIED, Finding, check
from agentq.envs.contract import from_file
from agentq.envs.promises import check_env
from agentq.envs.protocol import can_fork, can_restore
from agentq.envs.remote.connection import Connection
from agentq.envs.remote.env_server import EnvServer
from agentq.envs.web_env import Advice
from agentq.errors import ConfigError, EnvError
from agentq.policies.engine_names import make_engine, read_name
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.choices import by_majority
from agentq.searching.collect import attempts, choices
from agentq.searching.demonstrate import demonstrate
from agentq.searching.faults import Resets, take
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import BROWSER_COMMANDS, Command, EnvAction, History, Observation, Proposal, Split, Task, Trajectory
from tests.remote_lab import OWN

Count = type(from_file(f"{OWN}:make")())
UP, STOP, ODD = EnvAction(Command.CLICK, 1), EnvAction(Command.STOP), EnvAction(Command.CLICK, 5)


class Plain(Count):  # type: ignore[misc, valid-type]
    """Without ways back."""

    snapshot = restore = expert = None


class Forked(Plain):
    """A way back by copies alone."""

    def fork(self) -> Forked:
        twin = Forked()
        twin.goal, twin.count = self.goal, self.count
        return twin


@pytest.fixture(autouse=True)
def forgets_names() -> Iterator[None]:
    yield
    makers._made.clear()
    makers._here.clear()


def registered(make: Callable[[], Any], name: str = "mine") -> str:
    envs.register(name, make)
    return name


def searched(make: Callable[[], Any]) -> TreeRecord:
    def act(history: object, rng: np.random.Generator) -> tuple[str, float]:
        return format_action((UP, STOP, ODD)[rng.integers(3)]), -1.0

    name = registered(make)
    settings = SearchSettings(num_iterations=20, num_proposals=3)
    search = TreeSearch(envs.make(name), envs.task(name, "train", 1), ScriptedPolicy(act), settings)
    return asyncio.run(search.run())


def test_one_class_is_the_same_environment_in_process_registered_and_served(tmp_path: Path) -> None:
    def walk(name: str) -> list[object]:
        task, env = envs.task(name, Split.TEST, 4), envs.make(name)
        seen: list[object] = [task.instruction, env.max_steps, env.reset(task)]
        seen += [env.step(action) for action in (UP, ODD, None, UP, UP, STOP)]
        with pytest.raises(EnvError, match="this one is over, call reset"):
            env.step(UP)
        env.close()
        return seen

    registered(Count)
    with EnvServer(f"{OWN}:make", sys.executable, str(tmp_path / "at"), 2) as server:
        served = walk(f"count@{server.at}")
    assert walk(f"{OWN}:make") == walk("mine") == served
    assert served[0] == "Count to 2 and stop" and "error no element [5]" in served[4].observation.text  # type: ignore[attr-defined]


@pytest.mark.parametrize(("make", "way"), [(Count, "exact"), (Forked, "exact"), (Plain, "approximate")])
def test_search_goes_back_by_the_methods_that_a_class_has(make: Callable[[], Any], way: str) -> None:
    tree, plain = searched(make), searched(Plain)
    assert set(tree.restored) == {None, way} and tree.info["succeeded"]
    assert tree.parent.tolist() == plain.parent.tolist() and tree.value_sum.tolist() == plain.value_sum.tolist()
    assert (tree.info["env_steps"] < plain.info["env_steps"]) == (way == "exact")
    env = envs.make(registered(make))
    assert can_restore(env) == can_fork(env) == (way == "exact")
    check_env(lambda: envs.make("mine"), envs.task("mine", "train", 0), [UP, ODD, UP])


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"snapshot": lambda self: self.__dict__, "restore": lambda self, token: vars(self).update(token)}, "snapshot"),
        ({"snapshot": lambda self: self, "restore": lambda self, token: vars(self).update(vars(token))}, "snapshot"),
        ({"snapshot": lambda self: dict(vars(self)), "restore": lambda self, token: bound(self, token)}, "restore"),
        ({"fork": lambda self: self}, "fork"),
    ],
)
def test_a_token_that_later_steps_would_change_is_refused(methods: dict[str, Any], said: str) -> None:
    must = "set a copy of the token" if said == "restore" else "return a copy"
    with pytest.raises(
        ConfigError, match=rf"test_contract.py:\d+: {said} must {must}, as copy.deepcopy makes; got the "
    ):
        searched(type("Live", (Plain,), methods))


def bound(env: Any, token: dict[str, Any]) -> None:
    env.__dict__ = token


def test_an_expert_of_ones_own_demonstrates() -> None:
    def write(history: object, text: str) -> Proposal:
        return ScriptedPolicy(lambda h, r: (text, -1.0))._one(history, np.random.default_rng(0), 1.0)  # type: ignore[arg-type]

    name = registered(Count)
    shown = asyncio.run(demonstrate(envs.make(name), envs.expert(name), envs.task(name, "train", 2), write))
    assert shown.success and len(shown.steps) == 5 and "CLICK [1]" in shown.steps[0].proposal.action.text
    with pytest.raises(ConfigError, match=r"known for this; got mine, which has no method expert\(\)"):
        envs.expert(registered(Plain))


def test_demonstrations_of_worlds_that_wait_run_at_once() -> None:
    both = threading.Barrier(2)

    class Waits(Count):
        blocking = True

        def step(self, *action: Any) -> dict[str, Any]:
            both.wait(10)  # for the other episode's step
            return super().step(*action)

    def write(history: History, text: str) -> Proposal:
        return ScriptedPolicy(lambda h, r: (text, -1.0))._one(history, np.random.default_rng(0), 1.0)

    async def two() -> list[Trajectory]:
        task = envs.task(name, "train", 2)
        return await asyncio.gather(*(demonstrate(envs.make(name), envs.expert(name), task, write) for _ in range(2)))

    name = registered(Waits)
    assert [shown.success for shown in asyncio.run(two())] == [True, True]


def test_an_expert_that_raises_is_named_with_its_task_and_line() -> None:
    class Lost:  # as a plug-in may bring one; what a class of one's own raises is told by its method
        plan = ""

        def __call__(self, task: object, env: object) -> Advice:
            return next(iter(()))

    name = registered(Count)
    task = envs.task(name, "train", 2)
    said = rf"the expert of mine .* on step 1 of task {task.seed} it raised StopIteration \(test_contract.py:\d+\)"
    with pytest.raises(EnvError, match=said):
        asyncio.run(demonstrate(envs.make(name), Lost(), task, lambda history, text: pytest.fail("nothing to write")))


GOOD = {
    "reset": "def reset(self, seed): return {'instruction': 'Do it', 'text': 'button Up [1]'}",
    "step": "def step(self, command, element, text): return {'text': 'button Up [1]', 'terminated': command == 'STOP'}",
}


def written(folder: Path, **methods: str) -> str:
    """A file with a class of these methods in place of the good ones; its name as an environment."""
    lines = [line for line in (GOOD | methods).values() if line]
    file = folder / f"own{len(list(folder.iterdir()))}.py"
    file.write_text("class Own:\n    " + "\n    ".join(lines) + "\n\n\ndef make():\n    return Own()\n")
    return f"{file}:make"


@pytest.mark.parametrize(
    ("methods", "error", "said"),
    [
        ({"step": ""}, ConfigError, "must make an environment with the method step(command, element, text); got Own"),
        ({"reset": "def reset(self): ..."}, ConfigError, "with the method reset(seed); Own takes others"),
        ({"more": "def snapshot(self): ..."}, ConfigError, "with both snapshot and restore; got snapshot alone"),
        (
            {"step": GOOD["step"].replace("'terminated'", "'done'")},
            ConfigError,
            "got the unknown field 'done'; did you mean 'terminated'?",
        ),
        (
            {"step": GOOD["step"].replace("'terminated'", "'zzz'")},
            ConfigError,
            "got the unknown field 'zzz'; its fields are text, url, reward, terminated, truncated, success",
        ),
        (
            {"step": "def step(self, c, e, t): return 'page', 0.0, True, {}"},
            ConfigError,
            'got tuple in place of {"text": .., "reward": .., "terminated": .., "success": ..}',
        ),
        ({"step": "async " + GOOD["step"]}, ConfigError, "whose step is a plain function; got a coroutine: write def"),
        (
            {
                "step": GOOD["step"].replace("def step", "async def later")
                + "\n    def step(self, *a): return self.later(*a)"
            },
            ConfigError,
            "step must return what docs/protocol.md names; got a coroutine: write def, not async def",
        ),
        (
            {"step": GOOD["step"].replace("'terminated'", "'success': 2, 'terminated'")},
            ConfigError,
            "got success: must be true or false, or 0 or 1, not 2",
        ),
        (
            {"more": "language = 'tool'"},
            ConfigError,
            "got tools: must name what may be called if the language is 'tool'",
        ),
        ({"more": "max_steps = 0"}, ConfigError, "max_steps: input should be greater than or equal to 1, not 0"),
        (
            {"step": GOOD["step"].replace("'terminated'", "'reward': float('nan'), 'terminated'")},
            ConfigError,
            "got reward: input should be a finite number, not nan",
        ),
        (
            {"step": GOOD["step"].replace("'button Up [1]'", "['a', 'b']")},
            ConfigError,
            "got text: input should be a valid string, not ['a', 'b']",
        ),
        (
            {"reset": "def reset(self, *, seed=None): ...", "more": "action_space = None"},
            ConfigError,
            "Own takes others: agentq.envs.gym_world.GymWorld(env) wraps one of Gymnasium's",
        ),
        (
            {"reset": "def reset(self, seed): return 'page'"},
            ConfigError,
            'reset must return what docs/protocol.md names; got str in place of {"instruction": .., "text": ..}',
        ),
        ({"step": "def step(self, c, e, t): return {'txt': ''}"}, ConfigError, "got text: field required"),
        ({"step": "def step(self, c, e, t): return {}['x']"}, ConfigError, "FILE:3: KeyError: 'x' (AGENTQ_TRACEBACK=1"),
        ({"reset": "def reset(self, seed): 1 / 0"}, EnvError, "FILE:2: ZeroDivisionError: division by zero (AG"),
        ({"more": "def __init__(self): 1 / 0"}, ConfigError, "FILE:4: ZeroDivisionError"),
        ({"more": "def oops("}, ConfigError, "SyntaxError"),
        ({"more": "pass\n1 / 0"}, ConfigError, "FILE:5: ZeroDivisionError"),
    ],
)
def test_a_wrong_class_is_told_in_one_line(methods: dict[str, str], error: type, said: str, tmp_path: Path) -> None:
    name = written(tmp_path, **methods)
    with pytest.raises(error) as raised:
        env = envs.make(name)
        env.reset(envs.tasks(name, "train", 1)[0] if "1 / 0" not in methods.get("reset", "") else _task(name))
        env.step(UP)
    file = name.rpartition(":")[0]
    assert said.replace("FILE", file) in str(raised.value) and "\n" not in str(raised.value)


def test_a_file_alone_is_answered_with_what_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path).rpartition(":")[0]
    said = f"an environment must be FILE.py:FUNCTION; got {file}: write {file}:Own or {file}:make"
    assert main(["env", "check", file]) == 2
    assert capsys.readouterr().err == f"agentq: {said}\n"
    Path(file).write_text("class Own(\n")
    for unread in (file, "nothere.py"):
        with pytest.raises(ConfigError) as raised:
            envs.make(unread)
        assert str(raised.value) == f"an environment must be FILE.py:FUNCTION; got {unread}"
    assert envs.make(registered(Plain, "mine.py")).name == "mine.py"


def _task(name: str) -> Any:
    from agentq.types import Task

    return Task(name, 0, Split.TRAIN, "Do it")


def test_a_session_that_a_class_says_is_lost_is_data(tmp_path: Path) -> None:
    raises = "def step(self, c, e, t):\n        from agentq import EnvError\n        raise EnvError('no network')"
    name = written(tmp_path, step=raises)
    env = envs.make(name)
    result = take(env, UP, env.reset(envs.task(name, "train", 0)))
    assert (result.error_kind, result.error_message, result.broken) == ("session_lost", "no network", True)


class Starts:
    """An environment of which a seed starts only from its fourth reset on; it says success for the right STOP."""

    def __init__(self, resets: dict[int, int], goal: str = "Stop") -> None:
        self.resets, self.goal = resets, goal

    def reset(self, seed: int) -> dict[str, str]:
        self.resets[seed] = self.resets.get(seed, 0) + 1
        if seed % 5 == 0 and self.resets[seed] < 4:
            raise ConnectionError("temporarily unavailable")
        return {"instruction": f"{self.goal} {seed}" if self.goal else "", "text": "button Up [1]"}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, object]:
        return {"text": "done", "reward": 1.0, "success": True, "terminated": True}

    def expert(self) -> dict[str, str]:
        return {"command": "STOP"}


def test_an_instruction_is_asked_for_twice() -> None:
    resets = {5: 2}
    (task,) = own.tasks(lambda: Starts(resets), [5], Split.TRAIN)
    assert task.instruction == "Stop 5" and resets == {5: 4}


def test_a_task_that_did_not_start_when_it_was_asked_gets_its_instruction_at_its_reset() -> None:
    seen: list[str] = []

    def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
        seen.append(history.instruction)
        return format_action(STOP), -1.0

    policy = ScriptedPolicy(act)

    def begun() -> tuple[Any, Task]:
        resets: dict[int, int] = {}
        name = registered(lambda: Starts(resets))
        (task,) = envs.tasks(name, "train", 1)
        assert task.instruction == "" and resets == {0: 2}
        return envs.make(name), task

    def write(history: History, text: str) -> Proposal:
        return policy._one(history, np.random.default_rng(0), 1.0)

    env, task = begun()
    found = [asyncio.run(TreeSearch(env, task, policy, SearchSettings(num_iterations=2)).run()).task]
    env, task = begun()
    episode = asyncio.run(rollout(env, task, policy, RolloutSettings()))
    assert episode is not None and episode.success
    env, task = begun()
    found += [episode.task, asyncio.run(demonstrate(env, envs.expert(task.env), task, write)).task]
    env, task = begun()
    work = choices(lambda: env, policy, SearchSettings(num_iterations=2), by_majority)
    (tree,) = [asyncio.run(work(item, Resets())) for item in attempts([task])]  # type: ignore[arg-type]
    assert isinstance(tree, TreeRecord)
    assert [each.instruction for each in (*found, tree.task)] == ["Stop 0"] * 4 and set(seen) == {"Stop 0"}


def test_an_instruction_that_is_empty_is_told_as_that() -> None:
    resets: dict[int, int] = {}
    name = registered(lambda: Starts(resets, ""))
    (_, task) = envs.tasks(name, "train", 2)
    assert task.instruction == "" and resets[1] == 1
    with pytest.raises(EnvError, match="an instruction must not be empty; got '' at the reset with seed 1"):
        envs.make(name).reset(task)


def test_a_wrong_class_is_not_served(tmp_path: Path) -> None:
    at = str(tmp_path / "at")
    with (
        EnvServer(written(tmp_path, step=""), sys.executable, at, 1),
        pytest.raises(EnvError, match=r"with the method step\(command, element, text\); got Own, which has none"),
    ):
        Connection(at)


def test_names_are_checked_and_listed() -> None:
    for name in ("", "a b", "a@b", "/a", "x.py:make"):
        with pytest.raises(ConfigError, match="name must have only letters, digits"):
            envs.register(name, Count)
    with pytest.raises(ConfigError, match="make must be a function that returns an environment; got int"):
        envs.register("mine", 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="an environment's name must be free; got 'shop'"):
        envs.register("shop", Count)
    registered(Count, "warehouse")
    with pytest.raises(ConfigError, match="no environment 'warehoose'; did you mean 'warehouse'"):
        envs.make("warehoose")
    with pytest.raises(ConfigError, match=r"known: .*, warehouse, webarena:FILE, FILE\.py:FUNCTION, NAME@"):
        envs.make("zzz")


PACKAGE = """
from dataclasses import replace
from agentq.recipes.rft import RECIPE as RFT
RECIPE = replace(RFT, name="careful")
engine = lambda rest: ("engine", rest)
class Shelf:
    reset = lambda self, seed: {"instruction": f"Shelf {seed}", "text": "button Up [1]"}
    step = lambda self, command, element, text: {"text": "button Up [1]", "terminated": command == "STOP"}
"""
POINTS = """
[agentq.environments]
shelf = warehouse_env:Shelf
broken = warehouse_env:nothing
[agentq.recipes]
careful = warehouse_env:RECIPE
[agentq.engines]
mine = warehouse_env:engine
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that adds an environment, a recipe and an engine."""
    about = tmp_path / "warehouse_env-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: warehouse-env\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    (tmp_path / "warehouse_env.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("warehouse_env", None)


@pytest.mark.usefixtures("package")
def test_packages_add_environments_recipes_and_engines(capsys: pytest.CaptureFixture[str]) -> None:
    env, task = envs.make("shelf"), envs.task("shelf", "test", 1)
    assert env.reset(task).text == "button Up [1]" and task.instruction == "Shelf 2000000001"
    with pytest.raises(
        ConfigError, match="warehouse_env:nothing of the package warehouse-env must load as 'broken'; got"
    ):
        envs.make("broken")
    with pytest.raises(ConfigError, match="no environment 'shelv'; did you mean 'shelf'"):
        envs.make("shelv")
    assert read_name("mine:large") == "mine:large" and make_engine("mine:large") == ("engine", "large")
    assert main(["settings", "careful", "--json"]) == 0
    assert "run.num_rounds" in json.loads(capsys.readouterr().out)
    assert main(["settings", "carefull"]) == 2
    assert "no command or recipe 'carefull'; did you mean 'careful'?" in capsys.readouterr().err


def test_metadata_is_not_read_for_names_that_agentq_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(kind: str) -> list[str]:
        raise AssertionError("read")

    monkeypatch.setattr(plugins, "names", read)
    assert envs.make("shop").name == "shop" and envs.make(f"{OWN}:make") and read_name("vllm:x") == "vllm:x"
    assert main(["settings", "loop"]) == 0


def test_a_class_may_take_all_commands_of_a_browser_and_no_others(tmp_path: Path) -> None:
    import_ = "from agentq.types import BROWSER_COMMANDS"
    name = written(tmp_path, more=f"{import_}\n    commands = BROWSER_COMMANDS")
    (task,) = envs.tasks(name, Split.TRAIN, 1)
    assert task.commands == BROWSER_COMMANDS
    said = str(policy_messages(History(task.instruction, Observation("button Up [1]"), commands=task.commands))[0])
    assert all(command in said for command in BROWSER_COMMANDS)
    with pytest.raises(ConfigError, match=r"commands\.0: input should be 'HOVER', .*'TAB' or 'DIALOG'"):
        envs.tasks(written(tmp_path, more="commands = ('CLICK_AT',)"), Split.TRAIN, 1)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"more": "resets = 0"}, ""),
        (
            {"reset": "def reset(self, seed): return {'instruction': 'Do', 'text': f'heading {id(self)}'}"},
            "reset is not",
        ),
        ({"step": GOOD["step"].replace("[1]'", "[1]\\n' + 'text ' + str(id(self))")}, "is not deterministic: 'text "),
        (
            {"step": GOOD["step"].replace("'terminated'", "'reward': id(self) % 999983 / 999983, 'terminated'")},
            ": reward 0.",
        ),
        ({"more": "snapshot = lambda self: 0\n    restore = lambda self, token: 1 / 0"}, "ZeroDivisionError"),
        (
            {
                "reset": "n = 0\n    "
                + GOOD["reset"].replace("def reset(self, seed): ", "def reset(self, seed): self.n = 0; "),
                "step": "def step(self, command, element, text): self.n += 1; return {'text': 'button Up [1]', "
                "'reward': self.n / 99, 'terminated': command == 'STOP'}",
                "more": "snapshot = lambda self: 0\n    restore = lambda self, token: None",
            },
            "a step after restore 5 differs: reward 0.06",
        ),
        (
            {"step": GOOD["step"].replace("'terminated'", "'reward': 3, 'terminated'")},
            "a return must be in [0, 1]; got",
        ),
        ({"step": GOOD["step"].replace("'terminated'", "'success': True, 'terminated'")}, "and the episode goes on"),
        (
            {"step": GOOD["step"].replace("'terminated'", "'success': element == 99999, 'terminated'")},
            "returns an error_kind and is no success. Task 0: CLICK [99999] returned a success.",
        ),
        ({"reset": GOOD["reset"].replace("[1]'", "[1]' + '\\ntext a b c' * 3000")}, "a page must fit 4000 tokens"),
        ({"reset": GOOD["reset"].replace("'Do it'", "str(hash('Do it'))")}, "Task 0: instruction: '"),
        ({"reset": "def reset(self, seed): 1 / 0"}, "Every task begins. "),
    ],
)
def test_the_check_names_what_is_broken(
    methods: dict[str, str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if said and not said.startswith("Task 0"):  # what this process finds needs no other one
        monkeypatch.setattr(check_module, "_hold_elsewhere", lambda *_: Finding("", None))
    takes = GOOD["step"].replace(
        "return {", "return {'error_kind': None if element in (1, None) else 'no_such_element', "
    )
    name = written(tmp_path, **({"step": takes} | methods))
    assert main(["env", "check", name, "--tasks", "2"]) == int(bool(said))
    told = capsys.readouterr().out
    assert said in told and ("BROKEN" in told) == bool(said)


@pytest.mark.parametrize(
    ("told", "success"), [("1", True), ("1.0", True), ("0", False), ("__import__('numpy').bool_(1)", True)]
)
def test_success_may_be_whatever_checkers_return(told: str, success: bool, tmp_path: Path) -> None:
    env = envs.make(written(tmp_path, step=GOOD["step"].replace("'terminated'", f"'success': {told}, 'terminated'")))
    env.reset(envs.task(env.name, "train", 0))
    assert env.step(STOP).success is success


@pytest.mark.parametrize("told", ["True", "1", "1.0", "__import__('numpy').bool_(1)"])
def test_a_reward_may_be_a_flag(told: str, tmp_path: Path) -> None:
    env = envs.make(written(tmp_path, step=GOOD["step"].replace("'terminated'", f"'reward': {told}, 'terminated'")))
    env.reset(envs.task(env.name, "train", 0))
    assert type(reward := env.step(STOP).reward) is float and reward == 1


def test_numbers_may_be_numpys_and_a_message_none(tmp_path: Path) -> None:
    step = GOOD["step"].replace("'terminated'", "'error_kind': None, 'error_message': None, 'terminated'")
    env = envs.make(written(tmp_path, step=step, more="max_steps = __import__('numpy').int64(4)"))
    assert env.max_steps == 4
    env.reset(envs.task(env.name, "train", 0))
    assert env.step(UP).error_message == ""


def test_the_check_advises_where_search_can_live_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_list = GOOD["reset"].replace("'Do it'", "f'Do {seed % 5}'")
    place = 'see "A benchmark with a list of tasks" in docs/protocol.md.\n'
    assert main(["env", "check", written(tmp_path, reset=one_list), "--tasks", "2"]) == 0
    told = capsys.readouterr().out
    assert "BROKEN" not in told and told.count("warn ") == 2
    assert "CLICK [99999] returned none, so the agent is not told and reports do not count it: return {'text'" in told
    assert "absent  Every state can be restored" in told and ".:" not in told and ".." not in told
    assert "Only 5 of 8 train and 5 of 8 validation and 5 of 8 test tasks are distinct by instruction and first" in told
    assert (
        "8 of 8 test tasks are also train or validation tasks. Unless they differ in something hidden, rates" in told
        and place in told
    )
    assert main(["env", "check", written(tmp_path, reset=one_list.replace("% 5", "% 1_000_000_000"))]) == 0
    assert " splits. 20 of 20 validation tasks are also train tasks; 20 of 20 test" in capsys.readouterr().out
    pages = one_list.replace("% 5", "% 1").replace("[1]'", "[1] {seed}'").replace("'text': '", "'text': f'")
    assert main(["env", "check", written(tmp_path, reset=pages), "--tasks", "1"]) == 0
    assert "holds   Tasks differ, within a split and between splits.\n" in capsys.readouterr().out


def test_the_check_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "shop", "--tasks=1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["env"], found["tasks"], found["holds"], len(found["checks"])) == ("shop", 1, True, 11)
    assert main(["env", "check", "shop", "--tasks=0"]) == 2
    assert "--tasks must be at least 1; got 0" in capsys.readouterr().err


class Picky(Plain):
    """Takes no action that a walk finds, and is not the same twice if it does."""

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        took = {"text": self.page(), "terminated": command == "STOP"}
        return took if command == "STOP" else took | {"error_kind": "bad_argument"}


class Looped(Plain):
    """Waits for a coroutine in its own way, which it cannot where a loop runs."""

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        wait = asyncio.sleep(0)
        try:
            asyncio.run(wait)
        finally:
            wait.close()
        return dict(super().step(command, element, text))


class Unlooped(Plain):
    """Needs a loop, and has none in its thread."""

    blocking = True

    def step(self, *action: Any) -> dict[str, Any]:
        asyncio.get_running_loop()
        return super().step(*action)


def test_the_check_says_what_it_could_not_try_and_what_fails_in_a_loop(tmp_path: Path) -> None:
    told = list(check(registered(Picky), 1))
    assert str(told[0]).startswith("unknown Equal resets") and "pages. " not in str(told[0])
    found = [each.said for each in told]
    assert found.count(UNTRIED) == 2  # repeats and pays; it has no way back, and is in this process alone
    broken = [each for each in check(registered(Looped, "looped"), 1) if each.holds is False]
    assert len(broken) == 1 and "asyncio.run() cannot be called from a running event loop" in broken[0].said
    assert broken[0].said.endswith("; give the class `blocking = True`")
    with pytest.raises(ConfigError, match=r"no running event loop \(AGENTQ\S+ shows the traceback\)$"):
        search(Unlooped, 0, lambda history, k: ["SCROLL DOWN"], num_iterations=1)
    chatty = written(tmp_path, reset=GOOD["reset"].replace("return", "print('begun'); return"))
    assert [each.said for each in check(chatty, 1) if each.promise.startswith("Another process")] == [""]


def test_a_slow_world_elsewhere_is_broken_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "ELSEWHERE_S", 0.01)
    last = list(check("shop", 1))[-1]
    assert last.holds is False and last.said == "it did not end within 0 s there"


def test_the_check_holds_on_what_comes_with_agentq(tmp_path: Path) -> None:
    with EnvServer(f"{OWN}:make", sys.executable, str(tmp_path / "at"), 4) as server:
        served = {each.promise: each.holds for each in check(f"count@{server.at}", 2)}
    for name in (f"{OWN}:make", "booking", "shop"):
        assert all(each.holds for each in check(name, 2)), name
    assert [holds for holds in served.values() if holds is not True] == [None, None]
    found = [each.holds for each in check(registered(Plain), 1)]
    assert found.count(None) == 3 and False not in found
