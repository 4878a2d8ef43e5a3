"""The list of runs: how far each is, by hand."""

from __future__ import annotations

from pathlib import Path

from agentq.report.runs import list_runs
from agentq.store import RunStore
from agentq.store.claim import COMMAND
from agentq.store.directory import Lock
from agentq.store.files import write_json
from tests.test_evaluation_stats import rung


def test_a_run_is_listed_with_its_state_its_last_finished_round_and_its_last_rung(tmp_path: Path) -> None:
    run = tmp_path / "a" / "b" / "c"
    with RunStore.open(run, {"command": "train rft", "run": {"env": "shop", "num_rounds": 5}}) as store:
        store.set_note(COMMAND, {"words": ["train", "rft"], "finished": True})
        for number, finished in ((1, True), (3, True), (4, False)):  # of the second nothing is known
            store.set_note(f"rft/round{number}/learn", {"finished": finished})
        assert [row.state for row in list_runs(tmp_path)] == ["running"]
        store.set_note(COMMAND, {"words": ["train", "rft"], "finished": False})
    assert [row.state for row in list_runs(tmp_path)] == ["stopped"]
    with RunStore.open(run, store.config) as store:
        store.set_note(COMMAND, {"words": ["train", "rft"], "finished": True})
    write_json(run / "summary.json", [rung(1, 10, "base").to_dict(), rung(8, 10, "rft").to_dict()])
    (row,) = list_runs(tmp_path)
    assert (row.state, row.command, row.env, row.rounds) == ("finished", "train rft", "shop", "3/5")
    assert (row.rung, row.successes, row.n, row.success) == ("rft", 8, 10, 0.8)


def test_a_run_that_cannot_be_read_is_damaged_unless_a_process_writes_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.sqlite").write_bytes(b"none")
    assert [row.state for row in list_runs(tmp_path)] == ["damaged"]
    held = Lock(tmp_path / "run")
    assert [row.state for row in list_runs(tmp_path)] == ["running"]
    held.close()
