"""What people see of an arrival: the sign on their message, and words that only they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import approval_id
from core.messages import Action, Arrival, Disposition, Marker, MessageId, Source, Who
from core.notices import Notice, say
from core.steering import Override
from storage.database import now
from storage.dialect import insert_ignore
from storage.ledger.outgoing import Priority, row
from storage.ledger.scene import Scene, early_stop, running_turns
from storage.tables import outbox

SIGNS: Mapping[Disposition, str] = {
    Disposition.START: "eyes",
    Disposition.STEER: "leftwards_arrow_with_hook",
    Disposition.QUEUE: "hourglass_flowing_sand",
    Disposition.NOTE: "memo",
}
STOPPED_SIGN = "octagonal_sign"
DECIDED_SIGNS: Mapping[Marker, str] = {Marker.APPROVE: "white_check_mark", Marker.DENY: "no_entry_sign"}
SAID = ("mention", "reply", "direct_message")
"""Sources that are messages of people, which can carry a sign."""

BEFORE_START = (
    "Stopped before it started: {who} said stop after you sent this and before I had read it, so I did not begin. "
    "Send it again if it is still wanted."
)


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """What the configuration says about one channel. `who_may` names the people who hold each right."""

    overrides: Sequence[Override] = ()
    who_may: Mapping[str, str] = field(default_factory=dict)
    quiet_s: float = 1.0
    quiet_max_s: float = 3.0


async def sign(
    tx: AsyncConnection,
    dialect: str,
    scene: Scene,
    arrival: Arrival,
    disposition: Disposition,
    state: str,
    message: MessageId,
    *,
    taken: bool,
) -> None:
    """The visible sign that a person's words were taken. `taken`: nothing had to be said about them."""
    if arrival.source.value not in SAID:
        return
    if early_stop(arrival) and scene.session["next_turn"] == 1:
        return
    name = STOPPED_SIGN if state == "stopped" else SIGNS.get(disposition)
    if disposition is Disposition.CONTROL and state == "control":
        name = DECIDED_SIGNS.get(arrival.marker, STOPPED_SIGN)
    if name in DECIDED_SIGNS.values() and not taken:
        return
    if name is None:
        return
    await add_sign(tx, dialect, scene, message, arrival.ts, name)


async def add_sign(tx: AsyncConnection, dialect: str, scene: Scene, key: str, target_ts: str, name: str) -> None:
    """A reaction of ours on somebody's message."""
    values = row(
        "reaction",
        f"sign:{key}",
        {"name": name},
        session=scene.session,
        at=scene.at,
        priority=Priority.STOP if name == STOPPED_SIGN else Priority.SIGN,
        target_ts=target_ts,
    )
    await tx.execute(insert_ignore(outbox, dialect).values(**values))


async def notice(
    tx: AsyncConnection,
    dialect: str,
    scene: Scene,
    arrival: Arrival,
    message: MessageId,
    notice: Notice,
    policy: ChannelPolicy,
) -> None:
    who_may = policy.who_may.get(right_of(notice), "")
    asked = approval_id(scene.requests[0]) if len(scene.requests) == 1 else ""
    body: dict[str, Any] = {"text": say(notice, who_may=who_may, approval=asked)}
    key = f"notice:{message}"
    if notice is Notice.KEPT_AS_NOTE:
        body["buttons"] = [[Action.REDIRECT_NOW.value, message]]
        key = f"note:{scene.session['id']}:{arrival.author}"
    await tell(tx, dialect, scene, arrival, message, body, key)


async def tell(
    tx: AsyncConnection,
    dialect: str,
    scene: Scene,
    arrival: Arrival,
    message: MessageId,
    body: Mapping[str, Any],
    key: str | None = None,
) -> None:
    values = row(
        "ephemeral",
        key or f"notice:{message}",
        body,
        session=scene.session,
        at=scene.at,
        priority=Priority.STOP if arrival.level is not None else Priority.SIGN,
        person=arrival.author,
    )
    await tx.execute(insert_ignore(outbox, dialect).values(**values))


def right_of(notice: Notice) -> str:
    """Which right a refusal is about, to name the people who hold it."""
    return {
        Notice.REFUSED_ASK: "ask",
        Notice.REFUSED_STEER: "steer",
        Notice.REFUSED_STOP: "stop",
        Notice.REFUSED_APPROVE: "approve",
        Notice.HOW_TO_APPROVE: "approve",
        Notice.NEEDS_ANOTHER: "approve",
    }.get(notice, "ask")


async def outside(tx: AsyncConnection, dialect: str, arrival: Arrival, policy: ChannelPolicy) -> Notice | None:
    """A stop that names no thread and no only turn: its author gets the list of what runs in the channel.

    Who may not stop is told so, and where nothing runs it is said only to who spoke to us: others talk, too.
    """
    to_us = arrival.mentioned or arrival.source is not Source.REPLY
    if not arrival.rights.stop:
        if arrival.who is Who.BOT or not to_us:
            return None
        text = say(Notice.REFUSED_STOP, who_may=policy.who_may.get("stop", ""))
        return await _tell_outside(tx, dialect, arrival, Notice.REFUSED_STOP, {"text": text})
    listed = [
        {
            "turn": turn["id"],
            "asked_by": turn["asked_by"],
            "text": turn["asked_text"][:200],
            "started": turn["created_at"],
        }
        for turn in await running_turns(tx, arrival.channel)
    ]
    if not listed and not to_us:
        return None
    found = Notice.WHICH_TURN if listed else Notice.NOTHING_HERE
    return await _tell_outside(tx, dialect, arrival, found, {"text": say(found), "running": listed})


async def _tell_outside(
    tx: AsyncConnection, dialect: str, arrival: Arrival, notice: Notice, body: Mapping[str, Any]
) -> Notice:
    place = {"id": None, "channel": arrival.channel, "thread_ts": None}
    key = f"outside:{arrival.dedupe_key}"
    values = row("ephemeral", key, body, session=place, at=0.0, priority=Priority.STOP, person=arrival.author)
    values["created_at"] = now()
    await tx.execute(insert_ignore(outbox, dialect).values(**values))
    return notice
