"""Search trees and episodes with seeded contents, for the tests of the store, of credit and of the report."""

from __future__ import annotations

import numpy as np

from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import (
    Action,
    Command,
    EnvAction,
    Observation,
    Proposal,
    Split,
    Step,
    StepResult,
    StopReason,
    Task,
    Trajectory,
)


def make_task(seed: int = 0, env: str = "booking") -> Task:
    more = (Command.PRESS,) if seed % 2 else ()
    return Task(env, seed, Split.TRAIN, f"Book a table, request {seed}: naïve café \u2603", more)


def make_proposal(number: int, *, env_action: EnvAction | None = None, tokens: int = 3, prompt: int = 0) -> Proposal:
    """A proposal whose arrays follow from `number` and `prompt`; without `env_action` its text could not be read."""
    rng = np.random.default_rng(number)
    text = f"THOUGHT: number {number}\nCOMMANDS: {env_action}\nSTATUS: CONTINUE"
    error = None if env_action else "a command must follow COMMANDS:; got None"
    mended = ("fence", "quotes") if number % 3 == 0 else ()
    action = Action(text, env_action, thought=f"number {number}", parse_error=error, mended=mended)
    return Proposal(
        action=action,
        prompt_ids=np.arange(prompt, prompt + 40, dtype=np.int32),
        token_ids=rng.integers(0, 2000, tokens).astype(np.int32),
        logps=(-rng.exponential(1.0, tokens)).astype(np.float32),
        stop_reason=StopReason.EOS if number % 2 else StopReason.LENGTH,
        policy_version=number % 3,
        temperature=0.1 * number,
    )


def click(element: int) -> EnvAction:
    return EnvAction(Command.CLICK, element)


def make_tree(seed: int = 0, num_nodes: int = 12, width: int = 3) -> TreeRecord:
    """A tree filled breadth first: the children of node i are `width * i + 1` ..; the last node is a found success."""
    rng = np.random.default_rng(seed)
    index = np.arange(num_nodes)
    parent = np.where(index == 0, -1, (index - 1) // width)
    depth = np.zeros(num_nodes, int)
    for i in range(1, num_nodes):
        depth[i] = depth[parent[i]] + 1
    visits = rng.integers(0, 5, num_nodes)
    visits[-1] = 2
    success = index == num_nodes - 1
    rank = (index - 1) % width
    return TreeRecord(
        task=make_task(seed),
        parent=parent,
        depth=depth,
        visit_count=visits,
        value_sum=visits * rng.integers(0, 3, num_nodes) / 2,
        critic_value=np.where(index == 0, 0.5, 1 - rank / max(width - 1, 1)),
        flags=np.where(success, TERMINAL, 0),
        proposal=[None, *(make_proposal(i, env_action=click(i), prompt=int(parent[i])) for i in range(1, num_nodes))],
        observation=[Observation(f"page {i // 4}", f"/{i}") if visits[i] or i == 0 else None for i in range(num_nodes)],
        reward=success.astype(float),
        success=success,
        error_kind=[None if i % 5 else "timeout" for i in range(num_nodes)],
        restored=[None, "exact", "approximate", "failed", None][:num_nodes] + [None] * max(0, num_nodes - 5),
        info={"env_steps": 7, "seconds": 0.1 + 0.2, "nested": {"counts": [1, 2]}},
    )


def make_trajectory(
    seed: int = 0, num_steps: int = 3, *, success: bool = True, return_: float | None = None
) -> Trajectory:
    """An episode whose second step's action could not be read."""
    steps = []
    for i in range(num_steps):
        last = i == num_steps - 1
        proposal = make_proposal(100 * seed + i, env_action=None if i == 1 else click(i), tokens=i + 1)
        result = StepResult(
            Observation(f"page {i + 1}", f"/{i + 1}"),
            reward=float(success and last),
            terminated=last,
            success=success and last,
            error_kind="timeout" if i == 1 else None,
            error_message="no answer after 5 s" if i == 1 else "",
        )
        steps.append(Step(Observation(f"page {i}", f"/{i}"), proposal, result))
    total = float(success) if return_ is None else return_
    return Trajectory(make_task(seed), tuple(steps), total, success, {"env_steps": num_steps})
