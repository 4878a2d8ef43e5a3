"""The contestants of benchmarks/learner.py and gpu.py but TRL: the packed learner, loops that share nothing.

Each takes one optimiser step on a model and returns the values by which such steps are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentq.learn.batch import LossFn
from agentq.learn.learner import Learner
from agentq.learn.losses import dpo_loss
from agentq.policies.adapters import base_of
from agentq.types import PreferencePair, Sample

BETA = 0.1
Sequences = list[tuple[tuple[list[int], list[tuple[int, int]]], float]]  # ((ids, spans), advantage)
Losses = list[Callable[[], tuple[Tensor, int]]]  # each gives a part of the loss and its number of tokens


@dataclass(slots=True)
class Step:
    """One optimiser step: seconds, peak memory, loss, gradient by parameter name."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mib: float = 0.0  # above the start; on a GPU all that is allocated there
    loss: float = 0.0
    tokens: int = 0
    gradient: dict[str, Tensor] = field(default_factory=dict)
    once_s: float = 0.0  # before the first step only


def _memory_kib(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise KeyError(key)


class Meter:
    """Seconds and peak memory from its start to its end."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.gpu = torch.device(device).type == "cuda"
        if self.gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now
        self.memory, self.cpu, self.wall = _memory_kib("VmRSS"), time.process_time(), time.perf_counter()

    def read(self, step: Step) -> None:
        if self.gpu:
            torch.cuda.synchronize()
        step.cpu_s, step.wall_s = time.process_time() - self.cpu, time.perf_counter() - self.wall
        above = (_memory_kib("VmHWM") - self.memory) / 1024
        step.peak_mib = torch.cuda.max_memory_allocated() / 2**20 if self.gpu else above


def gradient(model: Any) -> dict[str, Tensor]:
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


# agentq ---------------------------------------------------------------------------------------------------------------


def packed(model: Any, pairs: list[PreferencePair], *, bf16: bool) -> Step:
    learner = Learner(model, learning_rate=1e-6, max_grad_norm=1e9, bf16=bf16)
    step, meter = Step(), Meter()
    metrics = learner.step_dpo(pairs, beta=BETA)
    meter.read(step)
    step.loss, step.tokens, step.gradient = metrics["loss"], int(metrics["num_tokens"]), gradient(model)
    return step


def packed_group(model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool) -> Step:
    learner = Learner(model, learning_rate=1e-6, max_grad_norm=1e9, bf16=bf16)
    samples, loss = policy_gradient(episodes, advantages)
    step, meter = Step(), Meter()
    metrics = learner.update(samples, loss)
    meter.read(step)
    step.loss, step.tokens, step.gradient = metrics["loss"], int(metrics["num_tokens"]), gradient(model)
    return step


def policy_gradient(episodes: list[list[Sample]], advantages: list[float]) -> tuple[list[tuple[Sample, ...]], LossFn]:
    """Items and loss of a step: -advantage * log pi, the mean over the group's action tokens.

    On the policy's own samples this is GRPO's gradient.
    """
    samples = [(s,) for steps in episodes for s in steps]
    weight = torch.tensor([a for a, steps in zip(advantages, episodes, strict=True) for _ in steps])
    total = sum(len(s.token_ids) for (s,) in samples)

    def loss(part: Any, logps: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        rows = [row for (row,) in part.samples]
        by_sample = torch.where(part.action_mask, logps, 0.0)[rows].sum(dim=1)
        return -(by_sample * weight[list(part.items)].to(logps.device)).sum() / total, {}

    return samples, loss


# Loops that share nothing: no padding, plain causal attention, the head on predicting rows, recorded reference --------


def _logps(model: Any, ids: Sequence[int], spans: Sequence[tuple[int, int]], bf16: bool) -> Tensor:
    """Log-probabilities of the tokens in `spans` of one sequence, end to end."""
    base = base_of(model)
    device = base.device
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        row = torch.tensor([ids[:-1]], device=device)
        hidden = base.get_decoder()(input_ids=row, use_cache=False).last_hidden_state[0]
        rows = torch.cat([hidden[start - 1 : end - 1] for start, end in spans])
        logits = base.get_output_embeddings()(rows).float()
    targets = torch.tensor([ids[t] for start, end in spans for t in range(start, end)], device=device)
    return torch.log_softmax(logits, dim=-1).gather(1, targets[:, None])[:, 0]


def sequence(sample: Sample) -> tuple[list[int], list[tuple[int, int]]]:
    ids = [*sample.prompt_ids.tolist(), *sample.token_ids.tolist()]
    return ids, [(len(sample.prompt_ids), len(ids))]


def _loop(model: Any, losses: Losses) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    step, meter = Step(), Meter()
    step.loss, step.tokens = backward(losses)
    step.gradient = gradient(model)
    optimizer.step()
    meter.read(step)
    return step


def backward(losses: Losses) -> tuple[float, int]:
    """Adds the gradient of each loss in turn. Returns the loss and the number of tokens of the whole step."""
    total, count = 0.0, 0
    for loss in losses:
        value, tokens = loss()
        value.backward()
        total, count = total + value.item(), count + tokens
    return total, count


def one_pair_at_a_time(model: Any, pairs: list[PreferencePair], *, bf16: bool) -> Step:
    return _loop(model, pair_losses(model, pairs, bf16))


def pair_losses(model: Any, pairs: list[PreferencePair], bf16: bool) -> Losses:
    def loss(pair: PreferencePair) -> tuple[Tensor, int]:
        (chosen,), (rejected,) = pair.chosen, pair.rejected
        ours = [_logps(model, *sequence(s), bf16).sum(dtype=torch.float64)[None] for s in (chosen, rejected)]
        ref = [ours[0].new_tensor([s.logps.astype(np.float64).sum()]) for s in (chosen, rejected)]
        tokens = sum(len(s.prompt_ids) + len(s.token_ids) - 1 for s in (chosen, rejected))
        return dpo_loss(*ours, *ref, beta=BETA).loss[0] / len(pairs), tokens

    return [lambda pair=pair: loss(pair) for pair in pairs]  # type: ignore[misc]


def one_step_at_a_time(model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool) -> Step:
    return _loop(model, group_losses(model, by_step(episodes, advantages), bf16))


def by_step(episodes: list[list[Sample]], advantages: list[float]) -> Sequences:
    """Each step is one sequence."""
    return [(sequence(s), a) for a, steps in zip(advantages, episodes, strict=True) for s in steps]


def one_episode_at_a_time(model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool) -> Step:
    """An episode is one sequence with several spans. This needs prompts that are only appended to."""
    sequences = []
    for advantage, steps in zip(advantages, episodes, strict=True):
        spans = [(len(s.prompt_ids), len(s.prompt_ids) + len(s.token_ids)) for s in steps]
        sequences.append(((sequence(steps[-1])[0], spans), advantage))
    return _loop(model, group_losses(model, sequences, bf16))


def group_losses(model: Any, sequences: Sequences, bf16: bool) -> Losses:
    total = sum(end - start for (_, spans), _ in sequences for start, end in spans)

    def loss(ids: list[int], spans: list[tuple[int, int]], advantage: float) -> tuple[Tensor, int]:
        return -advantage * _logps(model, ids, spans, bf16).sum() / total, len(ids) - 1

    return [lambda s=s: loss(*s[0], s[1]) for s in sequences]  # type: ignore[misc]
