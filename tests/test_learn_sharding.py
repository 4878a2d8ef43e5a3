"""The learner in two processes: the steps, log-probabilities and files of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from agentq.errors import ConfigError, ModelError
from agentq.learn import sharding
from agentq.learn.batch import Part, plan_step
from agentq.learn.epochs import train
from agentq.learn.features import features
from agentq.learn.learner import Learner, Metrics
from agentq.learn.reference import reference_logps
from agentq.learn.value_head import HEAD, beside, new_head
from agentq.types import CreditedTrajectory, PreferencePair, Sample
from tests.learn_factory import (
    VOCAB,
    agent_samples,
    exact,
    node_pairs,
    plain_logps,
    random_sample,
    sample,
    tiny_gpt2,
    tiny_llama,
    tiny_moe,
    tiny_qwen,
    tiny_windowed,
    tokenizer,
    trajectory_pairs,
)
from tests.ranks_factory import TIMEOUT_S, Workers, two_ranks

MODELS: dict[str, Any] = {
    "llama": tiny_llama,
    "qwen": tiny_qwen,
    "windowed": tiny_windowed,
    "gpt2": tiny_gpt2,
    "moe": tiny_moe,
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Workers]:
    with two_ranks() as workers:
        yield workers


def learner(
    model: str = "llama", *, seed: int = 0, float64: bool = True, shard: bool = True, **settings: Any
) -> Learner:
    made = MODELS[model](seed)
    defaults = {"learning_rate": 1e-2, "max_grad_norm": 0.5, "shard": shard}
    return Learner(exact(made) if float64 else made, **(defaults | settings))


def recorded_pairs() -> list[PreferencePair]:
    """Node and trajectory pairs of very different lengths, with another model's log-probabilities as reference."""
    pairs = node_pairs(0, 4) + trajectory_pairs(1, 3)
    return Learner(tiny_llama(1), learning_rate=1.0).recompute_reference(pairs)


def samples() -> list[Sample]:
    rng = np.random.default_rng(5)
    return [*agent_samples("append", "mcts"), *(random_sample(rng) for _ in range(5))]


def step_sft(trained: Learner) -> Metrics:
    items = samples()
    return trained.step_sft(items, [(-1) ** i * (1 + i / 8) for i in range(len(items))])


def step_dpo(trained: Learner) -> Metrics:
    return trained.step_dpo(recorded_pairs(), samples()[:3], beta=0.3, sft_weight=0.5)


def step_one_item(trained: Learner) -> Metrics:
    """Fewer items than ranks."""
    return trained.step_sft([sample([1, 2, 3], [4, 5])])


def step_group(trained: Learner) -> Metrics:
    """Items of several samples, each with an advantage; not linear in the log-probabilities."""
    items = [samples()[start : start + 3] for start in range(0, 12, 3)]
    advantages = torch.tensor([1.0, -0.5, 0.25, -0.75], dtype=torch.float64)

    def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        totals = [logps[list(rows)][part.action_mask[list(rows)]].sum() for rows in part.samples]
        ratio = (torch.stack(totals) / 50).exp()
        return -(ratio * advantages[list(part.items)]).sum() / len(items), {"ratio": ratio.detach().sum() / len(items)}

    return trained.update(items, loss)


STEPS: dict[str, Any] = {"sft": step_sft, "dpo": step_dpo, "group": step_group, "one_item": step_one_item}


def three_steps(method: str, settings: dict[str, Any]) -> tuple[list[Metrics], dict[str, Tensor]]:
    trained = learner(**settings)
    metrics = [STEPS[method](trained) for _ in range(3)]
    return metrics, {name: p.clone() for name, p in trained.state_dict().items()}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("sft", {"model": "qwen"}),
        pytest.param("sft", {"max_tokens": 40}, marks=pytest.mark.rest),
        ("sft", {"model": "windowed", "max_tokens": 60}),
        ("sft", {"lora_rank": 3}),
        ("sft", {"model": "gpt2", "gradient_checkpointing": True}),
        pytest.param("dpo", {}, marks=pytest.mark.rest),
        ("dpo", {"max_tokens": 1, "lora_rank": 3, "gradient_checkpointing": True}),
        pytest.param("group", {"max_tokens": 60}, marks=pytest.mark.rest),
        ("group", {"max_tokens": 1, "model": "qwen"}),
        pytest.param("one_item", {}, marks=pytest.mark.rest),
        ("one_item", {"lora_rank": 3}),
    ],
    ids=lambda x: x if isinstance(x, str) else "-".join(f"{v}" for v in x.values()),
)
def test_two_ranks_take_the_steps_of_one(ranks: Workers, method: str, settings: dict[str, Any]) -> None:
    metrics, weights = three_steps(method, settings | {"shard": False})
    for found_metrics, found in ranks.run(three_steps, method, settings):
        assert found.keys() == weights.keys()
        for name, weight in weights.items():
            # The bias of GPT-2's keys has no gradient but rounding, which Adam enlarges: hence atol.
            torch.testing.assert_close(found[name], weight, rtol=1e-9, atol=1e-9)
        for ours, theirs in zip(metrics, found_metrics, strict=True):
            assert theirs == pytest.approx(ours | {"num_tokens": theirs["num_tokens"]}, rel=1e-9)


def first_gradient(model: str, method: str) -> dict[str, Tensor]:
    """In float32, unclipped."""
    trained = learner(model, float64=False, learning_rate=1e-12, max_grad_norm=1e9)
    STEPS[method](trained)
    return {name: p.grad.full_tensor() for name, p in trained.parameters.items()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("llama", "dpo"),
        pytest.param("qwen", "dpo", marks=pytest.mark.rest),
        ("qwen", "one_item"),
        pytest.param("moe", "sft", marks=pytest.mark.rest),
        ("moe", "one_item"),
    ],
)
def test_gradients_are_summed_over_ranks(ranks: Workers, model: str, method: str) -> None:
    alone = learner(model, float64=False, learning_rate=1e-12, max_grad_norm=1e9, shard=False)
    STEPS[method](alone)
    for found in ranks.run(first_gradient, model, method):
        for name, p in alone.parameters.items():
            assert p.grad is not None
            assert float((found[name] - p.grad).norm()) <= 1e-5 * float(p.grad.norm()), name


def head_gradient(shard: bool = True) -> list[float]:
    """The gradient of a value head. Every rank has its states; each computes the loss of its own parts."""
    trained = learner(float64=False, learning_rate=1e-12, shard=shard, max_tokens=60)
    trained.add_head(HEAD, new_head(trained))
    turns = [tuple(samples()[start : start + 3]) for start in range(0, 9, 3)]
    told = [np.array([[float(i), 0.0], [0.5, 0.1], [1.0, -0.1]]) for i in range(3)]
    batch = [CreditedTrajectory(own, np.ones(3), values=values) for own, values in zip(turns, told, strict=True)]
    of_head = beside(trained, batch)

    def loss(part: Part, logps: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        found, metrics = of_head(part)
        return found + 0.0 * logps.sum(), metrics

    trained.update(turns, loss)
    grad = trained.heads[HEAD].grad
    assert grad is not None
    return grad.tolist()


def test_a_heads_gradient_is_summed_over_ranks(ranks: Workers) -> None:
    for found in ranks.run(head_gradient):
        assert found == pytest.approx(head_gradient(shard=False), abs=1e-5)


def logps_and_features() -> tuple[list[np.ndarray], list[list[float]], float]:
    trained, items = learner(float64=False, max_tokens=60), samples()
    before = trained.recompute_logps(items)
    trained.step_sft(items)
    after = trained.recompute_logps(items)  # no older weights are left over from the forward passes before the step
    states = torch.cat(features(trained, items), dim=1)
    return [s.logps for s in after], states.tolist(), float(before[0].logps.sum())


def test_two_ranks_recompute_the_logps_and_features_of_one(ranks: Workers) -> None:
    trained, items = learner(float64=False, shard=False), samples()
    before = float(trained.recompute_logps(items)[0].logps.sum())
    trained.step_sft(items)
    want = [s.logps for s in trained.recompute_logps(items)]
    states = torch.cat(features(trained, items), dim=1)
    for logps, found_states, found_before in ranks.run(logps_and_features):
        assert found_before == pytest.approx(before, rel=1e-5)
        for found, expected in zip(logps, want, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4)
        torch.testing.assert_close(torch.tensor(found_states), states, atol=1e-4, rtol=1e-4)


def start_and_reference(base: Path, lora_rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    trained = Learner.from_checkpoint(base, learning_rate=1e-2, lora_rank=lora_rank, shard=True)
    items = samples()[:3]
    (before, *_), _ = trained.recompute_logps(items), trained.step_sft(items)
    return before.logps, reference_logps(trained, base, items)[0], trained.recompute_logps(items)[0].logps


@pytest.mark.parametrize("lora_rank", [0, 3])
def test_the_reference_of_two_ranks_is_where_they_began(ranks: Workers, tmp_path: Path, lora_rank: int) -> None:
    tiny_llama().save_pretrained(tmp_path)
    tokenizer(VOCAB).save_pretrained(tmp_path)
    for before, reference, after in ranks.run(start_and_reference, tmp_path, lora_rank):
        np.testing.assert_allclose(reference, before, atol=1e-5)
        assert np.abs(after - before).max() > 0.01


def local_bytes(shard: bool) -> tuple[int, int]:
    """Of the weights and of all state that one rank keeps between steps."""
    trained = learner(shard=shard)
    step_one_item(trained)
    trained.recompute_logps(samples())
    tensors = [getattr(p, "_local_tensor", p) for p in trained.model.parameters()]
    moments = [m for p in trained.parameters.values() for m in trained.optimizer.state[p].values() if m.ndim]
    kept = [getattr(m, "_local_tensor", m) for m in moments]
    return sum(t.nbytes for t in tensors), sum(t.nbytes for t in kept)


def test_a_rank_keeps_half_of_weights_and_moments(ranks: Workers) -> None:
    weights, moments = local_bytes(shard=False)
    assert ranks.run(local_bytes, True) == [(weights // 2, moments // 2)] * 2


def loaded(path: Path, lora_rank: int) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
    """The weights and buffers that a rank begins with, and the bytes of main memory that loading took at its peak."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    clear.write_text("5")  # forget the peak so far
    before = memory(status.read_text())
    trained = Learner.from_checkpoint(path, learning_rate=1e-2, lora_rank=lora_rank, shard=True)
    peak = memory(status.read_text()) - before
    model = trained.placed.whole()
    return dict(model.named_parameters()), dict(model.named_buffers()), peak


def memory(status: str) -> int:
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) << 10


@pytest.mark.parametrize(("model", "lora_rank"), [("llama", 0), ("llama", 2), ("gpt2", 0), ("moe", 0)])
def test_every_rank_begins_with_the_weights_that_the_first_has_loaded(
    ranks: Workers, tmp_path: Path, model: str, lora_rank: int
) -> None:
    MODELS[model]().save_pretrained(tmp_path)
    tokenizer(VOCAB).save_pretrained(tmp_path)
    alone = Learner.from_checkpoint(tmp_path, learning_rate=1e-2, lora_rank=lora_rank).model
    for weights, buffers, _ in ranks.run(loaded, tmp_path, lora_rank):
        for found, expected in ((weights, alone.named_parameters()), (buffers, alone.named_buffers())):
            assert found.keys() == (wanted := dict(expected)).keys()
            assert all(torch.equal(found[name], value) for name, value in wanted.items())


@pytest.mark.rest
def test_one_rank_alone_holds_the_whole_model_while_it_is_loaded(ranks: Workers, tmp_path: Path) -> None:
    model = tiny_llama(hidden_size=512, intermediate_size=4096, num_hidden_layers=8, vocab_size=VOCAB)
    size = sum(p.nbytes for p in model.parameters())
    assert size > 150 << 20
    model.save_pretrained(tmp_path)
    tokenizer(VOCAB).save_pretrained(tmp_path)
    (*_, first), (*_, second) = ranks.run(loaded, tmp_path, 0)
    assert second < 0.8 * size < first, (size, first, second)


def test_every_rank_raises_what_the_first_cannot_load(ranks: Workers, tmp_path: Path) -> None:
    said = ranks.run(refused, tmp_path)
    assert said[0] == said[1] and said[0].startswith("the model must be a transformers checkpoint")


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as raised:
        Learner.from_checkpoint(path, learning_rate=1e-2, shard=True)
    return str(raised.value)


def saved(path: Path, lora_rank: int) -> dict[str, Tensor]:
    trained = learner(float64=False, lora_rank=lora_rank, gradient_checkpointing=True)
    step_sft(trained)
    trained.save(path / "model")
    assert (path / "model" / "config.json").exists()  # on the rank that does not write, too
    if lora_rank:
        trained.save(path / "adapters", adapters_only=True)
    step_sft(trained)
    trained.save(path / "model")  # takes the place of the first
    return {name: p.clone() for name, p in trained.state_dict().items()}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's loading, not ours
@pytest.mark.parametrize("lora_rank", [0, 3])
def test_what_two_ranks_save_loads_in_transformers(ranks: Workers, tmp_path: Path, lora_rank: int) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    states = ranks.run(saved, tmp_path, lora_rank)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    for state in states:
        assert state.keys() == model.state_dict().keys()
        assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    alone = learner(float64=False, lora_rank=lora_rank, shard=False)
    step_sft(alone)
    if lora_rank:
        adapted = PeftModel.from_pretrained(tiny_llama(), tmp_path / "adapters")
        s = samples()[0]
        want = alone.recompute_logps([s])[0].logps
        np.testing.assert_allclose(plain_logps(adapted, s).detach().numpy(), want, atol=1e-4)
    step_sft(alone)
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, atol=1e-4, rtol=1e-4)


def write_apart(path: Path) -> list[str]:
    """Every rank names a place of its own."""
    trained, own = learner(lora_rank=2), path / str(torch.distributed.get_rank())
    trained.save(own / "merged")
    trained.save(own / "adapters", adapters_only=True)
    train(trained, samples(), step_fn=trained.step_sft, batch_size=16, checkpoint_dir=own / "state")
    return sorted(p.name for p in own.iterdir()) if own.exists() else []


def test_the_first_rank_alone_writes(ranks: Workers, tmp_path: Path) -> None:
    assert ranks.run(write_apart, tmp_path) == [["adapters", "merged", "state"], []]


class Killed(Exception):
    """What ends a run between two steps."""


def train_dpo(
    directory: Path | None, stop_after: int, lora_rank: int, shard: bool = True
) -> tuple[list[float], dict[str, Tensor]]:
    """Six steps of DPO in two epochs: the losses that this call saw, and all weights after it."""
    trained = learner(float64=False, lora_rank=lora_rank, warmup_steps=3, shard=shard)
    losses = []

    def on_step(step: int, num_steps: int, metrics: Metrics) -> None:
        losses.append(metrics["loss"])
        if step == stop_after:
            raise Killed

    def step(batch: list[PreferencePair]) -> Metrics:
        return trained.step_dpo(batch, beta=0.1)

    try:
        every = 2 if directory else 0
        train(
            *(trained, recorded_pairs()),
            step_fn=step,
            epochs=2,
            batch_size=4,
            seed=7,
            on_step=on_step,
            checkpoint_dir=directory,
            checkpoint_every=every,
        )
    except Killed:
        pass
    return losses, {name: p.detach().clone() for name, p in trained.placed.whole().named_parameters()}


@pytest.mark.parametrize("lora_rank", [0, pytest.param(3, marks=pytest.mark.rest)])
def test_two_ranks_resume_exactly_and_one_goes_on_from_their_checkpoint(
    ranks: Workers, tmp_path: Path, lora_rank: int
) -> None:
    whole = ranks.run(train_dpo, None, 0, lora_rank)
    assert len(whole[0][0]) == 6
    ranks.run(train_dpo, tmp_path / "two", 3, lora_rank)  # the third step is not in the checkpoint
    train_dpo(tmp_path / "one", 3, lora_rank, shard=False)
    layouts = []
    for directory in (tmp_path / "one", tmp_path / "two"):
        files = sorted(directory.rglob("*.safetensors"))
        layouts.append({(f.name, name, tuple(x.shape)) for f in files for name, x in load_file(f).items()})
        assert [p.name for p in directory.iterdir()] == ["step-00000002"]
    assert layouts[0] == layouts[1]

    for rank, (losses, weights) in enumerate(ranks.run(train_dpo, tmp_path / "two", 0, lora_rank)):
        assert losses == whole[rank][0][2:]
        assert all(torch.equal(weight, whole[rank][1][name]) for name, weight in weights.items())
    losses, weights = train_dpo(tmp_path / "two", 0, lora_rank, shard=False)  # finished: loads the last state
    assert losses == []
    assert all(torch.equal(weight, whole[0][1][name]) for name, weight in weights.items())
    for losses, weights in ranks.run(train_dpo, tmp_path / "one", 0, lora_rank):
        assert losses == pytest.approx(whole[0][0][2:], rel=1e-4)
        for name, weight in weights.items():
            torch.testing.assert_close(weight, whole[0][1][name], atol=1e-4, rtol=1e-3)


def error_of(case: str) -> str:
    """What a rank says when the ranks were given different things, or a gradient that is no number."""
    rank = torch.distributed.get_rank()
    try:
        trained = learner(seed=rank if case == "weights" else 0)
        trained.step_sft([sample([1, 2], [3 + (rank if case == "items" else 0)])], [np.inf if case == "inf" else 1.0])
    except (ValueError, FloatingPointError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("items", "the items of a step must be the same in every process; got others in process 1 than in 0"),
        ("weights", "a model's first weights must be the same in every process; got others in process 1 than in 0"),
        ("inf", "the gradient must be finite; got norm nan and loss inf"),
    ],
)
def test_every_rank_raises_where_one_has_to(ranks: Workers, case: str, message: str) -> None:
    assert ranks.run(error_of, case) == [message] * 2
    assert ranks.run(error_of, "none") == [""] * 2


def test_processes_that_start_again_do_not_read_what_dead_ones_left(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))

    def store(attempt: int) -> Any:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
        return sharding._store_of_attempt(timedelta(seconds=10))

    store(0).set("address", "of a dead process")
    assert store(0).check(["address"]) and not store(1).check(["address"])


def test_a_learner_is_one_process_where_nothing_started_several() -> None:
    assert learner().ranks.size == 1
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("max_tokens", [1, 60, 200, 10_000])
@pytest.mark.parametrize("packed", [True, False])
def test_ranks_share_a_step_out(num_ranks: int, max_tokens: int, packed: bool) -> None:
    items = [[s] for s in samples()] + [list(p.chosen + p.rejected) for p in trajectory_pairs(0, 2)]
    longest = max(len(s.prompt_ids) + len(s.token_ids) - 1 for item in items for s in item)
    plans = [
        plan_step(items, max_tokens=max_tokens, packed=packed, rank=rank, num_ranks=num_ranks)
        for rank in range(num_ranks)
    ]
    assert sorted(i for parts in plans for part in parts for i in part.items) == list(range(len(items)))
    for at_once in zip(*plans, strict=True):  # as many parts on each rank, and as many batches in each
        assert len({len(part.batches) for part in at_once}) == 1
        assert all(batch.num_tokens <= max(max_tokens, longest * 5 // 4) for part in at_once for batch in part.batches)
    # No more rounds than one rank's parts need.
    alone = plan_step(items, max_tokens=max_tokens, packed=packed)
    assert len(plans[0]) <= -(-len(alone) // num_ranks)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_have_about_equal_shares(num_ranks: int) -> None:
    rng = np.random.default_rng(0)
    groups = [rng.integers(0, 64, rng.integers(20, 200)).tolist() for _ in range(12)]
    items = [[random_sample(rng, prompt)] for prompt in groups for _ in range(4)]
    shares = [
        sum(
            batch.num_tokens
            for part in plan_step(items, max_tokens=4096, rank=rank, num_ranks=num_ranks)
            for batch in part.batches
        )
        for rank in range(num_ranks)
    ]
    (whole,) = plan_step(items, max_tokens=4096)
    total = whole.batches[0].num_tokens
    assert max(shares) <= 1.2 * total / num_ranks
    assert sum(shares) <= 1.2 * total  # neighbours stayed together


SCRIPT = """
import sys
from pathlib import Path
from agentq.learn.learner import Learner
from agentq.learn.epochs import train
from agentq.types import Sample
import numpy as np

base, out = map(Path, sys.argv[1:])
learner = Learner.from_checkpoint(base, learning_rate=1e-2, gradient_checkpointing=True, shard=True)
ids = np.random.default_rng(0).integers(0, 64, (6, 12), dtype=np.int32)
samples = [Sample(row[: 3 + i], row[3 + i :], np.zeros(9 - i, np.float32)) for i, row in enumerate(ids)]
train(learner, samples, step_fn=learner.step_sft, batch_size=3, checkpoint_dir=out / "state")
learner.save(out / "model")
if learner.ranks.first:
    print(learner.ranks.size, "processes")
"""

FSDP2 = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true}
mixed_precision: 'no'
num_machines: 1
num_processes: 2
"""


@pytest.mark.rest
def test_accelerate_launch_trains_in_two_processes_what_python_trains_in_one(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path / "base")
    tokenizer(VOCAB).save_pretrained(tmp_path / "base")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "fsdp2.yaml").write_text(FSDP2)
    launch = ["-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "fsdp2.yaml")]
    found = []
    for name, words in (("one", []), ("two", launch)):
        command = [sys.executable, *words, str(tmp_path / "train.py"), str(tmp_path / "base"), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [{"one": "1", "two": "2"}[name], "processes"]
        assert [p.name for p in (tmp_path / name / "state").iterdir()] == ["step-00000002"]
        found.append(load_file(tmp_path / name / "model" / "model.safetensors"))
    assert found[0].keys() == found[1].keys()
    for name, weight in found[0].items():
        torch.testing.assert_close(found[1][name], weight, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("variable", "asked", "message"),
    [
        ("ACCELERATE_MIXED_PRECISION", "bf16", "mixed_precision must be no, as .* own settings say; got bf16"),
        ("FSDP_ACTIVATION_CHECKPOINTING", "true", "fsdp_activation_checkpointing must be false, .* got true"),
        ("FSDP_OFFLOAD_PARAMS", "true", "fsdp_offload_params must be false, .* got true"),
    ],
)
def test_what_accelerate_is_configured_for_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, variable: str, asked: str, message: str
) -> None:
    monkeypatch.setenv(variable, asked)
    with pytest.raises(ConfigError, match=message):
        learner()
    if "OFFLOAD" not in variable:
        learner(float64=False, bf16=True, gradient_checkpointing=True)
