"""A saved forest taken apart and put together again by its description in csrc/snapshot.h."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

PAGE = 256
CELLS = np.dtype([("value_sum", "<f8"), ("started", "<u4"), ("link", "<u4")])
HEADERS = np.dtype([("parent", "<u4"), ("here", "<u4"), ("next", "<u4"), ("width", "<u2"), ("index", "<u2")])
SETTINGS = np.dtype(
    [(name, "u1") for name in ("selection", "unvisited", "exhaust", "backup", "columns", "transpositions")]
    + [("zero", "2u1"), ("num_simulations", "<u4"), ("max_considered", "<u4")]
    + [(name, "<f8") for name in ("c_exp", "discount", "alpha", "gumbel_scale", "success_at")]
    + [("seed", "<u8"), ("max_bytes", "<u8")]
)
CONTENTS = np.dtype([(name, "<u4") for name in ("trees", "cells", "entries", "pages")])
ENTRY = np.dtype(
    [(name, "<u4") for name in ("root", "used", "next_size", "reroots", "base", "chunks", "states", "zero")]
)
STATES = np.dtype([("key", "<u8"), ("value_sum", "<f8"), ("started", "<u4"), ("zero", "<u4")])
COLUMNS = {  # a bit each of the settings
    "critic": "<f4",
    "logp": "<f4",
    "prior": "<f4",
    "squares": "<f8",
    "successes": "<u4",
    "state": "<u4",
}


def checksum(data: bytes, start: int = 0) -> int:
    def stirred(x: int) -> int:
        x = x * 0x9E3779B97F4A7C15 % 2**64
        return x ^ x >> 32

    lanes = [start, start + 1, start + 2, start + 3]
    for at in range(0, len(data), 8):
        lane = at // 8 % 4
        lanes[lane] = stirred((lanes[lane] % 2**64) ^ int.from_bytes(data[at : at + 8], "little"))
    total = 0
    for lane in lanes:
        total = stirred(total ^ (lane % 2**64))
    return total


def record(payload: bytes, number: int = 0, before: int = 0, magic: bytes = b"AGQFORST") -> bytes:
    head = magic + struct.pack("<IIQQ", 3, number, len(payload), before)
    head += struct.pack("<Q", checksum(head))
    return head + payload + struct.pack("<Q", checksum(payload, int.from_bytes(head[-8:], "little")))


def split(data: bytes) -> list[bytes]:
    """The payloads of a journal; that `record` would write the same is checked."""
    payloads: list[bytes] = []
    before = at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 16 : at + 24], "little")
        payloads.append(data[at + 40 : at + 40 + size])
        assert data[at : at + 48 + size] == record(payloads[-1], len(payloads) - 1, before)
        before = int.from_bytes(data[at + 40 + size : at + 48 + size], "little")
        at += 48 + size
    return payloads


def join(payloads: list[bytes]) -> bytes:
    data = b""
    for number, payload in enumerate(payloads):
        data += record(payload, number, int.from_bytes(data[-8:], "little"))
    return data


class Parts:
    """One record, its numbers as NumPy arrays that may be written."""

    def __init__(self, payload: bytes, columns: int | None = None) -> None:
        self.settings = np.frombuffer(payload, SETTINGS, int(columns is None)).copy()
        data = payload[self.settings.nbytes :]
        self.names = [n for i, n in enumerate(COLUMNS) if (columns or self.settings["columns"].sum()) >> i & 1]
        self.contents = np.frombuffer(data, CONTENTS, 1).copy()
        at = CONTENTS.itemsize
        self.entries: dict[int, tuple[Any, Any, Any]] = {}
        self.pages: dict[int, dict[str, Any]] = {}
        for _ in range(self.contents["entries"][0]):
            tree, size = struct.unpack_from("<II", data, at)
            words = np.frombuffer(data[at + 8 : at + 8 + size], "<u4").copy()
            entry = words[:8].view(ENTRY) if len(words) > 2 else words
            end = 8 + 2 * int(entry["chunks"][0]) if len(words) > 2 else 2
            self.entries[tree] = entry, words[8:end].reshape(-1, 2), words[end:].view(STATES)
            at += 8 + size
        for _ in range(self.contents["pages"][0]):
            (page,) = struct.unpack_from("<Q", data, at)
            cells = min(PAGE, self.contents["cells"][0] - PAGE * page)
            at += 8
            self.pages[page] = {}
            for name, kind in [("cells", CELLS)] + [(name, np.dtype(COLUMNS[name])) for name in self.names]:
                self.pages[page][name] = np.frombuffer(data, kind, cells, at).copy()
                at += cells * kind.itemsize
        assert at == len(data)

    def slot(self, node: int) -> Any:
        return self.pages[node // PAGE]["cells"][node % PAGE : node % PAGE + 1]

    def header(self, block: int) -> Any:
        return self.slot(block).view(HEADERS)

    def block(self, node: int) -> int:
        """The first block of an inner node's children."""
        return int(self.slot(node)["link"][0] & 0x3FFFFFFF) * 2

    def payload(self) -> bytes:
        out = self.settings.tobytes() + self.contents.tobytes()
        for tree, parts in self.entries.items():
            body = b"".join(part.tobytes() for part in parts)
            out += struct.pack("<II", tree, len(body)) + body
        for page, columns in self.pages.items():
            out += struct.pack("<Q", page) + b"".join(column.tobytes() for column in columns.values())
        return out

    def data(self) -> bytes:
        return join([self.payload()])
