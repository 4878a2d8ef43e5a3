"""Trackers that get a run's metrics besides metrics.jsonl, each through its own client.

Metrics have the names `STAGE/METRIC`. What trackers write to this machine goes to RUN/trackers, but for trackio, which
has its own folder. A tracker that fails is told once and left out; the run goes on.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from agentq.errors import AgentqError, ConfigError, require
from agentq.run_settings import TRACKERS, read_trackers
from agentq.store.run import RunStore

NOTE = "trackers"  # the note with the run's id in trackers, by which a resumed run goes on
PROJECT = "agentq"


class Tracker(Protocol):
    """One tracker."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """`tensorboard --logdir RUN/trackers` shows it."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        summary = require("tensorboard.summary", extra="tensorboard", for_="run.track tensorboard")
        self.writer = summary.Writer(str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class Wandb:
    """Weights & Biases. Offline unless WANDB_MODE says otherwise; `wandb sync` uploads."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        wandb = require("wandb", extra="wandb", for_="run.track wandb")
        mode = os.environ.get("WANDB_MODE", "offline")
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        self.run = wandb.init(
            project=PROJECT, id=name, name=name, dir=str(folder), config=dict(config), mode=mode, resume="allow",
            settings=settings,
        )  # fmt: skip
        self.stages: set[str] = set()

    def log(self, values: Mapping[str, float], step: int) -> None:
        for stage in {key.rpartition("/")[0] for key in values} - self.stages:
            self.run.define_metric(f"{stage}/*", step_metric="step")
            self.stages.add(stage)
        self.run.log({**values, "step": step})

    def close(self) -> None:
        self.run.finish()


class Trackio:
    """Trackio, in its own folder; `trackio show` opens it."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        trackio = require("trackio", extra="trackio", for_="run.track trackio")
        with contextlib.redirect_stdout(sys.stderr):  # it prints how to open its page
            self.run = trackio.init(project=PROJECT, name=name, config=dict(config), resume="allow", embed=False)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({**values, "step": step})

    def close(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self.run.finish()


class Mlflow:
    """MLflow, at MLFLOW_TRACKING_URI or in RUN/trackers/mlflow.db. Its telemetry is off."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = require("mlflow", extra="mlflow", for_="run.track mlflow")
        where = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder.resolve() / 'mlflow.db'}")
        self.client = mlflow.MlflowClient(tracking_uri=where)
        found = self.client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self.client.create_experiment(PROJECT)
        before = self.client.search_runs([experiment], f"attributes.run_name = '{name}'")
        self.run = before[0] if before else self.client.create_run(experiment, run_name=name)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self.client.log_metric(self.run.info.run_id, key, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.run.info.run_id)


MAKE: dict[str, Callable[[Path, str, Mapping[str, Any]], Tracker]] = dict(
    zip(TRACKERS, (TensorBoard, Wandb, Trackio, Mlflow), strict=True)
)


@contextmanager
def tracked(store: RunStore, names: str) -> Iterator[None]:
    """Send what a run logs to trackers in the block.

    Raises:
        MissingExtra: if the package of a tracker is missing.
        ConfigError: if a tracker cannot begin.
    """
    chosen = read_trackers(names)
    made: dict[str, Tracker] = {}
    try:
        if chosen:
            note = store.note(NOTE) or {"id": f"{store.path.resolve().name}-{secrets.token_hex(4)}"}
            store.set_note(NOTE, note)
            folder = store.path / "trackers"
            folder.mkdir(exist_ok=True)
            for name in chosen:
                made[name] = _begin(name, folder, note["id"], store.config)
        store.also = lambda stage, step, metrics: _send(made, stage, step, metrics)
        yield
    finally:
        store.also = None
        for name, tracker in made.items():
            with _told(name):
                tracker.close()


def _begin(name: str, folder: Path, called: str, config: Mapping[str, Any]) -> Tracker:
    try:
        return MAKE[name](folder, called, config)
    except AgentqError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"run.track must name trackers that can start; got {name}, which says {said}") from error


def _send(trackers: dict[str, Tracker], stage: str, step: int, metrics: Mapping[str, Any]) -> None:
    numbers = {
        f"{stage}/{key}": float(value)
        for key, value in metrics.items()
        if isinstance(value, int | float) or hasattr(value, "item")
    }
    finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
    for name in list(trackers):
        with _told(name, lambda name=name: trackers.pop(name)):  # type: ignore[misc]
            trackers[name].log(finite, step)


@contextmanager
def _told(name: str, then: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A failure of a tracker as a line, after which the run goes on."""
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        print(f"agentq: {name} gets no more metrics of this run; it says {said}", file=sys.stderr)
        then()
