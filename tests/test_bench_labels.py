"""Lessons of a run, judged by the expert: pairs, and actions that are copied."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import numpy as np
from labels import early_stops, of_episode, of_tree, replayed

from agentq.store.records import TreeRecord
from agentq.types import Command, EnvAction, Observation, Proposal, Trajectory
from tests.records_factory import make_proposal
from tests.test_evaluation_correction import EXPERT, TASK, episode, site

SETTINGS = {"alpha": 1.0, "threshold": 0.1, "min_visits": 1, "max_pairs_per_node": 0}


def grown(paths: list[Trajectory], better: int) -> TreeRecord:
    """A tree of the paths, which part at the root; path `better` has the value 1, the others 0."""
    parent, depth = [-1], [0]
    proposals: list[Proposal | None] = [None]
    pages: list[Observation | None] = [paths[0].steps[0].observation]
    success, value = [False], [0.0]
    for number, path in enumerate(paths):
        for i, step in enumerate(path.steps):
            parent.append(0 if i == 0 else len(parent) - 1)
            depth.append(i + 1)
            proposals.append(step.proposal)
            pages.append(step.result.observation)
            success.append(step.result.success)
            value.append(float(number == better))
    n = len(parent)
    return TreeRecord(
        TASK,
        parent=np.array(parent),
        depth=np.array(depth),
        visit_count=np.ones(n),
        value_sum=np.array(value),
        critic_value=np.zeros(n),
        flags=np.zeros(n),
        proposal=proposals,
        observation=pages,
        reward=np.array(success, float),
        success=np.array(success),
        error_kind=[None] * n,
    )


def stopped_at_once() -> Trajectory:
    """An episode whose only step is a STOP."""
    other = episode({})
    stop = make_proposal(99, env_action=EnvAction(Command.STOP))
    return replace(other, steps=(replace(other.steps[0], proposal=stop),))


def test_steps_left_fall_by_one_along_the_experts_way_and_are_infinite_after_a_wrong_stop() -> None:
    done = episode({})
    n = len(done.steps)
    left, shown = replayed(site(), EXPERT, TASK, [None, *((i, s.proposal) for i, s in enumerate(done.steps))])
    assert left == list(range(n, -1, -1)) and shown[1:] == [s.result.observation for s in done.steps]
    stop = make_proposal(99, env_action=EnvAction(Command.STOP))
    left, shown = replayed(site(), EXPERT, TASK, [None, (0, stop), (1, stop), None, (3, stop)])
    assert left == [n, inf, inf, inf, inf] and shown[2:] == [None, None, None]


def test_copied_actions_are_right_idle_or_wrong() -> None:
    plain = episode({})
    assert Counter(of_episode(site(), EXPERT, plain)) == {"copy right": len(plain.steps), "STOP copied": 1}
    idle = Counter(of_episode(site(), EXPERT, episode({2: "SCROLL DOWN"})))
    assert idle == {"copy right": len(plain.steps), "copy idle": 1, "STOP copied": 1}
    wrong = Counter(of_episode(site(), EXPERT, episode({0: "TYPE [1] another"})))
    assert wrong == {"copy right": len(plain.steps), "copy wrong": 1, "STOP copied": 1}
    assert not list(of_episode(site(), EXPERT, replace(plain, success=False)))


def test_a_pair_is_right_if_the_expert_finishes_sooner_after_the_chosen_action() -> None:
    paths = [episode({}), episode({0: "SCROLL DOWN"})]
    for better, verdict in ((0, "pair right"), (1, "pair wrong")):
        found = Counter(of_tree(site(), EXPERT, grown(paths, better), SETTINGS))
        assert found["pair right"] + found["pair wrong"] + found["pair level"] == found[verdict] == 1
    n = len(paths[0].steps)  # both paths are copied
    assert (found["copy right"], found["copy idle"], found["copy wrong"]) == (2 * n, 1, 0)
    assert (found["STOP copied"], found["STOP chosen"], found["STOP rejected"]) == (2, 0, 0)


def test_a_stop_is_counted_where_a_pair_chooses_or_rejects_it() -> None:
    stop = stopped_at_once()
    for better, word in ((0, "STOP rejected"), (1, "STOP chosen")):
        found = Counter(of_tree(site(), EXPERT, grown([episode({}), stop], better), SETTINGS))
        assert (found["STOP chosen"], found["STOP rejected"]) == (word == "STOP chosen", word == "STOP rejected")


def test_what_a_search_has_to_set_against_a_stop_that_came_too_early() -> None:
    stop = stopped_at_once()
    assert list(early_stops(grown([stop], 1), [1.0, inf])) == ["no sibling"]
    for better, told in ((0, "a sibling gained"), (1, "no sibling gained")):
        tree = grown([episode({}), stop], better)
        tree.value_sum[-1] = 0.0
        assert list(early_stops(tree, [1.0] * len(tree))) == [told]
        assert not list(early_stops(tree, [inf] * len(tree)))  # success was lost before
        assert Counter(of_tree(site(), EXPERT, tree, SETTINGS))[told] == 1
    tree.visit_count[1:-1] = 0
    assert list(early_stops(tree, [1.0] * len(tree))) == ["no sibling was tried"]
