"""`agentq train`: every recipe on both sites, refusals; credit reaches the loss with its sign."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agentq import envs
from agentq.agent.actions import parse_action
from agentq.cli import main
from agentq.config import Compared
from agentq.credit.episodes import credited, credited_branches, step_columns, turns_waited_for, with_replay
from agentq.credit.pairs import inspection_pairs
from agentq.errors import ConfigError
from agentq.learn.features import features
from agentq.learn.learner import Learner
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.scripted import ScriptedPolicy
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes import policy_gradient, ppo, step_agent_inverse
from agentq.recipes.load import load
from agentq.recipes.metrics import agreement
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Round
from agentq.recipes.settings import RECIPES, PolicyGradient
from agentq.searching.branching import Branching, at_random, branched, where_unsure
from agentq.searching.collect import StragglerCut, attempts, collect, inline, rollouts
from agentq.searching.demonstrate import demonstrate, inspect
from agentq.searching.rollout import RolloutSettings
from agentq.searching.run import run_all
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import (
    CreditedTrajectory,
    History,
    Observation,
    Proposal,
    Split,
    Step,
    StepResult,
    StopReason,
    Trajectory,
)
from tests.learn_factory import plain_logps, sample, tiny_llama
from tests.reads import given, keys, made, recorded_reads
from tests.recipes_factory import Quiet, expert_texts
from tests.train_factory import TINY, recipe_of, run, same, weights

QUICK = set(zip(RECIPES, cycle(envs.names()), strict=False))  # the other pairs are of make test-rest


@pytest.mark.parametrize(
    ("name", "env"),
    [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.rest) for pair in product(RECIPES, envs.names())],
)
def test_every_recipe_trains_on_every_site(name: str, env: str, base: Path, tmp_path: Path) -> None:
    more = ["--run.group_size=6"] if name in ("tree_grpo", "tree_rl", "tree_po", "arpo_entropy") else []
    with recorded_reads() as read:
        run(name, base, tmp_path / "run", [*TINY, f"--run.env={env}", *more])
    elsewhere = {"run.out", "run.executor", "run.workers", "run.constrained"}  # the command, and the policy
    assert read - elsewhere == keys(RECIPES[name]) - elsewhere
    (row,) = [r for r in json.loads((tmp_path / "run" / "summary.json").read_text()) if r["name"] == name]
    assert row["n"] == 1 and 0 <= row["low"] <= row["high"] <= 1 and row["env_steps"] > 0
    with RunStore.read(tmp_path / "run") as store:
        assert (store.note(f"{name}/round1/learn") or {})["items"] > 0
        logged = {line["stage"]: line for line in store.metrics()}
    assert logged[f"{name}/learn"]["grad_norm"] > 0
    assert {"reward/mean", "success"} <= logged[name].keys()
    assert not same(weights(tmp_path / "run", name), load_file(base / "model.safetensors"))
    left = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir() if path.is_dir()}
    assert left == {name, f"{name}.states"}  # the state lets the run grow


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grpoo"], "no recipe 'grpoo'; did you mean 'grpo'?"),
        (
            ["grpo", "--search.temperature=0.8"],
            "command line: agentq train grpo does not read search.temperature; "
            "it is read by agentq demo, agentq ladder, agentq eval --search and 7 more",
        ),
        (
            ["rloo", "--run.group_size=1"],
            "command line: run.group_size must be greater than or equal to 2; got '1'",
        ),
        (
            ["rloo", "--train.epochs=2"],
            "train.epochs must be 1 and train.batch_size at least run.num_tasks * run.group_size (240) for rloo, "
            "which is strictly on-policy; got 2 and 240",
        ),
        (["grpo", "--run.env=shpo"], "no environment 'shpo'; did you mean 'shop'?"),
        (
            ["rft", "--rft.num_tasks=9", "--rft.max_per_task=1"],
            "command line: agentq train rft does not read rft.num_tasks; it is read by agentq demo, agentq ladder",
        ),
    ],
)
def test_train_refuses_in_one_line_and_writes_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, f"--run.out={tmp_path / 'run'}"]) == 2
    assert capsys.readouterr().err == f"agentq: {message}\n"
    assert not (tmp_path / "run").exists()


def test_train_refuses_a_directory_of_another_recipe(base: Path, tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", {"recipe": "loop"}):
        pass
    with pytest.raises(ValueError, match="recipe"):
        RunStore.open(tmp_path / "run", {"recipe": "grpo"})


def test_recipe_defaults_lie_between_the_defaults_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[run]\ngroup_size = 3\nnum_tasks = 4\n")
    found = load(RECIPES["loop"], "train loop", file, given(["--run.num_tasks=5"]))
    assert (found.run.group_size, found.run.num_tasks, found.train.batch_size) == (3, 5, 32)  # type: ignore[attr-defined]
    for name, model in RECIPES.items():
        assert (recipe_of(name).name, recipe_of(name).settings) == (name, model)
        assert load(model, f"train {name}") == model()


# credit and loss, by hand


def of(**loss: Any) -> PolicyGradient:
    """Settings of a policy gradient with this section."""
    return PolicyGradient(policy_gradient=Compared(**loss))


def pair_of_trajectories() -> list[CreditedTrajectory]:
    """A success and a failure of two turns each; the first turn is the same."""
    first = sample([5, 6, 7], [8, 9, 3], [-1.0, -1.0, -1.0])
    good = (first, sample([5, 6, 8], [10, 3], [-1.0, -1.0]))
    bad = (first, sample([5, 6, 9], [11, 12, 3], [-1.0, -1.0, -1.0]))
    return [CreditedTrajectory(good, np.array([1.0, 1.0])), CreditedTrajectory(bad, np.array([-1.0, -1.0]))]


@pytest.mark.parametrize("ratio", ["none", "token", "turn", "sequence"])
def test_an_update_raises_a_success_and_lowers_a_failure(ratio: Any) -> None:
    learner = Learner(tiny_llama(), learning_rate=1e-3)
    items = policy_gradient.with_old_logps(learner, pair_of_trajectories())
    before = [float(plain_logps(learner.model, item.samples[1]).sum().detach()) for item in items]
    step = policy_gradient.policy_gradient()
    metrics = step(learner, items, of(ratio=ratio))
    after = [float(plain_logps(learner.model, item.samples[1]).sum().detach()) for item in items]
    assert after[0] > before[0] and after[1] < before[1]
    assert (
        metrics["ratio"] == pytest.approx(1.0, abs=1e-5)
        and metrics["clip_ratio/low_mean"] == metrics["clip_ratio/high_mean"] == 0
    )
    assert metrics["loss"] == pytest.approx(0.0, abs=1e-5)  # both means are 1, the advantages 1 and -1


@pytest.mark.parametrize("max_tokens", [None, 4])
@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
def test_the_loss_of_a_step_is_the_formula(average: Any, max_tokens: int | None) -> None:
    """REINFORCE's gradient: - sum_i A_i sum_t log pi / what the averaging says; shared turns count in both."""
    items = pair_of_trajectories()
    items[0] = CreditedTrajectory(items[0].samples, np.array([2.0, 0.5]))
    slow = tiny_llama()
    own = {"token": [1 / 11, 1 / 11], "sequence": [1 / 5 / 2, 1 / 6 / 2], "constant": [1 / 2, 1 / 2]}[average]
    total = sum(
        -(weight * a * plain_logps(slow, s).sum())
        for item, weight in zip(items, own, strict=True)
        for s, a in zip(item.samples, item.advantages.tolist(), strict=True)
    )
    assert isinstance(total, torch.Tensor)
    total.backward()
    wanted = torch.cat([p.grad.flatten() for p in slow.parameters() if p.grad is not None])

    learner = Learner(tiny_llama(), learning_rate=1e-3, max_grad_norm=1e9, max_tokens=max_tokens)
    step = policy_gradient.policy_gradient()
    metrics = step(learner, items, of(ratio="none", average=average))
    found = torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None])
    assert torch.allclose(found, wanted, atol=1e-5)
    assert metrics["grad_norm"] == pytest.approx(float(wanted.norm()), rel=1e-4)
    assert metrics["ratio"] == pytest.approx(1.0)  # a mean over tokens or trajectories, whatever the loss is


def test_a_clipped_ratio_stops_a_token_that_has_moved_enough() -> None:
    """Old log-probabilities 1 nat below: the success's ratio e is past 1.1 and has no gradient, the failure's has."""
    learner = Learner(tiny_llama(), learning_rate=1e-3)
    items = policy_gradient.with_old_logps(learner, pair_of_trajectories())
    moved = [
        CreditedTrajectory(
            tuple(sample(s.prompt_ids, s.token_ids, s.logps - 1) for s in i.samples[1:]), i.advantages[1:]
        )
        for i in items
    ]
    step = policy_gradient.policy_gradient()
    metrics = step(learner, moved, of(clip_low=0.1 / 1.1, clip_high=0.1))
    assert metrics["ratio"] == pytest.approx(np.e, rel=1e-4)
    assert metrics["clip_ratio/high_mean"] == pytest.approx(0.5) and metrics["clip_ratio/low_mean"] == 0
    assert metrics["approx_kl"] == pytest.approx(np.expm1(1.0) - 1.0, rel=1e-4)


# the straggler cut


def test_turns_waited_for_by_hand() -> None:
    lengths = {1: [3, 5, 9, 4], 2: [2, 8, 6]}  # one rollout of task 2 has not ended
    # 3 of 4 each: after 5 turns of task 1, 8 of task 2; 6 of all 8: after 8
    assert turns_waited_for(lengths, attempts=4, of_all=0.75, of_task=0.75) == 8
    assert turns_waited_for(lengths, attempts=4, of_all=0.75, of_task=0.25) == 8
    assert turns_waited_for(lengths, attempts=4, of_all=0.5, of_task=0.5) == 6
    assert turns_waited_for(lengths, attempts=4, of_all=0.5, of_task=0.25) == 5
    assert turns_waited_for(lengths, attempts=4, of_all=1.0, of_task=0.5) > 10**6
    assert turns_waited_for({1: [1, 2, 3, 4]}, attempts=6, of_all=0.0, of_task=0.75) == 4  # round(4.5), half to even
    assert turns_waited_for({1: [1, 2, 3, 4]}, attempts=5, of_all=0.0, of_task=0.75) == 4  # round(3.75)
    # of task 1's rollouts 2 broke, of task 2's 1: 2 of 2 and 2 of 3 after 5 and 6 turns, 3 of all 5 after 5
    broken = {1: 2, 2: 1}
    assert turns_waited_for({1: [3, 5], 2: [2, 8, 6]}, attempts=4, of_all=0.6, of_task=0.75, broken=broken) == 6
    assert turns_waited_for({1: [3, 5], 2: [2, 8, 6]}, attempts=4, of_all=0.6, of_task=0.75) > 10**6
    assert turns_waited_for({1: [], 2: [2]}, attempts=1, of_all=1.0, of_task=1.0, broken={1: 1}) == 2
    with pytest.raises(ValueError, match="of_all and of_task must be in"):
        turns_waited_for(lengths, attempts=4, of_all=1.5, of_task=0.5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("in_flight", [1, 5, 64])
def test_the_straggler_cut_keeps_the_same_rollouts_in_any_order(in_flight: int, seed: int, tmp_path: Path) -> None:
    def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
        stop = rng.random() < 0.2
        return ("COMMANDS: STOP" if stop else "COMMANDS: SCROLL DOWN"), -1.0

    tasks = envs.tasks("booking", Split.TRAIN, 3)
    cut, limits = StragglerCut(0.7, 0.5), {"attempts": 8, "of_all": 0.7, "of_task": 0.5}
    kept = []
    for name, chosen in (("all", None), ("cut", cut)):
        with RunStore.open(tmp_path / name, {}) as store:
            items, make = attempts(tasks, 8), partial(envs.make, "booking")
            work = rollouts(make, ScriptedPolicy(act), RolloutSettings(seed=seed), cut=chosen, items=items)
            seen: list[int] = []

            def on_item(done: int, total: int, won: bool, message: str, seen: list[int] = seen) -> None:
                seen.append(done)

            collect(store, "x", items, inline(work), in_flight=in_flight, on_item=on_item)
            assert seen == list(range(1, 25)) and (store.note("x") or {})["done"] == 24
            found = list(store.trajectories("x"))
        lengths: dict[int, list[int]] = {}
        for t in found:
            lengths.setdefault(t.task.seed, []).append(len(t.steps))
        turns = turns_waited_for(lengths, **limits)  # type: ignore[arg-type]
        kept.append([(t.task.seed, t.info["attempt"]) for t in found if len(t.steps) <= turns])
        if chosen and in_flight == 64:
            assert len(found) < 24  # some were not even finished
    assert kept[0] == kept[1] and 17 <= len(kept[0]) < 24


def test_credit_drops_after_the_baseline_and_keeps_rows_with_their_trajectory(base: Path, tmp_path: Path) -> None:
    run("grpo", base, tmp_path / "run", TINY)
    with RunStore.read(tmp_path / "run") as store:
        episodes: list[Trajectory] = list(store.trajectories("grpo/round1/collect"))
    columns = step_columns(episodes)
    assert len(columns.reward) == sum(len(t.steps) for t in episodes) == len(columns.anchor)
    assert [columns.reward[columns.trajectory == i].sum() for i in range(len(episodes))] == columns.returns.tolist()
    advantages = columns.trajectory.astype(float)  # 0 for the first episode, which is dropped
    items = credited(episodes, advantages)
    assert [len(item.samples) for item in items] == [len(t.steps) for t in episodes[1:]]
    assert [set(item.advantages) for item in items] == [{float(i)} for i in range(1, len(episodes))]
    assert len(credited(episodes, advantages, drop_below=1.5)) == len(episodes) - 2
    with pytest.raises(ConfigError, match="advantages must be finite"):
        credited(episodes, np.where(np.arange(len(advantages)) == 1, np.nan, advantages))
    with pytest.raises(ConfigError, match="one entry per step"):
        credited(episodes, advantages[1:])
    with pytest.raises(ValueError, match="at least 0"):
        credited(episodes, advantages, drop_below=-1)


def test_an_unknown_setting_of_a_recipe_is_named() -> None:
    with pytest.raises(ConfigError, match=r"command line: unknown key 'run\.groups'; did you mean 'run.group_size'"):
        load(RECIPES["loop"], "train loop", None, given(["--run.groups=3"]))


# replay and inspection


def episode(seed: int, success: bool, mark: int) -> Trajectory:
    """One turn of task `seed`."""
    task = envs.task("booking", Split.TRAIN, seed)
    page = Observation("page")
    proposal = Proposal(
        parse_action("COMMANDS: STOP"),
        *(np.array([5], np.int32), np.array([mark, 3], np.int32), np.full(2, -0.5, np.float32)),
        *(StopReason.EOS, 0, 1.0),
    )
    reward = float(success)
    return Trajectory(
        task, (Step(page, proposal, StepResult(page, reward, terminated=True, success=success)),), reward, success
    )


def test_with_replay_puts_a_success_where_none_succeeded() -> None:
    episodes = [episode(s, s == 2 and m == 11, m) for s in (1, 2, 3) for m in (10, 11)]
    old = [episode(1, True, m) for m in range(20, 25)] + [episode(2, True, 30)]
    found, replayed = with_replay(episodes, old, capacity=2, seed=0)
    assert replayed == [True, False, False, False, False, False]  # task 2 has a success, task 3 no stored one
    assert all(a is b for a, b in zip(found[1:], episodes[1:], strict=True))
    drawn = [with_replay(episodes, old, capacity=2, seed=s)[0][0] for s in range(20)]
    assert {int(t.steps[0].proposal.token_ids[0]) for t in drawn} == {23, 24}  # the last two of task 1
    assert with_replay(episodes, [], capacity=2, seed=0)[1] == [False] * 6
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        with_replay(episodes, old, capacity=0, seed=0)


def test_arpo_replay_keeps_the_recorded_logps_of_what_it_replays(base: Path, tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", {}) as store:
        settings = made(RECIPES["arpo_replay"], ["--run.group_size=2"])
        for name, t in (("1/0", episode(1, True, 20)), ("1/1", episode(1, False, 10))):
            store.add_trajectory("arpo_replay/round1/collect", name, t)
        for i, mark in enumerate((11, 12)):
            store.add_trajectory("arpo_replay/round2/collect", f"1/{i}", episode(1, False, mark))
        learner = Learner(tiny_llama(), learning_rate=1e-3)
        r = Round(Pipeline(store, settings, base, Quiet()), settings, "arpo_replay", 2, base, base, learner)
        fresh, replayed = recipe_of("arpo_replay").credit(r)
    assert fresh.samples[0].token_ids.tolist() == [12, 3] and replayed.samples[0].token_ids.tolist() == [20, 3]
    assert fresh.advantages == pytest.approx([-(0.5**0.5)], rel=1e-5) and replayed.advantages == -fresh.advantages
    assert replayed.samples[0].logps.tolist() == [-0.5, -0.5]
    assert fresh.samples[0].logps == pytest.approx(plain_logps(learner.model, fresh.samples[0]).detach().numpy())


def test_inspection_lets_the_agent_act_at_every_state_of_the_expert(base: Path) -> None:
    task, env = envs.task("shop", Split.TRAIN, 0), envs.make("shop")
    engine = TransformersEngine(base)
    policy = ModelPolicy(engine)
    demonstration = asyncio.run(demonstrate(env, envs.expert("shop"), task, policy.write))
    assert demonstration.success and np.isnan(demonstration.steps[0].proposal.logps).all()
    written = demonstration.steps[0].proposal
    assert engine.renderer.decode(written.token_ids) == written.action.text
    assert written.token_ids[-1] in engine.renderer.end_ids
    seen: list[History] = []
    expert = [step.proposal.action.text for step in demonstration.steps]

    def act(history: History, rng: np.random.Generator) -> tuple[str, float]:
        seen.append(history)  # the expert's own action at its first state, STOP at all others
        return (expert[0] if not history.actions else "COMMANDS: STOP"), -1.0

    found: list[TreeRecord] = []
    policy = ScriptedPolicy(act)
    run_all([demonstration], lambda t: inspect(t, policy, RolloutSettings()), in_flight=1, on_done=found.append)
    assert [list(h.actions) for h in seen] == [expert[:t] for t in range(len(expert))]
    assert [h.observation for h in seen] == [step.observation for step in demonstration.steps]
    (tree,) = found
    assert tree.path(2 * len(expert) - 1) == [0, *range(1, 2 * len(expert), 2)]
    pairs = inspection_pairs(tree)
    assert agreement([tree]) == pytest.approx(1 - len(pairs) / len(expert))
    stops = ["COMMANDS: STOP" in text for text in expert]
    assert len(pairs) == len(expert) - 1 - sum(stops[1:]) > 0  # the same actions at the first state and at the end
    assert [p.chosen[0].token_ids.tolist() for p in pairs] == [
        step.proposal.token_ids.tolist() for step in demonstration.steps[1 : 1 + len(pairs)]
    ]
    assert all(p.rejected[0].logps.tolist() == [-1.0] for p in pairs)


# branching


def branch(
    act: Callable[[History, np.random.Generator], tuple[str, float]], branching: Branching, *, initial: int, total: int
) -> TreeRecord:
    """A branched tree of a booking task."""
    found: list[TreeRecord] = []
    policy, task = ScriptedPolicy(act), envs.task("booking", Split.TRAIN, 0)
    settings = RolloutSettings(seed=1)

    async def work(_: int) -> TreeRecord:
        env = envs.make("booking")
        return await branched(env, task, policy, settings, initial=initial, total=total, branching=branching)

    run_all([0], work, in_flight=1, on_done=found.append)
    return found[0]


EXPERT = expert_texts(envs.task("booking", Split.TRAIN, 0))


def follows(history: History, rng: np.random.Generator) -> tuple[str, float]:
    """The expert's first four actions, then STOP; the third is unsure (2 nats), the others say a tenth."""
    turn = len(history.actions)
    return ("COMMANDS: STOP" if turn == 4 else EXPERT[turn]), -2.0 if turn == 2 else -0.1


def test_branches_go_on_from_the_state_of_their_node() -> None:
    tree = branch(follows, at_random(2), initial=2, total=8)
    ends, labels = tree.info["ends"], tree.info["trees"]
    assert len(ends) == 8 and labels == [0, 1] * 4 and tree.visit_count[0] == 8
    assert all(tree.depth[end] == 5 for end in ends)  # what was done before a branch counts
    for end in ends[2:]:
        task, env = tree.task, envs.make("booking")
        pages = [env.reset(task)]
        for node in tree.path(end)[1:]:
            proposal = tree.proposal[node]
            assert proposal is not None
            pages.append(env.step(proposal.action.env_action).observation)
        assert pages == [tree.observation[node] for node in tree.path(end)]
    shared = [len(set(tree.path(a)) & set(tree.path(b))) for i, a in enumerate(ends) for b in ends[:i]]
    assert max(shared) > 1  # not all from the root
    again = branch(follows, at_random(2), initial=2, total=8)
    assert again.parent.tolist() == tree.parent.tolist()


def test_where_unsure_branches_after_the_page_that_surprised_and_then_starts_afresh() -> None:
    tree = branch(follows, where_unsure, initial=2, total=6)
    ends = tree.info["ends"]
    # two rollouts, one place each: the node before the unsure third action; then no place is left
    assert [tree.parent[tree.path(end)[3]] for end in ends[2:4]] == [tree.path(ends[0])[2], tree.path(ends[1])[2]]
    assert tree.info["trees"] == [0, 1, 0, 1, 4, 5]
    assert [len(set(tree.path(ends[0])) & set(tree.path(end))) for end in ends] == [6, 1, 3, 1, 1, 1]
    sure = branch(lambda h, rng: (follows(h, rng)[0], -0.1), where_unsure, initial=2, total=4)
    assert sure.info["trees"] == [0, 1, 2, 3]


def test_branching_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ConfigError, match=r"initial must be in \[1, 2\]; got 3"):
        branch(follows, where_unsure, initial=3, total=2)


def test_credited_branches_puts_a_shared_beginning_in_each_rollout() -> None:
    tree = branch(follows, where_unsure, initial=2, total=4)
    tree.info["returns"] = [1.0, 0.0, 0.0, 0.0]

    def advantages(returns: np.ndarray, trees: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        assert trees.tolist() == [0, 1, 0, 1] and set(tasks) == {tree.task.seed}
        return returns - [0.0, 0.5, 0.25, 0.0]

    first, second, third = credited_branches([tree], advantages)
    assert first.advantages.tolist() == [1.0] * 5 and third.advantages.tolist() == [-0.25] * 5
    assert [a is b for a, b in zip(first.samples, third.samples, strict=True)] == [False] * 5  # new objects
    shared = [a.token_ids is b.token_ids for a, b in zip(first.samples, third.samples, strict=True)]
    assert shared == [True, True, False, False, False]
    assert not any(a.token_ids is b.token_ids for a, b in zip(first.samples, second.samples, strict=True))


# heads beside the model


@pytest.mark.parametrize("max_tokens", [None, 24])
def test_features_are_the_hidden_states_before_and_at_the_end_of_an_action(max_tokens: int | None) -> None:
    learner = Learner(tiny_llama(), learning_rate=1e-3, max_tokens=max_tokens)
    first = sample([5, 6, 7], [8, 9, 10, 3])
    samples = [first, sample([5, 6, 7], [11, 3]), sample([5, 9], [3]), first]
    before, after = features(learner, samples)
    for i, s in enumerate(samples):
        ids = torch.tensor([[*s.prompt_ids.tolist(), *s.token_ids[:-1].tolist()]])
        with torch.no_grad():
            hidden = learner.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[0]
        assert torch.allclose(before[i], hidden[len(s.prompt_ids) - 1], atol=1e-5)
        assert torch.allclose(after[i], hidden[-1], atol=1e-5)
    assert features(learner, [])[0].shape == (0, 32)


def test_features_are_computed_in_the_type_of_the_policys_logps() -> None:
    found = set[torch.dtype]()
    learner = Learner(tiny_llama(), learning_rate=1e-3, bf16=True)
    learner.model.get_decoder().layers[0].mlp.register_forward_hook(lambda module, given, out: found.add(out.dtype))
    states, _ = features(learner, [sample([5, 6, 7], [8, 3])])
    assert found == {torch.bfloat16} and states.dtype == torch.float32


def test_ppos_ridge_head_learns_returns() -> None:
    states = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    returns = (states[:, 0] > 0).double()
    weight = ppo.fit(states, returns)
    guess = ppo.raw_values(states, weight).clip(0, 1)
    assert ppo.explained_variance(guess, returns.numpy()) > 0.5
    assert ppo.explained_variance(np.full(400, 0.5), returns.numpy()) == pytest.approx(0.0, abs=1e-9)
    assert ppo.fit(torch.zeros(4, 2), torch.tensor([1.0, 0.0, 1.0, 0.0]))[-1] == pytest.approx(0.5)  # the bias is free


def test_ppo_uses_the_head_of_the_round_before(base: Path, tmp_path: Path) -> None:
    run("ppo", base, tmp_path / "run", [*TINY, "--run.num_rounds=2", "--policy_gradient.values=ridge"])
    with RunStore.read(tmp_path / "run") as store:
        explained = [line["explained_variance"] for line in store.metrics() if line["stage"] == "ppo/value"]
    assert explained[0] == pytest.approx(0.0, abs=1e-9) and abs(explained[1]) > 1e-6


def test_a_discriminator_tells_what_can_be_told() -> None:
    states = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    is_expert = torch.tensor([1.0, 0.0]).repeat(50)
    states[:, 0] += 3.0 * is_expert
    logits = step_agent_inverse.discriminate(states, is_expert)
    assert ((logits > 0) == is_expert.bool()).double().mean() > 0.85
    assert torch.equal(logits, step_agent_inverse.discriminate(states, is_expert))  # no draws
    known = torch.arange(100) < 80
    states[80:] *= -1  # what it has not been fitted to does not matter
    assert (step_agent_inverse.discriminate(states, is_expert, known) > 0)[80::2].double().mean() < 0.3
