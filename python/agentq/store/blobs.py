"""Pages, prompts and pictures of a run: stored once, by the hash of their data, compressed with a dictionary.

Most of a page or prompt is also in another one of the run. So once a run has `ENOUGH` of a kind, `ROOM` bytes of them
become the preset dictionary of zlib for all that follow. A compressed blob names its dictionary in its header, by
RFC 1950; blobs from before it have none. docs/decisions/017 compares this with zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentq.store import codec

Execute = Callable[..., list[tuple[Any, ...]]]

ENOUGH = 128  # blobs of a kind
ROOM = 32 << 10  # zlib's window
PRESET = 0x20  # the bit in the second byte of a stream that begins with the checksum of a dictionary
_VALUES = 500  # in one SQL statement


class Blobs:
    """The blobs of one run's database. `execute` runs a statement and returns its rows."""

    def __init__(self, execute: Execute) -> None:
        self.execute = execute
        self.dictionaries: dict[bytes, bytes] = {}  # by checksum, as far as they were needed
        self.of_kind: dict[str, bytes] | None = None
        self._newest: dict[str, list[bytes]] | None = None  # by kind: ends of blobs, until there is a dictionary

    def add(self, blobs: Mapping[bytes, bytes]) -> None:
        """Keep the blobs (hash -> data, as `compress` made it) that are not there yet."""
        known = {address for address, _ in self._rows(list(blobs), "hash, 0")}
        for address in blobs:
            if address not in known:
                self.execute("INSERT INTO blobs VALUES (?, ?)", (address, self._kept(blobs[address])))

    def fetch(self, addresses: Iterable[bytes]) -> dict[bytes, bytes]:
        """The data by hash. Raises zlib.error if a blob is missing or damaged."""
        wanted = list(addresses)
        found = {address: self._decompress(data) for address, data in self._rows(wanted, "hash, data")}
        for address in wanted:
            if address not in found:
                raise zlib.error(f"blob {address.hex()} is missing")
        return found

    def _rows(self, addresses: Sequence[bytes], columns: str) -> Iterator[tuple[bytes, Any]]:
        for first in range(0, len(addresses), _VALUES):
            part = tuple(addresses[first : first + _VALUES])
            yield from self.execute(f"SELECT {columns} FROM blobs WHERE hash IN ({','.join('?' * len(part))})", part)

    def by_kind(self) -> dict[str, bytes]:
        """The dictionaries that there are."""
        if self.of_kind is None:
            self.of_kind = dict(self.execute("SELECT kind, data FROM dictionaries"))
            self.dictionaries |= {_checksum(data): data for data in self.of_kind.values()}
        return self.of_kind

    def forget(self) -> None:
        """Read again what there is: a transaction was undone."""
        self.of_kind = self._newest = None

    def _kept(self, given: bytes) -> bytes:
        """Compressed data as it is kept: with the dictionary of its kind, which is made once there is enough."""
        known = self.by_kind()
        preset = _preset(given)
        if preset and self.dictionaries.get(preset) in known.values():
            return given
        data = self._decompress(given)
        kind = kind_of(data)
        if kind not in known and (made := self._dictionary(kind, data)):
            self.execute("INSERT INTO dictionaries VALUES (?, ?, ?)", (_checksum(made), kind, made))
            known[kind] = self.dictionaries[_checksum(made)] = made
        return given if kind not in known and not preset else compress(data, known)

    def _dictionary(self, kind: str, data: bytes) -> bytes:
        """A dictionary of the newest blobs of a kind before `data`; empty while there are few, and for pictures."""
        if kind == "picture":
            return b""
        if self._newest is None:
            self._newest = {}
            rows = self.execute("SELECT data FROM blobs ORDER BY rowid DESC LIMIT ?", (4 * ENOUGH,))
            for (row,) in reversed(rows):
                with suppress(*codec.UNREADABLE):  # a damaged blob stops no writer
                    kept = self._decompress(row)
                    self._newest.setdefault(kind_of(kept), []).append(kept[-ROOM:])
        same = self._newest.setdefault(kind, [])
        if len(same) >= ENOUGH:
            return b"".join(self._newest.pop(kind))[-ROOM:]
        same.append(data[-ROOM:])
        return b""

    def _decompress(self, data: bytes) -> bytes:
        """Raises zlib.error if the data, or its dictionary, is damaged."""
        checksum = _preset(data)
        if not checksum:
            return zlib.decompress(data)
        if checksum not in self.dictionaries:
            rows = self.execute("SELECT data FROM dictionaries WHERE checksum = ?", (checksum,))
            if not rows:
                raise zlib.error(f"dictionary {checksum.hex()} is missing")
            self.dictionaries[checksum] = rows[0][0]
        stream = zlib.decompressobj(zdict=self.dictionaries[checksum])
        whole = stream.decompress(data) + stream.flush()
        if not stream.eof:
            raise zlib.error("incomplete stream")
        return whole


def compress(data: bytes, dictionaries: Mapping[str, bytes]) -> bytes:
    """The data compressed with the dictionary of its kind, if there is one; else at zlib's fastest level."""
    dictionary = dictionaries.get(kind_of(data))
    if dictionary is None:
        return codec.compress(data)
    stream = zlib.compressobj(zdict=dictionary)
    return stream.compress(data) + stream.flush()


def _preset(data: bytes) -> bytes:
    """The checksum of the dictionary that compressed data needs; empty if it needs none."""
    return data[2:6] if len(data) >= 6 and data[1] & PRESET else b""


def _checksum(dictionary: bytes) -> bytes:
    return zlib.adler32(dictionary).to_bytes(4, "big")


def kind_of(data: bytes) -> str:
    """What a blob is: a "picture", the token "ids" of a prompt, or the "text" of a page."""
    if data[:4] == b"RIFF":
        return "picture"
    high = data[3::4]  # of little-endian 32-bit integers
    return "ids" if len(data) % 4 == 0 and high.count(0) == len(high) > 0 else "text"
