"""The words of a session: what arrives, who sent it, what the policy makes of it.

Everything here is a plain value. Times are seconds since the epoch and arrive as arguments; Slack's own
timestamps (`SlackTs`) are identifiers and stay strings: `ts_order` is the only way to compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
AttemptId = NewType("AttemptId", str)
UserId = NewType("UserId", str)
ChannelId = NewType("ChannelId", str)
SlackTs = NewType("SlackTs", str)
Epoch = NewType("Epoch", int)

Block = dict[str, Any]
"""One content block of the Messages API, as JSON."""


class Source(StrEnum):
    """Where a message came from."""

    MENTION = "mention"
    REPLY = "reply"
    DIRECT_MESSAGE = "direct_message"
    EDIT = "edit"
    DELETE = "delete"
    BUTTON = "button"
    REACTION = "reaction"
    NATIVE_STOP = "native_stop"
    ALERT = "alert"
    SCHEDULE = "schedule"
    HELPER_REPORT = "helper_report"
    HELPER_QUESTION = "helper_question"
    HELPER_ANSWER = "helper_answer"
    APPROVAL = "approval"
    OPERATOR = "operator"
    SYSTEM = "system"


class Marker(StrEnum):
    """What the text itself says about how it wants to be taken; the first that applies."""

    ADDRESSED = "addressed"
    NOT_FOR_BOT = "not_for_bot"
    CANCEL = "cancel"
    STOP_STEP = "stop_step"
    APPROVE = "approve"
    DENY = "deny"
    AFTER = "after"
    NOW = "now"
    NONE = "none"


class Who(StrEnum):
    """Who wrote it, seen from the thread; the first that applies."""

    BOT = "bot"
    EXTERNAL = "external"
    GUEST = "guest"
    PARTICIPANT = "participant"
    MEMBER = "member"


class Disposition(StrEnum):
    """What the steering policy says a message does."""

    START = "start"
    STEER = "steer"
    QUEUE = "queue"
    NOTE = "note"
    CONTROL = "control"
    REFUSE = "refuse"
    IGNORE = "ignore"


class SessionState(StrEnum):
    """The state of a session (the table of its moves is in `core.turn`)."""

    IDLE = "idle"
    RUNNING = "running"
    SUSPENDED = "suspended"
    WAITING = "waiting"


class Level(StrEnum):
    """How far a stop goes: it ends the step and waits for instructions, or it ends the task."""

    STEP = "step"
    TASK = "task"


class Place(StrEnum):
    """How the session of an arrival is found.

    `thread`: by its channel and `thread_ts`. `target`: by `target_ts`, a card or a message of the session, and
    `thread_ts` is only a guess. `outside`: a stop that names no thread; it means the author's only running
    turn in the channel.
    """

    THREAD = "thread"
    TARGET = "target"
    OUTSIDE = "outside"


class Action(StrEnum):
    """The buttons that we post; the value is the `action_id`."""

    STOP_STEP = "stop_step"
    CANCEL_TASK = "cancel_task"
    RETRY = "retry"
    REDIRECT_NOW = "redirect_now"
    APPROVE = "approve"
    DENY = "deny"
    STOP_HELPER = "stop_helper"


@dataclass(frozen=True, slots=True)
class Rights:
    """What one person may do in one channel."""

    ask: bool = False
    steer: bool = False
    stop: bool = False
    approve: bool = False


NO_RIGHTS = Rights()


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file that hangs on a message. `size` in bytes."""

    id: str
    name: str
    mimetype: str
    size: int
    url: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """One normalised event, ready for the policy. `dedupe_key` is the same for every delivery of it.

    `target_ts` is the message that an edit, a deletion, a button or a reaction is about; `turn_id` the turn
    that a button names. `text` is unescaped and free of our own mention and of the marker; of a stop it is what else
    was said (`rest`). `mentioned` says whether the text mentions us. With `only_in_session` the arrival counts only
    where a session exists already; else it is acknowledged and not stored. `subject` is the opaque id that a button
    carries (a turn, an approval, a message or a helper); `approval_id` and `reason` belong to approve and deny.
    `by_author`: the edit was made by who wrote the message. `assent`: the text is a bare "ok".
    """

    source: Source
    marker: Marker
    who: Who
    rights: Rights
    author: UserId
    team: str
    channel: ChannelId
    thread_ts: SlackTs
    ts: SlackTs
    dedupe_key: str
    text: str = ""
    mentioned: bool = False
    bare: bool = False
    rest: str = ""
    level: Level | None = None
    target_ts: SlackTs | None = None
    turn_id: TurnId | None = None
    files: Sequence[FileRef] = ()
    place: Place = Place.THREAD
    only_in_session: bool = False
    by_author: bool = True
    assent: bool = False
    action: Action | None = None
    subject: str | None = None
    approval_id: str | None = None
    reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def ts_order(ts: str) -> tuple[int, int]:
    """Slack's `1790000000.000100` as something that can be compared without going through a float."""
    whole, _, fraction = ts.partition(".")
    return int(whole or 0), int((fraction + "000000")[:6])


def older(left: str, right: str) -> bool:
    """Whether `left` is strictly older than `right`, both Slack timestamps."""
    return ts_order(left) < ts_order(right)
