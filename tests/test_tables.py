"""A run as tables of rows, and what notebooks show of results."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agentq
from agentq.errors import ConfigError
from agentq.results import Rungs
from agentq.store.run import RunStore
from agentq.store.tables import COLUMNS, rows
from tests.records_factory import make_trajectory, make_tree
from tests.test_evaluation_stats import rung
from tests.view_factory import HOSTILE, hostile


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with RunStore.open(tmp_path / "run", {}) as found:
        found.add_tree("search", make_tree(3, num_nodes=20))
        found.set_note("search", {"pairs": {"alpha": 0.5, "threshold": 0.2, "max_pairs_per_node": 0, "min_visits": 1}})
        found.add_trajectory("eval", "5/1", make_trajectory(5))
        yield found


def test_rows_have_the_columns_of_their_table(store: RunStore) -> None:
    for table, columns in COLUMNS.items():
        found = rows(store, table, None)
        assert found and all(list(row) == list(columns) for row in found), table


def test_rows_tell_nodes_steps_and_pairs(store: RunStore) -> None:
    tree, nodes = make_tree(3, num_nodes=20), rows(store, "nodes", "search")
    assert [row["parent"] for row in nodes] == tree.parent.tolist() and nodes[0]["action"] is None
    assert [row["mean_value"] for row in nodes] == tree.mean_value.tolist() != [row["value_sum"] for row in nodes]
    assert {row["stage"] for row in rows(store, "nodes", None)} == {"search"} and not rows(store, "nodes", "eval")
    assert nodes[7]["action"] == "CLICK [7]" and nodes[7]["logps"] == tree.proposal[7].logps.tolist()  # type: ignore[union-attr]
    steps = rows(store, "steps", None)
    assert [(row["step"], row["attempt"], row["key"]) for row in steps] == [(i, 1, "5/1") for i in range(3)]
    assert [(row["page"], row["url"]) for row in steps] == [(f"page {i}", f"/{i}") for i in range(3)]
    assert [row["reward"] for row in steps] == [0.0, 0.0, 1.0]  # the page on which it was done, and its own reward
    assert steps[1]["action"] is None and steps[1]["error_kind"] == "timeout" and steps[2]["success"]
    pairs, wanted = rows(store, "pairs", None), make_tree(3, num_nodes=20)
    for row in pairs:
        assert wanted.parent[row["chosen"]] == wanted.parent[row["rejected"]] == row["parent"]
        assert row["rejected_text"] == wanted.proposal[row["rejected"]].action.text != row["chosen_text"]  # type: ignore[union-attr]
        assert (row["page"], row["url"]) == (nodes[row["parent"]]["page"], nodes[row["parent"]]["url"])
        assert row["gap"] > 0.2 and row["chosen_text"] == wanted.proposal[row["chosen"]].action.text  # type: ignore[union-attr]
    for given, message in (
        (("nods", None), "a table must be one of nodes, steps, pairs"),
        (("nodes", "x"), "a stage must"),
    ):
        with pytest.raises(ConfigError, match=message):
            rows(store, *given)


def test_tables_for_arrow_and_pandas(store: RunStore) -> None:
    pytest.importorskip("pyarrow")
    for table, columns in COLUMNS.items():
        found = store.to_arrow(table)
        assert found.schema.names == list(columns) and found.num_rows == len(rows(store, table, None))
        assert store.to_arrow(table, "eval").schema == found.schema  # empty for trees, with the same types
    pytest.importorskip("pandas")
    frame = store.to_pandas("nodes", "search")
    assert list(frame.columns) == list(COLUMNS["nodes"])
    np.testing.assert_allclose(frame["visit_count"], make_tree(3, num_nodes=20).visit_count)
    for table in COLUMNS:
        full, empty = store.to_pandas(table), store.to_pandas(table, "eval" if table != "steps" else "search")
        assert len(full) and not len(empty) and list(empty.columns) == list(full.columns)
        numbers = [name for name in full.columns if full[name].dtype.kind in "ifb"]
        assert "seed" in numbers and all(empty[name].dtype == full[name].dtype for name in numbers), table


def test_notebooks_show_results_as_html_with_foreign_text_escaped() -> None:
    episodes = agentq.Evaluation((make_trajectory(1), make_trajectory(2, success=False)))
    shown = episodes._repr_html_()
    assert shown.count("<tr>") == 3 and "solved" in shown and "1 of 2 tasks" in shown
    assert "&lt;b&gt;" in rung(3, 10, "<b>")._repr_html_() and "30.0%" in rung(3, 10, "<b>")._repr_html_()
    gain = {"diff": 0.1, "low": -0.05, "high": 0.25, "p_value": 0.2}
    shown = Rungs([rung(3, 10, "base"), replace(rung(4, 10, "rft"), against_base=gain)])._repr_html_()
    assert shown.count("<tr>") == 3 and "<td>+10.0 (-5.0 to +25.0)</td>" in shown


def test_results_are_text_in_a_script() -> None:
    gain = {"diff": 0.1, "low": -0.05, "high": 0.25, "p_value": 0.2}
    rungs = Rungs([rung(3, 10, "base"), replace(rung(4, 10, "rft"), against_base=gain)])
    assert (
        str(rungs)
        == rungs.show()
        == (
            "base  3 of 10 tasks, 30.0 % (10.8 to 60.3)\n"
            "rft   4 of 10 tasks, 40.0 % (16.8 to 68.7); +10.0 points over the base (-5.0 to 25.0)"
        )
    )
    episodes, found = agentq.Evaluation((make_trajectory(1),)), agentq.SearchResult(make_tree(3))
    assert "mean return" not in str(episodes)
    paid = agentq.Evaluation((make_trajectory(1), make_trajectory(2, success=False, return_=0.25)))
    assert paid.mean_return == 0.625 and str(paid).startswith("1 of 2 tasks (") and "mean return 0.625)" in str(paid)
    assert episodes.show() == str(episodes) and str(found) == found.show() and "Q" in found.show()


def test_notebooks_show_every_result_without_markup_or_requests_of_pages() -> None:
    tree = hostile()
    episode = agentq.SearchResult(tree).trajectory
    assert HOSTILE in episode.task.instruction and episode.steps
    for result in (agentq.SearchResult(tree), episode, agentq.Evaluation((episode,)), rung(3, 10, HOSTILE)):
        shown = result._repr_html_()
        assert "hacked" in shown
        for markup in ("<script", "<img", "<link", "<iframe", "<style"):
            assert markup not in shown
        assert not re.search(r"<[^>]+\b(src|href|style|on\w+)=", shown)
