"""What do training, sampling and the whole loop cost on a GPU? In parts, each in a process of its own (tiny: in one).

    python benchmarks/gpu.py --list
    python benchmarks/gpu.py [--part NAME ...] [--minutes 9] [--out DIR] [--json]
    python benchmarks/gpu.py --shape tiny --device cpu      tries every part without a GPU

A part takes at most 8 minutes. Its result is kept in DIR, and the same command goes on with the parts that have none.
`--minutes` bounds one call, and ends a part that is not done by then; that part begins again, the loop where it was.
Answers are checked first: packed gradients against unpacked ones, samples against the learner, a batch against the CPU.

The learner trains random checkpoints: of Qwen2.5-7B's shape with adapters of rank 16 and gradient checkpointing, and of
Qwen2.5-0.5B's shape in full. A step of DPO has 24 pairs, one of GRPO 8 episodes, both append-only conversations.
`packed` is agentq, `loop` the same model and optimiser with one pair or step at a time, `trl` TRL at its best.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from machine import commit, machine, target

LIMIT_S = 480.0
TOLERANCE = {"cpu": 1e-4, "cuda": 5e-3}  # of gradients in float32, relative
ATTENTION = {"cpu": 1e-4, "cuda": 2e-2}  # of outputs and gradients, relative: float32, bfloat16
AGREES = 0.02  # nats per token between engine and learner
FASTER = {"dpo": 4.0, "grpo": 2.0}  # than the loop; on a CPU 10.8 and 3.6
CONTESTANTS = ("packed", "loop", "trl")
STEPS = tuple(
    f"{method}-{size}-{contestant}" for size in ("0.5b", "7b") for method in FASTER for contestant in CONTESTANTS
)
PARTS = ("gradients", "attention", *STEPS, "engine-base", "engine-0.5b", "engine-7b", "loop", "base")


def measure(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of a part, in this process."""
    import gpu_attention
    import gpu_learner
    import gpu_parts
    from gpu_place import Place, Skipped

    place = Place(args.shape, args.device, args.out / f"{args.shape}-{args.device}")
    kind, _, rest = part.partition("-")
    alone: dict[str, Callable[[Any], dict[str, Any]]] = {
        "gradients": lambda place: gpu_learner.compare(place.device),
        "attention": gpu_attention.attention,
        "loop": gpu_parts.loop,
        "base": gpu_parts.base,
    }
    try:
        if kind in alone:
            return alone[kind](place)
        if kind == "engine":
            return gpu_parts.engine(place, rest)
        return gpu_learner.train_step(place, kind, *rest.split("-"))
    except Skipped as why:
        return {"skipped": str(why)}


def run(part: str, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The figures of a part, from a process of its own: {"skipped": ..} or {"failed": ..} if there are none."""
    words = [sys.executable, __file__, "--process", part, "--shape", args.shape, "--device", args.device]
    log = args.out / f"{args.shape}-{args.device}" / f"{part}.log"
    with log.open("w") as file:
        try:
            done = subprocess.run(
                [*words, "--out", str(args.out)], stdout=subprocess.PIPE, stderr=file, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {seconds:.0f} s; the same command tries again"}
    if done.returncode:
        said = [line for line in log.read_text().splitlines() if line.strip()] or ["no output"]
        return {"failed": f"exit code {done.returncode}: {said[-1]} (more in {log})"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def kept(part: str, args: argparse.Namespace, made_by: dict[str, Any]) -> dict[str, Any] | None:
    """The result of an earlier call of the same code on the same kind of machine."""
    file = _file(part, args)
    result = json.loads(file.read_text()) if file.exists() else {}
    return result["figures"] if result.get("made_by") == made_by else None


def keep(part: str, args: argparse.Namespace, made_by: dict[str, Any], figures: dict[str, Any]) -> None:
    file = _file(part, args)
    beside = file.with_suffix(".partial")
    beside.write_text(json.dumps({"made_by": made_by, "figures": figures}) + "\n")
    beside.replace(file)


def _file(part: str, args: argparse.Namespace) -> Path:
    return Path(args.out / f"{args.shape}-{args.device}" / f"{part}.json")


def every(args: argparse.Namespace, made_by: dict[str, Any], show: Callable[[str], None]) -> dict[str, Any]:
    """The figures of the parts, as far as time goes."""
    figures, ends = {}, time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    for part in args.part:
        found = kept(part, args, made_by)
        if found is None:
            left = ends - time.monotonic()
            if left < 10:
                show(f"{part}: not begun; the same command goes on")
                continue
            begun = time.monotonic()
            found = measure(part, args) if args.shape == "tiny" else run(part, args, min(LIMIT_S, left))
            if not {"skipped", "failed"} & set(found):
                keep(part, args, made_by, found | {"part_s": time.monotonic() - begun})
        figures[part] = found
        show(f"{part}: {told(found)}")
    return figures


def told(found: dict[str, Any]) -> str:
    """The figures of a part in one line."""
    texts = []
    for name, value in found.items():
        number = f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else None
        number = number or (f"{value:,.0f}" if isinstance(value, float) else json.dumps(value))
        texts.append(f"{name.replace('_', ' ')} {number}")
    return ", ".join(texts)


def targets_of(figures: dict[str, Any], device: str) -> dict[str, dict[str, Any]]:
    """What the figures should be; aims are ours."""
    good = {part: found for part, found in figures.items() if not {"skipped", "failed"} & set(found)}
    return {name: target(value, aim, at_most) for name, value, aim, at_most in _aims(good, device)}


def _aims(good: dict[str, Any], device: str) -> Iterator[tuple[str, float, float, bool]]:
    for name, value in good.get("gradients", {}).items():
        if name != "part_s":
            yield f"packed gradient, {name}: relative difference", value, TOLERANCE[device], True
    if "attention" in good:
        yield "attention: relative error", good["attention"]["errors"]["trie"], ATTENTION[device], True
    for part in STEPS:
        method, size, contestant = part.split("-")
        ours = good.get(f"{method}-{size}-packed")
        if contestant != "packed" and part in good and ours is not None and device != "cpu":
            ratio = good[part]["seconds"] / ours["seconds"]
            yield f"{method} {size}: times as fast as {contestant}", ratio, FASTER[method], False
    for part, found in good.items():
        if part.startswith("engine"):
            yield f"{part}: nats per token from the learner", found["agreement_mean"], AGREES, True
        if part == "base":
            yield "base: loss, relative difference from the CPU's", found["differences"]["loss"], 0.01, True
            yield "base: gradient, relative difference from the CPU's", found["differences"]["gradient"], 0.05, True


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if a part fails or a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the parts, and which have a result")
    parser.add_argument("--shape", choices=("full", "tiny"), default="full")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=0.0, help="end after so many minutes; default: no limit")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="where results are kept")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.process:
        print(json.dumps(measure(args.process, args)))
        return 0
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there must be a CUDA device; got none: --shape tiny --device cpu tries every part without")
    (args.out / f"{args.shape}-{args.device}").mkdir(parents=True, exist_ok=True)
    about = machine("torch", "transformers", "peft", "trl")
    about |= {"gpu": torch.cuda.get_device_name()} if args.device == "cuda" else {}
    made_by = {"commit": commit(), "gpu": about.get("gpu", ""), "packages": about["packages"]}
    if args.list:
        for part in PARTS:
            print(f"{part:18}{'has a result' if kept(part, args, made_by) else ''}".rstrip())
        return 0
    figures = every(args, made_by, lambda line: print(line, file=sys.stderr if args.json else sys.stdout, flush=True))
    targets = targets_of(figures, args.device)
    if args.json:
        print(json.dumps({"figures": figures, "targets": targets, "machine": about, "commit": commit()}))
    else:
        for name, goal in targets.items():
            print(f"{'met   ' if goal['met'] else 'MISSED'} {goal['value']:10.3g}  target {goal['target']:g}  {name}")
    failed = any("failed" in found for found in figures.values())
    return int(failed or not all(goal["met"] for goal in targets.values()))


if __name__ == "__main__":
    sys.exit(main())
