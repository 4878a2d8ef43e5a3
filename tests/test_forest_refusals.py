"""Every call that the forest refuses: the message, and that nothing changed."""

from __future__ import annotations

import numpy as np
import pytest

from agentq._core import Forest
from tests.reference.builders import columns, fan

REFUSALS = [
    (lambda f: f.ask([1]), IndexError, "no tree 1; there are 1"),
    (lambda f: f.ask([-1]), IndexError, "no tree -1; there are 1"),
    (lambda f: f.ask([2**40]), IndexError, f"no tree {2**40}; there are 1"),
    (lambda f: f.ask([0], 0), ValueError, "n must be at least 1; got 0"),
    (lambda f: f.ask(0), ValueError, "trees must be a one-dimensional array; got 0"),
    (lambda f: f.ask([0.0]), ValueError, "trees must be whole numbers; got dtype float64"),
    (lambda f: f.ask([True]), ValueError, "trees must be whole numbers; got dtype bool"),
    (lambda f: f.add_trees(-1), ValueError, "n must be at least 0; got -1"),
    (lambda f: f.add_trees(2**31), ValueError, "a forest must have at most 2147483647 trees"),
    (lambda f: f.root(1), IndexError, "no tree 1; there are 1"),
    (lambda f: f.path(4), IndexError, "no node 4; there are 4"),
    (lambda f: f.path(-1), IndexError, "no node -1; there are 4"),
    (lambda f: f.extend([0]), ValueError, "node 0 must have a parent; got a root"),
    (lambda f: f.extend([1, 2]), ValueError, "a rollout must be pending at node 0, the parent"),
    (lambda f: f.extend([4]), IndexError, "no node 4; there are 4"),
    (lambda f: f.expand([0], [2], [1, 0], [0, 0]), ValueError, "node 0 must be a leaf to be expanded.*got 3 children"),
    (lambda f: f.expand([2, 2], [1, 1], [1, 0], [0, 0]), ValueError, "node 2 must be a leaf.*and once a call"),
    (lambda f: f.expand([3], [1], [1], [0]), ValueError, "node 3 must be a leaf.*got a terminal node"),
    (lambda f: f.expand([2], [0], [], []), ValueError, "widths must be at least 1; got 0"),
    (lambda f: f.expand([2], [-1], [], []), ValueError, "widths must be at least 1 and below"),
    (lambda f: f.expand([2], [1, 1], [1], [0]), ValueError, r"widths must have one entry per node \(1\); got 2"),
    (
        lambda f: f.expand([2], [2], [1], [0, 0]),
        ValueError,
        r"critic_values must have one entry per child \(2\)",
    ),
    (lambda f: f.expand([2], [1], [1], []), ValueError, r"logps must have one entry per child \(1\); got 0"),
    (lambda f: f.expand([2], [1], [np.inf], [0]), ValueError, "critic_values must be finite; got inf"),
    (lambda f: f.expand([2], [2**32 - 4], [], []), ValueError, "critic_values must have one entry per child"),
    (lambda f: f.set_terminal([2, 0]), ValueError, "node 0 must be a leaf to be terminal; got 3 children"),
    (lambda f: f.tell([1, 1], [1, 1]), ValueError, "a rollout must be pending at node 1 to tell it; got none left"),
    (lambda f: f.tell([1, 0], [1, 1]), ValueError, "a rollout must be pending at node 0 to tell it; got none left"),
    (lambda f: f.tell([1], [np.nan]), ValueError, "returns must be finite; got nan"),
    (lambda f: f.tell([1], []), ValueError, r"returns must have one entry per node \(1\); got 0"),
    (lambda f: f.tell([1], ["1"]), ValueError, "returns must be numbers; got dtype <U1"),
    (lambda f: f.tell([1, 99], [1, 1]), IndexError, "no node 99; there are 4"),
    (lambda f: f.cancel([1, 2]), ValueError, "a rollout must be pending at node 2 to cancel it; got none left"),
    (lambda f: f.pairs(alpha=1.5, threshold=0), ValueError, r"alpha must be in \[0, 1\]; got 1.5"),
    (lambda f: f.pairs(alpha=1, threshold=-1), ValueError, "threshold must be finite and at least 0; got -1"),
    (lambda f: f.pairs(alpha=1, threshold=0, min_visits=-1), ValueError, "min_visits must be at least 0; got -1"),
    (lambda f: f.pairs(alpha=1, threshold=0, trees=[3]), IndexError, "no tree 3; there are 1"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS, ids=[message[:40] for _, _, message in REFUSALS])
def test_forest_refuses_and_changes_nothing(call, error, message):
    forest = fan(3)
    forest.set_terminal([3])
    forest.ask([0])  # node 1 is pending
    before = columns(forest)
    with pytest.raises(error, match=message):
        call(forest)
    assert columns(forest) == before
    forest.tell([1], [1.0])  # what was pending still is, once
    with pytest.raises(ValueError, match="got none left"):
        forest.tell([1], [1.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"selection": "uct"}, "selection must be 'ucb1'; got 'uct'"),
        ({"unvisited": "last"}, "unvisited must be 'formula' or 'first'; got 'last'"),
        ({"c_exp": -0.5}, "c_exp must be finite and at least 0; got -0.5"),
        ({"c_exp": float("inf")}, "c_exp must be finite and at least 0; got inf"),
    ],
)
def test_forest_refuses_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Forest(**settings)
