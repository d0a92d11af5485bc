"""Blocks of a Slack message as Markdown: what they show, without what they let people press.

A block type that is not known here is not lost: whatever strings it shows under the usual names are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bot.slack.rendering_text import plain

Payload = Mapping[str, Any]
DEEPEST = 8
_SHOWN = ("title", "subtitle", "caption", "text", "body", "details", "output", "alt_text", "value")
_NESTED = ("blocks", "elements", "tasks", "children", "cards", "fields")


def blocks_text(blocks: Sequence[Payload]) -> str:
    """All blocks, one below the other."""
    return "\n".join(text for block in blocks if (text := _block(block, 0)).strip())


def tables_text(blocks: Sequence[Payload]) -> str:
    """Only the tables: they are never part of a message's text."""
    return blocks_text([block for block in blocks if block.get("type") in ("table", "data_table")])


def is_mirror(blocks: Sequence[Payload]) -> bool:
    """Whether the blocks only repeat what the text says, as with everything that people type."""
    return all(block.get("type") in ("rich_text", "table", "data_table") for block in blocks)


def _block(block: Payload, depth: int) -> str:
    if depth > DEEPEST:
        return ""
    return _BLOCKS.get(str(block.get("type")), _unknown)(block, depth)


def _section(block: Payload, depth: int) -> str:
    fields = [_object(field) for field in _list(block.get("fields"))]
    return "\n".join(part for part in (_object(block.get("text")), *fields) if part)


def _header(block: Payload, depth: int) -> str:
    return f"## {_object(block.get('text'))}"


def _context(block: Payload, depth: int) -> str:
    return " · ".join(part for part in map(_object, _list(block.get("elements"))) if part)


def _nothing(block: Payload, depth: int) -> str:
    return ""


def _image(block: Payload, depth: int) -> str:
    shown = _object(block.get("title")) or _string(block, "alt_text")
    return f"[image: {shown}]" if shown else ""


def _markdown(block: Payload, depth: int) -> str:
    return _string(block, "text")


def _unknown(block: Payload, depth: int) -> str:
    parts = [_object(block.get(name)) for name in _SHOWN]
    for name in _NESTED:
        parts += [_block(item, depth + 1) for item in _list(block.get(name))]
    return "\n".join(part for part in parts if part.strip())


def _object(value: object) -> str:
    """A text object, a bare string, or something with a text in it."""
    if isinstance(value, str):
        return plain(value)
    if not isinstance(value, Mapping):
        return ""
    if value.get("type") == "rich_text":
        return _rich_text(value, 0)
    if value.get("type") == "image":
        return _image(value, 0)
    inner = value.get("text", value.get("value"))
    if isinstance(inner, Mapping):
        inner = inner.get("text")
    return plain(inner) if isinstance(inner, str) else "" if inner is None else str(inner)


# -- tables ----------------------------------------------------------------------------------------------------------


def _table(block: Payload, depth: int) -> str:
    """A Markdown table; the first row is its head."""
    rows = block.get("rows")
    cells = [_row(row) for row in rows] if isinstance(rows, list) else []
    cells = [row for row in cells if row]
    caption = _object(block.get("caption")) or _object(block.get("title"))
    if not cells:
        return caption
    width = max(map(len, cells))
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in cells]
    return "\n".join([*([caption] if caption else []), lines[0], "|" + " --- |" * width, *lines[1:]])


def _row(row: object) -> list[str]:
    cells = row.get("cells") if isinstance(row, Mapping) else row
    if not isinstance(cells, list):
        return []
    return [" ".join(_object(cell).split()).replace("|", "\\|") for cell in cells]


# -- rich text -------------------------------------------------------------------------------------------------------


def _rich_text(block: Payload, depth: int) -> str:
    return "\n".join(_rich_part(part) for part in _list(block.get("elements")))


def _rich_part(part: Payload) -> str:
    elements = _list(part.get("elements"))
    match part.get("type"):
        case "rich_text_list":
            ordered = part.get("style") == "ordered"
            indent = "  " * (part["indent"] if isinstance(part.get("indent"), int) else 0)
            return "\n".join(
                f"{indent}{f'{number}.' if ordered else '-'} {_rich_part(item)}"
                for number, item in enumerate(elements, start=1)
            )
        case "rich_text_quote":
            return "\n".join(f"> {line}" for line in _inline(elements).split("\n"))
        case "rich_text_preformatted":
            return f"```\n{_inline(elements)}\n```"
        case _:
            return _inline(elements)


def _inline(elements: Sequence[Payload]) -> str:
    return "".join(_INLINE.get(str(item.get("type")), _object)(item) for item in elements)


def _code_or_text(item: Payload) -> str:
    style = item.get("style")
    text = _string(item, "text")
    return f"`{text}`" if isinstance(style, Mapping) and style.get("code") else text


def _inline_link(item: Payload) -> str:
    address, label = _string(item, "url"), _string(item, "text")
    return address if label in ("", address) else f"{label} ({address})"


_INLINE: dict[str, Callable[[Payload], str]] = {
    "text": _code_or_text,
    "link": _inline_link,
    "user": lambda item: f"@{_string(item, 'user_id')}",
    "usergroup": lambda item: f"@{_string(item, 'usergroup_id')}",
    "channel": lambda item: f"#{_string(item, 'channel_id')}",
    "broadcast": lambda item: f"@{_string(item, 'range')}",
    "emoji": lambda item: f":{_string(item, 'name')}:",
    "date": lambda item: _string(item, "fallback") or str(item.get("timestamp", "")),
}

_BLOCKS: dict[str, Callable[[Payload, int], str]] = {
    "section": _section,
    "header": _header,
    "context": _context,
    "rich_text": _rich_text,
    "table": _table,
    "data_table": _table,
    "markdown": _markdown,
    "image": _image,
    "divider": _nothing,
    "actions": _nothing,
    "context_actions": _nothing,
    "input": _nothing,
}


def _string(value: Payload, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _list(value: object) -> list[Payload]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
