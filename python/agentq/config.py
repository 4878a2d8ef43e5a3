"""Every setting, typed, with its default, bounds and one sentence.

A section is a group of settings, such as `search`. It has several classes if commands read different parts of it.
`recipes.settings` composes them into one model per command and recipe, whose fields are exactly the settings read. The
Agent Q paper (arXiv:2408.07199) publishes no hyper-parameter of its search or training: every default here is ours.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentq.errors import ConfigError

SEEDS = 1 << 32  # seeds of runs and learners are below it, since numpy, torch and sample seeds use 32 bits
Selection = Literal["ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"]
GO_WIDER = ("thompson_gaussian", "thompson_beta")  # rules that ask for further children of a node
MOST_TASKS = 1_000_000_000  # per split


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
    """Concurrency of collection."""

    num_trees_in_flight: int = Field(
        default=32, ge=1, description="Trees or episodes collected at once, in common model batches."
    )


class Sampling(Section):
    """Sampling of the policy."""

    temperature: float = Field(default=0.8, ge=0, description="Sampling temperature of the policy; 0 is greedy.")


class Episodes(Sessions, Sampling):
    """Episodes under the policy."""


class SearchRule(Sampling):
    """Monte-Carlo tree search without a limit on rollouts."""

    num_proposals: int = Field(default=5, ge=1, description="K: actions sampled at each node.")
    selection: Selection = Field(default="ucb1", description="Rule that chooses the leaf of the next rollout.")
    c_exp: float = Field(default=1.0, ge=0, description="Exploration constant of ucb1, uct and puct, in reward units.")


class Search(Sessions, SearchRule):
    """Search at test time; the number of rollouts is a setting of `eval`."""

    leaves_in_flight: int = Field(default=1, ge=1, description="Concurrent rollouts of one tree.")

    def check(self, name: str) -> None:
        """See `Section.check`."""
        check_search(self.selection, self.leaves_in_flight)


class Trees(Search):
    """Search trees to learn from."""

    num_iterations: int = Field(default=8, ge=1, description="Rollouts of each tree.")


class RankedTrees(Trees):
    """Search trees whose proposals a critic may rank."""

    critic: str = Field(
        default="base", min_length=1, description="Model that ranks proposals: base, none, or a model's name."
    )


def check_search(selection: str, leaves_in_flight: int) -> None:
    """Raises ConfigError if the selection rule cannot have that many leaves in flight."""
    if leaves_in_flight > 1 and selection in GO_WIDER:
        raise ConfigError(
            f"search.leaves_in_flight must be 1 with {selection}, whose draws depend on every earlier rollout; "
            f"got {leaves_in_flight}"
        )


# training


class Pairs(Section):
    """Which siblings of a tree become preference pairs."""

    alpha: float = Field(default=0.75, ge=0, le=1, description="Weight of the search; 1 leaves the critic out.")
    threshold: float = Field(default=0.5, ge=0, description="Smallest gap of blended values, in reward units.")
    max_pairs_per_node: int = Field(default=4, ge=0, description="Pairs kept per node, largest gap first; 0 keeps all.")
    min_visits: int = Field(default=1, ge=1, description="Fewest visits of each action in a pair.")


class Kept(Section):
    """Which successes rejection sampling keeps."""

    max_per_task: int = Field(default=2, ge=0, description="Successes kept per task; 0 keeps all.")


class Adapters(Section):
    """Which weights of a model are trained."""

    lora_rank: int = Field(default=0, ge=0, description="Rank of the LoRA adapters; 0 trains all weights.")


class Train(Adapters):
    """Training of the policy on one round's data."""

    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=1, ge=1, description="Passes over one round's data.")
    batch_size: int = Field(default=16, ge=1, description="Pairs, samples or trajectories per optimiser step.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this global norm.")
    warmup_fraction: float = Field(default=0.1, ge=0, le=1, description="Fraction of steps in which the rate rises.")
    bf16: bool = Field(default=False, description="Matrix products in bfloat16; weights keep their type.")
    gradient_checkpointing: bool = Field(default=False, description="Compute layers twice to save memory.")


class TrainOnSampled(Train):
    """Training that needs the behaviour policy's log-probabilities."""

    logp_tolerance: float = Field(
        default=0.0,
        ge=0,
        description="Keep the sampler's log-probabilities if the learner's agree to within this, in nats per token.",
    )


class Dpo(TrainOnSampled):
    """Training on preference pairs."""

    beta: float = Field(default=0.1, gt=0, description="DPO's weight of the reference; larger stays closer.")
    sft_weight: float = Field(default=1.0, ge=0, description="Weight of the SFT loss of good actions beside DPO's.")


class Clipped(Section):
    """The loss of REINFORCE's family. A recipe sets its paper's values."""

    ratio: Literal["none", "token", "turn", "sequence"] = Field(
        default="token", description="Unit of the ratio to the sampling policy; none: strictly on-policy."
    )
    clip_low: float = Field(default=0.2, ge=0, le=1, description="The ratio is clipped below at 1 minus this.")
    clip_high: float = Field(default=0.2, ge=0, description="The ratio is clipped above at 1 plus this.")
    average: Literal["token", "sequence", "constant"] = Field(
        default="sequence", description="Mean over tokens, over trajectories' means, or over their sums."
    )
    kl_weight: float = Field(default=0.0, ge=0, description="Weight of the KL divergence to the start of the run.")
    importance_cap: float = Field(
        default=0.0, ge=0, description="Truncate each token's weight learner / sampler at this; 0 disables it."
    )


class Compared(Clipped):
    """The loss, with advantages relative to other rollouts."""

    divide_by_std: bool = Field(default=False, description="Divide advantages by their group's standard deviation.")


class RftRung(Kept):
    """The ladder's rejection-sampling rung, from which all later rungs start."""

    num_tasks: int = Field(
        default=120, ge=1, le=MOST_TASKS, description="Training tasks tried; other rungs use later tasks."
    )
    attempts: int = Field(default=4, ge=1, description="Episodes per task.")
    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=2, ge=1, description="Passes over the kept successes.")


class OutcomeDpoRung(Section):
    """Settings of the ladder's outcome-DPO rung that differ from `train`, which is set for Agent Q's rungs."""

    learning_rate: float = Field(default=1e-5, gt=0, description="Peak learning rate of AdamW.")


# evaluation, prices, the run


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

    measure_base: bool = Field(default=True, description="Also measure the policy before training.")


class EvalSearch(HeldOut):
    """Measuring with search at test time."""

    num_iterations: int = Field(default=20, ge=1, description="Rollouts per tree in search at test time.")


class EvalRungs(Eval, EvalSearch):
    """Measuring rungs, some with search."""


class Prices(Section):
    """Prices of an engine, in any currency. Costs are shown if any price is given."""

    prompt: float = Field(default=0.0, ge=0, description="Price per million uncached prompt tokens.")
    cached: float = Field(
        default=0.0, ge=0, description="Price per million cached prompt tokens; default: price.prompt."
    )
    generated: float = Field(default=0.0, ge=0, description="Price per million generated tokens.")

    def of_tokens(self) -> tuple[float, float, float]:
        """Prices of prompt, cached and generated tokens; `cached` defaults to `prompt`."""
        return self.prompt, self.cached if "cached" in self.model_fields_set else self.prompt, self.generated


class Draws(Section):
    """Settings that the actions of a live task depend on."""

    seed: int = Field(default=0, ge=0, lt=SEEDS, description="Seed of every random choice of the run.")
    constrained: bool = Field(default=False, description="Constrain actions to the grammar and the page's ids.")


class Run(Draws):
    """The environment, engine and run directory."""

    env: str = Field(default="booking", min_length=1, description="Name of the environment.")
    out: str = Field(default="", description="The run directory; empty: runs/COMMAND..., a name made from the command.")
    engine: str = Field(default="", description="Engine that samples the weights: vllm:PATH or a vLLM server's URL.")


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
    """Rounds that compare the rollouts of a task with one another."""

    group_size: int = Field(default=8, ge=2, description="Rollouts per task in a round without trees.")


class Settings(Section):
    """Settings that every command with a run directory reads; subclasses add the rest."""

    run: Run = Run()
    search: Sessions = Sessions()
    train: Adapters = Adapters()
    eval: HeldOut = Eval()
    price: Prices = Prices()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain JSON values, section by section, which the run store keeps and compares.

        Omits `run.out` and `price`: they do not affect results, so a resumed run may change them.
        """
        return self.model_dump(mode="json", exclude={"run": {"out"}, "price": True})
