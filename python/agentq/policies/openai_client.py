"""Calls to an OpenAI-compatible server, with its failures classified. The only file that imports the openai package."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from agentq.agent.prompts import Messages, with_tools
from agentq.errors import ConfigError, ModelError, require
from agentq.policies.chat import joined, merged
from agentq.policies.marks import source_marks
from agentq.policies.openai_answers import Chat, Completion, Model, Models, Tokenizer, cut_off, error_in, read
from agentq.policies.patience import BadAnswer, Unavailable

Form = TypeVar("Form", bound=BaseModel)

NO_CONNECTION, BROKEN_OFF = "no connection", "connection broken off"  # kinds of failures
PASSING = {408, 409, 425, 429}  # HTTP statuses of failures that may be temporary, besides 5xx
PROMPT_REFUSED = {400, 413, 422}  # too long, or stopped by a filter, or a parameter
CROWDED, FORBIDDEN = 429, 403
OUT_OF_MONEY = "insufficient_quota"  # OpenAI's type of a 429 that does not pass
WHOLE = {"top_p": 1.0}  # sample from the whole distribution, whatever the server's defaults
OTHERWISE = {  # parameters that some servers refuse, with the names under which they are sent then; "": not at all
    "max_tokens": "max_completion_tokens",
    "top_p": "",  # it is always 1, OpenAI's default
    "seed": "",
}
# refusals of reasoning models that used all tokens up; of too few tokens; of the system message
RAN_OUT = re.compile(r"(?i)could not finish the message because max_tokens|model output limit was reached")
TOO_FEW = re.compile(r"(?is)\bmax_\w*tokens\b.*?(?:at least|minimum|>=|greater than or equal to)\D{0,24}(\d+)")
NO_SYSTEM = re.compile(r"(?i)\broles?\b|\b(?:system|developer)[ _](?:message|prompt|instruction)")
MOST_AT_LEAST = 128  # tokens: a refusal that asks for more means something else (ours)
VLLM = {"return_token_ids": True, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


class Refused(ModelError):
    """The server rejected the request. Sending it again would not help. `said`: its words about the parameters."""

    def __init__(self, message: str, said: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.said, self.status = said, status

    @property
    def parameters(self) -> list[str]:
        """The parameters that the server names, of those that servers often refuse."""
        return [name for name in (*OTHERWISE, "temperature") if re.search(rf"\b{name}\b", self.said)]


def key_name(url: str) -> str:
    """The variable for the key of one host, such as OPENAI_API_KEY_API_EXAMPLE_COM; others use OPENAI_API_KEY."""
    return "OPENAI_API_KEY_" + re.sub(r"\W", "_", urlsplit(url).hostname or "").upper()


def key_of(url: str) -> str:
    """The key for a host, "none" without one. Raises ConfigError, which does not show it, if no header can hold it."""
    for name in (key_name(url), "OPENAI_API_KEY"):
        if key := os.environ.get(name, "").strip():
            if not (key.isascii() and key.isprintable()):
                raise ConfigError(f"{name} must be one line of ASCII characters")
            return key
    return "none"


class OpenAIClient:
    """`url` ends in /v1. The key, if the server needs one, is in OPENAI_API_KEY or in that of `key_name`."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """For use in one event loop. Raises MissingExtra without the openai package, and ConfigError (`key_of`)."""
        self._openai: Any = require("openai", extra="openai", for_="an engine behind a URL")
        self.url, self.timeout_s, self.model = url.rstrip("/"), timeout_s, ""
        self._takes_tools = self._takes_system = True  # until it has refused them
        self._least = 0  # tokens of an answer that it allows to ask for
        self.names: dict[str, str] = {}  # the part of OTHERWISE that this server needs
        self._accepted = set[str]()  # paths for which the names are known
        self._client = self._openai.AsyncOpenAI(
            base_url=self.url, api_key=key_of(url), max_retries=0, timeout=timeout_s
        )

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        """The body of an answer to GET or POST; a path that begins with // is relative to the host instead of the API.

        Raises:
            Unavailable: if there was no answer, or a failure that may be temporary.
            Refused: if the server rejects the request.
        """
        url = self.url.removesuffix("/v1") + path[1:] if path.startswith("//") else path
        send = self._client.get if method == "GET" else self._client.post
        try:
            async with asyncio.timeout(self.timeout_s):
                return str(await send(url, cast_to=str, **({} if body is None else {"body": body})))
        except self._openai.APIStatusError as error:
            said = _message(error)
            raise self._failure(error.status_code, said, str(error.body), _pause(error.response.headers)) from None
        except (TimeoutError, self._openai.APITimeoutError):
            raise Unavailable(f"no answer in {self.timeout_s:g} s", kind="no answer in time") from None
        except self._openai.APIConnectionError as error:
            kind = NO_CONNECTION if type(error.__cause__).__name__ == "ConnectError" else BROKEN_OFF
            raise Unavailable(f"no answer ({error.__cause__ or error})", kind=kind) from None

    def _failure(self, status: int, said: str, told: str, after_s: float = 0.0) -> Unavailable | Refused:
        """What an error of the server means. `told`: the whole answer, with the error's type."""
        line = f"HTTP {status}: {' '.join(said.split())[:300]}"
        if (status in PASSING or status >= 500) and OUT_OF_MONEY not in told:
            return Unavailable(line, after_s, kind=f"HTTP {status}", crowded=status == CROWDED)
        known = bool(self._accepted)  # then the key is right, and 403 is about the prompt
        words = said if status in PROMPT_REFUSED or (status == FORBIDDEN and known) else ""
        if status == 401 or (status == FORBIDDEN and not known):
            line = self.with_key(line)
        return Refused(f"{self.url} must accept agentq's request; got {line}", words, status)

    def with_key(self, line: str) -> str:
        """A message about a refusal that the key may be the reason of."""
        return f"{line}; put the server's key in OPENAI_API_KEY, or {key_name(self.url)} for this host alone"

    async def models(self) -> list[Model]:
        """The models that the server offers."""
        return read(Models, await self.call("GET", "/models")).data

    async def marks(self) -> list[str]:
        """Marks of the server's chat template and added tokens of its tokenizer, as far as it reports them.

        vLLM reports them with `--enable-tokenizer-info-endpoint`, llama.cpp always, other servers never.
        """
        found: list[str] = []
        for path in ("//tokenizer_info", "//props"):
            with suppress(Unavailable, Refused, BadAnswer):
                told = read(Tokenizer, await self.call("GET", path))
                found += [*told.added, *source_marks(told.chat_template)]
        return found

    async def complete(
        self,
        prompt: str | list[int],
        n: int,
        seed: int,
        temperature: float,
        max_tokens: int,
        *,
        likeliest: int = 0,
        pattern: str = "",
        stop: Sequence[str] = (),
        model: str = "",
    ) -> Completion:
        """`n` continuations with token ids and log-probabilities, also of the `likeliest` most likely tokens.

        `model`: the name on the server if it is not the usual one, which may be an adapter's.
        """
        asked: dict[str, Any] = {"prompt": prompt, "n": n, "seed": seed, "temperature": temperature}
        asked["max_tokens"] = max_tokens
        asked |= {"structured_outputs": {"regex": pattern}} if pattern else {}
        asked |= ({"stop": list(stop)} if stop else {}) | ({"model": model} if model else {})
        return await self._post(Completion, "/completions", asked | VLLM | {"logprobs": likeliest})

    async def chat(
        self,
        messages: Messages,
        n: int,
        seed: int,
        temperature: float,
        max_tokens: int,
        *,
        stop: Sequence[str] = (),
        template: Mapping[str, Any] = MappingProxyType({}),
        likeliest: int = 0,
    ) -> Chat:
        """`n` answers to a chat, with the log-probabilities of the `likeliest` most likely tokens.

        `template`: arguments of the server's chat template, if the server takes any. Tools of the system message are
        the server's `tools`; if it refuses them, they are listed in the message.
        """
        told: dict[str, Any] = {}
        shown = with_tools(messages)
        if "tools" in messages[0] and self._takes_tools:
            system, *others = messages
            told = {name: system[name] for name in ("tools", "tool_choice") if name in system}
            shown = [{"role": system["role"], "content": system["content"]}, *others]
        asked = {"messages": shown, "n": n, "seed": seed, "temperature": temperature, "max_tokens": max_tokens}
        asked |= {"stop": list(stop)} if stop else {}
        asked |= {"chat_template_kwargs": dict(template)} if template else {}
        asked |= {"logprobs": True, "top_logprobs": likeliest} if likeliest else {}
        try:
            return await self._chat(asked | told)
        except Refused:
            if not told:
                raise
        answer = await self._chat(asked | {"messages": with_tools(messages)})
        self._takes_tools = False
        return answer

    async def _chat(self, asked: dict[str, Any]) -> Chat:
        """The answer. If the system's role is refused, its message goes before the user's, from then on always."""
        without = asked | {"messages": merged(joined(asked["messages"]))}
        if self._takes_system:
            try:
                return await self._post(Chat, "/chat/completions", asked)
            except Refused as error:
                if without == asked or not NO_SYSTEM.search(error.said):
                    raise
                first = error
            try:
                answer = await self._post(Chat, "/chat/completions", without)
            except Refused:
                raise first from None
            self._takes_system = False
            return answer
        return await self._post(Chat, "/chat/completions", without)

    async def _post(self, form: type[Form], path: str, asked: dict[str, Any]) -> Form:
        """The answer. A parameter for which the first request is refused is renamed or left out, from then on always.

        Raises Refused if nothing helps: the first one, if a new name is refused as the old one was.
        """
        whole: dict[str, Any] = {"model": self.model} | asked | WHOLE
        names, least, renamed = self.names, self._least, dict[str, Refused]()
        while True:
            whole["max_tokens"] = max(asked["max_tokens"], least)
            body = {names.get(key, key): value for key, value in whole.items()}
            body.pop("", None)
            try:
                told = await self.call("POST", path, body)
            except Refused as error:
                left = [name for name in OTHERWISE if name in error.parameters and name not in names]
                if form is Chat and RAN_OUT.search(error.said):
                    told = cut_off(whole["n"], whole["max_tokens"])
                elif (few := TOO_FEW.search(error.said)) and whole["max_tokens"] < int(few[1]) <= MOST_AT_LEAST:
                    least = int(few[1])
                    continue
                elif left and path not in self._accepted:
                    names, renamed = names | {left[0]: OTHERWISE[left[0]]}, renamed | {left[0]: error}
                    continue
                elif error.parameters == ["temperature"]:
                    raise self._refused_temperature(whole["temperature"], error) from None
                else:
                    raise _first_of(renamed, error) from None
            self._accepted.add(path)
            self.names, self._least = self.names | names, max(self._least, least)
            try:
                return read(form, told)
            except BadAnswer:
                if (found := error_in(told)) is not None:
                    raise self._failure(*found, found[1]) from None
                raise

    def _refused_temperature(self, temperature: float, error: Refused) -> Refused:
        got = " ".join(error.said.split())[:300]
        return Refused(
            f"{self.url} must accept temperature {temperature:g}; got {got}; set search.temperature and "
            "eval.temperature to what it accepts, or choose another model (critics and judges need temperature 0)"
        )

    async def close(self) -> None:
        await self._client.close()


def _first_of(renamed: Mapping[str, Refused], last: Refused) -> Refused:
    """The refusal of a parameter whose new name is refused, too, unless it asked for that name; else the last one."""
    for name, first in renamed.items():
        new = OTHERWISE[name]
        if new and new in last.said and new not in first.said:
            return first
    return last


def _message(error: Any) -> str:
    """What the server says: its message with the parameter that it names, or what it has instead, or its status."""
    body = error.body
    body = body[0] if isinstance(body, list) and len(body) == 1 else body  # Gemini
    body = body.get("error", body) if isinstance(body, Mapping) else body
    said = body.get("message") if isinstance(body, Mapping) else body
    if isinstance(said, str) and said and not said.startswith("<"):  # TGI's error is a text; a gateway's is a page
        return said if not error.param or str(error.param) in said else f"{said} ({error.param})"
    return json.dumps(body) if isinstance(body, Mapping | list) and body else str(error.response.reason_phrase)


def _pause(headers: Mapping[str, str]) -> float:
    """Seconds that the headers Retry-After, a number or a date, or retry-after-ms ask for; 0 if they are missing."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(ValueError, KeyError):
            return max(0.0, float(headers[name]) * unit_s)
    with suppress(ValueError, TypeError, KeyError):
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    return 0.0
