"""Settings of the ready-made runs, as command-line words. All ours; docs/experiments.md says why."""

from __future__ import annotations

# agentq demo: within 15 minutes on two cores
DEMO = (
    "--run.out=runs/demo",
    "--run.num_rounds=1",
    "--run.num_tasks=60",
    "--eval.num_tasks=100",
    "--eval.num_iterations=10",
)
