"""The report: one file that needs nothing else, with the run's own figures in it."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from lxml import etree, html

from agentq import status
from agentq.cli import main
from agentq.errors import StoreError
from agentq.evaluation.outcomes import best_end, of_tree
from agentq.evaluation.stats import RungResult
from agentq.progress import first_prompts, ladder_table
from agentq.report import write_report
from agentq.report.charts import finite_points, histogram, line_plot, success_bars
from agentq.report.examples import Examples, explain
from agentq.report.page import duration
from agentq.store import RunStore
from agentq.store.records import TERMINAL, decode_tree
from agentq.types import Trajectory
from tests.records_factory import make_tree

USED = {"requests": 2, "prompt_tokens": 7, "cached_tokens": 3, "generated_tokens": 5, "queue_s": 0.5}
ENGINE = {"seconds": 61.0, "faults": {"HTTP 500": 1, "HTTP 429": 2}, "pause_s": 2.5}
CONFIG = {"run": {"env": "booking", "seed": 7}, "search": {"c_exp": 1.0}}


def rung(name: str, successes: int, n: int = 50) -> RungResult:
    won = [i < successes for i in range(n)]
    cost = {"env_steps": 12345, "prompt_tokens": 7, "generated_tokens": 3, "seconds": 250.0}
    return RungResult.from_outcomes(name, won, [float(w) for w in won], [4] * n, **cost)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    failed = make_tree(2, num_nodes=12)
    failed.success[:] = False
    failed.task = type(failed.task)("booking", 2, failed.task.split, "<b>Book</b> & go")
    with RunStore.open(path, CONFIG) as store:
        store.add_tree("agent_q/collect", make_tree(1, num_nodes=12))
        store.add_tree("agent_q/collect", failed)
        store.set_note(
            "agent_q/collect", {"seconds": 250.0, "done": 2, "total": 3, "usage": {"critic": USED}, "engine": ENGINE}
        )
        store.set_note("agent_q/train", {"finished": True})
        for step in range(30):
            store.log("agent_q/train", step, loss=0.7 - step / 100, **{"rewards/accuracies": 0.5})
    rows = [rung("base", 12).to_dict(), rung("agent_q", 48).to_dict()]
    (path / "summary.json").write_text(json.dumps(rows))
    return path


def cells(page: html.HtmlElement, heading: str) -> list[list[str]]:
    """The rows of the first table after a heading."""
    table = page.xpath(f"//h2[. = '{heading}']/following::table[1]")[0]
    return [[" ".join(c.text_content().split()) for c in row.xpath("td")] for row in table.xpath(".//tbody/tr")]


def test_report_shows_success_by_environment_where_there_are_several(run: Path) -> None:
    rows = [rung("base", 12).to_dict(), rung("agent_q", 48).to_dict()]
    rows[1]["by_env"] = {"miniwob/a": {"successes": 3, "n": 4, "low": 0.301, "high": 0.954}}
    assert "Environments" not in write_report(run).read_text()
    (run / "summary.json").write_text(json.dumps(rows))
    page = html.fromstring(write_report(run).read_text(encoding="utf-8"))
    assert cells(page, "Environments") == [["miniwob/a", "", "", "3 / 4", "30 to 95 %"]]


def test_report_shows_the_ladder_the_stages_and_the_curves(run: Path) -> None:
    out = write_report(run)
    assert out == run / "report.html"
    page = html.fromstring(out.read_text(encoding="utf-8"))
    rows = cells(page, "Results")
    assert rows[0][:4] == ["base", "24.0 %", "12 / 50", "14.3 to 37.4 %"]
    assert rows[1][:3] == ["agent_q", "96.0 %", "48 / 50"]
    assert rows[1][6:9] == ["12.3 k", "7", "3"]
    assert rows[1][9] == "4 min 10 s"
    used = "critic: 2 requests, 7 prompt tokens (43% cached), 5 generated, queued 250 ms each; engine busy 1 min 01 s"
    used += "; 3 failed attempts (2 HTTP 429, 1 HTTP 500), 2.5 s of pauses"
    note = f"2 of 3; {used}; restored pages: 2 approximate, 2 exact, 2 failed"
    assert cells(page, "Stages") == [["agent_q/collect", "2", "", "4 min 10 s", note]]
    labels = page.xpath("//*[local-name() = 'svg']/@aria-label")
    assert labels == [
        "success rate of each rung with its 95 % interval",
        "how many prompts of agent_q/collect have how many tokens",
        "loss over steps",
        "rewards/accuracies over steps",
    ]


def test_report_shows_a_found_success_and_a_failure_with_their_siblings(run: Path) -> None:
    page = html.fromstring(write_report(run).read_text(encoding="utf-8"))
    headings = [" ".join(h.text_content().split()) for h in page.xpath("//h3")]
    assert headings[-2:] == ["A found success", "A search without success"]
    tree = make_tree(1, num_nodes=12)
    first = page.xpath("//ol[@class = 'path']")[0].xpath("./li")
    assert len(first) == len(tree.path(11)) - 1
    rows = [[c.text_content().strip() for c in row.xpath("td")] for row in first[-1].xpath(".//tbody/tr")]
    for row, node in zip(rows, tree.children(tree.parent[11]).tolist(), strict=True):
        n = int(tree.visit_count[node])
        mean = f"{tree.mean_value[node]:.2f}" if n else ""
        assert row[0].startswith(f"CLICK [{node}]")
        assert row[1:] == [str(n), mean, f"{tree.critic_value[node]:.2f}"]
    taken = [row.xpath("td")[0].text_content().split()[1] for row in page.xpath("//ol[1]//tr[@class = 'taken']")]
    assert taken[: len(first)] == [f"[{node}]" for node in tree.path(11)[1:]]


def test_report_shows_what_the_world_broke(run: Path) -> None:
    assert "broken" not in write_report(run).read_text()
    won = [i < 30 for i in range(50)]
    cost = {"env_steps": 1, "prompt_tokens": 1, "generated_tokens": 1, "seconds": 1.0}
    row = RungResult.from_outcomes(
        "agent_q",
        won,
        [float(w) for w in won],
        [4] * 50,
        [],
        [i >= 40 for i in range(50)],
        **cost,  # type: ignore[arg-type]
    )
    (run / "summary.json").write_text(json.dumps([rung("base", 12).to_dict(), row.to_dict()]))
    tree = make_tree(7, num_nodes=12)
    tree.error_kind[11], tree.info["faults"] = "session_lost", {"session_lost": 2, "network": 1}
    lost = Trajectory(tree.task, (), 0.0, False, {"attempt": 0, "error_kind": "reset_failed"})
    with RunStore.open(run, CONFIG) as store:
        store.add_tree("late", tree)
        store.add_trajectory("late", "7/0", lost)
    page = html.fromstring(write_report(run).read_text(encoding="utf-8"))
    rows = cells(page, "Results")
    assert rows[0][4:6] == ["", ""] and rows[1][1:6] == [
        "60.0 %",
        "30 / 50",
        "46.2 to 72.4 %",
        "10",
        "75.0 % (59.8 to 85.8 %)",
    ]
    assert cells(page, "Stages")[-1][4].startswith("broken by the world: 2 session_lost, 1 network, 1 reset_failed")
    moments = explain("late", tree).moments
    assert moments[-1].choices[-1].error_kind == "session_lost, cancelled"


def test_report_needs_no_network_and_no_script_and_escapes_what_pages_say(run: Path) -> None:
    text = write_report(run).read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|src=|url\(|@import|https?://(?!www\.w3\.org)", text)
    assert "&lt;b&gt;Book&lt;/b&gt; &amp; go" in text
    assert "<b>Book" not in text


def test_report_of_a_run_that_has_just_begun(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG):
        text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "No agent has been evaluated yet." in text
    assert "Nothing has been collected yet." in text
    assert "Examples" not in text and "Training" not in text
    assert f"agentq {version('agentq-search')} on booking, seed 7" in text


def test_a_damaged_tree_is_left_out_of_the_report_and_said_in_a_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE items SET record = substr(record, 1, 50) WHERE key = '1'")
    assert main(["report", str(run)]) == 0
    line = (
        f"left out: {run / 'run.sqlite'} is damaged (tree 1 of agent_q/collect: Error -5 while "
        f"decompressing data: incomplete or truncated stream): agentq check {run} says what can be saved"
    )
    assert capsys.readouterr().err == f"{line}\n"
    page = html.fromstring((run / "report.html").read_text(encoding="utf-8"))
    assert page.xpath("//h2[. = 'Stages']/following::p[1]")[0].text_content() == line
    assert [row[0] for row in cells(page, "Stages")] == ["agent_q/collect"] and len(page.xpath("//ol")) == 1


def test_a_damaged_note_metric_or_environment_is_left_out_of_the_report(run: Path) -> None:
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE stages SET note = '{' WHERE name = 'agent_q/collect'")
    (run / "env.json").write_text("[]")
    metrics = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("{\n" + metrics)
    page = html.fromstring(write_report(run).read_text(encoding="utf-8"))
    line = page.xpath("//h2[. = 'Stages']/following::p[1]")[0].text_content()
    assert line.startswith("3 damaged parts are left out; the first: the note of agent_q/collect: ")
    assert cells(page, "Stages")[0][:3] == ["agent_q/collect", "2", ""] and page.xpath("//ol")
    assert "rewards/accuracies" in page.text_content()  # of the lines that are whole


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ('{"rungs": []}', "summary.json must be a list of rungs; got dict"),
        ('[{"name": "base"}]', r"summary.json: a rung must have 'successes'; got \['name'\]"),
        ("[", r"summary.json is damaged: it must be JSON"),
        (
            json.dumps([rung("x", 3).to_dict() | {"n": "many"}]),
            "summary.json: a rung's n must be a valid integer.*; got 'many'",
        ),
        (json.dumps([rung("x", 3).to_dict() | {"stops": [1]}]), "a rung's stops must be a valid dictionary; got"),
    ],
)
def test_report_refuses_a_wrong_summary(run: Path, summary: str, message: str) -> None:
    (run / "summary.json").write_text(summary)
    with pytest.raises(StoreError, match=message):
        write_report(run)


def test_success_bars_are_as_long_as_the_rates() -> None:
    svg = etree.fromstring(str(success_bars([rung("<a>", 50), rung("b", 25), rung("c", 0)])))
    widths = [float(bar.get("width")) for bar in svg.iter("rect")]
    assert widths == [480.0, 240.0, 0.0]
    assert [text.text for text in svg.iter("text") if text.get("text-anchor") == "end"] == ["<a>", "b", "c"]


def test_the_longest_figures_beside_a_bar_have_room() -> None:
    svg = etree.fromstring(str(success_bars([rung("all", 100)])))
    *_, figures = svg.iter("text")
    assert figures.text == "100.0 %  [92.9, 100.0]"
    # in DejaVu Sans at 11.5 px a digit is 7.3 px wide, a stop 3.7
    assert float(svg.get("width")) - float(figures.get("x")) >= 7 * len(figures.text)


def test_a_long_name_beside_a_bar_keeps_both_ends_and_is_whole_in_its_tooltip() -> None:
    name = "http://localhost:8000/v1#<Qwen>/Qwen3-8B"
    svg = etree.fromstring(str(success_bars([rung(name, 50)])))
    label = next(text for text in svg.iter("text") if text.get("text-anchor") == "end")
    assert [title.text for title in label] == [name] and label[0].tail == "http://loc…/Qwen3-8B"


def test_a_report_that_takes_long_shows_how_far_it_is(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run)]) == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(status, "SILENT_S", 0.0)
    assert main(["report", str(run)]) == 0
    assert re.fullmatch(r"report: 2/2 items, .*, 0 s left\n", capsys.readouterr().err)


def test_histogram_counts_every_length_once_and_tells_the_quantiles() -> None:
    svg = etree.fromstring(str(histogram("<a>", [100] * 19 + [300], bins=4)))
    bars = list(svg.iter("rect"))
    assert [bar.find("title").text for bar in bars] == [
        "100 to 150: 19",
        "151 to 201: 0",
        "202 to 252: 0",
        "253 to 303: 1",
    ]
    tall, *_, low = (float(bar.get("height")) for bar in bars)
    assert tall / low == pytest.approx(19, abs=0.5) and [text.text for text in svg.iter("text")] == [
        "<a>",
        "n 20, half up to 100, 95 % up to 100",
        "100",
        "300",
    ]
    assert len(list(etree.fromstring(str(histogram("one", [7, 7]))).iter("rect"))) == 1


def test_report_shows_prompts_by_the_tokens_that_siblings_share_and_those_that_were_shortened(
    run: Path,
) -> None:
    with RunStore.open(run, CONFIG) as store:
        note = store.note("agent_q/collect") or {}
        note["usage"] = {"critic": USED | {"shortened": 2}}
        store.set_note("agent_q/collect", note)
    page = write_report(run).read_text(encoding="utf-8")
    assert "n 8, half up to 40, 95 % up to 40" in page  # 4 nodes of each tree have children
    assert "queued 250 ms each, 2 prompts shortened (no room in the context)" in page


def test_first_prompts_are_told_once_or_as_different(run: Path) -> None:
    rows = [replace(rung("base", 12), prompt="0a"), replace(rung("sft", 12), prompt="0a"), rung("text", 3)]
    assert first_prompts(rows) == ["first prompt 0a"] and first_prompts(rows[2:]) == []
    (run / "summary.json").write_text(json.dumps([row.to_dict() for row in rows]))
    assert "first prompt 0a: a hash of its tokens" in write_report(run).read_text(encoding="utf-8")
    rows[1] = replace(rows[1], prompt="0b")
    assert first_prompts(rows) == ["first prompts differ: base 0a, sft 0b"]
    assert str(ladder_table(rows).caption) == "first prompts differ: base 0a, sft 0b"


def test_line_plot_goes_from_corner_to_corner() -> None:
    svg = etree.fromstring(str(line_plot("loss", [(0, 1.0), (5, 0.5), (10, 0.0)])))
    (points,) = [line.get("points") for line in svg.iter("polyline")]
    (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in p.split(",")] for p in points.split())
    assert (x1 - x0, y1 - y0) == pytest.approx((x2 - x1, y2 - y1), abs=0.11)  # straight; coordinates have one decimal
    assert x0 == 48.0 and y0 == 28.0 and y2 > y0  # SVG's y grows downwards
    assert "circle" in line_plot("loss", [(3, 2.0)])
    ticks = [text.text for text in etree.fromstring(str(line_plot("kl", [(0, 2.1e-7), (9, 6.03e-3)]))).iter("text")]
    assert ticks == ["kl", "0.006", "2e-7", "0", "step 9"]


def test_finite_points_skip_gaps_sort_and_average_long_series() -> None:
    rows: list[dict[str, object]] = [{"step": 2, "x": 4.0}, {"step": 1, "x": None}, {"step": 0, "x": 1}, {"step": 3}]
    assert finite_points(rows, "x") == [(0, 1), (2, 4)]
    long: list[dict[str, object]] = [{"step": i, "x": float(i)} for i in range(1000)]
    points = finite_points(long, "x", at_most=10)
    assert len(points) == 10
    assert points[0] == (49.5, 49.5)


def test_best_end_is_a_success_then_the_highest_return_then_the_most_visited_path() -> None:
    tree = make_tree(0, num_nodes=13)
    tree.success[:], tree.flags[:], tree.reward[:] = False, 0, 0.0
    tree.visit_count[:] = np.array([9, 4, 5, 0, 4, 0, 0, 2, 3, 0, 0, 0, 0])
    assert tree.path(best_end(tree)) == [0, 2, 8]
    assert of_tree(tree) == (False, 0.0, 0, tree.task.env, False, "")
    assert [m.url for m in explain("s", tree).moments] == ["/0", "/2" if tree.observation[2] else ""]
    tree.visit_count[[1, 7]] = [5, 3]  # ties go to the better rank
    assert tree.path(best_end(tree))[1] == 1
    tree.flags[[3, 8, 12]] = TERMINAL
    tree.reward[[8, 12]] = [0.5, 1.5]
    assert best_end(tree) == 12  # failed, with the highest return
    assert of_tree(tree) == (False, 1.5, int(tree.depth[12]), tree.task.env, False, "")
    tree.success[[3, 8]] = True
    assert best_end(tree) == 8 and of_tree(tree)[:2] == (True, 0.5)
    tree.reward[3] = 0.5
    assert best_end(tree) == min(3, 8, key=lambda node: int(tree.depth[node]))


def test_examples_are_the_first_of_each_kind() -> None:
    wins = [make_tree(seed) for seed in (4, 5)]
    loss = make_tree(6)
    loss.success[:] = False
    examples = Examples()
    assert examples.picked() == []
    for stage, tree in (("a", wins[0]), ("a", wins[1])):
        examples.see(stage, tree)
    assert [e.succeeded for e in examples.picked()] == [True]
    for stage, tree in (("b", loss), ("b", wins[1])):
        examples.see(stage, tree)
    assert [(e.stage, e.seed, e.succeeded) for e in examples.picked()] == [("a", 4, True), ("b", 6, False)]


def test_report_reads_each_tree_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(
        "agentq.store.stages.decode_tree", lambda *args, **only: read.append(1) or decode_tree(*args, **only)
    )
    write_report(run)
    assert len(read) == 2


def test_duration_reads_well() -> None:
    assert [duration(s) for s in (None, 0, 59.94, 60, 250, 3600, 11111)] == [
        "",
        "0.0 s",
        "59.9 s",
        "1 min 00 s",
        "4 min 10 s",
        "1 h 00 min",
        "3 h 05 min",
    ]


def test_report_shows_what_lies_behind_each_rate(run: Path) -> None:
    assert "Behind the rates" not in write_report(run).read_text()
    gain = {"diff": 0.72, "low": 0.5512, "high": 0.8, "p_value": 0.0}
    base = replace(rung("base", 12), stops={"out of steps": 3, "ended by the agent": 35}, errors={"wrong_role": 7})
    rows = [base, replace(rung("agent_q", 48), stops={"loop": 2}, against_base=gain)]
    (run / "summary.json").write_text(json.dumps([row.to_dict() for row in rows]))
    page = html.fromstring(write_report(run).read_text(encoding="utf-8"))
    assert cells(page, "Behind the rates") == [
        ["base", "", "35 ended by the agent, 3 out of steps", "7 wrong_role"],
        ["agent_q", "+72.0 (+55.1 to +80.0)", "2 loop", ""],
    ]
    assert ladder_table(rows).caption == (
        "base: not solved: 35 ended by the agent, 3 out of steps\nbase: errors of steps: 7 wrong_role\n"
        "agent_q: +72.0 points over the base (+55.1 to +80.0)\nagent_q: not solved: 2 loop"
    )
    odd = replace(rung("base", 12), mean_return=-3.5)
    assert "base: the mean return is -3.5; search and training expect" in str(ladder_table([odd]).caption)
    paid = replace(rung("base", 12), mean_return=0.5625)
    assert str(ladder_table([paid]).caption) == "base: mean return 0.562"
    unlike = replace(rung("base", 12), n=6, errors={"replay_mismatch": 4})
    assert "base: 4 times search could not go back to a page; agentq env check names" in str(
        ladder_table([unlike]).caption
    )
