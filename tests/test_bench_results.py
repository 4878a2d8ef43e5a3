"""Tables from outcomes per task: means and intervals by hand, pairs on common tasks, targets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import results
import results_docs
from outcomes import Outcomes, keep, read
from results_bases import gates, judges
from results_noise import noise

BASE = Outcomes(
    "ladder-reading", "shop", "base", "greedy", 0, "python x.py", "abc", {"1": 1.0, "2": 0.0, "3": 0.0, "4": 0.0}
)


def gained(row: str, seed: int, *solved: int) -> Outcomes:
    return replace(BASE, row=row, seed=seed, tasks={str(t): float(t in solved) for t in range(1, 5)})


@pytest.fixture
def kept(tmp_path: Path) -> list[Outcomes]:
    for each in (
        *(BASE, gained("base", 1, 1), gained("base", 2, 2)),
        *(gained("rft", 0, 1, 2), gained("rft", 1, 1, 2, 3), gained("rft", 2, 1, 2)),
        replace(gained("rft", 0, 1, 2, 3, 4), measured="sampled"),
    ):
        keep(each, tmp_path)
    return read(tmp_path)


def test_outcomes_that_were_the_same_before_keep_their_file(tmp_path: Path) -> None:
    path = keep(BASE, tmp_path)
    keep(replace(BASE, commit="def", command="python y.py"), tmp_path)
    assert read(tmp_path) == [BASE]
    assert keep(other := replace(BASE, commit="def", tasks={"1": 0.0}), tmp_path) == path and read(tmp_path) == [other]


def test_a_row_has_as_many_attempts_per_task_with_each_seed() -> None:
    rows = [row for table in results.tables(read(results.RESULTS)) for row in table["rows"] if "attempts" in row]
    assert len(rows) > 30 and [row["row"] for row in rows if len(set(row["attempts"])) > 1] == []
    assert replace(BASE, tasks={"1": 0.75, "2": 1.0}).attempts == 4 and BASE.attempts == 1


def test_rows_have_the_interval_over_seeds_and_pairs_those_over_seeds_and_tasks(kept: list[Outcomes]) -> None:
    greedy, sampled = results.tables(kept)
    assert [(t["table"], t["env"], t["measured"]) for t in (greedy, sampled)] == [
        ("ladder-reading", "shop", "greedy"),
        ("ladder-reading", "shop", "sampled"),
    ]
    base, rft = greedy["rows"]
    assert base["rates"] == [0.25] * 3 and "difference" not in base
    assert rft["rates"] == [0.5, 0.75, 0.5] and rft["against"] == "base"
    gap = rft["difference"]  # 0.25, 0.5 and 0.25: s = 0.1443, so 4.302653 * 0.1443 / sqrt(3) = 0.35855
    assert gap["mean"] == pytest.approx(1 / 3)
    assert (gap["low"], gap["high"]) == pytest.approx((1 / 3 - 0.35855, 1 / 3 + 0.35855), abs=1e-4)
    assert 0 <= gap["low_tasks"] < 1 / 3 < gap["high_tasks"]
    (alone,) = sampled["rows"]
    assert alone["mean"] == 1.0 and alone["low"] is None  # one seed has no interval
    assert "| rft | 3 x 4 | 58.3" in results.markdown(greedy)
    less = [replace(each, tasks={"1": 1.0}) if (each.row, each.seed) == ("rft", 1) else each for each in kept]
    assert [row["tasks"] for row in results.tables(less)[0]["rows"]] == [4, 1]


def test_a_target_is_met_only_if_the_interval_over_seeds_is_above_zero(kept: list[Outcomes]) -> None:
    name = "ladder-reading, shop: rft above base"
    found = results.targets(kept)[name]
    assert found["seeds"] == 3 and found["met"] is False and found["value"] < 0
    sure = [replace(each, tasks=gained("rft", 0, 1, 2, 3).tasks) if each.row == "rft" else each for each in kept]
    sure = [replace(each, tasks=BASE.tasks) if each.row == "base" else each for each in sure]
    assert results.targets(sure)[name]["met"] is True
    assert results.targets(kept[:1])[name]["met"] is None
    assert results.targets([*kept, gained("rft", 3, 1)])[name]["seeds"] == 3  # the base has no fourth


def test_differences_stand_beside_those_of_sampled_success(kept: list[Outcomes]) -> None:
    name = "ladder-reading, shop: rft above base"
    assert f"{name}, sampled" not in results.targets(kept)  # its base was not sampled
    assert results.pairs(results.targets(kept)).splitlines()[0].endswith("points (95 % over seeds; over tasks) |")
    goals = results.targets([*kept, replace(BASE, measured="sampled")])
    assert goals[f"{name}, sampled"]["seeds"] == 1 and goals[name]["seeds"] == 3
    head, _, row = results.pairs(goals, "ladder-reading, shop").splitlines()
    assert head.endswith("| sampled |") and "| +75.0 (one seed; " in row


def test_differences_are_over_the_tasks_that_both_rows_have(kept: list[Outcomes]) -> None:
    less = [replace(each, tasks={"1": 1.0, "9": 1.0}) if each.row == "rft" else each for each in kept]
    gap = results.tables(less)[0]["rows"][1]["difference"]
    assert gap["by_seed"] == (0.0, 0.0, 1.0)  # on task 1 alone


def test_a_page_has_the_table_that_its_comment_asks_for(kept: list[Outcomes]) -> None:
    block = "<!-- results: ladder-reading shop greedy, sampled | base; rft | seeds mean difference sampled -->"
    page = f"Before.\n\n{block}\n| typed | in |\n<!-- /results -->\n\nAfter."
    lines = results.written(page, kept).splitlines()
    assert lines[:3] == ["Before.", "", block] and lines[-3:] == ["<!-- /results -->", "", "After."]
    assert lines[4].startswith("| row | greedy by seed, 4 tasks each | mean")
    assert lines[6] == "| base | 25.0, 25.0, 25.0 | 25.0 |  |  |"
    assert lines[7].startswith("| rft | 50.0, 75.0, 50.0 | 58.3 (22.5 to 94.2) | +33.3 (-2.5 to +69.2; ")
    assert lines[7].endswith(" | 100.0 (51.0 to 100.0; one seed) |")
    assert results.written("\n".join(lines), kept).splitlines() == lines
    with pytest.raises(SystemExit, match=r"ppo must be a row of ladder-reading, shop .*; known: base; rft"):
        results.written(page.replace("base; rft", "ppo"), kept)


def test_ways_of_measuring_are_correlated_over_trained_models(kept: list[Outcomes]) -> None:
    more = [replace(gained("rft", seed, 1, *more), measured="sampled") for seed, more in ((1, []), (2, [2]))]
    block = "<!-- results: correlations ladder-reading shop greedy, sampled -->"
    trained = kept + more + [replace(BASE, measured="sampled")]
    lines = results.written(f"{block}\n<!-- /results -->", trained).splitlines()
    # greedy 50, 75, 50: ranks 0.5, 2, 0.5; sampled 100, 25, 50: ranks 2, 0, 1; -1.5 / sqrt(1.5 * 2)
    assert lines[4:-2] == ["| greedy, sampled | 3 | -0.87 |"]
    other = [replace(each, row="ei", tasks=dict.fromkeys(each.tasks, 1.0)) for each in kept + more if each.row == "rft"]
    block = "<!-- results: correlations ladder-reading shop greedy, sampled | rft; none -->"
    assert results.written(f"{block}\n<!-- /results -->", kept + more + other).splitlines()[4:-2] == lines[4:-2]


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert results._ranks([0.3, 0.9, 0.1, 0.3]) == [1.5, 3.0, 0.0, 1.5]


def test_a_row_that_is_measured_another_way_is_not_compared_with_the_first_ways_base(kept: list[Outcomes]) -> None:
    more = [replace(each, measured="oracle") for each in (BASE, replace(gained("ei", 0, 1, 2), seed=0))]
    block = "<!-- results: ladder-reading shop greedy, oracle | base; ei | seeds difference -->"
    lines = results.written(f"{block}\n<!-- /results -->", kept + more).splitlines()
    assert lines[4:-2] == ["| base | 25.0, 25.0, 25.0 |  |", "| ei, oracle | 50.0 |  |"]


def test_an_interval_of_a_mean_is_one_of_a_share_and_one_of_a_difference_is_not_cut() -> None:
    assert results_docs.between(-0.1, 1.2, "greedy") == "0.0 to 100.0"
    assert results_docs.between(-1.0, 30.0, "rollouts") == "0.00 to 30.00"
    assert results_docs.between(-0.1, 1.2, "greedy", "+") == "-10.0 to +120.0"


def test_the_noise_of_sampling_by_hand() -> None:
    """For `rft`:

    variance of an attempt   v = (1/3 + 1/4 + 0 + 1/4) / 4 = 0.208333
    deviation over seeds     s = 0.25 / sqrt(2) = 0.176777
    noise of four attempts   sqrt(v / 8) = 0.161374
    noise of one attempt     sqrt(v / 2) = 0.322749
    interval with one        sqrt(0.03125 - 0.026042 + 0.104167) / s = 1.87 times as wide
    """
    shares = {"rft": ((0.5, 0.75), (1.0, 0.75)), "ei": ((0.5, 0.75), (0.75, 0.75)), "ppo": ((0.0, 1.0), (1.0, 1.0))}
    found = [
        replace(BASE, row=row, measured="sampled", seed=seed, tasks=dict(zip("12", tasks, strict=True)))
        for row, seeds in shares.items()
        for seed, tasks in enumerate(seeds)
    ]
    lines = noise(found, "ladder-reading shop").splitlines()
    assert lines[2] == "| rft | 2 | 17.7 | 16.1 | 32.3 | 1.87 |"
    assert lines[3] == "| ei | 2 | 8.8 | 18.4 | 36.8 | not known: the deviation is smaller than the noise |"
    assert len(lines) == 4  # ppo was sampled once per task


def test_a_column_can_show_another_way_of_measuring(kept: list[Outcomes]) -> None:
    more = [replace(gained("rft", seed, *won), measured="repeats") for seed, won in ((0, [1]), (1, [1, 2, 3]), (2, []))]
    block = "<!-- results: ladder-reading shop greedy | base; rft | repeats resampled -->"
    lines = results.written(f"{block}\n<!-- /results -->", kept + more).splitlines()
    assert lines[4:-2] == ["| base |  |  |", "| rft | 25.0, 75.0, 0.0 |  |"]


def test_scenarios_count_where_all_variants_are_solved() -> None:
    tasks = dict.fromkeys(map(str, range(2_000_000_000, 2_000_000_006)), 1.0) | {"2000000004": 0.5}
    assert results.scenarios(replace(BASE, env="apps/1", tasks=tasks)) == pytest.approx(
        {"successes": 1, "n": 2, "low": 0.0945, "high": 0.9055}, abs=1e-4
    )


@pytest.mark.parametrize("page", results.PAGES, ids=lambda page: page.name)
def test_the_tables_of_the_pages_are_made_from_the_outcomes(page: Path) -> None:
    assert results.written(page.read_text(), read()) == page.read_text(), "python benchmarks/results.py --docs"


def test_gates_of_bases_stand_under_their_aims_with_the_number_of_questions(tmp_path: Path) -> None:
    def line(part: str, **figures: tuple[float, int, bool]) -> str:
        told = {key: {"share": share, "n": n} for key, (share, n, _) in figures.items()}
        aims = {f"{part}: {key}": {"target": 0.8, "met": met} for key, (_, _, met) in figures.items()}
        return json.dumps({"figures": {part: told}, "targets": aims})

    (tmp_path / "gates-a.jsonl").write_text("\n".join([line("copy", plain=(1.0, 60, True), form=(0.5, 60, False))] * 2))
    parts = [line("copy", plain=(0.95, 60, True)), line("critic", shop=(0.775, 40, False))]
    (tmp_path / "gates-b.jsonl").write_text("\n".join(parts))
    page = "<!-- results: gates 1 M = a 2;\n2 M = b 1 2 -->\n<!-- /results -->"
    made = results_docs.fill(page, [], gates=lambda bases: gates(bases, tmp_path))
    assert made.splitlines()[3:-2] == [
        "| base | plain | form | critic, `shop` | gates met |",
        "| --- | --- | --- | --- | --- |",
        "| aim | 80 | 80 | 80 |  |",
        "| n | 60 | 60 | 40 |  |",
        "| 1 M | 100.0 | 50.0 |  | 1 of 2 |",
        "| 2 M | 95.0 |  | 77.5 | 1 of 2 |",
    ]
    assert "77.5 (40) |" in gates("1 M = b 2; 2 M = c 1", _with(tmp_path, "c", line("critic", shop=(1.0, 9, True))))


def _with(folder: Path, name: str, log: str) -> Path:
    (folder / f"gates-{name}.jsonl").write_text(log)
    return folder


def test_judges_stand_site_by_site_above_the_rule(tmp_path: Path) -> None:
    def found(*counts: int) -> dict[str, Any]:
        keys = ("agreement", "false_positives", "false_negatives")
        of = (10, 4, 6)
        shares = [{"count": c, "n": n, "share": c / n, "interval": [0.0, 1.0]} for c, n in zip(counts, of, strict=True)]
        return dict(zip(keys, shares, strict=True))

    def line(judge: str, *counts: int) -> str:
        figures = {"episodes": 10, "successes": 6, "model": found(*counts), "numbers": found(5, 4, 1)}
        return json.dumps({"judge": f"benchmarks/{judge}", "figures": {"shop": figures}})

    (tmp_path / "judge.jsonl").write_text("\n".join([line("a", 1, 1, 1), line("b", 9, 0, 1), line("a", 8, 2, 0)]))
    _, _, a, b, rule = judges("a; b", tmp_path).splitlines()
    assert (
        a == "| shop, `a` | 10, 6 | 80.0 % (0.0 - 100.0) | 2 of 4, 50.0 % (0.0 - 100.0) | 0 of 6, 0.0 % (0.0 - 100.0) |"
    )
    assert b.startswith("| shop, `b` | 10, 6 | 90.0 %") and rule.startswith("| shop, rule | 10, 6 | 50.0 %")
