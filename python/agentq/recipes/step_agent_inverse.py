"""StepAgent-Inverse: step rewards from a discriminator between the expert's and the agent's actions, with PPO's clip.

Source: Deng et al. 2024, arXiv:2411.03817: inspection and inverse reinforcement learning in turns, as in Ho and Ermon
2016, arXiv:1606.03476. The paper's reward, networks and hyper-parameters were not available. Ours: the discriminator is
linear in the policy's hidden state at the end of the environment command and is fitted again each round. It does not
see the thought, from which it would learn the expert's style. The agent's actions are those in the states of the
expert, and those of an episode of its own per task. The reward is the logit (airl). A step's advantage is its own
reward, whitened over the round. All defaults are ours. Start from an SFT model (`--base`).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from agentq.agent.actions import same_action
from agentq.credit.advantages import group_relative
from agentq.credit.discriminator import discriminator_rewards
from agentq.credit.samples import sample_of
from agentq.learn.features import features
from agentq.learn.losses import discriminator_loss
from agentq.policies.renderer import Renderer, load_renderer
from agentq.recipes import policy_gradient
from agentq.recipes.metrics import agreement
from agentq.recipes.recipe import Recipe, Round, collect_inspections
from agentq.recipes.settings import RECIPES, OnPolicy
from agentq.searching.demonstrate import inspected, rolled_out
from agentq.types import CreditedTrajectory, Proposal, Sample

FOLDS = 5  # the last of so many tasks is held out to measure the discriminator
STEPS, RATE, WEIGHT_DECAY, LABEL_SMOOTHING = 200, 0.05, 1e-2, 0.1  # of the discriminator


def credit(r: Round[OnPolicy]) -> list[CreditedTrajectory]:
    """The agent's actions in the states of the expert, and its episodes, with advantages from the discriminator.

    Logs the accuracy of a discriminator fitted to four tasks of five on the others, in states where the two differ.
    """
    trees = list(r.store.trees(r.stage))
    pairs, episodes = [p for tree in trees for p in inspected(tree)], [rolled_out(tree) for tree in trees]
    if not pairs:
        return []
    expert, agent = pairs[::2], pairs[1::2]
    own = [p for episode in episodes for p in episode]
    renderer = load_renderer(r.start, template=r.settings.model.template)
    _, states = features(r.learner, [_command(renderer, proposal) for proposal in (*pairs, *own)])
    is_expert = torch.tensor([1.0, 0.0] * len(expert) + [0.0] * len(own))
    logits = discriminate(states, is_expert)
    of_task = [i for of in (inspected, rolled_out) for i, tree in enumerate(trees) for _ in of(tree)]
    held = torch.tensor([i % FOLDS == FOLDS - 1 for i in of_task])
    differ = [not same_action(a.action.env_action, b.action.env_action) for a, b in zip(expert, agent, strict=True)]
    counted = torch.tensor([each for each in differ for _ in range(2)] + [False] * len(own)) & held
    accuracy = {}
    if counted.any():
        right = (discriminate(states, is_expert, ~held) > 0) == is_expert.bool()
        accuracy = {"discriminator_accuracy": float(right[counted].double().mean())}
    r.store.log(f"{r.name}/inspection", r.number, agreement=agreement(trees), **accuracy)
    acted = np.concatenate([logits[1 : len(pairs) : 2].numpy(), logits[len(pairs) :].numpy()])
    rewards = discriminator_rewards(acted, form="airl")
    advantages = group_relative(rewards, np.zeros(len(rewards)), ddof=1)
    turns = [[p] for p in agent] + [episode for episode in episodes if episode]
    split = np.split(advantages, np.cumsum([len(turn) for turn in turns])[:-1])
    items = [CreditedTrajectory(tuple(map(sample_of, t)), a) for t, a in zip(turns, split, strict=True)]
    return policy_gradient.prepared(r, items)


def discriminate(states: Tensor, is_expert: Tensor, fitted: Tensor | None = None) -> Tensor:
    """`[N]` logits of a linear discriminator of `[N, d]` states; higher is more like the expert.

    `fitted`: `[N]` bool, the states that it is fitted to; None: all.
    """
    x = (states - states.mean(dim=0)) / (states.std(dim=0) + 1e-6)
    rows = torch.ones(len(x), dtype=torch.bool) if fitted is None else fitted
    weight, bias = torch.zeros(x.shape[1], requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = discriminator_loss(x[rows] @ weight + bias, is_expert[rows], label_smoothing=LABEL_SMOOTHING).mean()
        torch.autograd.backward(loss)
        optimizer.step()
    with torch.no_grad():
        found: Tensor = x @ weight + bias
    return found


def _command(renderer: Renderer, proposal: Proposal) -> Sample:
    """A sample of the environment command alone, at the same history."""
    ids = renderer.encode_answer(f"COMMANDS: {proposal.action.env_action or 'unreadable'}")
    return Sample(proposal.prompt_ids, ids, np.full(len(ids), np.nan, dtype=np.float32))


LOSS = policy_gradient.policy_gradient()
COLLECT = partial(collect_inspections, rollout=True)
RECIPE = Recipe("step_agent_inverse", RECIPES["step_agent_inverse"], COLLECT, credit, LOSS)
