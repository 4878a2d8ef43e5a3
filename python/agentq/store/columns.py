"""Pages and proposals as columns of a record: one row per node that has one, long values as blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentq.store.codec import BlobTable
from agentq.types import Action, Command, EnvAction, Observation, Proposal, Status, StopReason


def encode_observations(
    pages: Sequence[Observation | None], blobs: BlobTable
) -> tuple[list[str], dict[str, np.ndarray]]:
    """The urls and columns of pages; their texts become blobs."""
    present = [(i, page) for i, page in enumerate(pages) if page is not None]
    text = [blobs.add(page.text.encode("utf-8", "surrogatepass")) for _, page in present]
    columns = {"page.node": np.array([i for i, _ in present], "<i4"), "page.text": np.array(text, "<i4")}
    return [page.url for _, page in present], columns


def decode_observations(
    n: int, urls: list[str], columns: dict[str, np.ndarray], blobs: list[bytes]
) -> list[Observation | None]:
    """Inverse of `encode_observations` for `n` nodes; equal pages share one object."""
    pages: list[Observation | None] = [None] * n
    known: dict[tuple[int, str], Observation] = {}
    for node, text, url in zip(columns["page.node"].tolist(), columns["page.text"].tolist(), urls, strict=True):
        if (text, url) not in known:
            known[text, url] = Observation(blobs[text].decode("utf-8", "surrogatepass"), url)
        pages[node] = known[text, url]
    return pages


def encode_proposals(
    proposals: Sequence[Proposal | None], blobs: BlobTable
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The actions and columns of proposals; their prompts become blobs.

    Raises:
        ValueError: if an array has another type or length than `Proposal` requires.
    """
    present = [(i, proposal) for i, proposal in enumerate(proposals) if proposal is not None]
    for i, proposal in present:
        _check_proposal(i, proposal)
    columns = {
        "action.node": np.array([i for i, _ in present], "<i4"),
        "action.prompt": np.array([blobs.add(p.prompt_ids.astype("<i4").tobytes()) for _, p in present], "<i4"),
        "action.length": np.array([len(p.token_ids) for _, p in present], "<i4"),
        "action.token_ids": np.concatenate([np.empty(0, "<i4"), *(p.token_ids for _, p in present)]).astype("<i4"),
        "action.logps": np.concatenate([np.empty(0, "<f4"), *(p.logps for _, p in present)]).astype("<f4"),
        "action.temperature": np.array([p.temperature for _, p in present], "<f8"),
        "action.policy_version": np.array([p.policy_version for _, p in present], "<i8"),
    }
    return [_action_fields(p) for _, p in present], columns


def _check_proposal(node: int, proposal: Proposal) -> None:
    for name, dtype in (("prompt_ids", np.int32), ("token_ids", np.int32), ("logps", np.float32)):
        array = getattr(proposal, name)
        if array.dtype != dtype or array.ndim != 1:
            want, got = np.dtype(dtype).name, f"{array.ndim}-D {array.dtype.name}"
            raise ValueError(f"{name} of the proposal at {node} must be 1-D {want}; got {got}")
    if len(proposal.logps) != len(proposal.token_ids):
        tokens, logps = len(proposal.token_ids), len(proposal.logps)
        raise ValueError(f"logps of the proposal at {node} must have one entry per token ({tokens}); got {logps}")


def _action_fields(proposal: Proposal) -> dict[str, Any]:
    action, env = proposal.action, proposal.action.env_action
    return {
        "text": action.text,
        "env_action": None if env is None else [env.command.value, env.element, env.text],
        "thought": action.thought,
        "plan": action.plan,
        "explanation": action.explanation,
        "status": action.status.value,
        "parse_error": action.parse_error,
        "mended": list(action.mended),
        "stop_reason": proposal.stop_reason.value,
    }


def decode_proposals(
    n: int, actions: list[dict[str, Any]], columns: dict[str, np.ndarray], blobs: list[bytes]
) -> list[Proposal | None]:
    """Inverse of `encode_proposals` for `n` nodes; equal prompts share one array."""
    proposals: list[Proposal | None] = [None] * n
    prompts: dict[int, np.ndarray] = {}
    stops = np.cumsum(columns["action.length"])
    for row, fields in enumerate(actions):
        span = slice(int(stops[row] - columns["action.length"][row]), int(stops[row]))
        blob = int(columns["action.prompt"][row])
        if blob not in prompts:
            prompts[blob] = np.frombuffer(blobs[blob], "<i4").copy()
        stop_reason, env, status = (fields.pop(name) for name in ("stop_reason", "env_action", "status"))
        mended = tuple(fields.pop("mended", ()))
        env_action = None if env is None else EnvAction(Command(env[0]), env[1], env[2])
        proposals[int(columns["action.node"][row])] = Proposal(
            action=Action(env_action=env_action, status=Status(status), mended=mended, **fields),
            prompt_ids=prompts[blob],
            token_ids=columns["action.token_ids"][span],
            logps=columns["action.logps"][span],
            stop_reason=StopReason(stop_reason),
            policy_version=int(columns["action.policy_version"][row]),
            temperature=float(columns["action.temperature"][row]),
        )
    return proposals
