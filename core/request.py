"""What the post of a request for approval says: exactly what would run, why, who may decide, and until when.

*  every argument is shown as it is: invisible characters by their names, long blanks by their length, and what is
   too long is cut with the number of characters that are not shown (the approval covers them too);
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
TAIL_CHARS = 600
LONGEST_BLANK = 24
_BLANK = re.compile(rf"[ \u00a0]{{{LONGEST_BLANK},}}")


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


def exact(arguments: Mapping[str, Any]) -> str:
    """The arguments as JSON that hides nothing but secrets: what can't be seen is named, what is cut is counted."""
    text = redact(json.dumps(_visible(redact_values(arguments)), ensure_ascii=False, indent=2))
    if len(text) <= SHOWN_CHARS:
        return text
    head, tail = text[: SHOWN_CHARS - TAIL_CHARS], text[-TAIL_CHARS:]
    hidden = len(text) - len(head) - len(tail)
    return f"{head}\n[… {hidden:,} more characters are not shown here; the approval covers them too …]\n{tail}"


def visible(text: str) -> str:
    """A text in which nothing hides: control and format characters by their code, long blanks by their length."""
    named = "".join(char if _shows(char) else f"[U+{ord(char):04X}]" for char in text)
    return _BLANK.sub(lambda hit: f"[{len(hit[0]):,} spaces]", named)


def _shows(char: str) -> bool:
    return char in "\n " or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(key)): _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value
