"""Self-correction by rung: the share of episodes that take a wrong step and still succeed.

    python benchmarks/correction.py RUN [RUN ...] [--first N] [--json]

RUN is a run directory on `booking`, `booking/several` or `shop`, such as `benchmarks/ladder.py` makes. Each held-out
episode is done again in process; the expert says how far each of its states is from the end. --first adds what the N
most frequent first wrong steps of the failures did.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from agentq import envs
from agentq.evaluation.correction import Correction, self_correction
from agentq.evaluation.stats import wilson
from agentq.store.run import RunStore


def of_run(run: Path) -> dict[str, Correction]:
    """By rung of a run, those with held-out episodes."""
    found = {}
    with RunStore.read(run) as store:
        for stage in store.stages():
            rung, _, last = stage.rpartition("/")
            episodes = list(store.trajectories(stage)) if last == "eval" else []
            if episodes:
                name = episodes[0].task.env
                env = envs.make(name)
                assert isinstance(env, envs.WebEnv)
                found[rung or "eval"] = self_correction(env, envs.expert(name), episodes)
    return found


def row(own: list[Correction]) -> dict[str, Any]:
    """The figures of a rung over all runs."""
    strayed, corrected = sum(len(c.strayed) for c in own), sum(c.corrected for c in own)
    low, high = wilson(corrected, strayed) if strayed else (0.0, 1.0)
    return {
        "episodes": sum(c.episodes for c in own),
        "strayed": strayed,
        "corrected": corrected,
        "share": corrected / strayed if strayed else None,
        "low": low,
        "high": high,
        "lost": sum(c.lost for c in own),
        "wrong_steps": sum(c.steps for c in own),
        "circled": sum(c.circled for c in own),
        "first": dict(Counter(c.first[seed] for c in own for seed, won in c.strayed.items() if not won).most_common()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="first wrong steps to show per rung")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    by_rung: dict[str, list[Correction]] = {}
    for run in args.runs:
        for rung, correction in of_run(run).items():
            by_rung.setdefault(rung, []).append(correction)
    rows = {rung: row(own) for rung, own in by_rung.items()}
    if args.json:
        print(json.dumps(rows))
        return
    print(
        "| rung | episodes | with a wrong step | of these succeeded, 95 % interval | beyond repair | wrong steps "
        "| failed in circles |"
    )
    print(f"|{'---|' * 7}")
    for rung, r in rows.items():
        share = "-" if r["share"] is None else f"{r['share']:.1%} ({100 * r['low']:.0f} - {100 * r['high']:.0f})"
        cells = (rung, r["episodes"], r["strayed"], share, r["lost"], r["wrong_steps"], r["circled"])
        print(f"| {' | '.join(map(str, cells))} |")
    for rung, r in rows.items() if args.first else ():
        shown = list(r["first"].items())[: args.first]
        print(f"\n{rung}, first wrong steps of failures: {'; '.join(f'{what} {n}' for what, n in shown)}")


if __name__ == "__main__":
    main()
