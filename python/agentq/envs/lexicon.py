"""Words and a fixed hash that both sites share. Short common words, so that each can be one token."""

from __future__ import annotations

import hashlib


def words(text: str) -> tuple[str, ...]:
    """The words of `text`."""
    return tuple(text.split())


def fixed_hash(*parts: object) -> int:
    """A 64-bit number that depends on `parts` only, in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


FIRST_NAMES = words(
    "Ann Ben Carl Dana Eric Fay Greg Hana Ivan Jane Karl Lena Mark Nina Omar Paula Ruth Sam Tina Victor "
    "Wendy Alan Beth Clara David Emma Frank Grace Henry Iris Jack Kate Leo Mary Noah Olga Peter Rosa Simon Tom"
)
LAST_NAMES = words(
    "Miller Smith Jones Brown Davis Wilson Moore Taylor Thomas Jackson White Harris Martin Clark Lewis Walker Hall "
    "Allen Young King Wright Scott Baker Adams Nelson Carter Mitchell Turner Phillips Campbell Parker Evans Edwards "
    "Collins Stewart Morris Rogers Reed Cook Bell"
)
MAIL_HOSTS = ("mail", "post", "inbox")
MONTHS = (("May", 31), ("June", 30))
DATES = tuple(f"{month} {day}" for month, days in MONTHS for day in range(1, days + 1))
TIMES = tuple(f"{hour}:{minute} PM" for hour in range(5, 10) for minute in ("00", "30"))
