"""Every table of held-out success, from the outcomes per task that are committed in `benchmarks/results`.

    python benchmarks/results.py [--table ladder] [--json] [--docs]

A row is a method. A difference compares it with the first row of its table on the same tasks and seeds. The interval
of a row, and the first of a difference, are Student's t over training seeds: they say what another training would give.
The second of a difference is a bootstrap over tasks within seeds. It holds for these trained models only. --docs
writes the tables of the pages (`results_docs.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations, groupby, product
from math import isfinite
from pathlib import Path
from statistics import correlation, fmean
from typing import Any

import outcomes
import results_docs
from outcomes import RESULTS, Outcomes, read
from results_bases import gates, judges
from results_docs import between, figure
from results_noise import noise

from agentq import envs
from agentq.evaluation.scenarios import scenario_completion
from agentq.evaluation.seeds import over_seeds

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "experiments.md", ROOT / "docs" / "methods.md")

OTHER_WAYS = ("temperature 0.5", "sampled")  # of measuring, which a table of targets shows beside greedy
# Rows that others are compared with, the first that a table has.
FIRST = ("base", "rft", "sft", "alpha 1", "clean", "T 0.8, K 5", "every success")
TARGETS = (  # (table, env, better row, other row): the interval over seeds must lie above 0
    *(("ladder", "booking", "agent_q_no_critic", other) for other in ("rft", "outcome_dpo")),
    ("ladder", "booking", "outcome_dpo", "rft"),
    ("ladder", "booking", "rft", "rft, with detours"),
    ("ladder", "booking", "agent_q", "rft"),
    ("ladder", "booking", "agent_q", "outcome_dpo"),
    ("ladder", "booking", "agent_q", "agent_q_no_critic"),
    ("ladder-reading", "shop", "rft", "base"),
    ("ladder-reading", "shop", "agent_q", "rft"),
    ("ladder-reading", "shop", "agent_q", "outcome_dpo"),
    ("ladder-reading", "shop", "agent_q", "agent_q_no_critic"),
    ("ladder-reading", "booking", "agent_q", "rft"),
    ("ladder-reading", "booking", "agent_q", "outcome_dpo"),
    ("ladder-reading", "booking", "agent_q", "agent_q_no_critic"),
    ("miniwob-reading", "miniwob", "agent_q", "sft"),
    ("methods-step_agent_shop-reading", "shop", "step_agent_implicit", "sft"),
    ("methods-step_agent_shop-reading", "shop", "step_agent_implicit", "sft, all"),
    ("methods-step_agent_shop-reading", "shop", "step_agent_inverse", "sft"),
    ("methods-step_agent_shop-reading", "shop", "step_agent_inverse", "sft, all"),
    ("methods-step_agent_textworld-reading", "textworld/3.5.3", "step_agent_implicit", "sft"),
    ("methods-step_agent_textworld-reading", "textworld/3.5.3", "step_agent_implicit", "sft, all"),
    ("methods-step_agent_textworld-reading", "textworld/3.5.3", "step_agent_inverse", "sft"),
    ("methods-step_agent_textworld-reading", "textworld/3.5.3", "step_agent_inverse", "sft, all"),
    ("methods-step_agent_textworld-reading", "textworld/3.5.3", "sft, all", "sft"),
    ("methods-step_agent-reading", "booking", "step_agent_implicit", "sft"),
    ("methods-step_agent-reading", "booking", "step_agent_implicit", "sft, all"),
    ("methods-step_agent-reading", "booking", "step_agent_inverse", "sft"),
    ("methods-step_agent-reading", "booking", "step_agent_inverse", "sft, all"),
    ("methods-all", "booking", "rft", "base"),
    ("methods-all", "booking", "step_agent_implicit", "sft"),
    ("methods-all", "booking", "step_agent_inverse", "sft"),
    ("methods-all", "booking", "agent_q", "rft"),
    ("methods-all", "booking", "agent_q", "outcome_dpo"),
    ("methods-all", "booking", "agent_q", "agent_q, no critic"),
    ("methods-all", "booking", "agent_q, no critic", "base"),
    ("methods-all", "booking", "agent_q, no critic", "rft"),
    ("methods-all", "booking", "agent_q, no critic", "outcome_dpo"),
    ("methods-all", "booking", "agent_q, no critic", "grpo"),
    ("methods-all", "booking", "agent_q", "agent_q, no replay"),
    ("methods-loop", "booking", "loop, ratio per trajectory", "loop, ratio per token"),
    ("methods-loop", "booking", "loop, ratio per trajectory", "loop, ratio per turn"),
    *(
        ("methods-loop", "booking", f"loop, ratio per {unit}", f"loop, ratio per {unit}, not clipped")
        for unit in ("token", "turn", "trajectory")
    ),
    *(
        ("methods-loop", "booking", f"loop, ratio per {unit}, constant", f"loop, ratio per {unit}")
        for unit in ("token", "turn", "trajectory")
    ),
    ("methods-loop", "booking", "loop, ratio per trajectory, constant", "loop, ratio per token, constant"),
    ("methods-apps-reading", "apps/1", "sft", "base"),
    ("methods-apps-reading", "apps/1", "rft", "sft"),
    ("methods-apps-reading", "apps/1", "agent_q", "sft"),
    ("methods-apps-reading", "apps/1", "loop, ratio per token", "sft"),
    ("methods-apps-reading", "apps/1", "loop, ratio per token", "loop, ratio per trajectory"),
    ("methods-apps-reading", "apps/1", "loop, ratio per token", "grpo"),
    ("methods-apps-reading", "apps/1", "loop, ratio per token", "rloo"),
    ("methods-apps-reading", "apps/1", "loop, ratio per token", "ppo"),
    ("methods-several-reading-100", "booking/several", "agent_q", "outcome_dpo"),
    ("methods-several-reading-100", "booking/several", "agent_q", "agent_q, no critic"),
    ("methods-several-reading-213", "booking/several", "rft", "base"),
    ("methods-several-reading-213", "booking/several", "agent_q", "outcome_dpo"),
    ("methods-several-reading-213", "booking/several", "agent_q", "agent_q, no critic"),
    ("methods-several-reading-213", "booking/several", "rft", "agent_q"),
    ("methods-several-reading-213", "booking/several", "rft", "rft, with detours"),
    ("miniwob", "miniwob", "agent_q", "sft"),
    ("miniwob-reading-236", "miniwob", "agent_q", "sft"),
    ("miniwob-reading-236", "miniwob", "agent_q, 2 rounds", "sft"),
    ("miniwob-reading-236", "miniwob", "agent_q, 2 rounds", "agent_q"),
    ("miniwob-reading-236", "miniwob", "agent_q, 10 demonstrations", "sft, 10 demonstrations"),
)
Key = tuple[str, str, str]


def key_of(each: Outcomes) -> Key:
    """Table, environment and way of measuring: what rows must share to be compared."""
    return each.table, each.env, each.measured


def tables(found: Sequence[Outcomes]) -> list[dict[str, Any]]:
    """One table per key, with its rows and their differences from its first row."""
    made = []
    for key, group in groupby(sorted(found, key=key_of), key_of):
        by_row: dict[str, dict[int, Outcomes]] = {}
        for each in group:
            by_row.setdefault(each.row, {})[each.seed] = each
        first = next((name for name in FIRST if name in by_row), min(by_row))
        rows = [row_of(name, seeds) | against(first, by_row[first], name, seeds) for name, seeds in by_row.items()]
        commands = sorted({each.command for seeds in by_row.values() for each in seeds.values()})
        made.append(
            {"table": key[0], "env": key[1], "measured": key[2], "first": first, "rows": rows, "made_by": commands}
        )
    return made


def row_of(name: str, seeds: dict[int, Outcomes]) -> dict[str, Any]:
    """A row's mean over seeds, with its interval, the rates of the seeds, and where they come from."""
    own = [seeds[seed] for seed in sorted(seeds)]
    rates = [fmean(each.tasks.values()) for each in own]
    about: dict[str, Any] = {
        "tasks": min(len(each.tasks) for each in own),
        "env_steps": [each.env_steps for each in own],
        "commits": sorted({each.commit for each in own}),
    }
    if own[0].measured == "sampled":
        about["attempts"] = [each.attempts for each in own]
    if own[0].measured == "greedy" and own[0].env.startswith("apps"):
        about["scenarios"] = [scenarios(each) for each in own]
    return {"row": name, "rates": rates, **_finite(asdict(over_seeds(rates))), **about}


def scenarios(of: Outcomes) -> dict[str, float] | None:
    """Scenarios solved in all their variants (SGC)."""
    names = [envs.task_from_seed(of.env, int(seed)).scenario for seed in of.tasks]
    return scenario_completion(names, [share == 1 for share in of.tasks.values()])


def against(first: str, ones: dict[int, Outcomes], name: str, others: dict[int, Outcomes]) -> dict[str, Any]:
    """The difference of a row from the first one, over their common seeds and tasks."""
    seeds = sorted(ones.keys() & others.keys())
    if name == first or not seeds:
        return {}
    return {"against": first, "difference": _finite(asdict(difference(others, ones, seeds)))}


def difference(a: dict[int, Outcomes], b: dict[int, Outcomes], seeds: Sequence[int]) -> Any:
    """The difference of two rows; with several attempts a task's outcome is the share of those that succeeded."""
    return outcomes.difference([(a[seed].tasks, b[seed].tasks) for seed in seeds])


def targets(found: Sequence[Outcomes]) -> dict[str, dict[str, Any]]:
    """What training must show, greedily; and the same in `OTHER_WAYS` of measuring, whose names end with the way.

    `met` is None where there are fewer than two seeds.
    """
    rows: dict[tuple[str, str, str, str], dict[int, Outcomes]] = {}
    for each in found:
        rows.setdefault((each.table, each.env, each.row, each.measured), {})[each.seed] = each
    made = {}
    for (table, env, better, other), how in product(TARGETS, ("greedy", *OTHER_WAYS)):
        a, b = rows.get((table, env, better, how), {}), rows.get((table, env, other, how), {})
        seeds, name = sorted(a.keys() & b.keys()), f"{table}, {env}: {better} above {other}"
        if how in OTHER_WAYS:
            if not seeds:
                continue
            name += f", {how}"
        found_gap = _finite(asdict(difference(a, b, seeds))) if seeds else {}
        low = found_gap["low"] if len(seeds) > 1 else None
        met = None if low is None else low > 0
        made[name] = {"value": low, "target": 0.0, "seeds": len(seeds), "met": met, "difference": found_gap}
    return made


def _finite(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in figures.items()}


def markdown(table: dict[str, Any]) -> str:
    """A table for docs/experiments.md: success in per cent, or rollouts until it."""
    how = table["measured"]
    what = "rollouts" if how == "rollouts" else "success"
    lines = [
        f"**{table['table']}, {table['env']}, {how}** ({'; '.join(table['made_by'])})\n",
        f"| row | seeds | {what}, mean (95 % over seeds) | - {table['first']} (95 % over seeds; over tasks) |",
        "| --- | --- | --- | --- |",
    ]
    for row in table["rows"]:
        gap = row.get("difference")
        said = f"{figure(gap['mean'], how, '+')} ({_over(gap, how)})" if gap else ""
        mean = f"{figure(row['mean'], how)} ({between(row['low'], row['high'], how)})"
        lines.append(f"| {row['row']} | {len(row['rates'])} x {row['tasks']} | {mean} | {said} |")
    return "\n".join(lines)


def pairs(goals: dict[str, dict[str, Any]], prefix: str = "") -> str:
    """A table of the differences that the targets are about, of those whose names begin with `prefix`."""
    shown = {name: goal for name, goal in goals.items() if name.startswith(prefix) and goal["difference"]}
    names = [name for name in shown if not name.endswith(tuple(f", {how}" for how in OTHER_WAYS))]
    if not names:
        return ""
    ways = [how for how in OTHER_WAYS if any(f"{name}, {how}" in shown for name in names)]
    rows = [["better than", "seeds", "points (95 % over seeds; over tasks)", *ways], ["---"] * (3 + len(ways))]
    for name in names:
        said = name.partition(": ")[2] if prefix else name
        others = [_told(shown.get(f"{name}, {how}")) for how in ways]
        rows.append([said, str(shown[name]["seeds"]), _told(shown[name]), *others])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _told(goal: dict[str, Any] | None) -> str:
    """A target's difference with its intervals."""
    return f"{figure(goal['difference']['mean'], '', '+')} ({_over(goal['difference'])})" if goal else ""


def written(page: str, found: Sequence[Outcomes]) -> str:
    """A page with its tables made from the outcomes."""
    goals = targets(found)
    return results_docs.fill(
        page,
        tables(found),
        targets=lambda prefix: pairs(goals, prefix),
        correlations=lambda key: correlations(found, key),
        noise=lambda key: noise(found, key),
        gates=lambda bases: gates(bases, RESULTS),
        judges=lambda names: judges(names, RESULTS),
    )


def correlations(found: Sequence[Outcomes], key: str) -> str:
    """Spearman's rank correlation of the success of trained models, by two ways of measuring each.

    `key`: table, environment, ways of measuring, and the rows behind `|` if not all, as in `results_docs`.
    """
    about, _, rows = key.partition("|")
    table, env, ways = about.split(maxsplit=2)
    only = {row.strip() for row in rows.split(";") if row.strip()}
    means: dict[str, dict[tuple[str, int], float]] = {way.strip(): {} for way in ways.split(",")}
    for each in found:
        if (
            (each.table, each.env) == (table, env)
            and each.row != "base"
            and each.measured in means
            and (not only or each.row in only)
        ):
            means[each.measured][each.row, each.seed] = fmean(each.tasks.values())
    lines = ["| measured | models | rank correlation |", "| --- | --- | --- |"]
    for one, other in combinations(means, 2):
        models = sorted(means[one].keys() & means[other].keys())
        rho = correlation(*(_ranks([means[way][model] for model in models]) for way in (one, other)))
        lines.append(f"| {one}, {other} | {len(models)} | {rho:+.2f} |")
    return "\n".join(lines)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 0; equal values share the mean of their ranks."""
    return [sum(other < v for other in values) + (sum(other == v for other in values) - 1) / 2 for v in values]


def _over(gap: dict[str, Any], how: str = "") -> str:
    """A difference's interval over seeds, and the one over tasks."""
    seeds, tasks = (gap["low"], gap["high"]), (gap["low_tasks"], gap["high_tasks"])
    return f"{between(*seeds, how, '+')}; {between(*tasks, how, '+')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", help="only this table")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--docs", action="store_true", help="write the tables of README.md and docs")
    args = parser.parse_args()
    if args.docs:
        found = read(args.results)
        for page in PAGES:
            page.write_text(written(page.read_text(), found))
        return
    found = [each for each in read(args.results) if args.table in (None, each.table)]
    if args.json:
        print(json.dumps({"tables": tables(found), "targets": targets(found)}))
        return
    parts = [*map(markdown, tables(found)), pairs(targets(found))]
    print("\n\n".join(filter(None, parts)) or f"no outcomes in {args.results}")


if __name__ == "__main__":
    main()
