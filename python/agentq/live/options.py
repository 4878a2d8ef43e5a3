"""The options of `agentq run`. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.errors import ConfigError

if TYPE_CHECKING:
    from agentq.config import Prices

SECONDS = 600.0  # if no budget is given
DRY_SECONDS = 60.0
_WEB = ("allow", "judge_sees", "allow_request", "block_request", "secret", "storage_state", "uploads", "dry_run")

RULES = "METHOD ORIGIN/PATH, where a final * stands for all paths below; repeatable"


def _option(help_: str, metavar: str = "", **words: Any) -> dict[str, Any]:
    """An option in the words of `ArgumentParser.add_argument`; without `metavar`, a flag."""
    kind = {"metavar": metavar} if metavar else {"action": "store_true"}
    return {"help": help_, **kind, **words}


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """Options of `agentq run`."""

    url: str = field(default="", metadata=_option("first page; pages of its origin may be opened", "URL"))
    mcp: str = field(
        default="",
        metadata=_option("instead of --url: an MCP server, whose tools are called; a command or a URL", "SERVER"),
    )
    allow: list[str] = field(
        default_factory=list, metadata=_option("another origin to open pages of; repeatable", "ORIGIN", action="append")
    )
    model: str | None = field(default=None, metadata=_option("PATH, vllm:PATH or http://HOST/v1#MODEL", "MODEL"))
    judge_sees: bool = field(default=False, metadata=_option("show the judge a screenshot of the page, too"))
    calls: float = field(default=inf, metadata=_option("maximum number of model calls", "N", type=float))
    seconds: float = field(
        default=inf, metadata=_option(f"time limit; default: {SECONDS:g}, if no limit is given", "SECONDS", type=float)
    )
    money: float = field(
        default=inf,
        metadata=_option("cost limit; needs --price.prompt and --price.generated", "AMOUNT", type=float),
    )
    no_sandbox: bool = field(
        default=False,
        metadata=_option("run Chromium without its sandbox, which root needs; for every command: AGENTQ_NO_SANDBOX=1"),
    )
    yes: bool = field(default=False, metadata=_option("send what the judge approves without asking"))
    allow_request: list[str] = field(
        default_factory=list,
        metadata=_option(f"send these requests without asking: {RULES}", "RULE", action="append"),
    )
    block_request: list[str] = field(
        default_factory=list,
        metadata=_option(f"block these requests without asking: {RULES}", "RULE", action="append"),
    )
    secret: list[str] = field(
        default_factory=list,
        metadata=_option(
            "the agent may type the environment variable ENV at the url's origin, unseen; repeatable",
            "NAME=ENV",
            action="append",
        ),
    )
    storage_state: Path | None = field(
        default=None,
        metadata=_option("begin with these cookies and storage, of Playwright's storage_state", "FILE", type=Path),
    )
    uploads: Path | None = field(default=None, metadata=_option("folder whose files may be uploaded", "DIR", type=Path))
    page_tokens: int = field(
        default=4000, metadata=_option("longest observation, in tokens; default: 4000", "TOKENS", type=int)
    )
    dry_run: bool = field(default=False, metadata=_option("take random steps and list what the site would send"))
    out: Path | None = field(default=None, metadata=_option("run directory; default: runs/live-TIME", "DIR", type=Path))
    clean: bool = field(default=False, metadata=_option("delete an earlier run in the directory"))
    config: Path | None = field(default=None, metadata=_option("TOML file of settings", "FILE", type=Path))
    json: bool = field(default=False, metadata=_option("print the result as one JSON object"))

    def check(self, price: Prices) -> None:
        """Raises ConfigError if a limit is not positive, `uploads` is no folder, there is no price for `money`, or not
        one site or server."""
        if bool(self.url) == bool(self.mcp):
            raise ConfigError(f"either --url or --mcp must be given; got {'both' if self.url else 'neither'}")
        if self.mcp and (given := next((name for name in _WEB if getattr(self, name)), None)):
            raise ConfigError(f"--{given.replace('_', '-')} must go with --url; got --mcp")
        for name, most in {"calls": self.calls, "seconds": self.seconds, "money": self.money}.items():
            if not most > 0:
                raise ConfigError(f"--{name} must be more than 0; got {most:g}")
        if self.page_tokens < 1:
            raise ConfigError(f"--page-tokens must be at least 1; got {self.page_tokens}")
        if self.uploads is not None and not self.uploads.is_dir():
            raise ConfigError(f"--uploads must be a folder; got {self.uploads}")
        if self.money < inf and not (price.prompt and price.generated):
            raise ConfigError("--money needs the prices of tokens: --price.prompt and --price.generated")
