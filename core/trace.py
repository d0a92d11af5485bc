"""How a turn is named in traces and logs: the same on every worker, in every attempt."""

from __future__ import annotations

import hashlib

from core.messages import TurnId


def trace_id(turn: TurnId) -> str:
    """The id of a turn's trace: 32 hexadecimal digits, never all zeros."""
    return hashlib.sha256(f"trace\0{turn}".encode()).hexdigest()[:32]


def span_id(turn: TurnId) -> str:
    """The id of the span that the turn itself is, the parent of its calls: 16 hexadecimal digits."""
    return hashlib.sha256(f"span\0{turn}".encode()).hexdigest()[:16]
