"""The resumable training loop of the reading base. Its data follow from the seed and the part.

A part is some 326 batches, 2 million tokens of the usual ones; the last one perhaps fewer. Each begins a new stream of
exercises, is followed by a measurement on held-out exercises and a checkpoint, and appends a line to `training.jsonl`.
Under `torchrun` each process draws exercises of its own, a batch is shared between them, gradients are averaged, and
tokens count over all processes; the first one measures and writes. On a GPU processes of their own make the exercises.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from agentq.base.training import Sequence, average_gradients
from agentq.learn.adamw import adamw
from agentq.learn.checkpoint import ALONE, load_state, save_state
from agentq.learn.position import load_position
from agentq.learn.sharding import Ranks
from agentq.learn.trie import Trie
from agentq.learn.trie_attention import TreePlan, tree_attention_of
from agentq.policies.placement import multiplies_bfloat16

PART_TOKENS = 2_000_000  # long beside the measurement after it
BATCH_TOKENS = 6144  # over all processes
MAKERS = 4  # processes that make exercises for a GPU; each makes some 500,000 tokens a second
MULTIPLE = 256  # sizes are multiples of it, since kernels are compiled, and kept, for each size
WARM_UP, COOL_DOWN = 0.005, 0.6  # shares of the run: the rate rises, stays, and falls to a twentieth at the end

Stream = Callable[[int, float, int], Iterator[Sequence]]  # of a part, from so many tokens on, for one of the makers
Metrics = dict[str, Any]


def train_parts(
    model: Any,
    stream: Stream,
    out: Path,
    *,
    num_tokens: int,
    learning_rate: float,
    batch_tokens: int = BATCH_TOKENS,
    after_part: Callable[[], Metrics],
    on_step: Callable[[Metrics], None],
    ranks: Ranks = ALONE,
    begun: Metrics | None = None,
) -> None:
    """Train for `num_tokens` tokens, or go on from the checkpoint in `out/state`.

    Muon and AdamW. The rate is constant but for warm-up and cool-down (Hu et al. 2024, arXiv:2404.06395), so a longer
    run begins as a shorter one does. `begun`: the steps, tokens and seconds that the model already has. Parts and what
    the stream takes for tokens stretch with `batch_tokens`.
    """
    optimizer = MuonAdamW(model, learning_rate, 0.05)
    parameters, state = dict(model.named_parameters()), out / "state"
    kept = load_position(state)
    first: Metrics = {"step": 0, "tokens": 0, "seconds": 0, **(begun or {})}
    position: Metrics = {key: (kept or first)[key] for key in ("step", "tokens", "seconds")}
    if kept:
        load_state(state, parameters, optimizer)
    model.train()
    scale = batch_tokens / BATCH_TOKENS
    makers = MAKERS if model.device.type == "cuda" and hasattr(os, "fork") else 0
    part_tokens = int(PART_TOKENS * scale)
    while position["tokens"] < num_tokens:
        part, before, losses = position["tokens"] // part_tokens, time.process_time(), list[float]()
        source = partial(stream, part, position["tokens"] / scale)
        for batch in made_batches(source, batch_tokens // ranks.size, makers):
            rate = learning_rate * rate_share(position["tokens"] / num_tokens, first["tokens"] / num_tokens)
            losses.append(_step(model, optimizer, batch, rate, ranks))
            position["step"] += 1
            position["tokens"] += sum(ranks.gather(sum(len(sequence.ids) for sequence in batch)))
            on_step({**position, "loss": losses[-1]})
            if position["tokens"] // part_tokens > part or position["tokens"] >= num_tokens:
                break
        position["seconds"] += time.process_time() - before
        if ranks.first:
            line = {**position, "rate": rate, "loss": sum(losses) / len(losses), "right": after_part()}
            save_state(state, parameters, optimizer, position)
            with (out / "training.jsonl").open("a") as log:
                log.write(json.dumps(_rounded(line)) + "\n")
        ranks.wait()


class MuonAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for embeddings and norms, at one learning rate.

    Muon's steps are scaled to the size of AdamW's (Liu et al. 2025, "Muon is scalable", arXiv:2502.16982).
    """

    def __init__(self, model: Any, learning_rate: float, weight_decay: float) -> None:
        matrices = [p for p in model.get_decoder().layers.parameters() if p.ndim == 2]
        ours = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in ours]
        muon = Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._parts = (muon, adamw(others, learning_rate, weight_decay))
        super().__init__([group for part in self._parts for group in part.param_groups], {})  # the same groups
        self.state = muon.state = self._parts[1].state  # one for both, as a checkpoint has it

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step both."""
        muon, rest = self._parts
        muon.step()
        rest.step()


class Muon(torch.optim.Muon):
    """torch's, but in float32 on a processor without products in bfloat16, where it takes a tenth of the time."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move each matrix by the orthogonal matrix that is nearest to its momentum."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                kept = self.state[p]["momentum_buffer"]
                kept.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(kept, group["momentum"]), group)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)  # match_rms_adamw


def orthogonal(matrix: torch.Tensor, group: Mapping[str, Any]) -> torch.Tensor:
    """The nearest orthogonal matrix, roughly: its singular values are near 1 (Newton-Schulz, quintic)."""
    a, b, c = group["ns_coefficients"]
    x = matrix.bfloat16() if multiplies_bfloat16(matrix.device.type) else matrix.float()
    x = x.T if matrix.shape[0] > matrix.shape[1] else x
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def _step(model: Any, optimizer: torch.optim.Optimizer, batch: list[Sequence], rate: float, ranks: Ranks) -> float:
    """One optimiser step; the loss of this process in nats per weighted token."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = packed_loss(model, batch)
    torch.autograd.backward(loss)
    if ranks.size > 1:
        average_gradients(model, ranks.size)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def batches(source: Iterator[Sequence], tokens_each: int = BATCH_TOKENS) -> Iterator[list[Sequence]]:
    """Sequences in the order given, at least `tokens_each` tokens at a time."""
    batch, tokens = list[Sequence](), 0
    for sequence in source:
        batch.append(sequence)
        tokens += len(sequence.ids)
        if tokens >= tokens_each:
            yield batch
            batch, tokens = [], 0


def made_batches(
    source: Callable[[int], Iterator[Sequence]], tokens_each: int, makers: int
) -> Iterator[list[Sequence]]:
    """Batches of exercises of `source(0)`, or of `source(0 .. makers - 1)` in turn, each in a process of its own."""
    if not makers:
        return batches(source(0), tokens_each)
    source_of = _Source(source, tokens_each)
    with warnings.catch_warnings():  # so many whatever the number of cores: the exercises depend on it
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        return iter(DataLoader(source_of, None, num_workers=makers, prefetch_factor=8, multiprocessing_context="fork"))


class _Source(IterableDataset[list[Sequence]]):
    def __init__(self, source: Callable[[int], Iterator[Sequence]], tokens_each: int) -> None:
        self.source, self.tokens_each = source, tokens_each

    def __iter__(self) -> Iterator[list[Sequence]]:
        maker = get_worker_info()
        assert maker is not None
        return batches(self.source(maker.id), self.tokens_each)


def packed_loss(model: Any, batch: list[Sequence]) -> torch.Tensor:
    """Mean negative log-likelihood over the batch's weights, in nats."""
    logits, wanted = packed_logits(model, batch)
    given = np.concatenate([s.weights[1:] for s in batch])
    weights = torch.from_numpy(given[given != 0]).to(model.device)
    losses = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
    loss: torch.Tensor = (losses * weights).sum() / weights.sum()
    return loss


def packed_logits(model: Any, batch: list[Sequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits `[N, V]` and tokens `[N]` of the positions with a weight, sequence by sequence.

    The sequences are one row, a trie of roots, so that each attends to itself alone. The head runs on these positions
    only.
    """
    missing = -sum(len(s.ids) - 1 for s in batch) % MULTIPLE
    if missing:
        batch = [*batch, Sequence(np.zeros(missing + 1, dtype=np.int32), np.zeros(missing + 1, dtype=np.float32))]
    ids, targets = (np.concatenate([s.ids[cut] for s in batch]).astype(np.int64) for cut in (slice(-1), slice(1, None)))
    (rows,) = np.nonzero(np.concatenate([s.weights[1:] for s in batch]))
    lengths = np.array([len(s.ids) - 1 for s in batch])
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
    roots = Trie(ids, positions, [], bounds, np.full(len(batch), -1))
    inputs, places = (torch.from_numpy(x)[None].to(model.device) for x in (ids, positions))
    plan = TreePlan(roots, model.device)
    filled = torch.from_numpy(np.concatenate([rows, np.repeat(rows[:1], -len(rows) % MULTIPLE)])).to(model.device)
    bf16 = multiplies_bfloat16(model.device.type)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16), tree_attention_of(model):
        hidden = model.get_decoder()(input_ids=inputs, position_ids=places, tree=plan, use_cache=False)
        logits = model.get_output_embeddings()(hidden.last_hidden_state[0].index_select(0, filled))[: len(rows)]
    return logits, torch.from_numpy(targets[rows]).to(model.device)


def rate_share(done: float, begun: float = 0.0) -> float:
    """The share of the learning rate when a share `done` of the run is over. `begun`: where its optimiser was new."""
    return min(1.0, (done - begun) / WARM_UP + 0.01, max(0.05, (1 - done) / COOL_DOWN))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
