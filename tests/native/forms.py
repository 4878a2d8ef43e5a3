"""Arguments in every form that a caller may give them in, right and wrong: for drive.py."""

from __future__ import annotations

import array
import random
from typing import Any

import numpy as np

HUGE = (2**28 + 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30)
DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">u4", ">u8", ">f8", "?", "c16", "O", "U4")
CODES = {"u4": "I", "i4": "i", "u8": "Q", "f4": "f", "f8": "d"}


class Raises:
    """Fails in whatever way it is looked at."""

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("no array")

    def __fspath__(self) -> str:
        raise RuntimeError("no path")


def junk(rng: random.Random) -> Any:
    """What no call takes, or few."""
    numbers = [None, -1, 0, 3, 0.5, float("nan"), float("inf"), True, np.float32(2), np.int64(1), -rng.choice(HUGE)]
    others = ["3", b"x", "a\0b", [], [[1]], {}, [1, None], [0.5, "x"], slice(3), ..., Raises(), [Raises()]]
    arrays = [np.zeros((2, 2)), np.array(3), np.zeros(0), np.zeros(3, "V8"), np.array([2**40])]
    return rng.choice([*numbers, *others, *arrays, rng.choice(HUGE), [rng.choice(HUGE)]])


def formed(rng: random.Random, values: list[Any], dtype: str) -> Any:
    """The same numbers in another form, or nearly."""
    form = rng.randrange(16)
    if form < 3:
        return values
    if form == 3:
        return tuple(values)
    if form == 4:
        return junk(rng)
    if form == 5:
        dtype = rng.choice(DTYPES)
    try:
        base = np.array(values, dtype)
    except (OverflowError, ValueError, TypeError):
        return values
    if form == 6:
        base.setflags(write=False)
    elif form == 7:
        base = np.repeat(base, 2)[::2]
    elif form == 8:
        base = base[::-1][::-1]
    elif form == 9:
        raw = b"x" + base.tobytes()
        base = np.frombuffer(raw, base.dtype, offset=1) if base.dtype.kind != "O" else base
    elif form == 10:
        base = rng.choice((base.reshape(1, -1), base.reshape(-1, 1), base[:, None, None]))
    elif form == 11:
        base = np.broadcast_to(base[:1], len(base))
    elif form == 12:
        base = np.ma.masked_array(base)
    elif form == 13 and dtype in CODES:
        return memoryview(array.array(CODES[dtype], values))
    return base
