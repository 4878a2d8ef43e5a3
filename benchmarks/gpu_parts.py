"""The engine, the whole loop and the training of the embedded base, for gpu.py."""

from __future__ import annotations

import asyncio
import io
import json
import math
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_place import Place, gpu_name
from inference_engines import NEW_TOKENS, K, search, states, walk
from transformers import LlamaConfig, LlamaForCausalLM

from agentq import envs
from agentq.agent.prompts import policy_messages
from agentq.base import training
from agentq.base.make import BaseSettings, make_base
from agentq.cli import main
from agentq.learn.learner import Learner
from agentq.policies.agreement import agreement, probe
from agentq.policies.engine_names import embedded_base
from agentq.policies.placement import dtype_on
from agentq.policies.transformers_engine import TransformersEngine
from agentq.searching.selection import SearchSettings
from agentq.store.run import RunStore
from agentq.types import Split


def engine(place: Place, size: str) -> dict[str, Any]:
    """Tokens per second of the transformers engine: a search with the embedded base, or the requests of one.

    First, log-probabilities of its samples are compared with the learner's.
    """
    checkpoint = embedded_base() if size == "base" else place.checkpoint(f"qwen2.5-{size}")
    dtype = dtype_on(place.device, "auto")
    made = TransformersEngine(checkpoint, device=place.device, dtype=dtype)
    tokens = 8 if place.tiny else NEW_TOKENS
    found = _agreement(made, checkpoint, place.device, tokens)
    trees = 2 if place.tiny else 16
    if size == "base":
        settings = SearchSettings(2 if place.tiny else 6, K, 1.0)
        tasks = envs.tasks("booking", Split.VALIDATION, 3 * trees)
        search(made, tasks[: trees // 2], settings)  # warms up
        figures = search(made, tasks[trees:], settings)[1]
    else:
        walk(made, 50, 1, tokens)
        figures = walk(made, 0, trees, tokens)
    return {"dtype": made.told["dtype"], "trees": trees, **figures, **found}


def _agreement(made: TransformersEngine, checkpoint: Path, device: str, tokens: int) -> dict[str, float]:
    histories = [history for task in envs.tasks("booking", Split.BASE, 4) for history in states(task)[:2]]
    prompts = [made.render(history, policy_messages, max_new_tokens=tokens) for history in histories]
    samples = asyncio.run(probe(made, prompts, k=2, max_new_tokens=tokens))
    weight = made.model.get_input_embeddings().weight
    learner = Learner.from_checkpoint(checkpoint, device=device, dtype=weight.dtype, learning_rate=1e-5)
    gap = agreement(samples, learner.recompute_logps)
    return {"agreement_mean": gap.mean, "agreement_max": gap.max, "agreement_tokens": gap.num_tokens}


def loop(place: Place) -> dict[str, Any]:
    """`agentq train agent_q` on `booking` with the embedded base, with adapters. A run that was cut off goes on."""
    run, begun = place.folder / "loop", time.perf_counter()
    sizes = (1, 2, 2, 2) if place.tiny else (32, 8, 5, 50)
    names = ("run.num_tasks", "search.num_iterations", "search.num_proposals", "eval.num_tasks")
    words = [f"--{name}={size}" for name, size in zip(names, sizes, strict=True)]
    words += [f"--model.devices={place.device}", "--train.lora_rank=16", "--pairs.threshold=0.1"]
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(["train", "agent_q", "--env=booking", f"--out={run}", "--json", *words])
    if code:
        raise SystemExit(f"the loop must end with 0; got {code}")
    rows = json.loads(printed.getvalue().splitlines()[-1])["rungs"]
    with RunStore.read(run) as store:
        lines = list(store.metrics())
        models = json.loads((run / "env.json").read_text()).get("models", {})
    return {
        "seconds": time.perf_counter() - begun,  # of this call; a run that goes on has taken more
        "rungs": [{"name": row["name"], "successes": row["successes"], "n": row["n"]} for row in rows],
        "steps": sum("grad_norm" in line for line in lines),
        "devices": sorted({told["device"] for told in models.values() if "device" in told}),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if place.device != "cpu" else None,
    }


def base(place: Place) -> dict[str, Any]:
    """Training of the embedded base for a while: tokens per second of each stage, and the loss at its ends.

    First, loss and gradient of a batch are compared with those of the CPU.
    """
    differences = _base_differences(place.device)
    tiny = {"hidden_size": 32, "num_layers": 1, "vocab_size": 600, "walks": 20, "demonstrations": 2}
    tiny |= {"ranked_demonstrations": 2, "pretrain_tokens": 40_000, "demonstration_tokens": 13_000}
    less = {"walks": 400, "ranked_demonstrations": 100, "pretrain_tokens": 3_000_000, "demonstration_tokens": 600_000}
    settings = BaseSettings(sites=("booking",), **(tiny if place.tiny else less))
    steps: dict[str, list[dict[str, float]]] = {}
    make_base(
        place.folder / "base",
        settings,
        device=place.device,
        on_step=lambda stage, metrics: steps.setdefault(stage, []).append(metrics),
    )
    figures: dict[str, Any] = {"differences": differences, "gpu": gpu_name(place.device)}
    for stage, rows in steps.items():
        figures[stage] = {
            "tokens_per_s": rows[-1]["tokens"] / rows[-1]["seconds"],
            "first_loss": rows[0]["loss"],
            "last_loss": rows[-1]["loss"],
        }
    return figures


def _base_differences(device: str) -> dict[str, float]:
    """Relative differences of a batch's loss and gradient on a device from those on the CPU, both in bfloat16."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 512, n).astype(np.int32) for n in (90, 80, 70)]
    batch = [training.Sequence(ids, np.linspace(0, 1, len(ids), dtype=np.float32)) for ids in rows]
    found = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2)
        config.num_attention_heads = config.num_key_value_heads = 4
        model = LlamaForCausalLM(config).to(where)
        loss = training.weighted_loss(model, batch)
        torch.autograd.backward(loss)
        gradient = torch.cat([p.grad.flatten().cpu() for p in model.parameters() if p.grad is not None])
        found.append((loss.item(), gradient))
    (loss, gradient), (own_loss, own) = found
    return {
        "loss": math.fabs(own_loss - loss) / loss,
        "gradient": float((own - gradient).norm() / gradient.norm()),
    }
