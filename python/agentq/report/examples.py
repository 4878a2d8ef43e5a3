"""One tree as a story: the path to the end that counts, with the alternatives at each node. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from agentq.evaluation.outcomes import counted_end, solved
from agentq.store.records import TreeRecord

MAX_STEPS = 40


@dataclass(frozen=True, slots=True)
class Choice:
    """One action at a node: N visits, Q its mean return, the critic's value, and whether the shown path takes it.

    `error_kind` also shows a rollout that was cancelled because the world failed.
    """

    action: str
    visit_count: int
    mean_value: float
    critic_value: float
    taken: bool
    error_kind: str | None


@dataclass(frozen=True, slots=True)
class Moment:
    """One node of the path: the page, the agent's thought, and its choices in the critic's order."""

    url: str
    page: str
    thought: str
    choices: list[Choice]


@dataclass(frozen=True, slots=True)
class Example:
    """A path through one tree."""

    instruction: str
    stage: str
    seed: int
    succeeded: bool
    num_nodes: int
    moments: list[Moment]


class Examples:
    """The first found success and the first tree without one, of the trees that `see` is given."""

    def __init__(self) -> None:
        self._found: dict[bool, Example] = {}

    def see(self, stage: str, tree: TreeRecord) -> None:
        """Keep the tree's story if it is the first of its kind; a tree of its root alone tells none."""
        succeeded = solved(tree)
        if succeeded not in self._found and len(tree) > 1:
            self._found[succeeded] = explain(stage, tree)

    def picked(self) -> list[Example]:
        """At most two, the success first."""
        return [self._found[key] for key in (True, False) if key in self._found]


def explain(stage: str, tree: TreeRecord) -> Example:
    """The path to `counted_end` with the siblings of each of its actions."""
    path = tree.path(counted_end(tree))
    moments = [_moment(tree, node, taken) for node, taken in pairwise(path)]
    return Example(tree.task.instruction, stage, tree.task.seed, solved(tree), len(tree), moments[:MAX_STEPS])


def _moment(tree: TreeRecord, node: int, taken: int) -> Moment:
    page, proposal = tree.observation[node], tree.proposal[taken]
    mean, broken = tree.mean_value, tree.broken
    choices = [
        Choice(
            action_text(tree, child),
            int(tree.visit_count[child]),
            float(mean[child]),
            float(tree.critic_value[child]),
            child == taken,
            f"{tree.error_kind[child]}, cancelled" if broken[child] else tree.error_kind[child],
        )
        for child in tree.children(node).tolist()
    ]
    thought = proposal.action.thought if proposal is not None else ""
    return Moment(page.url if page else "", page.text if page else "", thought, choices)


def action_text(tree: TreeRecord, node: int) -> str:
    proposal = tree.proposal[node]
    if proposal is None:
        return ""
    action = proposal.action
    return str(action.env_action) if action.env_action is not None else f"unreadable: {action.parse_error}"
