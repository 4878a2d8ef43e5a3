"""The messages between pool and worker; needs no browser."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.envs.browser import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3), max_size=4))
def test_what_was_written_is_read(messages: list[wire.Message]) -> None:
    stream = io.BytesIO()
    for message in messages:
        wire.write(stream, message)
    stream.seek(0)
    assert [wire.read(stream) for _ in messages] == messages
    assert wire.read(stream) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_an_end_or_an_error(data: bytes) -> None:
    stream = io.BytesIO(data)
    try:
        message = wire.read(stream)
    except ValueError:
        return
    assert message is None or isinstance(message, dict)


def test_a_message_that_is_torn_is_an_end() -> None:
    stream = io.BytesIO()
    wire.write(stream, {"id": 1, "result": "x"})
    whole = stream.getvalue()
    assert [wire.read(io.BytesIO(whole[:n])) for n in range(len(whole))] == [None] * len(whole)


def test_messages_have_a_limit_on_both_sides() -> None:
    stream = io.BytesIO()
    wire.write(stream, {"id": 7, "result": "x" * 100}, 80)
    assert wire.read(io.BytesIO(stream.getvalue()), 80) == {"id": 7, "error": "a message must fit 80 bytes; got 120"}
    with pytest.raises(ValueError, match="a message must fit 80 bytes; got 81"):
        wire.read(io.BytesIO((81).to_bytes(4, "big")), 80)
    with pytest.raises(ValueError, match="a message must fit 67108864 bytes; got 67108865"):
        wire.read(io.BytesIO((wire.MAX_BYTES + 1).to_bytes(4, "big")))
    with pytest.raises(ValueError, match="a message must be an object; got list"):
        wire.read(io.BytesIO((2).to_bytes(4, "big") + b"[]"))
