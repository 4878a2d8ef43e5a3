"""How good a critic is: hits against a known best, and order against what search found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentq.evaluation.critic import choice_accuracy, concordance, unranked
from agentq.recipes.metrics import of_trees
from tests.records_factory import make_tree


def test_choice_accuracy_counts_highest_values_and_knows_chance() -> None:
    found = choice_accuracy([[1.0, 0.0], [0.0, 0.5, 1.0], [0.2, 0.9]], [0, 2, 0])
    assert (found.hits, found.n) == (2, 3)
    assert found.accuracy == pytest.approx(2 / 3) and found.chance == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 3)
    assert found.low < found.accuracy < found.high


def test_concordance_compares_visited_siblings_that_differ_in_both_values() -> None:
    tree = replace(
        make_tree(num_nodes=4),
        visit_count=np.array([3, 2, 1, 0], dtype=np.uint32),
        value_sum=np.array([2.0, 2.0, 0.0, 0.0]),
        critic_value=np.array([0.5, 1.0, 0.5, 0.0], dtype=np.float32),
    )
    agrees = concordance([tree])
    assert agrees is not None and (agrees.hits, agrees.n, agrees.chance) == (1, 1, 0.5)
    against = concordance([tree, replace(tree, critic_value=np.array([0.5, 0.0, 0.5, 1.0], dtype=np.float32))])
    assert against is not None and (against.hits, against.n) == (1, 2)


def test_concordance_leaves_out_what_search_ranks_equal_and_what_the_world_broke() -> None:
    tree = replace(
        make_tree(num_nodes=4),
        visit_count=np.array([3, 1, 1, 1], dtype=np.uint32),
        value_sum=np.array([2.0, 1.0, 1.0, 0.0]),
        critic_value=np.array([0.5, 1.0, 0.5, 0.0], dtype=np.float32),
    )
    found = concordance([tree])
    assert found is not None and (found.hits, found.n) == (2, 2)  # 1 and 2 are worth the same
    assert concordance([replace(tree, error_kind=[None, None, None, "network"])]) is None


def test_the_share_of_unranked_nodes_is_of_those_with_a_choice() -> None:
    """Node 2 has only one child, so it does not count. The children of node 0 are equal, those of node 1 differ."""
    tree = make_tree(num_nodes=8)  # the children of 0 are 1, 2, 3; of 1 are 4, 5, 6; of 2 is 7
    tree.critic_value[:] = [0.5, 0.5, 0.5, 0.5, 1.0, 0.5, 1.0, 0.5]
    assert unranked([tree]) == 0.5 and unranked([make_tree(num_nodes=1)]) == 0.0


def test_the_metrics_of_a_search_say_how_far_to_trust_the_critic() -> None:
    tree = replace(
        make_tree(num_nodes=4),
        visit_count=np.array([6, 3, 2, 1], dtype=np.uint32),
        value_sum=np.array([3.0, 3.0, 0.0, 0.5]),
        critic_value=np.array([0.5, 1.0, 0.5, 0.0], dtype=np.float32),
    )
    found, told = of_trees([tree]), concordance([tree])
    assert told is not None and (told.hits, told.n) == (2, 3)
    assert found["critic/agreement"] == pytest.approx(2 / 3)
    assert (found["critic/agreement/low"], found["critic/agreement/high"]) == (told.low, told.high)
    unranked = replace(tree, critic_value=np.full(4, 0.5, dtype=np.float32))
    assert not any(name.startswith("critic") for name in of_trees([unranked]))


def test_concordance_of_trees_without_any_such_pair_is_none() -> None:
    tree = make_tree(num_nodes=4)
    assert concordance([]) is None
    assert concordance([replace(tree, critic_value=np.full(4, 0.5, dtype=np.float32))]) is None
