"""Bytes that no forest wrote are refused, each for its reason, also where every checksum is right."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable

import pytest

from agentq._core import NO_NODE, TERMINAL, Forest
from tests.reference.builders import fan, visit
from tests.reference.records import Parts, join, record, split

LEAF, IS_EXHAUSTED, IS_TERMINAL, PENDING = 1 << 31, 1 << 30, 1 << 29, 1 << 16
STATES = {"c_exp": 1.25, "success_at": 0.75}
WHOLE = "a forest snapshot must be whole; this one is damaged: "


@functools.cache
def wide(**settings) -> bytes:
    """Tree 0: a root with children a (three children and a further block) and b (terminal, told). Tree 1: a root."""
    forest = Forest(max_bytes=2**20, **settings)
    forest.add_trees(2)
    ticket = forest.ask_one(0)[0]
    forest.expand([ticket], [2], [0.5, 0.25], [-0.5, -1.0], [0.5, 0.5])
    forest.extend([ticket])
    forest.expand([ticket], [3])
    forest.widen([ticket])
    forest.tell([ticket, forest.ask_one(1)[0]], [1.0, 0.5])
    if settings.get("c_exp") == STATES["c_exp"]:
        forest.set_states(forest.children(forest.root(0)), [7, 8])
        forest.set_states([forest.children(int(forest.children(forest.root(0))[0]))[2]], [9])
    while not forest.table(0)["flags"][2] & TERMINAL:
        ticket, node = forest.ask_one(0)
        if node == forest.root(0):
            node = forest.extend([ticket], [1])[0]
        if node == forest.children(forest.root(0))[1]:
            forest.set_terminal([ticket])
        forest.tell([ticket], [0.5])
    return forest.to_bytes()


def refusal(data: bytes) -> str:
    with pytest.raises(ValueError) as refused:
        Forest.from_bytes(data)
    return str(refused.value).removeprefix(WHOLE)


class Forged(Parts):
    """What `wide` wrote, its places by name."""

    def __init__(self, data: bytes) -> None:
        super().__init__(split(data)[0])
        self.root = int(self.entries[0][0]["root"][0])
        self.below_root = self.block(self.root)
        self.a, self.b = self.below_root + 1, self.below_root + 2
        self.first = self.block(self.a)
        self.further = int(self.header(self.first)["next"][0])
        self.entry, self.chunks, self.states = self.entries[0]
        self.lone = int(self.entries[1][0]["root"][0])  # told once

    def set(self, cell: int, **values: float) -> None:
        for name, value in values.items():
            (self.slot(cell) if name in self.slot(cell).dtype.names else self.header(cell))[name] = value

    def link(self, node: int, flip: int) -> None:
        self.slot(node)["link"] ^= flip


FORGERIES: list[tuple[str, dict[str, object], Callable[[Forged], object]]] = [
    ("its settings are unknown", {}, lambda f: f.settings.__setitem__("selection", 7)),
    ("its settings are unknown", {}, lambda f: f.settings.__setitem__("unvisited", 2)),
    ("its settings are unknown", {}, lambda f: f.settings.__setitem__("exhaust", 2)),
    ("its settings are unknown", {}, lambda f: f.settings.__setitem__("backup", 2)),
    ("its settings are unknown", {}, lambda f: f.settings.__setitem__("columns", 67)),
    ("its settings are unknown", {"selection": "puct"}, lambda f: f.settings.__setitem__("columns", 3)),
    ("c_exp must be finite and at least 0; got nan", {}, lambda f: f.settings.__setitem__("c_exp", float("nan"))),
    ("it holds more than its byte limit", {}, lambda f: f.contents.__setitem__("cells", 2**16 + 2)),
    ("it holds more than its byte limit", {"squares": True}, lambda f: more_than_the_limit(f)),
    ("a tree is missing", {}, lambda f: f.contents.__setitem__("trees", 3)),
    ("the memory of a tree cannot be", {}, lambda f: no_chunks(f)),
    ("trees are not in order", {}, lambda f: f.entries.__setitem__(3, f.entries.pop(1))),
    ("a page lies where none can", {}, lambda f: f.pages.__setitem__(1, f.pages.pop(0))),
    ("a page is missing", {}, lambda f: (f.pages.clear(), f.contents.__setitem__("pages", 0))),
    ("a page is missing", {}, lambda f: f.entries[1][0].__setitem__("used", 6)),
    ("a part ends too early", {}, lambda f: f.contents.__setitem__("pages", 2)),
    ("record 0 goes on after its end", {}, lambda f: f.contents.__setitem__("pages", 0)),
    *[
        ("the memory of a tree cannot be", {}, lambda f, name=name, value=value: f.entry.__setitem__(name, value))
        for name, value in [
            *[("root", NO_NODE), ("chunks", 0), ("chunks", 2), ("next_size", 4), ("next_size", 17)],
            *[("used", 0), ("used", 34), ("used", 21)],
        ]
    ],
    *[
        ("the memory of a tree cannot be", {}, lambda f, word=word, value=value: f.chunks[0].__setitem__(word, value))
        for word, value in [(0, 16), (0, 2**16), (1, 4), (1, 18), (1, 32 + 5)]
    ],
    ("two trees lie in one place", {}, lambda f: f.entries[1][1][0].__setitem__(0, 0)),
    ("a root has a header that cannot be", {}, lambda f: f.set(f.root - 1, parent=f.root)),
    ("a root has a header that cannot be", {}, lambda f: f.set(f.root - 1, here=1)),
    ("a root has a header that cannot be", {}, lambda f: f.set(f.root - 1, next=f.further)),
    ("a root has a header that cannot be", {}, lambda f: f.set(f.root - 1, width=2)),
    ("a root has a header that cannot be", {}, lambda f: f.set(f.root - 1, index=1)),
    ("a block lies where none can", {}, lambda f: f.entry.__setitem__("root", f.root + 1)),  # odd
    ("a block lies where none can", {}, lambda f: f.entry.__setitem__("root", 1)),  # the chunk's head
    ("a block lies where none can", {}, lambda f: f.entry.__setitem__("root", 2**31 + 3)),
    ("a block lies where none can", {}, lambda f: f.entry.__setitem__("root", f.entries[1][0]["root"][0])),
    ("a block lies where none can", {}, lambda f: f.slot(f.a).__setitem__("link", f.slot(f.root)["link"][0])),
    ("a block lies where none can", {}, lambda f: f.set(f.further, here=1, next=f.first)),  # round and round
    ("a block lies where none can", {}, lambda f: f.entry.__setitem__("used", f.further - f.chunks[0][0] + 2)),
    ("a block lies where none can", {}, lambda f: in_another_tree(f)),
    ("a tree has a root that cannot be", {}, lambda f: f.entry[["reroots", "base"]].__setitem__(0, (1, 99))),
    ("a tree has a root that cannot be", {}, lambda f: f.entry.__setitem__("base", 1)),
    ("the visits of a node and its children differ", {}, lambda f: f.set(f.first, here=1)),
    ("the visits of a node and its children differ", {}, lambda f: f.set(f.further + 1, started=2)),
    ("a node has flags that cannot be", {}, lambda f: f.link(f.a, IS_EXHAUSTED)),
    ("a node has flags that cannot be", {}, lambda f: f.link(f.b, IS_TERMINAL)),
    ("a node has flags that cannot be", {"exhaust": False}, lambda f: f.link(f.b, IS_EXHAUSTED)),
    ("a node has flags that cannot be", {"selection": "thompson_beta"}, lambda f: all_exhausted(f)),
    ("something is in flight", {}, lambda f: f.link(f.b, PENDING)),
    ("a node has a place that cannot be", {}, lambda f: f.link(f.b, 3)),
    *[
        ("a block has a header that cannot be", {}, lambda f, name=name, value=value: f.set(f.first, **{name: value}))
        for name, value in [("parent", 6), ("index", 1), ("width", 2)]
    ],
    ("a block has a header that cannot be", {}, lambda f: f.set(f.first, width=0, next=0)),
    ("a block has a header that cannot be", {}, lambda f: (f.set(f.first, width=2), f.set(f.further, here=1))),
    ("a block has a header that cannot be", {}, lambda f: f.set(f.further, here=2)),
    ("a block has a header that cannot be", {}, lambda f: f.set(f.further, here=0)),
    ("a block has a header that cannot be", {}, lambda f: f.set(f.further, here=1, width=2)),
    ("a node without visits has a value", {}, lambda f: f.set(f.first + 3, value_sum=1.0)),
    ("a node without visits has a value", {"backup": "max"}, lambda f: f.set(f.first + 3, value_sum=0.0)),
    ("a value is not finite", {}, lambda f: f.set(f.b, value_sum=float("inf"))),
    ("a value is not finite", {"backup": "max"}, lambda f: f.set(f.root, value_sum=float("nan"))),
    ("a value is not finite", {}, lambda f: f.pages[0]["critic"].__setitem__(f.b, float("nan"))),
    ("a value is not finite", {"selection": "puct"}, lambda f: f.pages[0]["prior"].__setitem__(f.b, float("inf"))),
    ("its settings are unknown", STATES, lambda f: f.settings.__setitem__("transpositions", 2)),
    ("the memory of a tree cannot be", STATES, lambda f: f.entry.__setitem__("states", 4)),
    ("a tree has a state twice", STATES, lambda f: f.states["key"].__setitem__(1, 7)),
    ("a tree has a state that cannot be", STATES, lambda f: f.states["started"].__setitem__(0, 0)),
    ("a tree has a state that cannot be", STATES, lambda f: f.states["value_sum"].__setitem__(2, 1.0)),
    ("a node is a state that is missing", STATES, lambda f: f.pages[0]["state"].__setitem__(f.b, 4)),
    ("a value is out of range", STATES, lambda f: f.pages[0]["successes"].__setitem__(f.b, 99)),
    ("a value is out of range", {"squares": True}, lambda f: f.pages[0]["squares"].__setitem__(f.b, -1.0)),
    ("a value is out of range", {"squares": True}, lambda f: f.pages[0]["squares"].__setitem__(f.b, float("nan"))),
    ("a value is out of range", {"squares": True}, lambda f: f.pages[0]["squares"].__setitem__(f.first + 3, 1.0)),
    ("a value is out of range", {"selection": "thompson_beta"}, lambda f: f.set(f.lone, value_sum=-0.5)),
    ("a value is out of range", {"selection": "thompson_beta"}, lambda f: f.set(f.lone, value_sum=1.5)),
    ("a value is out of range", {"selection": "thompson_beta"}, lambda f: f.set(f.root, value_sum=0.0)),
    ("a value is out of range", {"selection": "thompson_beta"}, lambda f: more_than_told(f)),
]  # fmt: skip


def more_than_the_limit(f: Forged) -> None:
    """160 cells of 32 bytes."""
    f.settings["max_bytes"] = 4096
    f.entries[1][1][0][1] = 7


def no_chunks(f: Forged) -> None:
    f.entry["chunks"] = 0
    f.entries[0] = f.entry, f.chunks[:0]


def in_another_tree(f: Forged) -> None:
    """Tree 1 has its root where tree 0 has handed out cells and uses none."""
    f.entry["used"] = 32
    f.set(20, parent=NO_NODE, here=0, next=0, width=1, index=0)
    f.set(21, value_sum=0.0, started=0, link=LEAF)
    f.entries[1][0]["root"] = 21


def all_exhausted(f: Forged) -> None:
    """As a rule that does not go wider by itself would have left it."""
    for node in (*range(f.first + 1, f.first + 4), f.further + 1):
        f.link(node, IS_EXHAUSTED | IS_TERMINAL)
        visits = int(f.slot(node)["started"][0])
        f.set(node, started=visits + 1)
        f.slot(f.a)["started"] += 1
        f.slot(f.root)["started"] += 1
    f.link(f.a, IS_EXHAUSTED)
    f.link(f.root, IS_EXHAUSTED)


def more_than_told(f: Forged) -> None:
    """The node a has its child's one return and one more, from nowhere."""
    visits = int(f.slot(f.a)["started"][0])
    assert f.header(f.first)["here"][0] < visits
    f.set(f.a, value_sum=visits)
    f.set(f.further + 1, value_sum=0.0)
    f.set(f.root, value_sum=f.slot(f.root)["started"][0])


@pytest.mark.parametrize(("why", "settings", "forge"), FORGERIES, ids=range(len(FORGERIES)))
def test_load_refuses_what_calls_cannot_have_made(why, settings, forge):
    forged = Forged(wide(**settings))
    assert forged.data() == wide(**settings)
    forge(forged)
    assert refusal(forged.data()) == why


def test_load_refuses_more_children_than_a_node_may_have():
    forest = Forest(max_bytes=2**22)
    forest.add_trees(1)
    ticket = forest.ask_one(0)[0]
    forest.expand([ticket], [65533])
    forest.widen([ticket])
    forged = Parts(split(forest.to_bytes())[0])
    first = forged.block(forest.root(0))
    forged.header(int(forged.header(first)["next"][0]))["width"] = 3
    assert refusal(forged.data()) == "a node has too many children"


def test_load_keeps_sums_that_have_run_over():
    forest = fan(2)
    for _ in range(4):
        visit(forest, 0, 1.5e308)
    loaded = Forest.from_bytes(forest.to_bytes())
    assert loaded.value_sum[loaded.root(0)] == float("inf")


def test_load_refuses_what_is_no_snapshot(tmp_path):
    good = fan(3).to_bytes()
    with pytest.raises(FileNotFoundError, match="none"):
        Forest.load(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        Forest.load(tmp_path)
    assert "must start with AGQFORST" in refusal(b"PK\x03\x04" + good)
    for version, writer in ((4, "a newer"), (2, "an older")):
        why = refusal(good[:8] + struct.pack("<I", version) + good[12:])
        assert f"must be 3; got {version}, written by {writer} agentq" in why


def test_load_refuses_every_flipped_bit_and_every_cut_of_a_whole_snapshot():
    good = fan(3).to_bytes()
    for cut in range(8, len(good)):
        assert refusal(good[:cut]) in (f"{cut} bytes only", "its first record is cut off")
    for place in range(12, len(good)):
        flipped = good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :]
        assert refusal(flipped) == "the checksum of record 0 does not match"


def journal(tmp_path) -> tuple[bytes, list[int], list[bytes]]:
    """Three records, where each ends, and the forest as of each."""
    forest, path = fan(3), tmp_path / "a.forest"
    forest.add_trees(31)  # four pages
    ends, states = [], []
    for i in range(3):
        visit(forest, i, 0.5)
        forest.save(path)
        ends.append(path.stat().st_size)
        states.append(forest.to_bytes())
    return path.read_bytes(), ends, states


def test_load_leaves_out_a_record_that_is_cut_off(tmp_path):
    data, ends, states = journal(tmp_path)
    for cut in {*range(ends[0], ends[2], 7), *range(ends[0], ends[0] + 50), *range(ends[2] - 9, ends[2] + 1)}:
        whole = sum(end <= cut for end in ends)
        assert Forest.from_bytes(data[:cut]).to_bytes() == states[whole - 1]


def test_load_refuses_a_journal_that_is_damaged_within(tmp_path):
    data, ends, _ = journal(tmp_path)
    for place in range(12, len(data), 11):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert re.search("checksum of record . does not match|the version of a forest", refusal(flipped)) or (
            place - max([0, *[end for end in ends if end <= place]]) < 8
        )
    assert refusal(data + b"!") == "it goes on after its end"
    first, second, third = data[: ends[0]], data[ends[0] : ends[1]], data[ends[1] :]
    assert refusal(first + third) == "record 1 is not the next"
    assert refusal(first + second + second) == "record 2 is not the next"
    payloads = split(data)
    assert join(payloads) == data
    assert refusal(first + record(payloads[1], 1, 5)) == "record 1 is not the next"
    assert refusal(first + first) == "record 1 is not the next"
    before = int.from_bytes(first[-8:], "little")
    assert first + record(payloads[1], 1, before) == first + second
    assert refusal(first + record(payloads[1], 1, before, b"AGQFORSX")) == "record 1 is not the next"
    assert refusal(first + record(payloads[1], 2, before)) == "record 1 is not the next"
