"""From messages as anybody may have stored them to lines of roles and blocks that the API knows.

R02   roles of other APIs: tool results become results, system texts marked text (unless allowed)
R07   fields that the API doesn't know are left out
R09   content and blocks of other shapes become blocks of the API, or marked text
R29   the same for what a result holds
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.messages import Block
from core.repair_foreign import foreign_calls, translated_block, translated_message
from core.repair_lines import Line, Scene, text_block
from core.repair_words import NO_OUTPUT, as_text, foreign_block, foreign_role, marked
from core.validator_rules import IMAGE_SOURCES, RESULT_PARTS, SHAPES

ROLES: Final[Mapping[str, str]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "bot": "assistant",
}
TOOL_ROLES: Final = frozenset({"tool", "function"})
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
TEXT_KINDS: Final = frozenset({"input_text", "output_text"})
FOREIGN_REASONING: Final = frozenset({"reasoning", "reasoning_content", "reasoning_details"})
KEPT_FIELDS: Final = frozenset({"role", "content"})


def read(messages: list[Any], scene: Scene) -> list[Line]:
    """One line for each message."""
    return [_read_message(message, at, scene) for at, message in enumerate(messages)]


def _read_message(message: Any, at: int, scene: Scene) -> Line:
    path = f"messages.{at}"
    if not isinstance(message, Mapping):
        scene.note("R09", path, "what was no message is kept as marked text")
        return Line(at, "user", [text_block(foreign_role("none", as_text(message)))])
    message = translated_message(message, path, scene)
    role = message.get("role")
    if isinstance(role, str) and role in TOOL_ROLES:
        return _read_tool_message(message, at, scene)
    blocks = list(_read_content(message.get("content"), path, scene))
    if isinstance(role, str) and role in SYSTEM_ROLES:
        return _read_system(message, at, blocks, scene)
    ours = ROLES.get(role) if isinstance(role, str) else None
    if ours is None:
        scene.note("R02", path, "a message of an unknown role is kept as marked text of the user's side")
        return Line(at, "user", [_remark(block, role) for block in blocks])
    if ours != role:
        scene.note("R02", path, f"the role {role} is called {ours}")
    calls = list(foreign_calls(message))
    if calls:
        scene.note("R09", f"{path}.tool_calls", "calls of another API are tool_use blocks")
        blocks.extend(calls)
    _note_fields(message, KEPT_FIELDS, path, scene)
    return Line(at, ours, blocks, message)


def _remark(block: Block, role: Any) -> Block:
    return text_block(foreign_role(role, str(block["text"]))) if block["type"] == "text" else block


def _note_fields(message: Mapping[str, Any], kept: frozenset[str], path: str, scene: Scene) -> None:
    for name in message:
        if name not in kept:
            scene.note("R07", f"{path}.{name}", "left out: the API doesn't know this field")


def _read_system(message: Mapping[str, Any], at: int, blocks: list[Block], scene: Scene) -> Line:
    path = f"messages.{at}"
    if not scene.system_allowed:
        scene.note("R02", path, "a system message is kept as marked text of the user's side")
        return Line(at, "user", [_remark(block, message.get("role")) for block in blocks])
    _note_fields(message, KEPT_FIELDS | {"clear_at"}, path, scene)
    fields = {"clear_at": message["clear_at"]} if "clear_at" in message else {}
    return Line(at, "system", blocks, message, fields)


def _read_tool_message(message: Mapping[str, Any], at: int, scene: Scene) -> Line:
    """A result of another API. Without an id it answers the only open call in front of it, if there is one."""
    scene.note("R02", f"messages.{at}", f"a message of the role {message.get('role')} is a result")
    result: Block = {"type": "tool_result"}
    call_id = message.get("tool_call_id", message.get("tool_use_id"))
    if call_id is not None:
        result["tool_use_id"] = call_id
    content = message.get("content")
    if isinstance(content, list) and any(_is_no_part(block) for block in content):
        return Line(at, "user", list(_read_content(content, f"messages.{at}", scene)))
    result["content"] = _result_content(content, f"messages.{at}.content", scene)
    return Line(at, "user", [result])


def _is_no_part(block: Any) -> bool:
    """Whether a block is one of a message, not one of what a result holds."""
    return _kind(block) in SHAPES and _kind(block) not in RESULT_PARTS


def _read_content(content: Any, path: str, scene: Scene) -> Iterator[Block]:
    if isinstance(content, str):
        if content:
            yield text_block(content)
        return
    if content is None:
        scene.note("R09", f"{path}.content", "no content: an empty message")
        return
    if isinstance(content, list):
        for index, block in enumerate(content):
            yield from _read_block(block, f"{path}.content.{index}", scene)
        return
    scene.note("R09", f"{path}.content", "content of another shape is kept as a block")
    yield from _read_block(content, f"{path}.content", scene)


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _read_block(block: Any, path: str, scene: Scene) -> Iterator[Block]:
    if isinstance(block, str):
        scene.note("R09", path, "a bare text is a text block")
        yield text_block(block)
        return
    if not isinstance(block, Mapping):
        scene.note("R09", path, "what was no block is kept as marked text")
        yield text_block(marked(as_text(block)))
        return
    translated = _translated(block, path, scene)
    if translated is None:
        return
    shape = SHAPES[translated["type"]]
    for name in translated:
        if name != "type" and name not in shape.required and name not in shape.optional:
            scene.note("R07", f"{path}.{name}", "left out: the API doesn't know this field")
    yield _known_block(translated, path, scene)


def _translated(block: Mapping[str, Any], path: str, scene: Scene) -> Mapping[str, Any] | None:
    """The block as one of a known type; None when it carries nothing that could be sent."""
    kind, text = _kind(block), block.get("text")
    known = translated_block(block) if not kind else None
    if known is not None:
        scene.note("R09", path, "a block of another API is read as one of this API")
        return known
    if kind in FOREIGN_REASONING or (not kind and "reasoningContent" in block):
        scene.note("R09", path, "reasoning of another provider can't be replayed: left out")
        return None
    if kind == "image_url" or (kind == "image" and "source" not in block):
        found = _foreign_image(block)
        if found is not None:
            scene.note("R09", path, "an image of another API is an image block")
            return found
    if (kind in TEXT_KINDS or not kind) and isinstance(text, str):
        scene.note("R09", path, "a text of another API is a text block")
        return text_block(text)
    if kind not in SHAPES or not SHAPES[kind].roles or _is_hollow(block):
        scene.note("R09", path, f"a block that the API doesn't know ({kind or 'no type'}) is kept as marked text")
        rest = {name: value for name, value in block.items() if name != "type"}
        return text_block(foreign_block(kind or "A block", rest))
    return block


def _is_hollow(block: Mapping[str, Any]) -> bool:
    """A picture, document or the like without what makes it one."""
    kind = str(block["type"])
    if kind == "text":
        return not isinstance(block.get("text"), str)
    source = block.get("source")
    if kind == "image" and isinstance(source, Mapping):
        field = IMAGE_SOURCES.get(str(source.get("type")))
        return field is None or not isinstance(source.get(field), str)
    if kind in ("image", "document"):
        return not isinstance(source, Mapping)
    if kind in ("search_result", "container_upload", "compaction"):
        return any(name not in block for name in SHAPES[kind].required)
    return False


def _foreign_image(block: Mapping[str, Any]) -> Block | None:
    data, media_type = block.get("data"), block.get("mimeType", block.get("media_type"))
    link = block.get("image_url")
    url = link.get("url") if isinstance(link, Mapping) else link
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        media_type, data = url[5:].split(";base64,", 1)
    elif isinstance(url, str):
        return {"type": "image", "source": {"type": "url", "url": url}}
    if not isinstance(data, str) or not isinstance(media_type, str):
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _known_block(block: Mapping[str, Any], path: str, scene: Scene) -> Block:
    shape = SHAPES[block["type"]]
    names = {"type", *shape.required, *shape.optional}
    kept = {name: value for name, value in block.items() if name in names}
    if kept["type"] == "tool_result" and "content" in kept:
        kept["content"] = _result_content(kept["content"], f"{path}.content", scene)
    return kept


def _result_content(content: Any, path: str, scene: Scene) -> str | list[Block]:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return [part for index, each in enumerate(content) for part in _part(each, f"{path}.{index}", scene)]
    if content is None:
        scene.note("R29", path, "a result without content says that there was none")
        return NO_OUTPUT
    scene.note("R29", path, "structured output is kept as marked text")
    return marked(as_text(content))


def _part(part: Any, path: str, scene: Scene) -> Iterator[Block]:
    """What a result may hold; everything else as marked text."""
    if isinstance(part, str):
        scene.note("R29", path, "a bare text is a text block")
        yield text_block(part)
    elif _kind(part) == "resource":
        scene.note("R29", path, "a resource is kept as marked text")
        yield text_block(marked(_resource(part)))
    elif _kind(part) == "tool_reference":
        yield {name: part[name] for name in ("type", "tool_name") if name in part}
    elif _kind(part) in RESULT_PARTS or _kind(part) in TEXT_KINDS or _kind(part) == "image_url" or _is_text(part):
        yield from _read_block(part, path, scene)
    else:
        scene.note("R29", path, "a part that the API doesn't know is kept as marked text")
        yield text_block(_unknown_part(part))


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and "type" not in part and isinstance(part.get("text"), str)


def _unknown_part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return marked(as_text(part))
    data = part.get("data")
    if isinstance(data, str) and _kind(part) not in ("", "json"):
        media_type = part.get("mimeType", "unknown type")
        return marked(f"{_kind(part)} ({media_type}, {len(data)} characters of base64) was removed.")
    rest = {name: value for name, value in part.items() if name != "type"}
    return foreign_block(_kind(part) or "A part", rest)


def _resource(part: Mapping[str, Any]) -> str:
    resource = part.get("resource")
    if not isinstance(resource, Mapping):
        return f"resource: {as_text(resource)}"
    uri, text, blob = resource.get("uri", ""), resource.get("text"), resource.get("blob")
    if isinstance(text, str):
        return f"resource {uri}: {text}"
    if isinstance(blob, str):
        kind = resource.get("mimeType", "unknown type")
        return f"resource {uri}: binary, {kind}, {len(blob)} characters of base64, not kept"
    return f"resource {uri}: {as_text(resource)}"
