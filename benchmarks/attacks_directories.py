"""Attacks on run directories and checkpoints from the command line: lost inputs, damaged files, other owners."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from attack import Answer, agentq, attack
from attacks_cli import DEAD, ONE, base, refusals, said

from agentq.recipes.settings import Demo, Ladder
from agentq.store import RunStore

NO_ROOM = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
NO_ROOM += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
NO_RIGHTS = "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); "  # root without its right to write anywhere
GO = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'agentq', *sys.argv[1:]])"


def finished_demo(folder: Path) -> str:
    """A run of `agentq demo` where it goes by default, with a checkpoint; the checkpoint's path."""
    with RunStore.open(folder / "runs" / "demo", {"command": "demo", **Demo().to_dict()}) as store:
        store.log("rft/train", 1, loss=0.5)
    return f"runs/demo/checkpoints/{Path(base(folder / 'runs' / 'demo' / 'checkpoints', 'rft')).name}"


def run_of_a_ladder(path: Path) -> None:
    """A run of `agentq ladder` with default settings and one metric."""
    with RunStore.open(path, {"command": "ladder", **Ladder().to_dict()}) as store:
        store.log("base/eval", 1, loss=0.5)


def limited(limit: str, folder: Path, *words: str) -> Answer:
    """Run `agentq WORDS` as a process that has lost a right or a resource."""
    command = [sys.executable, "-c", limit + GO, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return Answer(done.returncode, done.stdout, done.stderr)


@attack(
    "3.16",
    "measure a checkpoint that is not there, then one that is, into the same directory",
    expected="exit 2: agentq: the model must be a transformers checkpoint by name or path; got /no/such/path, which "
    "does not exist, then exit 0",
)
def missing_checkpoint(folder: Path) -> str:
    first = said(folder, "eval", "/no/such/path", "--out=e1")
    return f"{first}, then exit {agentq('eval', base(folder), ONE, '--out=e1', cwd=folder).code}"


@attack(
    "3.17",
    "measure a server that is not there, then a checkpoint, into the same directory",
    expected="one line about the server, nothing left, then exit 0",
)
def missing_server(folder: Path) -> str:
    first = said(folder, "eval", DEAD, "--out=e3")
    if not first.startswith(f"exit 2: agentq: {DEAD} must answer") or "; left " in first:
        return first
    then = agentq("eval", base(folder), ONE, "--out=e3", cwd=folder)
    return f"one line about the server, nothing left, then exit {then.code}"


@attack(
    "3.18",
    "measure a demo's checkpoint with --clean, by default and into the demo's directory",
    expected="exit 0 and the checkpoint is there; exit 2: agentq: runs/demo was made by agentq demo; got agentq eval: "
    "choose another --out and the checkpoint is there",
)
def cleaned_input(folder: Path) -> str:
    checkpoint, ends = finished_demo(folder), []
    for out in ([], ["--out=runs/demo"]):
        answer = agentq("eval", checkpoint, ONE, "--clean", *out, cwd=folder)
        there = "is" if (folder / checkpoint / "model.safetensors").exists() else "is not"
        end = "exit 0" if answer.code == 0 else str(answer)
        ends.append(f"{end} and the checkpoint {there} there")
    return "; ".join(ends)


@attack("3.19", "measure what is not there with --clean after a demo", expected="exit 2, the demo is there")
def cleaned_for_nothing(folder: Path) -> str:
    checkpoint = finished_demo(folder)
    code = agentq("eval", "/no/such", "--clean", cwd=folder).code
    whole = (folder / "runs/demo/run.sqlite").exists() and (folder / checkpoint / "model.safetensors").exists()
    return f"exit {code}, the demo is {'' if whole else 'not '}there"


@attack("3.20", "measure a demo's checkpoint without --out", expected="exit 0")
def measured_after_a_demo(folder: Path) -> str:
    answer = agentq("eval", finished_demo(folder), ONE, cwd=folder)
    return "exit 0" if answer.code == 0 else str(answer)


@attack("3.21", "checkpoints with a damaged file: weights, tokenizer, settings", expected="3 of 3 refused in one line")
def damaged_checkpoints(folder: Path) -> str:
    commands = []
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        damaged = folder / base(folder, f"damaged-{file.partition('.')[0]}") / file
        damaged.write_bytes(damaged.read_bytes()[:100])
        commands.append(["eval", damaged.parent.name, "--out=e"])
    return refusals(folder, commands, lambda line: "got damaged-" in line)


@attack(
    "3.22",
    "measure an empty directory",
    expected="exit 2: agentq: the model must be a transformers checkpoint by name or path; got empty, which has no "
    "config.json",
)
def empty_checkpoint(folder: Path) -> str:
    (folder / "empty").mkdir()
    return said(folder, "eval", "empty")


@attack(
    "3.23",
    "a run directory in /proc, below a file, and where nothing may be written",
    expected="3 of 3 refused in one line",
)
def unwritable(folder: Path) -> str:
    (folder / "afile").touch()
    (folder / "closed").mkdir(mode=0o555)
    checkpoint = base(folder)
    for out in ("/proc/x", "afile/x", "closed/x"):
        answer = limited(NO_RIGHTS, folder, "eval", checkpoint, f"--out={out}")
        if not str(answer).startswith(f"exit 2: agentq: --out must be a directory that can be written to; got {out}: "):
            return f"{out}: {answer}"
    return "3 of 3 refused in one line"


@attack(
    "3.24",
    "the report of a run that may only be read",
    expected="exit 2: agentq: run/report.html must be a file that can be written; got Permission denied: choose "
    "another by agentq report RUN --out FILE; exit 0 with --out",
)
def read_only_run(folder: Path) -> str:
    run_of_a_ladder(folder / "run")
    (folder / "run").chmod(0o555)
    first = limited(NO_RIGHTS, folder, "report", "run")
    second = limited(NO_RIGHTS, folder, "report", "run", "--out=page.html")
    written = "with --out" if (folder / "page.html").exists() else "without a page"
    return f"{first}; exit {second.code} {written}"


@attack("3.25", "a disk that is full at the first page of the database", expected="exit 2, one line: disk is full")
def full_disk(folder: Path) -> str:
    answer = limited(NO_ROOM, folder, "eval", base(folder), ONE, "--out=e")
    full = len(answer.lines) == 1 and any(
        word in answer.err for word in ("disk is full", "too large", "No space", "disk I/O")
    )
    return f"exit {answer.code}, one line: disk is full" if full else f"{answer} {answer.err[-300:]}"


@attack("3.26", "runs with a damaged or missing file", expected="5 of 5 refused in one line")
def damaged_runs(folder: Path) -> str:
    def damage(name: str, file: str, data: bytes | None) -> list[str]:
        run_of_a_ladder(folder / name)
        (folder / name / file).unlink(missing_ok=True)
        if data is not None:
            (folder / name / file).write_bytes(data)
        return ["report", name]

    commands = [
        damage("sqlite", "run.sqlite", b"not a database" + bytes(4096)),
        damage("config", "config.json", b"{"),
        damage("summary", "summary.json", b"{"),
        damage("missing", "run.sqlite", None),
        ["ladder", "--out", damage("nothing", "run.sqlite", b"")[1]],
    ]
    return refusals(folder, commands)


REMEDY = "give what it was made with, another --out, or --clean to delete it and start over"


@attack(
    "3.27",
    "the directory of another checkpoint, and of another command",
    expected=f"exit 2: agentq: e was made with checkpoint base; got other: {REMEDY}; exit 2: agentq: e was made by "
    "agentq eval; got agentq train rft: choose another --out",
)
def directory_of_another(folder: Path) -> str:
    agentq("eval", base(folder), ONE, "--out=e", cwd=folder)
    config = folder / base(folder, "other") / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "note": 1}))
    return f"{said(folder, 'eval', 'other', ONE, '--out=e')}; {said(folder, 'train', 'rft', '--out=e')}"


@attack(
    "3.28",
    "a finished run with more held-out tasks",
    expected="the first kept, 16 more: 17 of 17",
)
def extended(folder: Path) -> str:
    agentq("eval", base(folder), ONE, "--out=e", cwd=folder)
    first = (folder / "e" / "summary.json").read_text()
    done = agentq("eval", "base", "--eval.num_tasks=17", "--out=e", "--json", cwd=folder)
    found = json.loads((folder / "e" / "summary.json").read_text())[-1]
    with RunStore.read(folder / "e") as store:
        tasks = {t.task.seed for t in store.trajectories("eval")}
    kept = "the first kept" if json.loads(first)[-1]["n"] == 1 and done.code == 0 else str(done)
    return f"{kept}, 16 more: {len(tasks)} of {found['n']}"


@attack(
    "3.29",
    "a second writer in one directory",
    expected="exit 2: agentq: tw must have one writer; it is open in another process",
)
def second_writer(folder: Path) -> str:
    config = {"command": "ladder", **Ladder().to_dict()}
    with RunStore.open(folder / "tw", config) as store:
        store.log("base/eval", 1, loss=0.5)
        return str(agentq("ladder", "--out=tw", cwd=folder)).replace(f"{folder}/", "")


@attack(
    "3.39",
    "Ctrl-C in a run whose directory has a blank in its name, then the line that it prints",
    expected="exit 130; the line has the words that were given",
)
def interrupted(folder: Path) -> str:
    words = ["eval", base(folder), "--out", "tr 1é", "--eval.num_tasks", "500"]
    command = [sys.executable, "-m", "agentq", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env={**os.environ}, **pipes) as process:  # type: ignore[call-overload]
        while process.poll() is None and not (folder / "tr 1é" / "config.json").exists():
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    line = err.strip().splitlines()[-1].partition("go on with: ")[2]
    same = "the" if shlex.split(line)[1:] == words else "not the"
    return f"exit {process.returncode}; the line has {same} words that were given"
