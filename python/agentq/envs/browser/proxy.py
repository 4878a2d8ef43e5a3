"""The only way out of a browser session: a SOCKS5 proxy that connects to the allowed hosts and ports only.

It is outside the browser, so redirects, frames, new tabs, workers, service workers, web sockets and preloads all pass
through it. Names are resolved here; the browser is launched unable to resolve any (see worker.py). RFC 1928, CONNECT
only. With a gate it reads each request (exchange.py), https included: the browser's encryption ends here, and a new one
to the site begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Callable

from agentq.envs.browser.certificate import browser_context, upstream_context
from agentq.envs.browser.exchange import HEAD_BYTES, Exchange, Upstream
from agentq.envs.browser.gate import Gate
from agentq.envs.browser.origins import Origin

_REFUSED, _UNREACHABLE = 2, 4
OnRefused = Callable[[str], None]


async def open_proxy(allowed: frozenset[Origin], refused: OnRefused, gate: Gate | None = None) -> asyncio.Server:
    """Listen on a free loopback port. `refused(host:port)` is called for every connection that is not allowed."""
    places = {(origin.host, origin.port): origin for origin in sorted(allowed)}
    if gate is not None and any(origin.scheme == "https" for origin in allowed):
        browser_context()  # reports a missing package at once

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                await _serve(reader, writer, places, refused, gate)
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_BYTES)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    places: dict[tuple[str, int], Origin],
    refused: OnRefused,
    gate: Gate | None,
) -> None:
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\x05\x00")
    host, port = await _target(reader)
    origin = places.get((host, port))
    if origin is None:
        refused(f"{host}:{port}")
        writer.write(_reply(_REFUSED))
        return
    reads = gate is not None and origin.scheme == "https"

    async def connect() -> Upstream:
        context = upstream_context() if reads else None
        return await asyncio.open_connection(host, port, ssl=context, server_hostname=host if reads else None)

    try:
        upstream = await connect()
    except OSError as error:
        if gate is not None and isinstance(error, ssl.SSLCertVerificationError):
            gate.distrusted = error.verify_message
        writer.write(_reply(_UNREACHABLE))
        return
    writer.write(_reply(0))
    if gate is None:
        await asyncio.gather(_pipe(reader, upstream[1]), _pipe(upstream[0], writer))
        return
    try:
        if reads:
            await writer.start_tls(browser_context())
        exchange = Exchange(reader, writer, gate, str(origin), upstream, connect)
    except BaseException:
        upstream[1].close()
        raise
    await exchange.run()


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
