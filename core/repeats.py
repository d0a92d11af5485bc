"""Models spin: a read that a turn has made twice already, with the same arguments, is answered from evidence.

Only what was read and was well counts, and only since the last change: after a change the same question has another
answer. What is answered so says from which step, so that the model goes on instead of asking a fourth time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.approvals import digest
from core.gateway import Call, CallStatus, Known
from core.remediation import Looked

OFTEN = 2
"""After so many times the answer is known."""
EXCERPT_CHARS = 2_000
HINT = (
    "You have this already, from step {step}: it is the same call with the same arguments, so it was not run again. "
    "Use what it said, ask for something else, or answer now."
)
CHANGING = (CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN)


def looked_at(call: Call, status: CallStatus, text: str, step: int) -> Looked:
    """What a turn remembers of a call that has ended."""
    changed = call.writes and status in CHANGING
    return Looked(call.tool, call.summary, status.value, text, step, digest(call.tool, call.arguments), changed)


def without_repeats(calls: Sequence[Call], looked: Sequence[Looked]) -> list[Call]:
    """The calls of a step, each with its answer when the turn has it already."""
    since = max((one.step for one in looked if one.changed), default=0)
    seen: dict[str, list[Looked | None]] = {}
    for one in looked:
        if one.step > since and one.status == CallStatus.OK.value:
            seen.setdefault(one.digest, []).append(one)
    checked: list[Call] = []
    for call in calls:
        if call.writes or call.refusal is not None:
            checked.append(call)
            continue
        before = seen.setdefault(digest(call.tool, call.arguments), [])
        known = next((one for one in reversed(before[:OFTEN]) if one is not None), None)
        checked.append(call if known is None or len(before) < OFTEN else replace(call, known=_from(known)))
        before.append(None)
    return checked


def _from(looked: Looked) -> Known:
    text = looked.output
    if len(text) > EXCERPT_CHARS:
        text = f"{text[:EXCERPT_CHARS]}\n[… the rest stands in the result of step {looked.step}]"
    return Known(HINT.format(step=looked.step), text)
