"""The options of `agentq run`. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

SECONDS = 600.0  # if no budget is given
DRY_SECONDS = 60.0

RULES = "METHOD ORIGIN/PATH, * at its end for all below; repeatable"
SANDBOX = "let Chromium run without its sandbox, as root must; AGENTQ_NO_SANDBOX=1 does the same for every command"
MONEY = "at most, at the prices given by --price.prompt, --price.generated"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """Options of `agentq run`."""

    url: Annotated[str, Parameter(help="where it begins; pages of its origin may be opened")]
    allow: Annotated[list[str], Parameter(help="a further origin; repeatable")] = field(default_factory=list)
    named: Annotated[  # not `model`: a section of settings has that name
        str | None, Parameter("--model", help="PATH, vllm:PATH or http://HOST/v1#MODEL", accepts_keys=False)
    ] = None
    judge_sees: Annotated[bool, Parameter(help="the judge is shown a screenshot of the page, too")] = False
    calls: Annotated[float, Parameter(help="model calls at most")] = inf
    seconds: Annotated[float, Parameter(help=f"at most; default: {SECONDS:g}, without a budget")] = inf
    money: Annotated[float, Parameter(help=MONEY)] = inf
    no_sandbox: Annotated[bool, Parameter(help=SANDBOX)] = False
    yes: Annotated[bool, Parameter(help="send what the judge approves without asking; it is shown")] = False
    allow_request: Annotated[list[str], Parameter(help=f"requests that are sent without asking: {RULES}")] = field(
        default_factory=list
    )
    block_request: Annotated[list[str], Parameter(help=f"requests that are neither sent nor asked about: {RULES}")] = (
        field(default_factory=list)
    )
    dry_run: Annotated[bool, Parameter(help="take random steps and list what the site would send")] = False
    out: Annotated[Path | None, Parameter(help="the run directory; default: runs/live-TIME")] = None
    clean: Annotated[bool, Parameter(help="delete an earlier run in the same directory")] = False
    config: Annotated[Path | None, Parameter(help="a TOML file of settings")] = None
    json: Annotated[bool, Parameter(help="print one JSON object as the result")] = False
