"""Saving and loading are the identity; saving again writes what changed. What is refused: test_forest_damage.py."""

from __future__ import annotations

import random
import struct

import pytest

from agentq._core import Forest
from tests.reference.builders import Twins, child, fan, visit
from tests.reference.records import Parts, join, split


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


@pytest.mark.parametrize("word", [0, 1, 5, 34, 0x7FF00000, 0xFFFFFFFF])
def test_load_refuses_forged_words_with_a_true_checksum(word):
    # Any single 32-bit word replaced: the forest must load to something that works, or refuse.
    forest = fan(3)
    forest.add_trees(1)
    visit(forest, 1, 0.5)
    (good,) = split(forest.to_bytes())
    refused = 0
    for place in range(0, len(good), 4):
        forged = good[:place] + struct.pack("<I", word) + good[place + 4 :]
        try:
            loaded = Forest.from_bytes(join([forged]))
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


def grow(forest: Forest, trees: list[int], rounds: int = 1, seed: int = 0) -> None:
    """Every third rollout of a round ends in a terminal leaf, every third widens its node."""
    rng = random.Random(seed)
    for _ in range(rounds):
        tickets, _, _, depth, _ = forest.ask(trees)
        for i, (ticket, far) in enumerate(zip(tickets.tolist(), depth.tolist(), strict=True)):
            kind = i % 3 if far > 2 else 2
            is_leaf = not len(forest.children(forest.nodes_of([ticket])[0]))
            if kind == 0 and is_leaf:
                forest.set_terminal([ticket])
            elif kind == 1 or not is_leaf:
                forest.widen([ticket], [rng.random()])
            else:
                forest.expand([ticket], [rng.randint(1, 4)], None)
                forest.widen([ticket])
            forest.tell([ticket], [rng.choice((0.0, 0.5, 1.0))])


RULES = ["ucb1", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"]


@pytest.mark.parametrize("rule", RULES)
def test_a_journal_is_the_identity_at_every_save(tmp_path, rule):
    forest = Forest(selection=rule, num_simulations=30, max_considered=3, gumbel_scale=0.5, seed=7)
    forest.add_trees(40)
    path, records = tmp_path / "a.forest", []
    for step in range(12):
        grow(forest, forest.trees[step % 3 : step % 3 + 4].tolist(), 3, step)
        if step == 4:
            forest.drop([0, 5, 39])
        if step == 5:
            forest.add_trees(3)
        if step in (6, 8):
            below = [(tree, node) for tree in forest.trees for node in forest.children(forest.root(tree)).tolist()]
            forest.reroot(*next((tree, node) for tree, node in below if len(forest.children(node))))
        if step == 7:
            forest.prune(forest.root(2))
        before = forest.to_bytes()
        tickets = forest.ask(forest.trees, 2)[0]
        forest.save(path)
        forest.cancel(tickets)
        assert forest.to_bytes() == before
        loaded = Forest.load(path)
        assert loaded.to_bytes() == before  # what was in flight is saved as cancelled
        for name in ("seed", "num_simulations", "max_considered", "gumbel_scale", "num_nodes"):
            assert getattr(loaded, name) == getattr(forest, name)
        if step % 4 == 3:
            forest = loaded  # goes on behind what it read
        records.append(len(split(path.read_bytes())))
    assert max(records) > 2 and min(records) == 1
    ours, theirs = forest, Forest.load(path)
    for both in (ours, theirs):
        grow(both, both.trees.tolist(), 5)
    mine, other = ours.table(), theirs.table()
    for name in mine.keys() - {"id"}:
        assert mine[name].tolist() == other[name].tolist()


def told(forest: Forest, tree: int) -> None:
    forest.tell_one(forest.ask_one(tree)[0], 0.5)


def test_save_appends_the_pages_and_trees_that_changed(tmp_path):
    # A tree of one node has a chunk of 32 cells: eight to a page of 256, 40 in five pages.
    forest, path = Forest(), tmp_path / "a.forest"
    forest.add_trees(40)
    forest.save(path)
    first = path.read_bytes()
    forest.save(path)
    assert path.read_bytes() == first
    told(forest, 17)  # the first cells of page 2: N and W alone
    forest.save(path)
    assert path.read_bytes()[: len(first)] == first
    whole, changed = split(path.read_bytes())
    assert list(Parts(whole).pages) == [0, 1, 2, 3, 4] and list(Parts(whole).entries) == list(range(40))
    changes = Parts(changed, 0)
    assert list(changes.pages) == [2] and not changes.entries
    tickets = forest.ask([3, 25])[0]
    forest.expand(tickets, [2, 2])  # more cells of their chunks; told of neither
    forest.save(path)
    changes = Parts(split(path.read_bytes())[2], 0)
    assert list(changes.pages) == [0, 3] and list(changes.entries) == [3, 25]
    forest.cancel(tickets)
    forest.drop([25])
    size = path.stat().st_size
    forest.save(path)
    changes = Parts(split(path.read_bytes())[3], 0)
    assert list(changes.pages) == [3] and list(changes.entries) == [25]
    assert path.stat().st_size == size + 48 + 16 + 16 + 8 + 256 * 16


def test_save_writes_everything_when_it_must(tmp_path):
    def records(name: str = "a.forest") -> int:
        return len(split((tmp_path / name).read_bytes()))

    forest, path = Forest(), tmp_path / "a.forest"
    forest.add_trees(40)
    counts = []
    for tree in range(40):
        told(forest, tree)
        forest.save(path)
        counts.append(records())
        assert path.stat().st_size <= 2 * len(forest.to_bytes())
    assert counts == ([1, 2, 3, 4, 5, 6] * 7)[:40]  # a record of one page is between a sixth and a fifth of everything
    assert [file.name for file in tmp_path.iterdir()] == ["a.forest"]

    def save_again(to: str = "a.forest") -> int:
        told(forest, 0)
        forest.save(tmp_path / to)
        assert Forest.load(tmp_path / to).to_bytes() == forest.to_bytes()
        return records(to)

    path.unlink()
    assert [save_again(), save_again()] == [1, 2]
    assert [save_again("b.forest"), save_again("b.forest")] == [1, 2]  # another file
    assert save_again() == 1  # no longer what it last wrote
    path.write_bytes(path.read_bytes() + b"AGQ")  # somebody was killed while writing
    assert save_again() == 1
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert save_again() == 1
    other = Forest.load(path)
    told(other, 1)
    other.save(path)
    assert records() == 2
    assert save_again() == 1  # another forest went on there
    assert save_again() == 2
    forest.expand(forest.ask([1])[0], [1], [0.5])  # a column that there was not
    assert save_again() == 1
    with pytest.raises(FileNotFoundError):
        forest.save(tmp_path / "none" / "a.forest")
    assert save_again() == 1
    with pytest.raises(IsADirectoryError):
        forest.save(tmp_path)
    assert sorted(file.name for file in tmp_path.parent.iterdir() if file.name.endswith(".partial")) == []
    with pytest.raises(TypeError):
        forest.save(3.5)


def test_a_page_that_is_used_again_is_written_though_another_is_just_like_it(tmp_path):
    forest, path = Forest(), tmp_path / "a.forest"
    forest.add_trees(24)  # three pages alike
    forest.drop(list(range(8, 16)))
    forest.save(path)
    forest.add_trees(8)
    forest.save(path)
    assert list(Parts(split(path.read_bytes())[1], 0).pages) == [1]
    assert Forest.load(path).to_bytes() == forest.to_bytes()


def test_a_block_may_lie_over_several_pages():
    forest = fan(2000)
    visit(forest, 1999, 0.5)
    assert Forest.from_bytes(forest.to_bytes()).to_bytes() == forest.to_bytes()


def test_a_loaded_forest_uses_the_places_of_dropped_trees_again():
    forest = Forest(max_bytes=8192)
    forest.add_trees(16)  # a tree's first chunk is 512 bytes
    forest.drop(range(0, 16, 2))
    loaded = Forest.from_bytes(forest.to_bytes())
    assert len(loaded.add_trees(8)) == 8
    with pytest.raises(MemoryError):
        loaded.add_trees(1)
