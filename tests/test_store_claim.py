"""Which directories a command may use: nothing that is an input, another command's or no run's is ever deleted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentq.errors import ConfigError, StoreError
from agentq.store.claim import INPUTS, check_claim, claimed, is_begun
from agentq.store.packed import Packed
from agentq.store.run import PARTIAL, RunStore

CONFIG = {"command": "ladder", "search": {"c_exp": 1.0}}


def begun(path: Path, **more: object) -> Path:
    """A run that has kept a metric."""
    with RunStore.open(path, CONFIG | more) as store:
        store.log("base/eval", 1, loss=0.5)
    return path


@pytest.mark.parametrize(
    "place", ["run", "run/checkpoints/best", ".", "link"], ids=["equal", "inside", "above", "link"]
)
def test_clean_deletes_no_input(place: str, tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    (run / "checkpoints" / "best").mkdir()
    (tmp_path / "link").symlink_to(run / "checkpoints")
    given = tmp_path / place
    check_claim(run, CONFIG, clean=False, inputs={"--base": given})
    with pytest.raises(ConfigError, match=r"^--clean must not delete what the command reads; got --base .*: choose an"):
        check_claim(run, CONFIG, clean=True, inputs={"--base": given})
    check_claim(run, CONFIG, clean=True, inputs={"--base": tmp_path / "other", "--model": "http://127.0.0.1/v1"})
    assert (run / "run.sqlite").exists()


@pytest.mark.parametrize("clean", [False, True])
def test_a_directory_of_another_command_is_refused(clean: bool, tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    with pytest.raises(ConfigError, match="was made by agentq ladder; got agentq eval: choose another --out"):
        check_claim(run, CONFIG | {"command": "eval"}, clean=clean, inputs={})
    old = tmp_path / "old"
    with RunStore.open(old, {"search": {"c_exp": 1.0}}) as store:
        store.log("base/eval", 1, loss=0.5)
    with pytest.raises(ConfigError, match="was made by an older agentq; got agentq ladder"):
        check_claim(old, CONFIG, clean=clean, inputs={})


@pytest.mark.parametrize("clean", [False, True])
def test_a_checkpoint_is_no_run_directory(clean: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(StoreError, match=r"must be empty or a run directory; it holds config.json and no run.sqlite"):
        check_claim(tmp_path, CONFIG, clean=clean, inputs={})


def test_other_settings_are_told_in_the_words_of_the_command_line(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", checkpoint="aaaa")
    with claimed(run, CONFIG | {"checkpoint": "aaaa"}, clean=False, inputs={"checkpoint": Path("first")}):
        pass
    for key, given, message in (
        ("search", {"c_exp": 2.0}, "was made with --search.c_exp 1.0; got 2.0: give what it was made with, another"),
        ("checkpoint", "bbbb", "was made with checkpoint first; got second: "),
    ):
        with pytest.raises(ConfigError, match=message):
            check_claim(
                run, CONFIG | {"checkpoint": "aaaa", key: given}, clean=False, inputs={"checkpoint": Path("second")}
            )
    with pytest.raises(ConfigError, match="was made with checkpoint first; got the same with other files"):
        check_claim(run, CONFIG | {"checkpoint": "bbbb"}, clean=False, inputs={"checkpoint": Path("first")})


def test_a_run_that_is_refused_stays_and_so_does_the_first_name_of_its_inputs(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", words=("a", "b"))
    check_claim(run, CONFIG | {"words": ("a", "b")}, clean=False, inputs={})  # a file has a list of them
    for place in ("first", "moved"):
        with claimed(run, CONFIG | {"words": ["a", "b"]}, clean=False, inputs={"--base": Path(place)}) as store:
            assert store.note(INPUTS) == {"--base": "first"}
    with (
        pytest.raises(StoreError, match=r"was made with search.c_exp = 1.0; got 2.0"),
        claimed(run, CONFIG | {"words": ["a", "b"], "search": {"c_exp": 2.0}}, clean=False),
    ):
        pass
    assert is_begun(run)


def test_what_can_grow_is_told_if_it_does_not(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", rounds=3)
    check_claim(run, CONFIG | {"rounds": 4}, clean=False, inputs={}, grows=["rounds"])
    with pytest.raises(ConfigError, match="made with --rounds 3; got 2: it can only grow: "):
        check_claim(run, CONFIG | {"rounds": 2}, clean=False, inputs={}, grows=["rounds"])


def test_a_failure_before_the_first_item_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "deep" / "run"
    with pytest.raises(ZeroDivisionError), claimed(out, CONFIG, clean=False) as store:
        store.set_note("base", {"fingerprint": "aaaa"})
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    out.mkdir(parents=True)  # a directory of the user's stays, empty but for the lock
    with pytest.raises(ZeroDivisionError), claimed(out, CONFIG, clean=False):
        raise ZeroDivisionError
    assert [entry.name for entry in out.iterdir()] == [".lock"]


@pytest.mark.parametrize("kept", ["metric", "half-grown tree", "checkpoint", "file", "live note"])
def test_a_failure_after_something_was_kept_leaves_it(kept: str, tmp_path: Path) -> None:
    config = CONFIG | ({"live": {}} if kept == "live note" else {})
    with pytest.raises(ZeroDivisionError), claimed(tmp_path / "run", config, clean=False) as store:
        if kept == "metric":
            store.log("base/eval", 1, loss=0.5)
        elif kept == "half-grown tree":
            store.add("base/eval", PARTIAL, "1", Packed(1, b"as `set_partial` packs it", {}))
        elif kept == "checkpoint":
            (store.path / "checkpoints" / "best").mkdir()
        elif kept == "file":
            (store.path / "mine.txt").touch()
        else:
            store.set_note("step", {"allowed": True})
        raise ZeroDivisionError
    assert is_begun(tmp_path / "run")
    with claimed(tmp_path / "run", config, clean=False) as store:  # the same command goes on with it
        assert store.count("base/eval", PARTIAL) == (kept == "half-grown tree")


def test_a_run_that_was_killed_before_its_first_item_is_begun_anew(tmp_path: Path) -> None:
    RunStore.open(tmp_path / "run", CONFIG).close()
    other = {"command": "ladder", "search": {"c_exp": 2.0}}
    assert not is_begun(tmp_path / "run")
    check_claim(tmp_path / "run", other, clean=False, inputs={})
    with claimed(tmp_path / "run", other, clean=False) as store:
        assert store.config == other


def test_a_second_writer_deletes_nothing(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG):
        code = (
            "from pathlib import Path; from agentq.store.claim import claimed\n"
            f"with claimed(Path({str(tmp_path / 'run')!r}), {CONFIG!r}, clean=True): pass"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "must have one writer" in done.stderr
    assert (tmp_path / "run" / "config.json").exists()
