"""Every setting, typed, with its default, bounds and one sentence.

A section is a group of settings, `search.c_exp` and the like. It has several classes if commands read different parts
of it. `recipes.settings` composes them: one model per command and recipe, whose fields are exactly what is read. The
Agent Q paper (arXiv:2408.07199) publishes no hyper-parameter of its search or training: every default here is ours.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentq.errors import ConfigError

SEEDS = 1 << 32  # seeds of runs and learners are below: as far as numpy, torch and the samples' seeds tell them apart
Selection = Literal["ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"]
GO_WIDER = ("thompson_gaussian", "thompson_beta")  # rules that ask for further children of a node
MOST_TASKS = 1_000_000_000  # of a split


class Section(BaseModel):
    """A group of settings, or several of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def check(self, name: str) -> None:
        """Raises ConfigError if settings of the command or recipe `name` do not fit together."""
        for _, value in self:
            if isinstance(value, Section):
                value.check(name)


# search


class Sessions(Section):
    """How much is collected at once."""

    num_trees_in_flight: int = Field(
        default=32, ge=1, description="Trees or episodes collected at once, in common model batches."
    )


class Sampling(Section):
    """How the policy is sampled."""

    temperature: float = Field(default=0.8, ge=0, description="Sampling temperature of the policy; 0 is greedy.")


class Episodes(Sessions, Sampling):
    """Episodes under the policy."""


class SearchRule(Sampling):
    """Monte-Carlo tree search, for as long as the caller says."""

    num_proposals: int = Field(default=5, ge=1, description="K: actions sampled at each node.")
    selection: Selection = Field(default="ucb1", description="Rule that chooses the leaf of the next rollout.")
    c_exp: float = Field(default=1.0, ge=0, description="Exploration constant of ucb1, uct and puct, in reward units.")


class Search(Sessions, SearchRule):
    """Search at test time, whose rollouts `eval` counts."""

    leaves_in_flight: int = Field(default=1, ge=1, description="Rollouts of one tree that run side by side.")

    def check(self, name: str) -> None:
        """See `Section.check`."""
        check_search(self.selection, self.leaves_in_flight)


class Trees(Search):
    """Search trees to learn from."""

    num_iterations: int = Field(default=8, ge=1, description="Rollouts of each tree.")


class RankedTrees(Trees):
    """Search trees whose proposals a critic may rank."""

    critic: str = Field(
        default="base", min_length=1, description="What ranks proposals: base, none, or the name of a model."
    )


def check_search(selection: str, leaves_in_flight: int) -> None:
    """Raises ConfigError if the selection rule cannot have so many leaves in flight."""
    if leaves_in_flight > 1 and selection in GO_WIDER:
        raise ConfigError(
            f"search.leaves_in_flight must be 1 with {selection}, whose draws depend on every earlier rollout; "
            f"got {leaves_in_flight}"
        )


# what is learnt from, and how


class Pairs(Section):
    """Which siblings of a tree become a preference pair."""

    alpha: float = Field(default=0.75, ge=0, le=1, description="Weight of the search; 1 leaves the critic out.")
    threshold: float = Field(default=0.5, ge=0, description="Smallest gap of blended values, in reward units.")
    max_pairs_per_node: int = Field(default=4, ge=0, description="Largest gaps kept of each node; 0 keeps all.")
    min_visits: int = Field(default=1, ge=1, description="Visits that both actions need.")


class Kept(Section):
    """Which successes rejection sampling keeps."""

    max_per_task: int = Field(default=2, ge=0, description="Successes kept of each task; 0 keeps all.")


class Adapters(Section):
    """What is trained of a model."""

    lora_rank: int = Field(default=0, ge=0, description="Rank of the LoRA adapters; 0 trains all weights.")


class Train(Adapters):
    """Training of the policy on one round's data."""

    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=1, ge=1, description="Passes over one round's data.")
    batch_size: int = Field(default=16, ge=1, description="Pairs, samples or trajectories of one optimiser step.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this global norm.")
    warmup_fraction: float = Field(default=0.1, ge=0, le=1, description="Part of the steps in which the rate rises.")
    bf16: bool = Field(default=False, description="Matrix products in bfloat16; the weights stay as they are.")
    gradient_checkpointing: bool = Field(default=False, description="Layers computed twice, for less memory.")


class TrainOnSampled(Train):
    """Training that needs log-probabilities of the policy that sampled."""

    logp_tolerance: float = Field(
        default=0.0,
        ge=0,
        description="Keep the sampler's log-probabilities if the learner's agree to within this, in nats per token.",
    )


class Dpo(TrainOnSampled):
    """Training on preference pairs."""

    beta: float = Field(default=0.1, gt=0, description="DPO's weight of the reference; larger stays closer to it.")
    sft_weight: float = Field(default=1.0, ge=0, description="Weight of the SFT loss of good actions beside DPO's.")


class Clipped(Section):
    """The loss of REINFORCE's family. A recipe sets what its paper says."""

    ratio: Literal["none", "token", "turn", "sequence"] = Field(
        default="token", description="What shares a ratio to the sampling policy; none: strictly on-policy."
    )
    clip_low: float = Field(default=0.2, ge=0, le=1, description="The ratio counts down to 1 less this.")
    clip_high: float = Field(default=0.2, ge=0, description="The ratio counts up to 1 plus this.")
    average: Literal["token", "sequence", "constant"] = Field(
        default="sequence", description="Mean over tokens, over trajectories' means, or over their sums."
    )
    kl_weight: float = Field(default=0.0, ge=0, description="Weight of the KL divergence to the start of the run.")
    importance_cap: float = Field(
        default=0.0, ge=0, description="Largest weight learner / sampler of a token, truncated; 0: no such weights."
    )


class Compared(Clipped):
    """The loss, and advantages from rollouts that are compared with one another."""

    divide_by_std: bool = Field(default=False, description="Advantages are divided by their group's deviation.")


class RftRung(Kept):
    """The ladder's rung of rejection sampling, from which every other one starts."""

    num_tasks: int = Field(
        default=120, ge=1, le=MOST_TASKS, description="Training tasks tried; the other rungs have later ones."
    )
    attempts: int = Field(default=4, ge=1, description="Episodes of each task.")
    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=2, ge=1, description="Passes over the kept successes.")


class OutcomeDpoRung(Section):
    """What the ladder's rung of outcome DPO does otherwise than those of Agent Q, for which `train` is set."""

    learning_rate: float = Field(default=1e-5, gt=0, description="Peak learning rate of AdamW.")


# measuring, prices, the run


class HeldOut(Section):
    """Held-out tasks to measure on."""

    num_tasks: int = Field(default=200, ge=1, le=MOST_TASKS, description="Held-out tasks.")


class Eval(HeldOut):
    """Measuring an agent without search."""

    temperature: float = Field(
        default=0.0, ge=0, description="Sampling temperature of the judged episodes; 0 is greedy."
    )


class EvalBoth(Eval):
    """Measuring before and after training."""

    measure_base: bool = Field(default=True, description="Whether the policy before training is measured too.")


class EvalSearch(HeldOut):
    """Measuring with search at test time."""

    num_iterations: int = Field(default=20, ge=1, description="Rollouts of each tree in search at test time.")


class EvalRungs(Eval, EvalSearch):
    """Measuring rungs, some with search."""


class Prices(Section):
    """What an engine costs, in any currency; sums are shown where one is given."""

    prompt: float = Field(default=0.0, ge=0, description="Of a million prompt tokens that were not cached.")
    cached: float = Field(default=0.0, ge=0, description="Of a million cached prompt tokens; not given: as the others.")
    generated: float = Field(default=0.0, ge=0, description="Of a million generated tokens.")

    def of_tokens(self) -> tuple[float, float, float]:
        """Prices of prompt, cached and generated tokens. Without a price of their own, cached ones cost as new ones."""
        return self.prompt, self.cached if "cached" in self.model_fields_set else self.prompt, self.generated


class Draws(Section):
    """What the actions of a live task depend on."""

    seed: int = Field(default=0, ge=0, lt=SEEDS, description="Every random choice of the run follows from it.")
    constrained: bool = Field(default=False, description="Whether actions are held to the grammar and the page's ids.")


class Run(Draws):
    """What is run, and where its results go."""

    env: str = Field(default="booking", min_length=1, description="Name of the environment.")
    out: str = Field(default="", description="The run directory; empty: runs/COMMAND..., named after what is run.")
    engine: str = Field(default="", description="What samples for trained weights: vllm:PATH or a vLLM server's URL.")


class Rounds(Run):
    """Rounds of collecting and learning."""

    num_rounds: int = Field(default=1, ge=1, description="Rounds of search and training.")
    num_tasks: int = Field(default=100, ge=1, le=MOST_TASKS, description="Training tasks of each round.")
    first_task: int = Field(default=0, ge=0, le=MOST_TASKS, description="Training task that the first round begins at.")
    max_env_steps: int = Field(
        default=0,
        ge=0,
        description="Stop before a round expected to exceed this many environment steps; 0 disables.",
    )


class Groups(Rounds):
    """Rounds of several rollouts of each task."""

    group_size: int = Field(default=8, ge=1, description="Rollouts of each task in a round that makes no trees.")


class Contests(Groups):
    """Rounds whose rollouts of a task are compared with one another."""

    group_size: int = Field(default=8, ge=2, description="Rollouts of each task in a round that makes no trees.")


class Settings(Section):
    """What every command with a run directory reads; subclasses say the rest."""

    run: Run = Run()
    search: Sessions = Sessions()
    train: Adapters = Adapters()
    eval: HeldOut = Eval()
    price: Prices = Prices()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain JSON values, section by section: what the run store keeps and compares.

        `run.out` and `price` are left out: they change nothing in a run, so both may be others when it goes on.
        """
        return self.model_dump(mode="json", exclude={"run": {"out"}, "price": True})
