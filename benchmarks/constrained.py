"""How does restricting actions to the grammar and the page's ids change unreadable and refused steps, success and cost?

    python benchmarks/constrained.py [--env booking] [--tasks 200] [--base ENGINE] [--json]

The same held-out tasks with the same seeds, with and without the restriction, greedy and sampled. A step is unreadable
if its text is not an action, and refused if the page has no such element or the element is of another kind.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

from critic import together
from machine import commit, machine

from agentq import envs
from agentq.evaluation.stats import paired_difference, wilson
from agentq.policies.engine_names import embedded_base, make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine
from agentq.searching.rollout import RolloutSettings, rollout
from agentq.types import History, Split, Trajectory

TEMPERATURES = (0.0, 0.8)
REFUSED = ("no_such_element", "wrong_role", "no_such_option", "disabled", "bad_argument", "bad_url", "not_taken")


def episodes(engine: Engine, env: str, n: int, temperature: float, constrained: bool) -> tuple[list[Trajectory], float]:
    """One episode per task, and the seconds of the engine."""
    policy, before = ModelPolicy(engine, constrained=constrained), engine.usage.seconds
    settings = RolloutSettings(temperature=temperature)
    done = together(rollout(envs.make(env), task, policy, settings) for task in envs.tasks(env, Split.TEST, n))
    return [t for t in done if t is not None], engine.usage.seconds - before


def figures(done: list[Trajectory], seconds: float) -> dict[str, Any]:
    """Success, unreadable and refused steps, and tokens per second of one way."""
    steps = [step for t in done for step in t.steps]
    kinds = Counter(step.result.error_kind for step in steps)
    wins, tokens = sum(t.success for t in done), sum(len(step.proposal.token_ids) for step in steps)
    unreadable = sum(step.proposal.action.env_action is None for step in steps)
    return {
        "success": wins / len(done),
        "interval": list(wilson(wins, len(done))),
        "n": len(done),
        "steps": len(steps),
        "unreadable": unreadable / len(steps),
        "refused": sum(kinds[kind] for kind in REFUSED) / len(steps),
        "refusals": {kind: kinds[kind] for kind in REFUSED if kinds[kind]},
        "generated_tokens": tokens,
        "tokens_per_s": tokens / seconds,
        "engine_s": seconds,
    }


def measure(engine: Engine, env: str, n: int) -> dict[str, Any]:
    """Both ways at each temperature."""
    found: dict[str, Any] = {}
    for temperature in TEMPERATURES:
        ways = {held: episodes(engine, env, n, temperature, held) for held in (False, True)}
        wins = {held: [t.success for t in done] for held, (done, _) in ways.items()}
        gain = paired_difference(wins[True], wins[False])
        found[f"temperature {temperature:g}"] = {
            "free": figures(*ways[False]),
            "constrained": figures(*ways[True]),
            "gain": {"value": gain.diff, "interval": [gain.low, gain.high], "p_value": gain.p_value},
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="booking")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--base", default=str(embedded_base()), metavar="ENGINE")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engine, start = make_engine(args.base), time.monotonic()
    together(ModelPolicy(engine, constrained=c).propose(_first(args.env), 1, seed=0) for c in (False, True))  # warm
    found = measure(engine, args.env, args.tasks)
    if args.json:
        targets = {
            f"{name}: no unreadable step": {"value": row["constrained"]["unreadable"], "target": 0.0}
            | {"met": row["constrained"]["unreadable"] == 0}
            for name, row in found.items()
        }
        told = {"figures": found, "targets": targets, "seconds": time.monotonic() - start}
        print(json.dumps(told | {"machine": machine("torch", "llguidance"), "commit": commit()}))
        return
    for name, row in found.items():
        for way in ("free", "constrained"):
            r = row[way]
            low, high = r["interval"]
            print(
                f"{name:<16}{way:<12} success {100 * r['success']:.1f} % ({100 * low:.1f} - {100 * high:.1f}), "
                f"{r['steps']} steps, unreadable {100 * r['unreadable']:.2f} %, refused {100 * r['refused']:.2f} % "
                f"{r['refusals']}, {r['tokens_per_s']:.0f} tokens/s"
            )
        g = row["gain"]
        low, high = g["interval"]
        print(f"{'':<16}gain {100 * g['value']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}), p {g['p_value']:.3f}")


def _first(env: str) -> History:
    task = envs.task(env, Split.TEST, 0)
    return History.of(task, envs.make(env).reset(task))


if __name__ == "__main__":
    main()
