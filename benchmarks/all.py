"""Is agentq as good as its benchmarks say? Runs a short form of each, one after another, and names the missed targets.

    make bench-all [ARGS="--only forest startup"] [ARGS=--json]

Each short form has a time limit, at which it and all that it started are killed, and the whole run has one of 40
minutes: what has no time left FAILED. A target that an earlier run met and this one misses is marked REGRESSED;
build/bench-all.json remembers the targets met. A benchmark whose packages are missing is SKIPPED. Ends with 1 if a
target is missed or a benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine import commit, machine

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "bench-all.json"
OUT = "{out}"  # in the words of a short form: an empty directory


@dataclass(frozen=True, slots=True)
class Short:
    """The short form of one benchmark: `words` after its name, seconds at most, files and packages that it needs.

    `judged`: whether so short a form can meet the benchmark's targets; if not, it is only run.
    """

    name: str
    words: tuple[str, ...]
    seconds: int
    needs: tuple[str, ...] = ()
    judged: bool = True


BROWSERGYM = "build/browsergym/bin/python"
LADDER = (
    *("--seeds", "0", "--out", OUT, "--results", OUT, "--run.num_tasks=2", "--rft.num_tasks=8", "--eval.num_tasks=4"),
    *("--search.num_iterations=2", "--eval.num_iterations=2"),
)
SHORT = (
    Short("startup", ("--repeats", "2"), 90),
    Short("forest", ("--rounds", "2", "--seconds", "0.1"), 150),
    Short("forest_gain", (), 150),
    Short("models", ("--only", "answers"), 60),
    Short("inference", ("--only", "driver"), 120),
    Short("architectures", ("Llama", "Qwen2"), 60),
    Short("learner", ("--quick", "--repeats", "1"), 300, ("build/peers/bin/python",)),
    Short("critic", ("--env", "booking", "--tasks", "10"), 90),
    Short("judge", ("--tasks", "10"), 90),
    Short("constrained", ("--tasks", "10"), 90),
    Short("selection", ("rules", "--tasks", "2", "--seeds", "0", "--envs", "booking", "--out", OUT), 80),
    Short("alpha", ("--tasks", "2", "--seeds", "0", "--iterations", "2", "--out", OUT, "--results", OUT), 40),
    Short("proposals", ("--tasks", "2", "--seeds", "0", "--iterations", "2", "--out", OUT, "--results", OUT), 40),
    Short("ladder", LADDER, 300, judged=False),
    Short("methods", ("loop", "--only", "grpo", "--quick", "--out", OUT), 120),
    Short("miniwob_loop", ("--quick", "--out", OUT), 180, ("browser",)),
    Short("browser", ("--rounds", "1", "--episodes", "2", "--sessions", "1", "--peer-sessions"), 120, ("browser",)),
    Short("face", ("--trees", "100", "--searches", "1"), 120, ("browser",)),
    Short("worlds", ("--tasks", "10", "--trees", "8", "--hostile", "40"), 60),
    Short("hostile", ("--episodes", "20"), 90, ("browser",)),
    Short("remote", ("--tasks", "2"), 60, (BROWSERGYM,)),
    Short("sampling", ("--trees", "4", "--rollouts", "1", "--repeats", "1"), 60),
    Short("executor", ("--trees", "16", "--iterations", "3", "--repeats", "1"), 90, judged=False),
    Short("gpu", ("--shape", "tiny", "--device", "cpu", "--part", "gradients", "attention", "--out", OUT), 120),
    Short("attacks", (), 420, ("browser",)),
)
MOST_S = 40 * 60
WITHOUT = {  # a short form, and why
    "chaos": "a fault takes a whole training",
    "correction": "reads what was measured",
    "deeds": "reads what was measured",
    "demo": "trains for minutes",
    "engines": "needs two vLLM servers",
    "flaky": "trains for minutes",
    "games": "trains for an hour",
    "gates": "needs a checkpoint that is to pass",
    "labels": "reads what was collected",
    "learnt": "reads and measures what was trained",
    "rates": "trains for hours",
    "results": "reads what was measured",
    "rounds": "trains for hours",
    "scale": "simulates a cluster from its own measurements",
    "testtime": "trains for hours",
    "web": "needs the applications of make apps",
}


@dataclass(slots=True)
class Result:
    """What came out of one benchmark: seconds, its targets, and why there are none."""

    name: str
    seconds: float = 0.0
    cpu_s: float = 0.0
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: str = ""
    skipped: str = ""


def run(short: Short, python: str, most_s: float = MOST_S) -> Result:
    """Run one short form in a process of its own, for at most its seconds and `most_s`."""
    result, limit = Result(short.name), min(short.seconds, most_s)
    for need in short.needs:
        if need == "browser" and not _has_browser():
            result.skipped = "no Chromium: make browser"
        if "/" in need and not (ROOT / need).exists():
            result.skipped = f"no {need}: make bench-setup"
    if limit <= 0:
        result.failed = f"not begun: the {MOST_S // 60} minutes are over"
    if result.skipped or result.failed:
        return result
    begun, before = time.monotonic(), os.times()
    with tempfile.TemporaryDirectory() as out:
        words = [out if word == OUT else word for word in short.words]
        command = [python, str(ROOT / "benchmarks" / f"{short.name}.py"), "--json", *words]
        done = _ended(command, limit)
    after = os.times()
    result.seconds = time.monotonic() - begun
    result.cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    if done is None:
        result.failed = f"not done after {limit:.0f} s"
    else:
        try:
            found = json.loads((done.stdout.splitlines() or [""])[-1]).get("targets", {})
            result.targets = found if short.judged else {}
        except json.JSONDecodeError:
            result.failed = f"exit code {done.returncode}: {(done.stderr.splitlines() or ['no output'])[-1]}"
    return result


def _ended(command: Sequence[str], limit: float) -> subprocess.CompletedProcess[str] | None:
    """The command once it has ended; None if that takes longer. All that it started ends then, too."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it left, too
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _has_browser() -> bool:
    from agentq.envs.browser.pool import BrowserPool
    from agentq.errors import AgentqError

    try:
        with BrowserPool() as pool:
            pool.open(["http://127.0.0.1"]).close()
    except AgentqError:
        return False
    return True


def earlier() -> dict[str, bool]:
    """Whether an earlier run met a target, by `benchmark: target`."""
    met: dict[str, bool] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return met


def verdicts(result: Result, met_before: dict[str, bool]) -> dict[str, str]:
    """`met`, `MISSED` or `REGRESSED` by target."""
    found = {}
    for name, goal in result.targets.items():
        regressed = not goal["met"] and met_before.get(f"{result.name}: {name}", False)
        found[name] = "met" if goal["met"] else "REGRESSED" if regressed else "MISSED"
    return found


def show(result: Result, verdict: dict[str, str]) -> None:
    """One line for the benchmark, one more for each target that it missed."""
    if result.skipped or result.failed:
        what = f"SKIPPED, {result.skipped}" if result.skipped else f"FAILED, {result.failed}"
    else:
        what = f"{sum(text == 'met' for text in verdict.values())} of {len(verdict)} targets met"
    print(f"{result.name:14} {result.seconds:5.0f} s {result.cpu_s:5.0f} CPU s  {what}", flush=True)
    for name, text in verdict.items():
        if text != "met":
            goal = result.targets[name]
            value, aim = (f"{x:.4g}" if isinstance(x, int | float) else str(x) for x in (goal["value"], goal["target"]))
            print(f"    {text}: {name}: {value}, target {aim}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if a target is missed or a benchmark fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[short.name for short in SHORT], help="benchmarks; default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    args = parser.parse_args(argv)
    os.environ.setdefault("AGENTQ_NO_SANDBOX", "1")  # pages are of its own, and root has no sandbox
    before, results, begun = earlier(), list[Result](), time.monotonic()
    for short in SHORT:
        if args.only is None or short.name in args.only:
            results.append(run(short, sys.executable, MOST_S - (time.monotonic() - begun)))
            show(results[-1], verdicts(results[-1], before))
    met = {f"{r.name}: {name}": bool(goal["met"]) for r in results for name, goal in r.targets.items()}
    failed = [r.name for r in results if r.failed]
    print(f"{sum(met.values())} of {len(met)} targets met, {len(failed)} benchmarks failed, ", end="")
    print(f"{sum(bool(r.skipped) for r in results)} skipped, {sum(r.seconds for r in results) / 60:.0f} minutes")
    if args.only is None:
        print("without a short form: " + ", ".join(f"{name} ({why})" for name, why in WITHOUT.items()))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({name: before.get(name, False) or now for name, now in (before | met).items()}) + "\n"
    )
    if args.json:
        targets = {f"{r.name}: {name}": goal for r in results for name, goal in r.targets.items()}
        report = {"figures": [asdict(r) for r in results], "targets": targets}
        print(json.dumps(report | {"machine": machine("numpy", "torch", "playwright"), "commit": commit()}))
    return int(not all(met.values()) or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
