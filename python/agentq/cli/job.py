"""One command's run: its inputs checked, its directory claimed, its work done, its rows and report shown."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.cli import DONE, embedded_base
from agentq.config import Config
from agentq.errors import require
from agentq.policies.engine_names import (
    check_checkpoint,
    checkpoint_to_train,
    make_engine,
    path_in,
    read_name,
    sampler_name,
)

if TYPE_CHECKING:
    from agentq.evaluation.stats import RungResult
    from agentq.policies.protocol import Engine
    from agentq.recipes.pipeline import Pipeline

    Engines = dict[Path | str, Engine]


def check_env(config: Config) -> None:
    """Raises ConfigError or EnvError if the run's environment is unknown or out of reach."""
    from agentq import envs

    envs.make(config.run.env)


def require_train(command: str) -> None:
    """Raises MissingExtra if `agentq COMMAND` lacks a package to compute with models here."""
    for module in ("torch", "transformers"):
        require(module, extra="train", for_=f"agentq {command}")


@dataclass
class Job:
    """A pipeline's work in its run directory.

    Attributes:
        command: the words that make such a run.
        place: names the directory under runs/ where none is given.
        reads: what the command reads besides `--base` and `--config`, by the word that names it.
        identity: joins the stored settings.
    """

    args: argparse.Namespace
    config: Config
    command: str
    place: str
    reads: Mapping[str, Path | str]
    identity: Mapping[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The run directory."""
        return Path(self.config.run.out or "runs/" + re.sub(r"[^\w.-]+", "-", self.place).strip("-"))

    def run(self, work: Callable[[Pipeline], list[RungResult]]) -> int:
        """Do the work, write the report and print the rows."""
        from agentq.progress import RichStatus, ladder_table, main_console
        from agentq.recipes.pipeline import Pipeline
        from agentq.report import write_report
        from agentq.store.claim import check_claim, claimed, is_begun

        args, out, base = self.args, self.out, read_name(self.args.base) if self.args.base else embedded_base()
        measured = self.reads.get("checkpoint")
        if measured is None:
            checkpoint_to_train(base)
        check_checkpoint(base)
        inputs, stored = self._inputs(base), self.config.to_dict() | {"command": self.command} | dict(self.identity)
        check_claim(out, stored, clean=args.clean, inputs=inputs)
        asked = [base] if measured is None else [measured, base] if "search" in self.command else [measured]
        if any(isinstance(name, Path) for name in asked):
            require_train(args.command)
        with _closed_at_end() as engines:
            if args.clean or not is_begun(out):
                self._make_engines(asked, engines)
            with claimed(out, stored, clean=args.clean, inputs=inputs) as store, RichStatus() as status:
                rows = work(Pipeline(store, self.config, base, status, engines))
        report = write_report(out)
        if args.json:
            print(json.dumps({"rungs": [row.to_dict() for row in rows], "report": str(report)}))
        else:
            console = main_console()
            console.print(ladder_table(rows))
            console.print(f"report: {report}", highlight=False)
        return DONE

    def _inputs(self, base: Path | str) -> dict[str, Path | str]:
        from agentq.envs.contract import is_file

        more = {"--base": base, "--config": self.args.config, "run.engine": self.config.run.engine}
        if is_file(self.config.run.env):
            more["run.env"] = Path(self.config.run.env.rpartition(":")[0])
        given = {name: value for name, value in {**self.reads, **more}.items() if value}
        return {name: path_in(value) or value for name, value in given.items()}

    def _make_engines(self, asked: Sequence[Path | str], engines: Engines) -> None:
        """Add the engines that a new run asks first, made before it makes or deletes anything."""
        served = self.config.run.engine
        if served:
            name = sampler_name(served)
            check_checkpoint(name)
            if not name.startswith("vllm:"):  # which takes minutes to start
                make_engine(name).close()
            asked = [name for name in asked if isinstance(name, str) or name != self.reads.get("checkpoint")]
        for each in dict.fromkeys(asked):
            engines[each] = make_engine(each)


@contextmanager
def _closed_at_end() -> Iterator[Engines]:
    """Engines by name, which a pipeline shares: those that are there at the end are closed."""
    engines: Engines = {}
    try:
        yield engines
    finally:
        for engine in engines.values():
            engine.close()
