"""Tiny random checkpoints of many architectures, and how far an engine or a learner is from their own forward pass.

    python benchmarks/architectures.py [--json] [NAME ...]

Each has two layers, and a window of 64 tokens if the architecture has one. Prompts have 40 to 300 tokens. Prints
whether each is decoded fast, plainly or not at all, whether it is packed, padded or not trained, and the worst
differences of log-probabilities: of samples, in training, and of both with adapters on all linear layers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from machine import commit, machine, target

from agentq.base.tokenizer import train_tokenizer
from agentq.errors import ModelError
from agentq.learn.learner import Learner
from agentq.policies.adapters import adapter_weights
from agentq.policies.transformers_engine import TransformersEngine
from agentq.types import Sample

WINDOW, CONTEXT, WORDS = 64, 512, 320
RANK = 4  # of adapters
MOST = 1e-5  # nats that a log-probability may be off
VOCAB = WORDS + 8  # room for tokens that a tokenizer class adds
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "pad_token_id": 3,
    "eos_token_id": 3,
    "initializer_range": 0.06,  # so far from uniform that a wrong mask shows
}
HALF = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
GRANITE = {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}

# Classes of transformers without their endings, and what their configs need besides SIZES.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
    "Qwen3Moe": {"head_dim": 16, **EXPERTS},
    "Phi3": {"sliding_window": WINDOW},
    "SmolLM3": {},
    "Glm4": {"head_dim": 16},
    "Mistral": {"sliding_window": WINDOW, "head_dim": 16},
    "Gemma2": {"sliding_window": WINDOW, "head_dim": 16, "query_pre_attn_scalar": 16},
    "Gemma3Text": {"head_dim": 16, "query_pre_attn_scalar": 16, "final_logit_softcapping": 20.0, **HALF},
    "Olmo3": HALF,
    "Granite": {"logits_scaling": 4.0, **GRANITE},
    "Cohere": {},
    "Cohere2": HALF,
    "Exaone4": HALF,
    "GptOss": {"sliding_window": WINDOW, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "DeepseekV3": {
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
        **LATENT,
    },
    "Llama4Text": {"head_dim": 16, "num_local_experts": 2, "attention_chunk_size": WINDOW, "intermediate_size_mlp": 96},
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "Qwen3Next": {
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "shared_expert_intermediate_size": 32,
        **EXPERTS,
        **LINEAR,
    },
    "FalconH1": {"lm_head_multiplier": 0.5, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16},
    "Mamba": {},
}


@dataclass(frozen=True, slots=True)
class Measured:
    """How an architecture is computed, and the worst difference in nats from its plain forward pass."""

    decoding: str  # fast, plain, refused
    sampled: float
    training: str  # packed, padded, refused
    trained: float
    adapted: float | None = None  # engine and learner with the same adapter; None: refused
    said: str = ""  # why something is refused


def make_model(name: str, **sizes: Any) -> Any:
    """A random causal LM in float32. `sizes` replace those of `SIZES`."""
    stem = name.removesuffix("Text")
    config = getattr(transformers, f"{name}Config")(**SIZES | ARCHITECTURES[name] | sizes)
    torch.manual_seed(0)
    return getattr(transformers, f"{stem}ForCausalLM")(config).eval()


def write_checkpoint(name: str, folder: Path, **sizes: Any) -> Path:
    """A checkpoint of `make_model` and a small tokenizer whose end token is 3."""
    make_model(name, **sizes).save_pretrained(folder)
    train_tokenizer(["link Blue Harbor Grill"] * 9, vocab_size=WORDS, context_tokens=CONTEXT).save_pretrained(folder)
    return folder


def load_plain(checkpoint: Path) -> Any:
    """The model as transformers loads it, in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def plain_logps(model: Any, samples: Sequence[Sample]) -> list[np.ndarray]:
    """`[T]` of each sample by the model's own forward pass over the whole sequence."""
    found = []
    for sample in samples:
        ids = torch.from_numpy(np.concatenate([sample.prompt_ids, sample.token_ids]).astype(np.int64))
        with torch.inference_mode():
            logps = torch.log_softmax(model(input_ids=ids[None], use_cache=False).logits[0].float(), dim=-1)
        at = torch.arange(len(sample.prompt_ids) - 1, len(ids) - 1)
        found.append(logps[at, ids[at + 1]].numpy())
    return found


def worst(found: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """The largest difference, in nats."""
    return max(float(np.abs(a - b).max()) for a, b in zip(found, want, strict=True))


def sampled(engine: TransformersEngine, *, k: int = 3, max_new_tokens: int = 12) -> list[Sample]:
    """`k` samples of prompts of 40 to 300 tokens, computed together; some share a prefix and are asked for again."""
    rng = np.random.default_rng(0)
    trunk = rng.integers(4, VOCAB, 300).astype(np.int32)
    prompts = [rng.integers(4, VOCAB, n).astype(np.int32) for n in (40, 130, 300)]
    prompts += [np.concatenate([trunk[:n], prompts[0][:9]]) for n in (64, 200)] + [trunk]
    found = []
    for _ in range(2):  # the second time with known prefixes
        out = engine.generate(prompts, k, seeds=range(len(prompts)), max_new_tokens=max_new_tokens)
        found += [Sample(p, s.token_ids, s.logps) for p, some in zip(prompts, out, strict=True) for s in some]
    return found


def measure(name: str, folder: Path) -> Measured:
    """Sample with the engine and recompute with the learner, against the plain forward pass."""
    checkpoint = write_checkpoint(name, folder)
    try:
        engine = TransformersEngine(checkpoint)
    except ModelError as error:
        return Measured("refused", 0.0, "refused", 0.0, said=str(error))
    samples = sampled(engine)
    want = plain_logps(load_plain(checkpoint), samples)
    decoding, off = "fast" if engine.shares_columns else "plain", worst([s.logps for s in samples], want)
    try:
        learner = Learner.from_checkpoint(checkpoint, learning_rate=1e-3)
    except ModelError as error:
        return Measured(decoding, off, "refused", 0.0, said=str(error))
    trained = worst([s.logps for s in learner.recompute_logps(samples)], want)
    training = "packed" if learner.packed else "padded"
    try:
        return Measured(decoding, off, training, trained, adapted(engine, checkpoint))
    except ModelError as error:
        return Measured(decoding, off, training, trained, said=str(error))


def with_adapter(checkpoint: Path, rank: int = RANK) -> Learner:
    """A learner whose adapter changes every answer."""
    learner = Learner.from_checkpoint(checkpoint, learning_rate=1e-3, lora_rank=rank)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in learner.parameters.values():
            p.add_(torch.randn(p.shape, generator=generator) * 0.1)
    return learner


def adapted(engine: TransformersEngine, checkpoint: Path) -> float:
    """The worst log-probability of the engine and of a learner with one adapter, from the merged model's."""
    learner = with_adapter(checkpoint)
    engine.publish_adapter(adapter_weights(learner.model), RANK)
    samples = sampled(engine)
    want = plain_logps(learner.merged().float().eval(), samples)
    return max(worst([s.logps for s in some], want) for some in (samples, learner.recompute_logps(samples)))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if every log-probability is within `MOST` nats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"of {', '.join(ARCHITECTURES)}; all by default")
    args = parser.parse_args(argv)
    found: dict[str, Measured] = {}
    for name in args.name or ARCHITECTURES:
        with tempfile.TemporaryDirectory(prefix="architecture") as folder:
            m = found[name] = measure(name, Path(folder))
        lora = "refused" if m.adapted is None else f"{m.adapted:.1e}"
        figures = f"{m.decoding:8} {m.sampled:8.1e}  {m.training:8} {m.trained:8.1e}  {lora:8}"
        print(f"{name:12} {figures}  {m.said}")
    worst_found = max(max(m.sampled, m.trained, m.adapted or 0.0) for m in found.values())
    if args.json:
        rows = {name: asdict(m) for name, m in found.items()}
        targets = {"worst log-probability, nats off": target(worst_found, MOST, at_most=True)}
        made = {"machine": machine("torch", "transformers"), "commit": commit()}
        print(json.dumps({"figures": rows, "targets": targets} | made))
    return int(worst_found > MOST)


if __name__ == "__main__":
    sys.exit(main())
