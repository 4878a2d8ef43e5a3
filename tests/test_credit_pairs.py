"""Credit: pairs and samples from hand-made trees and episodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agentq.credit.pairs import blended_values, node_pairs, trajectory_pairs, weighed_pairs
from agentq.credit.samples import success_samples, success_steps, tree_success_samples
from agentq.critics.ranker import linear_rank_values
from agentq.results import SearchResult
from agentq.store.records import TreeRecord
from agentq.types import Observation, PreferencePair, Step, StepResult, Trajectory
from tests.records_factory import click, make_proposal, make_task, make_trajectory, make_tree


def star(mean: list[float], critic: list[float], visits: list[int] | None = None) -> TreeRecord:
    """A root with one child a value."""
    k = len(mean)
    n = np.array([1, *(visits or [4] * k)])
    return TreeRecord(
        task=make_task(),
        parent=np.array([-1] + [0] * k),
        depth=np.array([0] + [1] * k),
        visit_count=n,
        value_sum=np.array([0.5, *mean]) * n,
        critic_value=np.array([0.5, *critic]),
        flags=np.zeros(k + 1),
        proposal=[None, *(make_proposal(i, env_action=click(i)) for i in range(1, k + 1))],
        observation=[None] * (k + 1),
        reward=np.zeros(k + 1),
        success=np.zeros(k + 1),
        error_kind=[None] * (k + 1),
    )


def nodes(tree: TreeRecord, pairs: list[PreferencePair]) -> list[tuple[int, int, float]]:
    """(chosen node, rejected node, gap) of each pair, found by the arrays' identity."""
    index = {id(p.token_ids): i for i, p in enumerate(tree.proposal) if p is not None}
    return [(index[id(p.chosen[0].token_ids)], index[id(p.rejected[0].token_ids)], p.gap) for p in pairs]


def test_linear_rank_values_golden() -> None:
    assert linear_rank_values(5) == [1, 0.75, 0.5, 0.25, 0]
    assert linear_rank_values(1) == [0.5]
    assert linear_rank_values(2) == [1, 0]
    with pytest.raises(ValueError, match="k must be at least 1; got 0"):
        linear_rank_values(0)


def test_blended_values_golden() -> None:
    tree = star([1, 0, 0.5], [0.5, 1, 0])
    assert blended_values(tree, 0.5)[1:] == [0.75, 0.5, 0.25]
    assert blended_values(tree, 1.0)[1:] == [1, 0, 0.5] and blended_values(tree, 0.0)[1:] == [0.5, 1, 0]
    assert blended_values(star([1, 0, 0.5], [0.5, 0.5, 0.5]), 0.5)[1:] == [1, 0, 0.5]  # the critic told nothing
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]; got 1.5"):
        blended_values(tree, 1.5)


def test_node_pairs_golden() -> None:
    # Q = [.75, .5, .25]; only the first and the third differ by .3 or more.
    tree = star([1, 0, 0.5], [0.5, 1, 0])
    pairs = node_pairs(tree, alpha=0.5, threshold=0.3)
    assert nodes(tree, pairs) == [(1, 3, 0.5)]
    chosen, proposal = pairs[0].chosen[0], tree.proposal[1]
    assert proposal is not None
    assert (chosen.prompt_ids is proposal.prompt_ids) and (chosen.logps is proposal.logps)


def test_a_results_pairs_blend_the_critic_only_if_one_ranked() -> None:
    mean = [0.6, 0.0, 0.0]  # without a critic the gap is 0.6; a quarter of a constant would make it 0.45
    without = SearchResult(star(mean, [0.5, 0.5, 0.5])).pairs()
    assert [pair.gap for pair in without] == pytest.approx([0.6, 0.6])
    ranked = SearchResult(star(mean, [0.5, 1.0, 0.0])).pairs()
    assert [pair.gap for pair in ranked] == pytest.approx([0.45 + 0.125])
    assert SearchResult(star([], [])).pairs() == []


def test_node_pairs_at_the_threshold_count_and_come_largest_gap_first() -> None:
    tree = star([1, 0, 0.5], [0.5, 1, 0])
    assert nodes(tree, node_pairs(tree, alpha=0.5, threshold=0.25)) == [(1, 3, 0.5), (1, 2, 0.25), (2, 3, 0.25)]
    assert nodes(tree, node_pairs(tree, alpha=0.5, threshold=0.25, max_pairs_per_node=2)) == [(1, 3, 0.5), (1, 2, 0.25)]


@pytest.mark.parametrize(
    ("mean", "critic", "alpha", "threshold", "gap"),
    [
        ([0.6, 0.4], [0.5, 0.5], 1.0, 0.2, 0.2),  # 0.6 - 0.4 is less than 0.2 in floating point
        ([2 / 3, 1 / 3], [0.5, 0.5], 1.0, 1 / 3, 0.333333),
        ([1, 0.5], [0.5, 2 / 3], 0.75, 1 / 3, 0.333333),  # a critic's values are stored in 32 bits
        ([0.6, 0.4], [0.5, 0.5], 1.0, 0.20001, None),
        ([1 / 3, 2 / 3], [2 / 3, 1 / 3], 0.5, 0.0, None),  # equal, but for rounding
    ],
)
def test_rounding_decides_about_no_pair(
    mean: list[float], critic: list[float], alpha: float, threshold: float, gap: float | None
) -> None:
    tree = star(mean, critic)
    found = nodes(tree, node_pairs(tree, alpha=alpha, threshold=threshold))
    assert found == ([] if gap is None else [(1, 2, gap)])
    (weighed,) = weighed_pairs(tree, alpha=alpha, threshold=threshold)
    told = {None: f"gap below {threshold:g}" if threshold else "no gap"}.get(gap, "")
    assert (weighed.gap, weighed.dropped) == (pytest.approx(gap or abs(0.2 * bool(threshold))), told)


def test_node_pairs_without_critic_use_the_mean_alone() -> None:
    tree = star([0, 1, 1], [1, 0.5, 0])
    assert nodes(tree, node_pairs(tree, alpha=1.0, threshold=0.0)) == [(2, 1, 1.0), (3, 1, 1.0)]  # 2 and 3 tie: no pair


def test_node_pairs_need_both_actions_explored() -> None:
    tree = star([1, 0, 0], [1, 0.5, 0], visits=[1, 2, 0])
    assert nodes(tree, node_pairs(tree, alpha=0.5, threshold=0.1)) == [(1, 2, 0.75)]
    assert node_pairs(tree, alpha=0.5, threshold=0.1, min_visits=2) == []


def test_node_pairs_of_deeper_nodes_are_capped_per_node() -> None:
    tree = make_tree(seed=3, num_nodes=40)
    everything = node_pairs(tree, alpha=0.5, threshold=0.1)
    parents = [tree.parent[chosen] for chosen, _, _ in nodes(tree, everything)]
    assert parents == sorted(parents)
    assert len(set(parents)) > 3
    capped = node_pairs(tree, alpha=0.5, threshold=0.1, max_pairs_per_node=1)
    assert len(capped) == len(set(parents)) < len(everything)


def test_node_pairs_refuse_siblings_that_are_one_action() -> None:
    tree = star([1, 0], [1, 0])
    tree.proposal[2] = make_proposal(2, env_action=click(1))
    with pytest.raises(ValueError, match=r"siblings must be different env_actions; got 'CLICK \[1\]' at nodes 1 and 2"):
        node_pairs(tree, alpha=0.5, threshold=0.1)


def test_node_pairs_reject_unreadable_actions_but_never_prefer_one_to_another() -> None:
    tree = star([1, 0, 0], [1, 0.5, 0])
    tree.proposal[2], tree.proposal[3] = make_proposal(2), make_proposal(3)
    assert nodes(tree, node_pairs(tree, alpha=0.5, threshold=0.1)) == [(1, 3, 1.0), (1, 2, 0.75)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": -0.1}, "threshold must be at least 0; got -0.1"),
        ({"threshold": float("nan")}, "threshold must be at least 0; got nan"),
        ({"min_visits": 0}, "min_visits must be at least 1; got 0"),
        ({"max_pairs_per_node": -1}, "max_pairs_per_node must be at least 0; got -1"),
        ({"alpha": -0.5}, r"alpha must be in \[0, 1\]; got -0.5"),
    ],
)
def test_node_pairs_refuse_wrong_arguments(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        node_pairs(star([1, 0], [1, 0]), **({"alpha": 0.5, "threshold": 0.2} | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_node_pairs_are_those_of_equation_10(alpha: float, limit: int) -> None:
    rng = np.random.default_rng(limit)
    for _ in range(20):
        n = int(rng.integers(1, 9))
        visits, critic = rng.integers(0, 4, n), rng.integers(0, 5, n) / 4
        mean = np.where(visits > 0, rng.integers(0, 3, n) / 2, 0.0)
        q = alpha * mean + (1 - alpha) * critic
        gap = np.round(q[:, None] - q[None, :], 6)
        both = (visits > 0)[:, None] & (visits > 0)[None, :] & (gap >= 0.25)
        want = sorted((-gap[c, r], c + 1, r + 1) for c, r in zip(*np.nonzero(both), strict=True))[: limit or None]
        tree = star(mean.tolist(), critic.tolist(), visits.tolist())
        found = nodes(tree, node_pairs(tree, alpha=alpha, threshold=0.25, max_pairs_per_node=limit))
        assert found == [(c, r, -less) for less, c, r in want]


def test_trajectory_pairs_put_each_success_against_each_failure() -> None:
    wins = [make_trajectory(0, steps) for steps in (2, 3)]
    losses = [make_trajectory(0, steps, success=False) for steps in (1, 4, 5)]
    pairs = trajectory_pairs([*wins, *losses])
    assert sorted((len(p.chosen), len(p.rejected)) for p in pairs) == [(w, x) for w in (2, 3) for x in (1, 4, 5)]
    assert {p.gap for p in pairs} == {1.0}
    step = wins[0].steps[1].proposal  # could not be read, and counts all the same
    assert any(p.chosen[1].token_ids is step.token_ids for p in pairs)
    assert trajectory_pairs(wins) == trajectory_pairs(losses) == []
    assert trajectory_pairs([wins[0], make_trajectory(0, 4, return_=0.5)]) == []  # both succeeded


def test_trajectory_pairs_prefer_large_gaps_and_draw_among_equal_ones() -> None:
    win = make_trajectory(0, 2)
    losses = [make_trajectory(0, 3 + i, success=False, return_=r) for i, r in enumerate([0.5] * 4 + [0.0] * 4)]
    kept = [trajectory_pairs([win, *losses], max_pairs=5, seed=seed) for seed in range(8)]
    assert all([p.gap for p in pairs] == [1, 1, 1, 1, 0.5] for pairs in kept)
    assert len({len(pairs[4].rejected) for pairs in kept}) > 1  # which of the equal ones follows from the seed
    again = trajectory_pairs([win, *losses], max_pairs=5, seed=3)
    assert [len(p.rejected) for p in again] == [len(p.rejected) for p in kept[3]]
    assert len(trajectory_pairs([win, *losses], threshold=0.6)) == 4


def test_trajectory_pairs_refuse_two_tasks() -> None:
    with pytest.raises(ValueError, match=r"must be of one task; got \[\('booking', 0\), \('booking', 1\)\]"):
        trajectory_pairs([make_trajectory(0), make_trajectory(1)])


def test_success_samples_keep_readable_steps_of_distinct_successes() -> None:
    wins = [make_trajectory(0, 3), make_trajectory(0, 3), make_trajectory(0, 4), make_trajectory(1, 2)]
    loss = make_trajectory(0, 5, success=False)
    samples = success_samples([loss, *wins])
    # 3 steps less the unreadable second; the same again is left out; 4 less 1; 2 less 1.
    assert [len(s.token_ids) for s in samples] == [1, 3, 1, 3, 4, 1]
    assert [len(s.token_ids) for s in success_samples([loss, *wins], max_per_task=1)] == [1, 3, 1]


def test_success_samples_leave_out_what_was_done_before_on_the_same_page() -> None:
    win = make_trajectory(0, 4)
    again = dataclasses.replace(win.steps[3], proposal=win.steps[0].proposal, observation=win.steps[0].observation)
    elsewhere = dataclasses.replace(win.steps[3], proposal=win.steps[0].proposal)
    assert [len(s.token_ids) for s in success_samples([win])] == [1, 3, 4]
    repeated = dataclasses.replace(win, steps=(*win.steps[:3], again))
    assert [len(s.token_ids) for s in success_samples([repeated])] == [1, 3]
    moved = dataclasses.replace(win, steps=(*win.steps[:3], elsewhere))
    assert [len(s.token_ids) for s in success_samples([moved])] == [1, 3, 1]


def test_success_samples_leave_out_detours_but_not_the_way_back() -> None:
    pages = {name: Observation(f"page {name}", "/") for name in "ABCD"}

    def won(*steps: tuple[str, str], keeps_pages: bool = False) -> list[str]:
        """What is kept of a success of these (page, action)."""
        taken = [
            Step(pages[page], make_proposal(i, env_action=click(ord(action))), StepResult(pages[page]))
            for i, (page, action) in enumerate(steps)
        ]
        task = dataclasses.replace(make_task(), keeps_pages=keeps_pages)
        return ["".join(steps[i]) for i in success_steps(Trajectory(task, tuple(taken), 1.0, True))]

    there_and_back = (("A", "x"), ("B", "y"), ("A", "z"), ("C", "v"))
    assert won(*there_and_back) == ["By", "Az", "Cv"]  # y is the way back from a wrong step
    assert won(*there_and_back, keeps_pages=True) == ["Ax", "By", "Az", "Cv"]
    again = (("A", "x"), ("B", "y"), ("A", "x"), ("B", "z"), ("C", "v"))
    assert won(*again) == ["Ax", "Bz", "Cv"]  # x led on in the end
    in_place = (("A", "x"), ("A", "y"), ("B", "z"))
    assert won(*in_place) == ["Ax", "Ay", "Bz"]  # a page that shows nothing of an action is not left


def test_success_samples_tell_tasks_of_two_environments_apart() -> None:
    win = make_trajectory(0, 3)
    other = dataclasses.replace(win, task=make_task(0, env="shop"))
    assert len(success_samples([win, other], max_per_task=1)) == 4


def test_tree_success_samples_are_the_actions_on_paths_to_success_once() -> None:
    # 0 - 1 - 4, 0 - 1 - 5, 0 - 2 - 8, 0 - 3; 5 and 8 succeed; 1 is shared, 4 leads nowhere
    tree = make_tree(num_nodes=12)
    tree.success = np.isin(np.arange(12), [5, 8])
    tree.observation = [Observation(f"page {i}", "/") for i in range(12)]
    want = [tree.proposal[i] for i in (1, 2, 5, 8)]
    assert [s.token_ids for s in tree_success_samples(tree)] == [p.token_ids for p in want if p is not None]

    tree.proposal[5] = dataclasses.replace(tree.proposal[5], action=tree.proposal[1].action)  # again, on the same page
    tree.observation[1] = tree.observation[0]
    tree.proposal[8] = make_proposal(8, env_action=None)
    assert [s.token_ids for s in tree_success_samples(tree)] == [p.token_ids for p in want[:2] if p is not None]

    tree.success = np.zeros(12, bool)
    assert tree_success_samples(tree) == []
