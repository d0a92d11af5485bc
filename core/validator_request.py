"""Rules about the request as a whole.

R43 R44 R45 R4A      the thinking mode and the blocks that it asks for or forbids
R42 R48              signatures, when somebody can check them
R28 R50 R51          the tool list
R52 R54              cache marks
R70 R71 R75          what can't be written as JSON for everybody
R72                  size
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from core.validator_rules import (
    MAX_CACHE_MARKS,
    MAX_DEPTH,
    MAX_INT_BITS,
    SURROGATE,
    THINKING,
    TOOL_NAME,
    UNWRITABLE,
    Group,
    Limits,
    Problem,
    Spot,
)

Verify = Callable[[Mapping[str, Any], int, int], str | None]

BODY_FIELDS: Final = ("system", "tools", "messages", "thinking", "tool_choice")
BEFORE_MESSAGES: Final = ("tools", "system")
NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""NUL as JSON spells it."""


def body_of(request: Mapping[str, Any]) -> str | None:
    """The body as the API's client writes it, None when it can't be written for everybody."""
    body = {field: request[field] for field in BODY_FIELDS if field in request}
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None
    if "\\u0000" in text and NUL.search(text):
        return None
    return None if _has_half_characters(text) or _too_deep(request["messages"]) else text


def _has_half_characters(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _too_deep(messages: Sequence[Any]) -> bool:
    """Whether the arguments of a call are nested deeper than anybody can mean."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use" and _deeper(block.get("input")):
                return True
    return False


def _deeper(value: Any) -> bool:
    level, depth = _inner([[value]]), 0
    while level:
        level = _inner(level)
        depth += 1
        if depth > MAX_DEPTH:
            return True
    return False


def _inner(level: Sequence[Any]) -> list[Any]:
    """The lists and objects directly inside of these."""
    found: list[Any] = []
    for one in level:
        for each in one.values() if isinstance(one, dict) else one:
            if isinstance(each, dict | list):
                found.append(each)
    return found


def writable_problems(request: Mapping[str, Any]) -> Iterator[Problem]:
    """R70, R71 and R75 in everything that is sent, keys included. Walks with a stack: depth is no danger."""
    stack: list[tuple[str, Any, int]] = [
        (field, request[field], 0) for field in reversed(BODY_FIELDS) if field in request
    ]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, str):
            if UNWRITABLE.search(value):
                yield _text_problem(path, value)
        elif isinstance(value, dict | list) and depth > MAX_DEPTH:
            yield Problem("R75", path, f"The request body is not valid JSON: {path} is nested too deeply")
        elif isinstance(value, dict):
            yield from _key_problems(path, value)
            stack.extend((f"{path}.{key}", each, depth + 1) for key, each in reversed(list(value.items())))
        elif isinstance(value, list):
            stack.extend((f"{path}.{at}", value[at], depth + 1) for at in reversed(range(len(value))))
        elif not _is_plain(value):
            yield Problem("R75", path, f"The request body is not valid JSON: {path} can't be written as JSON")


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= MAX_INT_BITS
    return value is None


def _key_problems(path: str, value: Mapping[Any, Any]) -> Iterator[Problem]:
    for key in value:
        if not isinstance(key, str):
            yield Problem("R75", path, f"The request body is not valid JSON: a key of {path} is no string")
        elif UNWRITABLE.search(key):
            yield _text_problem(path, key)


def _text_problem(path: str, text: str) -> Problem:
    if SURROGATE.search(text) is None:
        return Problem("R71", path, "The request body is not valid JSON: unexpected end of data")
    return Problem("R70", path, f"The request body is not valid JSON: no low surrogate in string: {path}")


def tool_problems(request: Mapping[str, Any], groups: Sequence[Group]) -> Iterator[Problem]:
    """R28 and R50 for the tool list; R51 when the list is given and empty but the history has tool blocks."""
    tools = request.get("tools")
    names: set[str] = set()
    for at, tool in enumerate(tools if isinstance(tools, list) else []):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            continue
        if tool.get("type", "custom") == "custom" and not TOOL_NAME.fullmatch(name):
            path = f"tools.{at}.custom.name"
            yield Problem("R28", path, f"{path}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            yield Problem("R50", f"tools.{at}", "tools: Tool names must be unique.")
        names.add(name)
    if "tools" in request and not tools and _has_tool_blocks(groups):
        text = "Requests which include `tool_use` or `tool_result` blocks must define tools."
        yield Problem("R51", "tools", text)


def _has_tool_blocks(groups: Sequence[Group]) -> bool:
    return any(spot.kind in ("tool_use", "tool_result") for group in groups for spot in group.spots)


def marks_of(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, cache_control) of every mark under `value`, in the order of the request."""
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from marks_of(each, f"{path}.{at}")
    elif isinstance(value, dict):
        content = value.get("content")
        if isinstance(content, list):
            yield from marks_of(content, f"{path}.content")
        mark = value.get("cache_control")
        if isinstance(mark, dict):
            yield path, mark


def cache_problems(request: Mapping[str, Any]) -> Iterator[Problem]:
    """R52 and R54."""
    marks = [mark for field in (*BEFORE_MESSAGES, "messages") for mark in marks_of(request.get(field), field)]
    if len(marks) > MAX_CACHE_MARKS:
        text = f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
        yield Problem("R52", marks[MAX_CACHE_MARKS][0], text)
    short = False
    for path, mark in marks:
        if mark.get("ttl") != "1h":
            short = True
        elif short:
            text = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            yield Problem("R54", path, f"{path}: {text}")


def size_problems(body: str, limits: Limits) -> Iterator[Problem]:
    """R72."""
    if len(body) * 4 > limits.max_bytes and len(body.encode()) > limits.max_bytes:
        text = "request_too_large: Request exceeds the maximum allowed number of bytes"
        yield Problem("R72", "messages", text)


def thinking_problems(request: Mapping[str, Any], groups: Sequence[Group]) -> Iterator[Problem]:
    """R43 to R45 and R4A: what the mode of the request asks of the blocks in the history."""
    thinking = request.get("thinking")
    mode = thinking.get("type") if isinstance(thinking, dict) else None
    spoken = [group for group in groups if group.role != "system"]
    if mode == "disabled":
        yield from _forbidden_problems(spoken)
    elif mode == "enabled":
        yield from _first_problems(spoken)
        yield from _open_loop_problems(spoken)
    choice = request.get("tool_choice")
    forced = isinstance(choice, dict) and choice.get("type") in ("tool", "any")
    if forced and mode in ("enabled", "adaptive"):
        yield Problem("R4A", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")


def _forbidden_problems(spoken: Sequence[Group]) -> Iterator[Problem]:
    final = next((group for group in reversed(spoken) if group.role == "assistant"), None)
    for spot in final.spots if final else []:
        if spot.kind in THINKING:
            text = (
                "When thinking is disabled, an `assistant` message in the final position cannot contain "
                "`thinking`. To use thinking blocks, enable `thinking` in your request."
            )
            yield Problem("R45", spot.path, f"messages.{spot.message}: {text}")


def _first_problems(spoken: Sequence[Group]) -> Iterator[Problem]:
    for group in spoken:
        kinds = [spot.kind for spot in group.spots]
        if group.role == "assistant" and kinds[:1] and kinds[0] not in THINKING and THINKING & set(kinds):
            text = (
                "If an assistant message contains any thinking blocks, the first block must be `thinking` or "
                f"`redacted_thinking`. Found `{kinds[0]}`."
            )
            yield Problem("R44", group.spots[0].path, f"messages.{group.message}: {text}")


def open_loop(spoken: Sequence[Group]) -> Group | None:
    """The first assistant message of the turn that is still in its tool loop, None when none is."""
    if not spoken or not _holds_only_results(spoken[-1]):
        return None
    first: Group | None = None
    for group in reversed(spoken):
        if group.role == "assistant":
            first = group
        elif not _holds_only_results(group):
            break
    return first


def _holds_only_results(group: Group) -> bool:
    kinds = {spot.kind for spot in group.spots}
    return group.role == "user" and kinds == {"tool_result"}


def _open_loop_problems(spoken: Sequence[Group]) -> Iterator[Problem]:
    first = open_loop(spoken)
    if first is None or not first.spots or first.spots[0].kind in THINKING:
        return
    spot = first.spots[0]
    text = (
        f"Expected `thinking` or `redacted_thinking`, but found `{spot.kind}`. When `thinking` is enabled, a final "
        "`assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and "
        "`tool_result` blocks)."
    )
    yield Problem("R43", f"{spot.path}.type", f"{spot.path}.type: {text}")


def signature_problems(request: Mapping[str, Any], groups: Sequence[Group], verify: Verify) -> Iterator[Problem]:
    """R42 and R48, by the caller's knowledge of signatures."""
    for group in groups:
        for spot in group.spots:
            if spot.kind in THINKING:
                text = verify(request, spot.message, spot.number)
                if text is not None:
                    yield Problem(_signature_rule(text), spot.path, _placed(spot, text))


def _signature_rule(text: str) -> str:
    if "missing or out of order" in text:
        return "R49"
    return "R48" if "bound to a different conversation" in text else "R42"


def _placed(spot: Spot, text: str) -> str:
    return text if text.startswith("messages") else f"{spot.path}: {text}"
