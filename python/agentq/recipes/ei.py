"""Expert iteration (EI): in every round, SFT on all successes of the policy's own rollout groups.

Source: Anthony et al. 2017, arXiv:1705.08439. For language-model agents with outcome reward: Chen et al. 2025,
arXiv:2502.01600, appendix C, with the tasks and rollouts of LOOP. Ours: an episode is kept if it is a success and
differs from those before it (theirs: if its return is 1), and actions that success did not need are left out, as in
RFT.
"""

from __future__ import annotations

from agentq.recipes import rft, sft
from agentq.recipes.recipe import Recipe, collect_groups
from agentq.recipes.settings import RECIPES

RECIPE = Recipe("ei", RECIPES["ei"], collect_groups, rft.credit, sft.loss)
