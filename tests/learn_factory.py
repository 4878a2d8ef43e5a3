"""Tiny random models and samples for the learner's tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from agentq.types import PreferencePair, Sample

VOCAB = 64
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "pad_token_id": 3,
    "eos_token_id": 3,
    "initializer_range": 0.3,  # far from uniform, so that a wrong row or mask shows
}


def tiny_llama(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**(SIZES | {"tie_word_embeddings": True} | changes))).eval()


def tiny_qwen(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(**SIZES)).eval()


def tiny_windowed(seed: int = 0) -> Any:
    """Each token sees the last four only: cannot be packed."""
    torch.manual_seed(seed)
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)).eval()


def tiny_neox(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES)).eval()


def tiny_gpt2(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(**SIZES)).eval()


def tiny_moe(seed: int = 0) -> Any:
    """Four experts; each token goes to one of them, so a batch of one token leaves three without work."""
    torch.manual_seed(seed)
    sizes = {"num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "head_dim": 8}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **sizes)).eval()


def exact(model: Any) -> Any:
    """The model in float64 throughout; the norms of Llama and Qwen2 would round to float32."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                norm = torch.nn.RMSNorm(len(child.weight), eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)
    return model.double()


def tokenizer(size: int) -> Any:
    vocabulary = {f"w{i}": i for i in range(size)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "w0")), eos_token="w3")


def sample(prompt: list[int], tokens: list[int], logps: list[float] | None = None) -> Sample:
    known = [float("nan")] * len(tokens) if logps is None else logps
    return Sample(np.array(prompt, np.int32), np.array(tokens, np.int32), np.array(known, np.float32))


def random_sample(rng: np.random.Generator, prompt: list[int] | None = None) -> Sample:
    prompt = rng.integers(0, VOCAB, rng.integers(3, 30)).tolist() if prompt is None else prompt
    return sample(prompt, rng.integers(0, VOCAB, rng.integers(1, 9)).tolist())


def node_pairs(seed: int, n: int) -> list[PreferencePair]:
    """`n` nodes with three actions each; the first is chosen over both others."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(n):
        prompt = rng.integers(0, VOCAB, rng.integers(5, 30)).tolist()
        chosen, *others = (random_sample(rng, prompt) for _ in range(3))
        pairs += [PreferencePair((chosen,), (other,), 1.0) for other in others]
    return pairs


def trajectory_pairs(seed: int, n: int) -> list[PreferencePair]:
    """`n` pairs of three against two steps that share the first prompt; all have the same chosen side."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, VOCAB, 12).tolist()
    chosen = (random_sample(rng, first), random_sample(rng), random_sample(rng))
    return [PreferencePair(chosen, (random_sample(rng, first), random_sample(rng)), 1.0) for _ in range(n)]


def agent_samples(history: str, data: str, seed: int = 0) -> list[Sample]:
    """Three steps of an agent with three actions a node, as search records them.

    `history`: "compact" prompts hold the instruction, past actions and the latest page; "append" all earlier pages too.
    `data`: "path" goes on from one action a node, "mcts" from two at the first node.
    """
    rng = np.random.default_rng(seed)

    def some(low: int, high: int) -> list[int]:
        return rng.integers(4, VOCAB, rng.integers(low, high)).tolist()

    samples, nodes = [], [some(6, 9)]  # what stands before each node's page
    for step in range(3):
        following = []
        for before in nodes:
            prompt = [*before, 1, *some(8, 14)]
            actions = [[*some(1, 6), 3] for _ in range(3)]
            samples += [sample(prompt, action) for action in actions]
            gone_on_from = actions[: 2 if data == "mcts" and step == 0 else 1]
            following += [[*(prompt if history == "append" else before), *action] for action in gone_on_from]
        nodes = following
    return samples


def plain_logps(model: Any, s: Sample) -> torch.Tensor:
    """`[T]` of one sample the slow way: the whole sequence, all logits, one row before each token."""
    ids = torch.tensor([[*s.prompt_ids.tolist(), *s.token_ids.tolist()]])
    rows = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0], dim=-1)
    start = len(s.prompt_ids)
    return torch.stack([rows[start + t - 1, token] for t, token in enumerate(s.token_ids.tolist())])


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}
