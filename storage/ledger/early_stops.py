"""Stop signs that came before the message they were put on.

Slack does not say in which thread a message is that somebody reacts to. A sign on one that nobody knows is therefore
kept where the message would be if it began a thread. When the message comes in, and is in another thread, the sign
counts there, with the time at which it was given: the order in which the two arrive makes no difference.
"""

from __future__ import annotations

from sqlalchemy import bindparam, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import StopFact
from core.messages import Arrival, Level, UserId
from storage.ledger.common import Ids, rows
from storage.ledger.scene import Scene
from storage.ledger.signs import SAID
from storage.ledger.stops import write
from storage.tables import sessions, stops

TYPED = (*SAID, "alert")
_HERE = stops.alias("here")
EARLY = (
    select(stops.c.level, stops.c.author, stops.c.slack_ts, stops.c.source)
    .join(sessions, sessions.c.id == stops.c.session_id)
    .where(
        sessions.c.team == bindparam("in_team"),
        sessions.c.channel == bindparam("in_channel"),
        sessions.c.thread_ts == bindparam("ts"),
        sessions.c.parent_turn_id.is_(None),
        stops.c.slack_ts > bindparam("ts"),
        ~exists().where(
            _HERE.c.session_id == bindparam("session"),
            _HERE.c.author == stops.c.author,
            _HERE.c.slack_ts == stops.c.slack_ts,
        ),
    )
    .order_by(stops.c.slack_ts)
)
"""What was kept for a message, unless it counts in its thread already."""


async def adopt(tx: AsyncConnection, ids: Ids, dialect: str, scene: Scene, arrival: Arrival) -> bool:
    """Let the stops count that were kept for this message; whether there were any."""
    if arrival.source.value not in TYPED or arrival.ts == arrival.thread_ts:
        return False
    place = {"in_team": arrival.team, "in_channel": arrival.channel, "session": scene.session["id"]}
    found = await rows(tx, EARLY, ts=arrival.ts, **place)
    for row in found:
        fact = StopFact(Level(row["level"]), UserId(row["author"]), row["slack_ts"])
        await write(tx, ids, dialect, scene, fact, row["source"])
    return bool(found)
