"""Nothing waits for ever: every limit, with its default. Times are seconds, sizes characters or tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one channel.

    A call, a turn and a step have `tool_timeout_s`, `turn_s` and `max_steps`; with `reserve_s` left the model is
    asked for its answer. `patience_s` is how long a batch goes on once a steer waits, `reading_s` how long Slack may
    take to say what the words of a turn refer to, `approval_s` how long people may take to decide about a change. A
    lease lasts `lease_s`, is renewed every `renew_s`, and nothing starts within `lease_margin_s` of its end. A
    history that nears `condense_at_tokens`, which lies below what the model can read, is shortened to about
    `condense_to_tokens`.
    """

    tool_timeout_s: float = 10.0
    max_steps: int = 8
    turn_s: float = 120.0
    reserve_s: float = 30.0
    rung_s: float = 60.0
    patience_s: float = 2.0
    reading_s: float = 20.0
    approval_s: float = 900.0
    quiet_s: float = 1.0
    quiet_max_s: float = 3.0
    lease_s: float = 15.0
    renew_s: float = 5.0
    lease_margin_s: float = 3.0
    poll_s: float = 1.0
    drain_s: float = 25.0
    drain_stream_margin_s: float = 10.0
    output_chars: int = 20_000
    max_output_tokens: int = 4_096
    larger_output_tokens: int = 16_384
    condense_at_tokens: int = 150_000
    condense_to_tokens: int = 50_000
    slots: int = 300
