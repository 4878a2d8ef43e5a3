"""Messages between the pool and a worker: a length of four bytes, big-endian, then that many bytes of JSON.

    pool -> worker   {"id": 7, "session": 2, "call": "act", "args": {...}}
    worker -> pool   {"id": 7, "result": {...}}   or   {"id": 7, "error": "one line", "gone": whether the session died}

Replies come in any order. The worker's first message has id 0. An end of file on either side ends the other.
`envs/remote` frames its own messages in the same way. Runs in any Python 3.9, without agentq.
"""

from __future__ import annotations

import json
from typing import IO, Any, Protocol

MAX_BYTES = 1 << 26  # limit of one message; a larger one is the fault of a page
CALL_BYTES, REPLY_BYTES = 1 << 20, 1 << 22  # limits of a message to and from an environment behind a server

Message = dict[str, Any]


class Readable(Protocol):
    """A source of messages. `read(size)` returns fewer bytes only at the end of the stream."""

    def read(self, size: int, /) -> bytes: ...


def write(stream: IO[bytes], message: Message, most: int = MAX_BYTES) -> None:
    """Send one message, or its id and an error if it takes more than `most` bytes. Raises OSError without a reader."""
    body = encode(message)
    if len(body) > most:
        body = encode({"id": message["id"], "error": f"a message must fit {most} bytes; got {len(body)}"})
    write_body(stream, body)


def write_body(stream: IO[bytes], body: bytes) -> None:
    """Send one encoded message. Raises OSError if the reader is gone."""
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()


def encode(message: Message) -> bytes:
    """JSON in UTF-8. A lone surrogate, which a page's strings may contain, becomes a question mark."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def read(stream: Readable, most: int = MAX_BYTES) -> Message | None:
    """The next message; None at the end of the stream. Raises ValueError or RecursionError for an invalid message."""
    body = read_body(stream, most)
    return None if body is None else decode(body)


def read_body(stream: Readable, most: int) -> bytes | None:
    """The next message undecoded; None at the end of the stream. Raises ValueError if it exceeds `most` bytes."""
    head = stream.read(4)
    size = int.from_bytes(head, "big")
    if len(head) < 4:
        return None
    if size > most:
        raise ValueError(f"a message must fit {most} bytes; got {size}")
    body = stream.read(size)
    return body if len(body) == size else None


def decode(body: bytes) -> Message:
    """Decode a message. Raises ValueError or RecursionError for an invalid message."""
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError(f"a message must be an object; got {type(message).__name__}")
    return message
