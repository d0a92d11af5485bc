"""Pictures of tools on their way into a thread: kept with the result of their call, and posted once, over both
databases and between the real writer and the local Slack.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient
from sqlalchemy import select, update

from bot.playground.slack import LocalSlack
from bot.slack.deliveries import Deliveries
from bot.slack.items import Items
from bot.slack.pictures import LOOKUPS, Pictures
from bot.slack.requests import Requests
from bot.slack.send import SHARE, UPLOAD, Sender
from bot.slack.verdict import Verdict
from bot.slack.writer import Writer
from core.gateway import Call, CallResult, CallStatus
from core.ledger import Claimed
from core.limits import Limits
from core.messages import Marker, SlackTs, Source
from core.ports import Picture
from storage.database import Database
from storage.tables import metadata, outbox
from tests.support.house import House
from tests.support.png import png

CHANNEL, ENGINEER = "C0INCIDENT", "U0ENGINEER"
PNG = png(640, 400)
CHART = Picture("sum(rate(errors[5m]))", "web-1: first 0, last 8 <!channel> & more", PNG)
MOST_ROUNDS = 40
_writers = count(1)


class Office:
    """A house with a turn whose tool has drawn something, and a writer between its rows and the local Slack."""

    def __init__(self, db: Database, slack: LocalSlack, client: AsyncWebClient, http: aiohttp.ClientSession) -> None:
        self.db, self.slack, self.house = db, slack, House(db)
        self.ends = client, http, lambda _method, _outcome: None
        self.root = ""
        self.passed_s = 0.0
        self.working: Writer | None = None

    async def turn(self) -> Claimed:
        self.root = await self.slack.say(CHANNEL, ENGINEER, "why 5xx?")
        asked = await self.house.say("why 5xx?", thread_ts=SlackTs(self.root), ts=SlackTs(self.root))
        return await self.house.claim(asked.session)

    async def open(self, claimed: Claimed) -> Call:
        call = Call(0, "toolu_1", "prometheus_range", {"query": "up"}, "read", True, "query=up")
        block = {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": {"query": "up"}}
        await self.house.ledger.open(claimed, 1, [block], [call], [])
        return call

    async def drawn(self, *pictures: Picture) -> Claimed:
        claimed = await self.turn()
        result = _result(await self.open(claimed), pictures or [CHART])
        await self.house.ledger.close(claimed, 1, [result], lambda _steers: None)
        return claimed

    async def stop(self) -> None:
        stopped = await self.house.say(
            "stop",
            source=Source.REPLY,
            marker=Marker.STOP_STEP,
            bare=True,
            thread_ts=SlackTs(self.root),
            ts=SlackTs(self.slack.state.next_ts()),
        )
        assert stopped.session is not None

    def sender(self) -> Sender:
        return Sender(*self.ends)

    def writer(self, sender: Sender | None = None) -> Writer:
        sender = sender or self.sender()
        requests = Requests(sender, lambda _channel: frozenset())
        items = Items(sender, requests, Pictures(sender), known_hosts=(), native_stop=False)

        async def closed(*_: Any) -> None:
            raise AssertionError("no place was closed")

        deliveries = Deliveries(self.db, sender, items, lambda _channel: Limits(), closed, self.slack.url)
        loop = asyncio.get_running_loop()
        now = lambda: loop.time() + self.passed_s  # noqa: E731
        return Writer(self.db, deliveries, name=f"w{next(_writers)}", team="T1", now=now)

    @asynccontextmanager
    async def killed(self) -> AsyncIterator[None]:
        """A writer that works until the block is done and then dies in the middle of its calls."""
        task = asyncio.ensure_future(self.writer().run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Let a writer work until this is so, as if 6 s passed between its rounds."""
        writer = self.working = self.working or self.writer()
        for _ in range(MOST_ROUNDS):
            self.passed_s += 6.0
            async with self.db.transaction() as tx:
                earlier = {"sending_at": outbox.c.sending_at - 6.0, "not_before": outbox.c.not_before - 6.0}
                await tx.execute(update(outbox).where(outbox.c.state != "sent").values(**earlier))
            await writer.drain(20.0)
            if await condition():
                return
        raise AssertionError(f"after {MOST_ROUNDS} rounds: {await self.rows('outbox')}")

    async def until_all(self, *states: str) -> None:
        """The same until each picture has one of these states."""

        async def there() -> bool:
            rows = [row for row in await self.rows("outbox") if row["kind"] == "picture"]
            return all(row["state"] in states for row in rows)

        await self.until(there)

    async def until_said(self, words: str) -> None:
        """The same until these words stand in the thread."""

        async def there() -> bool:
            return words in self.said()

        await self.until(there)

    def said(self) -> str:
        return "\n".join(str(message.get("text")) for message in self.slack.messages(CHANNEL, self.root))

    async def rows(self, table: str) -> Sequence[Any]:
        async with self.db.reading() as tx:
            return [row._mapping for row in await tx.execute(select(metadata.tables[table]))]

    async def row(self) -> Any:
        (found,) = [row for row in await self.rows("outbox") if row["kind"] == "picture"]
        return found

    def shared(self) -> list[dict[str, Any]]:
        """The messages in the thread that carry files."""
        return [message for message in self.slack.messages(CHANNEL, self.root) if message.get("files")]

    def all_shared(self) -> int:
        """How many such messages there ever were anywhere in the channel."""
        versions = self.slack.every_version(CHANNEL)
        return sum(version["what"] == "posted" and bool(version["message"].get("files")) for version in versions)


def _result(call: Call, pictures: Sequence[Picture]) -> CallResult:
    return CallResult(call, CallStatus.OK, "8 per second", pictures=pictures)


@pytest.fixture
async def office(database: Database) -> AsyncIterator[Office]:
    async with LocalSlack() as slack, aiohttp.ClientSession() as http:
        client = AsyncWebClient(
            token=slack.workspace.bot_token, base_url=slack.api_url, session=http, retry_handlers=[]
        )
        yield Office(database, slack, client, http)


# -- kept


async def test_a_picture_is_kept_with_the_result_of_its_call_once_though_the_result_is_committed_twice(
    office: Office,
) -> None:
    claimed = await office.turn()
    result = _result(await office.open(claimed), [CHART])
    await office.house.ledger.record(claimed, 1, [result])
    await office.house.ledger.close(claimed, 1, [result], lambda _steers: None)
    (kept,) = await office.rows("pictures")
    (call,) = await office.rows("calls")
    assert kept["call_row"] == call["id"] and bytes(kept["png"]) == PNG
    assert (kept["title"], kept["alt"], kept["turn_id"]) == (CHART.title, CHART.alt, claimed.turn)
    assert (await office.row())["state"] == "waiting"


async def test_what_was_drawn_after_a_stop_is_not_kept_and_not_posted(office: Office) -> None:
    claimed = await office.turn()
    call = await office.open(claimed)
    await office.stop()
    await office.house.ledger.close(claimed, 1, [_result(call, [CHART])], lambda _steers: None)
    assert not await office.rows("pictures")
    assert not [row for row in await office.rows("outbox") if row["kind"] == "picture"]


async def test_what_was_kept_before_a_stop_is_still_posted(office: Office) -> None:
    await office.drawn()
    await office.stop()
    await office.until_all("sent")
    assert len(office.shared()) == office.all_shared() == 1


# -- posted


async def test_a_picture_stands_in_the_thread_with_its_title_and_its_words_and_calls_nobody(office: Office) -> None:
    await office.drawn()
    await office.until_all("sent")
    (message,) = office.shared()
    (file,) = message["files"]
    assert message["thread_ts"] == office.root
    assert (file["title"], file["mimetype"], file["size"]) == (CHART.title, "image/png", len(PNG))
    assert "web-1: first 0, last 8" in message["text"] and "&amp; more" in message["text"]
    assert "<!channel>" not in message["text"]
    assert office.slack.state.files[file["id"]].content == PNG


async def test_it_is_done_when_the_file_was_seen_in_the_thread(office: Office) -> None:
    await office.drawn()
    await office.until_all("sent")
    assert (await office.row())["message_ts"] == office.shared()[0]["ts"]
    assert office.all_shared() == 1 and len(office.slack.called(SHARE)) == 1


async def test_the_pictures_of_one_call_are_all_posted(office: Office) -> None:
    await office.drawn(*[Picture(f"p{number}", "a", png(64, 64, grey=number)) for number in range(4)])
    await office.until_all("sent")
    titles = sorted(message["files"][0]["title"] for message in office.shared())
    assert titles == ["p0", "p1", "p2", "p3"] and office.all_shared() == 4


async def test_slack_may_share_later_than_it_says(office: Office) -> None:
    await office.drawn()
    office.slack.hold_shares()

    async def looked_for() -> bool:
        return bool((await office.row())["lookups"])

    await office.until(looked_for)
    assert not office.shared()
    office.slack.release_shares()
    await office.until_all("sent")
    assert office.all_shared() == len(office.slack.called(SHARE)) == 1


async def test_a_share_that_slack_confirmed_and_never_did_is_done_once_more(office: Office) -> None:
    await office.drawn()
    office.slack.script(SHARE, [{"body": {"ok": True, "files": []}}])
    await office.until_all("sent")
    assert office.all_shared() == 1
    assert len(office.slack.called(SHARE)) == 2


async def test_a_share_that_never_happens_is_said_in_words(office: Office) -> None:
    await office.drawn()
    office.slack.script(SHARE, [{"body": {"ok": True, "files": []}}] * 5)
    await office.until_said("Slack did not take a picture of mine (never_shared)")
    assert (await office.row())["state"] == "failed"
    assert len(office.slack.called(SHARE)) == 2 and not office.all_shared()
    looks = [call for call in office.slack.called("conversations.replies") if call.ok]
    assert len(looks) == 2 * LOOKUPS


@pytest.mark.parametrize("how", ["commit_then_reset", "reset"])
async def test_a_share_whose_answer_was_lost_is_looked_for_before_it_is_done_again(office: Office, how: str) -> None:
    await office.drawn()
    office.slack.script(SHARE, [how])
    await office.until_all("sent")
    assert office.all_shared() == 1
    assert len(office.slack.called(SHARE)) == (1 if how == "commit_then_reset" else 2)


async def test_a_writer_killed_before_the_bytes_were_there_is_followed_by_one_that_brings_them(
    office: Office,
) -> None:
    await office.drawn()
    office.slack.script(UPLOAD, ["timeout"])
    async with office.killed():
        await office.slack.until(lambda: office.slack.called(UPLOAD))
    await office.until_all("sent")
    assert office.all_shared() == 1


@pytest.mark.parametrize(("how", "shares"), [("commit_then_timeout", 1), ("timeout", 2)])
async def test_a_writer_killed_while_it_shared_is_followed_by_one_that_looks_first(
    office: Office, how: str, shares: int
) -> None:
    await office.drawn()
    office.slack.script(SHARE, [how])
    async with office.killed():
        await office.slack.until(lambda: office.slack.called(SHARE))
    await office.until_all("sent")
    assert office.all_shared() == 1
    assert len(office.slack.called(SHARE)) == shares
    assert len(office.slack.called(UPLOAD)) == 1, "the bytes were there already"


async def test_a_writer_that_lost_the_lead_while_it_uploaded_changes_nothing_that_came_after(office: Office) -> None:
    await office.drawn()
    going = asyncio.Event()
    send_file, slow = Sender.upload, office.sender()

    class Slow(Sender):
        async def upload(self, name: str, content: bytes) -> Verdict:
            await going.wait()
            return await send_file(slow, name, content)

    first = office.writer(Slow(*office.ends))
    await first.drain(0.2)
    async with office.db.transaction() as tx:
        await tx.execute(metadata.tables["leases"].delete())
    await office.until_all("sent")
    going.set()
    await first.drain(20.0)
    await first.drain(1.0)
    await office.until_all("sent")
    assert office.all_shared() == 1 and len(office.slack.called(UPLOAD)) == 2


# -- refused


@pytest.mark.parametrize(
    "error",
    ["file_type_not_allowed", "file_upload_size_restricted", "storage_limit_reached", "file_uploads_disabled"],
)
async def test_a_picture_that_slack_does_not_take_is_said_in_words(office: Office, error: str) -> None:
    await office.drawn()
    office.slack.script(UPLOAD, [{"body": {"ok": False, "error": error}}])
    await office.until_said(f"Slack did not take a picture of mine ({error}). {CHART.title}: web-1: first 0")
    assert (await office.row())["state"] == "failed"
    assert "<!channel>" not in office.said()


async def test_without_the_scope_people_hear_it_once_and_everything_else_goes_on(office: Office) -> None:
    office.slack.workspace.scopes = office.slack.workspace.scopes - {"files:write"}
    await office.drawn(CHART, Picture("second", "a", png(64, 64)), Picture("third", "a", png(64, 64)))
    await office.until_all("failed", "dropped")
    await office.until_said("Slack did not take a picture of mine (missing_scope)")
    assert not office.all_shared()


async def test_a_share_that_is_denied_does_not_silence_the_writer(office: Office) -> None:
    await office.drawn()
    office.slack.script(SHARE, [{"body": {"ok": False, "error": "access_denied"}}])
    await office.until_said("Slack did not take a picture of mine (access_denied)")


async def test_an_upload_that_slack_has_forgotten_is_done_again(office: Office) -> None:
    await office.drawn()
    office.slack.script(SHARE, [{"body": {"ok": False, "error": "file_not_found"}}])
    await office.until_all("sent")
    assert office.all_shared() == 1
    assert len(office.slack.called(UPLOAD)) == 2


async def test_a_picture_is_not_posted_beside_a_thread_whose_root_is_gone(office: Office) -> None:
    await office.drawn()
    await office.slack.delete(CHANNEL, office.root, ENGINEER)
    await office.until_all("failed")
    assert not office.all_shared()


async def test_slack_is_waited_for_when_it_is_busy(office: Office) -> None:
    await office.drawn()
    busy = {"status": 429, "headers": {"Retry-After": "1"}, "body": {"ok": False, "error": "ratelimited"}}
    office.slack.script(UPLOAD, [busy])
    office.slack.script(SHARE, [busy])
    await office.until_all("sent")
    assert office.all_shared() == 1
