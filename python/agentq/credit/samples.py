"""Training samples: what one action gives to a trainer, and which actions of successes count (RFT). Pure functions.

No broken node and no step of a broken episode is in any sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from agentq.errors import ConfigError
from agentq.store.records import TreeRecord
from agentq.types import EnvAction, Observation, Proposal, Sample, Task, Trajectory


def sample_of(proposal: Proposal) -> Sample:
    """The tokens and recorded log-probabilities of one proposal; arrays are shared, not copied.

    Raises:
        ConfigError: if the engine returned no tokens. Tokenizing the text again might not give the sampled tokens.
    """
    if len(proposal.token_ids) == 0:
        raise ConfigError(
            "an action that is trained on must have the tokens that were sampled; got text only: collect with a "
            "checkpoint, with vllm:PATH, or with a vLLM server and ?tokenizer=PATH"
        )
    return Sample(proposal.prompt_ids, proposal.token_ids, proposal.logps)


def sample_at(tree: TreeRecord, node: int) -> Sample:
    """The sample of the action that led to a node."""
    return sample_of(proposal_at(tree, node))


def proposal_at(tree: TreeRecord, node: int) -> Proposal:
    """What led to a node. Raises ValueError for the root."""
    proposal = tree.proposal[node]
    if proposal is None:
        raise ValueError(f"every node but the root must have a proposal; node {node} has none")
    return proposal


def success_samples(trajectories: Sequence[Trajectory], max_per_task: int = 0) -> list[Sample]:
    """The actions of successful episodes, for rejection-sampling fine-tuning (RFT).

    Unreadable actions, actions taken before on the same page, and detours are left out. Success did not need them, and
    a policy trained on its repetitions soon only repeats. A detour (ours) is an action that led away from a page to
    which the episode came back, to do something else there. The way back counts: it is how an agent takes a wrong step
    back. Where prompts keep former pages, a page is an event and not a state, so there are no detours.

    Args:
        trajectories: episodes of any tasks; an episode with the same tokens as an earlier one of its task is left out.
        max_per_task: number of successes kept per task, in the order given; 0 keeps all.
    """
    at_least("max_per_task", max_per_task, 0)
    seen: dict[tuple[str, int], set[bytes]] = {}
    samples: list[Sample] = []
    for trajectory in trajectories:
        if trajectory.broken or not trajectory.success:
            continue
        tokens = b"|".join(step.proposal.token_ids.tobytes() for step in trajectory.steps)
        kept = seen.setdefault(task_key(trajectory.task), set())
        if tokens in kept or (max_per_task and len(kept) >= max_per_task):
            continue
        kept.add(tokens)
        samples += [sample_of(trajectory.steps[i].proposal) for i in success_steps(trajectory)]
    return samples


def success_steps(trajectory: Trajectory) -> list[int]:
    """The steps of an episode that `success_samples` takes; none of a failure or of a broken episode."""
    if trajectory.broken or not trajectory.success:
        return []
    return _needed(trajectory.task, ((step.observation, step.proposal) for step in trajectory.steps))


def tree_success_samples(tree: TreeRecord) -> list[Sample]:
    """The actions on a tree's paths to success, once each, in node order; as `success_samples` leaves some out."""
    return [sample_at(tree, node) for node in tree_success_nodes(tree)]


def tree_success_nodes(tree: TreeRecord) -> list[int]:
    """The nodes whose actions `tree_success_samples` takes."""
    kept: set[int] = set()
    broken = set(np.flatnonzero(tree.broken).tolist())
    for end in np.flatnonzero(tree.success).tolist():
        path = tree.path(end)
        needed = _needed(
            tree.task, ((tree.observation[before], proposal_at(tree, node)) for before, node in pairwise(path))
        )
        kept |= {path[i + 1] for i in needed}
    return sorted(kept - broken)


def _needed(task: Task, episode: Iterable[tuple[Observation | None, Proposal]]) -> list[int]:
    """Indices of a success's (page, action) entries that it may have needed, see `success_samples`."""
    steps = [(page.fingerprint if page else None, proposal.action.env_action) for page, proposal in episode]
    led_on = {page: action for page, action in steps if action is not None}  # the last action on each page
    first: dict[tuple[str, EnvAction], int] = {}
    for i, (page, action) in enumerate(steps):
        if page is not None and action is not None:
            detour = not task.keeps_pages and led_on[page] != action and steps[i + 1][0] != page
            if not detour:
                first.setdefault((page, action), i)
    return list(first.values())


def task_key(task: Task) -> tuple[str, int]:
    """Equal for episodes of one task."""
    return task.env, task.seed


def at_least(name: str, value: float, least: int) -> None:
    """Raises ValueError if `value` is less than `least`, or NaN."""
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
