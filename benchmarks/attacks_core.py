"""Attacks on the compiled core: tickets of another forest, wide nodes, paths that are not files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from attack import Skipped, attack

from agentq import Forest

REFUSED = "refused, nothing changed"


@attack(
    "4.14",
    "a ticket of forest A told, cancelled and expanded in forest B, in a forest at A's old address and in a copy of A",
    expected=f"tell, cancel, expand: {REFUSED} in another forest, at the old address, in a copy",
)
def foreign_ticket(folder: Path) -> str:
    ours, theirs = _planted(), _planted()
    copy = Forest.from_bytes(ours.to_bytes())
    ticket = ours.ask_one(0)[0]
    ours.save(folder / "a.forest")
    places = {"in another forest": [theirs], "in a copy": [copy, Forest.load(folder / "a.forest")]}
    outcomes = {place: {_abused(forest, ticket) for forest in forests} for place, forests in places.items()}
    old = set()
    for _ in range(30):  # the allocator gives the same address again
        forest = _planted()
        stale = forest.ask_one(0)[0]
        del forest
        old.add(_abused(_planted(), stale))
    outcomes["at the old address"] = old
    found = {place: "; ".join(sorted(texts)) for place, texts in outcomes.items()}
    ours.tell_one(ticket, 1.0)  # still good where it came from
    if set(found.values()) == {REFUSED}:
        return f"tell, cancel, expand: {REFUSED} in another forest, at the old address, in a copy"
    return "; ".join(f"{text} {place}" for place, text in found.items() if text != REFUSED)


def _planted() -> Forest:
    forest = Forest()
    forest.add_trees(1)
    return forest


def _abused(forest: Forest, ticket: int) -> str:
    """What happens to a forest with its own rollout in flight if another forest's ticket is used on it."""
    own = forest.ask_one(0)[0]
    before = forest.to_bytes(), forest.num_in_flight, forest.num_nodes
    calls = {
        "expand": lambda: forest.expand([ticket], [2]),
        "tell": lambda: forest.tell([ticket], [1.0]),
        "cancel": lambda: forest.cancel([ticket]),
    }
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            if "\n" in str(error):
                return f"{name} is refused in several lines"
        else:
            return f"{name} is accepted"
        if (forest.to_bytes(), forest.num_in_flight, forest.num_nodes) != before:
            return f"{name} is refused and changes something"
    forest.cancel([own])
    return REFUSED


WIDE = """
import resource, sys, time
import numpy as np
from agentq import Forest
forest = Forest()
forest.add_trees(1)
values = {values}
ticket = forest.ask([0])[0]
forest.expand(ticket, [len(values)], values)
forest.cancel(ticket)
memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    found = len(forest.pairs(alpha=0.0, threshold=0.0, min_visits=0, max_pairs_per_node={most})[0])
except ValueError as error:
    found = "a refusal"
print(found, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory, sep=chr(10))
"""


@attack(
    "4.15",
    "pairs of a node of 16,000 children with at most 4 of a node, of 65,535 equal ones, and all pairs of 65,535",
    expected="4 pairs, 0 pairs, a refusal: each within 1 s and 64 MiB",
)
def wide_node(folder: Path) -> str:
    cases = [("np.linspace(0, 1, 16_000)", 4), ("np.full(65_535, 0.5)", 0), ("np.linspace(0, 1, 65_535)", 0)]
    found, slow = [], []
    for values, most in cases:
        what, seconds, kib = _in_child(WIDE.format(values=values, most=most))
        found.append(f"{what} pairs" if what.isdigit() else what)
        if float(seconds) > 1 or int(kib) > 64 << 10:
            slow.append(f"{float(seconds):.0f} s and {int(kib) >> 10} MiB for {values}")
    return ", ".join(found) + (": " + ", ".join(slow) if slow else ": each within 1 s and 64 MiB")


def _in_child(program: str) -> list[str]:
    """The lines that a program prints; it may take 16 GiB of addresses and 30 seconds."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({16 << 30}, {16 << 30}))\n"
    try:
        command = [sys.executable, "-c", limit + program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return ["no end", "30", "0"]
    return done.stdout.splitlines() or [done.stderr.strip().splitlines()[-1], "0", "0"]


@attack(
    "4.16",
    "save with a link at the name of its temporary file; to a link, a path with NUL, a pipe, a device, a folder",
    expected="the victim is whole; a link, NUL, a pipe, a device and a folder: refused and left as they were",
)
def dangerous_paths(folder: Path) -> str:
    wrong: list[str] = []
    victim = folder / "victim"
    victim.write_text("precious")
    (folder / "a.forest.partial").symlink_to(victim)
    _planted().save(folder / "a.forest")
    link = folder / "link.forest"
    link.symlink_to(victim)
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    device = null_device(folder / "device")
    paths = {"a link": link, "a pipe": folder / "pipe", "a device": device, "a folder": folder / "folder"}
    for name, path in paths.items():
        before = _kind(path)
        if not _refused(str(path)):
            wrong.append(f"{name} is accepted")
        if _kind(path) != before:
            wrong.append(f"{name} is replaced")
    if not _refused(f"{folder}/cut\0.forest") or (folder / "cut").exists():
        wrong.append("NUL cuts the path")
    if victim.read_text(errors="replace") != "precious":
        wrong.append("the victim is overwritten")
    return "; ".join(wrong) or (
        "the victim is whole; a link, NUL, a pipe, a device and a folder: refused and left as they were"
    )


def null_device(path: Path) -> Path:
    """A private null device, or the system's if none can be made and the system's cannot be replaced."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path = Path("/dev/null")
        if os.access("/dev", os.W_OK):
            raise Skipped("needs a device that may be lost: run it without the right to write to /dev") from None
    return path


def _refused(path: str) -> bool:
    try:
        _planted().save(path)
    except (OSError, ValueError) as error:
        return "\n" not in str(error)
    return False


def _kind(path: Path) -> int:
    return path.lstat().st_mode
