"""A stop is written down: which turn it reaches, what it makes of everything that waits, and whether it counts.

The row stays: it is the tombstone that also stops what is older and has not started yet. It never touches what was
asked after it; only Slack's own timestamps decide that.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import ApprovalState
from core.control import Closed, StopFact
from core.messages import Arrival, Disposition, Level, Marker, MessageId, SessionId, Source, UserId, older
from core.notices import Notice
from core.steering import Decision, Effect
from core.stop import Aim, Duplicate, Fate, Waiting, aim_of_click, escalate, fate_of
from storage.database import now
from storage.dialect import insert_ignore
from storage.ledger.common import Ids, Row, one, rows
from storage.ledger.requests import end_open
from storage.ledger.scene import Scene
from storage.ledger.signs import SAID, SIGNS, STOPPED_SIGN, add_sign
from storage.tables import cards, messages, sessions, settles, stops, turns

BECOMES: Mapping[Fate, tuple[Mapping[str, str], str]] = {
    Fate.STOPPED: ({"state": "stopped"}, STOPPED_SIGN),
    Fate.BECOMES_NOTE: ({"disposition": "note"}, SIGNS[Disposition.NOTE]),
}
"""What a stop makes of a waiting message, and the sign that its author sees."""


async def stop(
    tx: AsyncConnection,
    ids: Ids,
    dialect: str,
    scene: Scene,
    arrival: Arrival,
    decision: Decision,
    message: MessageId,
) -> Notice | None:
    """Write one stop; the notice for its author, if it did nothing."""
    aim = await _aim(tx, scene, arrival)
    if aim is Aim.ENDED:
        return Notice.ALREADY_ENDED
    level = await _level(tx, scene, _fact(arrival, decision))
    if level is None:
        await _reach_further(tx, scene, _fact(arrival, decision))
        return None
    fact = StopFact(level, UserId(arrival.author), arrival.ts)
    reached = await write(tx, ids, dialect, scene, fact, arrival.source.value)
    await _keep_the_rest(tx, ids, dialect, scene, arrival)
    if decision.effect is Effect.STOP and scene.turn is not None and not reached:
        return Notice.ALREADY_ENDED
    return None


async def write(tx: AsyncConnection, ids: Ids, dialect: str, scene: Scene, fact: StopFact, source: str) -> bool:
    """Write the row of a stop and what it makes of everything that waits; whether it reaches the turn."""
    turn = scene.turn
    reached = turn is not None and older(turn["newest_ts"], fact.ts)
    await tx.execute(
        insert_ignore(stops, dialect).values(
            id=ids("x"),
            session_id=scene.session["id"],
            turn_id=turn["id"] if turn is not None and reached else None,
            level=fact.level.value,
            author=fact.author,
            source=source,
            slack_ts=fact.ts,
            arrived_at=scene.at,
        )
    )
    await _waiting(tx, dialect, scene, fact, reached=reached)
    if turn is not None and reached:
        await end_open(tx, turn["id"], ApprovalState.STOPPED, scene.at, by=fact.author)
    await tx.execute(
        update(sessions).where(sessions.c.id == scene.session["id"]).values(version=sessions.c.version + 1)
    )
    return reached


def _fact(arrival: Arrival, decision: Decision) -> StopFact:
    level = arrival.level
    if level is None:
        whole = arrival.marker is Marker.CANCEL or arrival.source in (Source.NATIVE_STOP, Source.DELETE)
        level = Level.TASK if whole or decision.effect is Effect.CANCEL_TURN else Level.STEP
    return StopFact(level, UserId(arrival.author), arrival.ts)


async def _level(tx: AsyncConnection, scene: Scene, fact: StopFact) -> Level | None:
    """The level at which a stop counts; None for the double of one that has been heard."""
    last = await _last(tx, scene, fact.author)
    if last is not None and await _asked_between(tx, scene, last.ts, fact.ts):
        return fact.level
    level = escalate(last, fact)
    return None if isinstance(level, Duplicate) else level


async def _asked_between(tx: AsyncConnection, scene: Scene, after: str, before: str) -> bool:
    """Whether something was asked between two stops: the first does not reach it, so the second is a first one."""
    asked = select(messages.c.id).where(
        messages.c.session_id == scene.session["id"],
        messages.c.disposition.in_(["start", "steer", "queue"]),
        messages.c.slack_ts > after,
        messages.c.slack_ts < before,
    )
    return await one(tx, asked.limit(1)) is not None


async def is_double(tx: AsyncConnection, scene: Scene, arrival: Arrival) -> bool:
    """Whether the same person's stop has just been heard here: fifty clicks are one stop, and one is answered."""
    last = await _last(tx, scene, UserId(arrival.author))
    fact = StopFact(arrival.level or Level.STEP, UserId(arrival.author), arrival.ts)
    return last is not None and isinstance(escalate(last, fact), Duplicate)


async def _aim(tx: AsyncConnection, scene: Scene, arrival: Arrival) -> Aim | None:
    """What a click or a sign on a card means; None for stops that name no turn."""
    named = await _named(tx, arrival)
    if named is None:
        return None
    while named is not None:
        settle = await one(tx, select(settles.c.reason).where(settles.c.turn_id == named))
        successor = await one(tx, select(turns.c.id, turns.c.newest_ts).where(turns.c.predecessor_id == named))
        aim = aim_of_click(
            arrival.ts,
            settled=settle["reason"] if settle else None,
            successor_consumed=[successor["newest_ts"]] if successor else None,
        )
        if aim is not Aim.SUCCESSOR or successor is None:
            return aim
        named = successor["id"]
    return Aim.ENDED


async def _named(tx: AsyncConnection, arrival: Arrival) -> str | None:
    """The turn whose card a stop is about. A sign on a question names none: it is about the thread."""
    if arrival.source is Source.BUTTON:
        return arrival.turn_id
    if arrival.source is not Source.REACTION:
        return None
    card = select(cards.c.turn_id).where(cards.c.channel == arrival.channel, cards.c.message_ts == arrival.target_ts)
    found = await one(tx, card)
    return None if found is None else str(found["turn_id"])


async def _last(tx: AsyncConnection, scene: Scene, author: UserId) -> StopFact | None:
    """The last stop of `author` that counted, as it was said: its doubles have made its reach longer."""
    said = (
        select(func.min(messages.c.slack_ts))
        .where(
            messages.c.session_id == stops.c.session_id,
            messages.c.author == stops.c.author,
            messages.c.arrived_at == stops.c.arrived_at,
            messages.c.disposition == Disposition.CONTROL.value,
        )
        .scalar_subquery()
    )
    found = await one(
        tx,
        select(stops.c.level, stops.c.author, func.coalesce(said, stops.c.slack_ts).label("slack_ts"))
        .where(stops.c.session_id == scene.session["id"], stops.c.author == author)
        .order_by(stops.c.arrived_at.desc(), stops.c.slack_ts.desc())
        .limit(1),
    )
    return None if found is None else StopFact(Level(found["level"]), UserId(found["author"]), found["slack_ts"])


async def _reach_further(tx: AsyncConnection, scene: Scene, fact: StopFact) -> None:
    """The double of a stop adds nothing but time: what was asked before it and comes in late is stopped too."""
    newest = (
        select(stops.c.id)
        .where(stops.c.session_id == scene.session["id"], stops.c.author == fact.author)
        .order_by(stops.c.arrived_at.desc(), stops.c.slack_ts.desc())
        .limit(1)
        .scalar_subquery()
    )
    await tx.execute(update(stops).where(stops.c.id == newest, stops.c.slack_ts < fact.ts).values(slack_ts=fact.ts))


async def _waiting(tx: AsyncConnection, dialect: str, scene: Scene, fact: StopFact, *, reached: bool) -> None:
    """Steers older than the stop end stopped; queued words become notes or stop with the task. Signs say so.

    The words of the turn that the stop reaches end with it; a turn that it does not reach loses its older words.
    """
    own = scene.turn["id"] if scene.turn is not None and reached else None
    found = await rows(
        tx,
        select(
            messages.c.id,
            messages.c.disposition,
            messages.c.source,
            messages.c.slack_ts,
            messages.c.target_ts,
            messages.c.turn_id,
        ).where(messages.c.session_id == scene.session["id"], messages.c.state == "waiting"),
    )
    for word in found:
        if own is not None and word["turn_id"] == own:
            continue
        fate = fate_of(_kind(word), word["slack_ts"], fact)
        if fate is Fate.STAYS:
            continue
        becomes, name = BECOMES[fate]
        await tx.execute(update(messages).where(messages.c.id == word["id"]).values(becomes))
        if word["source"] in SAID:
            stands_at = word["target_ts"] or word["slack_ts"]
            await add_sign(tx, dialect, scene, f"{fate.value}:{word['id']}", stands_at, name)


def _kind(word: Row) -> Waiting:
    if word["source"].startswith("helper_"):
        return Waiting.HELPER_REPORT
    return Waiting(word["disposition"])


async def _keep_the_rest(tx: AsyncConnection, ids: Ids, dialect: str, scene: Scene, arrival: Arrival) -> None:
    """What else was said with a stop word is a note for the next turn. Before the first one the thread is read."""
    if not arrival.rest.strip() or scene.session["next_turn"] == 1:
        return
    await tx.execute(
        insert_ignore(messages, dialect).values(
            id=ids("m"),
            session_id=scene.session["id"],
            dedupe_key=f"{arrival.dedupe_key}:rest",
            source=arrival.source.value,
            marker="none",
            who=scene.who.value,
            author=arrival.author,
            text=arrival.rest,
            slack_ts=arrival.ts,
            disposition="note",
            policy_row="rest_of_a_stop",
            state="waiting",
            arrived_at=scene.at,
        )
    )


async def close_place(
    tx: AsyncConnection, ids: Ids, closed: Closed, *, channel: str, session: str | None = None
) -> list[SessionId]:
    """A stop of the task for every turn of a channel, or of one session in it, that takes no more messages.

    The sessions to ring for. A turn that such a stop has reached already gets no second one.
    """
    told = stops.alias("told")
    here = sessions.c.channel == channel if session is None else sessions.c.id == session
    running = await rows(
        tx,
        select(turns.c.id, turns.c.session_id)
        .join(sessions, sessions.c.id == turns.c.session_id)
        .order_by(sessions.c.id)
        .with_for_update()
        .where(
            here,
            turns.c.state != "settled",
            ~exists().where(told.c.turn_id == turns.c.id, told.c.source.in_([one.value for one in Closed])),
        ),
    )
    for turn in running:
        await tx.execute(
            insert(stops).values(
                id=ids("x"),
                session_id=turn["session_id"],
                turn_id=turn["id"],
                level="task",
                author="",
                source=closed.value,
                slack_ts="0",
                arrived_at=now(),
            )
        )
    return [SessionId(turn["session_id"]) for turn in running]
