"""Tables of held-out success in the pages: `python benchmarks/results.py --docs` writes them.

A table stands between two comments. The first says what it shows:

    <!-- results: ladder shop greedy, oracle | base; rft; agent_q | seeds mean difference -->
    <!-- /results -->

Table, environment and ways of measuring; then the rows in their order; then the columns, see `COLUMNS`. A row is taken
from the first way of measuring that has it, and named after it unless that is the first of all. `<!-- results: targets
ladder -->` is the table of the differences in `results.TARGETS` whose names begin so, and `<!-- results: correlations
methods-all booking greedy, sampled | grpo; ppo -->` that of the rank correlations between ways of measuring, over the
models of these rows, or of all. `<!-- results: noise ladder booking -->` is the table of `results_noise`, and
`<!-- results: gates 213 M = reading-213 1 -->` and `<!-- results: judges reading -->` are those of `results_bases`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ladder import PAPER

from agentq.evaluation.stats import wilson

BLOCK = re.compile(r"<!-- results: (.*?) -->\n.*?<!-- /results -->", re.S)
Row = dict[str, Any]
# Ways of measuring that have a column in the table of another.
OTHERS = ("temperature 0.5", "sampled", "resampled", "repeats", "sampled repeats")


def fill(page: str, tables: Sequence[Row], **made_by: Callable[[str], str]) -> str:
    """The page with its tables made anew from `results.tables`; `made_by` makes those of other kinds."""

    def made(block: re.Match[str]) -> str:
        about = " ".join(block[1].split())
        kind, _, rest = about.partition(" ")
        table = made_by[kind](rest) if kind in made_by else _table(about, tables)
        return f"<!-- results: {block[1]} -->\n\n{table}\n\n<!-- /results -->"

    return BLOCK.sub(made, page)


def _table(about: str, tables: Sequence[Row]) -> str:
    key, names, columns = (part.strip() for part in about.split("|"))
    name, env, ways = key.split(maxsplit=2)
    measured = [way.strip() for way in ways.split(",")]
    groups = {t["measured"]: t for t in tables if (t["table"], t["env"]) == (name, env)}
    known = {how: {row["row"]: row for row in group["rows"]} for how, group in groups.items()}
    rows = []
    for row in (each.strip() for each in names.split(";")):
        how = next((each for each in measured if row in known.get(each, {})), None)
        if how is None:
            those = "; ".join(sorted({row for rows in known.values() for row in rows}))
            raise SystemExit(f"{row} must be a row of {name}, {env} ({', '.join(measured)}); known: {those}")
        others = {way: known.get(way, {}).get(row) for way in OTHERS}
        found = known[how][row] | {"how": how, "env": env, **others}
        if how != measured[0]:
            found.pop("difference", None)  # from another first row
        rows.append((row if how == measured[0] else f"{row}, {how}", found))
    shown = [COLUMNS[column] for column in columns.split()]
    first, tasks = groups[measured[0]]["first"], rows[0][1]["tasks"]
    titles = [title.format(first=first, tasks=tasks, how=measured[0]) for title, _ in shown]
    lines = [f"| row | {' | '.join(titles)} |", f"|{' --- |' * (len(titles) + 1)}"]
    lines += [f"| {title} | {' | '.join(cell(row) for _, cell in shown)} |" for title, row in rows]
    return "\n".join(lines)


def figure(value: float, how: str, sign: str = "") -> str:
    """A number of rollouts if that was measured, else a share in per cent; `sign` "+" for differences."""
    return f"{value:{sign}.2f}" if how == "rollouts" else f"{100 * value:{sign}.1f}"


def between(low: float | None, high: float | None, how: str, sign: str = "") -> str:
    """`LOW to HIGH`, of a difference with its signs. A mean is not below 0, and a share not above 1."""
    if low is None or high is None:
        return "one seed"
    if not sign:
        low, high = max(0, low), high if how == "rollouts" else min(1, high)
    return f"{figure(low, how, sign)} to {figure(high, how, sign)}"


def _by_seed(row: Row | None, how: str) -> str:
    return ", ".join(figure(rate, how) for rate in row["rates"]) if row else ""


def _mean(row: Row | None, how: str) -> str:
    """With the interval over seeds; of one seed's success with Wilson's interval over its tasks."""
    if not row:
        return ""
    low, high, told = row["low"], row["high"], ""
    if low is None and how != "rollouts":
        low, high = wilson(round(row["mean"] * row["tasks"]), row["tasks"])
        told = "; one seed"
    mean = figure(row["mean"], how)
    return mean if low == high else f"{mean} ({between(low, high, how)}{told})"


def _difference(row: Row) -> str:
    if not (gap := row.get("difference")):
        return ""
    spans = [("low", "high"), ("low_tasks", "high_tasks")][gap["low"] is None :]
    told = "; ".join(between(gap[low], gap[high], row["how"], "+") for low, high in spans)
    return f"{figure(gap['mean'], row['how'], '+')} ({told})"


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
    "seeds": ("{how} by seed, {tasks} tasks each", lambda row: _by_seed(row, row["how"])),
    "mean": ("mean (95 % over seeds)", lambda row: _mean(row, row["how"])),
    "difference": ("- {first} (over seeds; over tasks)", _difference),
    "sampled": ("sampled (95 % over seeds)", lambda row: _mean(row["sampled"], "sampled")),
    "half": ("at temperature 0.5", lambda row: _mean(row["temperature 0.5"], "temperature 0.5")),
    "half_seeds": ("at temperature 0.5, by seed", lambda row: _by_seed(row["temperature 0.5"], "temperature 0.5")),
    "sampled_seeds": ("sampled, by seed", lambda row: _by_seed(row["sampled"], "sampled")),
    "resampled": ("repeats sampled again (95 % over seeds)", lambda row: _mean(row["resampled"], "resampled")),
    "resampled_seeds": ("repeats sampled again, by seed", lambda row: _by_seed(row["resampled"], "resampled")),
    "repeats": ("repeated steps by seed", lambda row: _by_seed(row["repeats"], "repeats")),
    "sampled_repeats": ("repeated steps, sampled", lambda row: _by_seed(row["sampled repeats"], "repeats")),
    "scenarios": ("scenarios by seed", _scenarios),
    "steps": ("env. steps", _steps),
    "paper": ("paper", _paper),
}
