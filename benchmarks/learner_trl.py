"""TRL's DPOTrainer and GRPOTrainer in benchmarks/learner.py, as they are and at their best.

A contestant takes one optimiser step on a model, with agentq's loss.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from learner_peers import BETA, Meter, Step, gradient, sequence
from learner_workload import EOS

from agentq.policies.adapters import base_of
from agentq.types import PreferencePair, Sample

MICRO_BATCH = 4  # pairs TRL forwards at once; its default of 8 needs twice the memory and is not faster on a CPU


def trl_default(model: Any, pairs: list[PreferencePair], *, bf16: bool, reference: Any = None) -> Step:
    """TRL as it is, without max_length, which would drop or cut these pairs. Its reference is a copy of the model."""
    return _trl(model, pairs, reference or copy.deepcopy(model), bf16=bf16)


def trl_best(model: Any, pairs: list[PreferencePair], *, bf16: bool, steps: int = 1) -> Step:
    """No checkpointing, reference computed beforehand, the head on response rows alone (which it does on GPUs only).

    The last of `steps` counts.
    """
    import trl.trainer.utils

    trl.trainer.utils._use_triton = lambda device: True  # what decides `compact` there, and nothing else
    best = {"gradient_checkpointing": False, "precompute_ref_log_probs": True, "max_steps": steps}
    return _trl(model, pairs, None, bf16=bf16, **best)


def trl_grpo_default(model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool) -> Step:
    """TRL's GRPO as it is: checkpointing, eight sequences at once, the head on all of a completion."""
    return _grpo(model, episodes, advantages, bf16=bf16, micro_batch=8)


def trl_grpo_best(
    model: Any, episodes: list[list[Sample]], advantages: list[float], *, bf16: bool, steps: int = 1
) -> Step:
    """No checkpointing, one sequence at a time and so no padding. The last of `steps` counts."""
    best = {"gradient_checkpointing": False, "max_steps": steps}
    return _grpo(model, episodes, advantages, bf16=bf16, micro_batch=1, **best)


def _grpo(
    model: Any,
    episodes: list[list[Sample]],
    advantages: list[float],
    *,
    bf16: bool,
    micro_batch: int,
    **settings: Any,
) -> Step:
    """An episode is a completion whose pages are masked if prompts are only appended to; else each step is one.

    Its packing of groups (`trl.experimental.async_grpo`) needs a FlashAttention 3 kernel and a vLLM server.
    """
    from trl import GRPOConfig, GRPOTrainer

    rows = _grpo_rows(episodes)
    rewards = [advantages[i % len(episodes)] for i in range(len(rows["prompt_ids"]))]
    micro_batch = min(micro_batch, len(rewards))
    total = sum(map(len, rows["prompt_ids"])) + sum(map(len, rows["completion_ids"]))
    settings |= {
        "max_steps": settings.get("max_steps", 1),
        "loss_type": "dapo",  # the mean over the step's tokens
        "beta": 0.0,
        "scale_rewards": "none",  # rewards of mean 0 are then the advantages
        "num_generations": len(episodes),
        "max_completion_length": max(map(len, rows["completion_ids"])),
        "max_grad_norm": 1e9,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": len(rewards) // micro_batch,
    }
    prompts = [{"prompt": _word(4 + i)} for i in range(len(rewards) // len(episodes))]
    step = _trained(
        model,
        lambda out, **common: GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: rewards,
            args=GRPOConfig(output_dir=out, bf16=bf16, **settings, **common.pop("settings")),
            rollout_func=lambda prompts, trainer: rows,
            train_dataset=_dataset(prompts),
            **common,
        ),
    )
    step.tokens = total
    return step


def _grpo_rows(episodes: list[list[Sample]]) -> dict[str, list[list[int]]]:
    """What a rollout function returns, step by step within a group if episodes are not one sequence."""
    rows: dict[str, list[list[int]]] = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "logprobs": []}
    whole = all(
        later.prompt_ids[: len(s.prompt_ids)].tolist() == s.prompt_ids.tolist()
        for steps in episodes
        for s, later in pairwise(steps)
    )
    sequences = episodes if whole else [[s] for at_step in zip(*episodes, strict=True) for s in at_step]
    for steps in sequences:
        ids, start = sequence(steps[-1])[0], len(steps[0].prompt_ids)
        mask = np.zeros(len(ids), np.int64)
        for s in steps:
            mask[len(s.prompt_ids) : len(s.prompt_ids) + len(s.token_ids)] = 1
        rows["prompt_ids"].append(ids[:start])
        rows["completion_ids"].append(ids[start:])
        rows["env_mask"].append(mask[start:].tolist())
        rows["logprobs"].append([0.0] * (len(ids) - start))  # TRL reads them only from vLLM
    return rows


def _trl(model: Any, pairs: list[PreferencePair], reference: Any, *, bf16: bool, **settings: Any) -> Step:
    from trl import DPOConfig, DPOTrainer

    micro_batch = min(MICRO_BATCH, len(pairs))
    settings |= {
        "max_steps": settings.get("max_steps", 1),
        "beta": BETA,
        "max_length": None,
        "max_grad_norm": 0.0,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": len(pairs) // micro_batch,
    }
    step = _trained(
        model,
        lambda out, **common: DPOTrainer(
            model=model,
            ref_model=reference,
            args=DPOConfig(output_dir=out, bf16=bf16, **settings, **common.pop("settings")),
            train_dataset=_dataset([_text(pair) for pair in pairs]),
            **common,
        ),
        setup_counts="precompute_ref_log_probs" in settings,
    )
    sides = [s for pair in pairs for s in (*pair.chosen, *pair.rejected)]
    step.tokens = sum(len(s.prompt_ids) + len(s.token_ids) for s in sides)
    return step


def _trained(model: Any, make: Callable[..., Any], *, setup_counts: bool = False) -> Step:
    """One step of the trainer that `make` gives."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    from transformers import TrainerCallback

    step, device = Step(), base_of(model).device

    class Measure(TrainerCallback):  # type: ignore[misc]  # untyped
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.meter = Meter(device)

        def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            step.gradient = gradient(model)

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.meter.read(step)

    settings = {"use_cpu": device.type == "cpu", "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    with tempfile.TemporaryDirectory() as out:
        start = time.process_time()
        trainer = make(
            out,
            settings=settings,
            processing_class=_tokenizer(model.config.vocab_size),
            callbacks=[Measure()],
        )
        step.once_s = time.process_time() - start if setup_counts else 0.0
        step.loss = float(trainer.train().training_loss)
    return step


def _dataset(rows: list[dict[str, str]]) -> Any:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    return Dataset.from_list(rows)


def _word(token: int) -> str:
    return {0: "<pad>", 1: "<unk>", EOS: "<eos>"}.get(token, f"w{token}")


def _text(pair: PreferencePair) -> dict[str, str]:
    (chosen,), (rejected,) = pair.chosen, pair.rejected
    ids = {"prompt": chosen.prompt_ids, "chosen": chosen.token_ids, "rejected": rejected.token_ids}
    return {name: " ".join(["", *map(_word, tokens.tolist())]) for name, tokens in ids.items()}


def _tokenizer(vocab_size: int) -> Any:
    """One id per word, so that training uses the recorded ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({_word(i): i for i in range(vocab_size)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
