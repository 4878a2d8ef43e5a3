"""The command line: exit codes, one-line messages, and what starting it costs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentq.cli import FILES, main, parser
from agentq.cli.completing import candidates
from agentq.model_settings import Section
from agentq.recipes.load import settings
from agentq.recipes.settings import COMMANDS, Ladder
from agentq.store.run import RunStore
from tests.records_factory import make_trajectory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory of `agentq ladder` with default settings and one metric in it."""
    path = tmp_path / "run"
    with RunStore.open(path, Ladder().to_dict() | {"command": "ladder"}) as store:
        store.log("base/eval", 1, loss=0.5)  # what keeps nothing is begun anew
    return path


def failure(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a refused command prints; it must exit with 2 and print no result."""
    assert main([str(word) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("agentq: ") and printed.err.count("\n") == 1
    line = printed.err.removeprefix("agentq: ").strip()
    if "--json" in words:
        assert json.loads(printed.out)["error"]["message"] == line
    else:
        assert printed.out == ""
    return line


def in_a_process(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_cli_shows_text_that_the_terminal_lacks(run: Path) -> None:
    odd = run.rename(run.with_name("r\u00fcn"))
    code = "import sys; from agentq.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(odd)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and "r\\xfcn/report.html" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_cli_views_a_run_whose_name_is_no_text(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = run.rename(run.with_name("r\udcff"))
    assert main(["view", str(odd)]) == 0
    assert b"<title>r?" in (odd / "view.html").read_bytes()


def test_cli_replays_a_task_without_what_a_terminal_obeys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunStore.open(tmp_path / "run", {"run": {"env": "booking"}}) as store:
        odd = make_trajectory(5)
        store.add_trajectory("eval", "12/0", make_trajectory(12))  # a later task, though "12" sorts before "5"
        store.add_trajectory("eval", "5/0", replace(odd, task=replace(odd.task, instruction="a\x1b[31m\ud800 b")))
    assert main(["replay", str(tmp_path / "run")]) == 1  # another page than the recorded one
    assert capsys.readouterr().out.startswith("booking, task 5: a[31m b\n")


def test_completion_offers_what_may_follow() -> None:
    assert {"train", "view"} <= set(candidates([]))
    assert candidates(["train", "rft", "--eval.split"]) == []  # a value, not another option
    assert "--eval.split" in candidates(["train", "rft", "--eval.num_tasks", "3"])
    assert "rft" in candidates(["settings", "train"]) and "booking" in candidates(["train", "rft", "--run.env"])


def test_cli_without_a_command_prints_help_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "ladder" in capsys.readouterr().out


def test_cli_refuses_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "lader") == "no command 'lader'; did you mean 'ladder'?"
    assert failure(capsys, "env", "serv") == "no command 'env serv'; did you mean 'serve'?"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run.sed", 3], "command line: unknown key 'run.sed'; did you mean 'run.seed'?"),
        (["--env", "shpo"], "no environment 'shpo'; did you mean 'shop'?"),
        (["--seed=x"], "command line: run.seed must be a valid integer; got 'x'"),
        (["--search.c_exp=many"], "command line: search.c_exp must be a valid number; got 'many'"),
        (
            ["--search.num_proposals", 0],
            "command line: search.num_proposals must be greater than or equal to 1; got '0'",
        ),
        (["--run.seed"], "command line: --run.seed must be followed by a value; got nothing"),
        (["fast"], "command line: settings must be written --section.key value; got 'fast'"),
        (["--run.env", "bokking"], "no environment 'bokking'; did you mean 'booking'?"),
    ],
    ids=[
        "unknown key",
        "short name",
        "short name, wrong type",
        "wrong type",
        "out of bounds",
        "no value",
        "no key",
        "unknown environment",
    ],
)
@pytest.mark.parametrize("command", ["ladder", "demo"])
def test_cli_names_what_is_wrong_with_a_setting_and_writes_nothing(
    command: str, words: list[object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failure(capsys, command, f"--run.out={tmp_path / 'run'}", *words) == message
    assert not (tmp_path / "run").exists()


def test_cli_names_the_file_and_key_of_a_wrong_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("[search]\nc_expl = 2.0\n")
    message = "mine.toml, line 2: unknown key 'search.c_expl'; did you mean 'search.c_exp'?"
    assert failure(capsys, "ladder", "--config", config) == message
    config.write_text("[search]\nnum_iterations = 'ten'\n")
    assert "mine.toml, line 2: search.num_iterations must be a valid integer; got 'ten'" in failure(
        capsys, "ladder", "--config", config
    )


@pytest.mark.parametrize("command", ["report", "base", "settings"])
def test_cli_refuses_settings_where_none_are_taken(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: dict[str, list[object]] = {"report": [tmp_path], "base": ["--out", tmp_path / "base"], "settings": []}
    message = f"agentq {command} takes no settings; got '--run.seed': leave it out"
    if command == "settings":
        message = "agentq settings must be given a NAME with settings, as in agentq settings loop; got run.seed"
    assert failure(capsys, command, *words[command], "--run.seed", 1) == message


def test_cli_says_what_is_no_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "report", tmp_path) == f"{tmp_path} must be a run directory; it has no config.json"
    for words in (["compare", tmp_path / "no"], ["view", tmp_path / "no"], ["resume", tmp_path / "no"]):
        assert failure(capsys, *words) == f"{tmp_path / 'no'} must be a run directory; it does not exist"
    (tmp_path / "letter.txt").write_text("keep me")
    message = f"{tmp_path} must be empty or a run directory; it holds letter.txt and no config.json"
    assert failure(capsys, "ladder", "--run.out", tmp_path) == message
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_cli_says_that_a_run_is_damaged(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = run / "run.sqlite"
    database.write_bytes(b"not a database" + bytes(4096))
    assert f"{database} is damaged" in failure(capsys, "report", run)
    assert f"{database} is damaged" in failure(capsys, "ladder", "--run.out", run)
    database.unlink()
    assert "run.sqlite is missing" in failure(capsys, "ladder", "--run.out", run)


def test_cli_refuses_a_run_of_a_newer_agentq(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(run / "run.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    for words in (["report", run], ["ladder", "--run.out", run]):
        message = failure(capsys, *words)
        assert message.startswith(f"{run} was written by a newer agentq (schema 99; this one reads ")
        assert message.endswith("upgrade agentq")


def test_cli_refuses_to_go_on_with_other_settings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "ladder", "--run.out", run, "--search.c_exp", 3)
    assert message == (
        f"{run} was made with --search.c_exp 1.0; got 3.0: give what it was made with, another --out, or --clean to "
        "delete it and start over"
    )


def test_cli_refuses_to_go_on_with_a_run_of_other_settings_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Ladder().to_dict() | {"command": "ladder"}
    settings["eval"]["measure_base"] = True  # which the ladder had and no longer reads
    with RunStore.open(tmp_path / "run", settings) as store:
        store.log("base/eval", 1, loss=0.5)
    assert failure(capsys, "ladder", "--run.out", tmp_path / "run") == (
        f"{tmp_path / 'run'} was made by another version of agentq, whose settings differ in eval.measure_base: choose "
        "another --out, or --clean to delete it and start over"
    )
    assert main(["report", str(tmp_path / "run")]) == 0


def test_cli_names_the_shard_that_a_run_was_made_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, settings = tmp_path / "run", Ladder().to_dict() | {"command": "ladder"}
    settings["run"] |= {"shard": "1/3"}
    with RunStore.open(out, settings) as store:
        store.log("base/eval", 1, loss=0.5)
    assert failure(capsys, "ladder", "--run.out", out) == (
        f"{out} was made with --run.shard 1/3; got no --run.shard: give the same, or another --out"
    )


def test_cli_says_that_a_base_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "nothing"
    message = failure(capsys, "ladder", "--run.out", tmp_path / "run", "--base", base, "--json")
    assert message.startswith(f"the model must be a transformers checkpoint by name or path; got {base}")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        pytest.param("torch", ["demo"], marks=pytest.mark.rest),
        ("torch", ["ladder"]),
        ("torch", ["base", "--out", "base"]),
        pytest.param("transformers", ["ladder"], marks=pytest.mark.rest),
    ],
    ids=["demo", "ladder", "base", "ladder transformers"],
)
def test_cli_gives_the_install_line_of_a_missing_extra(module: str, words: list[str], tmp_path: Path) -> None:
    hide = f"import os, sys; sys.modules['{module}'] = None; os.chdir({str(tmp_path)!r})"
    done = in_a_process(f"{hide}; from agentq.cli import main; sys.exit(main())", *words)
    assert done.returncode == 2
    assert done.stderr == f"agentq: agentq {words[0]} needs {module}: pip install 'agentq-search[train]'\n"
    assert list(tmp_path.iterdir()) == []


def test_cli_help_loads_nothing_heavy_and_is_fast() -> None:
    code = (
        "import atexit, sys, time; start = time.process_time(); from agentq.cli import main;"
        "atexit.register(lambda: print(time.process_time() - start, *sys.modules, file=sys.stderr)); main()"
    )
    seconds = []
    for _ in range(3):
        done = in_a_process(code, "--help")
        assert done.returncode == 0 and "settings" in done.stdout
        taken, *loaded = done.stderr.split()
        seconds.append(float(taken))
        top = {name.partition(".")[0] for name in loaded}
        assert top.isdisjoint({"torch", "transformers", "playwright", "lxml", "jinja2", "pydantic", "numpy"})
    assert min(seconds) < 0.5


def test_cli_settings_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("every setting, with its default in agentq demo, or else in the first command or recipe")
    assert {line.split()[0][2:] for line in lines} == {s.key for model in COMMANDS.values() for s in settings(model)}
    assert len({line.split()[0] for line in lines}) == len(lines)
    for name, model in (("ladder", Ladder), ("loop", COMMANDS["train loop"])):
        assert main(["settings", name]) == 0
        lines = capsys.readouterr().out.splitlines()
        for line, setting in zip(lines, settings(model), strict=True):
            assert line.startswith(f"--{setting.key} {setting.default} ") and line.endswith(setting.description)
        assert main(["settings", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {s.key: s.default for s in settings(model)}


def test_cli_report_writes_the_page_and_says_where(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"report: {run / 'report.html'}\n"
    assert main(["report", "--json", str(run)]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(run / "report.html")}
    assert (run / "report.html").read_text().startswith("<!")


def test_cli_finds_the_home_directory_behind_an_equals_sign(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell leaves `--out=~/page.html` as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["view", str(run), "--out=~/page.html"]) == 0
    assert (tmp_path / "page.html").exists() and str(tmp_path / "page.html") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["train", "loop", "--help"], COMMANDS["train loop"]),
        (["ladder", "-h"], Ladder),
        (["eval", ".", "--search", "--help"], COMMANDS["eval --search"]),
        (["run", "--help"], COMMANDS["run"]),
    ],
)
def test_cli_help_of_a_command_lists_its_arguments_and_the_settings_it_reads(
    words: list[str], model: type[Section], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: agentq {words[0]} ") and "--config FILE" in shown
    listed = [line for line in shown.splitlines() if line.startswith("--")]
    for line, setting in zip(listed, settings(model), strict=True):
        assert line.startswith(f"--{setting.key} {setting.default} ") and line.endswith(setting.description)


def test_cli_help_of_a_command_says_of_each_argument_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])  # the commands are known from now on
    assert len(parser.COMMANDS) > 15
    for name, command in parser.COMMANDS.items():
        capsys.readouterr()
        assert main([*name.split(), "--help"]) == 0
        shown = "".join(capsys.readouterr().out.split())
        assert "option_strings" not in shown  # argparse takes "60 % at" for a format
        for _, words in command.arguments:
            said = words.get("help", "").replace("%%", "%").replace("%(default)s", str(words.get("default")))
            assert "".join(said.split()) in shown


@pytest.mark.parametrize("name", ["resume", "fork"])
def test_cli_help_of_a_command_that_takes_settings_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"usage: agentq {name} ") and shown[0].endswith(" RUN [--SECTION.KEY VALUE ...]")
    assert name != "fork" or shown[2].startswith("Copy a run, to continue the copy with other settings")


def test_cli_help_of_train_says_how_to_list_the_settings_of_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    assert capsys.readouterr().out.endswith("agentq train RECIPE --help lists the settings of a recipe.\n")
    assert main(["train", "lop", "--help"]) == 2
    assert capsys.readouterr().err == "agentq: no command or recipe 'lop'; did you mean 'loop'?\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "RECIPE must be given; agentq train --help says what it takes"),
        (["check", "run", "--stage=x"], "no option --stage of agentq check; known: --json, --out"),
        (["demo", "--sed", "3"], "no option --sed of agentq demo; did you mean '--seed'?"),
        (["eval", "x", "--num_tasks=3"], "no option --num_tasks of agentq eval; did you mean --eval.num_tasks?"),
        (
            ["train", "rft", "--num_tasks", "3"],
            "no option --num_tasks of agentq train; did you mean --run.num_tasks or --eval.num_tasks?",
        ),
        (
            ["train", "rft", "--lr", "1e-4"],
            "no option --lr of agentq train; did you mean --train.learning_rate?",
        ),
        (["train", "rft", "--rounds=2"], "no option --rounds of agentq train; did you mean --run.num_rounds?"),
        (["train", "rft", "--batch=2"], "no option --batch of agentq train; did you mean --train.batch_size?"),
        (
            ["eval", "x", "--search", "--eval.chosen_by=judge"],
            "command line: eval.chosen_by must be 'oracle', 'value', 'majority', 'best_of_n' or 'all'; got 'judge'",
        ),
        (
            ["train", "rft", "--train.lr=1e-4"],
            "command line: unknown key 'train.lr'; did you mean 'train.learning_rate'?",
        ),
        (
            ["train", "agent_q", "--search.k=3"],
            "command line: unknown key 'search.k'; did you mean 'search.num_proposals'?",
        ),
        (["eval", "x", "--eval.tasks=3"], "command line: unknown key 'eval.tasks'; did you mean 'eval.num_tasks'?"),
        (
            ["eval", "x", "--eval.n=3"],
            "command line: unknown key 'eval.n'; did you mean 'eval.num_tasks'?",
        ),
        (
            ["demo", "--eval.n=3"],
            "command line: unknown key 'eval.n'; did you mean 'eval.num_iterations' or 'eval.num_tasks'?",
        ),
        (
            ["eval", "x", "--eval.x=3"],
            "command line: unknown key 'eval.x'; known: eval.num_tasks, eval.repeat_temperature, eval.split, "
            "eval.temperature",
        ),
        (
            ["eval", "x", "--rn.a=3"],
            "command line: unknown key 'rn.a', since no section is called 'rn'; did you mean 'run'?",
        ),
        (
            ["train", "rft", "--search.iterations=3"],
            "command line: unknown key 'search.iterations'; did you mean 'search.num_iterations', "
            "which agentq train rft does not read?",
        ),
        (["demo", "--config"], "command line: --config must be followed by a value; got nothing"),
        (["demo", "--search.c_exp", "--json"], "command line: --search.c_exp must be followed by a value; got nothing"),
        (["demo", "--a.b.c", "1"], "command line: settings must be written --section.key value; got '--a.b.c'"),
        (["env", "check", "booking", "--tasks", "x"], "--tasks must be a number; got 'x'"),
        (["report", ".", "here"], "agentq report takes no 'here'; agentq report --help says what it takes"),
        (["eval", ".", "--search=all"], "--search must be tree or step; got 'all'"),
        (["view", ".", "--port", "8000"], "--port is for --live; got 8000 without it"),
        (["run", "book", "--url", "http://localhost", "--calls=0"], "--calls must be more than 0; got 0"),
    ],
)
def test_cli_says_in_one_line_what_is_wrong_with_an_argument(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failure(capsys, *words) == message


def test_a_command_may_open_as_many_files_as_a_large_search_needs() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip("the hard limit is lower")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert main(["--version"]) == 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (FILES, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
