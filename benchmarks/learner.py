"""What does a training step cost if common prefixes of its samples are forwarded once?

    python benchmarks/learner.py [--json] [--quick] [--repeats 3] [--fp32] [--regimes A C] [--trl-every 1]

One DPO step on tree-shaped preferences of a random Llama. Regime A: compact histories (12 pairs of 3 nodes). Regime C:
append-only ones (24 pairs of 6 nodes). Compared with TRL's DPOTrainer as it is and at its best, and with a loop over
pairs that shares nothing but pads nothing either. Then a policy-gradient step on a group of rollouts, compared with
loops over steps and over episodes. Each contestant has its own process: CPU seconds of one core, peak memory above the
start of the step. TRL's GRPOTrainer takes the same step on the group.

Loss and gradient are first compared with TRL's own, in float32 on small data. TRL takes part if `make bench-setup` has
installed it. It runs once, since it is slow; the others run `--repeats` times, and medians are reported. TRL shares
nothing between pairs, so `--trl-every 3` gives it every third pair and multiplies its seconds by three.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import learner_workload as workload
from machine import commit, machine, target

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers" / "bin" / "python"

DPO = dict.fromkeys("AC", ("packed", "one_pair_at_a_time", "trl_best", "trl_default"))
GROUP = {
    "A": ("packed_group", "one_step_at_a_time", "trl_grpo_best", "trl_grpo_default"),
    "C": (  # an episode is one sequence there
        "packed_group",
        "one_episode_at_a_time",
        "one_step_at_a_time",
        "trl_grpo_best",
        "trl_grpo_default",
    ),
}
TARGETS = {  # (regime, peer): times as fast as the peer
    ("A", "trl_default"): 15.0,
    ("A", "trl_best"): 8.0,
    ("A", "one_pair_at_a_time"): 5.0,
    ("C", "trl_default"): 30.0,
    ("C", "trl_best"): 15.0,
    ("C", "one_pair_at_a_time"): 8.0,
    ("C", "one_step_at_a_time"): 3.0,
}
GROUP_SIZE = 8
TOLERANCE = 1e-4  # of losses and gradients, relative, in float32


def measure(name: str, regime: str, *, size: str, quick: bool, bf16: bool, every: int) -> dict[str, Any]:
    """One step of a contestant in this process, after one on small data."""
    run = _contestant(name)
    step, factor = None, 1.0
    for regimes in (workload.QUICK, workload.QUICK if quick else workload.REGIMES):
        model, data = workload.model(size), workload.SIZES[size]["vocab_size"]
        if name in GROUP[regime]:
            episodes = workload.rollouts(regimes[regime], data, group=GROUP_SIZE)
            advantages = [1.0 - 2.0 * (i % 2) for i in range(GROUP_SIZE)]
            step = run(model, episodes, advantages, bf16=bf16)
        else:
            pairs = workload.preferences(regimes[regime], data)
            step = run(model, pairs[::every], bf16=bf16)
            factor = len(pairs) / len(pairs[::every])
    assert step is not None
    figure = {"cpu_s": factor * step.cpu_s, "peak_mib": step.peak_mib, "tokens": step.tokens, "loss": step.loss}
    return figure | ({"once_s": factor * step.once_s} if step.once_s else {}) | ({"every": every} if every > 1 else {})


def _contestant(name: str) -> Any:
    return getattr(importlib.import_module("learner_trl" if name.startswith("trl") else "learner_peers"), name)


def compare() -> dict[str, float]:
    """The largest relative differences of loss and gradient from agentq's, in float32.

    TRL has another model as reference, and the recorded log-probabilities are that model's.
    """
    import learner_peers as peers

    found: dict[str, float] = {}
    for regime, shape in workload.QUICK.items():
        vocab = workload.SIZES["1M"]["vocab_size"]
        reference = workload.model("1M", seed=1, initializer_range=0.1)
        pairs = workload.preferences(shape, vocab)
        pairs = peers.Learner(reference, learning_rate=1.0).recompute_reference(pairs)
        everyone = {"one_pair_at_a_time": lambda model, pairs=pairs: peers.one_pair_at_a_time(model, pairs, bf16=False)}
        if PEERS.exists():
            everyone["trl_default"] = lambda model, pairs=pairs, reference=reference: _contestant("trl_default")(
                model, pairs, bf16=False, reference=reference
            )
        ours = peers.packed(workload.model("1M", initializer_range=0.1), pairs, bf16=False)
        for name, run in everyone.items():
            theirs = run(workload.model("1M", initializer_range=0.1))
            found[f"{regime} {name} loss"] = abs(theirs.loss - ours.loss) / abs(ours.loss)
            norm = sum(float(g.square().sum()) for g in ours.gradient.values()) ** 0.5
            apart = sum(float((g - theirs.gradient[n]).square().sum()) for n, g in ours.gradient.items()) ** 0.5
            found[f"{regime} {name} gradient"] = apart / norm
        episodes = workload.rollouts(shape, vocab, group=4)
        steps = [
            _contestant(name)(workload.model("1M", initializer_range=0.1), episodes, [1.0, -1.0, 0.5, -0.5], bf16=False)
            for name in GROUP[regime]
            if PEERS.exists() or not name.startswith("trl")
        ]
        for other in steps[1:]:
            apart = sum(float((g - other.gradient[n]).square().sum()) for n, g in steps[0].gradient.items()) ** 0.5
            norm = sum(float(g.square().sum()) for g in steps[0].gradient.values()) ** 0.5
            found[f"{regime} group gradient"] = max(found.get(f"{regime} group gradient", 0.0), apart / norm)
    return found


def _apart(process: str, args: argparse.Namespace, *words: str) -> Any:
    """The output of this file run as `process`, in the peers' environment if there is one."""
    python = PEERS if PEERS.exists() else Path(sys.executable)
    flags = [flag for flag, on in (("--quick", args.quick), ("--fp32", args.fp32)) if on]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error"}
    out = subprocess.run(
        [
            python,
            __file__,
            "--process",
            process,
            *words,
            "--size",
            args.size,
            "--trl-every",
            str(args.trl_every),
            *flags,
        ],
        check=True,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ).stdout
    return json.loads(out.splitlines()[-1])


def _figures(args: argparse.Namespace) -> list[dict[str, Any]]:
    figures = []
    for regime, names in [(regime, names[regime]) for names in (DPO, GROUP) for regime in ("A", "C")]:
        for name in names if regime in args.regimes else ():
            if name.startswith("trl") and not PEERS.exists():
                continue
            repeats = 1 if name.startswith("trl") else args.repeats
            steps = [_apart("measure", args, name, regime) for _ in range(repeats)]
            figure = {"regime": regime, "contestant": name, "repeats": repeats}
            figure |= {key: statistics.median(step[key] for step in steps) for key in steps[0]}
            figure["cpu_s_range"] = [min(s["cpu_s"] for s in steps), max(s["cpu_s"] for s in steps)]
            figures.append(figure)
            once = f"  and {figure['once_s']:.1f} s once" if "once_s" in figure else ""
            print(
                f"{regime}  {name:22} {figure['cpu_s']:8.2f} CPU s  {figure['tokens']:7,} tokens  "
                f"{figure['peak_mib']:6.0f} MiB above the start{once}",
                flush=True,
                file=sys.stderr if args.json else sys.stdout,
            )
    return figures


def _targets(figures: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    by = {(f["regime"], f["contestant"]): f for f in figures}
    met = {}
    for (regime, peer), least in TARGETS.items():
        if (regime, peer) in by:
            ours = by[regime, "packed" if peer in DPO[regime] else "packed_group"]["cpu_s"]
            met[f"{regime}: times as fast as {peer}"] = target(by[regime, peer]["cpu_s"] / ours, least)
    for regime in workload.REGIMES:
        if (regime, "trl_default") in by:
            value = by[regime, "packed"]["peak_mib"] / by[regime, "trl_default"]["peak_mib"]
            met[f"{regime}: peak memory over trl_default's"] = target(value, 0.5, at_most=True)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(workload.SIZES), default="14M")
    parser.add_argument("--repeats", type=int, default=3, help="steps per contestant (TRL: 1), each in its own process")
    parser.add_argument("--quick", action="store_true", help="small data, to see whether it runs")
    parser.add_argument("--fp32", action="store_true", help="matrix products in float32 instead of bfloat16")
    parser.add_argument("--regimes", nargs="+", choices=sorted(workload.REGIMES), default=sorted(workload.REGIMES))
    parser.add_argument("--trl-every", type=int, default=1, help="TRL takes every n-th pair; its seconds times n")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--process", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.process:
        kind, *words = args.process
        every = args.trl_every if words and words[0] in ("trl_best", "trl_default") else 1
        settings = {"size": args.size, "quick": args.quick, "bf16": not args.fp32, "every": every}
        print(json.dumps(compare() if kind == "compare" else measure(*words, **settings)))
        return
    differences = _apart("compare", args)
    if worst := {name: value for name, value in differences.items() if not value <= TOLERANCE}:
        raise SystemExit(f"losses and gradients must agree to {TOLERANCE}; got {worst}")
    figures = _figures(args)
    targets = _targets(figures) | {
        f"relative difference: {name}": target(value, TOLERANCE, at_most=True) for name, value in differences.items()
    }
    if args.json:
        found = {"figures": figures, "targets": targets, "machine": machine("torch", "trl"), "commit": commit()}
        print(json.dumps(found))
        return
    for name, goal in targets.items():
        print(f"{'met ' if goal['met'] else 'MISSED'}  {goal['value']:10.3g}  target {goal['target']:g}  {name}")


if __name__ == "__main__":
    main()
