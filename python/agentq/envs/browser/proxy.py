"""The only way out of a browser session: a SOCKS5 proxy that connects to the allowed hosts and ports, and to no other.

It stands below the browser, so redirects, frames, new tabs, workers, service workers, web sockets and preloads all meet
it. Names are resolved here; the browser is launched unable to resolve any (see worker.py). RFC 1928, CONNECT only.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable

from agentq.envs.browser.origins import Origin

_REFUSED, _UNREACHABLE = 2, 4


async def open_proxy(allowed: frozenset[Origin], refused: Callable[[str], None]) -> asyncio.Server:
    """Listen on a free loopback port. `refused(host:port)` hears of every connection that was not allowed."""
    places = {(origin.host, origin.port) for origin in allowed}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, ValueError):
                await _serve(reader, writer, places, refused)
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    places: set[tuple[str, int]],
    refused: Callable[[str], None],
) -> None:
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\x05\x00")
    host, port = await _target(reader)
    if (host, port) not in places:
        refused(f"{host}:{port}")
        writer.write(_reply(_REFUSED))
        return
    try:
        upstream = await asyncio.open_connection(host, port)
    except OSError:
        writer.write(_reply(_UNREACHABLE))
        return
    writer.write(_reply(0))
    await asyncio.gather(_pipe(reader, upstream[1]), _pipe(upstream[0], writer))


async def _target(reader: asyncio.StreamReader) -> tuple[str, int]:
    """Host and port of a CONNECT request. Raises ValueError for anything else."""
    version, command, _, kind = await reader.readexactly(4)
    if (version, command) != (5, 1) or kind not in (1, 3, 4):
        raise ValueError("not a SOCKS5 CONNECT")
    size = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
    raw = await reader.readexactly(size)
    host = raw.decode("ascii").lower().rstrip(".") if kind == 3 else str(ipaddress.ip_address(raw))
    return host, int.from_bytes(await reader.readexactly(2), "big")


def _reply(code: int) -> bytes:
    return bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
