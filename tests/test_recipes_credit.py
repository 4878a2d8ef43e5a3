"""Advantages of every recipe on a hand-made store, without a model: values derived by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentq.credit.episodes import Branches, credited_forest
from agentq.recipes import policy_gradient, ppo, step_agent_inverse
from agentq.recipes.metrics import agreement
from agentq.searching.demonstrate import rolled_out, with_rollout
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Sample
from tests.credit_factory import GROUPS, WON, by_mark, credit, episode, round_of, with_groups, with_tree
from tests.records_factory import click, make_proposal, make_trajectory, make_tree

TASK_1, TASK_2 = range(5), range(5, 10)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with RunStore.open(tmp_path / "run", {}) as opened:
        yield opened


# Advantages. Returns of task 1: 1 0 0 0 1, of task 2: 1 0 0 0 0

GRPO = [(0.6 / sqrt(0.3), -0.4 / sqrt(0.3)), (0.8 / sqrt(0.2), -0.2 / sqrt(0.2))]  # means 0.4, 0.2; variances 0.3, 0.2
OF_A_WIN_AND_A_FAILURE = {  # in task 1 and in task 2
    "reinforce": [(0.7, -0.3)] * 2,  # minus the round's mean, 3 / 10
    "rloo": [(1 - 1 / 4, -2 / 4), (1, -1 / 4)],  # minus the mean of the other four
    "grpo": GRPO,
    "dapo": GRPO,
    "gspo": GRPO,
    "arpo_replay": GRPO,
}


@pytest.mark.parametrize("name", OF_A_WIN_AND_A_FAILURE)
def test_returns_are_compared_as_the_recipe_says(name: str, store: RunStore) -> None:
    found = by_mark(credit(with_groups(round_of(name, store))))
    for tasks, (win, failure) in zip((TASK_1, TASK_2), OF_A_WIN_AND_A_FAILURE[name], strict=True):
        for mark in tasks:
            want = [win if mark in WON else failure] * len(GROUPS[mark][1])
            assert found[mark] == pytest.approx(want, rel=1e-5), mark


def test_loop_leaves_out_stragglers_before_the_baseline(store: RunStore) -> None:
    # 9 of all 10 rollouts, 4 of each task's 5 (0.75 * 5, rounded), end within 3 turns; the success with 4 is cut
    found = by_mark(credit(with_groups(round_of("loop", store))))
    assert found.keys() == set(range(10)) - {4}
    assert found[0] == pytest.approx([1.0] * 2) and found[3] == pytest.approx([-1 / 3] * 3)
    assert found[5] == pytest.approx([1.0]) and found[9] == pytest.approx([-1 / 4])


def test_loop_drops_episodes_with_hardly_an_advantage(store: RunStore) -> None:
    r = round_of("loop", store)
    for mark in range(5):  # returns 0.008, 0, 0, 0, 0: advantages 0.008 and -0.002
        few = replace(episode(1, "p", False, mark), return_=0.008 if mark == 0 else 0.0)
        store.add_trajectory(r.stage, f"1/{mark}", few)
        store.add_trajectory(r.stage, f"2/{mark}", episode(2, "p", mark == 0, 5 + mark))
    assert by_mark(credit(r)).keys() == set(range(5, 10))


def test_gigpo_adds_what_a_step_has_over_others_on_its_page(store: RunStore) -> None:
    found = by_mark(credit(with_groups(round_of("gigpo", store))))
    # Page p of task 1: returns to go 0.95, 0, 0, 0, 0.95^3, mean 0.361475. Page q: 1 and 0. The others were met once.
    mean = (0.95 + 0.95**3) / 5
    assert found[0] == pytest.approx([0.6 + 0.95 - mean, 0.6 + 0.5])
    assert found[1] == found[2] == pytest.approx([-0.4 - mean])
    assert found[3] == pytest.approx([-0.4 - mean, -0.4 - 0.5, -0.4])
    assert found[4] == pytest.approx([0.6 + 0.95**3 - mean, 0.6, 0.6, 0.6])
    # Page a of task 2: 1, 0, 0
    assert found[5] == pytest.approx([0.8 + 2 / 3]) and found[7] == pytest.approx([-0.2 - 1 / 3, -0.2])


def test_arpo_replays_a_success_of_an_earlier_round_among_failures(store: RunStore) -> None:
    earlier, now = (round_of("arpo_replay", store, number=n, gap=1.0) for n in (1, 2))
    store.add_trajectory(earlier.stage, "1/0", episode(1, "p", True, 20))
    store.add_trajectory(earlier.stage, "1/1", episode(1, "p", False, 21))
    for mark in (10, 11):
        store.add_trajectory(now.stage, f"1/{mark}", episode(1, "p", False, mark))
    fresh, replayed = credit(now)
    # returns 1 and 0: +- 0.5 / sqrt(0.5); the replayed one keeps what its sampler recorded
    assert by_mark([fresh, replayed]) == {
        11: pytest.approx([-sqrt(0.5)], rel=1e-5),
        20: pytest.approx([sqrt(0.5)], rel=1e-5),
    }
    assert fresh.samples[0].logps.tolist() == [-1.5, -1.5] and replayed.samples[0].logps.tolist() == [-0.5, -0.5]
    assert fresh.sampled[0].tolist() == [-0.5, -0.5] and replayed.sampled is None


def test_ppos_ridge_values_a_round_by_the_head_of_the_round_before(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_turns(learner: object, samples: Sequence[Sample]) -> tuple[torch.Tensor, None]:
        return torch.tensor([[float(s.token_ids[1] == 0)] for s in samples]), None

    monkeypatch.setattr(ppo, "features", first_turns)
    words = ["--policy_gradient.values=ridge"]
    one, two = (by_mark(credit(with_groups(round_of("ppo", store, words, number=n)))) for n in (1, 2))
    # Round 1: value 0.3 everywhere. Whitened over 17 steps, 7 of them won: variance 17 / 16 * 7 / 17 * 10 / 17
    sd = sqrt(70 / 272)
    assert one[0] == pytest.approx([10 / 17 / sd] * 2, rel=1e-4) and one[8] == pytest.approx([-7 / 17 / sd], rel=1e-4)
    # Round 2: ridge 1 on 10 first turns (3 won) and 7 later ones (4 won): weight -19 / 87, bias 47 / 87, so the values
    # are 28 / 87 and 47 / 87, and return minus value in units of 1 / 87:
    sd = sqrt((3 * 59**2 + 7 * 28**2 + 4 * 40**2 + 3 * 47**2) / 16)
    assert two[0] == pytest.approx([59 / sd, 40 / sd], rel=1e-4)
    assert two[3] == pytest.approx([-28 / sd, -47 / sd, -47 / sd], rel=1e-4)
    explained = [line["explained_variance"] for line in store.metrics() if line["stage"] == "ppo/value"]
    # 1 - (mean square of the residuals) / (70 / 289)
    assert explained == [pytest.approx(0), pytest.approx(1 - 28958 / 17 / 87**2 / (70 / 289), abs=1e-6)]


def test_ppo_values_a_round_by_the_head_trained_so_far(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_turns(learner: object, samples: Sequence[Sample]) -> tuple[torch.Tensor, None]:
        return torch.tensor([[float(s.token_ids[1] == 0)] for s in samples]), None

    monkeypatch.setattr(ppo, "features", first_turns)
    r = with_groups(round_of("ppo", store))
    learner: Any = r.learner
    learner.heads = {"value_head": torch.nn.Parameter(torch.tensor([-0.25, 1.125]))}  # 0.875 first, 1.125 later
    items = credit(r)
    # Values are in [0, 1], so returns minus values: 10 first turns, 3 won: 0.125, else -0.875; 7 later: 0 and -1
    advantages = np.array([0.125] * 3 + [-0.875] * 7 + [0.0] * 4 + [-1.0] * 3)
    mean, sd = advantages.mean(), advantages.std(ddof=1)
    found = by_mark(items)
    assert found[0] == pytest.approx([(0.125 - mean) / sd, -mean / sd], rel=1e-4)
    assert found[3] == pytest.approx([(-0.875 - mean) / sd, *[(-1 - mean) / sd] * 2], rel=1e-4)
    kept = {int(item.samples[0].token_ids[0]): item.values.tolist() for item in items}
    assert kept[0] == [[1, 0.875], [1, 1.125]] and kept[3] == [[0, 0.875], [0, 1.125], [0, 1.125]]  # not clipped


@pytest.mark.parametrize("name", ["tree_grpo", "arpo_entropy"])
def test_branched_rollouts_are_compared_in_their_task_and_in_their_tree(name: str, store: RunStore) -> None:
    # Rollouts that end at 2, 4, 3, 5: the third branches off from the first, the fourth is in the tree of the second.
    tree = replace(
        make_tree(1, 6),
        parent=np.array([-1, 0, 1, 1, 0, 0]),
        depth=np.array([0, 1, 2, 2, 1, 1]),
        error_kind=[None] * 6,
        info={"ends": [2, 4, 3, 5], "returns": [1.0, 0.0, 0.0, 0.0], "trees": [0, 1, 0, 1]},
    )
    items = credit(with_tree(round_of(name, store), tree))
    assert [len(item.samples) for item in items] == [2, 1, 2, 1]
    # In the task: mean 1/4, deviation 1/2. In the first tree: 1 and 0, deviation sqrt(1/2); in the second: 0 and 0.
    own = sqrt(0.5) if name == "tree_grpo" else 0.0
    want = [1.5 + own, -0.5, -0.5 - own, -0.5]
    assert [item.advantages[0] for item in items] == pytest.approx(want, rel=1e-5)


def test_branched_rollouts_are_credited_by_the_nodes_of_their_trees(store: RunStore) -> None:
    """Rollouts that end at 2, 3 and 4, of which the first two share node 1."""
    tree = replace(
        make_tree(1, 5),
        parent=np.array([-1, 0, 1, 1, 0]),
        depth=np.array([0, 1, 2, 2, 1]),
        error_kind=[None] * 5,
        info={"ends": [2, 3, 4], "returns": [1.0, 0.0, 0.0], "trees": [0, 0, 1]},
    )
    # V: root 1/3, node 1 1/2, node 2 1, nodes 3 and 4 0.
    # tree_rl: node 1 gets 2 (1/2 - 1/3) / sqrt 2; node 2 (1 - 1/3) + (1 - 1/2), node 3 -1/3 - 1/2, node 4 -2/3.
    shared = 1 / 3 / sqrt(2)
    items = credit(with_tree(round_of("tree_rl", store), tree))
    assert [item.advantages.tolist() for item in items] == [
        pytest.approx([shared, 7 / 6]),
        pytest.approx([shared, -5 / 6]),
        pytest.approx([-2 / 3]),
    ]
    # tree_po: the root by 3 and node 1 by 2: (3 * 2/3 + 2 * 1/2) / 5 = 0.6, (3 * -1/3 + 2 * -1/2) / 5 = -0.4, -1/3.
    own = np.array([0.6, -0.4, -1 / 3])
    items = credit(with_tree(round_of("tree_po", store), tree))
    want = (own - own.mean()) / own.std(ddof=1)
    assert [len(item.advantages) for item in items] == [2, 2, 1]
    assert [item.advantages[0] for item in items] == pytest.approx(want.tolist(), rel=1e-5)
    assert items[0].advantages[0] == items[0].advantages[1]


def test_credit_by_nodes_keeps_trees_apart() -> None:
    """Two trees of two nodes each become nodes 0 to 3, whose second root is 2."""
    trees = [
        replace(make_tree(seed, 3), error_kind=[None] * 3, info={"ends": [1], "returns": [value], "trees": [0]})
        for seed, value in ((1, 0.5), (2, 1.0))
    ]
    seen: list[Branches] = []

    def advantages(b: Branches) -> list[np.ndarray]:
        seen.append(b)
        return [np.full(len(path), float(path[0])) for path in b.paths]

    items = credited_forest(trees, advantages)
    (b,) = seen
    assert b.parent.tolist() == [*trees[0].parent.tolist(), -1, *(trees[1].parent[1:] + 3).tolist()]
    assert b.ends.tolist() == [1, 4] and b.returns.tolist() == [0.5, 1.0]
    assert [item.advantages.tolist() for item in items] == [[1.0], [4.0]]


def inspection() -> TreeRecord:
    """Three states of an expert (1, 3, 5), in the first of which the agent (2, 4, 6) acts as the expert does."""
    actions = [click(n) for n in (1, 1, 3, 4, 5, 6)]
    proposals = [make_proposal(i, env_action=action) for i, action in enumerate(actions, start=1)]
    for i in (0, 2, 4):
        proposals[i] = replace(proposals[i], logps=np.full(3, np.nan, np.float32))
    more = {"parent": np.array([-1, 0, 0, 1, 1, 3, 3]), "depth": np.array([0, 1, 1, 2, 2, 3, 3])}
    return replace(make_tree(1, 7), **more, proposal=[None, *proposals], error_kind=[None] * 7)


def test_step_agent_implicit_prefers_the_expert_where_the_agent_differs(store: RunStore) -> None:
    tree = inspection()
    pairs = credit(with_tree(round_of("step_agent_implicit", store), tree))
    assert [p.chosen[0].token_ids.tolist() for p in pairs] == [tree.proposal[i].token_ids.tolist() for i in (3, 5)]
    assert [p.rejected[0].token_ids.tolist() for p in pairs] == [tree.proposal[i].token_ids.tolist() for i in (4, 6)]
    assert all(set(side[0].logps) == {-9.0} for p in pairs for side in (p.chosen, p.rejected))  # the expert's: unknown


def test_step_agent_inverse_pays_the_agent_the_logits_of_its_own_actions(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Renderer:
        def encode_answer(self, text: str) -> np.ndarray:
            return np.array([int(text.removeprefix("COMMANDS: CLICK [").removesuffix("]"))])

    def ids(learner: object, samples: Sequence[Sample]) -> tuple[None, torch.Tensor]:
        assert [int(s.token_ids[0]) for s in samples] == [1, 1, 3, 4, 5, 6] * trees
        return None, torch.zeros(6 * trees, 2)

    def logits(states: torch.Tensor, is_expert: torch.Tensor, fitted: torch.Tensor | None = None) -> torch.Tensor:
        assert states.shape == (6 * trees, 2) and is_expert.tolist() == [1, 0, 1, 0, 1, 0] * trees
        if fitted is None:
            return torch.tensor([3.0, 2.0, 1.0, -2.0, -1.0, 0.0] * trees)
        assert fitted.tolist() == [True] * 24 + [False] * 6  # the fifth task is held out
        return torch.tensor([-1.0, 1.0] * 12 + [3.0, 2.0, 1.0, -2.0, -1.0, 0.5])

    trees = 1
    monkeypatch.setattr(step_agent_inverse, "features", ids)
    monkeypatch.setattr(step_agent_inverse, "discriminate", logits)
    r = with_tree(round_of("step_agent_inverse", store), inspection())
    monkeypatch.setattr(step_agent_inverse, "load_renderer", lambda checkpoint, template: Renderer())
    items = credit(r)
    assert [item.advantages.tolist() for item in items] == [pytest.approx([a], abs=1e-5) for a in (1, -1, 0)]
    tokens = [p.token_ids.tolist() for p in inspection().proposal[2::2] if p is not None]
    assert [item.samples[0].token_ids.tolist() for item in items] == tokens
    assert all(item.sampled is None for item in items)  # the learner agrees with the agent's; the expert has none
    (logged,) = [line for line in store.metrics() if line["stage"] == "step_agent_inverse/inspection"]
    assert logged["agreement"] == pytest.approx(1 / 3) and "discriminator_accuracy" not in logged  # no task to spare
    trees, r = 5, round_of("step_agent_inverse", store, number=2)
    for seed in range(5):
        tree = inspection()
        with_tree(r, replace(tree, task=replace(tree.task, seed=seed)))
    assert len(credit(r)) == 15
    logged = [line for line in store.metrics() if line["stage"] == "step_agent_inverse/inspection"][-1]
    # of the two states of the fifth task that differ, both actions of the first are told apart, none of the second
    assert logged["discriminator_accuracy"] == 0.5


def test_step_agent_inverse_pays_the_steps_of_the_agents_episodes_too(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Renderer:
        def encode_answer(self, text: str) -> np.ndarray:
            return np.array([int(text.removeprefix("COMMANDS: CLICK [").removesuffix("]"))])

    def ids(learner: object, samples: Sequence[Sample]) -> tuple[None, torch.Tensor]:
        assert [int(s.token_ids[0]) for s in samples] == [1, 1, 3, 4, 5, 6, 7, 8]
        return None, torch.zeros(8, 2)

    def logits(states: torch.Tensor, is_expert: torch.Tensor, fitted: torch.Tensor | None = None) -> torch.Tensor:
        assert is_expert.tolist() == [1, 0, 1, 0, 1, 0, 0, 0] and fitted is None
        return torch.tensor([9.0, 2.0, 9.0, -2.0, 9.0, 0.0, 1.0, -1.0])

    monkeypatch.setattr(step_agent_inverse, "features", ids)
    monkeypatch.setattr(step_agent_inverse, "discriminate", logits)
    monkeypatch.setattr(step_agent_inverse, "load_renderer", lambda checkpoint, template: Renderer())
    own = make_trajectory(7, 2, success=False)
    steps = [replace(s, proposal=make_proposal(n, env_action=click(n))) for n, s in zip((7, 8), own.steps, strict=True)]
    tree = with_rollout(inspection(), replace(own, task=inspection().task, steps=tuple(steps)))
    assert (tree.parent[7:].tolist(), tree.depth[7:].tolist(), tree.info["rollout"]) == ([0, 7], [1, 2], 7)
    assert [p and p.token_ids.tolist() for p in rolled_out(tree)] == [s.proposal.token_ids.tolist() for s in steps]
    assert tree.info["env_steps"] == inspection().info.get("env_steps", 0) + 2
    items = credit(with_tree(round_of("step_agent_inverse", store), tree))
    unit = sqrt(2.5)  # rewards 2 -2 0 | 1 -1: mean 0, variance 10 / 4
    wanted = [[2 / unit], [-2 / unit], [0], [1 / unit, -1 / unit]]
    assert [item.advantages.tolist() for item in items] == [pytest.approx(each, abs=1e-5) for each in wanted]
    assert [s.token_ids.tolist() for s in items[3].samples] == [s.proposal.token_ids.tolist() for s in steps]
    assert agreement([tree]) == agreement([inspection()]) == pytest.approx(1 / 3)


def test_a_broken_episode_leaves_an_inspection_as_it_is_but_for_the_cost() -> None:
    own = make_trajectory(7, 2)
    lost = replace(own.steps[1], result=replace(own.steps[1].result, error_kind="browser_lost"))
    tree = with_rollout(inspection(), replace(own, steps=(own.steps[0], lost)))
    assert len(tree) == len(inspection()) and not rolled_out(tree)
    assert tree.info["env_steps"] == inspection().info.get("env_steps", 0) + 2


# Old log-probabilities and the reference


def test_old_log_probabilities_are_the_learners_unless_the_samplers_agree(store: RunStore) -> None:
    same, own = (credit(with_groups(round_of("grpo", store, number=n, gap=n - 1.0)))[0] for n in (1, 2))
    assert same.samples[0].logps.tolist() == [-0.5, -0.5] and same.sampled is None
    assert own.samples[0].logps.tolist() == [-1.5, -1.5] and own.sampled[0].tolist() == [-0.5, -0.5]
    near = credit(with_groups(round_of("grpo", store, ["--train.logp_tolerance=2"], number=3, gap=1.0)))[0]
    assert near.samples[0].logps.tolist() == [-0.5, -0.5]


def test_old_log_probabilities_are_the_learners_if_the_sampler_told_none(store: RunStore) -> None:
    r = round_of("grpo", store)
    for mark, won in ((0, True), (1, False)):
        (step,) = (t := episode(1, "p", won, mark)).steps
        silent = replace(step, proposal=replace(step.proposal, logps=np.full(2, np.nan, np.float32)))
        store.add_trajectory(r.stage, f"1/{mark}", replace(t, steps=(silent,)))
    assert all(item.sampled is not None for item in credit(r))


def test_the_kl_term_is_to_the_start_of_the_run(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_start(learner: object, start: Path, samples: Sequence[Sample]) -> list[np.ndarray]:
        assert start == Path("start")
        return [np.full(2, -float(s.token_ids[0])) for s in samples]

    monkeypatch.setattr(policy_gradient, "reference_logps", of_start)
    items = credit(with_groups(round_of("grpo", store, ["--policy_gradient.kl_weight=0.1"])))
    assert [item.reference[0][0] for item in items] == [-float(mark) for mark in range(10)]
    assert credit(with_groups(round_of("grpo", store, number=2)))[0].reference is None
