"""Requests for approval as calls: the post that asks, and the same post rewritten when its buttons are dead.

Both are drawn from the rows when they are sent. A request that ended before it was posted is not posted at all. A
rewriting may be sent twice: it says the same. Slack that takes no blocks gets the text: the words still decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.slack.message import SlackMessage
from bot.slack.request_message import request_message
from bot.slack.send import MOST_TRIES, Made, Mark, Sender
from bot.slack.verdict import NOT_YET, Meaning, Verdict, backoff
from core.approvals import ApprovalState
from core.messages import SessionId
from storage.ledger.common import lock, rows
from storage.ledger.requests import OPEN_OF_TURN, end_requests
from storage.outbox import LOOKUPS, Item, item_again, item_ended, item_sending, item_unclear
from storage.request_facts import RequestPost, request_post
from storage.tables import approvals, sessions

log = structlog.get_logger(__name__)


KINDS = ("request", "rewrite")
POST_FIRST_S = 0.5


class Requests:
    """Prepares calls for requests. `approvers` names who may approve in a channel: user ids and group ids."""

    def __init__(self, sender: Sender, approvers: Callable[[str], Collection[str]]) -> None:
        self._sender = sender
        self._approvers = approvers

    async def prepare(self, tx: AsyncConnection, item: Item) -> Made | None:
        """The call for one row; None when nothing is to be said, or not yet."""
        post = await request_post(tx, int(item.body["approval"]))
        if post is None:
            await item_ended(tx, item.id, "dropped", error="there is no such request")
            return None
        if item.kind == "rewrite":
            return await self._rewrite(tx, item, post)
        return await self._ask(tx, item, post)

    def _drawn(self, item: Item, post: RequestPost) -> SlackMessage:
        message = request_message(post.facts, self._approvers(item.channel))
        return SlackMessage(message.text, []) if item.body.get("plain") else message

    async def _ask(self, tx: AsyncConnection, item: Item, post: RequestPost) -> Made | None:
        mark = Mark(item.turn or "", f"request{item.body['approval']}")
        if item.state == "sending":
            await item_unclear(tx, item.id, "looking it up", lookups=item.lookups + 1)
            return (
                lambda: self._sender.find(item.channel, item.thread_ts or "", mark),
                lambda verdict: lambda tx: _looked_up(tx, item, verdict),
            )
        if not post.facts.open:
            await item_ended(tx, item.id, "dropped", error="it ended before it was posted")
            return None
        message = self._drawn(item, post)
        await item_sending(tx, item.id)
        return (
            lambda: self._sender.post(item.channel, item.thread_ts, message, mark),
            lambda verdict: lambda tx: _posted(tx, item, verdict),
        )

    async def _rewrite(self, tx: AsyncConnection, item: Item, post: RequestPost) -> Made | None:
        if post.on_the_way:
            await item_again(tx, item.id, POST_FIRST_S, "its post is on the way")
            return None
        ts = post.message_ts
        if ts is None:
            await item_ended(tx, item.id, "dropped", error="it was never posted")
            return None
        message = self._drawn(item, post)
        await item_sending(tx, item.id)
        return (
            lambda: self._sender.update(item.channel, ts, message),
            lambda verdict: lambda tx: _rewritten(tx, item, verdict),
        )


async def _posted(tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
    match verdict.meaning:
        case Meaning.OK | Meaning.FINE:
            await _is_there(tx, item, str((verdict.data or {}).get("ts", "")))
        case Meaning.UNCLEAR:
            await item_unclear(tx, item.id, verdict.error, lookups=0)
        case Meaning.PAYLOAD if not item.body.get("plain"):
            log.warning("slack_refused_blocks", turn=item.turn, request=item.body["approval"], error=verdict.error)
            await item_again(tx, item.id, 0.0, verdict.error, body={**item.body, "plain": True})
        case _:
            await _again_or_failed(tx, item, verdict)


async def _looked_up(tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
    ts = (verdict.data or {}).get("ts")
    if verdict.meaning in NOT_YET:
        await item_unclear(tx, item.id, verdict.error, lookups=item.lookups)
    elif not verdict.good:
        await item_ended(tx, item.id, "failed", error=f"unclear, and can't be looked up: {verdict.error}")
    elif ts is not None:
        await _is_there(tx, item, str(ts))
    elif item.lookups + 1 >= LOOKUPS:
        await item_again(tx, item.id, 0.0, "not found: it was never posted")


async def _is_there(tx: AsyncConnection, item: Item, ts: str) -> None:
    """The request has its post: the card links to it, and its end rewrites it.

    The session comes first, as in a decision: people press the button of a post that has only just appeared.
    """
    await tx.execute(update(sessions).where(sessions.c.id == item.session).values(version=sessions.c.version + 1))
    await item_ended(tx, item.id, "sent", message_ts=ts)
    await tx.execute(update(approvals).where(approvals.c.number == int(item.body["approval"])).values(message_ts=ts))


async def _rewritten(tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
    match verdict.meaning:
        case Meaning.OK | Meaning.FINE:
            await item_ended(tx, item.id, "sent")
        case Meaning.UNCLEAR if item.tries < MOST_TRIES:
            await item_again(tx, item.id, backoff(item.tries), verdict.error)
        case Meaning.PAYLOAD if not item.body.get("plain"):
            await item_again(tx, item.id, 0.0, verdict.error, body={**item.body, "plain": True})
        case Meaning.GONE:
            await item_ended(tx, item.id, "dropped", error=verdict.error)
        case _:
            await _again_or_failed(tx, item, verdict)


async def _again_or_failed(tx: AsyncConnection, item: Item, verdict: Verdict) -> None:
    match verdict.meaning:
        case Meaning.LATER | Meaning.DEAD:
            await item_again(tx, item.id, max(verdict.wait_s, backoff(item.tries)), verdict.error)
        case Meaning.AGAIN if item.tries < MOST_TRIES:
            await item_again(tx, item.id, backoff(item.tries), verdict.error)
        case _:
            log.error("slack_refused_request", turn=item.turn, request=item.body["approval"], error=verdict.error)
            await item_ended(tx, item.id, "failed", error=verdict.error)
            if item.kind == "request":
                await _nobody_was_asked(tx, item)


async def _nobody_was_asked(tx: AsyncConnection, item: Item) -> None:
    """A request that Slack does not take can't be decided: the model is told so, instead of waiting."""
    session = await lock(tx, SessionId(item.session or ""))
    if session is None:
        return
    asked = [row for row in await rows(tx, OPEN_OF_TURN, turn=item.turn) if row["number"] == item.body["approval"]]
    why = "Slack did not take the request, so nobody could be asked"
    await end_requests(tx, asked, ApprovalState.WITHDRAWN, session["now"], why=why)
