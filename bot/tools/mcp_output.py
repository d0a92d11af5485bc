"""What an MCP server answered, as a tool's output: data, cleaned and capped."""

from __future__ import annotations

import base64
import binascii
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from bot.tools.mcp_schema import visible
from bot.tools.shaping import capped, cleaned, one_line
from core.ports import Picture, ToolOutput

MOST_PICTURES = 4
LARGEST_PICTURE = 4 * 1024 * 1024
LONGEST_SIDE = 8_000
LONGEST_RESOURCE = 8_000
MOST_LINKS = 20
PNG = b"\x89PNG\r\n\x1a\n"
ODD_SHAPE = "something that can't be written down"


def output_of(server: str, tool: str, result: CallToolResult, hiding: Callable[[str], str] = str) -> ToolOutput:
    """The answer for the model, with what people can look at. `hiding` takes out what must not be shown."""
    parts: list[str] = []
    links: list[tuple[str, str]] = []
    pictures: list[Picture] = []
    for block in result.content:
        match block:
            case TextContent():
                parts.append(block.text)
            case ImageContent():
                parts.append(_image(server, tool, block, pictures))
            case AudioContent():
                parts.append(f"[sound: {_about(block.mime_type, block.data)}, not kept]")
            case ResourceLink():
                parts.append(f"[resource: {_line(block.title or block.name)}, {_line(block.uri)}]")
                links += _link(block.title or block.name, str(block.uri)) if len(links) < MOST_LINKS else []
            case EmbeddedResource():
                parts.append(_resource(block))
    if not any(isinstance(block, TextContent) and block.text.strip() for block in result.content):
        parts += _structured(result.structured_content)
    text = "\n".join(part for part in parts if part.strip())
    shown = capped(hiding(cleaned(text or "(it answered without saying anything)")))
    return ToolOutput(shown, [link for link in links if hiding(link[1]) == link[1]], result.is_error, pictures)


def said(result: CallToolResult) -> str:
    """The words of an answer in one line."""
    return one_line(cleaned(" ".join(_texts(result))), 500)


def png(data: str) -> bytes | None:
    """The bytes behind base64 text if they are one whole PNG of a size that can be shown."""
    if len(data) > LARGEST_PICTURE * 4 // 3 + 4:
        return None
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if raw.startswith(PNG) and _whole(raw) else None


def _texts(result: CallToolResult) -> Iterable[str]:
    return (block.text for block in result.content if isinstance(block, TextContent))


def _image(server: str, tool: str, block: ImageContent, pictures: list[Picture]) -> str:
    raw = png(block.data) if len(pictures) < MOST_PICTURES else None
    if raw is None:
        return f"[picture: {_about(block.mime_type, block.data)}, not shown]"
    title = f"{_line(tool, 60)} from {server}"
    pictures.append(Picture(title, f"A picture that the tool {_line(tool, 60)} of MCP server {server} made", raw))
    return f"[picture: {_about(block.mime_type, block.data)}, posted to the thread for people]"


def _resource(block: EmbeddedResource) -> str:
    inside = block.resource
    name = f"resource {_line(inside.uri)}"
    if isinstance(inside, BlobResourceContents):
        return f"[{name}: {_about(inside.mime_type or 'of no type', inside.blob)}, not kept]"
    return f"[{name}]\n{capped(inside.text, LONGEST_RESOURCE)}"


def _structured(value: Any) -> Sequence[str]:
    if value is None:
        return ()
    try:
        return (json.dumps(value, ensure_ascii=False),)
    except (ValueError, TypeError, RecursionError):
        return (ODD_SHAPE,)


def _link(title: str, address: str) -> list[tuple[str, str]]:
    try:
        parts = urlsplit(address)
    except ValueError:
        return []
    return [(_line(title, 100), address)] if parts.scheme in ("http", "https") and parts.hostname else []


def _about(kind: str, data: str) -> str:
    return f"{_line(kind, 60)}, {len(data) * 3 // 4 // 1024} kB"


def _line(text: object, limit: int = 200) -> str:
    return one_line(visible(str(text)), limit)


def _whole(raw: bytes) -> bool:
    """Whether chunk follows chunk from a header with a sane size to the end, the needed ones with their right sum."""
    at, kinds = len(PNG), [b""]
    while at + 12 <= len(raw) and kinds[-1] != b"IEND":
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        end = at + 12 + size
        needed = kind[:1].isupper()
        if end > len(raw) or (needed and zlib.crc32(raw[at + 4 : end - 4]).to_bytes(4, "big") != raw[end - 4 : end]):
            return False
        kinds.append(kind)
        at = end
    sides = struct.unpack(">II", raw[16:24]) if kinds[1:2] == [b"IHDR"] else (0, 0)
    return (
        at == len(raw) and kinds[-1] == b"IEND" and b"IDAT" in kinds and all(0 < one <= LONGEST_SIDE for one in sides)
    )
