"""Saving and loading are the identity, and nothing but a whole snapshot loads."""

from __future__ import annotations

import random
import struct

import pytest

from agentq._core import Forest
from tests.reference.builders import Twins, child, fan, visit


def grown(**settings) -> Twins:
    """Three trees, the middle one dropped, the last re-rooted; nothing in flight."""
    twins = Twins(c_exp=0.3, **settings)
    twins.add_trees(3)
    rng = random.Random(0)
    for _ in range(30):
        for ticket in twins.ask([0, 1, 2], 2):
            if len(twins.node(ticket).path()) < 5:
                twins.expand([ticket], [[(rng.random(), -rng.random(), 0.0) for _ in range(rng.randint(1, 4))]])
            elif twins.forest.exhaust:  # else the tests below could not expand every leaf
                twins.set_terminal(ticket)
            twins.tell([ticket], [rng.choice((0.0, 0.5, 1.0))])
    twins.drop(1)
    twins.reroot(2, twins.roots[2].children[0])
    return twins


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"exhaust": False},
        {"backup": "max", "discount": 0.5, "squares": True},
        {"selection": "puct"},
        {"selection": "best_first"},
    ],
)
def test_save_and_load_are_the_identity(tmp_path, settings):
    twins = grown(**settings)
    before = twins.forest.to_bytes()
    tickets = twins.forest.ask([0, 2], 2)[0]
    twins.forest.save(tmp_path / "a.forest")
    assert [file.name for file in tmp_path.iterdir()] == ["a.forest"]
    loaded = Forest.load(str(tmp_path / "a.forest"))
    assert loaded.to_bytes() == before  # what was in flight is saved as cancelled
    twins.check(loaded)
    for name in ("selection", "c_exp", "unvisited", "exhaust", "backup", "discount", "alpha", "squares", "max_bytes"):
        assert getattr(loaded, name) == getattr(twins.forest, name)

    # and both go on alike
    twins.forest.cancel(tickets)
    for forest in (twins.forest, loaded):
        forest.add_trees(2)
        for _ in range(40):
            tickets, _, _, depth, _ = forest.ask([0, 2, 3, 4])
            few = tickets[depth < 6]
            forest.expand(few, [3] * len(few))
            forest.tell(tickets, depth / 8)
    for tree in (0, 2, 3, 4):
        ours, theirs = twins.forest.table(tree), loaded.table(tree)
        for name in ours.keys() - {"id"}:
            assert ours[name].tolist() == theirs[name].tolist()


def test_load_refuses_what_is_no_whole_snapshot(tmp_path):
    good = fan(3).to_bytes()
    with pytest.raises(FileNotFoundError):
        Forest.load(tmp_path / "none")
    with pytest.raises(ValueError, match="must start with AGQFORST"):
        Forest.from_bytes(b"PK\x03\x04" + good)
    with pytest.raises(ValueError, match="must be 2; got 3, written by a newer agentq"):
        Forest.from_bytes(good[:8] + struct.pack("<I", 3) + good[12:])
    with pytest.raises(ValueError, match="must be 2; got 1, written by an older agentq"):
        Forest.from_bytes(good[:8] + struct.pack("<I", 1) + good[12:])
    for cut in range(8, len(good), 7):
        with pytest.raises(ValueError, match="this one is damaged"):
            Forest.from_bytes(good[:cut])
    for place in range(12, len(good)):
        with pytest.raises(ValueError, match="this one is damaged: its checksum does not match"):
            Forest.from_bytes(good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :])


def checksum(data: bytes) -> bytes:
    h = 0xCBF29CE484222325
    for at in range(0, len(data), 8):
        h = (h ^ int.from_bytes(data[at : at + 8], "little")) * 0x100000001B3 % 2**64
        h ^= h >> 32
    return struct.pack("<Q", h)


@pytest.mark.parametrize("word", [0, 1, 5, 34, 0x7FF00000, 0xFFFFFFFF])
def test_load_refuses_forged_words_with_a_true_checksum(word):
    # Any single 32-bit word replaced: the forest must load to something that works, or refuse.
    forest = fan(3)
    forest.add_trees(1)
    visit(forest, 1, 0.5)
    good = forest.to_bytes()[:-8]
    assert checksum(good) == forest.to_bytes()[-8:]
    refused = 0
    for place in range(8, len(good) - 3, 4):
        forged = good[:place] + struct.pack("<I", word) + good[place + 4 :]
        try:
            loaded = Forest.from_bytes(forged + checksum(forged))
        except (ValueError, MemoryError) as error:
            assert str(error)
            refused += 1
            continue
        for tree in loaded.trees.tolist():
            table = loaded.table(tree)
            for node in table["id"].tolist():
                assert loaded.path(node)[0] == loaded.root(tree)
        if all(loaded.started[loaded.root(tree)] < 2**31 for tree in loaded.trees):
            tickets = loaded.ask(loaded.trees, 3)[0]
            loaded.tell(tickets, [0.5] * len(tickets))
        loaded.add_trees(1)
        loaded.drop(loaded.trees)
    assert refused >= 10


def test_load_names_what_is_wrong():
    # Every word of a snapshot of two levels in turn takes the value of every other word, and small numbers.
    twins = Twins(max_bytes=2**20)
    twins.add_trees(2)
    for value in (0.0, 1.0, 0.5):
        for ticket in twins.ask([0]):
            twins.expand([ticket], [[(0, 0, 0)] * 2])
            twins.tell([ticket], [value])
    good = twins.forest.to_bytes()[:-8]
    words = struct.unpack(f"<{len(good) // 4}I", good)
    told = set()

    def forge(data: bytes) -> None:
        try:
            Forest.from_bytes(data + checksum(data))
        except ValueError as error:
            told.add(str(error).removeprefix("a forest snapshot must be whole; this one is damaged: "))

    forge(good + bytes(4))
    for place in range(16, len(words)):
        for word in {*words[16:], *range(9)} - {words[place]}:
            forge(good[: 4 * place] + struct.pack("<I", word) + good[4 * place + 4 :])
    assert told == {
        "a node has flags that cannot be",
        "a node lies where none can",
        "a root lies where none can",
        "it ends too early",
        "it goes on after its end",
        "it holds more than its byte limit",
        "the memory of a tree cannot be",
        "the visits of a node and its children differ",
        "two nodes lie in one place",
        "two trees lie in one place",
    }


def test_a_forest_without_trees_is_saved_too():
    forest = Forest()
    assert Forest.from_bytes(forest.to_bytes()).num_nodes == 0
    forest.add_trees(2)
    forest.drop([0, 1])
    loaded = Forest.from_bytes(forest.to_bytes())
    loaded.add_trees(1)
    assert loaded.trees.tolist() == [2]


def test_ids_stay_the_same():
    forest = fan(3)
    loaded = Forest.from_bytes(forest.to_bytes())
    assert [child(loaded, i) for i in range(3)] == [child(forest, i) for i in range(3)]
