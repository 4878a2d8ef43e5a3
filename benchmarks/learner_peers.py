"""The contestants of benchmarks/learner.py but TRL: the packed learner, loops that share nothing.

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

from agentq.learn.learner import Learner
from agentq.learn.losses import dpo_loss
from agentq.types import PreferencePair, Sample

BETA = 0.1


@dataclass(slots=True)
class Step:
    """One optimiser step: CPU seconds, peak memory above the start, loss, gradient by parameter name."""

    cpu_s: float = 0.0
    peak_mib: float = 0.0
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
    """CPU seconds and peak memory from its start to its end."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now
        self.memory, self.cpu = _memory_kib("VmRSS"), time.process_time()

    def read(self, step: Step) -> None:
        step.cpu_s = time.process_time() - self.cpu
        step.peak_mib = (_memory_kib("VmHWM") - self.memory) / 1024


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
    """Policy gradient: -advantage * log pi, the mean over the group's action tokens."""
    learner = Learner(model, learning_rate=1e-6, max_grad_norm=1e9, bf16=bf16)
    samples = [(s,) for steps in episodes for s in steps]
    weight = torch.tensor([a for a, steps in zip(advantages, episodes, strict=True) for _ in steps])
    total = sum(len(s.token_ids) for (s,) in samples)

    def loss(part: Any, logps: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        rows = [row for (row,) in part.samples]
        by_sample = torch.where(part.action_mask, logps, 0.0)[rows].sum(dim=1)
        return -(by_sample * weight[list(part.items)]).sum() / total, {}

    step, meter = Step(), Meter()
    metrics = learner.update(samples, loss)
    meter.read(step)
    step.loss, step.tokens, step.gradient = metrics["loss"], int(metrics["num_tokens"]), gradient(model)
    return step


# Loops that share nothing: no padding, plain causal attention, the head on predicting rows, recorded reference --------


def _logps(model: Any, ids: Sequence[int], spans: Sequence[tuple[int, int]], bf16: bool) -> Tensor:
    """Log-probabilities of the tokens in `spans` of one sequence, end to end."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        hidden = model.model(input_ids=torch.tensor([ids[:-1]]), use_cache=False).last_hidden_state[0]
        rows = torch.cat([hidden[start - 1 : end - 1] for start, end in spans])
        logits = model.lm_head(rows).float()
    targets = torch.tensor([ids[t] for start, end in spans for t in range(start, end)])
    return torch.log_softmax(logits, dim=-1).gather(1, targets[:, None])[:, 0]


def sequence(sample: Sample) -> tuple[list[int], list[tuple[int, int]]]:
    ids = [*sample.prompt_ids.tolist(), *sample.token_ids.tolist()]
    return ids, [(len(sample.prompt_ids), len(ids))]


def _loop(model: Any, losses: Sequence[Callable[[], tuple[Tensor, int]]]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    step, meter = Step(), Meter()
    for loss in losses:
        value, tokens = loss()
        value.backward()
        step.loss += value.item()
        step.tokens += tokens
    step.gradient = gradient(model)
    optimizer.step()
    meter.read(step)
    return step


def one_pair_at_a_time(model: Any, pairs: list[PreferencePair], *, bf16: bool) -> Step:
    def loss(pair: PreferencePair) -> tuple[Tensor, int]:
        (chosen,), (rejected,) = pair.chosen, pair.rejected
        ours = [_logps(model, *sequence(s), bf16).sum(dtype=torch.float64)[None] for s in (chosen, rejected)]
        ref = [torch.tensor([s.logps.astype(np.float64).sum()]) for s in (chosen, rejected)]
        tokens = sum(len(s.prompt_ids) + len(s.token_ids) - 1 for s in (chosen, rejected))
        return dpo_loss(*ours, *ref, beta=BETA).loss[0] / len(pairs), tokens

    return _loop(model, [lambda pair=pair: loss(pair) for pair in pairs])  # type: ignore[misc]


def one_step_at_a_time(model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool) -> Step:
    sequences = [(sequence(s), a) for a, steps in zip(advantages, episodes, strict=True) for s in steps]
    return _group_loop(model, sequences, bf16)


def one_episode_at_a_time(model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool) -> Step:
    """An episode is one sequence with several spans. This needs prompts that are only appended to."""
    sequences = []
    for advantage, steps in zip(advantages, episodes, strict=True):
        spans = [(len(s.prompt_ids), len(s.prompt_ids) + len(s.token_ids)) for s in steps]
        sequences.append(((sequence(steps[-1])[0], spans), advantage))
    return _group_loop(model, sequences, bf16)


def _group_loop(model: Any, sequences: list[Any], bf16: bool) -> Step:
    total = sum(end - start for (_, spans), _ in sequences for start, end in spans)

    def loss(ids: list[int], spans: list[tuple[int, int]], advantage: float) -> tuple[Tensor, int]:
        return -advantage * _logps(model, ids, spans, bf16).sum() / total, len(ids) - 1

    return _loop(model, [lambda s=s: loss(*s[0], s[1]) for s in sequences])  # type: ignore[misc]
