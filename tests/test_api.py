"""`agentq.search` and `agentq.evaluate`: what they take, what they give, and that they work in a notebook's loop."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agentq
from agentq import envs
from agentq.config import Trees
from agentq.errors import ConfigError, EnvError, MissingExtra, ModelError
from agentq.evaluation.stats import wilson
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.transformers_engine import TransformersEngine
from agentq.searching.run import wait_for
from agentq.types import EnvAction, History
from tests.count_world import Counting
from tests.openai_factory import fake_openai
from tests.remote_lab import OWN


class Count(Counting):
    """Counts. `closed` counts the sessions that were closed."""

    closed = 0

    def close(self) -> None:
        type(self).closed += 1


class Proposes:
    """A policy that returns what it was made with, or raises."""

    version = 0

    def __init__(self, found: Any) -> None:
        self.found = found

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> Any:
        return self.found


class Ranks(Proposes):
    """A critic of the same kind."""

    async def rank(self, history: History, proposals: Any, *, seed: int) -> Any:
        return self.found


def both(history: History, k: int) -> list[str]:
    """Both actions; where one is asked for, what is right for a goal of 3."""
    return ["CLICK [1]", "STOP"][:k] if k > 1 or len(history.actions) < 3 else ["STOP"]


def test_search_finds_a_way_through_a_class_with_a_function() -> None:
    Count.closed = 0
    found = agentq.search(Count, 0, both, num_iterations=12, num_proposals=2)
    assert found.success and found.tree.task.instruction == "Count to 2 and stop"
    best = found.trajectory
    assert best.success and best.return_ == 1.0 and best.task == found.tree.task
    assert [str(step.proposal.action.env_action) for step in best.steps] == ["CLICK [1]", "CLICK [1]", "STOP"]
    assert best.steps[0].observation.text == "count 0\nbutton Up [1]"
    assert best.steps[-1].result.terminated and not best.steps[0].result.terminated
    assert Count.closed == 1


def test_search_takes_an_environment_by_every_way_to_it() -> None:
    envs.register("count-to", Count)
    known = envs.make("count-to")
    searched = [
        agentq.search(env, 0, both, num_iterations=12, num_proposals=2)
        for env in ("count-to", Count, lambda: Count(), Count(), known, f"{OWN}:make")
    ]
    assert [result.success for result in searched] == [True] * 6
    assert len({result.show() for result in searched[:5]}) == 1
    assert known.reset(searched[0].tree.task)  # a given session stays open


def test_search_uses_one_given_session_for_all_and_many_of_a_class() -> None:
    agentq.search(Count, 0, both, num_iterations=4, num_proposals=2, leaves_in_flight=2)
    with pytest.raises(ConfigError, match=r"leaves_in_flight must be 1 with an instance, .* got 2: give its class"):
        agentq.search(Count(), 0, both, leaves_in_flight=2)


def test_two_calls_at_once_do_not_share_an_instance() -> None:
    async def waits(history: History, k: int) -> list[str]:
        await asyncio.sleep(0)
        return both(history, k)

    async def twice(env: Any, call: Any) -> list[Any]:
        return await asyncio.gather(call(env, 0), call(env, 1), return_exceptions=True)

    def search(env: Any, task: int) -> Any:
        return agentq.search_async(env, task, waits, num_iterations=6, num_proposals=2)

    def evaluate(env: Any, task: int) -> Any:
        return agentq.evaluate_async(waits, env, 3)

    for call in (search, evaluate):
        for env in (Count(), envs.make("booking")):
            first, second = asyncio.run(twice(env, call))
            assert not isinstance(first, BaseException)
            with pytest.raises(
                ConfigError, match=r"must not be in use by another call, .* got the same .* twice at once"
            ):
                raise second
        assert not any(isinstance(each, BaseException) for each in asyncio.run(twice(Count, call)))
    env = Count()
    assert agentq.search(env, 0, both).tree.task.seed == 0 and agentq.search(env, 1, both).tree.task.seed == 1
    with pytest.raises(ZeroDivisionError):
        agentq.search(env, 0, lambda h, k: 1 / 0)  # type: ignore[arg-type, return-value]
    agentq.search(env, 0, both)  # an error gives it back


def test_two_classes_of_one_name_stay_apart() -> None:
    class Other(Count):
        def reset(self, seed: int) -> dict[str, Any]:
            return super().reset(seed) | {"text": "other"}

        def fork(self) -> Other:
            twin = Other()
            twin.goal, twin.count = self.goal, self.count
            return twin

    agentq.search(Count, 0, both, num_iterations=1)
    task, env = envs.task(Other, "train", 0), envs.make(Other)
    assert env.name == task.env == "count" and env.reset(task).text == "other"
    twin = env.fork()  # type: ignore[attr-defined]
    assert twin.name == "count" and isinstance(twin.own, Other)


def test_search_takes_models_by_name_and_as_policies(base: Path) -> None:
    named = agentq.search("booking", 3, "embedded", critic="embedded", num_iterations=2, num_proposals=3)
    policy = ModelPolicy(TransformersEngine(base))
    given = agentq.search("booking", envs.task("booking", "train", 3), policy, num_iterations=2, num_proposals=3)
    assert named.tree.task == given.tree.task
    assert {0.0, 1.0} <= set(named.tree.critic_value[1:].tolist())
    assert set(given.tree.critic_value[1:].tolist()) == {0.5}  # nothing ranks
    assert [p.chosen[0].logps.dtype for p in given.pairs(alpha=1, threshold=0)] == []  # nothing solved, no gap


def test_an_async_function_is_asked_for_many_tasks_at_once() -> None:
    waiting = most = 0

    async def model(history: History, k: int) -> Sequence[str]:
        nonlocal waiting, most
        waiting, most = waiting + 1, max(most, waiting + 1)
        await asyncio.sleep(0.01)
        waiting -= 1
        return both(history, k)

    found = agentq.evaluate(model, Count, 6, in_flight=3)
    assert most == 3 and found.n == 6
    most = 0
    assert str(agentq.evaluate(model, Count(), 6)) == str(found) and most == 1  # episodes take turns in one session


def test_evaluate_counts_with_wilsons_interval_in_the_order_of_tasks() -> None:
    Count.closed = 0
    found = agentq.evaluate(both, Count, 7)  # it counts to 3: one task in three
    goals = [2 + e.task.seed % 3 for e in found.episodes]
    assert [e.task.seed for e in found.episodes] == [t.seed for t in envs.tasks(Count, "test", 7)]
    assert [e.success for e in found.episodes] == [goal == 3 for goal in goals]
    assert (found.successes, found.n, found.broken) == (goals.count(3), 7, 0)
    assert found.interval == wilson(found.successes, 7) and found.rate == found.successes / 7
    assert str(found).startswith(f"{found.successes} of 7 tasks ({100 * found.rate:.1f} %, 95 % interval ")
    assert Count.closed == 7 + 2  # and one for each list of tasks
    assert agentq.evaluate(both, Count(), 7).successes == found.successes


def test_a_close_that_fails_is_told_once_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Torn(Count):
        def close(self) -> None:
            raise RuntimeError("the browser has been closed")

    assert agentq.evaluate(both, Torn, 6).n == 6
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "close" in line]
    assert line.startswith("agentq: close() failed: ") and line.endswith("RuntimeError: the browser has been closed")


def test_evaluate_counts_what_the_world_broke() -> None:
    class Frail(Count):
        def reset(self, seed: int) -> dict[str, Any]:
            if seed % 3 == 0:
                raise EnvError("no network")
            return super().reset(seed)

    found = agentq.evaluate(both, Frail, 6)
    assert found.broken == 2 and str(found).endswith(", 2 broken by the world)")

    class Gone(Count):
        def reset(self, seed: int) -> dict[str, Any]:
            raise EnvError("no network")

    with pytest.raises(EnvError, match="no network"):
        agentq.evaluate(both, Gone, 20)
    lost = agentq.search(Frail, agentq.Task("count", 0, agentq.Split.TRAIN, "Count"), both)
    assert not lost.success and lost.trajectory.steps == () and "reset_failed: " in lost.show()


def test_the_twins_are_one_function_each() -> None:
    async def main() -> list[object]:
        found = await agentq.search_async(Count, 0, both, num_iterations=12, num_proposals=2)
        return [found.show(), str(await agentq.evaluate_async(both, Count, 7))]

    want = [
        agentq.search(Count, 0, both, num_iterations=12, num_proposals=2).show(),
        str(agentq.evaluate(both, Count, 7)),
    ]
    assert asyncio.run(main()) == want
    for name in ("search", "evaluate", "train"):
        sync, twin = getattr(agentq, name), getattr(agentq, f"{name}_async")
        assert inspect.signature(sync) == inspect.signature(twin)
        assert inspect.iscoroutinefunction(twin) and not inspect.iscoroutinefunction(sync)
        assert f"`{name}_async` is the same" in (sync.__doc__ or "") or name == "train"


def test_pythons_prompt_shows_what_print_shows() -> None:
    for found in (agentq.search(Count, 0, both), agentq.evaluate(both, Count, 7)):
        assert repr(found) == str(found) == found.show()


def test_search_works_where_a_loop_runs_already() -> None:
    async def notebook() -> bool:
        return agentq.search(Count, 0, both, num_iterations=12, num_proposals=2).success

    assert asyncio.run(notebook())


def test_an_interrupt_ends_a_call_whose_policy_never_waits() -> None:
    asked, running = 0, list[asyncio.Task[Any]]()

    async def main(call: Any) -> None:
        running[:] = asyncio.all_tasks()
        await call

    def interrupted(history: History, k: int) -> list[str]:
        nonlocal asked
        asked += 1
        if asked == 3:
            running[0].cancel()  # as Ctrl-C does
        return both(history, k)

    class Own(Proposes):
        async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> Any:
            interrupted(history, k)
            return self.found

    proposal = agentq.search(Count, 0, both).tree.proposal[1]
    for policy in (interrupted, Own([proposal])):
        for call in (
            agentq.search_async(Count, 0, policy, num_iterations=50),
            agentq.evaluate_async(policy, Count, 20, in_flight=1),
        ):
            asked = 0
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(main(call))
            assert asked == 3


def test_an_interrupt_in_a_notebook_cancels_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def interrupted(future: object, timeout: float | None = None) -> None:
        assert begun.wait(10)
        raise KeyboardInterrupt

    async def notebook() -> None:
        monkeypatch.setattr("concurrent.futures._base.Future.result", interrupted)
        wait_for(work())

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(notebook())
    assert ended.is_set() and time.monotonic() - start < 30


def test_a_model_by_name_has_room_for_its_answer() -> None:
    with fake_openai() as fake:
        agentq.evaluate(fake.url, Count, 1, max_new_tokens=1024)
        agentq.search(Count, 0, fake.url, max_new_tokens=512)
    assert {body["max_tokens"] for body in fake.asked if body["max_tokens"] > 96} == {1024, 512}
    assert 96 not in {body["max_tokens"] for body in fake.asked}


def test_a_function_ranks_the_actions() -> None:
    asked = []

    async def score(history: History, actions: Sequence[EnvAction | None]) -> list[float]:
        asked.append([str(action) for action in actions])
        return [float("STOP" in str(action)) for action in actions]

    found = agentq.search(Count, 0, both, critic=score, num_iterations=2)
    assert asked[0] == ["CLICK [1]", "STOP"]
    told = {str(found.tree.proposal[node].action.env_action): found.tree.critic_value[node] for node in (1, 2)}
    assert told == {"CLICK [1]": 0.0, "STOP": 1.0}


def test_search_has_the_defaults_of_the_settings() -> None:
    defaults, config = inspect.signature(agentq.search).parameters, Trees()
    for name in ("num_iterations", "num_proposals", "temperature", "selection", "c_exp", "alpha", "leaves_in_flight"):
        assert defaults[name].default == getattr(config, name), name


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: agentq.search(3, 0, both), ConfigError, "env must be a name, a class with reset(seed) and step("),
        (lambda: agentq.search(object(), 0, both), ConfigError, "an instance, or an instance; got object"),
        (lambda: agentq.search("bookng", 0, both), ConfigError, "no environment 'bookng'; did you mean 'booking'?"),
        (lambda: agentq.search(dict, 0, both), ConfigError, "must make an environment with the method reset(seed)"),
        (lambda: agentq.search(Count, -1, both), ConfigError, "task seed must be in [0, 4000000000); got -1"),
        (lambda: agentq.search(Count, 0, 7), ConfigError, "or the name of a model; got int"),
        (
            lambda: agentq.search(Count, 0, lambda h: ["STOP"]),  # type: ignore[misc, arg-type]
            ConfigError,
            "policy must be a Policy, a function (history, k) -> texts, or the name of a model; got a function of (h)",
        ),
        (
            lambda: agentq.search(Count, 0, both, critic=lambda a: [0.5]),  # type: ignore[misc, arg-type]
            ConfigError,
            "or the name of a model; got a function of (a)",
        ),
        (
            lambda: agentq.search(Count, 0, both, iterations=3),  # type: ignore[call-arg]
            TypeError,
            "search() got an unexpected keyword argument 'iterations'; did you mean 'num_iterations'?",
        ),
        (
            lambda: agentq.evaluate(both),  # type: ignore[call-arg]
            TypeError,
            "evaluate() missing a required argument: 'env'",
        ),
        (lambda: agentq.search(Count, 0, "no/such/place/at/all"), ModelError, "which does not exist"),
        (
            lambda: agentq.search(Count, 0, both, num_proposals=0),
            ConfigError,
            "num_proposals must be at least 1; got 0",
        ),
        (lambda: agentq.search(Count, 0, lambda h, k: "STOP"), ModelError, "must return a list of texts; got 'STOP'"),
        (lambda: agentq.search(Count, 0, lambda h, k: ["STOP"] * 6), ModelError, "1 to k texts, here at most 5; got 6"),
        (
            lambda: agentq.evaluate(Count, both, 1),
            ConfigError,
            "got a function of (history, k): the order is search(env, task, policy) and evaluate(policy, env)",
        ),
        (lambda: agentq.search(both, 0, Count), ConfigError, "env must be an environment, or made without arguments;"),
        (lambda: agentq.search(Count, "x", both), ConfigError, "task must be a Task or an integer, its seed; got 'x'"),
        (lambda: agentq.train("rft", out="never", run=3), ConfigError, "run must be a dict of settings; got 3"),
        (
            lambda: agentq.train("rft", out="never", rounds=2),
            ConfigError,
            "rounds must be a dict of settings; got 2: write run={'num_rounds': 2}",
        ),
        (
            lambda: agentq.train("rft", out="never", lr=1e-4),
            ConfigError,
            "lr must be a dict of settings; got 0.0001: write train={'learning_rate': 0.0001}",
        ),
        (lambda: agentq.search(Count, 0, both, critic=7), ConfigError, "(history, actions) -> scores, or the name"),
        (
            lambda: agentq.search(Count, 0, both, critic=lambda h, a: [0.5]),
            ModelError,
            "must return a number per action, here 2; got 1",
        ),
        (
            lambda: agentq.search(Count, 0, both, critic=lambda h, a: [2.0, 0.0]),
            ModelError,
            "must return numbers in [0, 1]; got 2.0",
        ),
        (lambda: agentq.search(Count, 0, both, critic=lambda h, a: 3), ModelError, "a list of numbers; got 3"),
        (
            lambda: agentq.evaluate(both, Count, 1, max_new_tokens=0),
            ConfigError,
            "max_new_tokens must be at least 1; got 0",
        ),
        (lambda: agentq.evaluate(both, Count, 0), ConfigError, "n must be at least 1; got 0"),
        (lambda: agentq.evaluate(both, Count, 2.5), ConfigError, "n must be an integer; got 2.5"),  # type: ignore[arg-type]
        (lambda: agentq.evaluate(both, Count, 1, in_flight=0), ConfigError, "in_flight must be at least 1; got 0"),
        *(
            (
                lambda call=call, name=name, value=value: call(**{name: value}),
                ConfigError,
                f"{name} must be {kind}; got",
            )
            for call in (
                lambda **k: agentq.search(Count, 0, both, **k),
                lambda **k: agentq.evaluate(both, Count, 1, **k),
            )
            for name, value, kind in (
                ("seed", None, "an integer"),
                ("seed", 1.5, "an integer"),
                ("temperature", None, "a number"),
                ("temperature", "0.5", "a number"),
                ("max_new_tokens", None, "an integer"),
            )
        ),
        (lambda: agentq.search(Count, 0, both, num_iterations=2.5), ConfigError, "num_iterations must be an integer"),  # type: ignore[arg-type]
        (lambda: agentq.search(Count, 0, both, alpha=None), ConfigError, "alpha must be a number; got None"),  # type: ignore[arg-type]
        (
            lambda: agentq.search(Count(), 0, both, leaves_in_flight=4),
            ConfigError,
            "leaves_in_flight must be 1 with an instance, which is a single session unless it can fork; got 4",
        ),
        (lambda: agentq.search(Count, 0, Proposes), ConfigError, "got the class Proposes: make an instance"),  # type: ignore[arg-type]
        (
            lambda: agentq.search(Count, 0, Proposes(["STOP"])),
            ModelError,
            "must return a list of agentq.types.Proposal",
        ),
        (lambda: agentq.evaluate(Proposes(None), Count, 1), ModelError, "Proposal; got None: a function (history, k)"),
        (lambda: agentq.evaluate(Proposes([]), Count, 1), ModelError, "1 to k proposals, here at most 1; got 0"),
        (
            lambda: agentq.search(Count, 0, both, critic=Ranks([0.5])),
            ModelError,
            "Ranks.rank must return a number per action, here 2; got 1",
        ),
        (lambda: agentq.search(Count, 0, both, critic=Ranks([5, 0])), ModelError, "numbers in [0, 1]; got 5.0"),
        (
            lambda: agentq.search(Count, 0, both, critic=Ranks(None)),
            ModelError,
            "must return a list of numbers; got None",
        ),
        (
            lambda: agentq.search(Count, 0, both, critic=lambda h, actions: {0.2, 0.7}),
            ModelError,
            "a list of numbers; got {0.",
        ),
        (
            lambda: agentq.search(Count, 0, both, critic=lambda h, actions: {0: 0.2, 1: 0.7}),
            ModelError,
            "must return a list of numbers; got {0: 0.2, 1: 0.7}",
        ),
        (
            lambda: agentq.search(Count, 0, both, critic=lambda h, actions: np.ones((2, 2))),
            ModelError,
            "must return a list of numbers; got array([[1., 1.], [1., 1.]])",
        ),
        (lambda: agentq.train("rft", out="never", env=Count()), ConfigError, "got an instance of Count"),  # type: ignore[arg-type]
        (lambda: agentq.train("rft", out="never", env=None), ConfigError, "env must be a name, or a class or function"),  # type: ignore[arg-type]
        (lambda: agentq.train("rft", out=None), ConfigError, "out must be a path, the run directory; got None"),  # type: ignore[arg-type]
        (
            lambda: agentq.evaluate(both, Count, 1, temperature=-1),
            ConfigError,
            "temperatures must be at least 0; got -1",
        ),
        (lambda: agentq.evaluate(both, Count, 1, repeat_temperature=float("nan")), ConfigError, "temperatures must"),
        (lambda: agentq.evaluate(both, Count, 1, split="tset"), ConfigError, "no split 'tset'; did you mean 'test'?"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as told:
        call()
    assert "\n" not in str(told.value)


def test_texts_without_tokens_are_no_training_data() -> None:
    found = agentq.search(Count, 0, both, num_iterations=12, num_proposals=2)
    with pytest.raises(ConfigError, match="must have the tokens that were sampled; got text only"):
        found.pairs(alpha=1.0, threshold=0.1)


def test_a_model_without_torch_names_the_install_line(monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentq-search\[train\]'"):
        agentq.search(Count, 0, base)
