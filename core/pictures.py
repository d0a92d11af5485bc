"""Pictures that tools bring for people: which of them can be posted, and what the model reads about each.

A picture is a whole PNG and nothing else: signature, chunks with right checksums, `IEND` at the very end. What is
none, too large or one too many is left out, and the model is told so: it must not speak of what nobody sees.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

from core.ports import Picture

MOST: Final = 4
MOST_BYTES: Final = 5 * 1024 * 1024
SHORTEST_SIDE: Final = 16
LONGEST_SIDE: Final = 8_192
MOST_PIXELS: Final = 40_000_000
TITLE_CHARS: Final = 150
ALT_CHARS: Final = 1_000
"""Slack takes no longer description of a picture."""

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_FIRST_BYTES: Final = 4_096


def admitted(given: Sequence[Picture], cleaned: Callable[[str, int], str]) -> tuple[Sequence[Picture], str]:
    """The pictures that are posted, and the lines about all of them for the model, empty without any.

    `cleaned(text, most)` makes a text fit to be kept and shown.
    """
    kept: list[Picture] = []
    lines: list[str] = []
    for picture in given:
        why = _unfit(picture) or (f"no more than {MOST} of a call are posted" if len(kept) == MOST else None)
        title = _line(picture.title, TITLE_CHARS, cleaned) if isinstance(picture, Picture) else "?"
        if why is None:
            kept.append(Picture(title, _line(picture.alt, ALT_CHARS, cleaned), bytes(picture.png)))
            lines.append(f"\n[people see this as a picture in the thread: {title}]")
        elif len(lines) < 2 * MOST:
            lines.append(f"\n[the picture {title!r} is left out: {why}]")
    return kept, "".join(lines)


def _line(text: str, most: int, cleaned: Callable[[str, int], str]) -> str:
    """A cleaned text in one line of at most `most` characters."""
    line = " ".join(cleaned(str(text), 2 * most).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _unfit(picture: object) -> str | None:
    """Why this can't be posted, None when it can."""
    if not isinstance(picture, Picture) or not isinstance(picture.png, bytes | bytearray):
        return "it is no picture"
    if len(picture.png) > MOST_BYTES:
        return f"it has {len(picture.png) / 2**20:.1f} MB, more than {MOST_BYTES // 2**20} MB"
    size = png_size(bytes(picture.png))
    if size is None:
        return "it is no whole PNG"
    if min(size) < SHORTEST_SIDE or max(size) > LONGEST_SIDE or size[0] * size[1] > MOST_PIXELS:
        return f"it has {size[0]} x {size[1]} pixels"
    return None


def png_size(raw: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of a whole PNG; None for anything else."""
    if not raw.startswith(_SIGNATURE):
        return None
    head, data, at = b"", bytearray(), len(_SIGNATURE)
    while at + 12 <= len(raw):
        length = int.from_bytes(raw[at : at + 4], "big")
        kind, body = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + length]
        after = at + 12 + length
        if after > len(raw) or zlib.crc32(raw[at + 4 : after - 4]) != int.from_bytes(raw[after - 4 : after], "big"):
            return None
        if (kind == b"IHDR") != (at == len(_SIGNATURE)):
            return None
        if kind == b"IHDR":
            head = body
        elif kind == b"IDAT" and len(data) < _FIRST_BYTES:
            data += body[:_FIRST_BYTES]
        elif kind == b"IEND":
            whole = after == len(raw) and len(head) == 13 and _inflates(bytes(data))
            return (int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")) if whole else None
        at = after
    return None


def _inflates(data: bytes) -> bool:
    """Whether compressed rows begin here."""
    try:
        return bool(zlib.decompressobj().decompress(data, 64))
    except zlib.error:
        return False
