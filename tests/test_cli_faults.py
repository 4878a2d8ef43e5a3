"""What the command line says of faults, whose they are, and of another project's package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from agentq.cli import main
from agentq.cli.app import COMMANDS
from agentq.cli.faults import tell
from agentq.errors import ConfigError, ModelError
from agentq.policies.engine_names import check_checkpoint
from agentq.policies.openai_client import Refused
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes import find
from agentq.store.run import RunStore

QUICK = ("--eval.num_tasks=2", "--run.executor=inline")


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `agentq settings` fail."""

    def listing(*_: object) -> int:
        raise error

    monkeypatch.setattr(find, "listing", listing)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(13, "Permission denied", "/a/file"),
            "/a/file must be readable, and writable where",
        ),
        (OSError(28, "No space left on device"), "files must be writable; got no space left on device: make room"),
        (MemoryError(), "the machine must have room for the work; got MemoryError"),
        (RuntimeError("CUDA error: out of memory"), "the machine must have room for the work; got RuntimeError: CUDA"),
        (type("SafetensorError", (Exception,), {})("io"), "the machine must have room for the work; got "),
    ],
)
def test_faults_of_the_world_are_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(error, monkeypatch)
    assert main(["settings"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"agentq: {line}") and said.count("\n") == 1
    monkeypatch.setenv("AGENTQ_TRACEBACK", "1")
    assert main(["settings"]) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_message_of_several_lines_is_told_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(ConfigError("x must be\n1"), ["eval"]) == 2
    assert capsys.readouterr().err == "agentq: x must be 1\n"


def test_a_fault_of_agentq_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(IndexError("here"), monkeypatch)
    assert main(["settings"]) == 3
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said and "IndexError: here" in said
    assert said.endswith("agentq: this is a fault of agentq itself: please report it with the lines above\n")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (ConfigError("a must be b; got c"), "ConfigError", 2),
        (Refused("a server refused"), "ModelError", 2),  # a class of agentq's that is not public
        (OSError(28, "No space left on device"), "Outside", 2),
        (IndexError("here"), "Fault", 3),
        (KeyboardInterrupt(), "Interrupted", 130),
    ],
)
def test_an_error_is_an_object_where_the_result_would_be(
    error: BaseException, kind: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(error, monkeypatch)
    assert main(["settings", "--json"]) == code
    said = capsys.readouterr()
    found = json.loads(said.out)["error"]
    assert (found["kind"], found["exit_code"]) == (kind, code)
    assert said.err.endswith(f"agentq: {found['message']}\n")
    assert main(["settings"]) == code and capsys.readouterr().out == ""


def test_what_an_environment_prints_is_not_among_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "class Loud:\n"
        "    max_steps = 2\n"
        "    def reset(self, seed):\n"
        "        print('reset', seed)\n"
        "        return {'instruction': f'Press {seed}', 'text': 'button Go [1]'}\n"
        "    def step(self, command, element, text):\n"
        "        return {'text': 'heading Done', 'terminated': True}\n"
    )
    assert main(["env", "check", f"{file}:Loud", "--tasks", "2", "--json"]) in (0, 1)
    said = capsys.readouterr()
    assert json.loads(said.out)["tasks"] == 2 and "reset" in said.err
    assert main(["eval", "embedded", "--env", f"{file}:Loud", "--out", str(tmp_path / "run"), "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["rungs"][0]["n"] == 2
    main(["env", "check", f"{file}:Loud", "--tasks", "2"])
    assert "reset" in capsys.readouterr().out


def test_the_line_to_go_on_with_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(KeyboardInterrupt(), monkeypatch)
    assert main(["settings", "--run.out", "tr 1é"]) == 130
    assert capsys.readouterr().err == "agentq: interrupted; go on with: agentq settings --run.out 'tr 1é'\n"
    assert tell(KeyboardInterrupt(), ["doctor", "embedded"]) == 130  # which keeps nothing to go on with
    assert capsys.readouterr().err == "agentq: interrupted\n"


def test_a_recipe_file_that_raises_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "boom.py"
    for text, line in (
        ("x = 1\nprint(x / 0)\n", "2: ZeroDivisionError: division by zero"),
        ("x = (\n", "1: SyntaxError"),
    ):
        file.write_text(text)
        assert main(["train", str(file), "--out", str(tmp_path / "run")]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"agentq: {file}:{line}") and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_another_projects_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", "--json"]) == 0
    assert capsys.readouterr().err == ""
    info = tmp_path / "agentq-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentq\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["settings", "--json"]) == 0
    assert capsys.readouterr().err == (
        "agentq: agentq must come from the package agentq-search alone; got another project's, agentq 0.1.0, too: "
        "pip uninstall agentq, then pip install --force-reinstall agentq-search\n"
    )


def documented_keys() -> dict[str, set[str]]:
    """The keys of each command's JSON, as docs/commands.md has them."""
    page = (Path(__file__).parents[1] / "docs" / "commands.md").read_text().partition("## Results as JSON")[2]
    rows = [row.split(" | ") for row in re.findall(r"^\| (`.*)$", page, re.M)]
    return {name: set(re.findall("`([a-z_]+)`", row[1])) for row in rows for name in re.findall("`(.+?)`", row[0])}


def test_the_pages_name_the_keys_of_every_json_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = documented_keys()
    assert set(keys) == {
        name for name, each in COMMANDS.items() if any("--json" in names for names, _ in each.arguments)
    }
    run, other, new = (str(tmp_path / name) for name in ("run", "other", "new"))
    for words in (
        ["eval", "embedded", "--out", run, *QUICK],
        ["eval", "embedded", "--out", other, *QUICK],
        ["report", run],
        ["view", run],
        ["compare", run, other],
        ["export", run, "--format", "hf-traces", "--out", str(tmp_path / "traces")],
        ["runs", str(tmp_path)],
        ["check", run],
        ["replay", run],
        ["fork", run, "--out", new],
        ["envs"],
        ["env", "check", "booking", "--tasks", "1"],
    ):
        assert main([*words, "--json"]) == 0, words
        name = " ".join(words[: 2 if words[0] == "env" else 1])
        found = json.loads(capsys.readouterr().out)
        assert found.keys() == keys[name] - ({"pushed"} if name == "export" else {"saved", "kept", "lost"}), name
    assert main(["eval", "embedded", "--out", str(tmp_path / "dry"), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"settings", "out"}


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_damaged_checkpoint_is_one_line(file: str, base: Path, tmp_path: Path) -> None:
    for source in base.iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes()[: 60 if source.name == file else None])
    with pytest.raises(ModelError, match=f"must be a transformers checkpoint by name or path; got {tmp_path}: "):
        TransformersEngine(tmp_path)


def test_a_checkpoint_that_is_not_there_is_refused_without_loading(tmp_path: Path) -> None:
    check_checkpoint(Path("org/name-1.0"))  # it may be the hub's
    check_checkpoint("http://127.0.0.1:9/v1")
    (tmp_path / "file").touch()
    for name, message in (
        (tmp_path / "no", "which does not exist"),
        (f"vllm:{tmp_path / 'no'}", "which does not exist"),
        (tmp_path / "file", "which is a file"),
        (tmp_path, "which has no config.json"),
        (Path("gpt-4o-mini"), "must follow its address, https://HOST/v1#gpt-4o-mini; got gpt-4o-mini"),
    ):
        with pytest.raises(ModelError, match=message):
            check_checkpoint(name)


@pytest.mark.parametrize("critic", ["/no/such", "no-such-model"])
def test_a_critic_that_is_not_there_is_refused_before_the_run_begins(
    critic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    words = ["train", "agent_q", "--env", "booking", "--critic.model", critic, "--out", str(tmp_path / "run")]
    assert main(words) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("agentq: the model must be a transformers checkpoint") and f"got {critic}" in told
    assert not (tmp_path / "run").exists()


def test_a_run_given_as_a_model_is_answered_with_its_checkpoints(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunStore.open(run, {}).close()
    with pytest.raises(ModelError, match=rf"got {run}, a run directory; its checkpoints are none yet$"):
        check_checkpoint(run)
    for name, file in (("rft", "config.json"), ("rft", "generation_config.json"), ("lora", "adapter_config.json")):
        (run / "checkpoints" / name).mkdir(exist_ok=True)
        (run / "checkpoints" / name / file).touch()
    found = f"its checkpoints are {run / 'checkpoints' / 'lora'}, {run / 'checkpoints' / 'rft'}$"
    with pytest.raises(ModelError, match=found):
        check_checkpoint(run)


def test_a_path_that_begins_with_a_dot_is_no_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("./none", "hf:./none"):
        assert main(["eval", given, "--dry-run"]) == 2
        assert capsys.readouterr().err.endswith(f"by name or path; got {given}, which does not exist\n")


def test_report_goes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunStore.open(tmp_path / "run", {}).close()
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run"), "--out", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(page)}
    assert page.exists() and not (tmp_path / "run" / "report.html").exists()
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "no" / "page.html")]) == 2
    assert "must be a file that can be written; got No such file or directory: choose" in capsys.readouterr().err


def test_a_page_takes_the_place_of_no_device_pipe_or_link_that_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    RunStore.open(tmp_path / "run", {}).close()
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("to_pipe").symlink_to("pipe")
    for wrong, reason in ((".", "Is a directory"), ("pipe", "a device or a pipe"), ("to_pipe", "a device or a pipe")):
        for command in ("report", "view"):
            assert main([command, "run", "--out", wrong]) == 2
            assert f"agentq: {wrong} must be a file that can be written; got {reason}: " in capsys.readouterr().err
        assert main(["export", "run", "--format", "sharegpt", "--out", wrong]) == 2
        assert f"agentq: {wrong} must be a file that can be written; got {reason}" in capsys.readouterr().err
    assert Path("pipe").is_fifo() and Path("to_pipe").is_symlink()
    Path("page.html").touch()
    Path("link").symlink_to("page.html")
    assert main(["report", "run", "--out", "link"]) == 0
    assert Path("link").is_symlink() and "<html" in Path("page.html").read_text()
    Path("run/report.html").symlink_to(tmp_path / "victim")  # a run may come from elsewhere
    assert main(["report", "run"]) == 0
    assert not Path("victim").exists() and not Path("run/report.html").is_symlink()


def test_a_folder_without_runs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0 and capsys.readouterr().out == f"no runs in {tmp_path}\n"
    assert main(["runs", str(tmp_path), "--json"]) == 0 and json.loads(capsys.readouterr().out) == {"runs": []}
    assert main(["runs", str(tmp_path / "none")]) == 2 and "; it does not exist" in capsys.readouterr().err


def test_a_live_run_that_ended_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ended", "killed"):
        with RunStore.open(tmp_path / name, {"command": "run", "live": {"url": "https://diner.test"}}) as store:
            store.set_note("result" if name == "ended" else "begun", {"live": {"outcome": "not found"}})
    assert main(["runs", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [(Path(row["run"]).name, row["state"], row["env"]) for row in rows] == [
        ("ended", "finished", "https://diner.test"),
        ("killed", "stopped", "https://diner.test"),
    ]


def test_ctrl_c_while_modules_load_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentq.cli.foreign_package", interrupted)
    assert (main(["settings"]), capsys.readouterr().err) == (130, "agentq: interrupted\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str) -> None:
    words = ["sh", "-c", f'"$0" -m agentq "$@" {closed}', sys.executable]
    assert subprocess.run([*words, "--version"], check=False, timeout=60).returncode == 0
    refused = subprocess.run([*words, "nosuch"], capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.count("\n") == ("2>&-" not in closed)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "agentq", "settings"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "agentq: files must be writable; got no space left on device: make room and run it again\n"


def test_settings_shows_what_a_recipe_would_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "demo", "--json", "--run.num_tasks", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run.num_tasks"], found["eval.num_tasks"]) == (3, 100) and "policy_gradient.ratio" not in found
    assert main(["settings", "loop", "--json", "--run.num_tasks", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run.num_tasks"], found["train.epochs"]) == (3, 2) and "rft.epochs" not in found


def test_base_replaces_no_other_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("keep me")
    assert main(["base", "--out", str(tmp_path)]) == 2
    message = f"--out must be a new directory, or one that agentq base made; got {tmp_path}, which holds letter.txt"
    assert capsys.readouterr().err == f"agentq: {message}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "9"], "--tokens must be at least 1, and is for reading; got 9 for small"),
        (["reading", "--width", "100"], "--width must be a multiple of 32, and is for reading; got 100 for reading"),
        (["reading", "--batch", "0"], "--batch must be at least 1, and is for reading; got 0 for reading"),
        (["reading", "--base", "here", "--width", "64"], "--width must be left out with --base, whose width stays"),
        (["--base", "here"], "--base is for reading; got here for small: leave it out"),
        (["reading", "--base", "here"], "--base must be what agentq base reading made; got here without its"),
    ],
)
def test_base_takes_tokens_and_a_base_for_reading(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["base", "--out", str(tmp_path / "base"), *words]) == 2
    assert capsys.readouterr().err.startswith(f"agentq: {message}")
    assert not (tmp_path / "base").exists()


def test_base_tells_its_pace_from_where_it_went_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[int, str]]()

    def two_steps(out: Path, settings: Any, *, on_step: Callable[[dict[str, float]], None], **_: Any) -> None:
        on_step({"step": 10, "tokens": 1000, "loss": 3.0})
        on_step({"step": 11, "tokens": 1110, "loss": 2.5})

    monkeypatch.setattr("agentq.base.reading.make.make_reading", two_steps)
    monkeypatch.setattr("agentq.status.RichStatus.stage", lambda *_: lambda done, note: told.append((done, note)))
    assert main(["base", "reading", "--tokens", "1110", "--out", str(tmp_path / "base")]) == 0
    assert told == [(900, ""), (1000, "loss 3.000"), (1110, "loss 2.500")]


def test_base_is_trained_on_a_device_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["base", "--out", str(tmp_path / "base"), "--device", "99"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("agentq: --device must name devices of this machine") and "got '99'" in said
    assert not (tmp_path / "base").exists()


@pytest.mark.parametrize("words", ["settings", "settings loop", "--help", "settings --json"])
def test_a_reader_that_leaves_is_no_fault(words: str) -> None:
    """As in `agentq settings | head -1`; the pipe's reader is gone before the first word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agentq", *words.split()]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "")
