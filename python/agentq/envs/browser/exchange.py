"""One connection of the browser, read request by request (HTTP/1.1); each is sent only if the gate allows it.

No part of a held request reaches the site. For a document the browser gets an answer without content, so the page stays
as it is; for anything else, the connection fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from agentq.envs.browser.gate import MAX_SHOWN, Gate, Head
from agentq.envs.browser.rules import WEBSOCKET

Upstream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HEAD_BYTES = 1 << 18  # limit for a head, a frame or a message
_STAYS = b"HTTP/1.1 204 Held\r\nConnection: close\r\n\r\n"
# An invalid answer. The browser does not repeat the request, as it would if the connection just closed.
_FAILS = b"HTTP/1.1 400 Held\r\nContent-Length: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
_CONTROL = 8  # web socket opcodes from here on carry no message: close, ping, pong
_CLOSE = 8


class Exchange:
    """`origin`: the destination; `connect` opens a connection to it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: Gate,
        origin: str,
        upstream: Upstream,
        connect: Callable[[], Awaitable[Upstream]],
    ) -> None:
        self.reader, self.writer, self.gate, self.origin = reader, writer, gate, origin
        self.connect = connect
        self.upstream: Upstream | None = upstream
        self.head: Head | None = None  # method of the latest request that was sent
        self.answered = True  # a byte of its answer has arrived
        self.once = False  # it was sent with a person's yes
        self.waiting = False  # the latest request waits for a person
        self.pump = asyncio.create_task(self._back(upstream))

    async def run(self) -> None:
        """Serve until either side closes."""
        try:
            while await self._request():
                pass
        finally:
            self.pump.cancel()
            self._drop()

    async def _request(self) -> bool:
        """Handle one request. Returns whether another may follow."""
        raw = await self.reader.readuntil(b"\r\n\r\n")
        head = Head.read(raw, self.origin)
        if "transfer-encoding" in head.headers:  # no browser sends this by HTTP/1.1
            return await self._refuse(head)
        size = int(head.headers.get("content-length", "0"))
        if head.headers.get("upgrade", "").lower() == "websocket" and head.safe:
            return await self._socket(head)
        if (head.safe and not self.gate.waits(head)) or self.gate.by_rule(head):
            await self._send(head, size)
            return True
        body = await self._body(size)
        if not await self._patient(self.gate.passes(head, body)):
            return await self._refuse(head)
        await self._once(head, body or b"")
        return True

    async def _body(self, size: int) -> bytes | None:
        """The body of a request, or None if it is too long to be shown."""
        if size <= MAX_SHOWN:
            return await self.reader.readexactly(size)
        while size and (data := await self.reader.read(min(size, 65536))):
            size -= len(data)
        return None

    async def _patient(self, decision: Awaitable[bool]) -> bool:
        """The decision; no if the browser gives up first."""
        decided, gone = asyncio.ensure_future(decision), asyncio.ensure_future(self.reader.read(1))
        self.waiting = True
        try:
            await asyncio.wait({decided, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise EOFError("the browser has closed the connection")
            return decided.result()
        finally:
            self.waiting = False
            for task in (decided, gone):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, EOFError):
                    await task

    async def _refuse(self, head: Head) -> bool:
        self.writer.write(_STAYS if head.navigates else _FAILS)
        await self.writer.drain()
        return False

    async def _send(self, head: Head, size: int) -> None:
        if self.upstream is None:
            raise EOFError("the site has closed the connection")
        self.head, self.answered, self.once = head, False, False
        self.gate.counts["sent"] += not head.safe
        writer = self.upstream[1]
        writer.write(head.raw)
        while size:
            data = await self.reader.read(min(size, 65536))
            if not data:
                raise EOFError("the browser has closed the connection")
            size -= len(data)
            writer.write(data)
            await writer.drain()
        await writer.drain()

    async def _once(self, head: Head, body: bytes) -> None:
        """Send an allowed request on a connection of its own, never twice."""
        self._drop()
        try:
            self.upstream = await self.connect()
        except OSError:
            self.writer.write(_FAILS)
            raise
        self.pump = asyncio.create_task(self._back(self.upstream))
        self.head, self.answered, self.once = head, False, True
        self.gate.counts["sent"] += 1
        self.upstream[1].write(head.raw + body)
        await self.upstream[1].drain()

    def _drop(self) -> None:
        self.pump.cancel()
        if self.upstream is not None:
            self.upstream[1].close()
            self.upstream = None

    async def _back(self, upstream: Upstream) -> None:
        """Pass on the site's answer as it arrives."""
        with contextlib.suppress(OSError):
            while data := await upstream[0].read(65536):
                if not self.answered and self.head is not None:
                    self.answered = True
                    if self.head.navigates:
                        self.gate.moves(self.head)
                self.writer.write(data)
                await self.writer.drain()
        upstream[1].close()
        self.upstream = None
        if self.waiting:  # the person's answer opens another connection
            return
        if self.once and not self.answered:
            self.writer.write(_FAILS)  # the site may have accepted it: the browser must not repeat it
        self.writer.close()

    async def _socket(self, head: Head) -> bool:
        """A web socket. Each message on it counts as a request of its own."""
        kept = [line for line in head.raw.split(b"\r\n") if not line.lower().startswith(b"sec-websocket-extensions:")]
        raw = b"\r\n".join(kept)  # without compression each message can be read and dropped
        await self._send(Head(head.method, head.url, head.headers, raw), 0)
        message = Head(WEBSOCKET, head.url, {}, b"")
        frames: list[bytes] = []
        texts: list[bytes] = []
        while True:
            first, frame, text = await self._frame()
            if first & 15 >= _CONTROL:
                await self._on(_without_reason(frame, len(text)) if first & 15 == _CLOSE else frame)
                continue
            frames.append(frame)
            texts.append(text)
            if sum(map(len, texts)) > HEAD_BYTES:
                return False
            if first & 128:
                body = b"".join(texts)
                if self.gate.by_rule(message) or await self.gate.passes(
                    message, body if len(body) <= MAX_SHOWN else None
                ):
                    self.gate.counts["sent"] += 1
                    await self._on(b"".join(frames))
                frames, texts = [], []

    async def _on(self, data: bytes) -> None:
        if self.upstream is None:
            raise EOFError("the site has closed the connection")
        self.upstream[1].write(data)
        await self.upstream[1].drain()

    async def _frame(self) -> tuple[int, bytes, bytes]:
        """One frame from the browser (RFC 6455): its first byte, the whole frame, its content."""
        head = await self.reader.readexactly(2)
        size = head[1] & 127
        more = {126: 2, 127: 8}.get(size, 0)
        length = await self.reader.readexactly(more)
        size = int.from_bytes(length, "big") if more else size
        if not head[1] & 128 or size > HEAD_BYTES:
            raise ValueError("a frame of a browser must be masked and short")
        mask = await self.reader.readexactly(4)
        data = await self.reader.readexactly(size)
        text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        return head[0], head + length + mask + data, text


def _without_reason(frame: bytes, size: int) -> bytes:
    """A close frame whose content of `size` bytes is cut to its code: its reason is a text of the page."""
    at = len(frame) - size
    code = frame[at : at + 2]
    return bytes([frame[0], 128 | len(code)]) + frame[at - 4 : at] + code
