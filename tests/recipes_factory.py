"""What the recipes' tests run on: a tiny checkpoint that says a few actions, a teacher that mostly knows how."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentq import envs
from agentq.agent.actions import format_action, parse_action
from agentq.agent.prompts import critic_answer, critic_messages, plain_text, policy_messages
from agentq.base.tokenizer import train_tokenizer
from agentq.learn.learner import Learner
from agentq.model_settings import CriticSettings
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.usage import Usage
from agentq.recipes.pipeline import Pipeline
from agentq.status import Show
from agentq.types import Command, EnvAction, History, Proposal, Sample, Split, Status, StopReason, Task

STOP = format_action(EnvAction(Command.STOP), status=Status.DONE)
SAYINGS = (
    STOP,
    format_action(EnvAction(Command.SCROLL, text="DOWN")),
    format_action(EnvAction(Command.GOTO, text="/")),
    critic_answer(EnvAction(Command.STOP), "A"),
)


def expert_texts(task: Task) -> list[str]:
    """The expert's actions on a task, as composite actions."""
    return list(_expert_texts(task))


@cache
def _expert_texts(task: Task) -> list[str]:
    env, expert, texts = envs.make(task.env), envs.expert(task.env), []
    env.reset(task)
    while True:
        advice = expert(task, env)
        texts.append(format_action(advice.env_action, thought=advice.thought, status=advice.status))
        if env.step(advice.env_action).terminated:
            return texts


def tiny_checkpoint(path: Path, *, head_dim: int = 16, tied: bool = True) -> Path:
    """A Llama of hidden size 32 that says one of `SAYINGS`, whatever it is asked."""
    torch.manual_seed(0)
    env, task = envs.make("booking"), envs.task("booking", Split.BASE, 0)
    history = History(task.instruction, env.reset(task))
    prompts = [policy_messages(history), critic_messages(history, [EnvAction(Command.STOP)] * 2)]
    corpus = [*map(plain_text, prompts), *SAYINGS, *expert_texts(task)]
    tokenizer = train_tokenizer(corpus * 3, vocab_size=800, context_tokens=2048)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=tied,
        attn_implementation="sdpa",
    )
    learner = Learner(LlamaForCausalLM(config), learning_rate=1e-2, tokenizer=tokenizer)
    samples = [_sample(tokenizer, prompt, text) for prompt in prompts for text in SAYINGS]
    for _ in range(40):
        learner.step_sft(samples)
    learner.save(path)
    return path


def _sample(tokenizer: object, messages: list[dict[str, str]], text: str) -> Sample:
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)  # type: ignore[attr-defined]
    ids, answer = (tokenizer(t)["input_ids"] for t in (prompt, f"{text}<|end|>"))  # type: ignore[operator]
    ids = ids[-40:]  # what it says does not depend on the page
    return Sample(np.array(ids, np.int32), np.array(answer, np.int32), np.full(len(answer), np.nan, np.float32))


class Teacher:
    """`Policy` over an engine's tokens and log-probabilities: the expert's next action, or (1 in 25) STOP.

    Greedy, it stops at once, unless `learnt`.
    """

    version = 0

    def __init__(
        self, engine: TransformersEngine, scripts: dict[str, list[str]], *, learnt: bool, follows: float = 0.96
    ) -> None:
        self.engine, self.scripts, self.learnt, self.follows = engine, scripts, learnt, follows
        self.asked = 0

    async def propose(self, history: History, k: int, *, seed: int, temperature: float = 1.0) -> list[Proposal]:
        """See `Policy.propose`. As an engine's, log-probabilities are rounded by what was asked before."""
        self.asked += 1
        rng, rounding = np.random.default_rng(seed), np.float32(1 + 2e-7 * (self.asked % 8))
        texts = [self._text(history, rng, temperature) for _ in range(k)]
        prompt = self.engine.renderer.encode(policy_messages(history))
        read = {text: self._read(prompt, text) for text in dict.fromkeys(texts)}
        return [
            Proposal(
                parse_action(text, language=history.language),
                *(prompt, read[text][0], read[text][1] * rounding),
                *(StopReason.EOS, self.version, temperature),
            )
            for text in texts
        ]

    def write(self, history: History, text: str) -> Proposal:
        """See `ModelPolicy.write`."""
        return ModelPolicy(self.engine).write(history, text)

    def _text(self, history: History, rng: np.random.Generator, temperature: float) -> str:
        script, n = self.scripts[history.instruction], len(history.actions)
        follows = rng.random() < self.follows if temperature else self.learnt
        on_the_way = n < len(script) and list(history.actions) == script[:n]
        return script[n] if follows and on_the_way else STOP

    def _read(self, prompt: np.ndarray, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of an answer and their log-probabilities."""
        ids = np.array(self.engine.renderer.tokenizer(f"{text}<|end|>")["input_ids"], np.int32)
        with torch.inference_mode():
            row = torch.from_numpy(np.concatenate([prompt, ids]).astype(np.int64))[None]
            every = torch.log_softmax(self.engine.model(row).logits[0, len(prompt) - 1 : -1].float(), dim=-1)
        return ids, every.gather(-1, row[0, len(prompt) :, None])[:, 0].numpy()


class PrefersTheLongest:
    """`Critic` that values an action by its length: to stop is the shortest there is. Reads one token a node."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage

    async def rank(self, history: History, proposals: Sequence[EnvAction | None], *, seed: int) -> list[float]:
        """See `Critic.rank`."""
        self.usage.of("critic").prompt_tokens += 1
        return [float(len(str(action)) == max(len(str(a)) for a in proposals)) for action in proposals]


class Quiet:
    """`StageDisplay` that shows nothing."""

    def stage(self, name: str, total: int, unit: str) -> Show:
        return lambda done, note, grown=0.0, /: None

    def plan(self, stages: Any, in_flight: int) -> None: ...

    def say(self, text: str) -> None: ...


class Schooled(Pipeline):
    """A pipeline for policies that are teachers; its critic prefers the longest."""

    def scripts(self, num_tasks: int) -> dict[str, list[str]]:
        """What a teacher knows: the held-out tasks and so many to train on."""
        tasks = [*self.tasks(Split.TRAIN, num_tasks), *self.tasks(Split.TEST, self.settings.eval.num_tasks)]
        return {task.instruction: expert_texts(task) for task in tasks}

    def critic(self, critic: CriticSettings) -> PrefersTheLongest | None:
        """See `Pipeline.critic`."""
        return None if critic.model == "none" else PrefersTheLongest(self.engine(self.base).usage)


class Idle(Pipeline):
    """A pipeline that must not need a model."""

    def engine(self, checkpoint: Path) -> TransformersEngine:
        raise AssertionError(f"a finished run must load no model; got {checkpoint}")
