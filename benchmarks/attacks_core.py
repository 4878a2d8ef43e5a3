"""Attacks on the compiled core and on Eq. 10: tickets of another forest, wide nodes, paths that are not files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from attack import attack

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
    places = {"in another forest": [theirs], "in a copy": [copy]}
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
    """What becomes of a forest with a rollout of its own in flight when another's ticket is used on it."""
    own, _ = forest.ask_one(0)
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
import resource, time
import numpy as np
from agentq.credit.pairs import node_pairs
from agentq.types import Action, Command, EnvAction, Proposal, Split, StopReason, Task
from agentq.store.records import TreeRecord
n = {n}
ids = np.zeros(1, np.int32)
acts = [EnvAction(Command.CLICK, i, "") for i in range(n)]
made = [Proposal(Action("", act), ids, ids, np.zeros(1, np.float32), StopReason.EOS, 0, 1.0) for act in acts]
zero, one = np.zeros(n + 1), np.ones(n + 1)
values = np.linspace(0, 1, n + 1)
tree = TreeRecord(Task("booking", 0, Split.TRAIN, ""), np.r_[-1, np.zeros(n)], zero, one, values, zero, zero,
                  [None, *made], [None] * (n + 1), zero, zero, [None] * (n + 1))
memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
print(len(node_pairs(tree, alpha=1.0, threshold=0.0, max_pairs_per_node=4)))
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory, sep=chr(10))
"""


@attack(
    "4.15",
    "pairs of a node of 2,000 tried children with at most 4 per node",
    expected="4 pairs, within 20 s and 64 MiB",
)
def wide_node(folder: Path) -> str:
    what, seconds, kib = _in_child(WIDE.format(n=2000))
    within = float(seconds) <= 20 and int(kib) <= 64 << 10
    return f"{what} pairs, " + ("within 20 s and 64 MiB" if within else f"{float(seconds):.0f} s, {int(kib) >> 10} MiB")


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
    "a forest told to write to a path: with a link at a temporary file's name, to a link, to a device",
    expected="no call of a forest takes a path; 3 calls: AttributeError",
)
def dangerous_paths(folder: Path) -> str:
    refused = 0
    for name in ("save", "load", "write"):
        try:
            getattr(_planted(), name)(folder / "a.forest")
        except AttributeError:
            refused += 1
    takes = [name for name in dir(Forest) if "path" in (getattr(Forest, name).__doc__ or "")]
    said = "no call of a forest takes a path" if not takes else f"{', '.join(takes)} takes a path"
    return f"{said}; {refused} calls: AttributeError"
