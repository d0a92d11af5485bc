"""How the local Slack says no.

Refused      to a program: `{"ok": false, "error": ...}`, with Slack's own name for it
Impossible   to a person: what Slack's client would not let them do, in one sentence
"""

from __future__ import annotations

from typing import Any

from core.errors import BadInput


class Refused(Exception):
    """A Web API method answers `error`; `extra` goes into the answer beside it."""

    def __init__(self, error: str, *messages: str, **extra: Any) -> None:
        super().__init__(error, *messages)
        self.error = error
        self.extra = dict(extra)
        if messages:
            self.extra["response_metadata"] = {"messages": [f"[ERROR] {line}" for line in messages]}


class Impossible(BadInput):
    """A person can't do that in Slack; the text says why."""
