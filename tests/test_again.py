"""Runs that grow, runs that fork, and the list of runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from agentq.cli import main
from agentq.cli.app import COMMANDS as PARSERS
from agentq.errors import ConfigError, StoreError
from agentq.evaluation.stats import RungResult
from agentq.policies.engine_names import embedded_base
from agentq.policies.weights import fingerprint
from agentq.recipes.again import FORK, GROWS, base_of, command_of, fork, note_finished, note_words, stored_in, words_of
from agentq.recipes.load import read_by
from agentq.recipes.settings import AgentQ
from agentq.report.runs import list_runs
from agentq.store.claim import COMMAND, check_claim
from agentq.store.directory import Lock
from agentq.store.merge import merge
from agentq.store.run import RunStore
from tests.openai_factory import fake_openai
from tests.train_factory import run, same, weights

CONFIG = AgentQ().to_dict() | {"command": "train agent_q"}
WORDS = (
    *("--run.env=shop", "--run.num_tasks=2", "--run.group_size=3", "--eval.num_tasks=1", "--train.batch_size=6"),
    *("--train.epochs=1", "--train.warmup_fraction=0.7", "--eval.measure_base=false", "--model.threads=1"),
)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A run of two rounds: the first is finished, the second has an item."""
    out = tmp_path / "run"
    with RunStore.open(out, CONFIG) as store:
        note_words(store, ["train", "agent_q"])
        store.set_note("agent_q/round1/learn", {"finished": True, "items": 3})
        for number in (1, 2):
            store.set_note(f"agent_q/round{number}/collect", {"done": 1})
            store.log("agent_q", number, loss=0.5)
    (out / "checkpoints" / "agent_q.states" / "round2").mkdir(parents=True)
    return out


def config_with(**changes: object) -> dict[str, object]:
    return CONFIG | {"run": CONFIG["run"] | {"num_rounds": 1} | changes}


@pytest.fixture(scope="module")
def rounds(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Runs of one and of two rounds; no test writes there."""
    out = tmp_path_factory.mktemp("rounds")
    for number in (1, 2):
        run("rloo", base, out / str(number), (*WORDS, f"--run.num_rounds={number}"))
    return out / "1", out / "2"


@pytest.mark.parametrize("states", ["kept", "lost"])
def test_a_run_that_grows_ends_with_the_weights_of_one_that_was_made_so(
    states: str, base: Path, rounds: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.copytree(rounds[0], tmp_path / "grown")
    first = weights(tmp_path / "grown", "rloo")
    if states == "lost":
        shutil.rmtree(tmp_path / "grown" / "checkpoints" / "rloo.states")
    run("rloo", base, tmp_path / "grown", (*WORDS, "--run.num_rounds=2"))
    assert same(weights(tmp_path / "grown", "rloo"), weights(rounds[1], "rloo"))
    assert not same(weights(tmp_path / "grown", "rloo"), first)
    with RunStore.read(tmp_path / "grown") as store:
        assert store.config["run"]["num_rounds"] == 2
        assert store.keys("rloo/eval") == store.keys("rloo/eval/round1")  # measured again; the first measure is kept
    run("rloo", base, tmp_path / "grown", (*WORDS, "--run.num_rounds=2", "--eval.num_tasks=2"))
    with RunStore.read(tmp_path / "grown") as store:
        assert (store.count("rloo/eval", "trajectory"), store.count("rloo/eval/round1", "trajectory")) == (2, 1)


def test_a_line_counts_the_successes_of_the_items_done_now(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for total, now in ((1, "1"), (3, "the last 2")):
        words = ["eval", str(base), "--env=shop", f"--eval.num_tasks={total}", f"--out={tmp_path / 'eval'}"]
        assert main(words) == 0
        assert f"eval: {total}/{total} episodes" in (said := capsys.readouterr().err)
        assert f"0 of {now} succeeded (0 - " in said


def test_only_rounds_and_tasks_grow_and_they_do_not_shrink(made: Path) -> None:
    inputs: dict[str, Path | str] = {}
    with RunStore.open(made, CONFIG) as store:
        store.log("x", 1)
    check_claim(made, config_with(num_rounds=2), clean=False, inputs=inputs, grows=GROWS)
    with RunStore.open(made, config_with(num_rounds=2), grows=GROWS):
        assert json.loads((made / "config.json").read_text())["run"]["num_rounds"] == 2
    with pytest.raises(ConfigError, match=r"--run.num_rounds 2; got 1: it can only grow: give what"):
        check_claim(made, CONFIG, clean=False, inputs=inputs, grows=GROWS)
    with pytest.raises(StoreError, match=r"run.num_rounds = 2; got 1"):
        RunStore.open(made, CONFIG, grows=GROWS)
    with pytest.raises(ConfigError, match=r"--run.num_tasks 100; got 101: give what"):
        check_claim(made, config_with(num_rounds=2, num_tasks=101), clean=False, inputs=inputs, grows=GROWS)


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("train agent_q", {}),
        ("train own", {"RECIPE": Path("my own.py")}),
        ("demo", {}),
        ("eval --search step", {"checkpoint": "http://localhost/v1#m"}),
    ],
)
def test_the_words_of_a_command_are_those_it_parses(command: str, reads: dict[str, Path | str]) -> None:
    given = {"search": {"c_exp": 2.0}, "run": {"out": "elsewhere", "env": "my env.py:make"}}
    name, *words = words_of(command, given, reads, "my base", Path("a b.toml"))
    args = PARSERS[name].parse(words)
    assert args.base == "my base" and args.config == Path("a b.toml") and name == command.split()[0]
    assert args.settings == {"search": {"c_exp": "2.0"}, "run": {"env": "my env.py:make"}}
    if name == "eval":
        assert (args.checkpoint, args.search) == ("http://localhost/v1#m", "step")
    if name == "train":
        assert args.recipe == str(reads.get("RECIPE", "agent_q"))


def test_a_fork_keeps_finished_rounds_and_applies_settings_to_the_next(made: Path, tmp_path: Path) -> None:
    before = (made / "run.sqlite").read_bytes(), (made / "config.json").read_text()
    fork(made, tmp_path / "same")
    fork(made, tmp_path / "other", {"train": {"learning_rate": "1e-6"}, "run": {"num_rounds": "3"}})
    assert ((made / "run.sqlite").read_bytes(), (made / "config.json").read_text()) == before
    with RunStore.read(tmp_path / "same") as store, RunStore.read(made) as parent:
        assert store.stages() == [*parent.stages(), FORK] and store.metrics() == parent.metrics()
        assert store.config == CONFIG and (store.note(FORK) or {}) == {"of": str(made), "rounds": 0}
    assert (tmp_path / "same" / "checkpoints" / "agent_q.states" / "round2").is_dir()
    with RunStore.read(tmp_path / "other") as store:
        assert store.config["train"]["learning_rate"] == 1e-6 and store.config["run"]["num_rounds"] == 3
        assert "agent_q/round1/collect" in store.stages() and "agent_q/round2/collect" not in store.stages()
        assert (store.note(FORK) or {})["rounds"] == 1
    assert not (tmp_path / "other" / "checkpoints" / "agent_q.states" / "round2").exists()
    words, _ = command_of(tmp_path / "other")
    assert words == ["train", "agent_q", "--train.learning_rate=1e-6", "--run.num_rounds=3"]


def test_a_fork_of_a_finished_run_names_a_command_that_does_something(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(name: str, *words: str) -> str:
        assert main(["fork", str(made), "--out", str(tmp_path / name), *words]) == 0
        return capsys.readouterr().out.strip().rpartition(str(tmp_path / name))[2]

    assert told("unfinished") == ""
    with RunStore.open(made, CONFIG) as store:
        note_finished(store)
    assert told("same") == told("other", "--search.c_exp=2") == " --run.num_rounds 2"
    assert told("more", "--run.num_rounds=3") == told("again", "--learn-again") == ""
    assert told("tasks", "--eval.num_tasks=2000") == ""  # which it measures


def test_a_fork_that_learns_again_keeps_what_the_first_round_collected(made: Path, tmp_path: Path) -> None:
    with RunStore.open(made, CONFIG) as store:
        store.set_note("base/eval", {"finished": True})
        store.set_note("agent_q/eval", {"finished": True})
        store.set_note("agent_q/warmup", {"warmup_steps": 2})
        note_finished(store)
    fork(made, tmp_path / "new", {"pairs": {"alpha": "0.5"}, "run": {"num_rounds": "1"}}, learn_again=True)
    with RunStore.read(tmp_path / "new") as store, RunStore.read(made) as parent:
        assert set(store.stages()) == {COMMAND, "base/eval", "agent_q/round1/collect", FORK}
        assert store.note("agent_q/round1/collect") == parent.note("agent_q/round1/collect")
        assert store.config["pairs"]["alpha"] == 0.5 and not store.metrics()
    assert not list((tmp_path / "new" / "checkpoints").iterdir())
    fork(made, tmp_path / "same", learn_again=True)
    with RunStore.read(tmp_path / "same") as store:
        assert not (store.note(COMMAND) or {})["finished"]


def test_a_fork_that_learns_again_ends_as_a_run_that_learnt_so(base: Path, tmp_path: Path) -> None:
    words = ["train", "sft", f"--base={base}", *(w for w in WORDS if "group_size" not in w)]
    parent, fork, new = (tmp_path / name for name in ("parent", "fork", "new"))
    assert main([*words, "--run.num_rounds=2", "--train.learning_rate=1e-4", f"--out={parent}"]) == 0
    assert main(["fork", str(parent), "--learn-again", "--run.num_rounds=1", "--train.epochs=2", f"--out={fork}"]) == 0
    with RunStore.read(fork) as store:
        collected = store.count("sft/round1/collect", "trajectory")
    assert main(["resume", str(fork)]) == 0
    assert main([*words, "--train.learning_rate=1e-4", "--train.epochs=2", f"--out={new}"]) == 0
    assert collected == 2 and same(weights(fork, "sft"), weights(new, "sft"))
    assert not same(weights(fork, "sft"), weights(parent, "sft"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"search": {"c_exp": "2"}},
            "settings of a fork that learns again must be .*train, policy_gradient, rft; got search",
        ),
        ({"eval": {"num_tasks": "1"}}, "eval.num_tasks must be at least 200 in a fork; got 1"),
    ],
)
def test_a_fork_that_learns_again_refuses_other_rollouts(
    given: dict[str, dict[str, str]], message: str, made: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        fork(made, tmp_path / "new", given, learn_again=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train agent_q", "a run with rollouts of a round; got .*, which has none"),
        ("eval", "a run of train; got one of eval"),
    ],
)
def test_what_has_no_rollouts_cannot_be_learnt_again(command: str, message: str, tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG | {"command": command}) as store:
        note_words(store, command.split())
    with pytest.raises(ConfigError, match=f"--learn-again needs {message}"):
        fork(tmp_path / "run", tmp_path / "new", learn_again=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"run": {"seed": "3"}}, r"settings of a fork must be run.num_rounds, eval.num_tasks, or with train of .*seed"),
        ({"model": {"dtype": "bfloat16"}}, "got model.dtype"),
        ({"train": {"learning_rate": "-1"}}, "agentq fork: train.learning_rate must be greater than 0; got '-1'"),
        ({"eval": {"num_tasks": "1"}}, "eval.num_tasks must be at least 200 in a fork; got 1"),
    ],
)
def test_a_fork_refuses_settings_that_made_its_rounds(
    given: dict[str, dict[str, str]], message: str, made: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        fork(made, tmp_path / "new", given)
    assert not (tmp_path / "new").exists()


def test_a_fork_needs_a_run_at_rest_and_a_new_directory(made: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "run.sqlite").touch()
    with pytest.raises(ConfigError, match="--out must be a new directory"):
        fork(made, tmp_path / "full")
    held = Lock(made)
    with pytest.raises(StoreError, match="must have one writer"):
        fork(made, tmp_path / "new")
    held.close()
    assert not (tmp_path / "new").exists()


def test_a_fork_of_a_read_only_run_needs_no_lock(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (made / ".lock").unlink(missing_ok=True)
    (made / ".lock").mkdir()  # no lock can be had, as on a file system that is read-only
    monkeypatch.setattr("os.access", lambda path, mode: path != made)
    fork(made, tmp_path / "new")
    assert command_of(tmp_path / "new") == command_of(made)


def test_a_merged_run_goes_on_by_the_shards_command_without_the_shard(tmp_path: Path) -> None:
    for number in (1, 2):
        config = AgentQ.model_validate({"run": {"shard": f"{number}/2"}}).to_dict() | {"command": "train agent_q"}
        with RunStore.open(tmp_path / str(number), config) as store:
            note_words(store, ["train", "agent_q", f"--run.shard={number}/2", "--run.env=shop"])
            store.log("x", 1)
            note_finished(store)
            store.set_note("shard", {"finished": True})
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "whole")
    assert command_of(tmp_path / "whole")[0] == ["train", "agent_q", "--run.env=shop"]
    assert [row.state for row in list_runs(tmp_path / "whole")] == ["stopped"]


def test_runs_are_listed_with_their_states(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fork(made, tmp_path / "deep" / "er" / "fork")
    (tmp_path / "deep" / "back").symlink_to(tmp_path)  # through which `made` and others are found again
    with RunStore.open(tmp_path / "deep" / "er" / "fork", CONFIG) as store:
        note_finished(store)
    cost = {"env_steps": 1, "prompt_tokens": 7, "generated_tokens": 3, "seconds": 2.0}
    rung = RungResult("agent_q", 3, 4, 0.3, 0.95, mean_return=0.75, mean_steps=2.0, **cost)
    (tmp_path / "deep" / "er" / "fork" / "summary.json").write_text(json.dumps([asdict(rung)]))
    RunStore.open(tmp_path / "torn", CONFIG).close()
    (tmp_path / "torn" / "run.sqlite").write_bytes(b"no database")
    RunStore.open(tmp_path / "bad", CONFIG).close()
    (tmp_path / "bad" / "config.json").write_text("[]")
    with RunStore.open(tmp_path / "odd", CONFIG) as store:
        store.set_note(COMMAND, ["no", "object"])  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text("{}")  # it makes a folder no run
    held = Lock(made)
    listing = list(list_runs(tmp_path))
    held.close()
    rows = {Path(row.run).name: row for row in listing}
    assert len(listing) == len(rows) and rows["run"].run == str(made)
    assert {name: row.state for name, row in rows.items()} == {
        "fork": "finished", "run": "running", "torn": "damaged", "bad": "damaged", "odd": "damaged"
    }  # fmt: skip
    assert rows["fork"].made_from == f"fork of {made}" and rows["fork"].rounds == "1/1"
    assert [row.state for row in list_runs(made)] == ["stopped"]
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    listed = {Path(row["run"]).name: row for row in json.loads(capsys.readouterr().out)["runs"]}
    measured = ("rung", "successes", "n", "success", "low", "high")
    assert len(listed) == 5 and [listed["bad"][name] for name in measured] == ["", None, None, None, None, None]
    assert [listed["fork"][name] for name in measured] == ["agent_q", 3, 4, 0.75, 0.3, 0.95]
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "train agent_q" in shown and "75.0 % (30 - 95)" in shown and "…" not in shown
    assert main(["runs", str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize("by", ["environment", "file"])
def test_resume_holds_to_the_settings_of_the_run_wherever_they_came_from(
    by: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "eval", tmp_path / "own.toml"

    def given(num_tasks: int, max_unreadable: int) -> None:
        if by == "environment":
            monkeypatch.setenv("AGENTQ_EVAL__NUM_TASKS", str(num_tasks))
            monkeypatch.setenv("AGENTQ_RUN__MAX_UNREADABLE", str(max_unreadable))
        else:
            file.write_text(f"[eval]\nnum_tasks = {num_tasks}\n[run]\nmax_unreadable = {max_unreadable}\n")

    def forget() -> None:
        monkeypatch.delenv("AGENTQ_EVAL__NUM_TASKS", raising=False)
        monkeypatch.delenv("AGENTQ_RUN__MAX_UNREADABLE", raising=False)
        file.unlink(missing_ok=True)

    def resumed(*more: str) -> int:
        assert main(["resume", str(out), *more]) == 0, capsys.readouterr().err
        with RunStore.read(out) as store:
            assert store.config["run"]["max_unreadable"] == 2
            assert store.config["eval"]["num_tasks"] == store.count("eval", "trajectory")
            return store.count("eval", "trajectory")

    given(1, 2)
    words = ["eval", str(base), "--env=shop", "--model.threads=1", *(["--config", str(file)] if by == "file" else [])]
    assert main([*words, f"--out={out}"]) == 0
    given(5, 3)
    assert resumed() == 1
    forget()
    capsys.readouterr()
    assert resumed() == 1
    assert ("own.toml is gone" in capsys.readouterr().err) == (by == "file")
    assert resumed("--eval.num_tasks=2") == 2 == resumed()
    assert main(["resume", str(out), "--eval.num_tasks=1"]) == 2
    assert "it can only grow" in capsys.readouterr().err
    words, _ = command_of(out)
    assert "--env" not in words and "--run.env=shop" in words and "--eval.num_tasks=2" in words
    assert not any("max_unreadable" in word for word in words)


MINE = """
import os
class Mine:
    def reset(self, seed):
        os.chdir({elsewhere!r})
        return {{"instruction": f"Press {{seed}}", "text": "button Up [1]"}}
    def step(self, command, element, text):
        return {{"text": "button Up [1]", "reward": 1.0, "success": True, "terminated": True}}
"""


def test_a_changed_file_is_said_and_a_run_ends_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "mine.py"
    elsewhere.mkdir()
    file.write_text(MINE.format(elsewhere=str(elsewhere)))
    with fake_openai() as fake:
        words = ["eval", fake.url, "--env=mine.py:Mine", "--out=run"]
        for num_tasks, changed in ((1, False), (1, False), (2, True), (2, True)):
            if changed:
                file.write_text(file.read_text() + "# another line\n")
            monkeypatch.chdir(tmp_path)
            assert main([*words, f"--eval.num_tasks={num_tasks}"]) == 0
            assert ("mine.py has changed since run was begun" in capsys.readouterr().err) == changed
            assert (tmp_path / "run" / "report.html").exists() and not list(elsewhere.iterdir())


def test_the_critic_of_a_checkpoint_is_what_it_was_trained_from_and_else_itself(tmp_path: Path) -> None:
    own = shutil.copytree(embedded_base(), tmp_path / "own")
    edit = json.loads((own / "config.json").read_text()) | {"own": True}
    (own / "config.json").write_text(json.dumps(edit))
    for name, base in (("embedded", embedded_base()), ("own", own)):
        with RunStore.open(tmp_path / f"from_{name}", CONFIG) as store:
            note_words(store, ["train", "agent_q"])
            store.set_note("base", {"fingerprint": fingerprint(base), "name": str(base)})
        made = Path(shutil.copytree(own, tmp_path / f"from_{name}" / "checkpoints" / "agent_q"))
        assert base_of(made) == base
    assert base_of(own) is None
    shutil.rmtree(own)
    assert base_of(made) is None


def test_a_round_without_items_is_said(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = MINE.format(elsewhere=str(tmp_path)).replace('1.0, "success": True', '0.0, "success": False')
    (tmp_path / "lost.py").write_text(lost)
    words = ("--run.num_tasks=2", "--run.group_size=2", "--eval.num_tasks=1", "--eval.measure_base=false", "--json")
    own = ("--run.num_rounds=1", f"--env={tmp_path}/lost.py:Mine", f"--out={tmp_path}/out")
    assert main(["train", "rft", f"--base={base}", *own, *words]) == 0
    assert "round 1 has nothing to train on" in capsys.readouterr().err


def test_settings_of_another_version_are_left_to_the_claim() -> None:
    stored = {"command": "train agent_q", "run": {"seed": 3, "gone": 1}, "nothing": {"x": 1}, "vllm": {"any": 2}}
    assert read_by(AgentQ, stored_in(stored, {"run": {"env": "shop"}})) == {"run": {"seed": 3}, "vllm": {"any": 2}}
    assert stored_in(stored, {"run": {"seed": "4"}})["run"] == {"gone": 1}


def test_a_fork_finds_the_runs_own_recipe_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.py").write_text(
        "from dataclasses import replace\nfrom agentq.recipes.agent_q import RECIPE as AGENT_Q\n"
        'RECIPE = replace(AGENT_Q, name="mine")\n'
    )
    monkeypatch.chdir(tmp_path / "there")
    with RunStore.open(tmp_path / "run", CONFIG | {"command": "train mine"}) as store:
        note_words(store, ["train", "mine.py"])
    monkeypatch.chdir(tmp_path)
    fork(tmp_path / "run", tmp_path / "new", {"train": {"learning_rate": "1e-6"}})
    assert command_of(tmp_path / "new") == (["train", "mine.py", "--train.learning_rate=1e-6"], tmp_path / "there")


def test_resume_gives_the_runs_own_command_with_what_is_added(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "else").mkdir()
    with RunStore.open(made, CONFIG) as store:
        note = store.note(COMMAND) or {}
        store.set_note(COMMAND, {**note, "folder": str(tmp_path / "else")})
        words = ["train", "lop"]
        store.set_note(COMMAND, {**note, "words": words})
    monkeypatch.chdir(tmp_path)
    assert main(["resume", str(made.relative_to(tmp_path)), "--run.num_rounds", "2"]) == 2
    assert "no recipe 'lop'; did you mean 'loop'?" in capsys.readouterr().err
    assert main(["resume", str(tmp_path)]) == 2
    assert "must be a run directory" in capsys.readouterr().err
