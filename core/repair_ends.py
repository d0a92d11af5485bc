"""Where system messages stand, who speaks first, and who last.

systems   R80       a system message moves behind the results and texts that it interrupts
first     R03       what was posted before the conversation becomes quoted context; else a note in front
last      R04 R05   a note that asks to go on, or where prefill is allowed no blank at the end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.repair_lines import Line, Scene, text_block
from core.repair_words import CONTINUE, EARLIER, foreign_role, posted_before
from core.validator_rules import SERVER_CALLS, SERVER_RESULTS, THINKING

TEXT_ONLY: Final = frozenset({"text"})


def systems(lines: list[Line], scene: Scene) -> list[Line]:
    """R80: each system message goes behind the user's turn that it stands in or in front of."""
    out: list[Line] = []
    waiting: list[Line] = []
    spoken: Line | None = None
    following = _roles_behind(lines)
    for line, role_behind in zip(lines, following, strict=True):
        if line.role != "system":
            out.append(line)
            spoken = line
            if line.role == "user" and role_behind != "user":
                out.extend(waiting)
                waiting = []
        elif not waiting and _may_follow(spoken, role_behind):
            out.append(line)
        else:
            scene.note("R80", line.path, "a system message moved behind the user's turn")
            waiting.append(line)
    return _with_the_rest(out, waiting, scene) if waiting else out


def _with_the_rest(out: list[Line], waiting: list[Line], scene: Scene) -> list[Line]:
    """System messages that no user's turn follows: at the end, in front of an answer that is to be continued, or as
    marked text where an answer of the model was paused, which nothing but the user's side can go on from."""
    at = next((at for at in reversed(range(len(out))) if out[at].role != "system"), len(out))
    if at == len(out) or out[at].role != "assistant" or _may_follow(out[at], None):
        return [*out, *waiting]
    if out[at].blocks and out[at].blocks[-1]["type"] in SERVER_CALLS:
        texts = [
            text_block(foreign_role("system", str(block.get("text")))) for line in waiting for block in line.blocks
        ]
        return [*out, Line(waiting[0].at, "user", texts)]
    return [*out[:at], *waiting, *out[at:]] if scene.prefill else [*out, *waiting]


def _roles_behind(lines: Sequence[Line]) -> list[str | None]:
    """For each line the role of the next one that is no system message."""
    roles: list[str | None] = []
    behind: str | None = None
    for line in reversed(lines):
        roles.append(behind)
        behind = line.role if line.role != "system" else behind
    return roles[::-1]


def _may_follow(before: Line | None, role_behind: str | None) -> bool:
    """Whether a system message may stand between these: behind a user's turn, or a result of the API's own tools."""
    if before is None or role_behind == "user":
        return False
    return before.role == "user" or bool(before.blocks and before.blocks[-1]["type"] in SERVER_RESULTS)


def first(lines: list[Line], scene: Scene) -> list[Line]:
    """R03. An only word of the assistant in front of everything was posted, not answered: it becomes context."""
    if not lines or lines[0].role != "assistant":
        return lines
    opening, rest = lines[0], lines[1:]
    only_texts = {block["type"] for block in opening.blocks} == TEXT_ONLY
    if only_texts and rest and all(line.role != "assistant" for line in rest):
        scene.note("R03", opening.path, "what was posted before the conversation is kept as quoted context")
        quoted = [text_block(posted_before(str(block["text"]))) for block in opening.blocks]
        return [Line(opening.at, "user", quoted), *rest]
    scene.note("R03", opening.path, "a note in front says that earlier messages are missing")
    return [Line(opening.at, "user", [text_block(EARLIER)]), *lines]


def last(lines: list[Line], scene: Scene) -> list[Line]:
    """R04, or R05 and R4B where the assistant may speak last."""
    at = next((at for at in reversed(range(len(lines))) if lines[at].role != "system"), None)
    if at is None or lines[at].role != "assistant" or lines[at].blocks[-1]["type"] in SERVER_CALLS:
        return lines
    final = lines[at]
    tail = final.blocks[-1]
    if scene.prefill and tail["type"] not in THINKING:
        return [*lines[:at], _trimmed(final, scene), *lines[at + 1 :]]
    scene.note("R04", final.path, "a note at the end asks to go on")
    note = Line(final.at, "user", [text_block(CONTINUE)])
    return [*lines[: at + 1], note, *lines[at + 1 :]]


def _trimmed(line: Line, scene: Scene) -> Line:
    tail = line.blocks[-1]
    text = tail.get("text")
    if tail["type"] != "text" or not isinstance(text, str) or text == text.rstrip():
        return line
    scene.note("R05", line.path, "blanks at the end of the last text were taken off")
    return Line(line.at, line.role, [*line.blocks[:-1], {**tail, "text": text.rstrip()}])
