"""Calls that the API runs itself: R35, R36, R37, and search results that only Anthropic can make (R09).

Only the API can answer such a call, so nothing is made up for one. A pair that can't be sent becomes marked
text; a call that will never be answered is taken out; and a person's words that came while one was open wait
for the next message, because the message with the results may hold results only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.messages import Block
from core.repair_lines import Line, Scene, text_block, unused
from core.repair_words import foreign_block, marked
from core.validator_pairs import result_kind
from core.validator_rules import SERVER_CALLS, SERVER_ID, SERVER_RESULT_OF, SERVER_RESULTS

UNREADABLE: Final = frozenset({"type", "encrypted_content", "encrypted_index", "cache_control", "caller"})


def server(lines: list[Line], scene: Scene) -> list[Line]:
    """Pairs first, then what is left open, from the front to the back."""
    if not any(block["type"] in SERVER_CALLS | SERVER_RESULTS for line in lines for block in line.blocks):
        return lines
    return _settle_open(_readable_pairs(_legal_ids(lines, scene), scene), scene)


def _legal_ids(lines: list[Line], scene: Scene) -> list[Line]:
    """R37 and R22: legal ids, each once, the same on both sides."""
    taken = {str(block.get("id")) for line in lines for block in line.blocks if block["type"] == "tool_use"}
    numbers: Counter[str] = Counter()
    current: dict[str, str] = {}

    def renamed(block: Block, line: Line) -> Block:
        if block["type"] in SERVER_CALLS:
            given = str(block.get("id"))
            legal = given
            if block["type"] == "server_tool_use" and not SERVER_ID.fullmatch(given):
                legal = "srvtoolu_" + (re.sub(r"[^a-zA-Z0-9_]", "_", given).removeprefix("srvtoolu_") or "0")
            new = unused(legal, taken, numbers)
            current[given] = new
            if new != block.get("id"):
                scene.note("R37", line.path, f"the server call {given} and its result are called {new}")
            return block if new == block.get("id") else {**block, "id": new}
        if block["type"] in SERVER_RESULTS:
            given = str(block.get("tool_use_id"))
            new = current.get(given, given)
            return block if new == block.get("tool_use_id") else {**block, "tool_use_id": new}
        return block

    return [
        Line(line.at, line.role, [renamed(block, line) for block in line.blocks], line.raw, line.fields)
        for line in lines
    ]


def _readable_pairs(lines: list[Line], scene: Scene) -> list[Line]:
    """R09, R36, R37: pairs that can't be sent, and results without their call, become marked text."""
    calls = _calls_by_result(lines)
    doomed: set[int] = set()
    texts: dict[int, Block] = {}
    for line in lines:
        for block in line.blocks:
            if block["type"] in SERVER_RESULTS:
                call = calls.get(id(block))
                if call is None or result_kind(call) != block["type"] or not _is_whole(block, call):
                    doomed.update({id(call)} if call is not None else set())
                    texts[id(block)] = text_block(_as_text(block, call))
                    rule = "R36" if call is None else "R09"
                    scene.note(rule, line.path, f"a {block['type']} that can't be sent is kept as marked text")
    answered = {id(call) for call in calls.values()}
    for line in lines:
        for block in line.blocks:
            if block["type"] in SERVER_CALLS and not _is_legal(block) and id(block) not in answered:
                texts[id(block)] = text_block(foreign_block("A server tool was called", block.get("input")))
                scene.note("R37", line.path, "an unknown server call is kept as marked text")
    return [
        Line(
            line.at,
            line.role,
            [texts.get(id(block), block) for block in line.blocks if id(block) not in doomed],
            line.raw,
            line.fields,
        )
        for line in lines
    ]


def _calls_by_result(lines: Sequence[Line]) -> dict[int, Block]:
    """The call that each result answers: of its own message, or of the one before across client results."""
    found: dict[int, Block] = {}
    before: dict[str, Block] = {}
    for line in lines:
        if line.role != "assistant":
            continue
        opened: dict[str, Block] = {}
        for block in line.blocks:
            if block["type"] in SERVER_CALLS:
                opened[str(block.get("id"))] = block
            elif block["type"] in SERVER_RESULTS:
                call_id = str(block.get("tool_use_id"))
                call = opened.pop(call_id, None) or before.pop(call_id, None)
                if call is not None:
                    found[id(block)] = call
        before = opened if any(block["type"] == "tool_use" for block in line.blocks) else {}
    return found


def _is_legal(call: Mapping[str, Any]) -> bool:
    if not isinstance(call.get("input"), Mapping) or not isinstance(call.get("name"), str):
        return False
    if call["type"] == "mcp_tool_use":
        return "server_name" in call
    return call["name"] in SERVER_RESULT_OF


def _is_whole(result: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    if not _is_legal(call) or ("content" not in result and result["type"] != "mcp_tool_result"):
        return False
    content = result.get("content")
    if result["type"] != "web_search_tool_result" or not isinstance(content, list):
        return True
    return all(
        isinstance(item, Mapping) and isinstance(item.get("encrypted_content"), str) and item["encrypted_content"]
        for item in content
    )


def _as_text(result: Mapping[str, Any], call: Mapping[str, Any] | None) -> str:
    asked = foreign_block(call.get("name"), call.get("input")) if call is not None else ""
    found = foreign_block("The result of a server tool, as data", _plain(result.get("content")))
    return marked(f"{asked}\n{found}".strip())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items() if name not in UNREADABLE}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _settle_open(lines: list[Line], scene: Scene) -> list[Line]:
    """R35, from the front: an open call waits across results, is a pause at the end, or goes."""
    answered = {id(call) for call in _calls_by_result(lines).values()}
    settled = list(lines)
    for index, line in enumerate(lines):
        if line.role != "assistant":
            continue
        inside = {str(b.get("tool_use_id")) for b in line.blocks if b["type"] in SERVER_RESULTS}
        opened = [b for b in line.blocks if b["type"] in SERVER_CALLS and str(b.get("id")) not in inside]
        lost = {id(block) for block in opened if id(block) not in answered}
        waits = bool(opened) and _may_wait(settled, index, late=not lost)
        if lost and not waits and not _is_pause(settled, index):
            scene.note("R35", line.path, "a server call that will never be answered was taken out")
            settled[index] = Line(line.at, line.role, [b for b in line.blocks if id(b) not in lost], line.raw)
        if waits or len(lost) < len(opened):
            _clear_for_results(settled, index, scene)
    return settled


def _spoken(lines: Sequence[Line], start: int) -> list[int]:
    return [at for at in range(start, min(start + 4, len(lines))) if lines[at].role != "system"]


def _is_pause(lines: Sequence[Line], index: int) -> bool:
    return not _spoken(lines, index + 1) and lines[index].blocks[-1]["type"] in SERVER_CALLS


def _may_wait(lines: Sequence[Line], index: int, *, late: bool) -> bool:
    """Whether the call can be answered behind the client results that come first."""
    behind = _spoken(lines, index + 1)
    if not any(block["type"] == "tool_use" for block in lines[index].blocks) or not behind:
        return False
    has_results = any(block["type"] == "tool_result" for block in lines[behind[0]].blocks)
    return has_results and (late or len(behind) == 1)


def _clear_for_results(lines: list[Line], index: int, scene: Scene) -> None:
    """Only results may stand behind an open server call: everything else waits for the next message."""
    behind = _spoken(lines, index + 1)
    line = lines[behind[0]]
    waiting = [block for block in line.blocks if block["type"] != "tool_result"]
    if not waiting:
        return
    lines[behind[0]] = Line(line.at, line.role, [b for b in line.blocks if b["type"] == "tool_result"], line.raw)
    following = next((at for at in behind[1:] if lines[at].role == "user"), None)
    if following is None:
        scene.deferred.extend(waiting)
        scene.note("R35", line.path, "words wait for the next safe point: a server call is open")
        return
    scene.note("R35", line.path, "words moved to the next message: a server call was open")
    later = lines[following]
    results = [block for block in later.blocks if block["type"] == "tool_result"]
    others = [block for block in later.blocks if block["type"] != "tool_result"]
    lines[following] = Line(later.at, later.role, [*results, *waiting, *others], later.raw)
