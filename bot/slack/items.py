"""Outbox rows as calls: answers in parts, notices, ephemerals, signs, direct messages; pictures in `pictures`.

An answer is never lost: what Slack refuses as blocks is sent as plain text, what it refuses for good goes on the
card and to who asked by direct message. Ephemerals are sent at most once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import structlog
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.slack.blocks import RunningTurn, answer_messages, ephemeral, plain_messages, running_list, summary_messages
from bot.slack.escape import unescape
from bot.slack.message import SlackMessage
from bot.slack.pictures import Pictures
from bot.slack.requests import KINDS, Requests
from bot.slack.send import MOST_TRIES, Made, Mark, Sender
from bot.slack.verdict import NOT_YET, Meaning, Verdict, backoff
from core.card import Button, view
from core.messages import ChannelId, TurnId, UserId
from storage.card_facts import card_facts
from storage.database import now
from storage.ledger.common import dump, one, rows
from storage.outbox import LOOKUPS, Item, item_again, item_ended, item_parts, item_sending, item_unclear
from storage.tables import cards, messages, outbox, sessions, turns

log = structlog.get_logger(__name__)


POSTS = ("answer", "notice", "direct")
CAN_BE_OFF = ("reaction", "status", "picture")
STATUS_TRIES = 4
LONGEST_STATUS_WAIT_S = 30.0


class Items:
    """Prepares calls for outbox rows."""

    def __init__(
        self,
        sender: Sender,
        requests: Requests,
        pictures: Pictures,
        *,
        known_hosts: Collection[str],
        native_stop: bool,
    ) -> None:
        self._sender = sender
        self._requests = requests
        self._pictures = pictures
        self._known_hosts = known_hosts
        self._off: set[str] = set() if native_stop else {"status"}
        self._status_of: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def status(self, channel: str, thread_ts: str, current: Callable[[], Awaitable[str]]) -> None:
        """Set the thread's agent session to `current()`, where the workspace has it; never an error.

        One write at a time for a thread, each of what is true at that moment: a late one can't undo a newer one.
        """
        if "status" in self._off:
            return
        async with self._status_of.setdefault((channel, thread_ts), asyncio.Lock()):
            for tries in range(STATUS_TRIES):
                verdict = await self._sender.status(channel, thread_ts, await current())
                self._latch("status", verdict)
                if verdict.meaning not in (Meaning.LATER, Meaning.AGAIN, Meaning.UNCLEAR):
                    return
                await asyncio.sleep(min(max(verdict.wait_s, backoff(tries)), LONGEST_STATUS_WAIT_S))

    async def prepare(self, tx: AsyncConnection, item: Item) -> Made | None:
        """The call for one row; None when nothing is to be said."""
        if item.kind in self._off:
            await item_ended(tx, item.id, "dropped", error="this workspace does not have it")
            return None
        if item.kind in POSTS:
            return await self._post(tx, item)
        if item.kind in KINDS:
            return await self._requests.prepare(tx, item)
        if item.kind == "picture":
            return await self._pictures.prepare(tx, item, self._latch)
        if item.kind == "ephemeral" and item.state == "sending":
            await item_ended(tx, item.id, "failed", error="unclear: sent at most once")
            return None
        await item_sending(tx, item.id)
        call = self._sign(item) if item.kind == "reaction" else self._ephemeral(item)
        return call, lambda verdict: lambda tx: self._small_ended(tx, item, verdict)

    # -- signs and ephemerals

    def _sign(self, item: Item) -> Callable[[], Awaitable[Verdict]]:
        return lambda: self._sender.react(item.channel, item.target_ts or "", str(item.body["name"]))

    def _ephemeral(self, item: Item) -> Callable[[], Awaitable[Verdict]]:
        message = drawn(item)
        return lambda: self._sender.ephemeral(item.channel, item.thread_ts, item.person or "", message)

    async def _small_ended(self, tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
        self._latch(item.kind, verdict)
        match verdict.meaning:
            case Meaning.OK | Meaning.FINE:
                await item_ended(tx, item.id, "sent")
            case Meaning.LATER | Meaning.AGAIN | Meaning.DEAD if item.tries < MOST_TRIES:
                await item_again(tx, item.id, max(verdict.wait_s, backoff(item.tries)), verdict.error)
            case Meaning.UNCLEAR if item.kind == "reaction" and item.tries < MOST_TRIES:
                await item_again(tx, item.id, backoff(item.tries), verdict.error)
            case Meaning.ABSENT | Meaning.UNREACHABLE | Meaning.THREAD_GONE if (
                item.kind == "ephemeral" and item.person
            ):
                await item_ended(tx, item.id, "failed", error=verdict.error)
                await tx.execute(insert(outbox).values(_direct(item, item.person, str(item.body["text"]))))
            case _:
                await item_ended(tx, item.id, "failed", error=verdict.error)

    def _latch(self, kind: str, verdict: Verdict) -> None:
        if verdict.meaning is Meaning.FEATURE and kind in CAN_BE_OFF and kind not in self._off:
            self._off.add(kind)
            log.warning(
                "slack_feature_off",
                feature=kind,
                error=verdict.error,
                hint="reinstall the app from manifest.yml to grant the scope; everything else goes on",
            )

    # -- posts

    async def _post(self, tx: AsyncConnection, item: Item) -> Made:
        mark = Mark(item.turn or f"item{item.id}", f"{item.kind}{item.part}")
        if item.state == "sending":
            await item_unclear(tx, item.id, "looking it up", lookups=item.lookups + 1)
            return lambda: self._find(item, mark), lambda verdict: lambda tx: _looked_up(tx, item, verdict)
        message, body = await self._message(tx, item)
        await item_sending(tx, item.id, body)
        person = item.person or ""

        async def call() -> Verdict:
            if item.kind == "direct":
                return await self._sender.direct(person, message, mark)
            return await self._sender.post(item.channel, item.thread_ts, message, mark)

        return call, lambda verdict: lambda tx: self._posted(tx, item, verdict)

    async def _find(self, item: Item, mark: Mark) -> Verdict:
        if item.kind == "direct":
            return await self._sender.find_direct(item.person or "", mark)
        return await self._sender.find(item.channel, item.thread_ts or "", mark)

    async def _message(self, tx: AsyncConnection, item: Item) -> tuple[SlackMessage, Mapping[str, Any] | None]:
        """The message of this row, and its body if that is new. The first part of an answer writes the others."""
        body = item.body
        if "blocks" in body:
            return SlackMessage(str(body["text"]), list(body["blocks"])), None
        if "markdown" not in body:
            return ephemeral(str(body["text"])), None
        made = await self._parts(tx, item)
        kept = {key: body[key] for key in ("asked_by", "plain") if key in body}
        bodies = [{"text": part.text, "blocks": part.blocks, "markdown": _words(part), **kept} for part in made]
        await item_parts(tx, item, bodies[1:], plain=bool(body.get("plain")))
        return made[0], bodies[0]

    async def _parts(self, tx: AsyncConnection, item: Item) -> Sequence[SlackMessage]:
        markdown = str(item.body["markdown"])
        asked_by = UserId(str(item.body.get("asked_by", "")))
        facts = await card_facts(tx, TurnId(item.turn or ""), max_steps=0)
        footer = view(facts).footer if facts is not None else ""
        allowed = await _people(tx, item)
        if item.body.get("plain"):
            return plain_messages(
                markdown,
                asked_by=asked_by,
                footer=footer,
                allowed_mentions=allowed,
                known_hosts=self._known_hosts,
            )
        if facts is not None and facts.reason == "empty":
            return summary_messages(
                markdown,
                asked_by=asked_by,
                turn_id=TurnId(item.turn or ""),
                footer=footer,
                known_hosts=self._known_hosts,
            )
        return answer_messages(
            markdown,
            asked_by=asked_by,
            footer=footer,
            allowed_mentions=allowed,
            known_hosts=self._known_hosts,
            feedback_turn=item.turn,
        )

    async def _posted(self, tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
        match verdict.meaning:
            case Meaning.OK | Meaning.FINE:
                ts = str((verdict.data or {}).get("ts", ""))
                await item_ended(tx, item.id, "sent", message_ts=ts)
            case Meaning.LATER | Meaning.DEAD:
                await item_again(tx, item.id, max(verdict.wait_s, backoff(item.tries)), verdict.error)
            case Meaning.AGAIN if item.tries < MOST_TRIES:
                await item_again(tx, item.id, backoff(item.tries), verdict.error)
            case Meaning.UNCLEAR:
                await item_unclear(tx, item.id, verdict.error, lookups=0)
            case Meaning.PAYLOAD if not item.body.get("plain") and item.kind == "answer":
                await self._plainly(tx, item, verdict)
            case _:
                await item_ended(tx, item.id, "failed", error=verdict.error)
                if item.kind == "answer":
                    await _answer_elsewhere(tx, item, verdict)

    async def _plainly(self, tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
        """Slack refuses the blocks: this part once more as plain text, its words unchanged."""
        log.warning("slack_refused_blocks", turn=item.turn, part=item.part, error=verdict.error)
        body = {"markdown": await _words_of(tx, item), "plain": True, "asked_by": item.body.get("asked_by", "")}
        await item_again(tx, item.id, 0.0, verdict.error, body=body)


async def _looked_up(tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
    """What looking for a post has found. An answer that can't be looked up is told on ways that can't double it."""
    if verdict.meaning in NOT_YET:
        await item_unclear(tx, item.id, verdict.error, lookups=item.lookups)
        return
    if not verdict.good:
        await item_ended(tx, item.id, "failed", error=f"unclear, and can't be looked up: {verdict.error}")
        if item.kind == "answer":
            await _answer_elsewhere(tx, item, verdict)
        return
    ts = (verdict.data or {}).get("ts")
    if ts is not None:
        await item_ended(tx, item.id, "sent", message_ts=str(ts))
    elif item.lookups + 1 >= LOOKUPS:
        await item_again(tx, item.id, 0.0, "not found: it was never posted")


def _words(message: SlackMessage) -> str:
    """The words of one part as Markdown, for when its blocks are refused."""
    said = [block["text"] for block in message.blocks if block.get("type") == "markdown"]
    return unescape("\n\n".join(said) or message.text)


async def _words_of(tx: AsyncConnection, item: Item) -> str:
    """The words of a row as they stand now: its first preparation may have split it."""
    stored = await one(tx, select(outbox.c.body).where(outbox.c.id == item.id))
    body = json.loads(stored["body"]) if stored is not None else dict(item.body)
    return str(body.get("markdown") or body.get("text", ""))


AUTHORS = select(messages.c.author).distinct().where(messages.c.session_id == bindparam("session"))


async def _people(tx: AsyncConnection, item: Item) -> Collection[str]:
    """Who may be mentioned: only people who wrote in this thread."""
    found = await rows(tx, AUTHORS, session=item.session or "")
    return frozenset(row["author"] for row in found)


async def _answer_elsewhere(tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
    """An answer that Slack refuses for good: on the card, and to who asked."""
    turn = await one(tx, select(turns.c.asked_by).where(turns.c.id == (item.turn or "")))
    words = await _words_of(tx, item)
    log.error("slack_refused_answer", turn=item.turn, part=item.part, error=verdict.error)
    await tx.execute(update(cards).where(cards.c.turn_id == item.turn).values(fallback=words))
    await tx.execute(update(sessions).where(sessions.c.id == item.session).values(version=sessions.c.version + 1))
    if turn is not None:
        told = f"Slack refused my answer in the thread ({verdict.error}), so here it is:\n\n{words}"
        await tx.execute(insert(outbox).values(_direct(item, turn["asked_by"], told)))


def _direct(item: Item, person: str, text: str) -> dict[str, Any]:
    return {
        "session_id": item.session,
        "turn_id": item.turn,
        "kind": "direct",
        "priority": item.priority,
        "dedupe_key": f"direct:{item.id}",
        "channel": item.channel,
        "person": person,
        "body": dump({"markdown": text, "plain": True, "asked_by": person}),
        "state": "waiting",
        "created_at": now(),
    }


def drawn(item: Item) -> SlackMessage:
    """An ephemeral as a message, with its buttons or the list of running turns."""
    running = item.body.get("running")
    if running:
        return running_list(
            [
                RunningTurn(
                    TurnId(one_["turn"]), UserId(one_["asked_by"]), one_["text"], ChannelId(item.channel), 0.0
                )
                for one_ in running
            ]
        )
    buttons = [(Button(action), str(value)) for action, value in item.body.get("buttons", ())]
    return ephemeral(str(item.body["text"]), buttons)
