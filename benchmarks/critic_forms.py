"""Teaches a copy of the embedded base the answers of every critic method. The base itself knows `pick_best` alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentq.agent.prompts import BEST_QUESTION, LETTER_QUESTION, LETTERS, RANKING_QUESTION
from agentq.base.demonstrations import Demonstration, demonstrate
from agentq.base.exercises import TrainingExample, near_misses, rank_example
from agentq.base.training import Sequence, encode_example, train
from agentq.policies.transformers_engine import load_checkpoint

DEMONSTRATIONS = 400  # tasks per site; as many as fit into a minute
FIRST_TASK = 60  # the tasks before are those whose steps the base was shown


def teach(base: Path, out: Path, num_tokens: int) -> Path:
    """Write a copy of `base` to `out`, trained on `num_tokens` of the three questions in equal shares."""
    torch.manual_seed(0)
    model, tokenizer = load_checkpoint(base, device="cpu", dtype=torch.float32)
    ranked = [d for site in ("booking", "shop") for d in demonstrate(site, DEMONSTRATIONS, 1, start=FIRST_TASK)]
    train(model, _questions(tokenizer, ranked), num_tokens=num_tokens, learning_rate=6e-4, on_step=_show)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def in_form(example: TrainingExample, form: int) -> TrainingExample:
    """A `pick_best` exercise (0) as one of `letters` (1) or `listwise` (2).

    Only the best action is known, so a ranking has the others in the order shown.
    """
    if form == 0:
        return example
    system, user = example.messages
    count = user["content"].rpartition("PROPOSALS:\n")[2].count("\n")
    best = example.answer[-2]
    others = [letter for letter in LETTERS[:count] if letter != best]
    answer = best if form == 1 else "RANKING: " + " > ".join([best, *others])
    question = LETTER_QUESTION if form == 1 else RANKING_QUESTION
    content = user["content"].removesuffix(BEST_QUESTION) + question
    return replace(example, messages=[system, user | {"content": content}], answer=answer)


def _questions(tokenizer: Any, ranked: list[Demonstration]) -> Iterator[Sequence]:
    rng = np.random.default_rng(0)
    while True:
        d = ranked[int(rng.integers(len(ranked)))]
        others = [*d.others, *near_misses(rng, d.history.observation.text, d.action, [d.history.instruction])]
        example = rank_example(rng, d.history, d.action, others)
        if example is not None:
            yield encode_example(tokenizer, in_form(example, int(rng.integers(3))), rng, prompt_weight=0.0)


def _show(metrics: dict[str, float]) -> None:
    if metrics["step"] % 50 == 0:
        print("  ".join(f"{name} {value:.4g}" for name, value in metrics.items()), flush=True)
