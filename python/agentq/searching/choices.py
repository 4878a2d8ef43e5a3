"""Which episode of a task counts where no checker says so: a rule takes a tree and names its end. Pure functions."""

from __future__ import annotations

from collections import Counter

import numpy as np

from agentq.store.records import TreeRecord


def by_value(tree: TreeRecord) -> int:
    """The end of the best path by value: from the root, always the best of the actions that were tried.

        a* = argmax_a Q(h, a),  Q = W / N,  over actions with N(h, a) > 0

    Ties: the higher critic's value, then more visits, then the earlier child. Q comes from what told the search: a
    judge's verdicts in `agentq eval`. The root if no rollout ended.
    """
    node, q = 0, tree.mean_value
    while tried := [child for child in tree.children(node).tolist() if tree.visit_count[child]]:
        node = max(tried, key=lambda c: (q[c], tree.critic_value[c], tree.visit_count[c], -c))
    return node


def by_majority(tree: TreeRecord) -> int:
    """The end whose last page most episodes share; ties: the page that an episode reached first.

    Only episodes that gave an answer vote: those that the agent or the site ended (`info["answers"]`). If none did, the
    end of the first episode; the root if there is none.

    Source: Wang et al. 2022, arXiv:2203.11171 (self-consistency). Ours: the answer of an episode is its last page.
    """
    answers = _answers(tree)
    pages = {end: page.fingerprint for end in answers if (page := tree.observation[end]) is not None}
    votes = Counter(pages.values())
    return max(answers, key=lambda end: votes[pages.get(end, "")])  # of equals the first


def by_score(tree: TreeRecord) -> int:
    """Best of n: the answer with the highest score by the judge (`info["scores"]`), one per entry of `info["answers"]`.

    Ties: the episode that the policy finds likeliest per token, then the first. Fallbacks as in `by_majority`.
    """
    answers = _answers(tree)
    scores = dict(zip(tree.info["answers"], tree.info["scores"], strict=True))
    return max(answers, key=lambda end: (scores.get(end, 0.0), _logp(tree, end)))


def _answers(tree: TreeRecord) -> list[int]:
    return tree.info["answers"] or tree.info["ends"][:1] or [0]


def _logp(tree: TreeRecord, end: int) -> float:
    """Mean log-probability of the tokens on the path to `end`; -inf if the engine did not tell them."""
    logps = [p.logps for node in tree.path(end)[1:] if (p := tree.proposal[node]) is not None]
    told = np.concatenate([*logps, np.empty(0)])
    found = float(told.mean()) if len(told) else -np.inf
    return found if np.isfinite(found) else -np.inf
