"""Are the lessons of a run right? What the expert says of its preference pairs and of the actions that it copies.

    python benchmarks/labels.py RUN [RUN ...] [--json]

RUN is a run of `agentq train` on `booking`, `booking/several` or `shop`. All that its rounds did is done again in
process, and the expert says in how many steps it would finish after each action. A pair is right if it would finish
sooner after the chosen action than after the rejected one, and wrong if later. An action is right if fewer steps are
left after it than before, and idle if as many are and the page is the same. Agent Q copies from the paths to success of
its trees. Other runs have no pairs; of their successes all are counted, though a recipe may keep some per task. STOP is
counted apart: as a share of what is copied, how often pairs choose and reject it, and, of the STOPs of trees that come
too early, where success was still open, what the search has to set against them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from agentq import envs
from agentq.credit.pairs import paired_nodes
from agentq.credit.samples import success_steps, tree_success_nodes
from agentq.envs.web_env import Expert, WebEnv
from agentq.evaluation.correction import distance
from agentq.evaluation.stats import wilson
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import Command, Observation, Proposal, Task, Trajectory

Entry = tuple[int, Proposal]  # the entry before it, and what was done there


def replayed(
    env: WebEnv, expert: Expert, task: Task, entries: list[Entry | None]
) -> tuple[list[float], list[Observation | None]]:
    """Steps left after each entry, infinite if no success can come, and its page.

    The first entry is the start. None was not done, and neither was what stands below it.
    """
    n = len(entries)
    shown: list[Observation | None] = [env.reset(task), *[None] * (n - 1)]
    at: list[WebEnv | None] = [env, *[None] * (n - 1)]
    left = [_left(distance(env, expert, task)), *[inf] * (n - 1)]
    for i, entry in enumerate(entries):
        before = at[entry[0]] if entry else None
        if entry is None or before is None:  # the start, not done, or below what was not done
            continue
        other = before.fork()
        result = other.step(entry[1].action.env_action)
        shown[i] = result.observation
        if result.terminated or result.truncated:
            left[i] = 0.0 if result.success else inf
        else:
            left[i], at[i] = _left(distance(other, expert, task)), other
    return left, shown


def _left(steps: int | None) -> float:
    return inf if steps is None else float(steps)


def of_tree(env: WebEnv, expert: Expert, tree: TreeRecord, settings: dict[str, Any]) -> Iterator[str]:
    """What each pair and each copied action of a tree is: `pair right`, `copy idle` and so on."""
    done = _tried(tree)
    entries = [
        (int(tree.parent[node]), proposal) if proposal is not None and done[node] else None
        for node, proposal in enumerate(tree.proposal)
    ]
    left, shown = replayed(env, expert, tree.task, entries)
    for chosen, rejected, _ in paired_nodes(tree, **settings):
        yield "pair " + _verdict(left[chosen], left[rejected], "level")
        for side, node in (("chosen", chosen), ("rejected", rejected)):
            if _is_stop(tree.proposal[node]):
                yield f"STOP {side}"
    for node in tree_success_nodes(tree):
        parent = int(tree.parent[node])
        yield "copy " + _verdict(left[node], left[parent], _same(shown[node], shown[parent]))
        if _is_stop(tree.proposal[node]):
            yield "STOP copied"
    yield from early_stops(tree, left)


AGAINST = ("a sibling gained", "no sibling gained", "no sibling was tried", "no sibling")  # of a STOP too early


def early_stops(tree: TreeRecord, left: list[float]) -> Iterator[str]:
    """For each STOP of a tree at which success was still open, which of `AGAINST` holds. `left` is of `replayed`."""
    tried = _tried(tree)
    for node in tried.nonzero()[0].tolist():
        parent = int(tree.parent[node])
        if _is_stop(tree.proposal[node]) and not tree.success[node] and left[parent] < inf:
            siblings = [n for n in tree.children(parent).tolist() if n != node]
            values = [tree.value_sum[n] for n in siblings if tried[n]]
            yield AGAINST[0 if any(v > 0 for v in values) else 1 if values else 2 if siblings else 3]


def _tried(tree: TreeRecord) -> np.ndarray:
    return (tree.visit_count > 0) & ~tree.broken


def of_episode(env: WebEnv, expert: Expert, episode: Trajectory) -> Iterator[str]:
    """What each copied action of an episode is."""
    if kept := success_steps(episode):
        entries = [None, *((i, step.proposal) for i, step in enumerate(episode.steps))]
        left, shown = replayed(env, expert, episode.task, entries)
        for i in kept:
            yield "copy " + _verdict(left[i + 1], left[i], _same(shown[i + 1], shown[i]))
            if _is_stop(episode.steps[i].proposal):
                yield "STOP copied"


def _is_stop(proposal: Proposal | None) -> bool:
    action = proposal.action.env_action if proposal else None
    return action is not None and action.command is Command.STOP


def _same(after: Observation | None, before: Observation | None) -> str:
    return "idle" if after == before else "wrong"


def _verdict(ours: float, other: float, equal: str) -> str:
    return equal if ours == other else "right" if ours < other else "wrong"


def of_run(run: Path) -> Counter[str]:
    """How many pairs and copied actions of all rounds of a run are right, level or idle, and wrong."""
    found: Counter[str] = Counter()
    with RunStore.read(run) as store:
        for stage in store.stages():
            if not stage.endswith("/collect"):
                continue
            settings = (store.note(stage) or {}).get("pairs") or {}
            for tree in store.trees(stage):
                found.update(of_tree(*_site(tree.task), tree, settings))
            for episode in store.trajectories(stage):
                found.update(of_episode(*_site(episode.task), episode))
    return found


def _site(task: Task) -> tuple[WebEnv, Expert]:
    env = envs.make(task.env)
    assert isinstance(env, WebEnv)
    return env, envs.expert(task.env)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = {str(run): of_run(run) for run in args.runs}
    if args.json:
        print(json.dumps(rows))
        return
    print("| run | pairs right | level | wrong | copied actions right | idle | wrong | STOP copied, chosen, rejected |")
    print(f"|{'---|' * 8}")
    for run, found in rows.items():
        cells = []
        for kinds in (("pair right", "pair level", "pair wrong"), ("copy right", "copy idle", "copy wrong")):
            n = sum(found[kind] for kind in kinds)
            low, high = wilson(found[kinds[0]], n) if n else (0.0, 1.0)
            first = f"{found[kinds[0]] / n:.1%} of {n:,} ({100 * low:.0f} - {100 * high:.0f})" if n else "-"
            cells += [first, *(str(found[kind]) for kind in kinds[1:])]
        share = f"{found['STOP copied'] / n:.1%}" if n else "-"
        cells.append(f"{share}, {found['STOP chosen']}, {found['STOP rejected']}")
        print(f"| {run} | {' | '.join(cells)} |")
    for run, found in rows.items():
        if n := sum(found[word] for word in AGAINST):
            print(
                f"\n{run}: of {n} STOPs that came too early, {', '.join(f'{word} {found[word]}' for word in AGAINST)}"
            )


if __name__ == "__main__":
    main()
