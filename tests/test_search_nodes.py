"""Python's half of a search's nodes, by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agentq._core import EXHAUSTED
from agentq.searching.faults import Broken, Resets
from agentq.searching.nodes import Node, ranked_children, record
from agentq.searching.run import wait_for
from agentq.searching.session import TRIES, SearchSession
from agentq.store.records import TERMINAL
from agentq.types import EnvAction, History, Observation, StepResult
from tests.records_factory import click, make_proposal, make_task
from tests.test_search import TASK, Lock

PAGE = Observation("page")
ENDS = ("terminated", "truncated")


class LastFirst:
    """A critic that prefers later proposals."""

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        return np.linspace(0.0, 1.0, len(proposals)).tolist()


def test_children_are_the_first_samples_of_distinct_actions_in_the_order_of_their_ranks() -> None:
    samples = [make_proposal(i, env_action=click(n)) for i, n in enumerate((7, 8, 7, 9))]
    node = Node(history=History("q", PAGE))
    children, first = wait_for(ranked_children(node, samples, None, 0))
    assert [child.proposal for child in children] == [samples[0], samples[1], samples[3]] and first is children[0]
    children, first = wait_for(ranked_children(node, samples, LastFirst(), 0))
    assert [child.proposal for child in children] == [samples[3], samples[1], samples[0]] and first is children[2]
    assert [child.value for child in children] == [1.0, 0.5, 0.0]


def test_children_sampled_more_often_come_first_and_the_rollout_still_takes_the_first_sample() -> None:
    samples = [make_proposal(i, env_action=click(n)) for i, n in enumerate((7, 8, 9, 8, 9, 9))]
    children, first = wait_for(ranked_children(Node(history=History("q", PAGE)), samples, None, 0))
    assert [child.proposal for child in children] == [samples[2], samples[1], samples[0]]
    assert first.proposal is samples[0]


def test_an_episode_ends_where_it_is_terminated_or_truncated() -> None:
    results = (StepResult(PAGE), StepResult(PAGE, terminated=True), StepResult(PAGE, truncated=True))
    assert [Node(result=result).ended for result in results] == [False, True, True] and not Node().ended


def test_a_broken_node_has_its_fault_and_does_not_end_an_episode() -> None:
    root = Node(history=History("q", PAGE))
    ended = Node(root, make_proposal(1), history=History("q", PAGE), result=StepResult(PAGE, 0.5, terminated=True))
    broken = Node(root, make_proposal(2), fault=Broken("timeout", "no answer"))
    numbers = {name: np.zeros(3) for name in ("depth", "visit_count", "value_sum", "critic_value")}
    table = {**numbers, "parent": np.array([-1, 0, 0]), "flags": np.array([0, *[TERMINAL | EXHAUSTED] * 2])}
    tree = record(make_task(), [root, ended, broken], table, {})
    assert tree.flags.tolist() == [0, TERMINAL | EXHAUSTED, EXHAUSTED]
    assert tree.error_kind == [None, None, "timeout"] and tree.reward.tolist() == [0.0, 0.5, 0.0]


def test_a_success_on_the_way_is_none_unless_the_episode_ends_with_it() -> None:
    root = Node(history=History("q", PAGE))
    shown = StepResult(PAGE, success=True)
    results = [shown, StepResult(PAGE, terminated=True), *(replace(shown, **{end: True}) for end in ENDS)]
    nodes = [root, *(Node(root, make_proposal(i), history=History("q", PAGE), result=r) for i, r in enumerate(results))]
    numbers = {name: np.zeros(5) for name in ("depth", "visit_count", "value_sum", "critic_value")}
    table = {**numbers, "parent": np.array([-1, 0, 0, 0, 0]), "flags": np.zeros(5, int)}
    tree = record(make_task(), nodes, table, {})
    assert tree.success.tolist() == [False, False, False, True, True]
    assert [node.won for node in nodes] == tree.success.tolist()


def test_a_node_that_broke_too_often_is_not_executed_again() -> None:
    env, counts, fault = Lock(), Counter[str](), Broken("timeout", "no answer")
    session = SearchSession(env, TASK, Resets(), counts, None)
    session.position = root = Node(history=History("q", env.reset(TASK)))
    for broke in (TRIES, TRIES - 1):
        node = Node(root, make_proposal(1, env_action=click(1)), broke=broke, fault=fault)
        wait_for(session.execute(node))
        given_up = broke == TRIES
        assert (node.fault is fault) == (node.history is None) == given_up and counts["env_steps"] == (not given_up)


def test_a_page_without_a_snapshot_is_reached_from_the_nearest_that_has_one() -> None:
    env, counts = Lock(), Counter[str]()
    session = SearchSession(env, TASK, Resets(), counts, None)
    session.position = path = Node(history=History("q", env.reset(TASK)), snapshot=())
    for element in (1, 2, 0):
        path = Node(path, make_proposal(element, env_action=click(element)))
        wait_for(session.execute(path))
    above = path.parent
    assert above is not None and above.snapshot == (1, 2)
    above.snapshot, session.position, counts["env_steps"] = None, None, 0
    again = Node(above, make_proposal(1, env_action=click(1)))
    wait_for(session.execute(again))
    assert again.fault is None and counts["env_steps"] == 2 and env.clicked == (1, 2, 1)
    assert above.restored == "approximate" and above.snapshot == (1, 2)
