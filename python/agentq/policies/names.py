"""An engine by one string, as the command line takes it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from agentq.errors import ConfigError
from agentq.policies.protocol import Engine


def read_name(name: str) -> Path | str:
    """The path (or the hub's name) of a checkpoint that is loaded here; any other engine's name as it is.

    Raises:
        ConfigError: if it is no engine's.
    """
    scheme = re.match(r"\w+(?=:)", name)
    if scheme is None or Path(name).exists():
        return Path(name)
    if scheme[0] == "hf":
        return Path(name.removeprefix("hf:"))
    url = urlsplit(name)
    served = scheme[0] in ("http", "https") and url.hostname
    if scheme[0] != "vllm" and not (served and set(parse_qs(url.query)) == ({"tokenizer"} if url.query else set())):
        raise ConfigError(
            "an engine must be a checkpoint's name or path, hf:PATH, vllm:PATH, or "
            f"http(s)://HOST:PORT/v1[?tokenizer=PATH][#MODEL]; got '{name}'"
        )
    return name


def make_engine(name: Path | str, *, lora_rank: int = 0) -> Engine:
    """The engine of a name; one that is started here for adapters of `lora_rank` to be published, where that is not 0.

    Raises:
        ConfigError: if it is no engine's.
        MissingExtra, ModelError: as the engine itself.
    """
    name = read_name(name) if isinstance(name, str) else name
    if isinstance(name, Path):
        from agentq.policies.engine import TransformersEngine

        return TransformersEngine(name)
    if name.startswith("vllm:"):
        from agentq.policies.vllm import VLLMEngine

        ranks = {"enable_lora": True, "max_lora_rank": max(8, 1 << (lora_rank - 1).bit_length())} if lora_rank else {}
        return VLLMEngine(name.removeprefix("vllm:"), **ranks)
    from agentq.policies.openai import OpenAIEngine

    url = urlsplit(name)
    tokenizer = parse_qs(url.query).get("tokenizer", [None])[-1]
    return OpenAIEngine(url._replace(query="", fragment="").geturl(), url.fragment, tokenizer=tokenizer)
