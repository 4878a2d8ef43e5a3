"""How evaluated tasks ended: why they were not solved, and which errors their steps met. Pure functions."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from agentq.evaluation.outcomes import judged
from agentq.store.records import TreeRecord
from agentq.types import Command, Proposal, Step, StopReason, Trajectory

BY_AGENT, BY_SITE, OUT_OF_STEPS = "ended by the agent", "ended by the site", "out of steps"
NOT_FOUND = "no success found"  # by a search
CUT = "cut off at model.max_new_tokens"  # an unreadable action whose answer ran out of tokens
REFUSED = "refused by the server"  # an unreadable action: the server did not take the prompt, or filtered the answer
IN_VAIN = "repeated in vain"  # the action of the step before, on a page that it had left and leaves as it was
TAKEN_FOR = "taken for a success"  # by the judge that told the search
NOT_CHOSEN = "solved by an episode that was not chosen"  # by a vote, or as the best of n


class Ending(NamedTuple):
    """`stop`: why a task was not solved, empty if it was; `errors`: the error kind of each step that met one,
    or `CUT` or `REFUSED`.

    Errors of episodes include the steps without an error kind that were repeated in vain.
    """

    stop: str
    errors: list[str]


def end_of_episode(t: Trajectory) -> Ending:
    """The ending of an episode. `stop` is an error kind if an error ended it, such as `loop`."""
    errors = [kind for step in t.steps if (kind := _kind(step.result.error_kind, step.proposal))]
    return Ending(_stop(t), errors + [IN_VAIN] * sum(in_vain(before, step) for before, step in pairwise(t.steps)))


def in_vain(before: Step, step: Step) -> bool:
    """Whether a step does again, word for word, what had no effect and has none, and meets no error."""
    page = before.observation.text
    return (
        step.proposal.action.text == before.proposal.action.text
        and step.observation.text == step.result.observation.text == page
        and step.result.error_kind is None
    )


def end_of_tree(tree: TreeRecord) -> Ending:
    """The ending of a search, with the errors of all its rollouts."""
    won, found = bool(tree.success.any()), tree.info.get("checked")
    if found is not None:
        missed = TAKEN_FOR if judged(tree) else NOT_CHOSEN
        stop = "" if found["success"] else missed if won else tree.fault or NOT_FOUND
    else:
        stop = "" if won else tree.fault or NOT_FOUND
    found_kinds = zip(tree.error_kind, tree.proposal, strict=True)
    return Ending(stop, [kind for each, proposal in found_kinds if (kind := _kind(each, proposal))])


def is_cut(proposal: Proposal) -> bool:
    """Whether an action is unreadable and its answer ran out of tokens."""
    return proposal.action.env_action is None and proposal.stop_reason is StopReason.LENGTH


def _kind(kind: str | None, proposal: Proposal | None) -> str | None:
    if kind != "unreadable" or proposal is None:
        return kind
    if proposal.stop_reason is StopReason.REFUSED:
        return REFUSED
    return CUT if is_cut(proposal) else kind


def _stop(t: Trajectory) -> str:
    if t.success:
        return ""
    if t.fault is not None or not t.steps:
        return t.fault or BY_SITE
    last, action = t.steps[-1].result, t.steps[-1].proposal.action.env_action
    if last.truncated:
        return last.error_kind or OUT_OF_STEPS
    return BY_AGENT if action is not None and action.command is Command.STOP else BY_SITE
