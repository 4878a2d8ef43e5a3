"""Checks of a model on an environment: its first pages, what the model answers there, and what training would need."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentq import envs
from agentq.agent.actions import format_action
from agentq.agent.prompts import critic_messages, policy_messages
from agentq.critics.ranker import LLMRanker
from agentq.doctor import Diagnosis, Patient
from agentq.envs.check import check
from agentq.envs.explore import plausible
from agentq.envs.sites import knows
from agentq.errors import ConfigError
from agentq.evaluation.endings import is_cut
from agentq.model_settings import CriticSettings
from agentq.policies.engine_names import path_in
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.placement import read_devices
from agentq.policies.protocol import Gives
from agentq.searching.run import wait_for
from agentq.types import EnvAction, History, Proposal, Sample, Split

TASKS, K = 4, 4  # 16 actions
READABLE = 0.75  # a smaller share costs search most of its proposals; ours
AGREES, DIFFERS = 0.02, 0.2  # nats per token: what rounding to bfloat16 explains; what only other weights explain; ours
GIB = 1 << 30


def environment(p: Patient) -> Diagnosis:
    """Tasks begin; an environment that does not come with agentq also keeps what search relies on."""
    tasks = envs.tasks(p.env, Split.TRAIN, TASKS)  # first: a world may be open once at a time
    env = envs.make(p.env)
    try:
        p.firsts = [History.of(task, env.reset(task)) for task in tasks]
    finally:
        env.close()
    if not knows(p.env) and not p.env.startswith("miniwob"):
        broken = [str(finding) for finding in check(p.env, 1) if finding.holds is False]
        if broken:
            return Diagnosis("fail", f"{p.env}: {'; '.join(broken)}", f"agentq env check {p.env}")
    return Diagnosis("ok", f"{p.env}: the first {TASKS} tasks begin")


def context(p: Patient) -> Diagnosis:
    """The longest prompt on the expert's way, or on random walks, and an answer fit the model's context."""
    if p.engine is None or p.renderer is None or not p.firsts:
        return Diagnosis("skipped", "there is no model and tokenizer here" if p.firsts else f"{p.env} shows no page")
    longest = page = 0
    for history, action in _walks(p.env):
        ranked, whole = critic_messages(history, [action] * 5), policy_messages(history)
        longest = max(longest, *(len(p.renderer.encode(messages)) for messages in (ranked, whole)))
        page = max(page, len(p.renderer.encode(policy_messages(replace(history, actions=())))))
    room = p.renderer.context_tokens
    answer = p.settings.max_new_tokens
    found = f"longest prompt {longest:,} tokens and an answer of {answer:,}; the context is {room:,}"
    if page + answer > room:
        p.firsts = []
        return Diagnosis("fail", found, "use a model with a longer context (vLLM: --max-model-len)")
    if longest + answer > room:
        return Diagnosis("warn", f"{found}, so the oldest actions are left out", "a longer context shows all of them")
    return Diagnosis("ok", found)


def _walks(name: str) -> Iterator[tuple[History, EnvAction]]:
    """The expert's histories and actions on some tasks, or those of random walks if the environment has no expert."""
    env, rng = envs.make(name), random.Random(0)
    try:
        expert = envs.expert(name)
    except ConfigError:
        expert = None
    try:
        for task in envs.tasks(name, Split.TRAIN, TASKS):
            history = History.of(task, env.reset(task))
            for _ in range(env.max_steps):
                if expert:
                    action, thought, *_ = expert(task, env)
                else:
                    action, thought = plausible(history.observation.text, task, rng), ""
                yield history, action
                result = env.step(action)
                if result.terminated or result.truncated:
                    break
                history = history.then(format_action(action, thought=thought), result.observation)
    finally:
        env.close()


def actions(p: Patient) -> Diagnosis:
    """The share of sampled actions on the first pages that could be read."""
    if p.engine is None or not p.firsts:
        return Diagnosis("skipped", "there is no page that fits the model" if p.engine else "there is no model")
    most = p.settings.max_new_tokens
    proposals = wait_for(_sample(ModelPolicy(p.engine, max_new_tokens=most, stop=p.settings.stop), p.firsts))
    p.samples = [Sample(one.prompt_ids, one.token_ids, one.logps) for one in proposals if len(one.token_ids)]
    read = [one for one in proposals if one.action.env_action is not None]
    p.proposed = list(dict.fromkeys(one.action.env_action for one in read if one.action.env_action is not None))[:K]
    p.readable = len(read) / len(proposals)
    cut = sum(map(is_cut, proposals))
    found = f"{len(read)} of {len(proposals)} sampled actions could be read"
    found += f"; cut off after {most} tokens: {cut}" * (cut > 0)
    if p.readable >= READABLE:
        return Diagnosis("ok", found)
    example = next(one.action.text for one in proposals if one.action.env_action is None)
    more = f"; one that could not: {' '.join(example.split())[:60]!r}"
    ways = {
        f"--model.max_new_tokens {max(1024, 4 * most)} leaves room for thinking": 2 * cut >= len(proposals) - len(read),
        "--run.constrained true holds answers to the form of an action": Gives.PATTERNS in p.engine.gives,
        "agentq train sft teaches it": Gives.TOKEN_IDS in p.engine.gives,
    }
    able = [way for way, works in ways.items() if works] or ["--model.prompt FILE.py:NAME asks in another way"]
    return Diagnosis("warn" if read else "fail", found + more, "; ".join(able))


async def _sample(policy: ModelPolicy, histories: list[History]) -> list[Proposal]:
    asked = [policy.propose(history, K, seed=i) for i, history in enumerate(histories)]
    return [one for some in await asyncio.gather(*asked) for one in some]


def critic(p: Patient) -> Diagnosis:
    """The share of nodes that the model ranks, as it does by default in training."""
    if p.engine is None or len(p.proposed) < 2:
        return Diagnosis("skipped", "there is no model" if p.engine is None else "there are no two actions to rank")
    ranker = LLMRanker(p.engine, max_new_tokens=(most := CriticSettings().max_new_tokens))
    wait_for(_rank(ranker, p))
    read = len(p.firsts) - ranker.stats.fallbacks
    found = f"{read} of {len(p.firsts)} rankings of {len(p.proposed)} actions could be read"
    if read >= READABLE * len(p.firsts):
        return Diagnosis("ok", found)
    remedy = (
        f"--critic.max_new_tokens {max(1024, 4 * most)} leaves room for thinking; --critic.method listwise asks less"
    )
    return Diagnosis("warn", found, f"{remedy}; --critic.model none asks nothing")


async def _rank(ranker: LLMRanker, p: Patient) -> None:
    await asyncio.gather(*(ranker.rank(history, p.proposed, seed=i) for i, history in enumerate(p.firsts)))


def training_memory(p: Patient) -> Diagnosis:
    """Memory for training all weights, and adapters with gradient checkpointing, on a GPU or else in main memory."""
    path = path_in(p.model)
    if path is None or p.renderer is None:
        return Diagnosis("skipped", "there is no checkpoint to train" if path is None else "the checkpoint has a fault")
    from agentq.policies.weights import quantization_of
    from agentq.recipes.memory import free_bytes, size_of, to_train

    whole: dict[str, Any] = {"lora_rank": 0, "gradient_checkpointing": False}
    device = read_devices("auto")[0]
    bf16, size = device != "cpu", size_of(path, device)
    b = 2 if bf16 else 4
    _, need = to_train(size, b, bf16=bf16, **whole)
    _, less = to_train(size, b, bf16=bf16, lora_rank=16, gradient_checkpointing=True)
    free = free_bytes(device)
    found = f"training all weights needs about {need / GIB:.2f} GiB, adapters {less / GIB:.2f} GiB; "
    found += f"{free / GIB:.2f} GiB are free on {device}"
    p.fits = to_train(size_of(path), 4, bf16=False, **whole)[1] <= free_bytes("cpu")  # the learner of the last check
    if how := quantization_of(path):
        found = f"{found}; its weights are {how}, of which only adapters are trained"
        return Diagnosis("ok" if less <= free else "warn", found, "train adapters (--train.lora_rank 16)")
    if need <= free:
        return Diagnosis("ok", found)
    fewer = "--train.lora_rank 16 --train.gradient_checkpointing true"
    divide = "divide the learner among GPUs (--train.devices 0-3)"
    return Diagnosis("warn", found, f"train adapters ({fewer}), or {divide}" if less <= free else divide)


def log_probabilities(p: Patient) -> Diagnosis:
    """The engine's log-probabilities of its samples are those that the learner computes from the same weights."""
    if p.engine is None:
        return Diagnosis("skipped", "there is no model")
    if Gives.TOKEN_IDS | Gives.LOGPS not in p.engine.gives:
        found = (
            f"{p.engine.name} reports none, so it can act, search and judge, but what it samples cannot be trained on"
        )
        return Diagnosis("warn", found, "serve the model with vLLM, with a tokenizer that can be loaded here")
    path = path_in(p.model)
    if path is None or not p.samples or p.fits is False:
        why = "the learner would not fit into memory" if p.fits is False else "there are no samples to compare"
        return Diagnosis("skipped", why if path else "the server's weights are not here")
    from agentq.learn.learner import Learner
    from agentq.policies.agreement import agreement
    from agentq.policies.weights import quantization_of

    rank = 1 if quantization_of(path) else 0  # new adapters change nothing, and such weights alone are not trained
    gap = agreement(p.samples, Learner.from_checkpoint(path, learning_rate=1e-6, lora_rank=rank).recompute_logps)
    found = f"engine and learner differ by {gap.mean:.1e} nats per token on average, {gap.max:.1e} at most"
    if gap.mean <= AGREES:
        return Diagnosis("ok", found)
    if gap.mean <= DIFFERS:
        return Diagnosis("warn", found, "leave train.logp_tolerance at 0, so that they are computed again")
    return Diagnosis("fail", found, "the server must have the checkpoint's weights, in its own type")
