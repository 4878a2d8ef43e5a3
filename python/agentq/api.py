"""`agentq.search` and `agentq.evaluate`, and their async twins, with the same arguments, for code in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from agentq import envs
from agentq.config import Selection
from agentq.critics.function_critic import CheckedCritic, FunctionCritic, Score
from agentq.critics.protocol import Critic
from agentq.critics.ranker import LLMRanker
from agentq.envs.contract import takes
from agentq.envs.given import Environment, World
from agentq.envs.protocol import BROKEN_IN_A_ROW
from agentq.errors import ConfigError, check_integers, check_numbers, did_you_mean, require
from agentq.model_settings import CriticSettings
from agentq.policies.engine_names import MODEL, check_checkpoint, make_engine, read_name
from agentq.policies.function_policy import Answer, CheckedPolicy, FunctionPolicy
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, Policy
from agentq.policies.usage import LISTENERS, Usage
from agentq.results import Evaluation, SearchResult
from agentq.searching.faults import Resets
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.searching.run import each, wait_for
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.types import Split, Task, Trajectory

P = ParamSpec("P")
T = TypeVar("T")

Model = Policy | Answer | str | Path
"""A `Policy`; a function `(history, k) -> up to k texts`, plain or async; or a model's name as on the command line:
a checkpoint's directory, `http://HOST:PORT/v1#MODEL`. A named model is loaded for one call and closed at its end."""

Ranker = Critic | Score | str | Path | None


def _blocking(name: str, wait: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The blocking twin of a coroutine function."""
    signature = inspect.signature(wait)

    @wraps(wait)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            meant = [did_you_mean(word, signature.parameters) for word in kwargs if word not in signature.parameters]
            raise TypeError(f"{name}() {error}{''.join(meant[:1])}") from None
        return wait_for(wait(*args, **kwargs))

    twin.__name__ = twin.__qualname__ = name
    other = f"`{name}_async` is the same for code within an event loop"
    twin.__doc__ = (wait.__doc__ or "").replace(f"`{name}` is the same for code without an event loop", other)
    return twin


async def search_async(
    env: Environment,
    task: Task | int,
    policy: Model,
    *,
    critic: Ranker = None,
    num_iterations: int = 8,
    num_proposals: int = 5,
    temperature: float = 0.8,
    max_new_tokens: int = MODEL.max_new_tokens,
    selection: Selection = "ucb1",
    c_exp: float = 1.0,
    alpha: float = 1.0,
    leaves_in_flight: int = 1,
    stop_on_success: bool = False,
    seed: int = 0,
) -> SearchResult:
    """Search one task by Monte-Carlo tree search. `search` is the same for code without an event loop.

    Args:
        env: the environment; see `agentq.envs.given.Environment`.
        task: a `Task`, or its seed: training tasks are 0, 1, 2, ...
        policy: proposes actions; see `agentq.api.Model`.
        critic: ranks the proposals of a node: a `Critic`; a function `(history, actions) -> a number in [0, 1] each`,
            plain or async; or the name of a model to prompt for ranks.
        num_iterations: number of rollouts.
        num_proposals: K, the number of actions sampled at each node.
        temperature: sampling temperature, at least 0; 0 is greedy.
        max_new_tokens: largest number of tokens per action, thinking included, of a policy given by name. A critic
            given by name has the same limit per answer, but at least 192.
        selection: the rule that chooses the leaf of the next rollout.
        c_exp: exploration constant of ucb1, uct and puct, in reward units.
        alpha: weight of the mean return against the critic's value in ucb1, uct and puct. 1 ignores the critic. Without
            a critic it is always 1.
        leaves_in_flight: number of concurrent rollouts.
        stop_on_success: whether the first success ends the search.
        seed: seed of all random choices.

    Raises:
        ConfigError: if an argument is wrong.
        ModelError, EnvError, MissingExtra: if a model or an environment cannot be used.
    """
    settings = SearchSettings(
        num_iterations=num_iterations,
        num_proposals=num_proposals,
        temperature=temperature,
        c_exp=c_exp,
        stop_on_success=stop_on_success,
        seed=seed,
        selection=selection,
        leaves_in_flight=leaves_in_flight,
        alpha=alpha,
    )
    world = World.of(env)
    if not isinstance(task, Task) and isinstance(world.what, str) and world.what:
        task = await envs.ask(envs.task_from_seed, world.what, task)
    await world.check_leaves(leaves_in_flight)
    with world.held():
        async with world.session() as session, _models(policy, critic, max_new_tokens) as (chosen, ranker):
            wanted = task if isinstance(task, Task) else envs.task_from_seed(world.asked(session), task)
            more = None if world.given else partial(envs.make, world.what)
            tree = TreeSearch(session, wanted, chosen, settings, critic=ranker, make_env=more)
            return SearchResult(await tree.run())


async def evaluate_async(
    policy: Model,
    env: Environment,
    n: int = 100,
    *,
    split: Split | str = Split.TEST,
    temperature: float = 0.0,
    repeat_temperature: float = 0.0,
    max_new_tokens: int = MODEL.max_new_tokens,
    seed: int = 0,
    in_flight: int = 32,
) -> Evaluation:
    """Run one episode of each of `n` held-out tasks. `evaluate` is the same for code without an event loop.

    Args:
        policy: chooses actions; see `agentq.api.Model`.
        env: the environment; see `agentq.envs.given.Environment`.
        n: number of tasks, at least 1: the first n of the split.
        split: "test", "validation" or "train".
        temperature: sampling temperature; 0 is greedy.
        repeat_temperature: temperature for resampling an action identical to the previous one; 0 disables.
        max_new_tokens: largest number of tokens per action, thinking included, of a policy given by name.
        seed: seed of all random choices.
        in_flight: largest number of concurrent episodes; the environment's sessions limit it further.

    Raises:
        ConfigError: if an argument is wrong.
        ModelError, MissingExtra: if a model cannot be used.
        EnvError: if many tasks in a row do not begin.
    """
    check_integers(n=n, seed=seed, in_flight=in_flight)
    check_numbers(temperature=temperature, repeat_temperature=repeat_temperature)
    for name, number in (("n", n), ("in_flight", in_flight)):
        if number < 1:
            raise ConfigError(f"{name} must be at least 1; got {number}")
    if not (temperature >= 0 <= repeat_temperature):
        raise ConfigError(f"temperatures must be at least 0; got {temperature} and {repeat_temperature}")
    world, settings = World.of(env), RolloutSettings(temperature, seed, repeat_temperature=repeat_temperature)
    resets, found = Resets(BROKEN_IN_A_ROW), dict[int, Trajectory]()

    async def work(task: Task) -> Trajectory | None:
        async with world.session() as session:
            return await rollout(session, task, chosen, settings, resets=resets)

    def keep(t: Trajectory | None) -> None:
        assert t is not None  # None means that an episode was given up, which cannot happen here
        found[t.task.seed] = t

    with world.held():
        tasks = await envs.ask(envs.tasks, world.asked(world.given), split, n)
        async with _models(policy, None, max_new_tokens) as (chosen, _):
            await each(tasks, work, in_flight=await world.at_most(in_flight), on_done=keep)
    return Evaluation(tuple(found[task.seed] for task in tasks))


search = _blocking("search", search_async)
evaluate = _blocking("evaluate", evaluate_async)


def _got(model: object) -> str:
    """What was given in place of a model."""
    if isinstance(model, type):
        return f"the class {model.__name__}: make an instance"
    return f"a function of {inspect.signature(model)}" if inspect.isroutine(model) else type(model).__name__


@asynccontextmanager
async def _models(policy: Model, critic: Ranker, max_new_tokens: int) -> AsyncIterator[tuple[Policy, Critic | None]]:
    """The policy and the critic. Models given by name are loaded here and closed at the end."""
    made, begun = dict[Path | str, Engine](), time.monotonic()
    check_integers(max_new_tokens=max_new_tokens)
    if max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens must be at least 1; got {max_new_tokens}")

    async def engine(name: str | Path) -> Engine:
        found = read_name(str(name))
        if found not in made:
            check_checkpoint(found)
            if isinstance(found, Path):
                require("torch", extra="train", for_="a checkpoint")
            made[found] = await asyncio.to_thread(make_engine, found)
        return made[found]

    try:
        chosen: Policy
        if isinstance(policy, str | Path):
            chosen = ModelPolicy(await engine(policy), max_new_tokens=max_new_tokens)
        elif hasattr(policy, "propose") and not isinstance(policy, type):
            chosen = CheckedPolicy(cast(Policy, policy))
        elif callable(policy) and takes(policy, 2):
            chosen = FunctionPolicy(policy)
        else:
            raise ConfigError(
                f"policy must be a Policy, a function (history, k) -> texts, or the name of a model; got {_got(policy)}"
            )
        ranker: Critic | None
        if isinstance(critic, str | Path):
            most = max(CriticSettings().max_new_tokens, max_new_tokens)
            ranker = LLMRanker(await engine(critic), max_new_tokens=most)
        elif critic is None:
            ranker = None
        elif hasattr(critic, "rank") and not isinstance(critic, type):
            ranker = CheckedCritic(cast(Critic, critic))
        elif callable(critic) and takes(critic, 2):
            ranker = FunctionCritic(critic)
        else:
            raise ConfigError(
                "critic must be a Critic, a function (history, actions) -> scores, or the name of a model; "
                f"got {_got(critic)}"
            )
        yield chosen, ranker
    finally:
        spent = sum((each_engine.usage for each_engine in made.values()), Usage())
        for each_engine in made.values():
            each_engine.close()
        for listener in LISTENERS:
            listener(spent, time.monotonic() - begun)
