"""One-line faults, each of which its tests must notice: `make mutants`.

    python -m tests.mutants [--only TEXT] [--jobs N] [--again] [--json]

First the tests must pass without a fault. Results are kept in build/mutants/results.jsonl by a digest of the fault, its
tests and the sources, so an interrupted run goes on where it stopped. Ends with 1 if a fault survived.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.mutants import FAULTS, core
from tests.mutants.attempt import LEAST_S, Outcome, Plain, attempt, digest
from tests.mutants.fault import ROOT, Fault

RESULTS = core.OBJECTS / "results.jsonl"
SLOWER = 5  # a fault's tests hang if they take so many times as long as without it
KILLED = ("killed", "crashed", "hung")

Found = dict[Fault | Plain, Outcome]


def main() -> None:
    args = _arguments()
    faults = [fault for fault in FAULTS if args.only in str(fault)]
    os.chdir(ROOT)
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    if any(fault.is_native for fault in faults):
        core.build_plain(args.jobs)
    if args.again:
        RESULTS.unlink(missing_ok=True)
    begun = time.monotonic()
    plain = list(dict.fromkeys(Plain(fault.tests, fault.is_native) for fault in faults))
    found = _try_all(plain, {}, args.jobs)
    if failed := [str(each) for each in plain if found[each].said != "survived"]:
        raise SystemExit("the tests must pass without a fault; they fail:\n" + "\n".join(failed))
    found = _try_all(faults, found, args.jobs)
    _report(faults, found, time.monotonic() - begun, args.json)
    raise SystemExit(any(found[fault].said not in KILLED for fault in faults))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose file or text contains this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at once")
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _try_all(trials: Sequence[Fault | Plain], known: Found, jobs: int) -> Found:
    """The outcomes of trials, earlier ones included. `known` has the outcomes without a fault."""
    earlier, digests = _earlier(), {trial: digest(trial) for trial in trials}
    found = {trial: earlier[digests[trial]] for trial in trials if digests[trial] in earlier}
    left = [trial for trial in trials if trial not in found]
    gc.freeze()  # what was imported is not visited again in every fork
    fork = multiprocessing.get_context("fork")  # a process has the modules that this one has imported
    begun = time.monotonic()
    with ProcessPoolExecutor(jobs, fork) as pool, RESULTS.open("a") as file:
        running = {pool.submit(attempt, trial, _limit(trial, known)): trial for trial in left}
        for done, each in enumerate(as_completed(running), start=1):
            trial, outcome = running[each], each.result()
            found[trial] = outcome
            to_go = (time.monotonic() - begun) / done * (len(left) - done) / 60
            at = f"{len(found)}/{len(trials)}, {to_go:.0f} min left:"
            said = outcome.said if isinstance(trial, Plain) or outcome.said in KILLED else outcome.said.upper()
            print(at, said, trial, file=sys.stderr)
            if outcome.said in (KILLED if isinstance(trial, Fault) else ("survived",)):
                print(json.dumps([digests[trial], *outcome]), file=file, flush=True)
    return known | found


def _earlier() -> dict[str, Outcome]:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {key: Outcome(*rest) for key, *rest in map(json.loads, lines)}


def _limit(trial: Fault | Plain, known: Found) -> float:
    if isinstance(trial, Plain):
        return 60 * LEAST_S
    return LEAST_S + SLOWER * known[Plain(trial.tests, trial.is_native)].seconds


def _report(faults: Sequence[Fault], found: Found, seconds: float, as_json: bool) -> None:
    said = Counter(found[fault].said for fault in faults)
    left = [f"{found[fault].said}: {fault}" for fault in faults if found[fault].said not in KILLED]
    cpu = sum(outcome.cpu_seconds for outcome in found.values())
    figures = {"faults": len(faults), **said, "left": left}
    figures |= {"minutes": round(seconds / 60, 1), "cpu_minutes": round(cpu / 60, 1)}
    if as_json:
        print(json.dumps(figures))
        return
    how = ", ".join(f"{n} {word}" for word, n in sorted(said.items()))
    print(f"{len(faults) - len(left)} of {len(faults)} faults killed ({how}) in {seconds / 60:.0f} min", end="")
    print(f", {figures['cpu_minutes']} min of CPU time with earlier runs")
    for line in left:
        print(line)


if __name__ == "__main__":
    main()
