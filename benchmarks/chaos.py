"""Faults, drawn from a seed, in the middle of whole `agentq train` commands; each run must end as an undisturbed one.

    python benchmarks/chaos.py [--faults 100] [--first 0] [--seed 0] [--only KIND] [--out chaos.jsonl] [--json]

Fault i is of kind i modulo their number, at a moment drawn from (seed, i). After it the same command is given again, at
most `GIVEN` times in all, until it ends well. It has passed if then

- the items are those of the undisturbed run, with equal trees and tokens where the world broke nothing;
- the trained checkpoint loads; its weights are equal where all items are;
- no process of the run, partial file or lock is left.

Each result is a line of `--out`. The same command goes on after the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from chaos_network import Broker
from machine import commit, machine, target
from safetensors.numpy import load_file

from agentq.store.directory import OWN_FILES
from agentq.store.run import RunStore

HERE = Path(__file__).parent
GIVEN = 4  # times that a command is given
LIMIT_S = 900.0  # for each
TRAIN = [
    *("train", "agent_q", "--run.num_rounds=1", "--run.num_tasks=3", "--search.num_iterations=3"),
    *("--search.num_proposals=2", "--train.batch_size=4", "--eval.num_tasks=2", "--eval.measure_base=false"),
]
WORKERS = ["--run.executor=processes", "--run.workers=2"]
MARK = "AGENTQ_CHAOS"  # in the environment of every process of a run


class Run:
    """A command under way in the directory `out`, with the words of its child script and of agentq."""

    def __init__(self, out: Path, words: list[str], child: list[str], served: str = "") -> None:
        self.out, self.begun = out, time.monotonic()
        where = [f"--run.env={served}"] if served else []
        environ = {**os.environ, MARK: str(out), "OMP_NUM_THREADS": "1", "AGENTQ_NO_SANDBOX": "1"}
        command = [sys.executable, str(HERE / "chaos_child.py"), *child, "--", *TRAIN, *words, *where, f"--out={out}"]
        self.said = (out.parent / "said.txt").open("a+")
        self.process = subprocess.Popen(command, env=environ, stdout=self.said, stderr=self.said, cwd=out.parent)

    def wait(self) -> int:
        """Exit code, at last."""
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.said.close()

    def pids(self, word: str = "") -> list[int]:
        """The processes of the run but the first one, whose command line has the word."""
        return [pid for pid in marked(self.out) if pid != self.process.pid and word in command_line(pid)]

    def collects(self) -> bool:
        """Whether the run has begun to collect, or has ended."""
        return self.process.poll() is not None or (self.out / "run.sqlite-wal").exists()


def marked(out: Path) -> list[int]:
    """Processes with the run's mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            alive = (place / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and f"{MARK}={out}\0".encode() in (place / "environ").read_bytes() + b"\0":
                found.append(int(place.name))
    return found


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def kill(pids: list[int], rng: random.Random) -> None:
    if pids:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)


# The kinds: what happens to a run that has begun to collect. Others happen in the child (`chaos_child.py`).


def driver(run: Run, rng: random.Random) -> None:
    run.process.kill()


def worker(run: Run, rng: random.Random) -> None:
    kill(run.pids("agentq.searching.worker"), rng)


def browser(run: Run, rng: random.Random) -> None:
    kill(run.pids("chrom"), rng)


def memory(run: Run, rng: random.Random) -> None:
    """A worker gets no memory any more."""
    for pid in rng.sample(found := run.pids("agentq.searching.worker"), min(1, len(found))):
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))


def full_disk(run: Run, rng: random.Random) -> None:
    """No file of the run grows any more."""
    sizes = [file.stat().st_size for file in run.out.glob("run.sqlite*")]
    with suppress(OSError):
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (max(sizes, default=0), resource.RLIM_INFINITY))


OUTSIDE: dict[str, tuple[Callable[[Run, random.Random], None], str, list[str]]] = {
    "driver": (driver, "booking", WORKERS),
    "worker": (worker, "booking", WORKERS),
    "memory": (memory, "booking", WORKERS),
    "full disk": (full_disk, "booking", WORKERS),
    "browser": (browser, "chromium/booking", []),
    "driver with browsers": (driver, "chromium/booking", []),
}
INSIDE = ("transaction", "read-only disk", "clock")  # see `chaos_child`
NETWORK = ("stall", "reset", "truncate", "server")  # between the run and an environment server; see `chaos_network`
KINDS = (*OUTSIDE, *INSIDE, *NETWORK)


@contextmanager
def served() -> Iterator[Broker]:
    """An environment server behind a network that fails when told to."""
    with Broker() as broker:
        yield broker


def wait_for(holds: Callable[[], bool], run: Run) -> None:
    while not holds() and run.process.poll() is None and time.monotonic() < run.begun + LIMIT_S:
        time.sleep(0.05)


def disturbed(kind: str, rng: random.Random, folder: Path, span_s: float) -> tuple[Path, list[int]]:
    """Give the command with one fault, and then again. Returns the directory, and the exit codes."""
    out, codes = folder / "run", []
    with ExitStack() as stack:
        broker = stack.enter_context(served()) if kind in NETWORK else None
        _, env, words = OUTSIDE.get(kind, (None, "booking", WORKERS))
        env = broker.name if broker else env
        child = [kind, str(rng.randrange(1, 12))] if kind in INSIDE else []
        for attempt in range(GIVEN):
            run = Run(out, [] if broker else words, [] if attempt else child, env)
            if attempt == 0 and kind not in INSIDE:
                wait_for(run.collects, run)
                time.sleep(rng.random() * span_s)
                broker.fail(kind) if broker else OUTSIDE[kind][0](run, rng)
            codes.append(run.wait())
            if codes[-1] == 0:
                break
    return out, codes


def state(out: Path) -> tuple[dict[tuple[str, str], Any], dict[str, Any]]:
    """Items by stage and key, None where the world broke something; and the trained weights."""
    items: dict[tuple[str, str], Any] = {}
    with RunStore.read(out) as store:
        for stage in store.stages():
            for tree in store.trees(stage):
                tokens = [None if p is None else p.token_ids.tolist() for p in tree.proposal]
                same = tree.parent.tolist(), tree.visit_count.tolist(), tree.value_sum.tolist(), tokens
                broken = bool(tree.info.get("faults")) or bool(tree.broken.any())
                items[stage, str(tree.task.seed)] = None if broken else same
            for t in store.trajectories(stage):
                tokens = [step.proposal.token_ids.tolist() for step in t.steps]
                items[stage, f"{t.task.seed}/{t.info['attempt']}"] = None if t.broken else (t.return_, tokens)
    return items, load_file(out / "checkpoints" / "agent_q" / "model.safetensors")


def verdict(out: Path, expected: tuple[dict[Any, Any], dict[str, Any]], codes: list[int]) -> str:
    """What is wrong with the end of a run; empty if nothing is."""
    if codes[-1] != 0:
        return f"exit codes {codes}"
    give_up = time.monotonic() + 20
    while (left := marked(out)) and time.monotonic() < give_up:
        time.sleep(0.2)
    if left:
        return f"{len(left)} processes are left: {command_line(left[0])[:100]}"
    strange = [str(p) for p in out.rglob(".*") if p.name != ".lock"] + [
        p.name for p in out.iterdir() if p.name not in OWN_FILES
    ]
    if strange:
        return f"left in the directory: {strange[0]}"
    RunStore.open(out, RunStore.read(out).config).close()  # its lock is free
    items, weights = state(out)
    if items.keys() != expected[0].keys():
        return f"{len(items)} items instead of {len(expected[0])}"
    differing = [key for key, item in items.items() if item is not None and item != expected[0][key]]
    if differing:
        return f"{len(differing)} items differ, first {differing[0]}"
    whole = all(item is not None for item in items.values())
    if whole and any(not np.array_equal(weights[name], value) for name, value in expected[1].items()):
        worst = max(float(np.abs(weights[name] - value).max()) for name, value in expected[1].items())
        return f"weights differ by {worst:g}"
    return ""


class Chaos:
    """Undisturbed runs by environment, made when first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, tuple[Any, float]] = {}

    def undisturbed(self, kind: str) -> tuple[Any, float]:
        """Items and weights, and for how long it worked."""
        env = "served" if kind in NETWORK else OUTSIDE.get(kind, (None, "booking", None))[1]
        if env not in self.known:
            out = self.folder / env.replace("/", "-") / "run"
            out.parent.mkdir()
            with ExitStack() as stack:
                name = stack.enter_context(served()).name if env == "served" else env
                run = Run(out, WORKERS if env == "booking" else [], [], name)
                wait_for(run.collects, run)
                begun = time.monotonic()
                if (code := run.wait()) != 0:
                    raise RuntimeError(f"{env}: exit code {code}: {(out.parent / 'said.txt').read_text()[-500:]}")
            self.known[env] = state(out), time.monotonic() - begun
        return self.known[env]

    def one(self, i: int, seed: int, kinds: tuple[str, ...]) -> dict[str, Any]:
        """Fault number `i`."""
        rng, kind = random.Random(f"{seed}/{i}"), kinds[i % len(kinds)]
        expected, span_s = self.undisturbed(kind)
        folder = self.folder / str(i)
        folder.mkdir()
        begun = time.monotonic()
        out, codes = disturbed(kind, rng, folder, span_s)
        wrong = verdict(out, expected, codes)
        said = (folder / "said.txt").read_text() if wrong else ""
        shutil.rmtree(folder)
        row = {"fault": i, "kind": kind, "codes": codes, "seconds": round(time.monotonic() - begun, 1), "wrong": wrong}
        return row | ({"said": said[-300:]} if wrong else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--out", type=Path, default=Path("chaos.jsonl"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kinds = (args.only,) if args.only else KINDS
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    with tempfile.TemporaryDirectory() as folder, args.out.open("a") as lines:
        chaos = Chaos(Path(folder))
        for i in range(len(rows), args.faults):
            rows.append(chaos.one(i, args.seed, kinds))
            print(rows[-1], file=sys.stderr, flush=True)
            lines.write(json.dumps(rows[-1]) + "\n")
            lines.flush()
    passed = sum(not row["wrong"] for row in rows)
    report = {"commit": commit(), "machine": machine("torch"), "passed": passed, "of": len(rows)}
    report["targets"] = {"share of faults survived": target(passed / max(1, len(rows)), 1.0)}
    print(json.dumps(report | {"rows": rows}) if args.json else report)


if __name__ == "__main__":
    main()
