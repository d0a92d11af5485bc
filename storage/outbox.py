"""The outbox and the cards as the writer needs them: what is due, what is being sent, what became of it.

A row is `sending`, committed, before its call goes out. A post whose outcome is not known stays `sending`: it is
looked up in Slack by its metadata, not sooner than `LOOKUP_AFTER_S` after and twice, before it is posted again.
Cards are desired state: the session's version says that there is something newer than what was sent, and what is
sent is drawn from the rows at that moment, so the newest wins and progress can never overtake a settle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, case, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import Closed
from core.messages import TurnId
from storage.database import now
from storage.ledger.common import dump, one, rows
from storage.ledger.outgoing import Priority
from storage.partial import is_open, unsent
from storage.tables import cards, outbox, sessions, settles, stops, turns

LOOKUP_AFTER_S = 5.0
LOOKUPS = 2
FINAL_AFTER_UNCLEAR_S = 30.0
PROGRESS_EVERY_S = 2.0
HEARTBEAT_S = 10.0
"""A card that has nothing new changes so often. Ten of them share 45 edits a minute, so each waits 14 s at most."""
ANSWER_FIRST_S = 5.0
MOST = 50
"""So many rows of a kind are looked at in one round."""


@dataclass(frozen=True, slots=True)
class Item:
    """One outbox row that is due. `state` is waiting, or sending when it has to be looked up."""

    id: int
    kind: str
    priority: int
    state: str
    part: int
    turn: TurnId | None
    channel: str
    thread_ts: str | None
    target_ts: str | None
    person: str | None
    body: Mapping[str, Any]
    tries: int
    lookups: int
    session: str | None


@dataclass(frozen=True, slots=True)
class DueCard:
    """One card that may have something newer to show."""

    turn: TurnId
    session: str
    channel: str
    thread_ts: str
    message_ts: str | None
    settled: bool
    stopping: bool
    version: int
    sending: str | None
    lookups: int
    tries: int
    reposts: int
    sent_at: float
    sent_hash: str | None
    error: str | None = None

    @property
    def priority(self) -> Priority:
        if self.stopping:
            return Priority.STOP
        if self.settled:
            return Priority.FINAL_CARD
        return Priority.NEW_CARD if self.message_ts is None else Priority.PROGRESS


def _due_items() -> Any:
    before = outbox.alias("before")
    in_order = ~exists().where(
        before.c.turn_id == outbox.c.turn_id,
        before.c.kind == outbox.c.kind,
        before.c.part < outbox.c.part,
        unsent(before),
    )
    return (
        select(outbox)
        .where(
            unsent(outbox),
            or_(outbox.c.part == 0, in_order),
            or_(
                and_(outbox.c.state == "waiting", outbox.c.not_before <= now()),
                and_(outbox.c.state == "sending", outbox.c.sending_at <= now() - LOOKUP_AFTER_S),
            ),
        )
        .order_by(outbox.c.priority, outbox.c.id)
        .limit(MOST)
    )


def _due_cards() -> Any:
    settled = turns.c.state == "settled"
    stopping = and_(
        turns.c.state != "settled",
        exists().where(
            stops.c.session_id == turns.c.session_id,
            or_(stops.c.slack_ts > turns.c.newest_ts, stops.c.turn_id == turns.c.id),
            stops.c.arrived_at > cards.c.sent_at,
            stops.c.source.not_in([closed.value for closed in Closed]),
        ),
    )
    answered = or_(
        settles.c.reason.is_(None),
        settles.c.reason.not_in(["completed", "empty"]),
        settles.c.created_at <= now() - ANSWER_FIRST_S,
        exists().where(
            outbox.c.turn_id == turns.c.id,
            outbox.c.kind == "answer",
            outbox.c.part == 0,
            outbox.c.state.in_(["sent", "failed", "dropped"]),
        ),
    )
    newer = or_(
        and_(cards.c.message_ts.is_(None), ~_follows_a_card_that_shows_work()),
        settled,
        stopping,
        and_(
            cards.c.sent_at <= now() - PROGRESS_EVERY_S,
            or_(
                sessions.c.version > cards.c.sent_version,
                and_(turns.c.state != "suspended", cards.c.sent_at <= now() - HEARTBEAT_S),
            ),
        ),
    )
    return (
        select(
            cards,
            settled.label("settled"),
            stopping.label("stopping"),
            sessions.c.version,
            case((stopping, 0), (settled, 2), (cards.c.message_ts.is_(None), 3), else_=5).label("priority"),
        )
        .join(turns, turns.c.id == cards.c.turn_id)
        .join(sessions, sessions.c.id == cards.c.session_id)
        .outerjoin(settles, settles.c.turn_id == cards.c.turn_id)
        .where(
            is_open(cards),
            cards.c.not_before <= now(),
            or_(
                and_(cards.c.sending.is_(None), newer, answered),
                and_(cards.c.sending == "post", cards.c.sending_at <= now() - LOOKUP_AFTER_S),
                and_(cards.c.sending == "update", cards.c.sending_at <= now() - FINAL_AFTER_UNCLEAR_S),
            ),
        )
        .order_by("priority", cards.c.sent_at)
        .limit(MOST)
    )


def _follows_a_card_that_shows_work() -> Any:
    """Whether another card of the thread still shows a turn that has ended: two must not seem to run."""
    before, ended = cards.alias("before"), settles.alias("ended")
    return exists().where(
        before.c.session_id == cards.c.session_id,
        before.c.turn_id != cards.c.turn_id,
        is_open(before),
        or_(before.c.message_ts.is_not(None), before.c.sending.is_not(None)),
        ended.c.turn_id == before.c.turn_id,
        ended.c.reason.not_in(["dispatched", "awaiting"]),
    )


DUE_ITEMS, DUE_CARDS = _due_items(), _due_cards()


async def due_items(tx: AsyncConnection) -> list[Item]:
    """Outbox rows that may be sent or looked up now, the most urgent first."""
    return [
        Item(
            id=row["id"],
            kind=row["kind"],
            priority=row["priority"],
            state=row["state"],
            part=row["part"],
            turn=row["turn_id"],
            channel=row["channel"],
            thread_ts=row["thread_ts"],
            target_ts=row["target_ts"],
            person=row["person"],
            body=json.loads(row["body"]),
            tries=row["tries"],
            lookups=row["lookups"],
            session=row["session_id"],
        )
        for row in await rows(tx, DUE_ITEMS)
    ]


async def due_cards(tx: AsyncConnection) -> list[DueCard]:
    """Open cards that have something newer to show, or something unclear, the most urgent first."""
    return [
        DueCard(
            turn=TurnId(row["turn_id"]),
            session=row["session_id"],
            channel=row["channel"],
            thread_ts=row["thread_ts"],
            message_ts=row["message_ts"],
            settled=bool(row["settled"]),
            stopping=bool(row["stopping"]),
            version=row["version"],
            sending=row["sending"],
            lookups=row["lookups"],
            tries=row["tries"],
            reposts=row["reposts"],
            sent_at=row["sent_at"] or 0.0,
            sent_hash=row["sent_hash"],
            error=row["error"],
        )
        for row in await rows(tx, DUE_CARDS)
    ]


_ITEM, _CARD = outbox.c.id == bindparam("item"), cards.c.turn_id == bindparam("turn")

ITEM_SENDING = update(outbox).where(_ITEM).values(state="sending", sending_at=now(), tries=outbox.c.tries + 1)
ITEM_SENDING_AS = ITEM_SENDING.values(body=bindparam("said"))
ITEM_ENDED = (
    update(outbox)
    .where(_ITEM)
    .values(state=bindparam("end"), message_ts=bindparam("ts"), error=bindparam("why"), ended_at=now())
)
CARD_SENDING = update(cards).where(_CARD).values(sending=bindparam("what"), sending_at=now(), tries=cards.c.tries + 1)
CARD_SENT = (
    update(cards)
    .where(_CARD)
    .values(
        sending=None,
        message_ts=bindparam("ts"),
        sent_version=bindparam("shown_version"),
        sent_at=now(),
        sent_hash=bindparam("shown"),
        tries=0,
        lookups=0,
        error=None,
    )
)
CARD_SENT_FINALLY = CARD_SENT.values(state="released", released_at=now())


async def item_sending(tx: AsyncConnection, item: int, body: Mapping[str, Any] | None = None) -> None:
    """The call of this row goes out when this is committed, perhaps with another body."""
    if body is None:
        await tx.execute(ITEM_SENDING, {"item": item})
    else:
        await tx.execute(ITEM_SENDING_AS, {"item": item, "said": dump(dict(body))})


async def is_ours(tx: AsyncConnection, item: Item, *, tries: int) -> bool:
    """Whether a row is still being sent by the call that was its `tries`th; locked until the transaction ends."""
    found = await one(tx, select(outbox.c.state, outbox.c.tries).where(_ITEM).with_for_update(), item=item.id)
    return found is not None and (found["state"], found["tries"]) == ("sending", tries)


PART = 100
"""Parts are numbered 0, 100, 200 ...; a part that had to be split again as plain text goes on in between."""


async def item_parts(tx: AsyncConnection, item: Item, bodies: Sequence[Mapping[str, Any]], *, plain: bool) -> None:
    """Write the further parts of a post as rows of their own, to be sent after it in order."""
    for index, body in enumerate(bodies, start=1):
        number = item.part + (index if plain else index * PART)
        await tx.execute(
            insert(outbox).values(
                session_id=item.session,
                turn_id=item.turn,
                kind=item.kind,
                priority=item.priority,
                dedupe_key=f"{item.kind}:{item.id}.{number}",
                part=number,
                channel=item.channel,
                thread_ts=item.thread_ts,
                person=item.person,
                body=dump(dict(body)),
                state="waiting",
                created_at=now(),
            )
        )


async def item_ended(
    tx: AsyncConnection, item: int, state: str, *, message_ts: str | None = None, error: str | None = None
) -> None:
    """The row is `sent`, `failed` or `dropped`, for good."""
    await tx.execute(ITEM_ENDED, {"item": item, "end": state, "ts": message_ts, "why": error})


async def item_again(
    tx: AsyncConnection,
    item: int,
    wait_s: float,
    error: str,
    *,
    body: Mapping[str, Any] | None = None,
) -> None:
    """The call did not happen for sure: send it again after `wait_s`, perhaps with another body."""
    values: dict[str, Any] = {"state": "waiting", "not_before": now() + wait_s, "error": error, "lookups": 0}
    if body is not None:
        values["body"] = dump(dict(body))
    await tx.execute(update(outbox).where(outbox.c.id == item).values(**values))


async def item_unclear(tx: AsyncConnection, item: int, error: str, *, lookups: int) -> None:
    """Nobody knows whether the call happened: it stays `sending` and is looked up later."""
    await tx.execute(
        update(outbox)
        .where(outbox.c.id == item)
        .values(state="sending", sending_at=now(), error=error, lookups=lookups)
    )


async def card_sending(tx: AsyncConnection, turn: TurnId, what: str) -> None:
    """The card's post or update goes out when this is committed."""
    await tx.execute(CARD_SENDING, {"turn": turn, "what": what})


async def card_sent(
    tx: AsyncConnection,
    card: DueCard,
    *,
    message_ts: str,
    shown: str | None,
    release: bool,
) -> None:
    """The card shows what `shown` (a hash) stands for, of the version that was due."""
    await tx.execute(
        CARD_SENT_FINALLY if release else CARD_SENT,
        {"turn": card.turn, "ts": message_ts, "shown_version": card.version, "shown": shown},
    )


async def card_again(tx: AsyncConnection, turn: TurnId, wait_s: float, error: str) -> None:
    """The call did not happen for sure: send the newest again after `wait_s`."""
    await tx.execute(
        update(cards)
        .where(cards.c.turn_id == turn)
        .values(sending=None, not_before=now() + wait_s, error=error, lookups=0)
    )


async def card_unclear(tx: AsyncConnection, turn: TurnId, error: str, *, lookups: int) -> None:
    """Nobody knows whether the call happened."""
    await tx.execute(
        update(cards).where(cards.c.turn_id == turn).values(sending_at=now(), error=error, lookups=lookups)
    )


async def card_lost(tx: AsyncConnection, card: DueCard, error: str) -> None:
    """The message is gone. A running turn gets at most one new card; a settled one is released."""
    values: dict[str, Any] = {"sending": None, "error": error, "sent_hash": None}
    if card.settled or card.reposts >= 1:
        values |= {"state": "released", "released_at": now()}
    else:
        values |= {"message_ts": None, "reposts": card.reposts + 1}
    await tx.execute(update(cards).where(cards.c.turn_id == card.turn).values(**values))


async def card_released(tx: AsyncConnection, turn: TurnId, error: str | None) -> None:
    """The card is released without another word in Slack; `error` says why."""
    await tx.execute(
        update(cards)
        .where(cards.c.turn_id == turn)
        .values(state="released", released_at=now(), sending=None, error=error)
    )
