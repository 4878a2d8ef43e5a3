"""Two models in the same tasks: the paired difference, what one leaves out, and `agentq compare`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import deeds
import pytest

from agentq.cli import main
from agentq.errors import ConfigError
from agentq.evaluation.comparison import LeftOut, compare, compare_seeds, deed
from agentq.evaluation.outcomes import of_tree
from agentq.evaluation.seeds import seed_difference
from agentq.evaluation.stats import RungResult, paired_difference
from agentq.report import write_report
from agentq.report.compare import read_measured, within
from agentq.results import Evaluation
from agentq.store.files import write_json
from agentq.store.run import RunStore
from agentq.types import Command, EnvAction, Observation, Step, StepResult, Trajectory
from agentq.verbs import Verb
from tests.records_factory import make_proposal, make_task, make_tree
from tests.view_factory import lost

FORM = Observation("text pick a table [2]\ncombobox Party [2]: 4\ncombobox Time [3]: 7:30 PM\nbutton Find [4]")
PARTY, OTHER_PARTY = EnvAction(Command.SELECT, 2, "3"), EnvAction(Command.SELECT, 2, "5")
DOWN = EnvAction(Command.SCROLL, None, "DOWN")
TIME, FIND = EnvAction(Command.SELECT, 3, "8:00 PM"), EnvAction(Command.CLICK, 4)


def step(action: EnvAction | None, page: Observation = FORM) -> Step:
    return Step(page, make_proposal(1, env_action=action), StepResult(page))


def episode(seed: int, success: bool, *actions: EnvAction | None, env: str = "booking") -> Trajectory:
    return Trajectory(make_task(seed, env), tuple(map(step, actions)), float(success), success)


def test_a_step_is_named_by_its_element_as_the_page_shows_it() -> None:
    page = Observation("- combobox Party [3]: 2\nrow Ann | 5 | link Mail [4] | button Remove [5]\nlink [6] Blue Harbor")

    def named(element: int) -> str:
        return deed(step(EnvAction(Command.CLICK, element), page)).what

    assert [named(n) for n in (3, 4, 5, 6, 7)] == [
        "CLICK combobox Party",
        "CLICK link Mail",
        "CLICK button Remove",
        "CLICK link",
        "CLICK",
    ]
    # not the text that has [2] in it, too
    assert deed(step(PARTY)) == ("SELECT combobox Party", "3", "SELECT combobox, the same one")
    assert deed(step(DOWN)) == ("SCROLL", "DOWN", "")
    assert deed(step(EnvAction(Verb("SAY"), None, "take the\nlamp"))) == ("take the lamp", "", "")
    assert deed(step(None)) == ("", "", "")


def test_what_is_left_out_is_counted_where_one_fails_and_where_both_succeed() -> None:
    first = [
        *(episode(seed, False, TIME, FIND) for seed in (0, 1, 2)),  # without the party
        episode(3, False, OTHER_PARTY, TIME, FIND),
        episode(4, False, OTHER_PARTY, TIME, FIND),
        episode(5, True, TIME, FIND),
        episode(6, True, PARTY, FIND),
        episode(7, True, PARTY, TIME, FIND),
        episode(8, False, FIND),
    ]
    second = [
        *(episode(seed, True, PARTY, TIME, DOWN, FIND, None) for seed in range(5)),
        *(episode(seed, True, PARTY, TIME, DOWN, FIND) for seed in (5, 6)),
        episode(7, False, PARTY, FIND, None),
        episode(8, False, PARTY, FIND),
        episode(9, True, FIND),  # the first did not try it
    ]
    found = compare(first, second)
    assert (found.n, found.both, found.only_first, found.only_second) == (9, 2, 1, 5)
    before = [False] * 5 + [True] * 3 + [False]
    assert found.difference == paired_difference([True] * 7 + [False] * 2, before)
    # party: 3 of 5 against 1 of 2; its text: 2 of 5 against none; scrolling: as often where both succeed, so not told
    assert found.first_leaves_out == (
        LeftOut("SELECT combobox Party, the same text", 2, 0),
        LeftOut("SELECT combobox Party", 3, 1),
    )
    assert found.second_leaves_out == () and found.by_env == {}  # one task alone may be chance
    assert str(found) == (
        "second - first: +44.4 points (-4.7 to +73.3), p 0.22; of 9 tasks both solve 2\n\n"
        "5 tasks only the second solves; there the first leaves out\n"
        "     2 of 5  SELECT combobox Party, the same text  (0 of 2)\n"
        "     3 of 5  SELECT combobox Party  (1 of 2)\n\n"
        "1 task only the first solves\n\n"
        "In brackets: in how many of the tasks that both solve."
    )
    turned = compare(second, first)
    assert turned.second_leaves_out == found.first_leaves_out and turned.difference.diff == -found.difference.diff


def test_what_is_rare_or_follows_from_another_is_not_told() -> None:
    won = [episode(seed, True, TIME, PARTY, FIND) for seed in range(30)]
    failed = [episode(seed, False, *([FIND] if seed < 28 else [TIME, PARTY])) for seed in range(30)]
    names = [each.what for each in compare(failed, won).first_leaves_out]
    assert names == ["SELECT combobox Time"]  # the party in the same 28; the button in 2 of 30
    failed[:8] = [episode(seed, False, TIME, FIND) for seed in range(8)]
    names = [each.what for each in compare(failed, won).first_leaves_out]
    assert names == ["SELECT combobox Party", "SELECT combobox Time"]  # 28 and 20: not nearly the same


def test_names_that_differ_from_task_to_task_are_told_as_one() -> None:
    page = Observation("\n".join(f"link At {n} [{n}]" for n in range(1, 9)))

    def clicks(seed: int, success: bool, element: int) -> Trajectory:
        link = step(EnvAction(Command.CLICK, element), page)
        return Trajectory(make_task(seed), (link,), float(success), success)

    won = [clicks(seed, True, 1 + seed // 2) for seed in range(12)]
    found = compare([clicks(seed, seed > 9, 7 if seed < 10 else 6) for seed in range(12)], won)
    assert found.first_leaves_out == (LeftOut("CLICK link, the same one", 10, 0),)
    won = [clicks(seed, True, 1 + seed // 6) for seed in range(12)]
    found = compare([clicks(seed, False, 7) for seed in range(12)], won)
    assert [each.what for each in found.first_leaves_out] == ["CLICK link At 1", "CLICK link At 2"]


def test_what_is_done_first_goes_before_what_follows_from_it() -> None:
    page = Observation(FORM.text + "".join(f"\nlink At {n} [{5 + n}]" for n in range(7)))

    def acts(seed: int, success: bool, *actions: EnvAction) -> Trajectory:
        return Trajectory(make_task(seed), tuple(step(each, page) for each in actions), float(success), success)

    def link(n: int) -> EnvAction:
        return EnvAction(Command.CLICK, 5 + n)

    # without the time the agent comes to another link; once it took another one before, too
    won = [acts(seed, True, link(seed % 2), TIME, link(2 + seed % 4)) for seed in range(10)]
    failed = [acts(seed, False, link(6 if seed == 0 else seed % 2), link(6)) for seed in range(8)]
    failed += [acts(8, True, link(0), TIME, link(2)), acts(9, True, link(1), link(3))]
    assert compare(failed, won).first_leaves_out == (LeftOut("SELECT combobox Time", 8, 1),)


def test_tasks_that_the_world_broke_and_other_environments_stand_apart() -> None:
    whole = [episode(0, True, PARTY), episode(1, False), episode(2, True, PARTY, env="shop")]
    found = compare([lost(0), episode(1, True, FIND), episode(2, False, env="shop")], whole)
    assert (found.n, found.only_first, found.only_second) == (2, 1, 1)
    assert found.by_env == {"shop": 1, "booking": -1}
    assert "tasks won and lost by environment: +1 shop, -1 booking" in str(found)
    assert compare(whole, [lost(0), episode(1, True), episode(2, False, env="shop")]).n == 2
    with pytest.raises(ConfigError, match="episodes of the same tasks; got 1 and 1"):
        compare([episode(0, True)], [episode(1, True)])
    with pytest.raises(ConfigError, match="several of booking, 0"):
        compare([episode(0, True)] * 2, [episode(0, True)])


def test_evaluations_are_compared_too() -> None:
    before, after = (Evaluation((episode(0, won, FIND),)) for won in (False, True))
    assert before.compare(after) == compare(before.episodes, after.episodes)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """`trained` measured its base and a model; `searched` measured a search, and collected two episodes of a task."""
    tree = make_tree(2)
    with RunStore.open(tmp_path / "trained", {}) as store:
        for stage, won in {"base/eval": False, "rft/eval": True}.items():
            for seed in range(3):
                actions = (PARTY, FIND) if won else (FIND,)
                store.add_trajectory(stage, f"{seed}/0", episode(seed, won and seed < 2, *actions))
    with RunStore.open(tmp_path / "searched", {}) as store:
        for n in range(2):
            store.add_trajectory("rft/round1/collect", f"0/{n}", episode(0, True, FIND))
        tree.info["checked"] = {"success": False, "return": 0.0, "steps": 2, "broken": False}
        store.add_tree("eval", tree)
        broken = make_tree(1)
        broken.visit_count[0], broken.info["faults"] = 0, {"network": 2}
        store.add_tree("eval", broken)
    assert not of_tree(tree).success and tree.success.any()
    RunStore.open(tmp_path / "begun", {}).close()
    return tmp_path


def test_the_command_compares_the_rungs_of_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained, searched = str(runs / "trained"), str(runs / "searched")
    assert main(["compare", trained]) == 0
    shown = capsys.readouterr().out
    assert f"first   {trained}:base: 0.0 % of 3" in shown and f"second  {trained}:rft: 66.7 % of 3" in shown
    assert "2 of 2  SELECT combobox Party  (0 of 0)" in shown
    assert main(["compare", f"{trained}:rft"]) == 0 and capsys.readouterr().out == shown
    assert main(["compare", trained, f"{trained}:base", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["second"] == [f"{trained}:base"] and found["only_first"] == 2
    assert found["second_leaves_out"] == [{"what": "SELECT combobox Party", "lost": 2, "solved": 0}]
    assert main(["compare", searched, f"{trained}:rft", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)  # what was chosen counts, and not what the search met
    assert (found["first"], found["n"], found["only_first"], found["only_second"]) == ([f"{searched}:eval"], 1, 0, 0)


def test_an_evaluation_is_named_as_its_table_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    with RunStore.open(tmp_path / "run", {"command": "eval --search"}) as store:
        store.set_note("mine", {"a": "note, which is no measurement"})
        for way, won in {"oracle": True, "value": False}.items():
            store.add_trajectory(f"{way}/eval", "0/0", episode(0, won, FIND))
            counts = {"env_steps": 1, "prompt_tokens": 1, "generated_tokens": 1, "seconds": 1.0}
            rows.append(RungResult.from_outcomes(f"mine, {way}", [won], [float(won)], [1], **counts).to_dict())
        assert (found := within(store)) is not None and found[:2] == ("oracle", "value")  # there is no table yet
        write_json(store.path / "summary.json", rows)
    run = str(tmp_path / "run")
    for first in (f"{run}:mine, oracle", f"{run}:oracle/eval"):
        assert main(["compare", first, f"{run}:mine, value", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["first"], shown["second"]) == ([f"{run}:mine, oracle"], [f"{run}:mine, value"])
    assert main(["compare", run]) == 0 and f"first   {run}:mine, oracle: 100.0 %" in capsys.readouterr().out
    assert main(["compare", f"{run}:mine"]) == 2
    assert "run must have measured mine; it has mine, oracle, mine, value" in capsys.readouterr().err
    Path(run, "summary.json").write_text("{")
    assert main(["compare", run]) == 0 and f"first   {run}:oracle: 100.0 %" in capsys.readouterr().out


def test_what_is_compared_is_the_episode_that_was_chosen(tmp_path: Path) -> None:
    tree = make_tree(2)
    end = next(i for i in range(len(tree) - 2, 0, -1) if all(tree.observation[node] for node in tree.path(i)))
    tree.info["checked"] = {"success": False, "return": 0.0, "steps": int(tree.depth[end]), "broken": False, "end": end}
    with RunStore.open(tmp_path / "voted", {}) as store:
        store.add_tree("eval", tree)
    (shown,) = read_measured(str(tmp_path / "voted")).episodes
    taken = [tree.proposal[node] for node in tree.path(end)[1:]]
    assert [step.proposal.action for step in shown.steps] == [p.action for p in taken if p]
    assert not shown.success and tree.success.any()


def test_the_report_compares_the_first_and_the_last_rung(runs: Path) -> None:
    counts = {"env_steps": 1, "prompt_tokens": 1, "generated_tokens": 1, "seconds": 1.0}
    for name in ("trained", "searched"):
        row = RungResult.from_outcomes("rft", [True, False], [1.0, 0.0], [1, 1], **counts)
        write_json(runs / name / "summary.json", [row.to_dict()])
    page = write_report(runs / "trained").read_text()
    assert "First: base. Second: rft." in page and "2 of 2  SELECT combobox Party  (0 of 0)" in page
    assert "Task by task" not in write_report(runs / "searched").read_text()  # measured one model only


def test_methods_are_compared_over_their_seeds(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    firsts = [[episode(0, False, FIND), episode(1, False, FIND)], [episode(0, True, FIND), episode(1, False, FIND)]]
    seconds = [[episode(seed, True, PARTY, FIND) for seed in range(2)] for _ in range(2)]
    found = compare_seeds(firsts, seconds)
    assert found.difference == seed_difference([[1, 1], [1, 1]], [[0, 0], [1, 0]])
    assert (found.n, found.both, found.only_second) == (4, 1, 3)  # a task counts for each seed
    assert "+75.0 points (-242.7 to +392.7 over 2 seeds; " in str(found) and "by seed +100.0, +50.0;" in str(found)
    with pytest.raises(ConfigError, match="a model of each seed; got 2 and 1"):
        compare_seeds(firsts, seconds[:1])
    base, rft = f"{runs / 'trained'}:base", f"{runs / 'trained'}:rft"
    assert main(["compare", base, base, "--with", rft, rft]) == 0
    shown = capsys.readouterr().out
    assert shown.count("first   ") == shown.count("second  ") == 2
    assert "by seed +66.7, +66.7; of 6 tasks both solve 0" in shown and "4 of 4  SELECT combobox Party" in shown
    assert main(["compare", base, base, "--with", rft]) == 2
    assert "must have a model of each seed; got 2 and 1" in capsys.readouterr().err


def test_a_task_is_the_same_in_every_seed_whatever_instruction_it_was_given() -> None:
    """Two seeds that solve the same ten of twenty tasks are no forty independent draws."""
    failed = [[episode(task, False, FIND) for task in range(20)] for _ in range(2)]
    solved = [[episode(task, task < 10, FIND) for task in range(20)] for _ in range(2)]
    other = [replace(t, task=replace(t.task, instruction=f"worded anew: {t.task.instruction}")) for t in failed[1]]
    found = compare_seeds([failed[0], other], solved).difference
    assert (
        found == compare_seeds(failed, solved).difference == seed_difference([[1] * 10 + [0] * 10] * 2, [[0] * 20] * 2)
    )


def test_success_with_and_without_a_deed_is_counted(runs: Path) -> None:
    row = deeds.figures(f"{runs / 'trained'}:rft", ["SELECT combobox Party", "STOP"])
    assert (row["n"], row["solved"]) == (3, 2)
    assert row["deeds"] == {"SELECT combobox Party": [3, 2, 0], "STOP": [0, 0, 2]}
    assert deeds.table([row], ["STOP"]).endswith("| 2 of 3 | 3 | 2 of 3 | 0 of 0 | 0 | 0 of 0 | 2 of 3 |")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["searched"], "two rungs must be given; searched has eval: name another run too"),
        (["trained:base"], "two rungs must be given; trained has base, rft: name another run too"),
        (["trained:rtf"], "trained must have measured rtf; it has base, rft"),
        (["begun"], "begun must have measured a model; it has none"),
        (
            ["trained", "searched:rft/round1/collect"],
            "an agent must have one episode per task; got several of booking, 0",
        ),
        (["trained"] * 3, "takes one run or two; got 3"),
        (["nowhere"], "nowhere must be a run directory"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_one_line(
    runs: Path, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    assert main(["compare", *words]) == 2
    shown = capsys.readouterr().err
    assert told in shown and shown.count("\n") == 1 and shown.count("agentq:") == 1


def test_what_is_shared_of_an_unfinished_measurement_is_compared() -> None:
    some = [episode(seed, True, FIND) for seed in range(3)]
    assert compare(some[:2], [replace(t, success=False) for t in some]).n == 2
