"""Steps of a site's expert on BASE tasks, with slips that it then has to mend."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from agentq import envs
from agentq.agent.actions import format_action
from agentq.base.orders import page_elements
from agentq.envs.explore import random_action
from agentq.envs.web_env import Advice
from agentq.types import EnvAction, History, Observation, Split

Revise = Callable[[Advice, History, set[str]], Advice]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One expert step: the history, the composite action's text, and other actions that were possible."""

    history: History
    text: str
    action: EnvAction
    thought: str
    others: tuple[EnvAction, ...]


def demonstrate(
    site: str, n: int, seed: int, *, start: int = 0, slip_rate: float = 0.0, revise: Revise | None = None
) -> list[Demonstration]:
    """The expert's steps on `n` BASE tasks from index `start`, each with a few other actions that its page accepts.

    With probability `slip_rate` another action replaces the expert's, so that the next steps show how to recover
    (Laskey et al. 2017, arXiv:1703.09327). The step to learn is always the expert's. `revise` may change its advice,
    given the history and the names of the elements of the episode's actions so far.
    """
    env, expert, rng = envs.make(site), envs.expert(site), random.Random(seed)
    found = []
    for index in range(n):
        task = envs.task(site, Split.BASE, start + index)
        history, opened = History.of(task, env.reset(task)), set[str]()
        while True:
            advice = expert(task, env)
            if revise is not None:
                advice = revise(advice, history, opened)
            text = format_action(
                advice.env_action,
                plan="" if history.actions else expert.plan,
                thought=advice.thought,
                explanation=advice.explanation,
                status=advice.status,
            )
            others = tuple(random_action(env, task, rng) for _ in range(8))
            found.append(Demonstration(history, text, advice.env_action, advice.thought, others))
            action = advice.env_action
            if others[0] != action and rng.random() < slip_rate:
                action, text = others[0], slip_text(history.observation, others[0])
            opened.add(name_of(history.observation, action))
            result = env.step(action)
            if result.terminated or result.truncated:
                break
            history = history.then(text, result.observation)
    return found


def slip_text(page: Observation, action: EnvAction) -> str:
    """A slip as the model would write it, with the element's name and id and the value."""
    return format_action(action, thought=f"{name_of(page, action)} [{action.element}] {action.text or ''}".strip())


def name_of(page: Observation, action: EnvAction) -> str:
    """The name of the element that an action is about, or nothing."""
    return next((name for _, element, name in page_elements(page.text) if element == action.element), "")
