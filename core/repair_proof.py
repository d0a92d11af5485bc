"""Where signatures can be checked, an edit of the past can be proved and undone.

A signed block that is "bound to a different conversation" says that something in front of it was changed after
it was sent. Two such edits are common: words added to a message that had been sent already, and a late result
put in place of the placeholder that the model had answered on. Each is taken back as a guess; a guess is kept
only when the signature then fits, which nothing but the true past does. What was taken back goes where it
should have gone: into the next message of the user's side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from core.messages import Block
from core.repair_answers import result_as_text
from core.repair_lines import Line, Scene, write_all
from core.repair_words import Fate, Known, is_placeholder, placeholder
from core.validator_rules import THINKING

CLOSINGS: Final = tuple(placeholder(Known(fate)) for fate in Fate if fate not in (Fate.IN_FLIGHT, Fate.RESULT))


def undo(lines: list[Line], scene: Scene) -> list[Line]:
    """R48: the lines with every provable edit of the past taken back, from the front."""
    if scene.verify is None:
        return lines
    for at, line in enumerate(lines):
        for index, block in enumerate(line.blocks):
            if block["type"] in THINKING and not _fits(lines, at, index, scene):
                lines = _first_fitting(lines, at, index, scene)
    return lines


def _fits(lines: list[Line], at: int, index: int, scene: Scene) -> bool:
    assert scene.verify is not None
    request = {**scene.request, **scene.changes, "messages": write_all(lines)}
    return scene.verify(request, at, index) is None


def _first_fitting(lines: list[Line], at: int, index: int, scene: Scene) -> list[Line]:
    for guess in _guesses(lines, at):
        if _fits(guess, at, index, scene):
            scene.note("R48", lines[at - 1].path, "what was changed here after it had been sent was put back")
            return guess
    return lines


def _guesses(lines: list[Line], at: int) -> Iterator[list[Line]]:
    """The histories that the edited one may have been, when there is a later message to move things to."""
    later = next((each for each in range(at + 1, len(lines)) if lines[each].role == "user"), None)
    if later is None or at == 0 or lines[at - 1].role != "user":
        return
    sent = lines[at - 1].blocks
    results = [block for block in sent if block["type"] == "tool_result"]
    words = sent[len(results) :]
    for kept in reversed(range(0 if results else 1, len(words))):
        yield _moved(lines, at - 1, later, [*results, *words[:kept]], words[kept:])
    for place, result in enumerate(results):
        if is_placeholder(result):
            continue
        late = result_as_text(result, str(result.get("tool_use_id")), known_call=True)
        for text in CLOSINGS:
            closed = {**result, "content": text, "is_error": True}
            yield _moved(lines, at - 1, later, [*sent[:place], closed, *sent[place + 1 :]], late)


def _moved(lines: list[Line], sent: int, later: int, kept: list[Block], moved: list[Block]) -> list[Line]:
    target = lines[later]
    results = [block for block in target.blocks if block["type"] == "tool_result"]
    others = [block for block in target.blocks if block["type"] != "tool_result"]
    guess = list(lines)
    guess[sent] = Line(lines[sent].at, "user", kept)
    guess[later] = Line(target.at, "user", [*results, *moved, *others])
    return guess
