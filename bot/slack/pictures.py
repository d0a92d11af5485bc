"""Pictures of tools on their way into a thread: the bytes first, then the post.

    waiting, no file        the bytes go to Slack, where nobody sees them yet; its id of the file is committed
    waiting, with a file    the file is shared in the thread
    sending, no file        nothing can have been shared: the bytes go once more
    sending, with a file    it is there, or on its way, or never was: the thread is searched for the file

So whatever dies between the two loses nothing and shows nothing twice. A share carries no metadata of ours: the id of
the file is what it is recognised by. Slack shares in the background, seconds after it has said yes, and now and then
never; so also a good answer is looked up, and only a file that stays away is shared once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.slack.escape import Prose, clean, quiet
from bot.slack.message import SlackMessage, plain, quoted, sealed
from bot.slack.send import MOST_TRIES, Made, Sender
from bot.slack.split import SECTION_LIMIT, shortened
from bot.slack.verdict import NOT_YET, Meaning, Verdict, backoff
from storage.database import now
from storage.ledger.common import dump
from storage.ledger.pictures import png_of
from storage.outbox import Item, is_ours, item_again, item_ended, item_sending, item_unclear
from storage.tables import outbox

log = structlog.get_logger(__name__)

Latch = Callable[[str, Verdict], None]

LOOKUPS = 5
"""So often a shared file is looked for, 5 s apart, before it is believed not to be there."""
TICKET_GONE = "file_not_found"
"""Slack knows no upload of this id (any more)."""
NO_PLACE = (Meaning.ARCHIVED, Meaning.THREAD_GONE)


def comment(alt: str) -> str:
    """What is said beside a picture: words that a tool put together out of what systems are called."""
    return quiet(Prose(mrkdwn=True).words(clean(alt)))


def in_words(title: str, alt: str, error: str) -> SlackMessage:
    """A picture that Slack does not take."""
    text = f"Slack did not take a picture of mine ({quoted(error)}). {quoted(title)}: {quoted(alt)}"
    return sealed(text, [plain(shortened(text, SECTION_LIMIT))])


class Pictures:
    """Prepares calls for outbox rows of the kind `picture`."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def prepare(self, tx: AsyncConnection, item: Item, latch: Latch) -> Made:
        """The call for one row. `latch` hears of verdicts that may mean that this workspace takes no files."""
        file = item.body.get("file")
        if file is not None and item.state == "sending":
            await item_unclear(tx, item.id, "looking it up", lookups=item.lookups + 1)
            return (
                lambda: self._sender.find_file(item.channel, item.thread_ts or "", str(file)),
                lambda verdict: lambda tx: _looked_up(tx, item, verdict, latch),
            )
        await item_sending(tx, item.id)
        title, alt = str(item.body["title"]), str(item.body["text"])
        if file is None:
            picture = str(item.body["picture"])
            png = await png_of(tx, picture)
            return (
                lambda: self._sender.upload(f"{picture}.png", png),
                lambda verdict: lambda tx: _uploaded(tx, item, verdict, latch),
            )
        return (
            lambda: self._sender.share(item.channel, item.thread_ts, str(file), title, comment(alt)),
            lambda verdict: lambda tx: _shared(tx, item, verdict, latch),
        )


async def _uploaded(tx: AsyncConnection, item: Item, verdict: Verdict, latch: Latch) -> None:
    if not await is_ours(tx, item, tries=item.tries + 1):
        return
    if verdict.good and verdict.data is not None:
        body = {**item.body, "file": verdict.data["file"]}
        await item_again(tx, item.id, 0.0, "the bytes are there, to be shared", body=body)
    elif verdict.meaning in NOT_YET and item.tries < MOST_TRIES:
        await item_again(tx, item.id, max(verdict.wait_s, backoff(item.tries)), verdict.error)
    else:
        await _refused(tx, item, verdict, latch)


async def _shared(tx: AsyncConnection, item: Item, verdict: Verdict, latch: Latch) -> None:
    if not await is_ours(tx, item, tries=item.tries + 1):
        return
    match verdict.meaning:
        case Meaning.OK | Meaning.FINE:
            await item_unclear(tx, item.id, "shared, to be seen in the thread", lookups=0)
        case Meaning.UNCLEAR:
            await item_unclear(tx, item.id, verdict.error, lookups=0)
        case Meaning.LATER | Meaning.DEAD | Meaning.AGAIN if item.tries < MOST_TRIES:
            await item_again(tx, item.id, max(verdict.wait_s, backoff(item.tries)), verdict.error)
        case _ if verdict.error == TICKET_GONE and not item.body.get("again") and item.tries < MOST_TRIES:
            anew = {key: value for key, value in item.body.items() if key != "file"}
            await item_again(tx, item.id, backoff(item.tries), verdict.error, body=anew)
        case _:
            await _refused(tx, item, verdict, latch)


async def _looked_up(tx: AsyncConnection, item: Item, verdict: Verdict, latch: Latch) -> None:
    """What looking for the file has found. Where it can't be looked up it is not shared again."""
    if not await is_ours(tx, item, tries=item.tries):
        return
    if verdict.meaning in NOT_YET:
        await item_unclear(tx, item.id, verdict.error, lookups=item.lookups)
    elif not verdict.good:
        await item_ended(tx, item.id, "failed", error=f"unclear, and can't be looked up: {verdict.error}")
    elif (ts := (verdict.data or {}).get("ts")) is not None:
        await item_ended(tx, item.id, "sent", message_ts=str(ts))
    elif item.lookups + 1 < LOOKUPS:
        return
    elif item.body.get("again"):
        await _refused(tx, item, Verdict(Meaning.REFUSED, "never_shared"), latch)
    else:
        await item_again(tx, item.id, 0.0, "not found: it was never shared", body={**item.body, "again": True})


async def _refused(tx: AsyncConnection, item: Item, verdict: Verdict, latch: Latch) -> None:
    """Slack does not take it: what it shows is said in words, where there is a place for words."""
    latch(item.kind, verdict)
    log.warning("slack_refused_picture", turn=item.turn, error=verdict.error)
    await item_ended(tx, item.id, "failed", error=verdict.error)
    if verdict.meaning not in NO_PLACE:
        await tx.execute(insert(outbox).values(_notice(item, verdict.error)))


def _notice(item: Item, error: str) -> dict[str, Any]:
    said = in_words(str(item.body["title"]), str(item.body["text"]), error)
    return {
        "session_id": item.session,
        "turn_id": item.turn,
        "kind": "notice",
        "priority": item.priority,
        "dedupe_key": f"notice:{item.id}",
        "channel": item.channel,
        "thread_ts": item.thread_ts,
        "body": dump({"text": said.text, "blocks": said.blocks}),
        "state": "waiting",
        "created_at": now(),
    }
