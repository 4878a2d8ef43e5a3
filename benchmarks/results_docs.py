"""Tables of held-out success in the pages: `python benchmarks/results.py --docs` writes them.

A table stands between two comments. The first says what it shows:

    <!-- results: ladder shop greedy, oracle | base; rft; agent_q | seeds mean difference -->
    <!-- /results -->

Table, environment and ways of measuring; then the rows in their order; then the columns, see `COLUMNS`. A row has what
the first has of it, else what a later one has, with that one's name. `<!-- results: targets ladder -->` is the
table of the differences in `results.TARGETS` of tables whose name begins so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ladder import PAPER

from agentq.evaluation.stats import wilson

BLOCK = re.compile(r"<!-- results: (.*?) -->\n.*?<!-- /results -->", re.S)
Row = dict[str, Any]


def fill(page: str, tables: Sequence[Row], targets: Callable[[str], str]) -> str:
    """The page with its tables made anew from `results.tables`; `targets` makes the differences of a prefix."""

    def made(block: re.Match[str]) -> str:
        about = " ".join(block[1].split())
        kind, _, prefix = about.partition(" ")
        table = targets(prefix) if kind == "targets" else _table(about, tables)
        return f"<!-- results: {block[1]} -->\n\n{table}\n\n<!-- /results -->"

    return BLOCK.sub(made, page)


def _table(about: str, tables: Sequence[Row]) -> str:
    key, names, columns = (part.strip() for part in about.split("|"))
    name, env, ways = key.split(maxsplit=2)
    measured, rows = [way.strip() for way in ways.split(",")], []
    groups = {t["measured"]: t for t in tables if (t["table"], t["env"]) == (name, env)}
    for row in (each.strip() for each in names.split(";")):
        how = next((each for each in measured if row in _rows(groups, each)), None)
        if how is None:
            raise SystemExit(f"{row} must be a row of {name}, {env} ({', '.join(measured)}); known: {_known(groups)}")
        found = _rows(groups, how)[row] | {"env": env, "sampled": _rows(groups, "sampled").get(row)}
        if how != measured[0]:
            found.pop("difference", None)  # from another first row
        rows.append((row if how == measured[0] else f"{row}, {how}", found))
    heads = [COLUMNS[column][0] for column in columns.split()]
    first = groups[measured[0]]["first"]
    titles = [head.format(first=first, tasks=rows[0][1]["tasks"], how=measured[0]) for head in heads]
    lines = [f"| row | {' | '.join(titles)} |", f"|{' --- |' * (len(titles) + 1)}"]
    for title, row in rows:
        lines.append(f"| {title} | {' | '.join(COLUMNS[column][1](row) for column in columns.split())} |")
    return "\n".join(lines)


def _rows(groups: dict[str, Row], measured: str) -> dict[str, Row]:
    return {row["row"]: row | {"how": measured} for row in groups.get(measured, {"rows": []})["rows"]}


def _known(groups: dict[str, Row]) -> str:
    return "; ".join(sorted({row for measured in groups for row in _rows(groups, measured)}))


def _seeds(row: Row) -> str:
    return ", ".join(_figure(row, rate) for rate in row["rates"])


def _mean(row: Row | None) -> str:
    """Of several seeds with Student's t over them, of one with Wilson's interval over its tasks."""
    if row is None:
        return ""
    low, high, mean = row["low"], row["high"], _figure(row, row["mean"])
    if row["how"] == "rollouts":
        return mean if low is None else f"{mean} ({_figure(row, low)} to {_figure(row, high)})"
    if low == high and low is not None:
        return mean
    told = "; one seed" if low is None else ""
    if low is None:
        low, high = wilson(round(row["mean"] * row["tasks"]), row["tasks"])
    return f"{mean} ({_figure(row, max(0, low))} to {_figure(row, min(1, high))}{told})"


def _difference(row: Row) -> str:
    if not (gap := row.get("difference")):
        return ""
    spans = [("low", "high"), ("low_tasks", "high_tasks")][gap["low"] is None :]
    told = "; ".join(f"{_figure(row, gap[a], '+')} to {_figure(row, gap[b], '+')}" for a, b in spans)
    return f"{_figure(row, gap['mean'], '+')} ({told})"


def _figure(row: Row, value: float, sign: str = "") -> str:
    """Per cent, or rollouts."""
    return f"{value:{sign}.2f}" if row["how"] == "rollouts" else f"{100 * value:{sign}.1f}"


def _scenarios(row: Row) -> str:
    solved = [each for each in row.get("scenarios", ()) if each]
    if not solved:
        return ""
    return f"{', '.join(str(round(each['successes'])) for each in solved)} of {round(solved[0]['n'])}"


def _steps(row: Row) -> str:
    few, many = min(row["env_steps"]), max(row["env_steps"])
    if many == 0:
        return ""
    return f"{few:,}" if few == many else f"{few:,} to {many:,}"


def _paper(row: Row) -> str:
    found = PAPER.get(row["env"], {}).get(row["row"])
    return "" if found is None else f"{found:.1f}"


COLUMNS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "seeds": ("{how} by seed, {tasks} tasks each", _seeds),
    "mean": ("mean (95 % over seeds)", _mean),
    "difference": ("- {first} (over seeds; over tasks)", _difference),
    "sampled": ("sampled (95 % over seeds)", lambda row: _mean(row["sampled"])),
    "scenarios": ("scenarios by seed", _scenarios),
    "steps": ("env. steps", _steps),
    "paper": ("paper", _paper),
}
