"""Names of the commands and recipes, and the settings that each reads; settings of the demo. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from agentq.config import Config, check_read, load

# agentq demo: within 15 minutes on two cores (all ours; docs/experiments.md says why)
DEMO = ("--rft.num_tasks=80", "--run.num_tasks=60", "--eval.num_tasks=100")

RUN = ("run.env", "run.seed", "run.out", "run.engine", "run.constrained", "price", "search.num_trees_in_flight")
RULE = ("search.num_proposals", "search.selection", "search.c_exp", "search.temperature")
TREES = ("search.num_iterations", *RULE, "search.leaves_in_flight")
LEARN = (
    *("train.learning_rate", "train.epochs", "train.batch_size", "train.max_grad_norm", "train.lora_rank"),
    *("train.warmup_fraction", "train.bf16", "train.gradient_checkpointing"),
)
DPO = ("train.beta", "train.sft_weight")
EVAL = ("eval.num_tasks", "eval.temperature")

# what `recipes.rounds.train` reads for every recipe, and what its parts add
ROUNDS = (*RUN, *LEARN, *EVAL, "eval.measure_base", "run.num_rounds", "run.num_tasks", "run.max_env_steps")
SAMPLED = ("search.temperature", "train.logp_tolerance")
GROUPS = (*SAMPLED, "run.group_size")
LOSS = (
    *("policy_gradient.ratio", "policy_gradient.clip_low", "policy_gradient.clip_high", "policy_gradient.average"),
    *("policy_gradient.kl_weight", "policy_gradient.importance_cap"),
)

# agentq train RECIPE: one module each, whose RECIPE it runs
_FAMILY = (*ROUNDS, *GROUPS, "policy_gradient")
RECIPES: dict[str, tuple[str, ...]] = {
    "sft": ROUNDS,
    "rft": (*ROUNDS, *GROUPS, "rft.max_per_task"),
    "ei": (*ROUNDS, *GROUPS),
    "outcome_dpo": (*ROUNDS, *GROUPS, *DPO),
    "agent_q": (*ROUNDS, *TREES, *DPO, "pairs", "train.logp_tolerance"),
    **dict.fromkeys(("reinforce", "rloo", "loop", "grpo", "dapo", "gspo", "gigpo", "arpo_replay"), _FAMILY),
    **dict.fromkeys(("tree_grpo", "arpo_entropy"), _FAMILY),
    "ppo": (*ROUNDS, *GROUPS, *LOSS),
    "step_agent_implicit": (*ROUNDS, *SAMPLED, *DPO),
    "step_agent_inverse": (*ROUNDS, *SAMPLED, *LOSS),
}

_CLIMB = (*RUN, *LEARN, *EVAL, *TREES, *DPO, "eval.num_iterations", "pairs", "rft", "run.num_rounds", "run.num_tasks")
_SEARCHING = (*RUN, *TREES[1:], "eval.num_tasks", "eval.num_iterations", "train.lora_rank")
_COMMANDS = {
    "demo": _CLIMB,
    "ladder": (*_CLIMB, "outcome_dpo"),
    "eval": (*RUN, *EVAL, "train.lora_rank"),  # of the adapters that run.engine is to serve
    "eval --search": _SEARCHING,
    "eval --search step": _SEARCHING,
    "run": ("run.seed", "run.constrained", *RULE, "price"),
}
# the settings that each command reads, by its words; a section stands for all of its settings
READS = _COMMANDS | {f"train {name}": reads for name, reads in RECIPES.items()}


def load_for(
    command: str,
    file: Path | None,
    overrides: list[str],
    reads: tuple[str, ...] | None,
    defaults: tuple[str, ...] = (),
) -> Config:
    """Settings as `load` reads them; none may be given that the command does not read.

    Args:
        command: its words, for the message.
        reads: what it reads, keys and whole sections; None: unknown, so any setting may be given.
        defaults: as in `load`.

    Raises:
        ConfigError: as `load`; for a setting that is not read, with the commands that read it.
    """
    config = load(file, overrides, defaults)
    if reads is not None:
        check_read(file, overrides, reads, by=command, readers=READS)
    return config
