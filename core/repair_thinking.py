"""Thinking is bound to everything in front of it: what a stitch changes takes the thinking behind it along.

    strip     R48 R49        thinking behind the first changed place goes, all of it: a run has no gaps
    modes     R43 to R45     what the thinking mode of the request asks for
              R4A            a forced tool choice is let go
    arrived                  a real result that came late, from the records

The changed place is found by comparing the flattened lists of (role, block) before and after, cache marks and
unknown fields aside; joining neighbours changes nothing in it. Who can check signatures (`verify`) replaces the
comparison by the check. With manual thinking the block is known to have come first, so putting it there is no
change but the return of what was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from core.messages import Block
from core.repair_lines import Line, Scene, seen_by_model, text_block, write_all
from core.repair_words import Fate, is_placeholder, late
from core.validator_request import open_loop
from core.validator_rules import THINKING, Group, Profile, blocks_of, groups_of

Flat = list[tuple[Any, Mapping[str, Any]]]
DISABLED: Final[Mapping[str, str]] = {"type": "disabled"}


def flat_messages(messages: Sequence[Any]) -> Flat:
    """Every (role, block) of messages as they came."""
    return [
        (message.get("role"), block)
        for message in messages
        if isinstance(message, Mapping)
        for block in blocks_of(message.get("content"))
    ]


def strip(lines: list[Line], before: Flat, scene: Scene) -> list[Line]:
    """Thinking that is no longer bound to what stands in front of it goes."""
    if scene.verify is not None:
        return _strip_unverified(lines, scene)
    after: Flat = [(line.role, block) for line in lines for block in line.blocks]
    kept = 0
    for old, new in zip_longest(before, after):
        if old is None or new is None or not _same(old, new):
            break
        kept += 1
    return _without_thinking(lines, kept, "R48", scene)


def _same(old: tuple[Any, Mapping[str, Any]], new: tuple[Any, Mapping[str, Any]]) -> bool:
    if old[0] != new[0]:
        return False
    return old[1] is new[1] or seen_by_model(old[1]) == seen_by_model(new[1])


def _strip_unverified(lines: list[Line], scene: Scene) -> list[Line]:
    assert scene.verify is not None
    request = {**scene.request, **scene.changes, "messages": write_all(lines)}
    count = 0
    for at, line in enumerate(lines):
        for index, block in enumerate(line.blocks):
            if block["type"] in THINKING and scene.verify(request, at, index) is not None:
                return _without_thinking(lines, count, "R42", scene)
            count += 1
    return lines


def _without_thinking(lines: list[Line], kept: int, rule: str, scene: Scene) -> list[Line]:
    """The lines without any thinking from block `kept` of the flattened list on."""
    stripped: list[Line] = []
    count = 0
    for line in lines:
        blocks: list[Block] = []
        for block in line.blocks:
            if block["type"] not in THINKING or count < kept:
                blocks.append(block)
            count += 1
        if len(blocks) == len(line.blocks):
            stripped.append(line)
            continue
        scene.note(rule, line.path, "thinking behind a changed place was taken out")
        stripped.append(Line(line.at, line.role, blocks, line.raw, line.fields))
    return stripped


def without_all(lines: list[Line], rule: str, scene: Scene) -> list[Line]:
    """No thinking at all."""
    return _without_thinking(lines, 0, rule, scene)


def modes(lines: list[Line], scene: Scene) -> list[Line]:
    """R43, R44, R45 and R4A. Thinking can't be made up: where it is asked for and missing, it is turned off."""
    thinking = scene.now("thinking")
    mode = thinking.get("type") if isinstance(thinking, Mapping) else None
    choice = scene.now("tool_choice")
    if mode in ("enabled", "adaptive") and isinstance(choice, Mapping) and choice.get("type") in ("tool", "any"):
        scene.note("R4A", "tool_choice", "thinking forbids a forced tool: the choice is left to the model")
        scene.changes["tool_choice"] = {"type": "auto"}
    if mode == "enabled":
        lines = [_thinking_first(line, scene) for line in lines]
        first = open_loop(_groups(lines))
        if first is not None and first.spots and first.spots[0].kind not in THINKING:
            scene.note("R43", f"messages.{first.message}", "thinking is off until this tool loop ends")
            scene.changes["thinking"] = dict(DISABLED)
            mode = "disabled"
    return without_all(lines, "R45", scene) if mode == "disabled" else lines


def _groups(lines: Sequence[Line]) -> list[Group]:
    groups = groups_of(write_all(lines), Profile.EVERYWHERE)
    return [group for group in groups if group.role != "system"]


def _thinking_first(line: Line, scene: Scene) -> Line:
    kinds = [block["type"] in THINKING for block in line.blocks]
    if line.role != "assistant" or True not in kinds or kinds[0]:
        return line
    scene.note("R44", line.path, "thinking stands in front again")
    thinking = [block for block in line.blocks if block["type"] in THINKING]
    rest = [block for block in line.blocks if block["type"] not in THINKING]
    return Line(line.at, line.role, [*thinking, *rest], line.raw, line.fields)


def arrived(lines: list[Line], scene: Scene) -> list[Line]:
    """Real results from the records in place of placeholders that the model has not answered on; for the
    others the result is added as text at the end, once. The caller stores what comes out."""
    real = {call_id: known for call_id, known in scene.known.items() if known.fate is Fate.RESULT}
    users = [at for at, line in enumerate(lines) if line.role == "user"]
    final = max((at for at, line in enumerate(lines) if line.role != "system"), default=-1)
    if not real or not users or users[-1] != final:
        return lines
    texts = {block.get("text") for at in users for block in lines[at].blocks}
    added: list[Block] = []
    blocks = list(lines[final].blocks)
    for at in users:
        for index, block in enumerate(lines[at].blocks):
            known = real.get(str(block.get("tool_use_id")))
            if known is None or block["type"] != "tool_result" or not is_placeholder(block):
                continue
            text = late(block["tool_use_id"], known.result)
            if at == final:
                scene.note("R20", lines[at].path, "the real result replaced its placeholder")
                blocks[index] = _recorded(block, known.result, is_error=known.is_error)
            elif text not in texts:
                scene.note("R21", lines[at].path, "a late result was added as marked text at the end")
                added.append(text_block(text))
    return [*lines[:final], _with(lines[final], [*blocks, *added]), *lines[final + 1 :]]


def _with(line: Line, blocks: list[Block]) -> Line:
    return Line(line.at, line.role, blocks, line.raw, line.fields)


def _recorded(block: Block, text: str, *, is_error: bool) -> Block:
    result = {name: value for name, value in block.items() if name != "is_error"}
    return {**result, "content": text, **({"is_error": True} if is_error else {})}
