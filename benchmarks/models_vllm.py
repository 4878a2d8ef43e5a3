"""vLLM's parts of models.py: adapters of several architectures, and one engine for policy and critic beside two."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from architectures import SIZES, load_plain, plain_logps, with_adapter, worst, write_checkpoint
from inference_engines import CUDA, VLLM, prepare, random_checkpoint

from agentq.policies.agreement import probe
from agentq.policies.engine_names import embedded_base
from agentq.policies.protocol import Prompt
from agentq.store.run import RunStore

FAMILIES = ("Llama", "Qwen2", "Qwen3")
SEARCH = ("--search", "--env=booking", "--eval.num_iterations=3", "--search.num_proposals=3")


def adapters() -> dict[str, dict[str, float]]:
    """The worst log-probabilities of samples, in nats, of weights, of an adapter, and of the weights again."""
    prepare()
    os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    from agentq.policies.vllm_engine import VLLMEngine

    settings = VLLM | {"kv_cache_memory_bytes": 64 << 20, "max_num_batched_tokens": 2048, "enable_lora": True}
    found = {}
    for name in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            larger = {"hidden_size": 128, "head_dim": 32}  # vLLM's attention on a CPU has no heads smaller than 32
            checkpoint = write_checkpoint(name, Path(folder) / "base", **larger)
            learner = with_adapter(checkpoint)
            learner.save(Path(folder) / "adapter", adapters_only=True)
            plain, merged = load_plain(checkpoint), learner.merged().eval()
            with closing(VLLMEngine(checkpoint, max_lora_rank=8, **settings)) as engine:
                figures = {"weights": _worst(engine, plain)}
                engine.publish(Path(folder) / "adapter")
                figures["adapter"] = _worst(engine, merged)
                engine.publish(checkpoint)
                figures["weights again"] = _worst(engine, plain)
        found[name] = figures
    return found


def _worst(engine: Any, model: Any) -> float:
    rng = np.random.default_rng(0)
    prompts = [Prompt([], rng.integers(4, SIZES["vocab_size"] - 8, n).astype(np.int32)) for n in (40, 130, 300)]
    samples = asyncio.run(probe(engine, prompts, k=3, max_new_tokens=12))
    return worst([s.logps for s in samples], plain_logps(model, samples))


def roles(num_tasks: int) -> dict[str, dict[str, float]]:
    """A search stage whose policy is the base on vLLM: the critic in an engine of its own, and in the policy's.

    With the embedded base, and for the memory with a random model of 90 M parameters. On a CPU, where vLLM does not
    serve the base beside an adapter, the policy here has none.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        large = random_checkpoint(Path(folder) / "90m", "90m", "cuda" if CUDA else "cpu")
        for model, base, tasks in (("base", embedded_base(), num_tasks), ("90 M", large, 2)):
            for name, critic in (("apart", "base"), ("one engine", f"vllm:{base}")):
                run = Path(folder) / f"{model} {name}"
                found[f"{model}, {name}"] = _searched(base, critic, tasks, run)
    return found


def _searched(base: Path, critic: str, num_tasks: int, run: Path) -> dict[str, float]:
    words = ["eval", f"vllm:{base}", f"--base={base}", *SEARCH, f"--eval.num_tasks={num_tasks}"]
    words += [f"--critic.model={critic}", "--vllm.max_model_len=1024", f"--out={run}", "--json"]
    words += [f"--vllm.{key}={str(value).lower()}" for key, value in VLLM.items()]
    peak_kib = _peak_kib([sys.executable, "-m", "agentq", *words])
    with RunStore.read(run) as store:
        note = store.note("eval") or {}
    models = json.loads((run / "env.json").read_text())["models"]
    return {"engines": len(models), "peak_gib": peak_kib / 2**20, "seconds": note["seconds"]}


def _peak_kib(command: list[str]) -> int:
    """The largest resident memory of a command's process."""
    prepare()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"agentq eval must end with 0; got {process.returncode}")
    return int(used.ru_maxrss)
