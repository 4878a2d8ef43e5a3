"""Stages that follow one another train on different tasks: in the ladder and in every benchmark with several stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import methods
import methods_rows
import miniwob_loop
import pytest
import rates

from agentq.policies.engine_names import embedded_base
from agentq.recipes.ladder import DEMO_RUNGS, RUNGS, Rung, settings_of
from agentq.recipes.settings import COMMANDS, RECIPES, Demo, Ladder
from tests.reads import made


def first_and_last(recipe: str, words: Sequence[str]) -> tuple[int, int]:
    """The first training task of a run, and the one behind the last of its first round."""
    run = made(RECIPES[recipe], words).run
    return run.first_task, run.first_task + run.num_tasks


@pytest.mark.parametrize(
    ("row", "table"), [(r, t.rows) for t in methods_rows.TABLES.values() for r in t.rows if r.start]
)
def test_rows_of_methods_begin_behind_the_tasks_of_the_row_they_start_from(
    row: methods_rows.Row, table: list[methods_rows.Row]
) -> None:
    start = next(r for r in table if r.name == row.start)
    assert row.recipe is not None and start.recipe is not None
    assert "--run.num_rounds=1" in start.words  # so that its first round is all of it
    assert first_and_last(row.recipe, row.words)[0] >= first_and_last(start.recipe, start.words)[1]


@pytest.mark.parametrize("shown", [miniwob_loop.SHOWN, 10])
def test_the_search_of_miniwob_begins_behind_its_demonstrations(shown: int) -> None:
    (_, sft), (_, search) = miniwob_loop.runs_of(shown).items()
    assert first_and_last("agent_q", search)[0] >= first_and_last("sft", sft)[1]


@pytest.mark.parametrize(("rungs", "name"), [(RUNGS, "ladder"), (DEMO_RUNGS, "demo")])
def test_rungs_begin_behind_the_tasks_of_the_rung_they_start_from(rungs: Sequence[Rung], name: str) -> None:
    shared = made(COMMANDS[name], ["--run.first_task=7"])
    assert isinstance(shared, Demo | Ladder)
    runs = {rung.name: settings_of(rung.recipe, shared, rung.overrides(shared)).run for rung in rungs if rung.recipe}
    for rung in rungs:
        if rung.recipe and rung.start in runs:
            start = runs[rung.start]
            assert start.num_rounds == 1
            assert runs[rung.name].first_task >= start.first_task + start.num_tasks


def test_every_recipe_is_of_one_family_whose_rate_is_chosen_on_validation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    members = [recipe for family in methods_rows.FAMILIES.values() for recipe in family]
    assert sorted(members) == sorted(RECIPES)
    stand = {f: rates.represented(f, methods_rows.TABLES["all"]) for f in methods_rows.FAMILIES}
    assert [family for family, row in stand.items() if row is None] == ["inspections"]  # it begins with SFT's model
    assert all(not row or row.recipe == methods_rows.FAMILIES[family][0] for family, row in stand.items())
    assert rates.chosen({"0.0001": [0.4, 0.6], "3e-05": [0.5, 0.5], "0.0003": [0.9, 0.0]}) == 3e-5  # a tie
    assert rates.chosen({"0.0001": [0.4, 0.7], "3e-05": [0.5, 0.5]}) == 1e-4
    monkeypatch.setattr(methods, "RATES", tmp_path / "rates.json")
    own = methods.Place(tmp_path, methods_rows.TABLES["loop"], embedded_base()).title
    assert own == "booking" and methods.rate(own, "ppo") == ()
    (tmp_path / "rates.json").write_text('{"booking": {"clipped": {"learning_rate": 3e-05}}}')
    assert methods.rate(own, "ppo") == ("--train.learning_rate=3e-05",) and methods.rate(own, "rft") == ()
    other = methods.Place(tmp_path, methods_rows.TABLES["loop"], Path("models/other")).title
    assert methods.rate(other, "ppo") == ()  # each base has its own


def test_a_rate_is_measured_on_validation_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(rates, "agentq", lambda path, *words: told.append(words))
    place = methods.Place(tmp_path, methods_rows.TABLES["all"], embedded_base())
    row = rates.represented("strict", place.table)
    assert row is not None and rates.measured(place, row, "strict", 3e-5, 1, 50) is None  # it made nothing
    (words,) = told
    settings = made(RECIPES["rloo"], [word for word in words[2:] if "." in word and word != "--json"])
    assert words[:2] == ("train", "rloo") and settings.eval.split == "validation" and settings.eval.temperature == 1
    assert settings.train.learning_rate == 3e-5 and settings.train.batch_size == 16  # of the row's own words
