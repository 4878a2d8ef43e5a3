"""Training data of benchmarks/learner.py: preferences of a tree and groups of rollouts, random tokens, fixed seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentq.types import PreferencePair, Sample

EOS = 3
SIZES: dict[str, dict[str, int]] = {
    "14M": {"vocab_size": 8192, "hidden_size": 384, "intermediate_size": 1024, "layers": 6, "heads": 6, "kv_heads": 2},
    "1M": {"vocab_size": 1024, "hidden_size": 128, "intermediate_size": 352, "layers": 4, "heads": 4, "kv_heads": 2},
}


@dataclass(frozen=True, slots=True)
class Regime:
    """A path of `nodes` nodes with `width` proposals each; the `pairs` with the widest gaps are the training data.

    `append`: a prompt holds all earlier pages. Otherwise, as in Agent Q, it holds the instruction, past actions and the
    current page.
    """

    append: bool
    nodes: int
    page_tokens: tuple[int, int]
    instruction_tokens: int
    pairs: int = 4
    width: int = 5
    action_tokens: tuple[int, int] = (60, 150)


REGIMES = {
    "A": Regime(append=False, nodes=3, page_tokens=(750, 1400), instruction_tokens=350),
    "C": Regime(append=True, nodes=6, page_tokens=(150, 350), instruction_tokens=250),
}
QUICK = {
    "A": Regime(append=False, nodes=2, page_tokens=(100, 140), instruction_tokens=40, action_tokens=(10, 20)),
    "C": Regime(append=True, nodes=3, page_tokens=(30, 50), instruction_tokens=40, action_tokens=(10, 20)),
}


def model(size: str, *, seed: int = 0, **settings: Any) -> Any:
    """A random Llama; keyword arguments are settings of its configuration."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    s = SIZES[size]
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=s["vocab_size"],
        hidden_size=s["hidden_size"],
        intermediate_size=s["intermediate_size"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"],
        max_position_embeddings=16384,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=0,
        **settings,
    )
    return LlamaForCausalLM(config)


def preferences(regime: Regime, vocab_size: int, seed: int = 0) -> list[PreferencePair]:
    """The pairs of a path; recorded log-probabilities are those of a uniform policy."""
    rng = np.random.default_rng(seed)

    def some(low: int, high: int) -> list[int]:
        return rng.integers(4, vocab_size, rng.integers(low, high + 1)).tolist()

    before = some(regime.instruction_tokens, regime.instruction_tokens)
    pairs = []
    for _ in range(regime.nodes):
        prompt = [*before, *some(*regime.page_tokens)]
        actions = [[*some(*regime.action_tokens), EOS] for _ in range(regime.width)]
        values = rng.random(regime.width)
        gaps = {(i, j): values[i] - values[j] for i in range(regime.width) for j in range(regime.width)}
        for i, j in sorted(gaps, key=lambda key: -gaps[key])[: regime.pairs]:
            chosen, rejected = (_sample(prompt, actions[x], vocab_size) for x in (i, j))
            pairs.append(PreferencePair((chosen,), (rejected,), float(gaps[i, j])))
        before = [*(prompt if regime.append else before), *actions[int(values.argmax())]]
    return pairs


def rollouts(regime: Regime, vocab_size: int, *, group: int, seed: int = 0) -> list[list[Sample]]:
    """A group: episodes of one task that share the instruction and the first page, then differ."""
    rng = np.random.default_rng(seed)

    def some(low: int, high: int) -> list[int]:
        return rng.integers(4, vocab_size, rng.integers(low, high + 1)).tolist()

    instruction, first = some(regime.instruction_tokens, regime.instruction_tokens), some(*regime.page_tokens)
    episodes = []
    for _ in range(group):
        before, page, steps = instruction, first, []
        for _ in range(regime.nodes):
            prompt, action = [*before, *page], [*some(*regime.action_tokens), EOS]
            steps.append(_sample(prompt, action, vocab_size))
            before, page = [*(prompt if regime.append else before), *action], some(*regime.page_tokens)
        episodes.append(steps)
    return episodes


def _sample(prompt: list[int], action: list[int], vocab_size: int) -> Sample:
    logps = np.full(len(action), -np.log(vocab_size), np.float32)
    return Sample(np.array(prompt, np.int32), np.array(action, np.int32), logps)
