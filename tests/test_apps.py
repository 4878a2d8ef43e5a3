"""The world apps: experts solve every task, one wrong step is caught, forks are exact, code is held to its limits."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pydantic_monty")

from agentq import envs
from agentq.envs.apps import api, draw, person
from agentq.envs.apps.env import AppsEnv, sandbox
from agentq.envs.apps.scenarios import FAMILIES, UNSEEN, VARIANTS
from agentq.envs.apps.state import differences
from agentq.evaluation.scenarios import scenario_completion
from agentq.types import EnvAction, Language, Split, StepResult, Task, Verb

SEEN = len(draw.families("apps"))
Call = Callable[..., Any]
OVER = "apis.supervisor.complete_task()"


def run(env: AppsEnv, code: str) -> StepResult:
    return env.step(EnvAction(Verb.RUN, None, code))


def begun(name: str = "apps", index: int = 0, split: str = "train") -> AppsEnv:
    env = AppsEnv(name)
    env.reset(envs.task(name, split, index))
    return env


def play(task: Task) -> tuple[AppsEnv, StepResult]:
    """The expert's blocks, whatever they meet; the task is completed in the end."""
    env = AppsEnv(task.env)
    env.reset(task)
    result = None
    for block in env._goal.expert:
        result = run(env, block)
        if result.terminated:
            return env, result
    return env, run(env, OVER)


def one_of_each(name: str, split: str = "train", round_: int = 0) -> Iterator[Task]:
    """One variant of each family."""
    n = len(draw.families(name))
    for i in range(n):
        yield envs.task(name, split, VARIANTS * (n * round_ + i) + (i + round_) % VARIANTS)


def test_the_world_is_as_large_as_it_says() -> None:
    functions = [each for apis in api.APIS.values() for each in apis.values()]
    assert len(api.APPS) >= 10 and len(functions) >= 100
    for each in functions:
        assert each.description.endswith(".") and all(p.description for p in each.parameters.values()), each.name
    assert len(FAMILIES) >= 40 and SEEN >= 30
    assert {family.level for family in draw.families("apps")} == {1, 2, 3}
    assert all(UNSEEN & set(family.apps) for family in draw.families("apps/challenge"))
    assert not any(UNSEEN & set(family.apps) for family in draw.families("apps"))


def test_splits_have_different_people_and_variants_ask_different_things() -> None:
    tasks = [task for split in Split for task in envs.tasks("apps", split, 90)]
    people = {(str(draw.begin("apps", task.seed)[0].me["phone_number"]), task.split) for task in tasks}
    assert len(people) == len({phone for phone, _ in people}) == len({task.scenario for task in tasks}) == 120
    for i in range(SEEN):
        tasks = envs.tasks("apps", "test", VARIANTS, VARIANTS * i)
        goals = [draw.begin("apps", task.seed)[1] for task in tasks]
        assert len({task.scenario for task in tasks}) == 1
        asked = {(goal.instruction, str(goal.answer), str(goal.changes)) for goal in goals}
        assert len(asked) == VARIANTS, tasks[0].instruction
    assert len({task.scenario for task in envs.tasks("apps", "train", 30)}) == 10


@pytest.mark.parametrize("name", ["apps", "apps/challenge"])
def test_the_expert_solves_every_family(name: str) -> None:
    for task in one_of_each(name):
        env, result = play(task)
        assert result.success and result.reward == 1.0, (task.instruction, env.tests, result.observation.text)


@pytest.mark.rest
@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("name, n", [("apps", 500), ("apps/challenge", 200), ("apps/3", 60)])
def test_the_expert_solves_hundreds_of_tasks(name: str, n: int, split: str) -> None:
    failed = [task.instruction for task in envs.tasks(name, split, n) if not play(task)[1].success]
    assert not failed, failed[:5]


class Saboteur:
    """Calls of the APIs, with the `at`-th one that changes something done `wrong`: skipped, altered or repeated."""

    def __init__(self, wrong: str, at: int) -> None:
        self.wrong, self.at, self.seen, self.did = wrong, at, 0, False
        self.real = api.call

    def __call__(self, state: Any, app: str, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.wrong == "answer" and name == "complete_task" and kwargs.get("answer") is not None:
            self.did = True
            return self.real(state, app, name, args, {"answer": other(kwargs["answer"])})
        before = state.snapshot()
        result = self.real(state, app, name, args, kwargs)
        if differences(before, state.snapshot()):
            self.seen += 1
            if self.seen == self.at and self.wrong in ("skip", "alter"):
                self.did = True
                state.restore(before)
                if self.wrong == "alter":
                    key, value = [(k, v) for k, v in kwargs.items() if k != api.TOKEN][-1]
                    return self.real(state, app, name, args, {**kwargs, key: other(value)})
            elif self.seen == self.at and self.wrong == "more":
                self.did = True
                state.remove("notes", min(state.table("notes")))
        return result


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value[1:], other(value[0])] if value else ["x@mail.com"]
    changed = {"home": "work", "work": "errands", "errands": "home", "archive": "inbox", "trash": "archive"}
    if value in changed:
        return changed[value]
    if value[-2:].isdecimal():  # a date, a time or a number stays one
        return value[:-1] + str((int(value[-1]) + 1) % 9)
    return f"{value}x"


@pytest.mark.parametrize("wrong", ["skip", "alter", "more", "answer"])
def test_an_expert_that_is_wrong_in_one_way_is_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = 0
    for name in ("apps", "apps/challenge"):
        for task in one_of_each(name, "test", 1):
            for at in (1, 2) if wrong in ("skip", "alter") else (1,):
                saboteur = Saboteur(wrong, at)
                monkeypatch.setattr(api, "call", saboteur)
                env, result = play(task)
                monkeypatch.setattr(api, "call", saboteur.real)
                if saboteur.did:
                    caught += 1
                    assert not result.success and result.reward < 1, (wrong, task.instruction, env.tests)
    assert caught >= (8 if wrong == "answer" else 25)


def test_what_was_done_counts_and_doing_nothing_is_worth_nothing() -> None:
    for task in one_of_each("apps"):
        env = AppsEnv(task.env)
        env.reset(task)
        result = run(env, OVER)
        assert result.terminated and not result.success and result.reward == 0, task.instruction
    env = begun(index=VARIANTS * 2)  # a change, of the third family
    for block in env._goal.expert[:-1]:
        run(env, block)
    result = run(env, env._goal.expert[-1].replace("complete_task()", 'complete_task(status="fail")'))
    assert result.terminated and result.reward == 0


def test_fork_and_restore_take_names_and_data_along() -> None:
    env = begun()
    run(env, "x = [1]\nme = apis.supervisor.show_profile()")
    login = (
        'passwords = {e["app_name"]: e["password"] for e in apis.supervisor.show_account_passwords()}\n'
        'token = apis.notes.login(username=me["email"], password=passwords["notes"])["access_token"]'
    )
    run(env, login)
    there = env.snapshot()
    twin = env.fork()
    change = 'x.append(2)\napis.notes.create_note(access_token=token, title="a", content="b")["note_id"]'
    made = run(twin, change)
    assert made.error_kind is None
    assert run(twin, "x").observation.text == "[1, 2]"
    assert run(env, "x").observation.text == "[1]"
    titles = "[e['title'] for e in apis.notes.show_notes(access_token=token, page_limit=20)]"
    assert "'a'" in run(twin, titles).observation.text and "'a'" not in run(env, titles).observation.text
    for session in (env, twin):
        session.restore(there)
        again = run(session, change)
        assert again.observation == made.observation


def test_a_state_and_a_block_give_one_result_on_any_worker() -> None:
    """Even what an interpreter usually makes up: addresses, the order of sets, random numbers, the time."""
    blocks = (
        "class A: pass\na = [A(), A()]",
        "import random\nb = random.random(), {1, 'x', (2,)}",
        "print(a, b, id(a))",
        "import time\nprint(time.time())",
    )
    results = []
    for _ in range(2):
        state, said = sandbox().start, ""
        for block in blocks:
            ran = sandbox().run(state, block, lambda *asked: None)
            sandbox().run(sandbox().start, "z = 1", lambda *asked: None)  # somebody else, in between
            assert ran.state is not None
            state, said = ran.state, said + ran.printed
        results.append(said)
    assert results[0] == results[1] and "1773824400.0" in results[0]


def test_apis_refuse_as_real_ones_do() -> None:
    env = begun()
    her = draw.begin("apps", 3)[0].me
    said: list[tuple[str, str]] = [
        ("apis.notes.show_notes()", "422"),
        ("apis.notes.show_notes(access_token='x')", "401"),
        (f"apis.notes.show_notes(access_token='{her['tokens']['notes']}')", "401"),
        (f"apis.notes.show_notes(access_token='{env._state.me['tokens']['notes']}')", "401"),  # not logged in
        (
            f"apis.notes.login(username='{her['email']}', password='{her['passwords']['notes']}')",
            "401",
        ),
        (f"apis.notes.login(username='{her['email']}', password='{env._state.me['passwords']['notes']}')", "401"),
        (f"apis.notes.login(username='{env._state.me['email']}', password='{her['passwords']['notes']}')", "401"),
        ("apis.notes.login('a', 'b')", "422"),
        ("apis.notes.login(username='a', password=3)", "password: must be string"),
        ("apis.notes.login(username='a', word='b')", "word: unknown parameter"),
        ("apis.notes.log_in()", "has no API 'log_in'"),
        ("apis.nothing", "no attribute 'nothing'"),
        ("apis.api_docs.show_api_doc(app_name='mail', api_name='x')", "404"),
        ("apis.supervisor.complete_task(status='maybe')", "422"),
        ("apis.supervisor.complete_task(answer=print)", "422"),
    ]
    for code, message in said:
        result = run(env, code)
        assert result.error_kind == "exception" and message in result.observation.text, (code, result.observation.text)
    assert not differences(env._before, env._state.snapshot())
    paged = "apis.mail.show_emails(access_token=apis.mail.login(username=u, password=p)['access_token'], page_limit={})"
    run(env, f"u, p = '{env._state.me['email']}', '{env._state.me['passwords']['mail']}'")
    assert "422" in run(env, paged.format(21)).observation.text
    assert run(env, f"len({paged.format(3)})").observation.text == "3"


@pytest.mark.parametrize(
    "code, kind",
    [
        ("while True: pass", "time_limit"),
        ("x = 'a'\nwhile True: x += x", "memory_limit"),
        ("y = 'a' * 3_000_000", "memory_limit"),
        ("len('a' * 40_000_000)", "memory_limit"),  # nothing stays of it, but it is above the limit while it runs
        ("for i in range(10**6): print('a' * 100)", "output_limit"),
        ("for i in range(10**6): apis.api_docs.show_app_descriptions()", "call_limit"),
        ("def f(): f()\nf()", "exception"),
        ("import os\nos.system('id')", "exception"),
        ("open('/etc/passwd')", "exception"),
        ("print(", "bad_code"),
        ("import numpy", "exception"),
    ],
)
def test_code_beyond_a_limit_is_a_step_without_effect(code: str, kind: str) -> None:
    env, undone = begun(), kind.endswith("_limit") or kind == "bad_code"
    run(env, f"u, p, kept = '{env._state.me['email']}', '{env._state.me['passwords']['notes']}', 1")
    run(env, "token = apis.notes.login(username=u, password=p)['access_token']")
    before = env.snapshot()
    result = run(env, f"kept = 2\napis.notes.create_note(access_token=token, title='new', content='')\n{code}")
    assert result.error_kind == kind and not result.terminated and len(result.observation.text) < 8000
    after = env.snapshot()
    assert after.steps == before.steps + 1 and (after.data == before.data) is undone
    assert kind == "bad_code" or (after.names == before.names) is undone
    assert run(env, "kept").observation.text == ("1" if undone else "2")


def test_tasks_say_that_their_language_is_code() -> None:
    task = envs.task("apps/1", "validation", 4)
    assert (task.language, task.keeps_pages, task.env) == (Language.CODE, True, "apps/1")
    assert envs.names("apps") == draw.NAMES
    with pytest.raises(ValueError, match=r"did you mean 'apps/challenge'"):
        envs.make("apps/chalenge")


def test_equal_seeds_are_the_same_person_and_share_tables_until_they_change() -> None:
    a, b = person.person(5), person.person(5)
    assert a.me == b.me and all(a.table(name) is b.table(name) for name in a.snapshot().tables)
    a.add("notes", title="new", content="", tags=[], pinned=False)
    assert a.table("notes") is not b.table("notes") and a.table("songs") is b.table("songs")
    kept = a.snapshot()
    a.add("notes", title="newer", content="", tags=[], pinned=False)
    assert len(differences(b.snapshot(), kept)) == 1 and len(differences(b.snapshot(), a.snapshot())) == 2


def test_random_calls_never_break_the_apps() -> None:
    """Any function with any arguments answers or refuses."""
    rng, values = (
        random.Random(0),
        [0, 1, 7, -1, 2.5, True, None, "", "a", "2026-03-20", [], ["a@b"], [1], {}, "x" * 6000],
    )
    state = person.person(1)
    for app, password in state.me["passwords"].items():
        api.call(state, app, "login", (), {"username": state.me["email"], "password": password})
    refused = 0
    for _ in range(4000):
        each = rng.choice([e for apis in api.APIS.values() for e in apis.values()])
        given = {name: rng.choice(values) for name, p in each.parameters.items() if p.required or rng.random() < 0.3}
        if not each.public:
            given[api.TOKEN] = state.me["tokens"][each.app]
        try:
            api.call(state, each.app, each.name, (), given)
        except api.ApiError:
            refused += 1
    assert 500 < refused < 3900


def test_scenarios_are_solved_if_all_variants_are() -> None:
    names = ["a", "a", "a", "b", "b", "b", "c", "c"]
    found = scenario_completion(names, [True, True, True, True, False, True, True, True])
    assert found is not None and (found["successes"], found["n"]) == (1, 2)  # c is not whole
    assert scenario_completion(["", ""], [True, False]) is scenario_completion(["a", "b"], [True, False]) is None


def test_workers_end_with_their_process() -> None:
    """A process that is killed leaves no worker behind."""
    import signal
    import subprocess
    import sys
    import time

    code = (
        "from agentq.envs.apps.env import sandbox\n"
        "import time\n"
        "with sandbox()._checkout() as session:\n"
        "    session.feed_run('1')\n"
        "    print(session.worker_pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    for _ in range(100):
        try:
            with open(f"/proc/{worker}/stat") as file:
                gone = file.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            gone = True
        if gone:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker of a killed process lives on")
