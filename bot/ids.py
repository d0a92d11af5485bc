"""Ids for people and logs: a letter for the kind, then time and chance: they sort by age and never collide."""

from __future__ import annotations

import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(kind: str) -> str:
    """`t-` and 13 characters: 8 of the time in milliseconds, 5 of chance."""
    return f"{kind}-{_base32(int(time.time() * 1000), 9)[-8:]}{_base32(secrets.randbits(25), 5)}"


def _base32(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
