"""What `benchmarks/critic.py` compares critics with, and the answers that `critic_forms` teaches."""

from __future__ import annotations

from math import inf

import pytest
from critic import expert_states, pair_accuracy, steps_after, wrong
from critic_forms import in_form

from agentq import envs
from agentq.agent.prompts import LETTER_QUESTION, RANKING_QUESTION, critic_answer, critic_messages
from agentq.agent.verdicts import parse_ranking
from agentq.base.exercises import TrainingExample
from agentq.types import Command, EnvAction, History, Observation


def test_pair_accuracy_counts_pairs_with_different_true_values() -> None:
    values = [[1.0, 0.5, 0.0], [0.0, 1.0]]
    steps = [[4, 6, 6], [3, inf]]  # two pairs ordered rightly, one equal; one pair ordered wrongly
    found = pair_accuracy(values, steps)
    assert (found.hits, found.n, found.chance) == (2, 3, 0.5)


def test_a_pair_is_wrong_if_the_better_one_is_not_ranked_higher() -> None:
    assert wrong([1.0, 0.5, 0.0], [4.0, 2.0, inf]) == [(1, 0)]
    assert wrong([0.5, 0.5], [1.0, 2.0]) == wrong([0.0, 0.5], [1.0, 2.0]) == [(0, 1)]
    assert not wrong([0.5, 0.0], [3.0, 3.0])


@pytest.mark.parametrize("name", ["booking", "shop"])
def test_steps_after_an_action_are_the_experts_way_to_success(name: str) -> None:
    states = expert_states(name, 1)
    env = envs.make(name)
    left = [steps_after(env, name, task, snapshot, wanted) for _, wanted, task, snapshot in states]
    assert left == [len(states) - i for i in range(len(states))]
    _, _, task, snapshot = states[0]
    assert steps_after(env, name, task, snapshot, EnvAction(Command.STOP)) == inf
    assert steps_after(env, name, task, snapshot, None) == len(states) + 1  # unreadable: one step more


def test_exercises_take_the_form_of_each_method() -> None:
    listed = [EnvAction(Command.CLICK, i) for i in (3, 4, 5)]
    messages = critic_messages(History("q", Observation("heading A")), listed)
    example = TrainingExample(messages, critic_answer(listed[1], "B"))
    assert in_form(example, 0) == example
    letters, ranking = in_form(example, 1), in_form(example, 2)
    assert letters.answer == "B" and letters.messages[1]["content"].endswith(f"CLICK [5] (C)\n{LETTER_QUESTION}")
    assert parse_ranking(ranking.answer, 3) == [1, 0, 2] and ranking.messages[1]["content"].endswith(RANKING_QUESTION)
