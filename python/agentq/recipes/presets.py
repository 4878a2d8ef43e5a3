"""Settings of the ready-made runs, as command-line words (all ours; docs/experiments.md says why); names of recipes."""

from __future__ import annotations

# agentq demo: within 15 minutes on two cores
DEMO = (
    "--run.out=runs/demo",
    "--rft.num_tasks=80",
    "--run.num_tasks=60",
    "--eval.num_tasks=100",
)

# agentq train RECIPE: one module each, whose RECIPE it runs
RECIPES = (
    *("sft", "rft", "ei", "outcome_dpo", "agent_q"),
    *("reinforce", "rloo", "loop", "grpo", "dapo", "gspo", "gigpo", "arpo_replay"),
    *("tree_grpo", "arpo_entropy", "ppo", "step_agent_implicit", "step_agent_inverse"),
)
