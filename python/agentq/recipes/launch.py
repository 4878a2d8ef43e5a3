"""Training in several processes: the run starts them for each round, and writes what they tell.

`torchrun` starts the processes of `recipes.rank`, and all of them again if one dies: they go on from the round's newest
checkpoint. They end with the round, which frees the GPUs for models that sample. They append what the run is to write
(metrics, notes) to a file beside their checkpoints, so the run's process stays the only writer of the store, and a
killed run loses none of it. They end when their standard input is closed, so with the run, however it ends.

Each `PET_...` variable of torchrun holds, so `PET_NNODES=2` waits for the processes of a second machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentq import errors
from agentq.errors import ConfigError, ModelError
from agentq.policies.placement import cores, only_devices, training_devices
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Recipe, Round
from agentq.recipes.settings import Training
from agentq.searching.processes import python_path
from agentq.status import Show
from agentq.store.durable import remove
from agentq.store.files import note_model, write_json
from agentq.store.system import end_group

RESTARTS = 3  # per round (ours)
POLL_S = 0.1
GRACE_S = 20.0  # for torchrun to end its processes


class _Elsewhere:
    """The learner of a round that is being collected, while no process trains."""

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            f"train.devices must be one device for a recipe whose collect uses the learner; got a use of learner.{name}"
        )


class Told:
    """What the processes of a training append to a file, and this process writes to the store."""

    def __init__(self, p: Pipeline, states: Path) -> None:
        self.pipeline, self.file = p, states / "told.jsonl"
        self.heard = 0
        self.error: errors.AgentqError | None = None
        self.raised = ""
        self._show: Show | None = None

    def hear(self) -> None:
        """Follow what is new. A line that a killed process left incomplete is no line."""
        with suppress(FileNotFoundError), self.file.open("rb") as file:
            file.seek(self.heard)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.heard += len(whole)
            for line in whole.splitlines():
                with suppress(json.JSONDecodeError):
                    what, *values = json.loads(line)
                    getattr(self, f"_{what}")(*values)

    def forget(self) -> None:
        """Begin a new file."""
        remove(self.file)
        self.heard = 0

    def _log(self, stage: str, step: int, metrics: dict[str, Any]) -> None:
        self.pipeline.store.log(stage, step, **metrics)

    def _note(self, stage: str, note: dict[str, Any]) -> None:
        self.pipeline.store.set_note(stage, note)

    def _model(self, name: str, told: dict[str, Any]) -> None:
        note_model(self.pipeline.store.path, name, told)

    def _stage(self, name: str, total: int, unit: str) -> None:
        self._show = self.pipeline.status.stage(name, total, unit)

    def _shown(self, done: int, note: str) -> None:
        if self._show is not None:
            self._show(done, note)

    def _failed(self, kind: str, text: str) -> None:
        self.error = getattr(errors, kind)(text)

    def _raised(self, text: str) -> None:
        self.raised = text


class Launched:
    """One training in several processes, in the place of `here.Here`."""

    def __init__(
        self,
        p: Pipeline,
        recipe: Recipe[Any],
        settings: Training,
        name: str,
        start: Path,
        devices: Sequence[str],
        make_room: Callable[[], None],
    ) -> None:
        """`make_room`: called before processes start; frees the devices that they need."""
        self.pipeline, self.devices, self.make_room = p, devices, make_room
        self.out = p.store.path / "checkpoints" / name
        self.states = self.out.with_name(f"{name}.states")
        self.num_rounds = settings.run.num_rounds
        self.learner: Any = _Elsewhere()
        self.saved = False  # the checkpoint of the last round's weights
        self.job = {
            "recipe": recipe.source or recipe.name,
            "settings": settings.model_dump(mode="json"),
            "name": name,
            "run": _everywhere(p.store.path),
            "base": _everywhere(p.start),
            "start": _everywhere(start),
            "device": devices[0].partition(":")[0],
        }

    def serve(self, number: int, at: Path) -> None:
        """Save the weights at a round's start at `at`, unless the round before has done so."""
        if not at.exists():
            self._run(number, learn=False)

    def learn(self, r: Round[Any]) -> None:
        """Learn a round, and save the weights after it where `serve` or `finish` would."""
        self._run(r.number, learn=True)
        self.saved = r.number == self.num_rounds

    def finish(self) -> None:
        """Save the checkpoint of the training, unless the last round has done so."""
        if not self.saved:
            self._run(self.num_rounds + 1, learn=False)

    def _run(self, number: int, *, learn: bool) -> None:
        """Run the processes to their end.

        Raises:
            AgentqError: that one of them raised.
            ModelError: if they died too often.
        """
        self.make_room()
        if self.pipeline.workers is not None:
            self.pipeline.workers.rest()
        self.states.mkdir(parents=True, exist_ok=True)
        job, log, told = self.states / "job.json", self.states / "processes.log", Told(self.pipeline, self.states)
        told.forget()
        write_json(job, self.job | {"number": number, "learn": learn})
        with log.open("wb") as output, only_devices(self.devices):
            process = subprocess.Popen(
                self._command(job),
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others
            )
        try:
            while process.poll() is None and told.error is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
                told.hear()
            told.hear()
        finally:
            _end(process)
        if told.error is not None:
            raise told.error
        if process.returncode:
            died = told.raised or f"exit code {process.returncode}"
            raise ModelError(
                f"{len(self.devices)} processes must live to train a round; got {died} after {RESTARTS} restarts: "
                f"{log} has their output"
            )

    def _command(self, job: Path) -> list[str]:
        rank = ["-m", "agentq.recipes.rank"]
        torchrun = ["torchrun", f"--nproc-per-node={len(self.devices)}", f"--max-restarts={RESTARTS}"]
        return [sys.executable, *rank, *torchrun, *rank, str(job), "held"]

    def _environment(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": str(max(1, cores() // len(self.devices)))}
        return threads | os.environ | {"PYTHONPATH": python_path(), "PYTHONSAFEPATH": "1"}


def launched(
    p: Pipeline, recipe: Recipe[Any], settings: Training, name: str, start: Path, make_room: Callable[[], None]
) -> Launched | None:
    """A training in several processes, if `train.devices` or the variables of torchrun ask for them; else None."""
    Told(p, p.store.path / "checkpoints" / f"{name}.states").hear()  # what the processes of a killed run told last
    devices = training_devices(settings.train.devices, settings.model.devices)
    several = len(devices) > 1 or "PET_NNODES" in os.environ
    return Launched(p, recipe, settings, name, start, devices, make_room) if several else None


def _everywhere(path: Path) -> str:
    """A path that holds in other directories too; a name on the hub unchanged."""
    return str(path.resolve() if path.exists() else path)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and what it started, unless they have ended."""
    assert process.stdin is not None
    process.stdin.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            end_group(process)
            process.wait()
