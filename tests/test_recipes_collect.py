"""What every recipe collects, and the pairs and demonstrations that some make of it, without a model."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentq.recipes import dapo, here, rounds
from agentq.recipes.pipeline import search_settings
from agentq.recipes.settings import RECIPES, OnPolicy
from agentq.searching.branching import where_unsure
from agentq.searching.collect import StragglerCut
from agentq.searching.selection import SearchSettings
from agentq.store.records import TreeRecord
from agentq.store.run import TREE, RunStore
from agentq.types import Observation, PreferencePair
from tests.credit_factory import GROUPS, WON, credit, episode, round_of, with_groups, with_tree
from tests.records_factory import make_tree
from tests.train_factory import recipe_of


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with RunStore.open(tmp_path / "run", {}) as opened:
        yield opened


# Preferences and demonstrations


def searched() -> TreeRecord:
    """Three actions at the root, values W/N 1, 0, 0 and critic's 0, 1, 0.5; the first leads on to a success at 4."""
    return replace(
        make_tree(1, 5),
        parent=np.array([-1, 0, 0, 0, 1]),
        depth=np.array([0, 1, 1, 1, 2]),
        visit_count=np.array([5, 2, 2, 1, 2]),
        value_sum=np.array([2.0, 2.0, 0.0, 0.0, 2.0]),
        critic_value=np.array([0.5, 0.0, 1.0, 0.5, 0.5]),
        error_kind=[None] * 5,
        observation=[Observation(f"page {i}") for i in range(5)],
    )


@pytest.mark.parametrize(
    ("words", "pairs", "replayed"),
    [
        ([], [(1, 3), (1, 2)], [1, 4]),  # Q = 0.75, 0.25, 0.125: gaps 0.625 and 0.5
        (["--pairs.alpha=0.7"], [(1, 3)], [1, 4]),  # 0.7, 0.3, 0.15
        (["--pairs.threshold=0.55"], [(1, 3)], [1, 4]),
        (["--pairs.min_visits=2"], [(1, 2)], [1, 4]),
        (["--pairs.max_pairs_per_node=1"], [(1, 3)], [1, 4]),
        (["--critic.model=none", "--pairs.threshold=0.9"], [(1, 2), (1, 3)], [1, 4]),  # W / N alone: 1, 0, 0
        (["--train.sft_weight=0"], [(1, 3), (1, 2)], []),
    ],
)
def test_agent_q_pairs_siblings_by_blended_value_and_replays_successes(
    words: list[str], pairs: list[tuple[int, int]], replayed: list[int], store: RunStore
) -> None:
    tree = searched()
    node = {tuple(p.token_ids.tolist()): i for i, p in enumerate(tree.proposal) if p is not None}
    items = credit(with_tree(round_of("agent_q", store, words), tree))
    found = [[node[tuple(s.token_ids.tolist())] for s in (p.chosen[0], p.rejected[0])] for p in items[: len(pairs)]]
    assert found == [list(pair) for pair in pairs]
    assert [node[tuple(s.token_ids.tolist())] for s in items[len(pairs) :]] == replayed


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_the_reference_of_pairs_is_recorded_only_if_the_learner_agrees(gap: float, store: RunStore) -> None:
    items = credit(with_tree(round_of("agent_q", store, gap=gap), searched()))
    pairs = [item for item in items if isinstance(item, PreferencePair)]
    assert [set(p.rejected[0].logps) == {-9.0} for p in pairs] == [bool(gap)] * 2


def test_outcome_dpo_draws_two_pairs_per_task(store: RunStore) -> None:
    drawn = set()
    for seed in range(6):
        pairs = credit(with_groups(round_of("outcome_dpo", store, [f"--run.seed={seed}"], number=1 + seed)))
        marks = [tuple(int(side[0].token_ids[0]) for side in (p.chosen, p.rejected)) for p in pairs]
        assert [task for task, *_ in (GROUPS[chosen] for chosen, _ in marks)] == [1, 1, 2, 2]
        assert all(chosen in WON and rejected not in WON for chosen, rejected in marks)
        assert all(len(p.chosen) == len(GROUPS[chosen][1]) for p, (chosen, _) in zip(pairs, marks, strict=True))
        drawn.add(tuple(marks))
    assert len(drawn) > 1


def test_outcome_dpo_pairs_the_attempts_at_a_task_whatever_instruction_they_were_given(store: RunStore) -> None:
    """Where the reset tells the instruction, an attempt without a first page has none."""
    r = round_of("outcome_dpo", store)
    for mark in range(4):
        t = episode(1, "p", mark == 0, mark)
        if mark == 1:
            t = replace(t, task=replace(t.task, instruction=""), steps=(), info={"error_kind": "reset_failed"})
        store.add_trajectory(r.stage, f"1/{mark}", t)
    marks = [tuple(int(side[0].token_ids[0]) for side in (p.chosen, p.rejected)) for p in credit(r)]
    assert sorted(marks) == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("name", "words", "marks"),
    [
        ("rft", [], [0, 0, 4, 4, 4, 4, 5]),
        ("rft", ["--rft.max_per_task=1"], [0, 0, 5]),
        ("ei", ["--rft.max_per_task=0"], [0, 0, 4, 4, 4, 4, 5]),
        ("sft", [], [mark for mark, (_, pages, _) in enumerate(GROUPS) for _ in pages]),
    ],
)
def test_imitation_takes_the_actions_of_successes_or_all(
    name: str, words: list[str], marks: list[int], store: RunStore
) -> None:
    assert [int(s.token_ids[0]) for s in credit(with_groups(round_of(name, store, words)))] == marks


# What is collected: in the second round of two tasks each, from task 10 on


BRANCHED = ("tree_grpo", "tree_rl", "tree_po", "arpo_entropy")


class Collected(Exception):
    """What a recipe asked its pipeline to collect."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_round_collects_the_tasks_and_attempts_of_its_recipe(
    name: str, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = round_of(name, store, ["--search.temperature=0.7", "--run.first_task=10"], number=2)

    def collect(stage: str, items: Any, job: Any, **more: Any) -> None:
        raise Collected(stage, items, job.keywords, more)

    monkeypatch.setattr(r.pipeline, "collect", collect)
    with pytest.raises(Collected) as found:
        recipe_of(name).collect(r)
    stage, items, job, more = found.value.args
    first = {"dapo": 6, "arpo_replay": 0, "step_agent_implicit": 0, "step_agent_inverse": 0}.get(name, 2)
    alone = name in ("sft", "agent_q", *BRANCHED, "step_agent_implicit", "step_agent_inverse")
    attempts = range(1 if alone else 5)
    assert [(i.task.seed, i.attempt) for i in items] == [(10 + first + t, a) for a in attempts for t in range(2)]
    assert stage == f"{name}/round2/collect" and job["policy"] == Path("policy")
    assert (more.get("kind") == TREE) == (alone and name != "sft")
    assert job.get("rollout", False) == (name == "step_agent_inverse")
    if name == "agent_q":
        assert (job["settings"].temperature, job["settings"].num_iterations, job["stage"]) == (0.7, 8, stage)
    elif name != "sft":
        on_policy = isinstance(r.settings, OnPolicy)
        assert (job["sampling"].temperature, job["sampling"].seed) == (1.0 if on_policy else 0.7, r.seed)
    assert job.get("cut") == (StragglerCut(of_all=0.9, of_task=0.75) if name == "loop" else None)
    by_name = {"arpo_entropy": (3, where_unsure), "tree_rl": (1, where_unsure), "tree_po": (2, None)}
    initial, branching = (by_name | {"tree_grpo": (2, None)}).get(name, (None, None))
    assert (job.get("initial"), job.get("total")) == (initial, 5 if initial else None)
    assert branching in (None, job.get("branching"))


def test_seeds_of_rounds_differ(store: RunStore) -> None:
    assert len({round_of("grpo", store, number=n).seed for n in range(1, 9)}) == 8


def test_dapo_tries_other_tasks_until_enough_groups_teach(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    r, waves = round_of("dapo", store), []

    def collect(stage: str, items: Any, job: Any, **_: Any) -> None:
        waves.append(len({item.task.seed for item in items}))
        for item in items:
            won = item.task.seed in (1, 3) and item.attempt == 0  # the groups of 0, 2, 4 and 5 fail alike
            store.add_trajectory(stage, item.key, episode(item.task.seed, "p", won, item.task.seed))

    monkeypatch.setattr(r.pipeline, "collect", collect)
    recipe_of("dapo").collect(r)
    assert waves == [2, 3, 4]  # one of the first two teaches, so one more is tried, and again


def test_dapo_learns_from_the_tasks_of_one_process_if_shards_tried_more(store: RunStore) -> None:
    r = round_of("dapo", store)
    for seed, attempt in product(range(6), range(r.settings.run.group_size)):
        store.add_trajectory(r.stage, f"{seed}/{attempt}", episode(seed, "p", seed > 0 and attempt == 0, seed))
    assert {t.task.seed for t in dapo.tried(r, list(store.trajectories(r.stage)))} == {0, 1, 2}  # 1 and 2 teach


def test_a_search_has_the_settings_of_its_run(store: RunStore) -> None:
    words = ["num_proposals=3", "temperature=0.6", "c_exp=0.4", "selection=puct", "leaves_in_flight=2", "alpha=0.7"]
    settings = round_of("agent_q", store, [f"--search.{word}" for word in words]).settings
    assert search_settings(settings.search, 9, 4) == SearchSettings(9, 3, 0.6, 0.4, False, 4, "puct", 2, 0.7)
    assert search_settings(settings.search, 9, 4, stop_on_success=True).stop_on_success


def test_warm_up_is_a_share_of_the_first_rounds_steps(store: RunStore) -> None:
    one, two = (round_of("grpo", store, ["--train.warmup_fraction=0.25"], number=n) for n in (1, 2))
    assert here._warmup(one, 10) == 3 and here._warmup(two, 100) == 3
    short, none = (
        round_of(name, store, words) for name, words in (("rft", []), ("sft", ["--train.warmup_fraction=0"]))
    )
    assert here._warmup(short, 4) == 1  # the first of few steps of AdamW would be as large as the rate
    assert here._warmup(none, 4) == 0


def test_rounds_of_average_size_fit_the_limit(store: RunStore) -> None:
    for number, steps in ((1, 30), (2, 50)):
        store.set_note(f"grpo/round{number}/learn", {"env_steps": steps})
    limited = {n: round_of("grpo", store, [f"--run.max_env_steps={n}"], number=3) for n in (0, 119, 120)}
    assert [rounds._affordable(r) for r in limited.values()] == [10, 2, 3]  # of 10; 80 so far, 40 a round
    assert (
        rounds._affordable(round_of("grpo", store, ["--run.max_env_steps=1"])) == 1
    )  # the first, of which nothing is known
