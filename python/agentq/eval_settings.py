"""The settings of evaluation: on which tasks, how, and what chooses the episode that counts. See `config`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentq.errors import ConfigError
from agentq.model_settings import Section

ChosenBy = Literal["oracle", "value", "majority", "best_of_n"]
MOST_TASKS = 1_000_000_000  # in a split


class HeldOut(Section):
    """Held-out tasks to measure on."""

    split: Literal["test", "validation"] = Field(
        default="test", description="Tasks to measure on: validation to choose settings, test to report."
    )
    num_tasks: int = Field(default=200, ge=1, le=MOST_TASKS, description="Number of held-out tasks.")


class Eval(HeldOut):
    """Measuring an agent without search."""

    temperature: float = Field(default=0.0, ge=0, description="Sampling temperature in evaluation; 0 is greedy.")
    repeat_temperature: float = Field(
        default=0.0,
        ge=0,
        description="Temperature for resampling an action identical to the previous one; 0 disables. A greedy policy "
        "can repeat an action that does nothing until its steps are used up.",
    )


class EvalBoth(Eval):
    """Measuring before and after training."""

    measure_base: bool = Field(default=True, description="Whether to measure the policy before training, too.")


class EvalSearch(HeldOut):
    """Measuring with search at test time."""

    num_iterations: int = Field(
        default=20, ge=1, description="Rollouts per tree in search at test time, or episodes to choose from."
    )
    max_calls: int = Field(
        default=0,
        ge=0,
        description="Limit on actions sampled per task, in search and in episodes, so that all ways to choose cost the "
        "same; each of a node's K proposals counts. 0: none.",
    )


CHOSEN = (
    "How the episode that counts is chosen. oracle: by the site's checker during search, as in pass@N; value: the best "
    "path by value, with the base as the judge in search; of independent episodes, majority: the most common final "
    "page; best_of_n: the judge's score"
)


class EvalRungs(Eval, EvalSearch):
    """Measuring rungs, some with search."""

    chosen_by: ChosenBy = Field(default="oracle", description=f"{CHOSEN}.")


class EvalWays(EvalSearch):
    """Measuring with search at test time, by one way to choose or by all."""

    chosen_by: Literal[ChosenBy, "all"] = Field(default="oracle", description=f"{CHOSEN}; all: a row for each.")


def check_calls(max_calls: int, leaves_in_flight: int) -> None:
    """Raises ConfigError if timing would decide which rollout has the last calls."""
    if max_calls and leaves_in_flight > 1:
        raise ConfigError(f"search.leaves_in_flight must be 1 with eval.max_calls; got {leaves_in_flight}")
