"""Attacks on the run store and on checkpoints: lost states, two writers, damaged checkpoints, disk errors."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from attack import Answer, agentq, attack

from agentq.errors import StoreError
from agentq.store import RunStore

TRAIN = (
    *("train", "grpo", "--json", "--env=shop", "--run.num_tasks=2", "--run.group_size=3", "--eval.num_tasks=1"),
    *("--train.batch_size=1", "--train.warmup_fraction=0.5", "--eval.measure_base=false"),
)
NO_ROOM = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
NO_ROOM += "resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes})); "
NO_RIGHTS = "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); "  # root without its right to write anywhere
GO = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'agentq', *sys.argv[1:]])"


@attack(
    "4.11",
    "kill a training in round 2, delete what round 1 learnt, go on",
    expected="exit 0, the weights of an undisturbed run",
)
def lost_states(folder: Path) -> str:
    words = (*TRAIN, "--run.num_rounds=2")
    whole = agentq(*words, "--out=whole", cwd=folder)
    command = [sys.executable, "-m", "agentq", *words, "--out=cut"]
    metrics = folder / "cut" / "metrics.jsonl"
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and (not metrics.exists() or '"round": 2' not in metrics.read_text()):
            time.sleep(0.005)
        process.kill()
    if process.returncode != -signal.SIGKILL:
        return f"the training ended by itself, exit {process.returncode}"
    shutil.rmtree(folder / "cut" / "checkpoints" / "grpo.states")
    cut = agentq(*words, "--out=cut", cwd=folder)
    if cut.code or whole.code:
        return str(cut)
    same = _weights(folder / "cut") == _weights(folder / "whole")
    return f"exit 0, {'the' if same else 'not the'} weights of an undisturbed run"


@attack(
    "4.13",
    "open a run twice in one process, delete it by the second, close the second",
    expected="refused, refused with clean; a third process refused; the first keeps its items",
)
def two_holders(folder: Path) -> str:
    path, config = folder / "run", {"seed": 1}

    def tries(clean: bool) -> str:
        try:
            RunStore.open(path, config, clean=clean).close()
        except StoreError:
            return "refused"
        return "accepted"

    other = "import sys; from agentq.store import RunStore; RunStore.open(sys.argv[1], {'seed': 1})"
    with RunStore.open(path, config) as store:
        store.set_note("kept", {"a": 1})
        plain = tries(clean=False)
        third = subprocess.run([sys.executable, "-c", other, str(path)], capture_output=True).returncode
        cleaned = tries(clean=True)
        try:
            with RunStore.read(path) as reader:
                kept = reader.note("kept") == {"a": 1}
        except StoreError:
            kept = False
    return (
        f"{plain}, {cleaned} with clean; a third process {'refused' if third else 'accepted'}; "
        f"the first {'keeps' if kept else 'loses'} its items"
    )


@attack(
    "4.17",
    "delete or truncate the checkpoint of a finished run, with or without its evaluation; run it again",
    expected="4 of 4 exit 2 with one line that names it",
)
def damaged_checkpoint(folder: Path) -> str:
    words = (*TRAIN, "--run.num_rounds=1")
    agentq(*words, "--out=whole", cwd=folder)
    noticed, other = 0, []
    for how in ("deleted", "truncated"):
        for evaluated in (True, False):
            name = f"{how}{evaluated}"
            shutil.copytree(folder / "whole", folder / name)
            checkpoint = folder / name / "checkpoints" / "grpo"
            if how == "deleted":
                shutil.rmtree(checkpoint)
            else:
                weights = checkpoint / "model.safetensors"
                weights.write_bytes(weights.read_bytes()[:1000])
            if not evaluated:
                _forget_evaluation(folder / name)
            answer = agentq(*words, f"--out={name}", cwd=folder)
            named = _is_one_line(answer) and "checkpoints/grpo must be" in answer.err
            noticed += named
            other += [] if named else [f"{how}: {answer}"]
    return f"{noticed} of 4 exit 2 with one line that names it" + "".join(f"; {what}" for what in other)


@attack(
    "4.22",
    "no room for a checkpoint, a directory and a report that may not be written",
    expected="3 of 3 exit 2 with one line; the run goes on when there is room",
)
def refusing_disk(folder: Path) -> str:
    words = (*TRAIN, "--run.num_rounds=1")
    full = _after(NO_ROOM.format(bytes=1 << 20), [*words, "--out=run"], folder)  # a checkpoint is larger
    again = agentq(*words, "--out=run", cwd=folder)
    locked = folder / "locked"
    locked.mkdir(mode=0o555)
    out = _after(NO_RIGHTS, [*words, "--out=locked/run"], folder)
    (folder / "run").chmod(0o555)
    report = _after(NO_RIGHTS, ["report", "run"], folder)
    for path in (locked, folder / "run"):
        path.chmod(0o755)
    answers = (full, out, report)
    fine = [_is_one_line(answer) for answer in answers]
    wrong = "".join(f"; {answer}" for answer, good in zip(answers, fine, strict=True) if not good)
    goes_on = "goes on" if again.code == 0 else "does not go on"
    return f"{sum(fine)} of 3 exit 2 with one line; the run {goes_on} when there is room{wrong}"


def _after(preparation: str, words: Sequence[str], folder: Path) -> Answer:
    """Run `agentq WORDS` in a process after the Python statements of `preparation`."""
    done = subprocess.run(
        [sys.executable, "-c", preparation + GO, *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def _is_one_line(answer: Answer) -> bool:
    """Whether a command ended with exit code 2 and one line of its own, after its progress lines."""
    ours = [line for line in answer.lines if line.startswith("agentq: ")]
    return answer.code == 2 and not answer.has_traceback and answer.lines[-1:] == ours


def _forget_evaluation(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    with RunStore.open(run, config) as store, store.transaction():
        store._execute("DELETE FROM items WHERE stage = (SELECT id FROM stages WHERE name = 'grpo/eval')")
        store._execute("UPDATE stages SET note = NULL WHERE name = 'grpo/eval'")


def _weights(run: Path) -> str:
    return hashlib.sha256((run / "checkpoints" / "grpo" / "model.safetensors").read_bytes()).hexdigest()
