"""One of the processes that train: a rank of the learner. `recipes.launch` writes its job and starts

    python -m agentq.recipes.rank torchrun ... -m agentq.recipes.rank JOB held

Both, torchrun and its processes, end when their standard input is closed. Another machine starts its processes with
torchrun alone and without `held`. The first process tells the run what to write, by lines of JSON beside the job; it
also reads the store for all others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.errors import AgentqError, in_one_line, place_in_run_file
from agentq.status import Planned, Show
from agentq.store.codec import jsonable
from agentq.store.database import connect
from agentq.store.files import Lines, read_json
from agentq.store.run import RunStore
from agentq.store.system import AT_ONCE

if TYPE_CHECKING:
    from agentq.learn.sharding import Ranks  # loads torch, which takes seconds

Tell = Callable[..., None]
GRACE_S = 10.0  # for torchrun to end its processes, which end themselves as well
PEERS_S = 3.0  # a process that raises because another died is ended within this time


class SharedStore(RunStore):
    """The run's store, read by the first process for all. It tells the run what to write. Reading is collective."""

    def __init__(self, path: Path, ranks: Ranks, tell: Tell) -> None:
        database: Any = connect(path / "run.sqlite", writable=False) if ranks.first else None
        super().__init__(path, database, config=read_json(path / "config.json"), lock=None)
        self.ranks, self.tell = ranks, tell
        self.noted: dict[str, dict[str, Any]] = {}

    def _execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        rows = super()._execute(sql, values) if self.ranks.first else []
        return self.ranks.gather(rows)[0]

    def note(self, stage: str) -> dict[str, Any] | None:
        """See `RunStore.note`."""
        return self.noted[stage] if stage in self.noted else super().note(stage)

    def set_note(self, stage: str, note: Mapping[str, Any]) -> None:
        """See `RunStore.set_note`."""
        self.noted[stage] = dict(note)
        self.tell("note", stage, note)

    def log(self, stage: str, step: int, **metrics: Any) -> None:
        """See `RunStore.log`."""
        self.tell("log", stage, step, metrics)


class Display:
    """`StageDisplay` of the run."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def stage(self, name: str, total: int, unit: str) -> Show:
        """See `StageDisplay.stage`."""
        self.tell("stage", name, total, unit)
        return lambda done, note, grown=0.0, /: self.tell("shown", done, note)

    def plan(self, stages: Sequence[Planned], in_flight: int) -> None:
        """See `StageDisplay.plan`."""

    def say(self, text: str) -> None:
        """See `StageDisplay.say`."""


def work(job: Mapping[str, Any], tell: Tell) -> None:
    """Learn a round, if the job says so, and save the weights for the next one, or the training's checkpoint."""
    from agentq.recipes.find import find_recipe
    from agentq.recipes.here import Here
    from agentq.recipes.pipeline import Pipeline
    from agentq.recipes.recipe import Round

    _, model, imported = find_recipe(job["recipe"])
    recipe, settings = imported(), model.model_validate(job["settings"])
    name, number, run, start = job["name"], job["number"], Path(job["run"]), Path(job["start"])
    out, served = run / "checkpoints" / name, run / "checkpoints" / f"{name}.served"
    base = Path(job["base"])
    here = Here(recipe, settings, start, out, base if settings.train.lora_rank else None, job["device"])
    tell("model", "learner", here.told)
    p = Pipeline(SharedStore(run, here.learner.ranks, tell), settings, base, Display(tell))
    if job["learn"]:
        here.load(number)
        here.learn(Round(p, settings, name, number, served / f"round{number}", start, here.learner))
        number += 1
    if number <= settings.run.num_rounds:
        here.serve(number, served / f"round{number}")
    else:
        here.finish()


def main() -> None:
    """Do the job, or start those that do, and end."""
    file, *words = sys.argv[1:]
    if file == "torchrun":
        threading.Thread(target=_end_with_the_run, args=(signal.SIGTERM,), daemon=True).start()
        from torch.distributed.run import main as torchrun

        torchrun(words)
        return
    if words:
        threading.Thread(target=_end_with_the_run, args=(AT_ONCE,), daemon=True).start()
    lines = Lines(Path(file).with_name("told.jsonl"))
    lines.append("\n")  # an earlier process may have left half a line

    def tell(*values: Any) -> None:
        lines.append(json.dumps(values, default=jsonable) + "\n")

    try:
        work(read_json(Path(file)), tell if os.environ.get("RANK", "0") == "0" else lambda *_: None)
    except AgentqError as error:
        kind = next(each for each in type(error).__mro__ if each.__module__ == AgentqError.__module__)
        tell("failed", kind.__name__, str(error))
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        line = in_one_line(error)
        if (place := _own_fault(error)) is not None:
            tell("failed", "ConfigError", f"{place}: {line} (the traceback is in {Path(file).parent}/processes.log)")
        time.sleep(PEERS_S)
        tell("raised", line)
    else:
        sys.stderr.flush()
        os._exit(0)  # all is written; in an orderly end a thread of the process group may abort it
    os._exit(1)  # in an orderly end it would wait for the others


def _own_fault(error: Exception) -> str | None:
    """`FILE.py:LINE` if the recipe's own file is at fault, which would raise again; None if another process may be.

    What a process says when another has died comes from below the line that called it.
    """
    place = place_in_run_file(error)
    raised = traceback.extract_tb(error.__traceback__)[-1]
    below = place != f"{raised.filename}:{raised.lineno}"
    return None if isinstance(error, RuntimeError | OSError) and below else place


def _end_with_the_run(first: signal.Signals) -> None:
    """End this process when the run closes the pipe, by a signal, or without one if it has not ended then."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), first)
    time.sleep(GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    main()
