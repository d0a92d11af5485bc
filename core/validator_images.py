"""What the first bytes of a picture say about it: its type and its size in pixels."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

HEAD_CHARS: Final = 87_384
"""How much of the base64 text is read to find the size: a JPEG may carry 64 KB of metadata in front of it."""
JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True, slots=True)
class Picture:
    """`media_type` as the bytes have it, None when they are no picture that the API reads."""

    media_type: str | None
    width: int = 0
    height: int = 0

    @property
    def longest(self) -> int:
        return max(self.width, self.height)


def look_at(data: str, chars: int = HEAD_CHARS) -> Picture:
    """The picture behind base64 text. Reads no more than the first `chars` of it."""
    head = data[:chars]
    if not head.isascii() or not head.strip():
        return Picture(None)
    head = head[: len(head) // 4 * 4] if len(data) > chars else head
    try:
        raw = base64.b64decode(head + "=" * (-len(head) % 4), validate=True)
    except (binascii.Error, ValueError):
        return Picture(None)
    for magic, media_type, size in FORMATS:
        if raw.startswith(magic):
            width, height = size(raw)
            return Picture(media_type, width, height)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return Picture("image/webp", *_webp_size(raw))
    return Picture(None)


def _png_size(raw: bytes) -> tuple[int, int]:
    return struct.unpack(">II", raw[16:24]) if len(raw) >= 24 else (0, 0)


def _gif_size(raw: bytes) -> tuple[int, int]:
    return struct.unpack("<HH", raw[6:10]) if len(raw) >= 10 else (0, 0)


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        if marker in JPEG_FRAMES:
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        at += 2 + max(2, int.from_bytes(raw[at + 2 : at + 4], "big"))
    return 0, 0


def _webp_size(raw: bytes) -> tuple[int, int]:
    if raw[12:16] == b"VP8X" and len(raw) >= 30:
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if raw[12:16] == b"VP8L" and len(raw) >= 25:
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if raw[12:16] == b"VP8 " and len(raw) >= 30:
        return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF
    return 0, 0


FORMATS: Final[tuple[tuple[bytes, str, Callable[[bytes], tuple[int, int]]], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png", _png_size),
    (b"\xff\xd8\xff", "image/jpeg", _jpeg_size),
    (b"GIF87a", "image/gif", _gif_size),
    (b"GIF89a", "image/gif", _gif_size),
)


def base64_image(block: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """(media_type, data) of an image block that carries its bytes, else None."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict) or source.get("type") != "base64":
        return None
    return source.get("media_type"), source.get("data")
