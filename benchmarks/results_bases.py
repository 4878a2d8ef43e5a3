"""Tables of what bases read and judge, from the lines that `gates.py` and `judge.py` log in `benchmarks/results`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GATES = {  # columns, in order: how a gate is called in the log
    "quoted": ("copy", "quoted"),
    "plain": ("copy", "plain"),
    "one of several": ("copy", "one of several"),
    "form": ("copy", "form"),
    "pick": ("copy", "pick"),
    "boxes": ("copy", "boxes"),
    "pages of `shop`": ("verdicts", "verdicts"),
    "actions there": ("verdicts", "actions"),
    "numbers": ("verdicts", "numbers"),
    "critic, `booking`": ("critic", "booking"),
    "critic, `shop`": ("critic", "shop"),
    "judge, `booking`": ("judge", "booking"),
    "judge, `shop`": ("judge", "shop"),
}


def gates(about: str, results: Path) -> str:
    """A row per base, in per cent, under the aim of each gate and the number of its questions.

    `about` names them as `86 M = reading 3; 205 M = reading-205 1 2`: a title, the log's name behind `gates-`, and its
    lines, counted from 1, that together have this base's gates. Where bases had different numbers of questions, each
    cell has its own.
    """
    bases = {title.strip(): _read(results, log) for title, log in (each.split("=") for each in about.split(";"))}
    asked = {gate: {base[gate]["n"] for base in bases.values() if gate in base} for gate in GATES}
    shown = [gate for gate in GATES if asked[gate]]
    aims = [next(base[gate]["target"] for base in bases.values() if gate in base) for gate in shown]
    lines = [
        ["base", *shown, "gates met"],
        ["---"] * (len(shown) + 2),
        ["aim", *(f"{100 * aim:.0f}" for aim in aims), ""],
        ["n", *(str(*asked[gate]) if len(asked[gate]) == 1 else "" for gate in shown), ""],
    ]
    for title, base in bases.items():
        cells = [_cell(base.get(gate), len(asked[gate]) > 1) for gate in shown]
        lines.append([title, *cells, f"{base['all']['met']} of {base['all']['n']}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _read(results: Path, about: str) -> dict[str, dict[str, Any]]:
    """By gate its figure and its target in one, and the count of all targets. `about` names a log and its lines."""
    name, *numbers = about.split()
    log = (results / f"gates-{name}.jsonl").read_text().splitlines()
    found: dict[str, dict[str, Any]] = {}
    targets: dict[str, dict[str, Any]] = {}
    for line in (json.loads(log[int(number) - 1]) for number in numbers):
        targets |= line["targets"]
        for gate, (part, key) in GATES.items():
            if figure := line["figures"].get(part, {}).get(key):
                found[gate] = figure | targets[f"{part}: {key}"]
    return found | {"all": {"met": sum(target["met"] for target in targets.values()), "n": len(targets)}}


def _cell(gate: dict[str, Any] | None, with_n: bool) -> str:
    if gate is None:
        return ""
    return f"{100 * gate['share']:.1f} ({gate['n']})" if with_n else f"{100 * gate['share']:.1f}"


def judges(about: str, results: Path) -> str:
    """A row per site and judge: where it agrees with the checker. Under each site's judges stands the rule.

    `about` names checkpoints, `reading; reading-220`. The last line of `judge.jsonl` about a judge counts.
    """
    lines = map(json.loads, (results / "judge.jsonl").read_text().splitlines())
    logged = {Path(line["judge"]).name: line["figures"] for line in lines}
    names = [name.strip() for name in about.split(";")]
    rows = [["judge", "episodes, successes", "agrees", "approves a failure", "refuses a success"], ["---"] * 5]
    for site in logged[names[0]]:
        asked = [(f"`{name}`", logged[name][site]["model"], logged[name][site]) for name in names]
        for title, found, of in (*asked, ("rule", logged[names[0]][site]["numbers"], logged[names[0]][site])):
            agrees, *wrong = (found[key] for key in ("agreement", "false_positives", "false_negatives"))
            told = [f"{each['count']} of {each['n']}, {_share(each)}" for each in wrong]
            rows.append([f"{site}, {title}", f"{of['episodes']}, {of['successes']}", _share(agrees), *told])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _share(found: dict[str, Any]) -> str:
    low, high = (100 * bound for bound in found["interval"])
    return f"{100 * found['share']:.1f} % ({low:.1f} - {high:.1f})"
