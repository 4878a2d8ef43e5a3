"""`--train.devices 2`: the weights of one process, whichever process dies; no process is left over."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from agentq.errors import ConfigError, ModelError
from agentq.recipes import launch
from agentq.recipes.find import find_recipe
from agentq.recipes.launch import Launched, Told
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import Training
from agentq.store.run import RunStore
from tests.kill_factory import Moment, killed
from tests.recipes_factory import Quiet
from tests.test_train_resume import logged, words_of
from tests.train_factory import run, weights

TWO = "--train.devices=2"
RANK = "-m agentq.recipes.rank"
OWN = """
import os, signal
from dataclasses import replace
from pathlib import Path
from agentq.recipes.rft import RECIPE as RFT

LIVES = Path(__file__).with_name("lives")

def loss(learner, batch, settings):
    metrics = RFT.loss(learner, batch, settings)
    if learner.step_count == 2 and learner.ranks.index == 1 and (lives := int(LIVES.read_text())):
        LIVES.write_text(str(lives - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return metrics

RECIPE = replace(RFT, loss=loss)
"""

Whole = Callable[[str], Path]


def words(name: str) -> tuple[str, ...]:
    """Steps of three items, so that both processes have some; GRPO with two rounds, RFT with adapters."""
    more = {"agent_q": ("--run.num_tasks=5",), "rft": ("--train.lora_rank=2",), "grpo": ("--run.num_rounds=2",)}
    return (*words_of(name), "--run.num_rounds=1", "--train.batch_size=3", *more.get(name, ()))


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The directory of a recipe's run in one process, which is made once."""

    @cache
    def make(name: str) -> Path:
        out = tmp_path_factory.mktemp(name) / "run"
        run(name, base, out, words(name))
        return out

    return make


def assert_equal(out: Path, one: Path, name: str) -> None:
    """Within rounding: the weights, and what was logged of each step."""
    found, wanted = weights(out, name), weights(one, name)
    for key, weight in wanted.items():
        torch.testing.assert_close(found[key], weight, atol=1e-6, rtol=1e-4)
    lines = list(zip(logged(out, name), logged(one, name), strict=True))
    assert lines
    for ours, theirs in lines:
        assert ours.keys() == theirs.keys() and ours["stage"] == theirs["stage"]
        kept = ours.keys() - {"stage", "num_tokens"}  # a prompt is fed by each process that needs it
        if abs(theirs.get("rewards/margins", 1.0)) < 1e-5:  # rounding alone says which of two equal rewards is larger
            kept -= {"rewards/accuracies"}
        for key in kept:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-3, abs=1e-5), key
    with RunStore.read(out) as ours, RunStore.read(one) as theirs:
        for part in ("finished", "items", "env_steps"):
            notes = [store.note(f"{name}/round1/learn") or {} for store in (ours, theirs)]
            assert notes[0][part] == notes[1][part] and notes[0][part]
    left = {path.name for path in (out / "checkpoints").iterdir()}
    assert left == {path.name for path in (one / "checkpoints").iterdir()}


def processes_of(out: Path) -> list[int]:
    """Live processes whose command names the run directory, this one and its parents aside."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command, state = (
                (entry / "cmdline").read_bytes(),
                (entry / "stat").read_text().rpartition(")")[2].split()[0],
            )
        except OSError:
            continue
        if RANK.split()[1].encode() in command and str(out).encode() in command and state != "Z":
            found.append(int(entry.name))
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 240.0) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.05)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["agent_q", "ppo"])  # GRPO and RFT below
def test_two_processes_end_with_the_weights_of_one(name: str, base: Path, whole: Whole, tmp_path: Path) -> None:
    run(name, base, tmp_path / "run", (*words(name), TWO))
    assert_equal(tmp_path / "run", whole(name), name)
    assert json.loads((tmp_path / "run" / "env.json").read_text())["models"]["learner"]["processes"] == 2
    assert processes_of(tmp_path) == []


@pytest.fixture
def own(tmp_path: Path) -> Callable[[int], Any]:
    """A recipe of a file, whose second process dies so many times."""

    def make(deaths: int) -> Any:
        (tmp_path / "own.py").write_text(OWN)
        (tmp_path / "lives").write_text(str(deaths))
        return find_recipe(str(tmp_path / "own.py"))[2]()

    return make


@pytest.mark.rest
def test_a_round_is_done_again_when_a_process_dies(
    base: Path, whole: Whole, tmp_path: Path, own: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(launch, "RESTARTS", 0)
        with pytest.raises(
            ModelError, match="2 processes must live to train a round; got exit code 1 after 0 restarts: "
        ):
            run("rft", base, tmp_path / "run", (*words("rft"), TWO), recipe=own(1))
    assert processes_of(tmp_path) == []
    run("rft", base, tmp_path / "run", (*words("rft"), TWO), recipe=own(1))
    assert (tmp_path / "lives").read_text() == "0"
    assert_equal(tmp_path / "run", whole("rft"), "rft")


@pytest.mark.rest
def test_a_fault_in_a_recipes_file_is_told_at_once(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN.replace("    if learner", "    learner.step_count / 0\n    if learner"))
    recipe = find_recipe(str(file))[2]()
    with pytest.raises(ConfigError, match=r"own\.py:11: ZeroDivisionError: division by zero \(the traceback is in "):
        run("rft", base, tmp_path / "run", (*words("rft"), TWO), recipe=recipe)
    log = tmp_path / "run" / "checkpoints" / "rft.states" / "processes.log"
    assert log.read_text().count("ZeroDivisionError: division by zero") in (1, 2)  # of each process once
    assert processes_of(tmp_path) == []


@pytest.mark.rest
def test_a_killed_run_leaves_no_process_and_goes_on_in_one(base: Path, whole: Whole, tmp_path: Path) -> None:
    killed("grpo", base, tmp_path / "run", (*words("grpo"), TWO), Moment("round2/learn", 2))
    wait_until(lambda: not processes_of(tmp_path))
    run("grpo", base, tmp_path / "run", words("grpo"))
    assert_equal(tmp_path / "run", whole("grpo"), "grpo")


@pytest.mark.rest
def test_a_signal_ends_the_command_and_its_processes(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--run.env=shop", "--run.num_tasks=2", "--train.batch_size=4", "--train.epochs=400"]
    command = ["train", "sft", f"--base={base}", f"--out={out}", TWO, *words, "--eval.num_tasks=1"]
    metrics = out / "metrics.jsonl"
    for number, word, code in ((signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)):
        started = subprocess.Popen([sys.executable, "-m", "agentq", *command], stderr=subprocess.PIPE, text=True)
        with started as process:
            wait_until(lambda: len(processes_of(out)) >= 2)
            before = steps(metrics)
            wait_until(lambda: steps(metrics) > before)  # noqa: B023
            assert len(processes_of(out)) >= 2
            process.send_signal(number)
            said = process.communicate(timeout=120)[1]
        assert process.returncode == code
        assert "Traceback" not in said and said.splitlines()[-1].startswith(f"agentq: {word}; go on with: ")
        wait_until(lambda: not processes_of(out))


@pytest.mark.rest
def test_a_killed_run_leaves_no_torchrun_that_waits_for_another_machine(base: Path, tmp_path: Path) -> None:
    command = ["train", "sft", f"--base={base}", f"--out={tmp_path / 'run'}", "--run.num_tasks=1", "--eval.num_tasks=1"]
    waits = os.environ | {
        "PET_NNODES": "2",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": "1",
        "PET_NODE_RANK": "1",
    }
    started = subprocess.Popen([sys.executable, "-m", "agentq", *command], stderr=subprocess.DEVNULL, env=waits)
    with started as process:
        wait_until(lambda: len(processes_of(tmp_path)) == 1)
        time.sleep(1)  # it may be anywhere between its start and the wait
        process.kill()
    wait_until(lambda: not processes_of(tmp_path), 60)


def steps(metrics: Path) -> int:
    """The last step that was logged."""
    lines = metrics.read_text().splitlines()[:-1] if metrics.exists() else []
    return max((row["step"] for row in map(json.loads, lines) if row["stage"] == "sft/learn"), default=0)


@pytest.mark.rest
def test_a_run_trains_with_the_processes_of_another_machine(
    base: Path, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    states = tmp_path / "run" / "checkpoints" / "rft.states"
    torchrun = f"{sys.executable} -m torch.distributed.run --nnodes 2 --node-rank 1 --master-addr 127.0.0.1"
    loop = f"until [ -e {states.with_name('rft')} ]; do {torchrun} --master-port {port} {RANK} {states}/job.json; done"
    for name, value in (("NNODES", "2"), ("NODE_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)):
        monkeypatch.setenv(f"PET_{name}", value)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    with subprocess.Popen(
        loop, shell=True, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    ) as other:
        try:
            run("rft", base, tmp_path / "run", words("rft"))
            assert other.wait(240) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(other.pid, signal.SIGKILL)
    monkeypatch.delenv("PET_NNODES")
    assert_equal(tmp_path / "run", whole("rft"), "rft")
    assert json.loads((tmp_path / "run" / "env.json").read_text())["models"]["learner"]["processes"] == 2


@pytest.mark.rest
def test_what_a_process_refuses_is_what_the_run_says(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model\.dtype must be bfloat16 or float32 for training; got float16$"):
        run("grpo", base, tmp_path / "run", (*words("grpo"), TWO, "--model.dtype=float16"))
    assert processes_of(tmp_path) == []


@pytest.fixture
def pipeline(base: Path, tmp_path: Path) -> Iterator[Pipeline]:
    with RunStore.open(tmp_path / "run", {}) as store:
        yield Pipeline(store, Training(), base, Quiet())


def test_what_processes_tell_is_written_once_and_half_a_line_is_not(pipeline: Pipeline, tmp_path: Path) -> None:
    told = Told(pipeline, tmp_path)
    told.hear()  # there is no file yet
    rows = [["stage", "x", 3, "steps"], ["shown", 1, ""], ["log", "x", 1, {"loss": 0.5}], ["note", "x", {"items": 3}]]
    told.file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '["log", "x", 2, {"lo')
    told.hear()
    assert pipeline.store.metrics() == [{"stage": "x", "step": 1, "loss": 0.5}]
    assert pipeline.store.note("x") == {"items": 3}
    with told.file.open("a") as file:
        file.write('\n["log", "x", 2, {"loss": 0.25}]\n["failed", "ModelError", "it must be whole"]\n')
    told.hear()
    assert [row["loss"] for row in pipeline.store.metrics()] == [0.5, 0.25]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert isinstance(told.error, ModelError) and str(told.error) == "it must be whole"
    told.forget()
    told.hear()
    assert not told.file.exists() and told.heard == 0


def test_no_learner_is_here_while_a_round_is_collected(pipeline: Pipeline, base: Path) -> None:
    recipe = find_recipe("grpo")[2]()
    launched = Launched(pipeline, recipe, Training(), "grpo", base, ("cpu", "cpu"), lambda: None)
    with pytest.raises(ConfigError, match=r"train\.devices must be one device for a recipe whose collect"):
        launched.learner.recompute_logps([])
    assert launched.job["recipe"] == "grpo" and launched.job["device"] == "cpu" and os.path.isabs(launched.job["run"])


@pytest.mark.rest
@pytest.mark.skipif(not torch.__version__.endswith("+cpu"), reason="another build is asked for its devices")
def test_a_run_whose_models_are_elsewhere_does_not_load_torch(base: Path, tmp_path: Path) -> None:
    code = "import sys; from agentq.cli import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    given = ["train", "sft", f"--base={base}", f"--run.out={tmp_path / 'run'}", "--run.executor=processes", TWO]
    small = ("--run.num_tasks=2", "--eval.num_tasks=1", "--eval.measure_base=false")
    done = subprocess.run([sys.executable, "-c", code, *given, *small], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
