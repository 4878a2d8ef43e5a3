"""How well a model does held-out exercises: the share of answers of which every token is the likeliest one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from agentq.base.reading.encoding import encode
from agentq.base.reading.mixture import Make
from agentq.base.reading.words import Words
from agentq.base.training import Sequence


@torch.no_grad()
def answered(model: Any, sequence: Sequence) -> list[bool]:
    """For each turn whether a greedy model gives the whole answer, and its end."""
    ids = torch.from_numpy(sequence.ids.astype(np.int64))[None].to(model.device)
    asked = sequence.weights[1:] > 0
    (places,) = np.nonzero(asked)
    logits = model(input_ids=ids[:, :-1], logits_to_keep=torch.from_numpy(places).to(model.device)).logits[0]
    right = np.zeros_like(asked)
    right[places] = logits.argmax(-1).cpu().numpy() == sequence.ids[1:][places]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], asked.astype(int), [0]])))
    return [bool(right[a:b].all()) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def held_out(model: Any, tokenizer: Any, kinds: Mapping[str, Make], *, n: int, seed: int) -> dict[str, float]:
    """The share of right answers of `n` exercises of each kind, with pseudo-words that training never draws."""
    rng, found = np.random.default_rng([seed, 2]), {}
    model.eval()
    for name, kind in kinds.items():
        hits: list[bool] = []
        for _ in range(n):
            hits += answered(model, encode(tokenizer, kind(Words(rng, held_out=True))))
        found[name] = sum(hits) / len(hits)
    model.train()
    return found
