"""Records: what goes in comes out, bit for bit."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentq.picture import Picture
from agentq.store.codec import pack, unpack
from agentq.store.records import (
    COLUMNS,
    TreeRecord,
    decode_trajectory,
    decode_tree,
    encode_trajectory,
    encode_tree,
)
from agentq.types import (
    Action,
    Command,
    EnvAction,
    Language,
    Observation,
    Proposal,
    Split,
    Status,
    StopReason,
    Task,
)
from tests.records_factory import click, make_proposal, make_task, make_trajectory, make_tree


def same_proposal(a: Proposal | None, b: Proposal | None) -> bool:
    """Equal in every field, arrays bit for bit and of the same dtype."""
    if a is None or b is None:
        return a is b
    for field in dataclasses.fields(Proposal):
        x, y = getattr(a, field.name), getattr(b, field.name)
        equal = x.dtype == y.dtype and x.tobytes() == y.tobytes() if isinstance(x, np.ndarray) else x == y
        if not equal:
            return False
    return True


def assert_same_tree(a: TreeRecord, b: TreeRecord) -> None:
    assert (a.task, a.observation, a.error_kind) == (b.task, b.observation, b.error_kind)
    assert (a.restored, a.info) == (b.restored, b.info)
    for name in COLUMNS:
        x, y = getattr(a, name), getattr(b, name)
        assert (name, x.dtype, x.tobytes()) == (name, y.dtype, y.tobytes())
    assert len(a.proposal) == len(b.proposal)
    assert all(same_proposal(x, y) for x, y in zip(a.proposal, b.proposal, strict=True))


def round_trip(tree: TreeRecord) -> TreeRecord:
    record, blobs = encode_tree(tree)
    return decode_tree(record, lambda keys: {key: blobs[key] for key in keys})


TEXT = st.text(st.characters(), max_size=20)  # lone surrogates and NUL included
ENV_ACTIONS = st.builds(EnvAction, st.sampled_from(Command), st.none() | st.integers(0, 2**40), st.none() | TEXT)
ACTIONS = st.builds(Action, TEXT, st.none() | ENV_ACTIONS, TEXT, TEXT, TEXT, st.sampled_from(Status), st.none() | TEXT)


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    tokens = draw(st.integers(0, 4))
    logps = draw(st.lists(st.floats(width=32), min_size=tokens, max_size=tokens))  # -inf and NaN included
    ids = st.integers(0, 2**31 - 1)
    return Proposal(
        draw(ACTIONS),
        np.array(draw(st.lists(ids, max_size=4)), np.int32),
        np.array(draw(st.lists(ids, min_size=tokens, max_size=tokens)), np.int32),
        np.array(logps, np.float32),
        draw(st.sampled_from(StopReason)),
        draw(st.integers(0, 2**40)),
        draw(st.floats(0, 2)),
    )


@settings(max_examples=60)
@given(st.lists(st.tuples(st.none() | proposals(), st.none() | st.builds(Observation, TEXT, TEXT)), max_size=5))
def test_tree_record_round_trips_any_text_and_number(nodes: list[tuple[Proposal | None, Observation | None]]) -> None:
    n = len(nodes) + 1
    zeros = np.zeros(n)
    tree = TreeRecord(
        task=make_task(3),
        parent=np.arange(n) - 1,
        depth=np.arange(n),
        visit_count=zeros + 2**32 - 1,
        value_sum=zeros + 0.1,
        critic_value=zeros + 0.3,
        flags=zeros + 255,
        proposal=[None, *(p for p, _ in nodes)],
        observation=[None, *(o for _, o in nodes)],
        reward=zeros - 0.7,
        success=zeros == 0,
        error_kind=[None] * n,
    )
    assert_same_tree(tree, round_trip(tree))


def test_tree_record_round_trips_a_tree_with_unexecuted_nodes() -> None:
    tree = make_tree(seed=4, num_nodes=30)
    assert None in tree.observation[1:]
    assert_same_tree(tree, round_trip(tree))


def test_decoded_siblings_share_one_writable_prompt_array() -> None:
    tree = round_trip(make_tree(num_nodes=7))
    first, second, other = tree.proposal[1], tree.proposal[2], tree.proposal[4]
    assert first is not None and second is not None and other is not None
    assert first.prompt_ids is second.prompt_ids
    assert first.prompt_ids is not other.prompt_ids
    assert all(array.flags.writeable and array.flags.aligned for array in (first.prompt_ids, first.token_ids))


def test_trajectory_round_trips() -> None:
    trajectory = make_trajectory(seed=2, num_steps=5, success=False, return_=0.1 + 0.2)
    record, blobs = encode_trajectory(trajectory)
    again = decode_trajectory(record, lambda keys: {key: blobs[key] for key in keys})
    assert len(blobs) == 7  # 6 pages (a step's page is the next step's) and one prompt
    plain = dataclasses.replace
    assert plain(again, steps=()) == plain(trajectory, steps=())
    for a, b in zip(again.steps, trajectory.steps, strict=True):
        assert (a.observation, a.result) == (b.observation, b.result)
        assert same_proposal(a.proposal, b.proposal)


def test_every_field_of_a_task_comes_back() -> None:
    tree = make_tree(num_nodes=3)
    tree.task = Task(
        "apps/1", 7, Split.TEST, "pay", (Command.PRESS,), Language.CODE, True, "pay_back", '[{"name": "a"}]'
    )
    record, blobs = encode_tree(tree)
    assert decode_tree(record, lambda keys: {key: blobs[key] for key in keys}).task == tree.task


def test_half_of_a_surrogate_pair_and_a_picture_come_back_also_of_one_node() -> None:
    pages = [
        Observation(f"lone \ud800 {i}", picture=Picture(b"RIFF%d" % i, (9, 8), {1: (0, i, 9, 9)})) for i in range(3)
    ]
    tree = dataclasses.replace(make_tree(num_nodes=3), observation=pages)
    record, blobs = encode_tree(tree)
    for nodes in (None, [1]):
        found = decode_tree(record, lambda keys: {key: blobs[key] for key in keys}, nodes).observation
        assert found == (pages if nodes is None else [None, pages[1], None])


def test_the_fault_of_a_tree_is_the_commonest_if_no_rollout_was_left() -> None:
    tree = make_tree(num_nodes=3)
    tree.info["faults"] = {"network": 1, "session_lost": 3}
    tree.visit_count[0] = 0
    assert tree.fault == "session_lost"
    tree.visit_count[0] = 1
    assert tree.fault is None
    tree.error_kind[:] = [None, "timeout", "network"]  # a timeout is an answer to the action
    assert tree.broken.tolist() == [False, False, True]


def test_children_and_path_follow_the_parents() -> None:
    n = 6
    parent = [-1, 0, 0, 1, 0, 1]
    zeros = np.zeros(n)
    tree = dataclasses.replace(
        make_tree(num_nodes=n), parent=np.array(parent), visit_count=zeros + 4, value_sum=np.arange(n), info={}
    )
    assert [tree.children(i).tolist() for i in range(n)] == [[1, 2, 4], [3, 5], [], [], [], []]
    assert tree.path(5) == [0, 1, 5]
    assert tree.mean_value.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parent": [0, 0, 1]}, r"parent must start with the root, -1; got \[0\]"),
        ({"parent": [-1, 2, 0]}, "a parent must come before its children; got 2 as that of node 1"),
        ({"parent": [-1, 0, 2]}, "a parent must come before its children; got 2 as that of node 2"),
        ({"parent": [-1, 0, -1]}, "a parent must come before its children; got -1 as that of node 2"),
        ({"reward": [0.0]}, r"reward must have one entry per node \(3\); got 1"),
        ({"proposal": []}, r"proposal must have one entry per node \(3\); got 0"),
    ],
)
def test_tree_record_refuses_what_is_no_tree(change: dict[str, list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(make_tree(num_nodes=3), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.zeros(3, np.int64)}, "token_ids of the proposal at 1 must be 1-D int32; got 1-D int64"),
        ({"logps": np.zeros(3)}, "logps of the proposal at 1 must be 1-D float32; got 1-D float64"),
        (
            {"prompt_ids": np.zeros((1, 3), np.int32)},
            "prompt_ids of the proposal at 1 must be 1-D int32; got 2-D int32",
        ),
        ({"logps": np.zeros(2, np.float32)}, r"must have one entry per token \(3\); got 2"),
    ],
)
def test_encode_tree_refuses_arrays_outside_the_contract(change: dict[str, np.ndarray], message: str) -> None:
    tree = make_tree(num_nodes=2)
    tree.proposal[1] = dataclasses.replace(make_proposal(1, env_action=click(1)), **change)
    with pytest.raises(ValueError, match=message):
        encode_tree(tree)


def test_unpack_never_reads_damaged_bytes_as_something_else() -> None:
    data = pack({"a": 1}, {"x": np.arange(50, dtype="<f4")})
    harmless = 0
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        try:
            meta, columns = unpack(bytes(broken))
        except (zlib.error, ValueError):
            continue
        harmless += 1  # a bit that pads the stream
        assert meta == {"a": 1}
        assert columns["x"].tolist() == list(range(50))
    assert harmless <= 2


def test_pack_refuses_python_objects() -> None:
    objects: Iterable[object] = [np.array([None, {}]), np.array(["text"])]
    for column in objects:
        with pytest.raises(ValueError, match="must have a dtype of"):
            pack({}, {"x": column})  # type: ignore[dict-item]
