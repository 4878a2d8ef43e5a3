"""The resumable training loop of the reading base. Its data follow from the seed and the part.

A part is `PART_TOKENS` tokens, the last one perhaps fewer. Each begins a new stream of exercises, is followed by a
measurement on held-out exercises and a checkpoint, and appends a line to `training.jsonl`. Under `torchrun` each
process draws exercises of its own, a batch is shared between them, gradients are averaged, and tokens count over all
processes; the first one measures and writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
MULTIPLE = 256  # sizes are multiples of it, since kernels are compiled, and kept, for each size
WARM_UP, COOL_DOWN = 0.005, 0.6  # shares of the run: the rate rises, stays, and falls to a twentieth at the end

Stream = Callable[[int, float], Iterator[Sequence]]  # of a part, from so many tokens on
Metrics = dict[str, Any]


def train_parts(
    model: Any,
    stream: Stream,
    out: Path,
    *,
    num_tokens: int,
    learning_rate: float,
    after_part: Callable[[], Metrics],
    on_step: Callable[[Metrics], None],
    ranks: Ranks = ALONE,
    begun: Metrics | None = None,
) -> None:
    """Train for `num_tokens` tokens, or go on from the checkpoint in `out/state`.

    Muon and AdamW. The rate is constant but for warm-up and cool-down (Hu et al. 2024, arXiv:2404.06395), so a longer
    run begins as a shorter one does. `begun`: the steps, tokens and seconds that the model already has.
    """
    optimizer = MuonAdamW(model, learning_rate, 0.05)
    parameters, state = dict(model.named_parameters()), out / "state"
    kept = load_position(state)
    first: Metrics = {"step": 0, "tokens": 0, "seconds": 0, **(begun or {})}
    position: Metrics = {key: (kept or first)[key] for key in ("step", "tokens", "seconds")}
    if kept:
        load_state(state, parameters, optimizer)
    model.train()
    while position["tokens"] < num_tokens:
        part, before, losses = position["tokens"] // PART_TOKENS, time.process_time(), list[float]()
        for batch in batches(stream(part, position["tokens"]), BATCH_TOKENS // ranks.size):
            rate = learning_rate * rate_share(position["tokens"] / num_tokens, first["tokens"] / num_tokens)
            losses.append(_step(model, optimizer, batch, rate, ranks))
            position["step"] += 1
            position["tokens"] += sum(ranks.gather(sum(len(sequence.ids) for sequence in batch)))
            on_step({**position, "loss": losses[-1]})
            if position["tokens"] // PART_TOKENS > part or position["tokens"] >= num_tokens:
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
        muon = torch.optim.Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._parts = (muon, adamw(others, learning_rate, weight_decay))
        super().__init__([group for part in self._parts for group in part.param_groups], {})  # the same groups
        self.state = muon.state = self._parts[1].state  # one for both, as a checkpoint has it

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step both."""
        muon, rest = self._parts
        muon.step()  # type: ignore[no-untyped-call]
        rest.step()


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


def packed_loss(model: Any, batch: list[Sequence]) -> torch.Tensor:
    """Mean negative log-likelihood over the batch's weights, in nats.

    The sequences are one row, a trie of roots, so that each attends to itself alone. The head runs on weighted
    positions only.
    """
    missing = -sum(len(s.ids) - 1 for s in batch) % MULTIPLE
    if missing:
        batch = [*batch, Sequence(np.zeros(missing + 1, dtype=np.int32), np.zeros(missing + 1, dtype=np.float32))]
    ids, targets = (np.concatenate([s.ids[cut] for s in batch]).astype(np.int64) for cut in (slice(-1), slice(1, None)))
    weights = torch.from_numpy(np.concatenate([s.weights[1:] for s in batch])).to(model.device)
    lengths = np.array([len(s.ids) - 1 for s in batch])
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
    roots = Trie(ids, positions, [], bounds, np.full(len(batch), -1))
    inputs, places = (torch.from_numpy(x)[None].to(model.device) for x in (ids, positions))
    plan, rows = TreePlan(roots, model.device), weights.nonzero()[:, 0]
    filled = torch.cat([rows, rows[:1].expand(-len(rows) % MULTIPLE)])
    bf16 = multiplies_bfloat16(model.device.type)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16), tree_attention_of(model):
        hidden = model.get_decoder()(input_ids=inputs, position_ids=places, tree=plan, use_cache=False)
        logits = model.get_output_embeddings()(hidden.last_hidden_state[0].index_select(0, filled))[: len(rows)]
    wanted = torch.from_numpy(targets).to(model.device).index_select(0, rows)
    losses = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
    return (losses * weights[rows]).sum() / weights.sum()


def rate_share(done: float, begun: float = 0.0) -> float:
    """The share of the learning rate when a share `done` of the run is over. `begun`: where its optimiser was new."""
    return min(1.0, (done - begun) / WARM_UP + 0.01, max(0.05, (1 - done) / COOL_DOWN))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
