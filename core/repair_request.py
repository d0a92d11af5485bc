"""What the request as a whole asks for, beside the order of its messages.

marks        R52 R54   at most four cache marks, the longer-lived ones first; moving them is no edit
tools        R50 R28   tool names unique and legal; the lists go out through the scene's changes
transcript   R51 R74   a history of calls without tools, or of too many messages, told as text
size         R72       the longest results are cut to head and tail, then pictures go; people's words stay
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from core.messages import Block
from core.repair_lines import MARK_FIELD, Line, NotRepairable, Scene, text_block, unused, write_all
from core.repair_words import MARK, as_text, cut, picture_removed
from core.validator_request import BEFORE_MESSAGES, body_of, marks_of
from core.validator_rules import MAX_CACHE_MARKS, TOOL_NAME

LEAST_KEPT: Final = 200
"""A cut result keeps at least this many characters; if that is too much, the request can't be sent."""


def marks(lines: list[Line], scene: Scene) -> list[Line]:
    """R52, R54."""
    outside = [mark for name in BEFORE_MESSAGES for _, mark in marks_of(scene.now(name), name)]
    spare = MAX_CACHE_MARKS - len(outside)
    if spare < 0:
        for name in BEFORE_MESSAGES:
            scene.changes[name] = without_marks(scene.now(name))
        scene.note("R52", "tools", "too many cache marks in front of the messages: taken off there")
        spare, outside = MAX_CACHE_MARKS, []
    inside = [mark for line in lines for block in line.blocks for _, mark in marks_of(block, "")]
    doomed = max(0, len(inside) - spare)
    if doomed:
        scene.note("R52", "messages", f"{doomed} of the oldest cache marks were taken off")
    lives = [mark.get("ttl") == "1h" for mark in inside[doomed:]]
    short_outside = any(mark.get("ttl") != "1h" for mark in outside)
    raised = len(lives) - lives[::-1].index(True) if True in lives else 0
    mixed = raised > 0 and (short_outside or not all(lives[:raised]))
    if mixed:
        scene.note("R54", "messages", "cache marks of one hour may not come after shorter ones: made alike")
    if not doomed and not mixed:
        return lines
    wanted: list[Any] = [None] * doomed + list(inside[doomed:])
    if mixed and short_outside:
        wanted[doomed:] = [{k: v for k, v in mark.items() if k != "ttl"} for mark in inside[doomed:]]
    elif mixed:
        wanted[doomed : doomed + raised] = [{**mark, "ttl": "1h"} for mark in inside[doomed : doomed + raised]]
    given = iter(wanted)
    return [_remarked(line, given) for line in lines]


def _remarked(line: Line, marks_in_order: Iterator[Any]) -> Line:
    blocks = [_remark(block, marks_in_order) for block in line.blocks]
    return Line(line.at, line.role, blocks, line.raw, line.fields)


def _remark(block: Block, marks_in_order: Iterator[Any]) -> Block:
    """The block with its next marks, in the order in which `marks_of` finds them."""
    content = block.get("content")
    changed: Block = dict(block)
    if isinstance(content, list):
        changed["content"] = [
            _remark(dict(part), marks_in_order) if isinstance(part, Mapping) else part for part in content
        ]
    if isinstance(block.get(MARK_FIELD), Mapping):
        mark = next(marks_in_order)
        if mark is None:
            del changed[MARK_FIELD]
        else:
            changed[MARK_FIELD] = mark
    return changed


def without_marks(value: Any) -> Any:
    """A system prompt or tool list without cache marks."""
    if not isinstance(value, list):
        return value
    return [
        {name: each for name, each in item.items() if name != MARK_FIELD} if isinstance(item, Mapping) else item
        for item in value
    ]


def tools(lines: list[Line], scene: Scene) -> list[Line]:
    """R50, R28: each tool has a legal name of its own. Two that look alike may still be of two servers."""
    given = scene.now("tools")
    kept: list[Any] = []
    names: set[str] = set()
    numbers: Counter[str] = Counter()
    for tool in given if isinstance(given, list) else []:
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(name, str):
            kept.append(tool)
            continue
        legal = name
        if tool.get("type", "custom") == "custom" and not TOOL_NAME.fullmatch(name):
            legal = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:128] or "unnamed_tool"
        new = unused(legal, names, numbers, 128)
        kept.append(tool if new == name else {**tool, "name": new})
    if isinstance(given, list) and kept != given:
        scene.note("R50", "tools", "tool names made unique and legal")
        scene.changes["tools"] = kept
    return lines


def transcript(lines: list[Line], scene: Scene) -> list[Line]:
    """R51: without tools a history of calls is told as text. R74: so is the oldest part of one too long."""
    if "tools" in scene.request and not scene.now("tools") and _has_tool_blocks(lines):
        scene.note("R51", "messages", "the history is told as text: the request has no tools")
        return _told(lines, len(lines) - 1 if lines[-1].role == "user" else len(lines))
    limit = scene.limits.max_messages
    if len(lines) <= limit:
        return lines
    for at in range(max(1, len(lines) - limit), len(lines)):
        if lines[at].role == "user" and all(block["type"] != "tool_result" for block in lines[at].blocks):
            scene.note("R74", "messages", f"the {at} oldest messages are told as text")
            return _told(lines, at)
    return _told(lines, len(lines) - 1)


def _has_tool_blocks(lines: Sequence[Line]) -> bool:
    return any(block["type"] in ("tool_use", "tool_result") for line in lines for block in line.blocks)


def _told(lines: list[Line], at: int) -> list[Line]:
    """Everything in front of line `at`, and the results in it, as one marked text in front of its words."""
    told = [sentence for line in lines[:at] for block in line.blocks for sentence in _tell(line.role, block)]
    others = [each for line in lines[:at] for block in line.blocks for each in _media(block)]
    rest: list[Block] = []
    for block in lines[at].blocks if at < len(lines) else []:
        if block["type"] == "tool_result":
            told.extend(_tell("user", block))
            others.extend(_media(block))
        else:
            rest.append(block)
    text = "\n".join([f"{MARK} Transcript as text:", *told])
    systems = [line for line in lines[:at] if line.role == "system"]
    head = Line(lines[0].at, "user", [text_block(text), *others, *rest])
    return [head, *(systems if at >= len(lines) - 1 else []), *lines[at + 1 :]]


def _tell(role: str, block: Mapping[str, Any]) -> Iterator[str]:
    match block["type"]:
        case "text":
            if role != "system":
                yield f"{role}: {block['text']}"
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            yield f"{role} called {block['name']}: {as_text(block['input'])}"
        case "tool_result":
            content = block.get("content", "")
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            texts = [part["text"] for part in parts if part["type"] == "text"]
            texts += [as_text(part.get("tool_name")) for part in parts if part["type"] == "tool_reference"]
            yield ("result (an error): " if block.get("is_error") else "result: ") + "\n".join(texts)
        case "image" | "document" | "search_result" | "container_upload" | "thinking" | "redacted_thinking":
            return
        case kind:
            yield f"{role}, {kind}: {as_text(block.get('content'))}"


def _media(block: Mapping[str, Any]) -> Iterator[Block]:
    kinds = ("image", "document", "search_result")
    if block["type"] in (*kinds, "container_upload"):
        yield dict(block)
    content = block.get("content")
    if block["type"] == "tool_result" and isinstance(content, list):
        yield from (part for part in content if part["type"] in kinds)


def size(lines: list[Line], scene: Scene) -> list[Line]:
    """R72, if that is broken. The longest results are cut first, all to the same length."""
    if "R72" not in scene.broken:
        return lines
    limit = scene.limits.max_bytes
    request = {**scene.request, **scene.changes}
    if _bytes(lines, request) <= limit:
        return lines
    for keep in _shrinking(lines):
        shorter = [_cut_results(line, keep) for line in lines]
        if _bytes(shorter, request) <= limit:
            scene.note("R72", "messages", f"results were cut to {keep} characters, with their true size")
            return shorter
    bare = [_cut_results(_without_pictures(line), LEAST_KEPT) for line in lines]
    if _bytes(bare, request) <= limit:
        scene.note("R72", "messages", "pictures were removed and results cut: the request was too large")
        return bare
    raise NotRepairable(f"The request is larger than {limit} bytes, and what is left was said by people.")


def _bytes(lines: Sequence[Line], request: Mapping[str, Any]) -> int:
    return len((body_of({**request, "messages": write_all(lines)}) or "").encode())


def _shrinking(lines: Sequence[Line]) -> Iterator[int]:
    """Lengths to try, halved each time, from the longest text of a result."""
    longest = max((len(text) for line in lines for block in line.blocks for text in _texts(block)), default=0)
    keep = longest // 2
    while keep > LEAST_KEPT:
        yield keep
        keep //= 2
    yield LEAST_KEPT


def _texts(block: Mapping[str, Any]) -> Iterator[str]:
    content = block.get("content")
    if block["type"] != "tool_result":
        return
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else []:
        if part["type"] == "text":
            yield part["text"]


def _cut_results(line: Line, keep: int) -> Line:
    return Line(line.at, line.role, [_cut_result(block, keep) for block in line.blocks], line.raw, line.fields)


def _cut_result(block: Block, keep: int) -> Block:
    content = block.get("content")
    if all(len(text) <= keep for text in _texts(block)):
        return block
    if isinstance(content, str):
        return {**block, "content": cut(content, keep)}
    return {**block, "content": [_cut_part(part, keep) for part in content or []]}


def _cut_part(part: Block, keep: int) -> Block:
    if part["type"] != "text" or len(part["text"]) <= keep:
        return part
    return {**part, "text": cut(part["text"], keep)}


def _without_pictures(line: Line) -> Line:
    return Line(line.at, line.role, [_without_picture(block) for block in line.blocks], line.raw, line.fields)


def _without_picture(block: Block) -> Block:
    if block["type"] == "image":
        return text_block(picture_removed("the request was too large"))
    content = block.get("content")
    if block["type"] == "tool_result" and isinstance(content, list):
        return {**block, "content": [_without_picture(part) for part in content]}
    return block
