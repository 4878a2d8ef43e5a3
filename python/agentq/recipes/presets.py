"""Settings of the ready-made runs, as command-line words. All ours; docs/experiments.md says why."""

from __future__ import annotations

# agentq demo: within 15 minutes on two cores
DEMO = (
    "--run.out=runs/demo",
    "--rft.num_tasks=80",
    "--run.num_tasks=60",
    "--eval.num_tasks=100",
)
