"""What people and programs can do in one thread, as the arrivals that the listeners make of it.

Every text is a word of its own ("w0007"), so that the checker can tell where it went.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from enum import StrEnum

from core.marker import is_assent, marker_of, parse_decision
from core.messages import (
    NO_RIGHTS,
    Action,
    Arrival,
    ChannelId,
    Level,
    Marker,
    Place,
    Rights,
    SlackTs,
    Source,
    TurnId,
    UserId,
    Who,
)

BOT = "U0PILOT"
CHANNEL = ChannelId("C0INCIDENT")
MAY = Rights(ask=True, steer=True, stop=True)
MAY_APPROVE = replace(MAY, approve=True)


class Person(StrEnum):
    """Who is in the thread."""

    ENGINEER = "U0ENGINEER"
    ONCALL = "U0ONCALL"
    PASSER_BY = "U0PASSERBY"
    GUEST = "U0GUEST"


class Kind(StrEnum):
    """What can be typed. `{w}` is a new word."""

    MENTION = f"<@{BOT}> {{w}}"
    REPLY = "{w}"
    NOW = "! {w}"
    AFTER = "+ {w}"
    ASIDE = "<@U0OTHER> {w}"
    NOT_FOR_BOT = "; {w}"
    STOP = "stop"
    STOP_AND = "stop, {w}"
    STOP_TO_US = f"<@{BOT}> stop"
    CANCEL = "取消"
    APPROVE = "approve"
    DENY = "deny not {w}"
    YES = "ok"


OF_A_TURN = (Action.STOP_STEP, Action.CANCEL_TASK, Action.RETRY)
DECISIONS = (Action.APPROVE, Action.DENY)
SEEN = {
    Person.ENGINEER: (Who.MEMBER, MAY),
    Person.ONCALL: (Who.PARTICIPANT, MAY_APPROVE),
    Person.PASSER_BY: (Who.MEMBER, MAY),
    Person.GUEST: (Who.GUEST, NO_RIGHTS),
}


@dataclass
class Thread:
    """One thread of Slack: it gives out times and words."""

    root: SlackTs
    begins_s: float = 1_790_000_000.0

    def __post_init__(self) -> None:
        self._words = itertools.count(1)
        self._events = itertools.count(1)
        self.clock = self.begins_s

    def word(self) -> str:
        return f"w{next(self._words):04}"

    def later(self, seconds: float) -> SlackTs:
        """Slack's time of the next event; no two are the same."""
        self.clock += seconds + next(self._events) * 0.000001
        return SlackTs(f"{self.clock:.6f}")

    def typed(self, kind: Kind, person: Person, after_s: float) -> Arrival:
        """A message that somebody typed."""
        ts = self.later(after_s)
        return self._said(kind.format(w=self.word()), person, ts, f"msg:{ts}")

    def _said(self, text: str, person: Person, ts: SlackTs, key: str) -> Arrival:
        mentioned = f"<@{BOT}>" in text
        marker, rest, stop = marker_of(text, bot_user=BOT, mentioned=mentioned)
        ruling = parse_decision(text.removeprefix(f"<@{BOT}> "))
        who, rights = SEEN[person]
        return Arrival(
            source=Source.MENTION if mentioned else Source.REPLY,
            marker=marker,
            who=who,
            rights=rights,
            author=UserId(person),
            team="T0HOME",
            channel=CHANNEL,
            thread_ts=self.root,
            ts=ts,
            dedupe_key=key,
            text=rest,
            mentioned=mentioned,
            bare=stop is not None and stop.bare,
            rest=stop.rest if stop else "",
            level=stop.level if stop else None,
            only_in_session=not mentioned,
            assent=is_assent(text),
            approval_id=ruling.approval_id if ruling else None,
            reason=ruling.reason if ruling else "",
        )

    def edited(self, message: Arrival, kind: Kind, after_s: float) -> Arrival:
        """The author changes a message."""
        ts = self.later(after_s)
        said = self._said(kind.format(w=self.word()), Person(message.author), ts, f"edit:{message.ts}:{ts}")
        return replace(said, source=Source.EDIT, target_ts=message.ts, only_in_session=True)

    def deleted(self, message: Arrival, after_s: float) -> Arrival:
        """The author deletes a message."""
        deletion = self._control(Source.DELETE, Marker.NONE, Person(message.author), after_s, "del")
        return replace(deletion, target_ts=message.ts, only_in_session=True, dedupe_key=f"del:{message.ts}")

    def native_stop(self, person: Person, after_s: float) -> Arrival:
        return replace(self._control(Source.NATIVE_STOP, Marker.CANCEL, person, after_s, "native"), level=Level.TASK)

    def stop_reaction(self, message: Arrival, person: Person, after_s: float) -> Arrival:
        """🛑 on somebody's message."""
        sign = self._control(Source.REACTION, Marker.STOP_STEP, person, after_s, "react")
        return replace(
            sign,
            level=Level.STEP,
            target_ts=message.ts,
            place=Place.TARGET,
            thread_ts=message.ts,
            only_in_session=True,
        )

    def clicked(self, action: Action, subject: str, person: Person, after_s: float) -> Arrival:
        """A button of ours."""
        markers = {
            Action.STOP_STEP: (Marker.STOP_STEP, Level.STEP),
            Action.CANCEL_TASK: (Marker.CANCEL, Level.TASK),
            Action.REDIRECT_NOW: (Marker.NOW, None),
            Action.RETRY: (Marker.NONE, None),
            Action.APPROVE: (Marker.APPROVE, None),
            Action.DENY: (Marker.DENY, None),
        }
        marker, level = markers[action]
        click = self._control(Source.BUTTON, marker, person, after_s, f"act:{action}:{subject}")
        turn = TurnId(subject) if action in OF_A_TURN else None
        approval = subject if action in DECISIONS else None
        return replace(
            click,
            level=level,
            turn_id=turn,
            action=action,
            subject=subject,
            only_in_session=True,
            approval_id=approval,
        )

    def ruled(self, words: str, person: Person, after_s: float) -> Arrival:
        """A decision in words, such as `deny ap-7 why`."""
        ts = self.later(after_s)
        return self._said(words, person, ts, f"msg:{ts}")

    def alert(self, after_s: float) -> Arrival:
        """A monitoring bot that may start."""
        ts = self.later(after_s)
        return Arrival(
            source=Source.ALERT,
            marker=Marker.NONE,
            who=Who.BOT,
            rights=Rights(ask=True),
            author=UserId("B0MONITOR"),
            team="T0HOME",
            channel=CHANNEL,
            thread_ts=self.root,
            ts=ts,
            dedupe_key=f"msg:{ts}",
            text=self.word(),
        )

    def _control(self, source: Source, marker: Marker, person: Person, after_s: float, key: str) -> Arrival:
        ts = self.later(after_s)
        who, rights = SEEN[person]
        return Arrival(
            source=source,
            marker=marker,
            who=who,
            rights=rights,
            author=UserId(person),
            team="T0HOME",
            channel=CHANNEL,
            thread_ts=self.root,
            ts=ts,
            dedupe_key=f"{key}:{person}:{ts}",
        )
