"""StepAgent-Implicit: DPO with the expert's action chosen over the agent's, in each state of the expert.

Source: Deng et al. 2024, arXiv:2411.03817: inspection, then the implicit reward. The agent acts again in every round,
and the reference is the policy at the round's start. Start from an SFT model (`--base`). The paper's hyper-parameters
were not available: temperature, tasks and rounds are ours.
"""

from __future__ import annotations

from agentq.credit.pairs import inspection_pairs
from agentq.recipes.agent_q import loss, with_learners_reference
from agentq.recipes.metrics import agreement
from agentq.recipes.recipe import Recipe, Round, collect_inspections
from agentq.recipes.settings import Imitation
from agentq.types import PreferencePair, Sample


def credit(r: Round[Imitation]) -> list[PreferencePair | Sample]:
    """Pairs of the expert's and the agent's action, in states in which they differ."""
    trees = list(r.store.trees(r.stage))
    r.store.log(f"{r.name}/inspection", r.number, agreement=agreement(trees))
    return with_learners_reference(r, [pair for tree in trees for pair in inspection_pairs(tree)])


RECIPE = Recipe("step_agent_implicit", Imitation, collect_inspections, credit, loss)
