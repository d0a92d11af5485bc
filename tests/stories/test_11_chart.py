"""Story 11: a range of Prometheus is a chart in the thread, once, whatever dies between the upload and the post."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import call, say
from bot.slack.send import SHARE, UPLOAD
from core.pictures import png_size
from tests.support.bot_process import serving
from tests.support.rooms import FarEnds, Room, far_ends

pytestmark = [pytest.mark.process]

QUERY = 'sum by (host) (rate(http_requests_total{service="checkout",status=~"5.."}[5m]))'
LOOK = call("prometheus_range", query=QUERY, minutes_back=30)
LAST = say("It is the gateway.")
BUSY = {"status": 429, "headers": {"Retry-After": "60"}, "body": {"ok": False, "error": "ratelimited"}}

UNDISTURBED = "calm"
KILLED = ("posting", "lost", "between", "bytes")
"""Killed while Slack shared the file, while it did not, between upload and share, and while the bytes went up."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    """Everything that happened, once it is over."""
    async with far_ends(tmp_path_factory.mktemp("chart")) as made:
        for word in (UNDISTURBED, *KILLED):
            made.room(word, LOOK, LAST)
        async with serving(made) as first:
            await made.rooms[UNDISTURBED].ask()
            await _sent(made.rooms[UNDISTURBED])
            await _until_each_is_there(made)
            await first.kill()
        made.as_if_earlier(61.0)
        async with serving(made):
            for word in KILLED:
                await _sent(made.rooms[word])
        yield made


async def _until_each_is_there(ends: FarEnds) -> None:
    """Bring every thread to its moment."""
    for word, response in (("posting", "commit_then_timeout"), ("lost", "timeout"), ("between", BUSY)):
        channel = ends.rooms[word].channel
        ends.slack.script(SHARE, [response], lambda args, channel=channel: args["channel_id"] == channel)
    for word in ("posting", "lost"):
        await ends.rooms[word].ask()
        await ends.slack.until(lambda word=word: _shares(ends, word), 40.0)
    await ends.rooms["between"].ask()
    await ends.rooms["between"].until(lambda: _row(ends.rooms["between"]).get("error") == "ratelimited")
    ends.slack.script(UPLOAD, ["timeout"])
    before = len(ends.slack.called(UPLOAD))
    await ends.rooms["bytes"].ask()
    await ends.slack.until(lambda: len(ends.slack.called(UPLOAD)) > before, 40.0)


async def _sent(room: Room) -> None:
    await room.released()
    await room.until(lambda: _row(room).get("state") == "sent", 90.0)


def _row(room: Room) -> dict[str, Any]:
    return next((row for row in room.all("outbox") if row["kind"] == "picture"), {})


def _shares(ends: FarEnds, word: str) -> list[Any]:
    return [one for one in ends.slack.called(SHARE) if one.args["channel_id"] == ends.rooms[word].channel]


def _charts(room: Room) -> list[Any]:
    """Every message with a file that ever was in the channel."""
    return [
        version["message"]
        for version in room.slack.every_version(room.channel)
        if version["what"] == "posted" and version["message"].get("files")
    ]


each = pytest.mark.parametrize


@each("word", [UNDISTURBED, *KILLED])
def test_the_chart_is_in_the_thread_once(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    (message,) = _charts(room)
    assert message["thread_ts"] == room.root
    (file,) = message["files"]
    assert file["title"] == QUERY and file["mimetype"] == "image/png"
    assert message["ts"] == _row(room)["message_ts"]
    width, height = png_size(ends.slack.state.files[file["id"]].content) or (0, 0)
    assert width == 1024 and 500 < height < 1200
    assert "3 series" in message["text"] and "highest" in message["text"]


@each("word", [UNDISTURBED, *KILLED])
def test_it_is_kept_with_the_call_that_drew_it(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    (kept,) = room.all("pictures")
    (drew,) = room.all("calls")
    assert (kept["call_row"], drew["tool"], drew["status"]) == (drew["id"], "prometheus_range", "ok")
    assert kept["png"] == ends.slack.state.files[_charts(room)[0]["files"][0]["id"]].content


@each("word", [UNDISTURBED, *KILLED])
def test_the_model_reads_that_people_see_a_chart_and_gets_no_picture(ends: FarEnds, word: str) -> None:
    read = json.dumps(ends.rooms[word].requests()[1]["messages"][-1])
    assert "people see this as a picture in the thread" in read and "image" not in read
    assert len(ends.rooms[word].own("answer")) == 1


@each(("word", "uploads", "shares"), [("posting", 1, 1), ("lost", 1, 2), ("between", 1, 2), ("bytes", 1, 1)])
def test_nothing_is_done_twice_that_needs_not_be(ends: FarEnds, word: str, uploads: int, shares: int) -> None:
    turn = ends.rooms[word].all("turns")[0]["id"]
    brought = [one for one in ends.slack.called(UPLOAD) if one.args["filename"].startswith(turn) and one.ok]
    assert (len(brought), len(_shares(ends, word))) == (uploads, shares)


def test_the_histories_stayed_sound(ends: FarEnds) -> None:
    ends.sound()
