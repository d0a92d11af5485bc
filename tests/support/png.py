"""Small PNGs, made by hand: as large as they claim to be, or not."""

from __future__ import annotations

import struct
import zlib


def chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk with its length and its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *, claimed: tuple[int, int] | None = None, padding: int = 0, grey: int = 0) -> bytes:
    """A picture of one grey; `claimed` is the size in its head, `padding` bytes are in a chunk that nobody reads."""
    head = struct.pack(">IIBBBBB", *(claimed or (width, height)), 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([grey]) * width) * max(height, 1))
    text = chunk(b"tEXt", b"a" * padding) if padding else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + text + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
