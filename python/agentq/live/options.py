"""The options of `agentq run`. Imports nothing that takes time."""

from __future__ import annotations

import argparse
from math import inf
from pathlib import Path

SECONDS = 600.0  # where no budget is given
DRY_SECONDS = 60.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `agentq run`."""
    command.add_argument("goal", metavar="GOAL", help="what is to be done, in quotes")
    command.add_argument("--url", required=True, help="where it begins; pages of its origin may be opened")
    command.add_argument("--allow", action="append", default=[], metavar="ORIGIN", help="a further origin; repeatable")
    command.add_argument("--model", metavar="ENGINE", help="PATH, vllm:PATH or http://HOST/v1#MODEL")
    command.add_argument("--judge", metavar="ENGINE", help="says whether it is done; default: the model")
    command.add_argument("--judge-sees", action="store_true", help="the judge is shown a screenshot of the page, too")
    command.add_argument("--calls", type=float, default=inf, help="model calls at most")
    command.add_argument("--seconds", type=float, default=inf, help=f"at most; default: {SECONDS:g}, without a budget")
    command.add_argument(
        "--money", type=float, default=inf, help="at most, at the prices given by --price.prompt, --price.generated"
    )
    text = "let Chromium run without its sandbox, as root must; AGENTQ_NO_SANDBOX=1 does the same for every command"
    command.add_argument("--no-sandbox", action="store_true", help=text)
    command.add_argument("--yes", action="store_true", help="send what the judge approves without asking; it is shown")
    for kind, what in (("allow", "sent without asking"), ("block", "neither sent nor asked about")):
        text = f"requests that are {what}: METHOD ORIGIN/PATH, * at its end for all below; repeatable"
        command.add_argument(f"--{kind}-request", action="append", default=[], metavar="RULE", help=text)
    command.add_argument("--dry-run", action="store_true", help="take random steps and list what the site would send")
    command.add_argument("--out", type=Path, help="the run directory; default: runs/live-TIME")
    command.add_argument("--clean", action="store_true", help="delete an earlier run in the same directory")
    command.add_argument("--config", type=Path, help="a TOML file of settings")
