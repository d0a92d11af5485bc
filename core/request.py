"""What the post of a request for approval says: exactly what would run, why, who may decide, and until when.

*  every argument is shown as it is: invisible characters by their names, long blanks by their length, and what is
   too long, or looks like a secret, is left out with the number of characters that are not shown (the approval
   covers them too);
*  what comes from a tool, a page or the model is quoted, it never speaks for us;
*  however the request ended, its post says so in one sentence, and no button is left.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.approvals import ApprovalState
from core.card_lines import tool_words
from core.card_words import person
from core.gateway import CallStatus
from core.messages import UserId
from core.ports import Tier
from core.redaction import redact, redact_values

SHOWN_CHARS = 2_400
LONGEST_BLANK = 24
_BLANK = re.compile(rf" {{{LONGEST_BLANK},}}")
_EMPTY_LINES = re.compile(r"\n(?: *\n){5,}")
_REDACTED = re.compile(r"\[redacted[^\[\]]*\]")
_DRAWN_AS_NOTHING = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Letters, marks and signs that nobody sees, and that no category tells from others."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """One request with the call that it is about. Times are seconds since the epoch.

    `said` is what the model said beside the call, `looked_at` the tools whose results it had read in the thread.
    """

    id: str
    state: ApprovalState
    tool: str
    tier: Tier
    arguments: Mapping[str, Any]
    preview: str
    asked_by: UserId
    expires_at: float
    said: str = ""
    looked_at: Sequence[str] = ()
    decided_by: UserId | None = None
    reason: str = ""
    status: CallStatus = CallStatus.OPEN

    @property
    def open(self) -> bool:
        return self.state is ApprovalState.OPEN


def headline(facts: RequestFacts) -> str:
    """One or two sentences: the question, or how it ended. People in it are `@{U123}`."""
    what = f"{tool_words(facts.tool)} ({facts.id})"
    if facts.open:
        leaves = " It leaves the company, so somebody other than those who asked decides." if _external(facts) else ""
        return f"Approve this change? I would like to run {what}. Nothing has run yet.{leaves}"
    match facts.state:
        case ApprovalState.APPROVED:
            return f"Approved by {_by(facts)}: {what}. {RAN[facts.status]}"
        case ApprovalState.DENIED:
            return f"Denied by {_by(facts)}: {what}. It was not run."
        case ApprovalState.WITHDRAWN:
            return f"Withdrawn: {what}. {_withdrawn(facts)}, so it was not run."
        case ApprovalState.STOPPED:
            by = f" by {_by(facts)}" if facts.decided_by else ""
            return f"Stopped{by}: {what}. It was not run."
        case _:
            return f"Ran out: {what}. Nobody decided in time, so it was not run."


WITHDRAWN: Mapping[str, str] = {
    "a change before it in the same step was denied": "A change before it was denied",
    "its arguments changed": "What would have run was no longer what was asked about",
}

RAN: Mapping[CallStatus, str] = {
    CallStatus.OPEN: "It runs as soon as a worker takes it up.",
    CallStatus.INTENT: "It is running.",
    CallStatus.OK: "It ran.",
    CallStatus.ERROR: "It ran and failed; the thread says how.",
    CallStatus.TIMEOUT: "It did not end in time.",
    CallStatus.CANCELLED: "It was cancelled.",
    CallStatus.DENIED: "It was not run.",
    CallStatus.REFUSED: "It was not run: the tools have changed since.",
    CallStatus.UNKNOWN: "It may have run: its outcome is not known. Check before anything else is done.",
    CallStatus.INTERRUPTED: "It was interrupted.",
    CallStatus.NOT_RUN: "It was not run after all; the thread says why.",
}


def _withdrawn(facts: RequestFacts) -> str:
    return WITHDRAWN.get(facts.reason, facts.reason or "The investigation was redirected")


def _external(facts: RequestFacts) -> bool:
    return facts.tier is Tier.EXTERNAL


def _by(facts: RequestFacts) -> str:
    return person(facts.decided_by)


def exact(arguments: Mapping[str, Any], most: int = SHOWN_CHARS) -> str:
    """The arguments as JSON that hides nothing: what can't be seen is named, what is left out is counted."""
    text = redact(_json(_visible(redact_values(arguments))))
    hidden = len(_json(arguments)) - len(_REDACTED.sub("", redact(_json(redact_values(arguments)))))
    left_out = f"[… {hidden:,} characters look like a secret and {COVERED} …]\n" if hidden > 0 else ""
    return left_out + middle_out(text, most, COVERED)


COVERED = "are not shown here; the approval covers them too"


def middle_out(text: str, most: int, unsaid: str = "are not shown here") -> str:
    """Both ends of a text that is longer than `most` characters, and how much of it stands between them."""
    if len(text) <= most:
        return text
    tail = most // 4
    head = most - tail
    return f"{text[:head]}\n[… {len(text) - most:,} more characters {unsaid} …]\n{text[-tail:]}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def visible(text: str) -> str:
    """A text in which nothing hides: control and format characters by their code, long blanks by their length."""
    named = "".join(char if _shows(char) else f"[U+{ord(char):04X}]" for char in text)
    dense = _EMPTY_LINES.sub(lambda hit: f"\n[{hit[0].count(chr(10)) - 1:,} empty lines]\n", named)
    return _BLANK.sub(lambda hit: f"[{len(hit[0]):,} spaces]", dense)


def _shows(char: str) -> bool:
    if char in "\n ":
        return True
    hides = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
    return not hides and char not in _DRAWN_AS_NOTHING


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return _named_apart([(visible(str(key)), _visible(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value


def _named_apart(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """No argument takes the place of another that is shown by the same name."""
    apart: dict[str, Any] = {}
    for name, value in items:
        while name in apart:
            name += " (another)"
        apart[name] = value
    return apart
