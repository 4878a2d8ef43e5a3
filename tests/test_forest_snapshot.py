"""Saving and loading are the identity, and nothing but a whole snapshot loads."""

from __future__ import annotations

import struct

import pytest

from agentq._core import Forest
from tests.reference.builders import columns, fan, visit


def test_save_and_load_are_the_identity(tmp_path):
    forest = fan(3, c_exp=0.3, unvisited="first", exhaust=False)
    forest.add_trees(1)
    visit(forest, 2, 0.7)
    forest.set_terminal([3])
    before = columns(forest)
    forest.ask([0, 1])
    forest.save(tmp_path / "a.forest")
    loaded = Forest.load(str(tmp_path / "a.forest"))
    assert columns(loaded) == before  # what was in flight is saved as cancelled
    assert (loaded.c_exp, loaded.selection, loaded.unvisited, loaded.exhaust) == (0.3, "ucb1", "first", False)
    assert [loaded.root(0), loaded.root(1)] == [0, 4]
    assert [file.name for file in tmp_path.iterdir()] == ["a.forest"]
    assert loaded.to_bytes() == forest.to_bytes()


def test_load_refuses_what_is_no_whole_snapshot(tmp_path):
    good = fan(3).to_bytes()
    with pytest.raises(FileNotFoundError):
        Forest.load(tmp_path / "none")
    with pytest.raises(ValueError, match="must start with AGQFORST"):
        Forest.from_bytes(b"PK\x03\x04" + good)
    with pytest.raises(ValueError, match="must be at most 1; got 2, written by a newer agentq"):
        Forest.from_bytes(good[:8] + struct.pack("<I", 2) + good[12:])
    for cut in range(8, len(good), 7):
        with pytest.raises(ValueError, match="this one is damaged"):
            Forest.from_bytes(good[:cut])
    for place in range(12, len(good)):
        with pytest.raises(ValueError, match="this one is damaged: its checksum does not match"):
            Forest.from_bytes(good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :])


def fnv1a(data: bytes) -> bytes:
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return struct.pack("<Q", h)


def test_load_refuses_forged_columns_with_a_true_checksum():
    # Any single 32-bit word of the structure replaced: the forest must load to something consistent or refuse.
    good = fan(3).to_bytes()[:-8]
    refused = 0
    for place in range(40, len(good) - 4, 4):
        forged = good[:place] + b"\x05\x00\x00\x00" + good[place + 4 :]
        try:
            forest = Forest.from_bytes(forged + fnv1a(forged))
        except ValueError as error:
            assert "damaged" in str(error)
            refused += 1
            continue
        forest.ask([0], 4)
        assert max(forest.path(node)[0] for node in range(4)) == 0
    assert refused >= 24  # parent, tree, first_child, child_count, depth, in_flight of four nodes each
