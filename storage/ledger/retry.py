"""The question of an ended turn once more: the row that stands for its words names the turn they come from."""

from __future__ import annotations

RETRY_ROW = "retry_button"
"""The policy row of words that Retry asked again."""


def retry_key(turn: str, ts: str) -> str:
    """The key of the row that asks `turn` again, pressed at the Slack time `ts`."""
    return f"retry:{turn}:{ts}"


def retried(key: str) -> str | None:
    """The turn that a row with this key asks again; None when it is no such row."""
    turn, _, ts = key.removeprefix("retry:").rpartition(":")
    return turn if key.startswith("retry:") and ts else None
