"""The learner's parts of gpu.py: a step of DPO, and of a group's policy gradient."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import learner_peers as peers
import learner_workload as workload
import torch
from gpu_place import PEAK_FLOPS, Place, Skipped, gpu_name
from torch import Tensor, nn

from agentq.learn.learner import Learner
from agentq.policies.adapters import base_of
from agentq.recipes.memory import GIB, size_of, to_train
from agentq.types import PreferencePair, Sample

RANK, GROUP = 16, 8
REPEATS, ENOUGH_S = 3, 120.0  # steps that are timed; no further one begins after so many seconds


@dataclass(frozen=True, slots=True)
class Trained:
    """What is trained: a shape, the rank of the adapters (0: all weights), whether layers are computed again."""

    shape: str
    lora_rank: int
    again: bool


MODELS = {"7b": Trained("qwen2.5-7b", RANK, True), "0.5b": Trained("qwen2.5-0.5b", 0, False)}
Step = Callable[[], tuple[float, int]]  # takes an optimiser step; loss and tokens fed


def make_learner(model: Trained, checkpoint: Path, device: str) -> Learner:
    return Learner.from_checkpoint(
        checkpoint,
        device=device,
        dtype=torch.bfloat16 if model.lora_rank else torch.float32,
        learning_rate=1e-6,
        max_grad_norm=1e9,
        lora_rank=model.lora_rank,
        bf16=True,
        gradient_checkpointing=model.again,
    )


def packed(learner: Learner, data: list[Any]) -> Step:
    """agentq's own step on pairs or episodes."""

    def step() -> tuple[float, int]:
        if isinstance(data[0], PreferencePair):
            metrics = learner.step_dpo(data, beta=peers.BETA)
        else:
            metrics = learner.update(*peers.policy_gradient(data, advantages(data)))
        return metrics["loss"], int(metrics["num_tokens"])

    return step


def loop(learner: Learner, data: list[Any]) -> Step:
    """The same model and optimiser; each pair or step of an episode runs forward alone, without padding."""
    if isinstance(data[0], PreferencePair):
        losses = peers.pair_losses(learner.model, data, learner.bf16)
    else:
        losses = peers.group_losses(learner.model, peers.by_step(data, advantages(data)), learner.bf16)

    def step() -> tuple[float, int]:
        learner.optimizer.zero_grad(set_to_none=True)
        found = peers.backward(losses)
        learner.optimizer.step()
        return found

    return step


def advantages(episodes: list[list[Sample]]) -> list[float]:
    return [1.0 - 2.0 * (i % 2) for i in range(len(episodes))]


def data_of(method: str, regime: workload.Regime, vocab_size: int) -> list[Any]:
    """Pairs, or the episodes of a group: append-only conversations."""
    if method == "dpo":
        return workload.preferences(regime, vocab_size)
    return workload.rollouts(regime, vocab_size, group=GROUP)


def compare(device: str) -> dict[str, float]:
    """Relative differences of the packed gradient from the loop's, in float32, of a small model."""
    found = {}
    vocab = workload.SIZES["1M"]["vocab_size"]
    for method in ("dpo", "grpo"):
        data = data_of(method, workload.QUICK["C"], vocab)
        for rank in (0, 4):
            ours, theirs = (_gradient(device, rank, make, data) for make in (packed, loop))
            apart = sum(float((g - theirs[name]).square().sum()) for name, g in ours.items()) ** 0.5
            found[f"{method}, rank {rank}"] = apart / sum(float(g.square().sum()) for g in ours.values()) ** 0.5
    return found


def _gradient(device: str, rank: int, make: Callable[..., Step], data: list[Any]) -> dict[str, Tensor]:
    model = workload.model("1M", initializer_range=0.1)
    learner = Learner(model, learning_rate=1e-6, max_grad_norm=1e9, lora_rank=rank, device=device)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in learner.parameters.values() if rank else ():  # adapters begin without effect
            p.add_(torch.randn(p.shape, generator=generator).to(device) * 0.05)
    make(learner, data)()
    return peers.gradient(learner.model)


def train_step(place: Place, method: str, size: str, contestant: str) -> dict[str, Any]:
    """Seconds, tokens per second, MFU and peak memory of one step; medians of `REPEATS`."""
    if contestant == "trl" and not find_spec("trl"):
        raise Skipped("TRL is not installed")
    model = MODELS[size]
    checkpoint = place.checkpoint(model.shape)
    learner = make_learner(model, checkpoint, place.device)
    data = data_of(method, place.regime, base_of(learner.model).config.vocab_size)
    if contestant == "trl":
        steps = [_trl_step(learner, data)]
    else:
        take = (packed if contestant == "packed" else loop)(learner, data)
        take()  # compiles, and fills the caches of allocators
        steps, begun = [], time.perf_counter()
        while len(steps) < REPEATS and (not steps or time.perf_counter() - begun < ENOUGH_S):
            step, meter = peers.Step(), peers.Meter(place.device)
            step.loss, step.tokens = take()
            meter.read(step)
            steps.append(step)
    return _figure(learner, model, checkpoint, data, steps)


def _figure(
    learner: Learner, model: Trained, checkpoint: Path, data: list[Any], steps: list[peers.Step]
) -> dict[str, Any]:
    seconds = statistics.median(step.wall_s for step in steps)
    device = str(learner.device)
    layers = base_of(learner.model).get_decoder()
    matrices = [
        m for m in layers.modules() if isinstance(m, nn.Linear) and m.weight.requires_grad != bool(model.lora_rank)
    ]
    passes = 4 if model.lora_rank else 6  # per weight and token; frozen weights have no gradient
    flops = passes * sum(m.weight.numel() for m in matrices) * steps[0].tokens
    peak = next((peak for name, peak in PEAK_FLOPS.items() if name in gpu_name(device)), None)
    b = 2 if model.lora_rank else 4
    settings = {"lora_rank": model.lora_rank, "bf16": True, "gradient_checkpointing": model.again}
    samples = [s for item in data for s in (item if isinstance(item, list) else (*item.chosen, *item.rejected))]
    tokens = sum(len(s.prompt_ids) + len(s.token_ids) - 1 for s in samples)
    return {
        "seconds": seconds,
        "range": [min(s.wall_s for s in steps), max(s.wall_s for s in steps)],
        "repeats": len(steps),
        "data_tokens": tokens,
        "fed_tokens": steps[0].tokens,
        "data_tokens_per_s": tokens / seconds,
        "fed_tokens_per_s": steps[0].tokens / seconds,
        "mfu": None if peak is None else flops / seconds / peak,
        "peak_gib": max(s.peak_mib for s in steps) / 1024,
        "estimated_gib": to_train(size_of(checkpoint, device), b, **settings)[1] / GIB,
        "loss": steps[0].loss,
    }


def _trl_step(learner: Learner, data: list[Any]) -> peers.Step:
    """The second of two steps of TRL at its best, on the learner's model, whose layers compute again if they should."""
    import learner_trl

    if isinstance(data[0], PreferencePair):
        return learner_trl.trl_best(learner.model, data, bf16=True, steps=2)
    return learner_trl.trl_grpo_best(learner.model, data, advantages(data), bf16=True, steps=2)
