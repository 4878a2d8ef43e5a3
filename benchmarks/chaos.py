"""Faults, drawn from a seed, in the middle of whole `agentq train` commands; each run must end as an undisturbed one.

    python benchmarks/chaos.py [--faults 100] [--first 0] [--seed 0] [--only KIND] [--out chaos.jsonl] [--json]

Fault i is of kind i modulo their number, at a moment drawn from (seed, i). After it the same command is given again, at
most `GIVEN` times in all, until it ends well. It has passed if then

- the items are those of the undisturbed run, with equal trees and tokens where the world broke nothing;
- the trained checkpoint loads; its weights are equal where all items are;
- no process of the run, partial or temporary file, or lock is left.

A fault that met nothing, since the run had ended or had no such process, is repeated at another moment. Each result is
a line of `--out`, and the undisturbed runs stay in a directory beside it; the same command goes on after the last line.
A full disk needs root, which mounts a small one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from chaos_child import FAULTS, STRUCK
from chaos_faults import (
    INLINE,
    KINDS,
    LIMIT_S,
    Run,
    command_line,
    filler,
    mount,
    new_servers,
    started_by,
    unmount,
)
from chaos_network import Servers
from machine import commit, machine, target
from safetensors.numpy import load_file

from agentq.store.directory import OWN_FILES
from agentq.store.run import RunStore

GIVEN = 4  # times that a command is given
REPEATS = 4  # of a fault that met nothing
WRITES = 9  # of items and notes in a run


def wait_for(holds: Callable[[], bool], run: Run) -> None:
    while not holds() and run.process.is_alive() and time.monotonic() < run.begun + LIMIT_S:
        time.sleep(0.05)


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


def verdict(out: Path, temporary: Path, expected: tuple[dict[Any, Any], dict[str, Any]], codes: list[int]) -> str:
    """What is wrong with the end of a run; empty if nothing is."""
    if codes[-1] != 0:
        return f"exit codes {codes}"
    give_up = time.monotonic() + 20
    while (left := started_by(temporary)) and time.monotonic() < give_up:
        time.sleep(0.2)
    if left:
        return f"{len(left)} processes are left: {command_line(left[0])[:100]}"
    strange = [
        *(p for p in out.rglob(".*") if p.name != ".lock"),
        *(p for p in out.iterdir() if p.name not in OWN_FILES),
        *temporary.iterdir(),
    ]
    if strange:
        return f"left behind: {strange[0]}"
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
    """Undisturbed runs and servers by world, made when first needed."""

    def __init__(self, folder: Path) -> None:
        """`folder` keeps the undisturbed runs."""
        self.folder = folder
        self.servers: dict[str, Servers | None] = {}
        self.known: dict[str, tuple[Any, float]] = {}

    def close(self) -> None:
        for servers in self.servers.values():
            if servers is not None:
                servers.close()

    def words(self, world: str) -> list[str]:
        """What makes a command one of this world."""
        if world not in self.servers:
            self.servers[world] = new_servers(world)
        servers = self.servers[world]
        return [f"--run.env={world}"] if servers is None else servers.words

    def undisturbed(self, world: str) -> tuple[Any, float]:
        """Items and weights, and for how long it worked."""
        if world not in self.known:
            place = self.folder / world.replace("/", "-")
            out, span = place / "run", place / "span.json"
            if not span.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                run = Run(out, place, [*INLINE, *self.words(world)])
                wait_for(run.collects, run)
                begun = time.monotonic()
                if (code := run.wait()) != 0:
                    raise RuntimeError(f"{world}: exit code {code}: {(place / 'said.txt').read_text()[-500:]}")
                span.write_text(json.dumps(time.monotonic() - begun))
            self.known[world] = state(out), json.loads(span.read_text())
        return self.known[world]

    def one(self, i: int, seed: int, kinds: list[str]) -> dict[str, Any]:
        """Fault number `i`."""
        rng, name = random.Random(f"{seed}/{i}"), kinds[i % len(kinds)]
        kind = KINDS[name]
        world = kind.worlds[i // len(kinds) % len(kind.worlds)]
        expected, span_s = self.undisturbed(world)
        begun = time.monotonic()
        for repeat in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                moment = rng.random() / 2**repeat
                place, disk = Path(folder), Path(folder) / "disk"
                mount(disk) if kind.small else disk.mkdir()
                try:
                    struck, codes = self._disturbed(name, world, disk / "run", place, moment * span_s, rng)
                    wrong = verdict(disk / "run", place / "tmp", expected, codes)
                finally:
                    if kind.small:
                        unmount(disk)
                lines = (place / "said.txt").read_text().splitlines()
                said = [line for line in lines if line.startswith(("agentq: ", STRUCK))]
                struck = struck or STRUCK in said
            if struck or wrong:
                break
        row = {"fault": i, "kind": name, "world": world, "struck": struck, "codes": codes}
        row |= {"seconds": round(time.monotonic() - begun, 1), "said": said}
        return row | {"wrong": wrong if struck else wrong or "met nothing"}

    def _disturbed(
        self, name: str, world: str, out: Path, folder: Path, after_s: float, rng: random.Random
    ) -> tuple[bool, list[int]]:
        """Give the command with one fault, and then again. Returns whether it struck, and the exit codes."""
        kind, codes, struck = KINDS[name], list[int](), False
        words = [*kind.words, *self.words(world)]
        fault = (name, rng.randint(1, WRITES)) if name in FAULTS else None
        for attempt in range(GIVEN):
            run = Run(out, folder, words, None if attempt else fault)
            if attempt == 0 and kind.strike is not None:
                wait_for(run.collects, run)
                time.sleep(after_s)
                struck = run.process.is_alive() and kind.strike(run, self.servers[world], rng)
            codes.append(run.wait())
            filler(out).unlink(missing_ok=True)
            if codes[-1] == 0:
                break
        return struck, codes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the fault to begin with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--out", type=Path, default=Path("chaos.jsonl"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "AGENTQ_NO_SANDBOX": "1"}
    kinds = [args.only] if args.only else list(KINDS)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    chaos = Chaos(args.out.absolute().with_suffix(""))
    try:
        with args.out.open("a") as lines:
            for i in range(args.first + len(rows), args.faults):
                rows.append(chaos.one(i, args.seed, kinds))
                print(rows[-1], file=sys.stderr, flush=True)
                lines.write(json.dumps(rows[-1]) + "\n")
                lines.flush()
    finally:
        chaos.close()
    passed = sum(not row["wrong"] for row in rows)
    report = {"commit": commit(), "machine": machine("torch"), "passed": passed, "of": len(rows)}
    report["targets"] = {"share of faults survived": target(passed / max(1, len(rows)), 1.0)}
    print(json.dumps(report | {"rows": rows}) if args.json else report)


if __name__ == "__main__":
    main()
