"""Trees and episodes as the plain data that the page draws. Pure functions; the page's `model.js` reads what is here.

A text occurs once in a tree's data and is meant by its number in `texts`; a page is a list of such lines, since most
lines of a page are also in the page before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from agentq.credit.pairs import WeighedPair, blended_values, weighed_pairs
from agentq.errors import ConfigError
from agentq.evaluation.endings import end_of_episode, end_of_tree
from agentq.evaluation.outcomes import counted_end, judged, solved
from agentq.report.examples import action_text
from agentq.searching.selection import priors
from agentq.store.codec import ValueTable, blob_hash
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import Observation, Trajectory

SOLVED, FAILED, BROKEN, GROWING = "solved", "failed", "broken", "growing"


@dataclass(frozen=True, slots=True)
class Shown:
    """A tree, or an episode as a tree without branches. `messages`: why steps failed, one per node of an episode."""

    tree: TreeRecord
    outcome: str
    stop: str
    messages: Sequence[str] = field(default=())


def of_tree(tree: TreeRecord, *, growing: bool = False) -> Shown:
    """A search tree. Its outcome is the one that evaluation counts; that of a `growing` one is not known yet."""
    if growing:
        return Shown(tree, GROWING, "")
    outcome = SOLVED if solved(tree) else BROKEN if tree.fault else FAILED
    return Shown(tree, outcome, end_of_tree(tree).stop)


def of_episode(t: Trajectory) -> Shown:
    """An episode. `stop`: why it ended without success."""
    results = [step.result for step in t.steps]
    pages: list[Observation | None] = [t.steps[0].observation if t.steps else None, *(r.observation for r in results)]
    n = len(pages)
    index = np.arange(n)
    ended = bool(results) and (results[-1].terminated or results[-1].truncated)
    tree = TreeRecord(
        task=t.task,
        parent=index - 1,
        depth=index,
        visit_count=np.ones(n),
        value_sum=np.full(n, t.return_),
        critic_value=np.full(n, 0.5),
        flags=np.where(index == n - 1, TERMINAL * ended, 0),
        proposal=[None, *(step.proposal for step in t.steps)],
        observation=pages,
        reward=np.array([0.0, *(r.reward for r in results)]),
        success=np.array([False, *(r.success for r in results)]),
        error_kind=[None if t.steps else t.info.get("error_kind"), *(r.error_kind for r in results)],
        info={"ends": [n - 1], **t.info},
    )
    messages = ["" if t.steps else t.info.get("error_message", ""), *(r.error_message for r in results)]
    return Shown(tree, BROKEN if t.fault else SOLVED if t.success else FAILED, end_of_episode(t).stop, messages)


def row(shown: Shown, weighed: Sequence[WeighedPair]) -> dict[str, Any]:
    """What the list of tasks shows about a tree or an episode."""
    tree = shown.tree
    return {
        "env": tree.task.env,
        "split": str(tree.task.split),
        "seed": tree.task.seed,
        "task": tree.task.instruction,
        "outcome": shown.outcome,
        "stop": shown.stop,
        "nodes": len(tree),
        "rollouts": int(tree.visit_count[0]),
        "steps": int(tree.depth[counted_end(tree)]),
        "errors": dict(Counter(kind for kind in tree.error_kind if kind)),
        "pairs": sum(not pair.dropped for pair in weighed),
        "dropped": sum(bool(pair.dropped) for pair in weighed),
    }


def weigh(shown: Shown, pairs: Mapping[str, Any] | None) -> list[WeighedPair]:
    """The pairs of a tree's siblings by training's settings; none without them."""
    return weighed_pairs(shown.tree, **pairs) if pairs else []


def tree_data(shown: Shown, pairs: Mapping[str, Any] | None, weighed: Sequence[WeighedPair]) -> dict[str, Any]:
    """Columns with an entry per node, and the texts and pages that they refer to by number.

    `blend` is null unless `pairs` has the settings by which training takes pairs; `weighed` are then
    its pairs, as [chosen, rejected, gap, why dropped]. `prior` is null where the engine told no log-probabilities.
    """
    tree, texts = shown.tree, ValueTable()
    shows, pages = _pages(tree, texts)
    proposals = [proposal.action if proposal else None for proposal in tree.proposal]
    blend = None
    if pairs:
        blend = blended_values(tree, pairs["alpha"])
    logps = [p.action_logp if p is not None and len(p.logps) else math.nan for p in tree.proposal]
    words = {
        name: texts.column(getattr(action, name, "") or "" for action in proposals).tolist()
        for name in ("plan", "thought", "explanation", "status")
    }
    return {
        "parent": tree.parent.tolist(),
        "N": tree.visit_count.tolist(),
        "W": _round(tree.value_sum),
        "critic": _round(tree.critic_value),
        "blend": blend and _round(np.round(blend, 4)),  # at ties as numpy rounds
        "prior": _round(_priors(tree, logps)),
        "logp": _round(logps),
        "tokens": [len(p.token_ids) if p is not None else 0 for p in tree.proposal],
        "reward": _round(tree.reward),
        "terminal": [int(bool(flags & TERMINAL)) for flags in tree.flags.tolist()],
        "success": tree.success.astype(int).tolist(),
        "broken": tree.broken.astype(int).tolist(),
        "error": texts.column(kind or "" for kind in tree.error_kind).tolist(),
        "message": texts.column(shown.messages or [""] * len(tree)).tolist(),
        "restored": texts.column(how or "" for how in tree.restored).tolist(),
        "action": texts.column(action_text(tree, node) for node in range(len(tree))).tolist(),
        "element": [a.env_action.element if a and a.env_action else None for a in proposals],
        "mended": texts.column(", ".join(a.mended) if a else "" for a in proposals).tolist(),
        **words,
        "shows": shows,
        "pages": pages,
        "ends": tree.info.get("ends"),
        "best": counted_end(tree),
        "judged": judged(tree),
        "pairs": [[p.chosen, p.rejected, round(p.gap, 4), p.dropped] for p in weighed],
        "info": {name: value for name, value in tree.info.items() if isinstance(value, int | float | str)},
        "texts": list(texts),
    }


def token_data(shown: Shown, words: Callable[[int], str]) -> dict[str, Any]:
    """The sampled texts, token ids and log-probabilities (nats, two decimals) of each node's action.

    `words` gives a token's text; the result has that of each id that occurs.
    """
    told = [(node, p) for node, p in enumerate(shown.tree.proposal) if p is not None]
    ids = np.concatenate([np.empty(0, int), *(p.token_ids for _, p in told)]).tolist()
    logps = _round(np.concatenate([np.empty(0), *(p.logps for _, p in told)]), 2)  # at once: most actions are short
    return {
        "node": [node for node, _ in told],
        "text": [p.action.text for _, p in told],
        "ids": _split(ids, [len(p.token_ids) for _, p in told]),
        "logps": _split(logps, [len(p.logps) for _, p in told]),
        "stop": [str(p.stop_reason) for _, p in told],
        "version": [p.policy_version for _, p in told],
        "temperature": [p.temperature for _, p in told],
        "words": {token: words(token) for token in sorted(set(ids))},
    }


def picture_name(page: Observation | None) -> str:
    """The name of the block with a page's screenshot, by its content; empty if there is none."""
    return f"shot{blob_hash(page.picture.webp).hex()}" if page is not None and page.picture is not None else ""


def _pages(tree: TreeRecord, texts: ValueTable) -> tuple[list[int], list[dict[str, Any]]]:
    """The number of each node's page, -1 for none, and the pages."""
    numbers: dict[tuple[str, str, str], int] = {}
    pages: list[dict[str, Any]] = []
    column = []
    for page in tree.observation:
        if page is None:
            column.append(-1)
            continue
        shot = picture_name(page)
        key = page.url, page.text, shot
        if key not in numbers:
            numbers[key] = len(pages)
            shown = {"url": texts[page.url], "lines": texts.column(page.text.split("\n")).tolist()}
            if page.picture is not None:
                shown |= {"shot": shot, "size": page.picture.size, "boxes": page.picture.boxes}
            pages.append(shown)
        column.append(numbers[key])
    return column, pages


def _priors(tree: TreeRecord, logps: Sequence[float]) -> list[float]:
    """P of each action among its siblings; NaN at the root and where log-probabilities are unknown."""
    found = [math.nan] * len(tree)
    for node in np.unique(tree.parent[1:]).tolist():
        children = tree.children(node).tolist()
        if len(children) == 1:
            found[children[0]] = 1.0 if math.isfinite(logps[children[0]]) else math.nan
            continue
        proposals = [tree.proposal[child] for child in children]
        try:
            shares = priors([proposal for proposal in proposals if proposal is not None])
        except ConfigError:
            continue
        for child, share in zip(children, shares.tolist(), strict=True):
            found[child] = share
    return found


def _split(values: Sequence[Any], lengths: Sequence[int]) -> list[Sequence[Any]]:
    """Values in a row as parts of these lengths."""
    return [values[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)]


def _round(values: np.ndarray | Sequence[float], digits: int = 4) -> list[float | None]:
    """What Python's `round` makes of each value. JSON has no NaN and no infinity: they become null."""
    exact = np.asarray(values, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = exact * 10.0**digits
        whole = np.rint(scaled)
        # Python rounds the exact value of a float. Near a tie the product does not tell on which side that is.
        sure = (np.abs(np.abs(scaled - whole) - 0.5) > 1e-6) & (np.abs(scaled) < 1e8)
        found: list[float | None] = (whole / 10.0**digits).tolist()
    for index in np.flatnonzero(~sure).tolist():
        value = float(exact[index])
        found[index] = round(value, digits) if math.isfinite(value) else None
    return found
