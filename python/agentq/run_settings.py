"""The settings of a run: its samples, environment, directory, and who collects. See `config`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from agentq.errors import ConfigError, did_you_mean
from agentq.model_settings import Section

SEEDS = 1 << 32  # seeds of runs and learners are below this; numpy, torch and sample seeds distinguish all of them


TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")


def joined(value: object) -> object:
    """A list of words, as in a file, with commas, as on the command line."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


class Draws(Section):
    """How the actions of a live task are sampled."""

    seed: int = Field(default=0, ge=0, lt=SEEDS, description="Seed of every random choice in the run.")
    constrained: bool = Field(
        default=False, description="Whether actions must follow the grammar and use the page's ids."
    )


class Run(Draws):
    """The environment, the engine and the run directory."""

    env: str = Field(default="booking", min_length=1, description="Name of the environment.")
    out: str = Field(default="", description="The run directory; empty: runs/COMMAND..., named after the run.")
    engine: str = Field(
        default="", description="Sampler for trained weights: vllm:PATH, or vLLM servers: URL, URL1,URL2 or a FILE.txt."
    )
    executor: Literal["auto", "inline", "processes", "ray"] = Field(
        default="auto",
        description="What collects: this process, worker processes or a Ray cluster; auto: processes for small models.",
    )
    workers: int = Field(default=0, ge=0, description="Number of workers; 0: one per core, of the cluster with ray.")
    address: str = Field(default="auto", description="Address of the Ray cluster; auto: this machine's.")
    gpus: int = Field(default=0, ge=0, description="GPUs of each worker with ray, for its own engine.")
    screenshots: bool = Field(
        default=False, description="Whether the run keeps screenshots of a browser's pages, for agentq view."
    )
    track: Annotated[str, BeforeValidator(joined)] = Field(
        default="", description="Trackers that also get the metrics: tensorboard, wandb, trackio, mlflow."
    )
    max_unreadable: int = Field(
        default=0,
        ge=0,
        description="Consecutive unreadable actions that end an episode as out of steps; 0: never.",
    )
    shard: str = Field(default="", description="Part of the tasks to collect, such as 3/16; empty: all.")

    def check(self, name: str) -> None:
        """See `Section.check`."""
        read_trackers(self.track)
        if self.shard:
            read_shard(self.shard)
            if name in ("demo", "ladder"):
                raise ConfigError(f"run.shard must be empty for {name}, whose rungs are trained; got {self.shard}")


def read_trackers(text: str) -> list[str]:
    """The trackers in `run.track`. Raises ConfigError if one is unknown."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"run.track must be of {', '.join(TRACKERS)}; got '{name}'{did_you_mean(name, TRACKERS)}")
    return list(dict.fromkeys(names))


def read_shard(text: str) -> tuple[int, int]:
    """Number and total of a shard. Raises ConfigError if the text names none."""
    number, slash, total = text.partition("/")
    if not (slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise ConfigError(f"run.shard must be I/N with I from 1 to N, such as 3/16; got '{text}'")
    return int(number), int(total)
