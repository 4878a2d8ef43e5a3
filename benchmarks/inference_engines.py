"""How real engines serve searches, for inference.py: transformers and vLLM on the embedded base, and on a model of 7B.

That model is a random checkpoint of Qwen2.5-7B's shape, which writes nothing readable. Its requests are therefore those
of searches that follow the expert: K proposals at each state of each task's episode.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from agentq import envs
from agentq.agent.actions import format_action
from agentq.agent.prompts import policy_messages
from agentq.critics.ranker import LLMRanker
from agentq.learn.learner import Learner
from agentq.policies.agreement import agreement, probe
from agentq.policies.engine_names import embedded_base
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.usage import Tally, Usage
from agentq.policies.vllm_engine import VLLMEngine
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import History, Split, Task

TREES, SIMULATIONS, K, REPEATS = 8, 6, 5, 2
NEW_TOKENS = 96
CUDA = torch.cuda.is_available()
VLLM: dict[str, Any] = (
    {}
    if CUDA
    else {"dtype": "float32", "enforce_eager": True, "block_size": 32, "distributed_executor_backend": "uni"}
    | {"kv_cache_memory_bytes": 256 << 20}
)
CPU_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",  # compiling takes longer than the searches
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-7b": {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
    "qwen2.5-0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
    "90m": {
        "vocab_size": 2048,
        "hidden_size": 768,
        "intermediate_size": 2560,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
    },
    "tiny": {
        "vocab_size": 2048,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
}


def prepare() -> None:
    """Set what vLLM needs on a CPU before it is imported."""
    if not CUDA:
        for name, value in CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)


def side_by_side() -> dict[str, Any]:
    """The same searches of `booking` on both engines in turn, with the critic: the best of `REPEATS` rounds.

    Each round has other tasks. Then greedy searches, whose trees should be equal.
    """
    engines: dict[str, Engine] = {
        "transformers": TransformersEngine(embedded_base(), device="cuda" if CUDA else "cpu"),
        "vllm": VLLMEngine(embedded_base(), **VLLM),
    }
    sampled, greedy = SearchSettings(SIMULATIONS, K, 1.0), SearchSettings(1, 1, 0.0)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
    for repeat in range(REPEATS + 1):  # the first warms up
        tasks = envs.tasks("booking", Split.VALIDATION, TREES, repeat * TREES)
        for name, engine in engines.items():
            rows[name].append(search(engine, tasks, sampled)[1])
    tasks = envs.tasks("booking", Split.VALIDATION, 2 * TREES, (REPEATS + 1) * TREES)
    trees = [search(engine, tasks, greedy)[0] for engine in engines.values()]
    equal = sum(texts(a) == texts(b) for a, b in zip(*trees, strict=True))
    found: dict[str, Any] = {}
    for name, (_, *measured) in rows.items():
        best = max(measured, key=lambda row: row["simulations_per_cpu_s"])
        found[name] = {key: round(value, 4) for key, value in best.items()}
    for engine in engines.values():
        engine.close()
    return {**found, "equal_greedy_trees": equal, "greedy_trees": len(tasks)}


def search(engine: Engine, tasks: list[Task], settings: SearchSettings) -> tuple[list[TreeRecord], dict[str, float]]:
    """Search all tasks at once; return the trees by task, and the cost."""
    policy, critic = ModelPolicy(engine), LLMRanker(engine)
    trees: list[TreeRecord] = []

    async def work(task: Task) -> TreeRecord:
        return await TreeSearch(envs.make("booking"), task, policy, settings, critic=critic).run()

    before, begun, used = engine.usage.since(None), time.perf_counter(), cpu_s()
    run_all(tasks, work, in_flight=len(tasks), on_done=trees.append)
    seconds, cpu = time.perf_counter() - begun, cpu_s() - used
    simulations = sum(int(tree.info["iterations"]) for tree in trees)
    figures = {"simulations_per_s": simulations / seconds, "simulations_per_cpu_s": simulations / cpu}
    return sorted(trees, key=lambda tree: tree.task.seed), figures | shares(engine.usage.since(before), seconds)


def shares(usage: Usage, seconds: float) -> dict[str, float]:
    """Share of prompt tokens served from the cache, in total and by role, and the engine's share of the time."""
    found = {"cached": cached(usage.total), **{f"cached_{role}": cached(t) for role, t in usage.roles.items()}}
    speed = {
        "generated_per_s": usage.total.generated_tokens / seconds,
        "prompt_per_s": usage.total.prompt_tokens / seconds,
    }
    return found | speed | {"engine_busy": usage.seconds / seconds}


def cached(t: Tally) -> float:
    return t.cached_tokens / max(1, t.prompt_tokens)


def texts(tree: TreeRecord) -> list[object]:
    """The texts of the nodes of a tree."""
    return [tree.parent.tolist(), [p and p.token_ids.tolist() for p in tree.proposal]]


def cpu_s() -> float:
    """CPU seconds of this process and of the processes that it started."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def large(shape: str, trees: int = 64 if CUDA else 8) -> dict[str, Any]:
    """Tokens per second, cached share and agreement with a learner, on vLLM and a random checkpoint of a shape."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = random_checkpoint(Path(folder) / shape, shape, "cuda" if CUDA else "cpu")
        settings = VLLM | ({"gpu_memory_utilization": 0.4, "max_model_len": 4096} if CUDA else {"max_model_len": 2048})
        engine = VLLMEngine(checkpoint, **settings)
        stages = [walk(engine, number, trees) for number in range(2)]  # the first warms up
        histories = [history for task in envs.tasks("booking", Split.BASE, 8) for history in states(task)[:2]]
        prompts = [engine.render(h, policy_messages, max_new_tokens=NEW_TOKENS) for h in histories]
        samples = asyncio.run(probe(engine, prompts, k=2, max_new_tokens=NEW_TOKENS))
        engine.close()
        dtype = torch.bfloat16 if CUDA else torch.float32
        device = "cuda" if CUDA else "cpu"
        learner = Learner.from_checkpoint(checkpoint, device=device, dtype=dtype, learning_rate=1e-5)
        found = agreement(samples, learner.recompute_logps)
    gaps = {"agreement_mean": found.mean, "agreement_max": found.max, "agreement_tokens": found.num_tokens}
    return {"shape": shape, "trees": trees, **{k: round(v, 4) for k, v in stages[1].items()}, **gaps}


def random_checkpoint(path: Path, shape: str, device: str) -> Path:
    """Random weights with the embedded base's tokenizer; such a model hardly ever ends an answer by itself.

    bfloat16 if made on a GPU, which takes seconds for 7B, else float32.
    """
    tokenizer = AutoTokenizer.from_pretrained(embedded_base())
    torch.manual_seed(0)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    config = Qwen2Config(**{"tie_word_embeddings": False} | SHAPES[shape] | ends, max_position_embeddings=32768)
    config.dtype = dtype
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(dtype)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def walk(engine: Engine, number: int, trees: int, new_tokens: int = NEW_TOKENS) -> dict[str, float]:
    """K proposals at each state of the expert's episodes of `trees` tasks, all tasks at once."""
    paths = [states(task) for task in envs.tasks("booking", Split.BASE, trees, number * trees)]

    async def follow(path: list[History]) -> None:
        for seed, history in enumerate(path):
            prompt = engine.render(history, policy_messages, max_new_tokens=new_tokens)
            await engine.sample(SampleRequest(prompt, K, seed, 1.0, new_tokens))

    async def every() -> None:
        await asyncio.gather(*map(follow, paths))

    before, begun = engine.usage.since(None), time.perf_counter()
    asyncio.run(every())
    return shares(engine.usage.since(before), time.perf_counter() - begun)


def states(task: Task) -> list[History]:
    """The histories of the expert's episode."""
    env, expert = envs.make("booking"), envs.expert("booking")
    found = [History.of(task, env.reset(task))]
    while True:
        advice = expert(task, env)
        result = env.step(advice.env_action)
        if result.terminated or result.truncated:
            return found
        text = format_action(advice.env_action, thought=advice.thought, status=advice.status)
        found.append(found[-1].then(text, result.observation))
