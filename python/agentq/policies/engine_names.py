"""Engines by name, as the command line accepts them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date as Date
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from agentq import plugins
from agentq.errors import ConfigError, ModelError
from agentq.model_settings import ModelSettings
from agentq.policies.hub import reach_hub
from agentq.policies.placement import dtype_on, one_device, use_threads
from agentq.policies.weights import check_whole, fingerprint

if TYPE_CHECKING:
    from agentq.policies.protocol import Engine

MODEL = ModelSettings()
EMBEDDED = "embedded"
_SERVED = re.compile(r"(chatgpt|claude|gemini|gpt-\d)[\w.-]*$")  # models that only servers have


def read_name(name: str) -> Path | str:
    """The path or hub name of a checkpoint that is loaded here; any other engine's name is returned unchanged.

    `embedded` is the checkpoint that comes with agentq.

    Raises:
        ConfigError: if no engine has this name, or a path that begins with ./ does not exist.
    """
    if servers := servers_of(name):
        for server in servers():
            if not re.match(r"https?:", str(read_name(server))):
                raise ConfigError(f"several engines must be servers, http(s)://HOST:PORT/v1; got '{server}' in {name}")
        return name
    if name == EMBEDDED and not Path(name).exists():
        return embedded_base()
    if name.startswith(("./", "hf:./")) and not Path(name.removeprefix("hf:")).exists():  # no name on the hub
        raise ConfigError(
            f"the model must be a transformers checkpoint by name or path; got {name}, which does not exist"
        )
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


def servers_of(name: str) -> Callable[[], list[str]] | None:
    """Reads the servers that a name lists with commas, or a file NAME.txt line by line; None if it names no list."""
    if name.endswith(".txt") and Path(name).is_file():
        return partial(_lines, Path(name))
    return partial(name.split, ",") if "," in name and re.match(r"https?:", name) else None


def _lines(file: Path) -> list[str]:
    """The lines of a file, without comments; none while it cannot be read."""
    try:
        lines = map(str.strip, file.read_text().splitlines())
    except (OSError, ValueError):
        return []
    return [line for line in lines if line and not line.startswith("#")]


def path_in(name: Path | str) -> Path | None:
    """The path in an engine's name, to its checkpoint or a server's tokenizer; None if it has no path."""
    if isinstance(name, Path) or name.endswith(".txt"):
        return Path(name)
    if name.startswith("vllm:"):
        return Path(name.removeprefix("vllm:"))
    tokenizer = parse_qs(urlsplit(name.partition(",")[0]).query).get("tokenizer")
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
    if isinstance(path, str):
        return
    if not path.exists() and _SERVED.match(str(path)):
        raise ModelError(f"the name of a server's model must follow its address, https://HOST/v1#{path}; got {path}")
    if reach_hub(path):
        return
    missing = "which does not exist" if not path.exists() else "which is a file" if not path.is_dir() else ""
    if not missing and not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        missing = "which has no config.json"
    if not missing and (path / "run.sqlite").is_file():
        found = sorted(file.parent for file in path.glob("checkpoints/*/*config.json"))
        missing = f"a run directory; its checkpoints are {', '.join(map(str, dict.fromkeys(found))) or 'none yet'}"
    if missing:
        raise ModelError(f"the model must be a transformers checkpoint by name or path; got {path}, {missing}")


def checkpoint_to_train(base: Path | str) -> Path:
    """The base, if training can begin with it.

    Raises:
        ConfigError: for an engine that only samples.
        ModelError: for a LoRA adapter, whose model would have to be trained with it.
    """
    if isinstance(base, str):
        raise ConfigError(f"training must begin with a checkpoint; got --base {base}, which only samples")
    check_whole(base)
    return base


def sampler_name(engine: str) -> str:
    """The engine that the setting `run.engine` names. Raises ConfigError for a checkpoint that is loaded here."""
    name = read_name(engine)
    if isinstance(name, Path):
        raise ConfigError(f"run.engine must be vllm:PATH or a vLLM server's URL; got {name}")
    return name


def check_vllm(arguments: Mapping[str, Any], names: Iterable[Path | str]) -> None:
    """Check arguments for vLLM's engine before anything is loaded. `names`: the engines that a command will make.

    Raises:
        ConfigError: if vLLM has no such argument, or no engine is a vLLM that this process starts.
        MissingExtra: without vLLM.
    """
    if not arguments:
        return
    if not any(str(name).startswith("vllm:") for name in names):
        raise ConfigError(f"vllm.{next(iter(arguments))} must go with a model vllm:PATH; got none")
    from agentq.policies.vllm_engine import check_arguments

    check_arguments(arguments)


def check_same(base: Path | str, served: str) -> None:
    """Raises ConfigError if `served` is a vLLM that starts with other weights than those that adapters are made for."""
    path = path_in(served) if served.startswith("vllm:") else None
    if path is not None and path != base and fingerprint(path) != fingerprint(base):
        raise ConfigError(f"run.engine must start with the base, {base}, to serve its adapters; got {served}")


def make_engine(
    name: Path | str,
    model: ModelSettings = MODEL,
    vllm: Mapping[str, Any] = MappingProxyType({}),
    *,
    lora_rank: int = 0,
    reserved_bytes: int = 0,
    patience_s: float = 600.0,
) -> Engine:
    """The engine with this name.

    Args:
        model: where it runs, and how prompts are rendered.
        vllm: arguments of vLLM's engine, by vLLM's names; they win over those that follow from `model`.
        lora_rank: with more than 0, adapters of this rank can be published to it.
        reserved_bytes: memory per GPU that a vLLM started here leaves to a learner.
        patience_s: how long a server may be unavailable.

    Raises:
        ConfigError: if no engine has this name, or a setting does not fit this machine.
        MissingExtra, ModelError: as the engine itself.
    """
    name = read_name(name) if isinstance(name, str) else name
    if (path := path_in(name)) is not None:
        reach_hub(path)
    if model.sees and not re.match(r"https?:", str(name)):
        raise ConfigError(f"model.sees must go with a server that is sent chats, http(s)://HOST:PORT/v1; got {name}")
    day = Date.today() if model.date == "today" else Date.fromisoformat(model.date)
    rendering: dict[str, Any] = {"template": model.template, "date": day}
    if isinstance(name, Path):
        from agentq.policies.transformers_engine import TransformersEngine

        device = one_device(model.devices, "model.devices", instead="vllm:PATH takes several")
        engine = TransformersEngine(
            name,
            device=device,
            dtype=dtype_on(device, model.dtype),
            attention=model.attention,
            context=model.context,
            **rendering,
        )
        use_threads(model.threads, engine.model)
        return engine
    if name.startswith("vllm:"):
        from agentq.policies.vllm_engine import VLLMEngine, arguments_of

        settings = arguments_of(model, lora_rank) | dict(vllm)
        return VLLMEngine(name.removeprefix("vllm:"), reserved_bytes=reserved_bytes, **rendering, **settings)
    if servers := servers_of(name):
        from agentq.policies import fleet

        return fleet.Fleet(name, servers, partial(make_engine, model=model, patience_s=fleet.PATIENCE_S))
    scheme, _, rest = name.partition(":")
    if scheme not in ("http", "https"):
        found: Engine = plugins.load("engines", scheme)(rest)
        return found
    from agentq.policies.openai_engine import OpenAIEngine

    url = urlsplit(name)
    tokenizer = parse_qs(url.query).get("tokenizer", [None])[-1]
    plain = url._replace(query="", fragment="").geturl()
    return OpenAIEngine(
        plain,
        url.fragment,
        tokenizer=tokenizer,
        context=model.context,
        chats=model.sees,
        patience_s=patience_s,
        **rendering,
    )
