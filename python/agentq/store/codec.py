"""Bytes of one record: a JSON part and named NumPy columns, zlib-compressed. Owns the layout, independent of trees and
SQLite.

    zlib( uint32 length of the header | header, JSON: {"meta": ..., "columns": [[name, dtype, shape], ...]} | columns )

Every number is little-endian with a fixed dtype, and nothing is pickled, so reading never runs the writer's code.
zlib's Adler-32 checksum detects damaged records.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

HASH_BYTES = 16
DTYPES = frozenset({"<i4", "<i8", "<u4", "<f4", "<f8", "|u1", "|b1"})

UNREADABLE = (zlib.error, struct.error, ValueError, TypeError, IndexError, KeyError)  # what damaged bytes raise

Fetch = Callable[[Iterable[bytes]], dict[bytes, bytes]]
"""Reads many blobs by hash."""


def jsonable(value: Any) -> Any:
    """NumPy (and torch) scalars as Python numbers, for `json.dumps(default=...)`."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"must be str, number, bool, None, list or dict; got {type(value).__name__}")


def blob_hash(data: bytes) -> bytes:
    """The address of a blob: the first 16 bytes of BLAKE2b of its uncompressed data."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


def compress(data: bytes) -> bytes:
    """zlib at its fastest level: a third to a half of the default level's time, for 7 % more bytes on search trees."""
    return zlib.compress(data, 1)


def pack(meta: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> bytes:
    """One record as bytes; `unpack` is its inverse.

    Raises:
        ValueError: if a column's dtype is not one of `DTYPES`.
        TypeError: if `meta` has a value without a JSON form.
    """
    for name, column in columns.items():
        if column.dtype.str not in DTYPES:
            raise ValueError(f"column '{name}' must have a dtype of {sorted(DTYPES)}; got {column.dtype.str}")
    layout = [[name, column.dtype.str, list(column.shape)] for name, column in columns.items()]
    header = json.dumps({"meta": meta, "columns": layout}, default=jsonable).encode()
    parts = [struct.pack("<I", len(header)), header, *(np.ascontiguousarray(c).tobytes() for c in columns.values())]
    return compress(b"".join(parts))


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON part and the columns (writable, aligned copies) of a record.

    Raises:
        ValueError, zlib.error, struct.error: if the bytes are no record.
    """
    raw = zlib.decompress(data)
    (length,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + length])
    columns, offset = {}, 4 + length
    for name, dtype, shape in header["columns"]:
        if dtype not in DTYPES:
            raise ValueError(f"column '{name}' must have a dtype of {sorted(DTYPES)}; got {dtype}")
        count = math.prod(shape)
        columns[name] = np.frombuffer(raw, dtype, count, offset).reshape(shape).copy()
        offset += count * np.dtype(dtype).itemsize
    return header["meta"], columns


class ValueTable(dict[Hashable, int]):
    """The distinct JSON values of one record, numbered in order of first use. A tuple is read back as a list."""

    def __missing__(self, value: Hashable) -> int:
        self[value] = number = len(self)
        return number

    def column(self, values: Iterable[Hashable]) -> np.ndarray:
        """`[n]` int32: the numbers of these values, which must not be bools or floats: 1, 1.0 and True are equal."""
        return np.fromiter(map(self.__getitem__, values), "<i4")


class BlobTable:
    """The distinct blobs that one record refers to, numbered in order of first use."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}  # hash -> uncompressed data
        self._index: dict[bytes, int] = {}

    def add(self, data: bytes) -> int:
        """The number of this blob; equal data has one number."""
        key = blob_hash(data)
        self.data[key] = data
        return self._index.setdefault(key, len(self._index))

    def column(self) -> np.ndarray:
        """`[M, 16]` uint8: the hashes."""
        return np.frombuffer(b"".join(self._index), np.uint8).reshape(-1, HASH_BYTES)


def fetch_blobs(hashes: np.ndarray, fetch: Fetch, only: Iterable[int] | None = None) -> dict[int, bytes]:
    """The data of `[M, 16]` hashes by their numbers, or of the numbers `only`."""
    keys = {number: hashes[number].tobytes() for number in (range(len(hashes)) if only is None else only)}
    found = fetch(keys.values())
    return {number: found[key] for number, key in keys.items()}
