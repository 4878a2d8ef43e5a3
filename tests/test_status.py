"""How far a run is: estimates of a stage and of the whole run, on a terminal and in plain lines."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from agentq import envs, status
from agentq.cli import main
from agentq.config import Settings
from agentq.policies.usage import Price, Tally, Usage
from agentq.progress import ladder_table, show_table
from agentq.recipes.asking import ask_for_tasks
from agentq.recipes.resources import Resources
from agentq.recipes.stage_line import StageLine
from agentq.report.page import read_stages
from agentq.searching.collect import Item, attempts, collect, inline
from agentq.searching.faults import Broken, Resets
from agentq.searching.rollout import broken_episode
from agentq.status import Ahead, Late, Pace, Planned, RichStatus, own_memory
from agentq.store.run import RunStore
from agentq.types import Split, Task, Trajectory
from tests.credit_factory import episode
from tests.test_evaluation_stats import rung


@pytest.mark.parametrize("in_flight", [1, 8, 32])
@pytest.mark.parametrize("total", [60, 200])
@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_after_a_tenth_of_a_stage_the_estimate_is_right_within_a_factor_of_two(
    in_flight: int, total: int, spread: float
) -> None:
    rng = random.Random(0)
    slots, ends = [0.0] * in_flight, list[float]()
    for _ in range(total):
        slot = min(range(in_flight), key=lambda i: slots[i])
        slots[slot] += rng.uniform(1 - spread, 1 + spread)
        ends.append(slots[slot])
    ends.sort()
    pace = Pace(total, in_flight, 0.0)
    for done, now in enumerate(ends, start=1):
        left, true = pace.left(done, now), ends[-1] - now
        if done >= 0.1 * total and true > 2:  # in the last laps, slots run empty
            assert true / 2 <= left <= 2 * true, (done, left, true)
    assert pace.left(total, ends[-1]) == 0


def test_a_stage_that_goes_on_counts_only_what_it_did_itself() -> None:
    pace = Pace(100, 0, begun=1000.0)
    assert pace.left(91, 1002.0) == pytest.approx(2.0 * 9)
    assert pace.left(95, 1010.0) == pytest.approx(10.0 * 5 / 5)


def test_what_is_known_of_unfinished_items_counts() -> None:
    pace = Pace(10, 4, begun=0.0)
    assert pace.left(0, 60.0, 0.5) == pytest.approx(60 * 9.5 / 0.5)
    assert pace.left(2, 120.0, 1.0) == pytest.approx(120 * 7 / 3)
    assert pace.left(8, 120.0, 2.0) == 0.0  # nothing but their ends
    assert Pace(100, 4, begun=0.0).left(90, 10.0, 1.0) == pytest.approx(10.0 * 9)  # it went on with 90 done


def test_of_items_in_flight_half_is_done_and_five_sixths_are_left() -> None:
    pace = Pace(60, 6, begun=0.0)
    assert pace.left(0, 3.0) == 3 * (60 - 6 / 6) / (6 / 2)
    assert pace.left(30, 11.0) == 11 * (30 - 6 / 6) / (30 + 6 / 2)
    assert pace.left(60, 12.0) == 0.0


def test_a_duration_is_hours_and_minutes_or_minutes_and_seconds() -> None:
    assert status.duration(3 * 3600 + 5 * 60 + 10) == "3 h 05 min"
    assert status.duration(250) == "4 min 10 s" and status.duration(24.6) == "25 s"


def test_stages_to_come_take_what_the_last_of_their_kind_took() -> None:
    planned = [Planned("base/eval", 10, 20.0), Planned("q/round1/collect", 4), Planned("q/round1/learn", 0)]
    ahead = Ahead([*planned, Planned("q/eval", 30)])
    assert ahead.left() == (60.0, 2) and ahead.done == 1
    ahead.ended("q/round1/collect", 4, 8.0)
    assert ahead.left("q/eval") == (0.0, 1) and ahead.done == 2
    ahead.planned["q/round2/collect"] = Planned("q/round2/collect", 6)
    assert ahead.left("q/eval") == (12.0, 1)  # 2 s each, as in the first round


def test_plain_lines_say_what_is_left_of_the_stage_and_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    shown = RichStatus(Console(file=out, width=200), every_s=1.0)
    with shown:
        shown.begin("agentq train q: runs/q")
        shown.plan([Planned("base/eval", 4), Planned("q/eval", 8)], in_flight=1)
        show = shown.stage("base/eval", 4, "episodes")
        for done in range(1, 5):
            now[0] += 10.0
            show(done, "1 succeeded")
    lines = out.getvalue().splitlines()
    assert lines[-1] == "base/eval: 4/4 episodes, 0.10/s, 0 s left; 1 succeeded; 1 of 2 stages, about 1 min 20 s left"
    assert len(lines) == 4 and "begin" not in out.getvalue()


def test_an_eval_tells_its_stages_and_how_many_episodes_are_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paces, plans = list[tuple[int, int]](), list[list[str]]()

    class Seen(Pace):
        def __init__(self, total: int, in_flight: int, begun: float) -> None:
            paces.append((total, in_flight))
            super().__init__(total, in_flight, begun)

    def plan(self: RichStatus, stages: Sequence[Planned], in_flight: int) -> None:
        plans.append([stage.name for stage in stages])
        told(self, stages, in_flight)

    told = RichStatus.plan
    monkeypatch.setattr(status, "Pace", Seen)
    monkeypatch.setattr(RichStatus, "plan", plan)
    words = ["eval", "embedded", "--run.executor=inline", "--search.num_trees_in_flight=2"]
    assert main([*words, "--eval.num_tasks=3", "--out", str(tmp_path / "one")]) == 0
    assert plans == [["eval"]] and paces == [(3, 2)]
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("eval: 3/3 episodes") and "stages" not in line
    words += ["--search", "--eval.chosen_by=all", "--eval.num_tasks=1", "--eval.num_iterations=2"]
    assert main([*words, "--eval.max_calls=4", "--out", str(tmp_path / "all")]) == 0
    assert plans[1:] == [[f"{way}/eval" for way in ("oracle", "value", "majority", "best_of_n")]]
    assert paces[1:] == [(1, 2)] * 4
    lines = [line for line in capsys.readouterr().err.splitlines() if "left" in line]
    assert "; 1 of 4 stages, about " in lines[0] and "; 4 of 4 stages, about 0 s left" in lines[-1]


def test_numbers_of_many_digits_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    with RichStatus(Console(file=out, width=200), every_s=1.0) as shown:
        show = shown.stage("reading", 2_000_000, "tokens")
        show(1, "")
        now[0] = 10.0
        show(1_000_000, "loss 1.2")
    assert out.getvalue() == "reading: 1,000,000/2,000,000 tokens, 100,000/s, 10 s left; loss 1.2\n"


def test_a_command_that_seldom_takes_long_shows_a_stage_once_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    with RichStatus(Console(file=out, width=200)) as shown:
        short, long = (Late(shown).stage(name, 40, "items") for name in ("short", "long"))
        short(39, "")
        now[0] = 60.0
        short(40, "")
        assert out.getvalue() == ""
        for done in range(20, 41):
            long(done, "")
            now[0] += 1.0
    assert [line.partition("/s")[0] for line in out.getvalue().splitlines()] == [
        "long: 35/40 items, 1.07",
        "long: 40/40 items, 1.05",
    ]


def test_what_the_world_broke_is_said_with_its_message(tmp_path: Path) -> None:
    out, tasks = io.StringIO(), [Task("x", seed, Split.TRAIN, "go") for seed in range(2)]

    async def work(item: Item, resets: Resets) -> Trajectory:
        fault = Broken("session_lost", f"KeyError: 'x' of {item.task.seed}")
        return broken_episode(item.task, fault, {"attempt": 0})

    with (
        RichStatus(Console(file=out, width=200), every_s=0.0) as shown,
        RunStore.open(tmp_path / "run", {}) as store,
    ):
        resources = Resources(Settings(), "none", {})
        line = StageLine(store, "eval", shown.stage("eval", 2, "episodes"), resources, None, Price())
        collect(store, "eval", attempts(tasks), inline(work), in_flight=1, on_item=line.on_item)
        (row,), _, _ = read_stages(store, [])
    assert "2 broken by the world, the last: KeyError: 'x' of 1" in out.getvalue()
    assert "broken by the world: 2 session_lost; most often: KeyError: 'x' of 0" in row.note


def test_time_before_the_work_begins_is_no_part_of_its_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    tasks = [Task("x", seed, Split.TRAIN, "go") for seed in range(4)]

    async def work(item: Item, resets: Resets) -> Trajectory:
        now[0] += 10.0
        return replace(episode(0, "p", True, 7), task=item.task)

    with (
        RichStatus(Console(file=out, width=200), every_s=0.0) as shown,
        RunStore.open(tmp_path / "run", {}) as store,
    ):
        resources = Resources(Settings(), "none", {})
        line = StageLine(store, "eval", shown.stage("eval", 4, "episodes"), resources, None, Price())
        now[0] += 500.0  # models are loaded
        do = inline(work)
        collect(store, "eval", attempts(tasks), do, in_flight=1, on_item=line.on_item, on_growth=line.on_growth)
    told = [line.partition(";")[0] for line in out.getvalue().splitlines()]
    assert told == [f"eval: {n}/4 episodes, 0.10/s, {10 * (4 - n)} s left" for n in range(1, 5)]


def test_a_stage_that_goes_on_notes_the_time_and_tokens_of_all_its_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, before = [100.0], Usage({"policy": Tally(1, 100)})  # of the stage before, by this process
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    resources: Any = SimpleNamespace(usage=before, computed=lambda: None)
    with RunStore.open(tmp_path / "run", {}) as store:
        store.set_note("eval", {"done": 3, "seconds": 5.0} | Usage({"policy": Tally(2, 30)}).to_note())
        line = StageLine(store, "eval", lambda *_: None, resources, None, Price())
        now[0] += 7.0
        resources.usage = before + Usage({"policy": Tally(4, 400)})
        line.note()
        note = store.note("eval") or {}
    assert (note["done"], note["seconds"], Usage.from_note(note).total) == (3, 12.0, Tally(6, 430))


def test_a_line_counts_successes_and_what_the_world_broke(tmp_path: Path) -> None:
    notes = list[str]()
    resources: Any = SimpleNamespace(usage=Usage(), computed=lambda: None, num_computing=lambda *_: 1)
    with RunStore.open(tmp_path / "run", {}) as store:
        show = lambda done, note, grown=0.0, /: notes.append(note)  # noqa: E731
        line = StageLine(store, "eval", show, resources, None, Price())
        for number, success in enumerate((True, False, None), start=1):
            line.on_item(number, 3, success, "no route" if success is None else "")
    assert notes[-1].startswith("1 of 3 succeeded (6 - 79 %), 1 broken by the world, the last: no route")


def test_a_search_shows_its_rollouts_before_its_first_tree_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    resources = Resources(Settings(), "none", {})
    growing: dict[int, tuple[float, int]] = {}
    with (
        RichStatus(Console(file=out, width=200), every_s=10.0) as shown,
        RunStore.open(tmp_path / "run", {}) as store,
    ):
        line = StageLine(store, "q/collect", shown.stage("q/collect", 3, "trees"), resources, None, Price())
        for n in range(1, 6):
            now[0] += 6.0
            growing[n % 2] = 0.1 * n, n
            line.on_growth(growing)
            line.on_growth(growing)  # too soon to be told
        del growing[0]
        line.on_item(1, 3, True)
        now[0] += 10.0
        line.on_growth(growing)
    told = [line.partition(", ")[2].rpartition(", ")[0] for line in out.getvalue().splitlines()]
    assert told == [
        "0.03/s, 1 min 48 s left; 3 rollouts of unfinished trees",
        "0.03/s, 1 min 19 s left; 7 rollouts of unfinished trees",
        "0.04/s, 40 s left; 1 of 1 succeeded (21 - 100 %), 5 rollouts of unfinished trees",
    ]


def test_tasks_that_take_long_to_ask_for_are_counted_and_those_with_a_record_are_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, out = [0.0], io.StringIO()
    asked: list[tuple[int, int]] = []
    made = episode(0, "p", True, 7)

    def slow(env: str, split: Split, n: int, start: int) -> list[Task]:
        now[0] += 3.0
        asked.append((start, n))
        return [Task(env, seed, split, "") for seed in envs.seeds_of(split, n, start)]

    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(envs, "tasks", slow)
    shown = RichStatus(Console(file=out, width=200), every_s=0.0)
    seeds = envs.seeds_of(Split.TRAIN, 40, 5)
    with RunStore.open(tmp_path, {}) as store:
        found = ask_for_tasks("far", Split.TRAIN, 40, 5, shown, store)
        assert [t.seed - seeds.start for t in found] == list(range(40)) and asked == [(5, 16), (21, 16), (37, 8)]
        for seed in [*seeds[:16], *seeds[17:]]:
            known = Task("far", seed, Split.TRAIN, "known")
            store.add_trajectory("eval", f"{seed}/0", replace(made, task=known))
        again = ask_for_tasks("far", Split.TRAIN, 40, 5, shown, store)
        assert asked[3:] == [(21, 1)] and [t.seed for t in again] == [t.seed for t in found]
        lines = out.getvalue().splitlines()  # after 6 s and after 9 s
        store._execute("UPDATE items SET record = ? WHERE seed = ?", (b"damaged", seeds[3]))
        assert ask_for_tasks("far", Split.TRAIN, 40, 5, shown, store)[3].instruction == "" and asked[4] == (8, 1)
        nameless = Task("far", seeds[16], Split.TRAIN, "")  # it did not start when it was asked for its instruction
        store.add_trajectory("eval", f"{seeds[16]}/0", replace(made, task=nameless))
        asked.clear()
        ask_for_tasks("far", Split.TRAIN, 40, 5, shown, store)
        assert asked == [(8, 1), (21, 1)]
        assert [t.instruction for t in again] == ["known"] * 16 + [""] + ["known"] * 23
    assert [line.partition(",")[0] for line in lines] == ["train tasks: 32/40 tasks", "train tasks: 40/40 tasks"]
    assert lines[-1].endswith("0 s left")


def test_a_terminal_shows_something_before_models_are_loaded() -> None:
    out = io.StringIO()
    with RichStatus(Console(file=out, force_terminal=True, width=150)) as shown:
        shown.begin("agentq train q: runs/q")
        assert "agentq train q: runs/q" in out.getvalue()
        shown.plan([Planned("base/eval", 4, 3.0), Planned("q/eval", 8)], in_flight=1)
        shown.progress.refresh()
        assert "all stages" in out.getvalue() and "about 6 s left" in out.getvalue()


@pytest.mark.parametrize("width", ["30", "80"])
def test_a_final_table_cuts_no_figure(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    name = "http://localhost:8000/v1#a-model-with-a-long-name"
    show_table(ladder_table([rung(3, 10, name)]))
    shown = capsys.readouterr().out
    assert name in shown and "…" not in shown and "seconds" in shown


def test_brackets_in_names_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(ladder_table([rung(3, 10, "model[v1]"), rung(3, 10, "x [/old]")]))
    shown = capsys.readouterr().out
    assert "model[v1]" in shown and "x [/old]" in shown
    for terminal in (False, True):
        out = io.StringIO()
        with RichStatus(Console(file=out, force_terminal=terminal, width=200)) as status:
            status.stage("model[v1]/eval", 1, "episodes")(1, "in [b]")
        assert "model[v1]/eval" in out.getvalue() and "in [b]" in out.getvalue()


def test_memory_is_that_of_a_python_process() -> None:
    assert 10e6 < own_memory() < 100e9
