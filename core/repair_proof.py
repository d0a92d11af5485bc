"""Where signatures can be checked, an edit of the past can be proved and undone.

A signed block that is "bound to a different conversation" says that something in front of it was changed after
it was sent. Two such edits are common: words added to a message that had been sent already, and a late result
put in place of the placeholder that the model had answered on. Each is taken back as a guess; a guess is kept
only when the signature then fits, which nothing but the true past does. What was taken back goes where it
should have gone: into the next message of the user's side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

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
    request = _request(lines, scene)
    for at in range(len(lines)):
        for index, block in enumerate(lines[at].blocks):
            if block["type"] in THINKING and scene.verify(request, at, index) is not None:
                guess = _first_fitting(lines, at, index, scene)
                if guess is None:
                    return lines
                lines, request = guess, _request(guess, scene)
    return lines


def _request(lines: list[Line], scene: Scene) -> dict[str, Any]:
    return {**scene.request, **scene.changes, "messages": write_all(lines)}


def _first_fitting(lines: list[Line], at: int, index: int, scene: Scene) -> list[Line] | None:
    """None when no guess fits: then nothing behind this block can be saved either."""
    assert scene.verify is not None
    for guess in _guesses(lines, at):
        if scene.verify(_request(guess, scene), at, index) is None:
            scene.note("R48", lines[at - 1].path, "what was changed here after it had been sent was put back")
            return guess
    return None


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
