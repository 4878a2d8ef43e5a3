"""The world of `benchmarks/flaky.py`, and the counts of `benchmarks/proposals.py`."""

from __future__ import annotations

import numpy as np
import proposals
import pytest
from flaky_env import Flaky

from agentq import envs
from agentq.envs.own_env import RestorableOwnEnv
from agentq.errors import EnvError
from agentq.store.records import TreeRecord
from agentq.types import Command, EnvAction, Split, Task


def test_without_faults_it_is_booking_and_goes_back_as_booking_does() -> None:
    env = envs.make(lambda: Flaky(0.0, told=True))
    assert isinstance(env, RestorableOwnEnv)
    expert, site = envs.expert("booking"), envs.make("booking")
    task = envs.task("booking", Split.TRAIN, 3)
    own = Task("flaky", task.seed, task.split, task.instruction)
    assert env.reset(own).text == site.reset(task).text
    tokens = []
    while True:
        tokens.append((env.snapshot(), site.snapshot()))  # type: ignore[attr-defined]
        action = expert(task, site).env_action
        ours, theirs = env.step(action), site.step(action)
        assert (ours.observation.text, ours.reward, ours.success) == (
            theirs.observation.text,
            theirs.reward,
            theirs.success,
        )
        if theirs.terminated:
            break
    assert ours.success and ours.terminated
    for token, other in reversed(tokens):
        assert env.restore(token).text == site.restore(other).text  # type: ignore[attr-defined]


@pytest.mark.parametrize("told", [True, False])
def test_a_step_that_fails_is_a_fault_or_the_end(told: bool) -> None:
    env = envs.make(lambda: Flaky(1.0, told=told))
    task = envs.task("booking", Split.TRAIN, 0)
    page = env.reset(Task("flaky", task.seed, task.split, task.instruction))
    action = EnvAction(Command.CLICK, 1)
    if told:
        with pytest.raises(EnvError, match="the site must answer"):
            env.step(action)
        return
    result = env.step(action)
    assert result.terminated and not result.success and result.reward == 0.0
    assert result.observation.text == page.text


def test_nodes_with_one_proposal_are_counted_among_those_that_were_expanded() -> None:
    parent = np.array([-1, 0, 0, 1, 3, 4, 4, 4])  # the root has two children, 1 and 3 one, 4 three; 2, 5, 6 and 7 none
    n = len(parent)
    column = np.zeros(n)
    info = {"succeeded": False, "iterations": 3, "generated_tokens": 40, "env_steps": 7}
    task = Task("shop", 11, Split.VALIDATION, "buy")
    tree = TreeRecord(
        *(task, parent, column, column, column, column, column, [None] * n, [None] * n, column, column, [None] * n),
        info=info,
    )
    found = proposals.measured([tree], 16)
    assert found["one distinct"] == 2 / 4 and found["distinct"] == 7 / 4
    assert found["by_task"] == {"oracle": {"11": 0.0}, "rollouts": {"11": 16.0}}
