"""Messages and blocks of other APIs, in the words of this one: R02, R09.

    Chat completions   role tool or function, `tool_calls`, `function_call`      (roles: `core.repair_read`)
    Responses          items `function_call`, `function_call_output`, `reasoning`
    Converse           blocks `toolUse`, `toolResult`, `reasoningContent`
    Gemini             `parts` with `functionCall`, `functionResponse`
    stores             `type` human, ai, tool instead of a role; `text` instead of content

Nothing is judged here: what comes out is read like everything else, so a fault in it is found there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.messages import Block
from core.repair_lines import Scene
from core.repair_words import foreign_block

STORED_ROLES: Final = frozenset({"human", "ai", "user", "assistant", "system", "developer", "tool", "function"})


def translated_message(message: Mapping[str, Any], path: str, scene: Scene) -> Mapping[str, Any]:
    """The message with a role and a content, where it has them under other names."""
    found = _item(message) or _with_role(message) or _with_content(message)
    if found is None:
        return message
    scene.note("R09", path, "a message of another API is read as one of this API")
    return found


def _item(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "role" in message:
        return None
    match message.get("type"):
        case "function_call":
            return {"role": "assistant", "content": [_call(message.get("call_id"), message)]}
        case "function_call_output":
            return {"role": "tool", "tool_call_id": message.get("call_id"), "content": message.get("output")}
        case "reasoning":
            return {"role": "assistant", "content": []}
        case _:
            return None


def _with_role(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    role = message.get("type")
    if "role" in message or not isinstance(role, str) or role not in STORED_ROLES:
        return None
    data = message.get("data")
    kept = data if isinstance(data, Mapping) and "content" in data else message
    return {**{name: value for name, value in kept.items() if name != "type"}, "role": role}


def _with_content(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "content" in message or "tool_calls" in message or "function_call" in message:
        return None
    role = message.get("role")
    rest = {name: value for name, value in message.items() if name != "role"}
    parts = rest.get("parts")
    if isinstance(parts, list):
        return {"role": role, "content": [_part(part) for part in parts]}
    if isinstance(rest.get("text"), str):
        return {"role": role, "content": rest["text"]}
    return {"role": role, "content": foreign_block("A message", rest)} if rest else None


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    asked, answered = part.get("functionCall"), part.get("functionResponse")
    if isinstance(asked, Mapping):
        return _call(asked.get("id"), {"name": asked.get("name"), "arguments": asked.get("args", {})})
    if isinstance(answered, Mapping):
        return _result(answered.get("id"), answered.get("response"), is_error=False)
    return part


def translated_block(block: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A block without a type as the block that it stands for; None when it is none that we know."""
    asked, answered = block.get("toolUse"), block.get("toolResult")
    if isinstance(asked, Mapping):
        return _call(asked.get("toolUseId"), {"name": asked.get("name"), "arguments": asked.get("input", {})})
    if isinstance(answered, Mapping):
        return _result(answered.get("toolUseId"), answered.get("content"), is_error=answered.get("status") == "error")
    return None


def foreign_calls(message: Mapping[str, Any]) -> Iterator[Block]:
    """The calls that stand beside the content of an answer."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, Mapping):
            continue
        function = call.get("function")
        if isinstance(function, Mapping):
            yield _call(call.get("id"), function)
        elif "name" in call:
            yield _call(call.get("id"), {"name": call["name"], "arguments": call.get("args", call.get("arguments"))})
    alone = message.get("function_call")
    if isinstance(alone, Mapping):
        yield _call(None, alone)


def _call(call_id: Any, function: Mapping[str, Any]) -> Block:
    block: Block = {"type": "tool_use", "name": function.get("name") or "", "input": _arguments(function)}
    return block if call_id is None else {**block, "id": call_id}


def _result(call_id: Any, content: Any, *, is_error: bool) -> Block:
    block: Block = {"type": "tool_result", "content": content}
    if is_error:
        block["is_error"] = True
    return block if call_id is None else {**block, "tool_use_id": call_id}


def _arguments(function: Mapping[str, Any]) -> Any:
    """Whole arguments as the object that they are; a fragment stays a string and is dealt with as one."""
    given = function.get("arguments", {})
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given
    return value if isinstance(value, Mapping) else given
