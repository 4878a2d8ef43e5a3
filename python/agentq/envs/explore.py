"""Pages without an expert: random but sensible actions; and the conformance check that every environment passes."""

from __future__ import annotations

import random
from collections.abc import Callable

from agentq.envs.protocol import Ability, Env, SiteEnv
from agentq.errors import EnvError
from agentq.types import Command, EnvAction, Observation, Task


def random_walk(
    env: SiteEnv, task: Task, rng: random.Random, steps: int
) -> list[tuple[Observation, EnvAction, Observation]]:
    """`steps` random actions from `task`'s first page on; starts again where the episode ends.

    What is typed is a span of the instruction or a likely query, so walks get past search pages. Never STOPs.
    """
    walk, observation, over = [], env.reset(task), False
    for _ in range(steps):
        if over:
            observation = env.reset(task)
        action = random_action(env, task, rng)
        result = env.step(action)
        walk.append((observation, action, result.observation))
        observation, over = result.observation, result.terminated or result.truncated
    return walk


def random_action(env: SiteEnv, task: Task, rng: random.Random) -> EnvAction:
    """An action the shown page takes: a random control, a field that is still empty rather than one that is filled."""
    view = env.view
    controls = [(i, c) for i, c in enumerate(view.page.controls, 1) if not c.disabled]
    empty = [(i, c) for i, c in controls if c.role in ("textbox", "combobox", "checkbox") and not view.values[i - 1]]
    if not controls:
        return EnvAction(Command.GOTO, text="/")
    element, control = rng.choice(empty if empty and rng.random() < 0.7 else controls)
    if control.name == "Home" and rng.random() < 0.8:  # else walks keep near home
        element, control = rng.choice(controls)
    if control.role == "textbox":
        said = rng.random() < 0.5
        return EnvAction(Command.TYPE, element, random_span(task.instruction, rng) if said else env.random_query(rng))
    labels = [label for label, _ in control.options if label]
    if control.role == "combobox" and labels:
        told = [label for label in labels if f" {label} " in f" {task.instruction} "]
        return EnvAction(Command.SELECT, element, rng.choice(told if told and rng.random() < 0.5 else labels))
    return EnvAction(Command.CLICK, element)


def random_span(text: str, rng: random.Random, longest: int = 4) -> str:
    """One to `longest` consecutive words of `text`."""
    words = text.split()
    start = rng.randrange(len(words))
    return " ".join(words[start : start + rng.randint(1, longest)])


def check_env(make_env: Callable[[], Env], task: Task, actions: list[EnvAction]) -> None:
    """The shared conformance check; raises AssertionError naming the broken promise.

    `actions` must not end the episode. Promises: equal resets and steps give equal pages; an unreadable action is data
    and costs a step; STOP ends; a step before reset or after the end raises EnvError; restore and fork are exact.
    """
    env, twin = make_env(), make_env()
    _expect_env_error(env, "step before reset")
    assert env.reset(task) == twin.reset(task), "reset is not deterministic"
    for action in actions:
        assert env.step(action) == twin.step(action), f"{action} is not deterministic"
    if Ability.RESTORE in env.abilities:
        _check_restore(make_env, env, task, actions)
    if Ability.FORK in env.abilities:
        _check_fork(env, actions)
    env.reset(task)
    unreadable = env.step(None)
    assert unreadable.error_kind is not None and not unreadable.terminated, "an unreadable action must be data"
    used = 1
    while not unreadable.truncated:
        assert used < env.max_steps, "unreadable actions must cost steps"
        unreadable = env.step(None)
        used += 1
    assert used == env.max_steps and unreadable.reward == 0.0, "max_steps must truncate with reward 0"
    env.reset(task)
    assert env.step(EnvAction(Command.STOP)).terminated, "STOP must end the episode"
    _expect_env_error(env, "step after the end")
    env.close()
    twin.close()


def _expect_env_error(env: Env, when: str) -> None:
    try:
        env.step(None)
    except EnvError:
        return
    raise AssertionError(f"{when} must raise EnvError")


def _check_restore(make_env: Callable[[], Env], env: Env, task: Task, actions: list[EnvAction]) -> None:
    """Every state is reached again from its snapshot, in reverse order and in another session."""
    other = make_env()
    tokens, pages = [], [env.reset(task)]
    for action in actions:
        tokens.append(env.snapshot())
        pages.append(env.step(action).observation)
    for i in reversed(range(len(actions))):
        for session in (env, other):
            assert session.restore(tokens[i]).fingerprint == pages[i].fingerprint, f"restore {i} gives another page"
            assert session.step(actions[i]).observation == pages[i + 1], f"a step after restore {i} differs"


def _check_fork(env: Env, actions: list[EnvAction]) -> None:
    token = env.snapshot()
    fork = env.fork()
    fork.step(None)
    assert env.restore(token) == fork.restore(token), "a fork differs from its origin"
    for action in actions:
        assert env.step(action) == fork.step(action), f"{action} differs in a fork"
        if env.restore(token) != fork.restore(token):
            raise AssertionError("forks disturb each other")
    fork.close()
