"""Chooses who collects: this process, worker processes, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentq.config import Train
from agentq.envs import own
from agentq.envs.protocol import is_blocking
from agentq.errors import ConfigError
from agentq.policies.engine_names import read_name
from agentq.policies.placement import cores, read_devices
from agentq.recipes.resources import Name, Resources
from agentq.recipes.settings import AgentQ, Demo, EvalSearchCommand
from agentq.searching.processes import Processes
from agentq.searching.workers import Workers, can_be_sent

LIGHT_BYTES = 256 << 20  # of weights that each worker loads; with more, one engine uses all cores (ours)
MODULES = (
    "agentq.recipes.resources",
    "agentq.policies.transformers_engine",
    "transformers.models.llama.modeling_llama",
)


@contextmanager
def workers_of(resources: Resources, names: Sequence[Name]) -> Iterator[Workers | None]:
    """The workers that `run.executor` and `run.workers` ask for, ended at the end; None: this process collects.

    `names`: the models that the run samples from.

    Raises:
        ConfigError: if `run.executor` is processes or ray, and they could not do what this process can, or there is no
            cluster.
    """
    run = resources.settings.run
    workers = _actors(resources) if run.executor == "ray" else _processes(resources, names)
    try:
        yield workers
    finally:
        if workers is not None:
            workers.close()


def _actors(resources: Resources) -> Workers:
    """Workers of a Ray cluster."""
    run = resources.settings.run
    if reason := _only_here(resources):
        raise ConfigError(f"run.executor must be inline, since {reason}; got ray")
    from agentq.searching.actors import Actors

    threads = max(1, resources.settings.model.threads)
    return Actors(resources, run.workers, address=run.address, cpus=threads, gpus=run.gpus)


def _processes(resources: Resources, names: Sequence[Name]) -> Workers | None:
    """Worker processes of this machine; None if this process collects."""
    run = resources.settings.run
    reason = "" if run.executor == "inline" else _unfit(resources, names)
    if run.executor == "processes" and reason:
        raise ConfigError(f"run.executor must be inline, since {reason}; got processes")
    workers = run.workers or cores()
    light = sum(map(_weight_bytes, _loaded(resources, names))) <= LIGHT_BYTES
    if run.executor == "inline" or (run.executor == "auto" and (reason or workers == 1 or not light)):
        return None
    processes = Processes(resources, workers, MODULES)
    try:
        on_cpu = read_devices(resources.settings.model.devices) == ("cpu",)  # loads torch, as the workers do meanwhile
        if not on_cpu and run.executor == "processes":
            raise ConfigError("run.executor must be inline, since models run on a GPU; got processes")
    except BaseException:
        processes.close()
        raise
    if on_cpu:
        return processes
    processes.close()
    return None


def _unfit(resources: Resources, names: Sequence[Name]) -> str:
    """Why worker processes cannot collect; empty if they can."""
    run = resources.settings.run
    if run.engine or any(isinstance(name, str) for name in names):
        return "another process samples"
    if not hasattr(os, "fork"):
        return "this system forks no processes"
    if reason := _only_here(resources):
        return reason
    env = resources.make_env()
    env.close()
    return f"{run.env} runs in other processes" if is_blocking(env) else ""


def _only_here(resources: Resources) -> str:
    """What no other process has; empty if they can have all."""
    env = resources.settings.run.env
    if own.is_registered(env):
        return f"only this process knows {env}"
    return "" if can_be_sent(resources) else "only this process knows the recipe's settings"


def _loaded(resources: Resources, names: Sequence[Name]) -> list[Name]:
    """What each worker loads: the models that the run samples from, the trained weights, which have the size of the
    base, and the critic."""
    s = resources.settings
    trained = [resources.base] if isinstance(s.train, Train) and not s.train.lora_rank else []
    critic = s.critic.model if isinstance(s, AgentQ | Demo | EvalSearchCommand) else "none"
    return [*dict.fromkeys([*names, *([] if critic in ("base", "none") else [read_name(critic)])]), *trained]


def _weight_bytes(name: Name) -> float:
    """Size of a checkpoint's weights; 0 on a server, infinite if they are not on this machine."""
    if str(name).startswith(("http:", "https:")):
        return 0.0
    files = [file for suffix in ("safetensors", "bin") for file in Path(name).glob(f"*.{suffix}")]
    return sum(file.stat().st_size for file in files) if files else float("inf")
