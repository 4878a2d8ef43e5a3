"""The settings of models: where they run, how they are prompted, what they may answer. See `config`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agentq.errors import ConfigError


class Section(BaseModel):
    """A group of settings, or a model made of such groups."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    def check(self, name: str) -> None:
        """Raises ConfigError if the settings of the command or recipe `name` contradict each other."""
        for _, value in self:
            if isinstance(value, Section):
                value.check(name)


def _read_json(value: Any) -> Any:
    """The value of a text that is JSON; any other value unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


JsonOrText = Annotated[Any, BeforeValidator(_read_json)]


def _read_texts(value: Any) -> Any:
    """A list of texts from one text, unless it is a JSON list."""
    found = _read_json(value)
    return found if isinstance(found, list) else [value] if isinstance(value, str) else value


class ModelSettings(Section):
    """How models run, how they are prompted and how the policy answers."""

    devices: str = Field(
        default="auto",
        description="Where models run: auto (a GPU, else the CPU), cpu, mps, cuda, or numbers of GPUs such as 0-3.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Type of the weights; auto: bfloat16 on a GPU; on a CPU float32 for a small model or without "
        "bfloat16 instructions, else the checkpoint's (bfloat16 if float16).",
    )
    attention: str = Field(
        default="auto",
        min_length=1,
        description="Attention in transformers: sdpa, eager, flash_attention_2 or auto.",
    )
    context: int = Field(
        default=0, ge=0, description="Tokens of a prompt and its answer together; 0: as many as the model supports."
    )
    max_new_tokens: int = Field(default=96, ge=1, description="Tokens of an action, with any thinking before it.")
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_read_texts)] = Field(
        default=[], description="Texts at which an action ends: one, or a JSON list."
    )
    sees: bool = Field(
        default=False,
        description="Whether models also see a screenshot of each page with numbered marks, and may use CLICK_AT.",
    )
    template: Annotated[dict[str, Any], BeforeValidator(_read_json)] = Field(
        default={}, description='Arguments of the chat template as JSON, such as {"enable_thinking": false}.'
    )
    date: str = Field(
        default="2025-01-01",
        pattern=r"^(today|\d{4}-\d\d-\d\d)$",
        description="Date shown by chat templates; today: the day of the start, so prompts differ between days.",
    )
    prompt: str = Field(default="", description="The prompt's function, FILE.py:NAME; empty: agentq's own prompt.")
    grammar: str = Field(default="", description="The function that reads answers, FILE.py:NAME; empty: agentq's own.")
    threads: int = Field(
        default=0, ge=0, description="Threads on a CPU; 0: OMP_NUM_THREADS, else 1 (small model) or all cores."
    )
    memory: bool = Field(default=True, description="Whether to refuse a model that will not fit into memory.")
    sleep: int = Field(
        default=1,
        ge=0,
        le=2,
        description="What vLLM frees during training: 1 moves its weights to main memory, 2 drops them, 0: nothing.",
    )

    def check(self, name: str) -> None:
        """See `Section.check`."""
        if self.context and self.context <= self.max_new_tokens:
            raise ConfigError(
                f"model.context must be greater than model.max_new_tokens ({self.max_new_tokens}); got {self.context}"
            )


CriticMethod = Literal["pick_best", "listwise", "letters"]


class CriticSettings(Section):
    """The model that ranks the proposals of a node, and how."""

    model: str = Field(
        default="base",
        min_length=1,
        description="What ranks proposals: base (in `run`, the model itself), none, or the name of a model.",
    )
    max_new_tokens: int = Field(default=192, ge=1, description="Tokens of a critic's answer, with any thinking.")
    method: CriticMethod = Field(
        default="pick_best",
        description="pick_best: K - 1 answers, one after another; listwise: one answer ranks all; letters: the "
        "probabilities of the letters in one pass.",
    )


class JudgeSettings(Section):
    """The model that judges a live task."""

    model: str = Field(default="", description="What judges whether the task is done; empty: the model that acts.")
    max_new_tokens: int = Field(default=256, ge=1, description="Tokens of a judge's answer, with any thinking.")


class VLLM(Section):
    """Arguments of vLLM's engine by vLLM's own names, for `vllm:PATH`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonOrText] = Field(init=False)  # vLLM knows the types
