"""What each due row becomes: a call to Slack, and what is written when its answer is there.

`prepare` runs inside the writer's transaction: it marks the row `sending`, or finds that nothing has to be said. The
returned `Delivery` makes the call outside of it, and its `after` says what to write. The two tables at the end say
which method each row needs, so that the writer can ask for a token before it prepares anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from sqlalchemy import exists, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.slack.blocks import card_message
from bot.slack.items import Items
from bot.slack.message import SlackMessage
from bot.slack.requests import KINDS
from bot.slack.send import SHARE, UPLOAD, Mark, Sender, Work
from bot.slack.verdict import NOT_YET, Meaning, Verdict, backoff
from core.card import CardFacts, view
from core.control import Closed
from core.limits import Limits
from storage.card_facts import card_facts
from storage.database import Database
from storage.ledger.common import one
from storage.outbox import (
    FINAL_AFTER_UNCLEAR_S,
    LOOKUPS,
    DueCard,
    Item,
    card_again,
    card_lost,
    card_released,
    card_sending,
    card_sent,
    card_unclear,
)
from storage.tables import stops, turns

log = structlog.get_logger(__name__)

IN_THREAD = ("answer", "notice")
STRIKES = 3
UNCLEAR = "unclear: "
"""How the error of a progress update begins that Slack may still carry out: the final one is then sent twice."""
REFUSED = "refused: "
"""How the error of a card begins that Slack did not take in the form that it had."""
SHORTEST_CARD = 300
UNTIL_SETTLED_S = 30.0
"""How long a card in an archived channel is left alone; its turn settles sooner, and the card goes with it."""

CLOSED: Mapping[Meaning, Closed] = {
    Meaning.ARCHIVED: Closed.ARCHIVED,
    Meaning.UNREACHABLE: Closed.CHANNEL,
    Meaning.THREAD_GONE: Closed.THREAD,
}
"""What an answer of Slack to a post in a thread says about the place."""

Then = Callable[[Verdict], Coroutine[Any, Any, None]]
Tell = Callable[[Closed, str, str | None], Awaitable[None]]
"""Told that a channel, or the thread of one session in it, takes no more messages."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call that is going out. `key` is the message that it is about; `after` gives what to write."""

    key: str
    method: str
    call: Callable[[], Awaitable[Verdict]]
    after: Callable[[Verdict], Work]
    then: Then | None = None


class Deliveries:
    """Prepares calls for cards and outbox rows. `closed` is told of places that take no more messages."""

    def __init__(
        self,
        db: Database,
        sender: Sender,
        items: Items,
        limits: Callable[[str], Limits],
        closed: Tell,
        workspace_url: str = "",
    ) -> None:
        self._db = db
        self._sender = sender
        self._items = items
        self._limits = limits
        self._closed = closed
        self._workspace_url = workspace_url

    async def prepare(self, tx: AsyncConnection, due: DueCard | Item) -> Delivery | None:
        """The call for one due row; None when there is nothing to say after all."""
        if isinstance(due, DueCard):
            return await self._card(tx, due)
        made = await self._items.prepare(tx, due)
        if made is None:
            return None
        call, after = made
        return Delivery(key_of(due), method_of(due), call, after, self._following(due))

    def _following(self, item: Item) -> Then | None:
        """What follows the call of an outbox row: a place that is closed, and the thread's native indicator."""
        if item.kind not in (*IN_THREAD, *KINDS):
            return None

        async def then(verdict: Verdict) -> None:
            if item.kind != "rewrite":
                await self._closing(item)(verdict)
            if item.kind in KINDS and verdict.good:
                await self._session_status(item)

        return then

    # -- cards

    async def _card(self, tx: AsyncConnection, card: DueCard) -> Delivery | None:
        mark = Mark(card.turn, f"card{card.reposts or ''}")
        if card.sending == "post":
            await card_unclear(tx, card.turn, "looking it up", lookups=card.lookups + 1)
            return Delivery(
                key_of(card),
                method_of(card),
                lambda: self._sender.find(card.channel, card.thread_ts, mark),
                lambda verdict: lambda tx: _looked_up(tx, card, verdict),
            )
        facts = await card_facts(tx, card.turn, max_steps=self._limits(card.channel).max_steps)
        if facts is None:
            return None
        message = _as_taken(card_message(view(replace(facts, request_link=self._link(card, facts)))), card)
        shown = _hash(message)
        if card.message_ts is None and card.settled and facts.answer_posted:
            return self._nothing_to_show(card, lambda tx: card_released(tx, card.turn, None))
        if card.message_ts is not None and shown == card.sent_hash:
            ts = card.message_ts
            return self._nothing_to_show(
                card, lambda tx: card_sent(tx, card, message_ts=ts, shown=shown, release=card.settled)
            )
        return await self._show(tx, card, message, shown, mark)

    def _link(self, card: DueCard, facts: CardFacts) -> str | None:
        """The address of the post that asks for approval; None where Slack did not say where the workspace is."""
        if facts.request_ts is None or not self._workspace_url:
            return None
        post = f"{self._workspace_url.rstrip('/')}/archives/{card.channel}/p{facts.request_ts.replace('.', '')}"
        return f"{post}?thread_ts={card.thread_ts}&cid={card.channel}"

    def _nothing_to_show(self, card: DueCard, write: Work) -> Delivery:
        """No message goes out; only the native indicator must not go on working."""

        async def call() -> Verdict:
            if card.settled:
                await self._session_status(card)
            return Verdict(Meaning.OK)

        return Delivery(key_of(card), "agents.sessions.setStatus", call, lambda _: write)

    async def _show(
        self, tx: AsyncConnection, card: DueCard, message: SlackMessage, shown: str, mark: Mark
    ) -> Delivery:
        ts = card.message_ts
        if ts is None or card.settled:
            await card_sending(tx, card.turn, "post" if ts is None else "update")

        async def call() -> Verdict:
            if ts is None:
                return await self._sender.post(card.channel, card.thread_ts, message, mark)
            return await self._sender.update(card.channel, ts, message)

        async def then(verdict: Verdict) -> None:
            await self._closing(card)(verdict)
            if (verdict.good and ts is None) or (card.settled and verdict.meaning not in NOT_YET):
                await self._session_status(card)

        return Delivery(
            key_of(card),
            method_of(card),
            call,
            lambda verdict: lambda tx: _shown(tx, card, verdict, shown),
            then,
        )

    def _closing(self, due: DueCard | Item) -> Then:
        async def then(verdict: Verdict) -> None:
            closed = CLOSED.get(verdict.meaning)
            if closed is not None:
                log.warning("place_closed", channel=due.channel, why=verdict.error)
                await self._closed(closed, due.channel, due.session if closed is Closed.THREAD else None)

        return then

    async def _session_status(self, due: DueCard | Item) -> None:
        await self._items.status(due.channel, due.thread_ts or "", lambda: self._status(due.session or ""))

    async def _status(self, session: str) -> str:
        """The native indicator: working while a turn of the thread runs and nobody stopped it, else not."""
        stopped = exists().where(
            stops.c.session_id == turns.c.session_id,
            or_(stops.c.slack_ts > turns.c.newest_ts, stops.c.turn_id == turns.c.id),
        )
        async with self._db.reading() as tx:
            running = await one(
                tx,
                select(turns.c.state).where(turns.c.session_id == session, turns.c.state != "settled", ~stopped),
            )
        if running is None:
            return "active"
        return "suspended" if running["state"] == "suspended" else "processing"


async def _shown(tx: AsyncConnection, card: DueCard, verdict: Verdict, shown: str) -> None:
    """Write what became of a card's post or update."""
    match verdict.meaning:
        case Meaning.OK | Meaning.FINE:
            data = verdict.data or {}
            ts = card.message_ts or str(data.get("ts", ""))
            twice = card.settled and (card.error or "").startswith(UNCLEAR)
            await card_sent(
                tx, card, message_ts=ts, shown=None if twice else shown, release=card.settled and not twice
            )
            if twice:
                await card_again(tx, card.turn, FINAL_AFTER_UNCLEAR_S, "an unclear update came before the final one")
        case Meaning.LATER:
            await card_again(tx, card.turn, verdict.wait_s, verdict.error)
        case Meaning.UNCLEAR if card.message_ts is None or card.settled:
            await card_unclear(tx, card.turn, verdict.error, lookups=card.lookups)
        case Meaning.UNCLEAR:
            await card_again(tx, card.turn, backoff(card.tries), f"{UNCLEAR}{verdict.error}")
        case Meaning.AGAIN | Meaning.DEAD:
            await card_again(tx, card.turn, backoff(card.tries), verdict.error)
        case Meaning.GONE:
            await card_lost(tx, card, verdict.error)
        case Meaning.ARCHIVED | Meaning.UNREACHABLE | Meaning.THREAD_GONE if not card.settled:
            wait_s = UNTIL_SETTLED_S if verdict.meaning is Meaning.ARCHIVED else backoff(1)
            await card_again(tx, card.turn, wait_s, verdict.error)
        case Meaning.ARCHIVED | Meaning.UNREACHABLE | Meaning.THREAD_GONE:
            await card_released(tx, card.turn, verdict.error)
        case _ if card.settled and card.tries + 1 >= STRIKES:
            await card_released(tx, card.turn, verdict.error)
        case _:
            if card.message_ts is not None and not card.settled:
                await card_sending(tx, card.turn, "update")
            await card_again(tx, card.turn, backoff(card.tries), f"{REFUSED}{verdict.error}")


def _as_taken(message: SlackMessage, card: DueCard) -> SlackMessage:
    """The card in the form that Slack may take after it has refused others: its text, then its first sentence.

    Tries whose outcome is not known, or that a crash broke off, say nothing about the form.
    """
    if not (card.error or "").startswith(REFUSED):
        return message
    if card.tries == 1:
        return SlackMessage(message.text, [])
    return SlackMessage(message.text.split("\n")[0][:SHORTEST_CARD], [])


async def _looked_up(tx: AsyncConnection, card: DueCard, verdict: Verdict) -> None:
    """Write what looking for an unclear post of a card has found.

    Where it can't be looked up, a settled card is released: it must not wait for ever, nor be posted twice.
    """
    if not verdict.good:
        if card.settled and verdict.meaning not in NOT_YET:
            await card_released(tx, card.turn, f"unclear, and can't be looked up: {verdict.error}")
        else:
            await card_unclear(tx, card.turn, verdict.error, lookups=card.lookups)
        return
    ts = (verdict.data or {}).get("ts")
    if ts is not None:
        await card_sent(tx, card, message_ts=str(ts), shown=None, release=False)
    elif card.lookups + 1 >= LOOKUPS:
        await card_again(tx, card.turn, 0.0, "not found: it was never posted")


def _hash(message: SlackMessage) -> str:
    return hashlib.sha256(json.dumps([message.text, message.blocks]).encode()).hexdigest()


# -- which call a row needs

ITEM_METHODS = {
    "answer": "chat.postMessage",
    "notice": "chat.postMessage",
    "direct": "chat.postMessage",
    "ephemeral": "chat.postEphemeral",
    "reaction": "reactions.add",
    "status": "agents.sessions.setStatus",
    "request": "chat.postMessage",
    "rewrite": "chat.update",
    "picture": UPLOAD,
}


LOOKED_UP_BY = {
    "answer": "conversations.replies",
    "notice": "conversations.replies",
    "direct": "conversations.history",
    "request": "conversations.replies",
}


def key_of(due: DueCard | Item) -> str:
    """The message that a row is about: one call at a time for it."""
    if isinstance(due, DueCard):
        return f"card:{due.turn}"
    return f"request:{due.body.get('approval')}" if due.kind in KINDS else f"item:{due.id}"


def method_of(due: DueCard | Item) -> str:
    """The Web API method that a row needs next."""
    if isinstance(due, DueCard):
        if due.sending == "post":
            return "conversations.replies"
        return "chat.postMessage" if due.message_ts is None else "chat.update"
    if due.state == "sending" and due.kind in LOOKED_UP_BY:
        return LOOKED_UP_BY[due.kind]
    if due.kind == "picture" and "file" in due.body:
        return "conversations.replies" if due.state == "sending" else SHARE
    return ITEM_METHODS[due.kind]
