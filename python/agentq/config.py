"""Every setting, with its type, default, bounds and description.

A section is a group of settings: `search.c_exp` belongs to the section `search`. A section has several classes if
commands read different parts of it. `recipes.settings` composes them into one model per command and recipe, whose
fields are exactly the settings it reads. The Agent Q paper (arXiv:2408.07199) gives no hyper-parameters of its search
or training. Every default here is ours.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field

from agentq.errors import ConfigError, did_you_mean
from agentq.eval_settings import MOST_TASKS, Eval, HeldOut
from agentq.model_settings import VLLM, ModelSettings, Section
from agentq.run_settings import Run

Selection = Literal["ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"]
SCORES = ("ucb1", "uct", "puct")  # rules that score actions by Q and a bonus
SYNONYMS = {"lr": "learning_rate", "bs": "batch_size", "k": "num_proposals", "rollouts": "num_iterations"}
GO_WIDER = ("thompson_gaussian", "thompson_beta")  # rules that add children to a node


# search


class Sessions(Section):
    """How many trees or episodes run at once."""

    num_trees_in_flight: int = Field(
        default=32, ge=1, description="Trees or episodes collected at once; their model calls share batches."
    )


class Sampling(Section):
    """How the policy is sampled."""

    temperature: float = Field(default=0.8, ge=0, description="Sampling temperature of the policy; 0 is greedy.")


class Episodes(Sessions, Sampling):
    """Collecting episodes with the policy."""


class SearchRule(Sampling):
    """Monte-Carlo tree search. The caller sets the number of rollouts."""

    num_proposals: int = Field(default=5, ge=1, description="K: actions sampled at each node.")
    selection: Selection = Field(default="ucb1", description="Rule that chooses the leaf of the next rollout.")
    c_exp: float = Field(default=1.0, ge=0, description="Exploration constant of ucb1, uct and puct, in reward units.")
    alpha: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Weight of the mean return against the critic's value in ucb1, uct and puct. 1 ignores the critic. "
        "Without a critic it is always 1.",
    )


class Search(Sessions, SearchRule):
    """Search at test time. The section `eval` sets the number of rollouts."""

    leaves_in_flight: int = Field(default=1, ge=1, description="Rollouts of one tree that run at the same time.")

    def check(self, name: str) -> None:
        """See `Section.check`."""
        check_search(self.selection, self.leaves_in_flight, self.alpha)


class Trees(Search):
    """Search trees to learn from."""

    num_iterations: int = Field(default=8, ge=1, description="Rollouts per tree.")


def check_search(selection: str, leaves_in_flight: int, alpha: float) -> None:
    """Raises ConfigError if there is no such selection rule, or it does not support this many leaves or this alpha."""
    if selection not in (rules := get_args(Selection)):
        raise ConfigError(f"search.selection must be a rule; got {selection!r}{did_you_mean(str(selection), rules)}")
    if alpha != 1 and selection not in SCORES:
        raise ConfigError(f"search.alpha must be 1 with {selection}, which has no Q to blend; got {alpha}")
    if leaves_in_flight > 1 and selection in GO_WIDER:
        raise ConfigError(
            f"search.leaves_in_flight must be 1 with {selection}, whose draws depend on every earlier rollout; "
            f"got {leaves_in_flight}"
        )


# training data and training


class Pairs(Section):
    """Which siblings in a tree become a preference pair."""

    alpha: float = Field(
        default=0.75,
        ge=0,
        le=1,
        description="Weight of the search value against the critic's; 1 ignores the critic. Without one it is 1.",
    )
    threshold: float = Field(default=0.5, ge=0, description="Minimum gap between blended values, in reward units.")
    max_pairs_per_node: int = Field(
        default=4, ge=0, description="Pairs kept per node, largest gaps first; 0 keeps all."
    )
    min_visits: int = Field(default=1, ge=1, description="Minimum visits of both actions in a pair.")


class Kept(Section):
    """Which successes rejection sampling keeps."""

    max_per_task: int = Field(default=2, ge=0, description="Successes kept per task; 0 keeps all.")


class Adapters(Section):
    """Which weights are trained."""

    lora_rank: int = Field(default=0, ge=0, description="Rank of the LoRA adapters; 0 trains all weights.")


class Train(Adapters):
    """Training of the policy on one round's data."""

    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=1, ge=1, description="Passes over one round's data.")
    batch_size: int = Field(default=16, ge=1, description="Pairs, samples or trajectories per optimiser step.")
    max_grad_norm: float = Field(
        default=1.0, gt=0, description="Gradients with a larger global norm are scaled down to this."
    )
    warmup_fraction: float = Field(
        default=0.1, ge=0, le=1, description="Fraction of the first round's steps for warm-up; 0: none."
    )
    gradient_checkpointing: bool = Field(default=False, description="Whether layers are computed twice to save memory.")
    thinking: bool = Field(
        default=True, description="Whether to train on <think> blocks; if false, only on the text after them."
    )
    devices: str = Field(
        default="",
        description="GPUs to train on, a process each, or one device; on a CPU a number of processes; cores: a process "
        "per CPU core; empty: this process, where models run.",
    )


class TrainOnSampled(Train):
    """Training that needs log-probabilities of the policy that sampled the data."""

    logp_tolerance: float = Field(
        default=0.0,
        ge=0,
        description="Reuse the sampler's log-probabilities if the learner's agree to within this, in nats per token.",
    )


class Dpo(TrainOnSampled):
    """Training on preference pairs."""

    beta: float = Field(default=0.1, gt=0, description="DPO's beta; larger values stay closer to the reference.")
    sft_weight: float = Field(default=1.0, ge=0, description="Weight of the SFT loss on good actions; 0 disables it.")


class Clipped(Section):
    """The policy-gradient loss. Each recipe sets what its paper says."""

    ratio: Literal["none", "token", "turn", "sequence"] = Field(
        default="token", description="Unit that shares one policy ratio; none: no ratio, strictly on-policy."
    )
    clip_low: float = Field(default=0.2, ge=0, le=1, description="The ratio is clipped to at least 1 minus this.")
    clip_high: float = Field(default=0.2, ge=0, description="The ratio is clipped to at most 1 plus this.")
    average: Literal["token", "sequence", "constant"] = Field(
        default="sequence", description="Mean over tokens, over trajectories' means, or over trajectories' sums."
    )
    kl_weight: float = Field(default=0.0, ge=0, description="Weight of the KL divergence to the run's start; 0: none.")
    importance_cap: float = Field(
        default=0.0, ge=0, description="Cap of the importance weight learner / sampler per token; 0: no weights."
    )


class Valued(Clipped):
    """The loss, with advantages from a value function."""

    values: Literal["head", "ridge"] = Field(
        default="head",
        description="The value function. head: trained in each step beside the policy; ridge: fitted to each round.",
    )


class Compared(Clipped):
    """The loss, with advantages from comparing rollouts."""

    divide_by_std: bool = Field(default=False, description="Whether advantages are divided by the group's deviation.")


class RftRung(Kept):
    """The rejection-sampling rung of the ladder, from which the other trained rungs start."""

    num_tasks: int = Field(
        default=120, ge=1, le=MOST_TASKS, description="Training tasks tried; the other rungs use later ones."
    )
    attempts: int = Field(default=4, ge=1, description="Episodes per task.")
    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=2, ge=1, description="Passes over the kept successes.")


class OutcomeDpoRung(Section):
    """Settings of the ladder's outcome-DPO rung that differ from `train`, which applies to the Agent Q rungs."""

    learning_rate: float = Field(default=1e-5, gt=0, description="Peak learning rate of AdamW.")


# prices, the run


class Prices(Section):
    """Prices of tokens, in any currency. Costs are shown if a price is given."""

    prompt: float = Field(default=0.0, ge=0, description="Price per million prompt tokens that were not cached.")
    cached: float = Field(default=0.0, ge=0, description="Price per million cached prompt tokens; default: prompt.")
    generated: float = Field(default=0.0, ge=0, description="Price per million generated tokens.")

    def of_tokens(self) -> tuple[float, float, float]:
        """Prices of prompt, cached and generated tokens. Cached tokens default to the price of prompt tokens."""
        return self.prompt, self.cached if "cached" in self.model_fields_set else self.prompt, self.generated


class Rounds(Run):
    """Rounds of collecting and learning."""

    num_rounds: int = Field(default=1, ge=1, description="Rounds of search and training.")
    num_tasks: int = Field(default=100, ge=1, le=MOST_TASKS, description="Training tasks per round.")
    first_task: int = Field(default=0, ge=0, le=MOST_TASKS, description="First training task of the first round.")
    max_env_steps: int = Field(
        default=0,
        ge=0,
        description="Stop before a round expected to exceed this many environment steps; 0 disables.",
    )


class Groups(Rounds):
    """Rounds with several rollouts per task."""

    group_size: int = Field(default=8, ge=1, description="Rollouts per task in a round without trees.")


class Contests(Groups):
    """Rounds in which rollouts of the same task are compared."""

    group_size: int = Field(default=8, ge=2, description="Rollouts per task in a round without trees.")


class Settings(Section):
    """The settings that every command with a run directory reads. Subclasses add the rest."""

    run: Run = Run()
    model: ModelSettings = ModelSettings()
    vllm: VLLM = VLLM()
    search: Sessions = Sessions()
    train: Adapters = Adapters()
    eval: HeldOut = Eval()
    price: Prices = Prices()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain JSON values by section, for the run store to compare; without what does not affect results."""
        places = {"devices", "threads", "memory", "sleep"}
        run = {"out", "executor", "workers", "address", "gpus", "screenshots", "track"}
        run |= set() if self.run.shard else {"shard"}
        return self.model_dump(mode="json", exclude={"run": run, "price": True, "model": places, "train": {"devices"}})
