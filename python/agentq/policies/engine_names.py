"""Engines by name, as the command line accepts them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from agentq import plugins
from agentq.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from agentq.policies.protocol import Engine

_HUB = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")  # a name on the hub


def read_name(name: str) -> Path | str:
    """The path or hub name of a checkpoint that is loaded here; any other engine's name is returned unchanged.

    Raises:
        ConfigError: if no engine has this name.
    """
    scheme = re.match(r"\w+(?=:)", name)
    if scheme is None or Path(name).exists():
        return Path(name)
    if scheme[0] == "hf":
        return Path(name.removeprefix("hf:"))
    if scheme[0] not in ("http", "https", "vllm") and scheme[0] in plugins.names("engines"):
        return name
    url = urlsplit(name)
    served = scheme[0] in ("http", "https") and url.hostname
    if scheme[0] != "vllm" and not (served and set(parse_qs(url.query)) == ({"tokenizer"} if url.query else set())):
        raise ConfigError(
            "an engine must be a checkpoint's name or path, hf:PATH, vllm:PATH, or "
            f"http(s)://HOST:PORT/v1[?tokenizer=PATH][#MODEL]; got '{name}'"
        )
    return name


def path_in(name: Path | str) -> Path | None:
    """The path in an engine's name, to its checkpoint or a server's tokenizer; None if it has no path."""
    if isinstance(name, Path):
        return name
    if name.startswith("vllm:"):
        return Path(name.removeprefix("vllm:"))
    tokenizer = parse_qs(urlsplit(name).query).get("tokenizer")
    return Path(tokenizer[-1]) if tokenizer else None


def embedded_base() -> Path:
    """The checkpoint that comes with agentq."""
    return Path(__file__).parents[1] / "models" / "base"


def check_checkpoint(name: Path | str) -> None:
    """Check that a checkpoint exists, if `name` is one on this machine. Reads no weights and sends no request.

    Raises:
        ModelError: if the path does not exist or holds no checkpoint.
    """
    path = Path(name.removeprefix("vllm:")) if isinstance(name, str) and name.startswith("vllm:") else name
    if isinstance(path, str) or (not path.exists() and _HUB.fullmatch(str(path))):
        return
    missing = "which does not exist" if not path.exists() else "which is a file" if not path.is_dir() else ""
    if not missing and not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        missing = "which has no config.json"
    if missing:
        raise ModelError(f"the model must be a transformers checkpoint by name or path; got {path}, {missing}")


def checkpoint_to_train(base: Path | str) -> Path:
    """The base, if training can begin with it. Raises ConfigError for an engine that only samples."""
    if isinstance(base, str):
        raise ConfigError(f"training must begin with a checkpoint; got --base {base}, which only samples")
    return base


def sampler_name(engine: str) -> str:
    """The engine that the setting `run.engine` names. Raises ConfigError for a checkpoint that is loaded here."""
    name = read_name(engine)
    if isinstance(name, Path):
        raise ConfigError(f"run.engine must be vllm:PATH or a vLLM server's URL; got {name}")
    return name


def make_engine(name: Path | str, *, lora_rank: int = 0) -> Engine:
    """The engine with this name. With `lora_rank` > 0 a vLLM started here accepts published adapters of that rank.

    Raises:
        ConfigError: if no engine has this name.
        MissingExtra, ModelError: as the engine itself.
    """
    name = read_name(name) if isinstance(name, str) else name
    if isinstance(name, Path):
        from agentq.policies.transformers_engine import TransformersEngine

        return TransformersEngine(name)
    if name.startswith("vllm:"):
        from agentq.policies.vllm_engine import VLLMEngine

        ranks = {"enable_lora": True, "max_lora_rank": max(8, 1 << (lora_rank - 1).bit_length())} if lora_rank else {}
        return VLLMEngine(name.removeprefix("vllm:"), **ranks)
    scheme, _, rest = name.partition(":")
    if scheme not in ("http", "https"):
        engine: Engine = plugins.load("engines", scheme)(rest)
        return engine
    from agentq.policies.openai_engine import OpenAIEngine

    url = urlsplit(name)
    tokenizer = parse_qs(url.query).get("tokenizer", [None])[-1]
    return OpenAIEngine(url._replace(query="", fragment="").geturl(), url.fragment, tokenizer=tokenizer)
