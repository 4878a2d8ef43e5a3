"""The next-token training loop that makes the base model: weighted token loss, length buckets, cosine rate, bf16."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from agentq.base.exercises import TrainingExample
from agentq.policies.placement import multiplies_bfloat16

CHOICE_WEIGHT = 4.0  # one token of an answer decides which of several similar things is meant
_CHOICE = re.compile(r"Ġ(\[\d+\]|\([A-Z]\))")
WIDTH = 32  # tokens; widths of batches are multiples of it


@dataclass(frozen=True, slots=True)
class Sequence:
    """`ids` `[T]` int32; `weights` `[T]` float32: the loss weight of predicting each token (0 for the first)."""

    ids: np.ndarray
    weights: np.ndarray


def encode_example(
    tokenizer: Any, example: TrainingExample, rng: np.random.Generator, *, prompt_weight: float
) -> Sequence:
    """The example's tokens with loss weights.

    Answers and end tokens have weight 1, ids and letters in answers `CHOICE_WEIGHT`. A random quarter of the prompt's
    tokens has `prompt_weight`, the rest 0.
    """
    ids: list[int] = []
    answered: list[bool] = []
    prompt = tokenizer.apply_chat_template(example.messages, add_generation_prompt=True, tokenize=False)
    for i, (question, answer) in enumerate([(prompt, example.answer), *example.more]):
        if i:
            turn = [{"role": "user", "content": question}]
            question = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
        asked = tokenizer(question, add_special_tokens=False)["input_ids"]
        said = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids += asked + said
        answered += [False] * len(asked) + [True] * len(said)
    weights = np.where(answered, 1.0, prompt_weight * (rng.random(len(ids)) < 0.25)).astype(np.float32)
    weights[0] = 0.0
    tokens = np.array(ids, dtype=np.int32)
    weights[np.isin(tokens, choice_tokens(tokenizer)) & answered] = CHOICE_WEIGHT
    return Sequence(tokens, weights)


@lru_cache(maxsize=8)
def choice_tokens(tokenizer: Any) -> np.ndarray:
    """Ids of the tokens that are an element's id or a proposal's letter: ` [3]`, ` (B)`."""
    return np.array([i for token, i in tokenizer.get_vocab().items() if _CHOICE.fullmatch(token)], dtype=np.int32)


def batches(source: Iterator[Sequence], *, batch_tokens: int) -> Iterator[list[Sequence]]:
    """Batches of one width each (a multiple of `WIDTH`) with `batch_tokens // width` sequences.

    Few shapes occur, so matrix kernels compiled for a shape are used again and memory does not grow.
    """
    waiting: dict[int, list[Sequence]] = {}
    for sequence in source:
        width = padded_width(sequence)
        group = waiting.setdefault(width, [])
        group.append(sequence)
        if len(group) >= max(1, batch_tokens // width):
            yield waiting.pop(width)


def padded_width(sequence: Sequence) -> int:
    """Length rounded up to a multiple of `WIDTH`, plus the one position that predicts nothing."""
    return -(-(len(sequence.ids) - 1) // WIDTH) * WIDTH


def weighted_loss(model: Any, batch: list[Sequence]) -> torch.Tensor:
    """Mean negative log-likelihood over the batch's weights, in nats; the head runs on weighted rows only."""
    width, device = padded_width(batch[0]) + 1, model.device
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    weights = torch.zeros(len(batch), width)
    for row, s in enumerate(batch):
        ids[row, : len(s.ids)] = torch.from_numpy(s.ids.astype(np.int64))
        weights[row, : len(s.ids)] = torch.from_numpy(s.weights)
    ids, weights = ids.to(device), weights.to(device)
    bf16 = multiplies_bfloat16(device.type)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        hidden = model.get_decoder()(input_ids=ids[:, :-1]).last_hidden_state
    wanted = weights[:, 1:] > 0
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        logits = model.get_output_embeddings()(hidden[_rounded(wanted)])[: int(wanted.sum())]
    losses = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none")
    w = weights[:, 1:][wanted]
    return (losses * w).sum() / w.sum()


def _rounded(wanted: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Indices of the wanted rows, padded with the first to a multiple of 256, again for few shapes."""
    rows = wanted.flatten().nonzero()[:, 0]
    rows = torch.cat([rows, rows[:1].expand(-len(rows) % 256)])
    return torch.unravel_index(rows, wanted.shape)


def train(
    model: Any,
    source: Iterator[Sequence],
    *,
    num_tokens: int,
    learning_rate: float,
    batch_tokens: int = 6144,
    on_step: Callable[[dict[str, float]], None],
) -> None:
    """Train with AdamW for `num_tokens` padded tokens: warm-up over 3 %, then a cosine to `learning_rate / 20`.

    Under `torchrun` each process draws its own batches, gradients are averaged, and tokens count over all processes.
    """
    model.train()
    world = dist.get_world_size() if dist.is_initialized() else 1
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.05, fused=True
    )
    seen, start, running = 0, time.monotonic(), math.nan
    for step, batch in enumerate(batches(source, batch_tokens=batch_tokens)):
        done = seen / num_tokens
        if done >= 1:
            return
        rate = learning_rate * min(1.0, done / 0.03 + 1e-3) * (0.525 + 0.475 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = weighted_loss(model, batch)
        torch.autograd.backward(loss)
        if world > 1:
            average_gradients(model, world)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += batch_tokens * world  # the nominal size, so that all processes stop at the same step
        running = loss.item() if math.isnan(running) else 0.97 * running + 0.03 * loss.item()
        elapsed = time.monotonic() - start
        on_step(
            {
                "step": step,
                "tokens": seen,
                "loss": running,
                "seconds": elapsed,
                "eta_s": elapsed * (num_tokens / seen - 1),
            }
        )


def average_gradients(model: Any, world: int) -> None:
    """Replace each gradient by its mean over the processes. Collective."""
    flat = torch.cat([p.grad.view(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for p in model.parameters():
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()
