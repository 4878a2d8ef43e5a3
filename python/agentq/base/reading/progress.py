"""How well a model does held-out exercises: the share of answers of which every token is the likeliest one."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from typing import Any

import numpy as np
import torch

from agentq.base.reading.encoding import encode
from agentq.base.reading.mixture import Make
from agentq.base.reading.training import packed_logits
from agentq.base.reading.words import Words
from agentq.base.training import Sequence


@torch.no_grad()
def answered(model: Any, sequences: Items[Sequence]) -> list[list[bool]]:
    """For each sequence and turn, whether a greedy model gives the whole answer, and its end."""
    logits, wanted = packed_logits(model, list(sequences))
    right, at, found = (logits.argmax(-1) == wanted).cpu().numpy(), 0, list[list[bool]]()
    for sequence in sequences:
        asked = sequence.weights[1:] != 0
        hits, n = np.zeros_like(asked), int(asked.sum())
        hits[asked] = right[at : at + n]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], asked.astype(int), [0]])))
        found.append([bool(hits[a:b].all()) for a, b in zip(edges[::2], edges[1::2], strict=True)])
        at += n
    return found


def held_out(model: Any, tokenizer: Any, kinds: Mapping[str, Make], *, n: int, seed: int) -> dict[str, float]:
    """The share of right answers of `n` exercises of each kind, with pseudo-words that training never draws."""
    rng, found = np.random.default_rng([seed, 2]), {}
    model.eval()
    for name, kind in kinds.items():
        asked = [encode(tokenizer, kind(Words(rng, held_out=True))) for _ in range(n)]
        hits = [hit for each in answered(model, asked) for hit in each]
        found[name] = sum(hits) / len(hits)
    model.train()
    return found
