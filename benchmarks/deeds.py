"""What single decisions do to success: the share of episodes with an action, and success with and without it.

    python benchmarks/deeds.py "SELECT combobox Party" "SELECT combobox Time" --runs runs/ladder/booking-seed*:rft

An action counts by its command and the name of its element, as in `agentq compare`. Prints a Markdown table, or with
--json one JSON object per measurement in a list.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from agentq.evaluation.comparison import deed
from agentq.report.compare import read_measured


def figures(run: str, deeds: Sequence[str]) -> dict[str, Any]:
    """Success and n of a measurement, and for each deed `[with it, solved with it, solved without it]`."""
    measured = read_measured(run)
    found = [({deed(step).what for step in t.steps}, t.success) for t in measured.episodes if not t.broken]
    counts = {}
    for what in deeds:
        own = [won for done, won in found if what in done]
        counts[what] = [len(own), sum(own), sum(won for done, won in found if what not in done)]
    return {"run": measured.name, "n": len(found), "solved": sum(won for _, won in found), "deeds": counts}


def table(rows: Sequence[dict[str, Any]], deeds: Sequence[str]) -> str:
    """Markdown: a row per measurement."""
    heads = [f"{what} | solved with it | without it" for what in deeds]
    lines = [f"| run | solved | {' | '.join(heads)} |", "|---|---" + "|---|---|---" * len(deeds) + "|"]
    for row in rows:
        cells = [row["run"], f"{row['solved']} of {row['n']}"]
        for have, won, without in row["deeds"].values():
            cells += [str(have), f"{won} of {have}", f"{without} of {row['n'] - have}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deeds", nargs="+", metavar="DEED", help="such as 'SELECT combobox Party'")
    parser.add_argument("--runs", nargs="+", required=True, metavar="RUN[:RUNG]")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [figures(run, args.deeds) for run in args.runs]
    print(json.dumps(rows) if args.json else table(rows, args.deeds))


if __name__ == "__main__":
    main()
