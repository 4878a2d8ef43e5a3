"""`agentq runs`: the runs of a folder, how far each is, and what each was made by and from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentq.errors import StoreError
from agentq.policies.engine_names import embedded_base
from agentq.recipes.again import FORK
from agentq.report.summary import read_summary
from agentq.store.claim import COMMAND, INPUTS
from agentq.store.database import OtherVersion
from agentq.store.directory import is_held
from agentq.store.run import RunStore

DEEP = 3  # folders below the given one


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it is listed. `state`: running, finished, stopped or damaged; older or newer version: of agentq.

    `rung`: the last model or search measured, which solved `successes` of `n` held-out tasks: a rate of `success` with
    a 95 % interval from `low` to `high`. Empty, or None, if none was measured.
    """

    run: str
    state: str
    command: str
    env: str
    rounds: str
    made_from: str
    rung: str = ""
    successes: int | None = None
    n: int | None = None
    success: float | None = None
    low: float | None = None
    high: float | None = None

    def texts(self) -> dict[str, str]:
        """The row for a table."""
        success = ""
        if self.success is not None and self.low is not None and self.high is not None:
            success = f"{100 * self.success:.1f} % ({100 * self.low:.0f} - {100 * self.high:.0f})"
        shown = {name: getattr(self, name) for name in ("run", "state", "command", "env", "rounds")}
        return {**shown, "success": success, "made_from": self.made_from}


def list_runs(folder: Path) -> Iterator[RunRow]:
    """The runs in a folder, by name, or the run that it is. Raises StoreError if it does not exist."""
    if not folder.is_dir():
        verdict = "is a file" if folder.exists() else "does not exist"
        raise StoreError(f"{folder} must be a folder of runs; it {verdict}")
    if (folder / "run.sqlite").exists():
        yield _row(folder)
        return
    found = [each.parent for n in range(DEEP, 0, -1) for each in folder.glob(f"{'*/' * n}run.sqlite")]
    for path in sorted({path.resolve(): path for path in found}.values()):  # of links to one run, the shortest path
        yield _row(path)


def _row(path: Path) -> RunRow:
    held = is_held(path)
    try:
        with RunStore.read(path) as store:
            command, config = store.note(COMMAND) or {}, store.config
            ended = command.get("finished") or (store.note("result") or {}).get("live")
            state = "running" if held else "finished" if ended else "stopped"
            rows = read_summary(path / "summary.json")
            run = config.get("run", {})
            made = config.get("command", "run" if "live" in config else "")
            env = run.get("env") or config.get("live", {}).get("url", "")
            row = RunRow(str(path), state, made, env, _rounds(store, run), _origin(store))
    except OtherVersion as error:
        return RunRow(str(path), f"{error.age} version", "", "", "", "")
    except StoreError:
        return RunRow(str(path), "running" if held else "damaged", "", "", "", "")
    if not rows:
        return row
    last = rows[-1]
    return replace(
        row, rung=last.name, successes=last.successes, n=last.n, success=last.rate, low=last.low, high=last.high
    )


def _rounds(store: RunStore, run: dict[str, Any]) -> str:
    """`2/3`: finished rounds of the training that is furthest."""
    if "num_rounds" not in run:
        return ""
    numbers = [
        int(found[1])
        for stage in store.stages()
        if (found := re.fullmatch(r".+/round(\d+)/learn", stage)) and (store.note(stage) or {}).get("finished")
    ]
    return f"{max(numbers, default=0)}/{run['num_rounds']}"


def _origin(store: RunStore) -> str:
    """What a run was made from: the run of which it is a fork, or its checkpoint."""
    if fork := store.note(FORK):
        return f"fork of {fork['of']}"
    inputs = store.note(INPUTS) or {}
    made_from = str(inputs.get("checkpoint") or inputs.get("--base") or (store.note("base") or {}).get("name", ""))
    return "embedded" if made_from == str(embedded_base()) else made_from
