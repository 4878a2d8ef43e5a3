"""The parts of an OpenAI-compatible server's answers that agentq reads: the standard's fields, and vLLM's token ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, FiniteFloat, ValidationError, model_validator

from agentq.policies.patience import BadAnswer
from agentq.types import StopReason

Form = TypeVar("Form", bound=BaseModel)
Choice = TypeVar("Choice", bound="_Choice")
CUT_OFF = {"length", "max_tokens", "model_length"}  # `finish_reason`, in any case; other texts are a normal stop
BROKEN_OFF = {"abort", "error"}
FILTERED = {"content_filter", "safety", "refusal"}
BEGINNING = 80  # characters of an answer that is no JSON, in messages


def _whole(told: Any) -> int:
    """A number of tokens; 0 if it is none."""
    try:
        return int(told)
    except (TypeError, ValueError, OverflowError):
        return 0


def _joined(content: Any) -> Any:
    """The text of a content in parts. Parts of other kinds, such as thinking, are left out."""
    if not isinstance(content, list):
        return content
    parts = [{"text": part} if isinstance(part, str) else part for part in content]
    spoken = [part for part in parts if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text")]
    return "".join(part["text"] for part in spoken if isinstance(part.get("text"), str))


def _as_json(arguments: Any) -> str:
    """The arguments of a call as JSON, which some servers have parsed already."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


Count = Annotated[int, BeforeValidator(_whole)]


class _Details(BaseModel):
    cached_tokens: Count = 0


class Tokens(BaseModel):
    """`usage`; servers may omit all of it."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again."""
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            prompt_tokens_details=_Details(cached_tokens=self.cached_tokens + other.cached_tokens),
        )


class _Function(BaseModel):
    name: str | None = None
    arguments: Annotated[str, BeforeValidator(_as_json)] = "{}"  # JSON


class _Call(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: Annotated[str | None, BeforeValidator(_joined)] = None
    tool_calls: list[_Call] | None = None

    @property
    def text(self) -> str:
        """What the model said, with its calls of tools in the usual form of open models; a call names its tool."""
        named = (call.function for call in self.tool_calls or () if call.function.name)
        calls = (f"<tool_call>\n{function.model_dump_json()}\n</tool_call>" for function in named)
        return "\n".join(part for part in (self.content or "", *calls) if part)


class _Choice(BaseModel):
    index: int | None = 0
    finish_reason: str | None = None

    @property
    def stop_reason(self) -> StopReason:
        """Why the answer ended. Raises BadAnswer if it was broken off."""
        if self.finish_reason is None or self.finish_reason.lower() in BROKEN_OFF:
            raise BadAnswer(f"finish_reason {self.finish_reason}", kind="answer broken off")
        if self.finish_reason.lower() in FILTERED:
            return StopReason.REFUSED
        return StopReason.LENGTH if self.finish_reason.lower() in CUT_OFF else StopReason.EOS


class _Likely(BaseModel):
    token: str
    logprob: FiniteFloat


class _Position(BaseModel):
    top_logprobs: list[_Likely]


class _Positions(BaseModel):
    content: list[_Position]


class Spoken(_Choice):
    """A choice of /chat/completions."""

    message: _Message
    logprobs: Any = None  # servers have several forms

    def likeliest(self) -> dict[str, float]:
        """The likeliest first tokens with their log-probabilities; empty if the server does not report them."""
        try:
            told = _Positions.model_validate(self.logprobs).content
        except ValidationError:
            return {}
        return _stripped((likely.token, likely.logprob) for position in told[:1] for likely in position.top_logprobs)


class _Logprobs(BaseModel):
    token_logprobs: list[FiniteFloat]
    top_logprobs: list[dict[str, FiniteFloat]] | None = None


class Written(_Choice):
    """A choice of /completions."""

    text: str
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """`[T]` int32 ids and `[T]` float32 log-probabilities; raises BadAnswer if their numbers differ."""
        if not self.token_ids or self.logprobs is None or len(self.token_ids) != len(self.logprobs.token_logprobs):
            ids, logps = len(self.token_ids or ()), len(self.logprobs.token_logprobs) if self.logprobs else 0
            raise BadAnswer(f"{ids} token ids with {logps} log-probabilities", kind="wrong token counts")
        return np.array(self.token_ids, dtype=np.int32), np.array(self.logprobs.token_logprobs, dtype=np.float32)

    def likeliest(self) -> dict[str, float]:
        """The likeliest first tokens with their log-probabilities; empty if the server does not report them."""
        told = self.logprobs.top_logprobs if self.logprobs else None
        return _stripped(told[0].items()) if told else {}

    def probed(self) -> tuple[dict[str, float], list[int]]:
        """Log-probabilities of the likeliest first tokens, and the prompt's ids. Raises BadAnswer if one is missing."""
        self.tokens()
        if not self.prompt_token_ids or self.logprobs is None or not self.logprobs.top_logprobs:
            raise BadAnswer("no token ids of the prompt, or no log-probabilities of the likeliest tokens")
        return self.logprobs.top_logprobs[0], self.prompt_token_ids


class Chat(BaseModel):
    """An answer of /chat/completions."""

    choices: list[Spoken]
    usage: Tokens | None = None


def cut_off(n: int, max_tokens: int) -> str:
    """The body of a chat with `n` answers that reached their limit before they said anything, as in thinking."""
    choices = [{"index": i, "finish_reason": "length", "message": {"content": ""}} for i in range(n)]
    return json.dumps({"choices": choices, "usage": {"completion_tokens": n * max_tokens}})


class Completion(BaseModel):
    """An answer of /completions."""

    choices: list[Written]
    usage: Tokens | None = None


class Model(BaseModel):
    """One of the server's models."""

    id: str
    root: str | None = None  # vLLM: the name or path of the checkpoint
    parent: str | None = None  # vLLM: the model of an adapter
    max_model_len: int | None = None  # vLLM, except for an adapter


class Models(BaseModel):
    """An answer of /models."""

    data: list[Model]

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, told: Any) -> Any:
        """A bare list is the models'."""
        return {"data": told} if isinstance(told, list) else told


class Tokenizer(BaseModel):
    """An answer of vLLM's /tokenizer_info or of llama.cpp's /props; both may omit fields."""

    chat_template: str = ""
    bos_token: str = ""
    eos_token: str = ""
    added_tokens_decoder: dict[str, str | dict[str, Any]] = {}

    @property
    def added(self) -> list[str]:
        """The added tokens that are more than white space."""
        told = [token if isinstance(token, str) else token.get("content", "") for token in self._all()]
        return [token for token in told if isinstance(token, str) and token.strip()]

    def _all(self) -> list[str | dict[str, Any]]:
        return [self.bos_token, self.eos_token, *self.added_tokens_decoder.values()]


def _stripped(likely: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The log-probability of each text, without the white space around it; the greatest of equal texts."""
    found: dict[str, float] = {}
    for token, logp in likely:
        found[token.strip()] = max(logp, found.get(token.strip(), logp))
    return found


def read(form: type[Form], body: str | bytes) -> Form:
    """Parse the body of an answer. Raises BadAnswer with the first fault."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        said = f"{place}: {first['msg']}" if place else first["msg"]
        if first["type"] != "json_invalid":
            raise BadAnswer(said, kind="answer of another form", passing=True) from None
        text = body if isinstance(body, str) else body.decode(errors="replace")
        begins = " ".join(text[:4096].split())[:BEGINNING]
        raise BadAnswer(f"{said}, in {begins!r}", kind="malformed JSON", passing=True) from None


class _Error(BaseModel):
    code: int | str | None = None
    type: str | None = None
    message: str = ""


class _Failed(BaseModel):
    error: _Error | str


def error_in(body: str | bytes) -> tuple[int, str] | None:
    """The status and the words of an error that a server sends with HTTP 200; 500 if it tells no status."""
    try:
        error = _Failed.model_validate_json(body).error
    except ValidationError:
        return None
    if isinstance(error, str):
        return 500, error
    code = _whole(error.code)
    return code if 400 <= code < 600 else 500, " ".join(filter(None, [error.message, error.type]))


def in_order(choices: Sequence[Choice], n: int) -> list[Choice]:
    """The `n` choices that were asked for; raises BadAnswer if there are fewer."""
    if len(choices) < n:
        raise BadAnswer(f"{len(choices)} of {n} choices", kind="too few choices")
    return sorted(choices, key=lambda choice: choice.index or 0)[:n]


def range_of(logps: Mapping[str, float], tokens: Iterable[str]) -> float:
    """Nats between the likeliest and the least likely of `tokens`; 0 if there are fewer than two."""
    chosen = [logps[token] for token in tokens]
    return max(chosen, default=0.0) - min(chosen, default=0.0)
