"""A person's side over HTTP, as the page uses it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.playground.slack import LocalSlack
from core.errors import BadInput

INCIDENT = "C0INCIDENT"
ENGINEER = "U0ENGINEER"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


async def ledger(channel: str, thread_ts: str) -> dict[str, Any]:
    return {"turns": [{"channel": channel, "thread_ts": thread_ts}]}


@pytest.fixture
async def slack(tmp_path: Path) -> AsyncIterator[LocalSlack]:
    (tmp_path / "index.html").write_text("<h1>page</h1>")
    scene = {"model": "scripted", "note": "nothing is real"}
    async with LocalSlack(page_dir=tmp_path, ledger=ledger, scene=scene, retry_schedule_s=()) as running:
        yield running


@pytest.fixture
async def http(slack: LocalSlack) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(slack.url) as session:
        yield session


async def post(http: aiohttp.ClientSession, name: str, /, **body: Any) -> tuple[int, Any]:
    async with http.post(f"/playground/{name}", json=body) as answer:
        return answer.status, await answer.json()


async def get(http: aiohttp.ClientSession, path: str, **query: str) -> Any:
    async with http.get(path, params=query) as answer:
        return await answer.json() if answer.content_type == "application/json" else await answer.text()


async def test_a_message_can_be_written_edited_reacted_to_and_deleted(
    slack: LocalSlack, http: aiohttp.ClientSession
) -> None:
    status, answer = await post(http, "message", channel=INCIDENT, user=ENGINEER, text="@pilot a < b")
    assert status == 200
    ts = answer["ts"]
    await post(http, "message", channel=INCIDENT, user="U0ONCALL", text="reply", thread_ts=ts)
    await post(http, "edit", channel=INCIDENT, ts=ts, user=ENGINEER, text="a > b")
    await post(http, "react", channel=INCIDENT, ts=ts, user="U0ONCALL", name="eyes")
    [root] = (await get(http, "/playground/messages", channel=INCIDENT))["messages"]
    assert (root["text"], root["reply_count"], root["reactions"][0]["name"]) == ("a &gt; b", 1, "eyes")
    assert root["edited"]["user"] == ENGINEER
    thread = (await get(http, "/playground/messages", channel=INCIDENT, thread_ts=ts))["messages"]
    assert [message["text"] for message in thread] == ["a &gt; b", "reply"]
    assert (await post(http, "delete", channel=INCIDENT, ts=ts, user=ENGINEER))[0] == 200
    [root] = (await get(http, "/playground/messages", channel=INCIDENT))["messages"]
    assert root["subtype"] == "tombstone"


@pytest.mark.parametrize(
    "name, body, reason",
    [
        ("message", {"channel": INCIDENT, "user": ENGINEER}, "needs 'text'"),
        ("message", {"channel": "C0X", "user": ENGINEER, "text": "x"}, "no channel 'C0X'"),
        ("message", {"channel": INCIDENT, "user": "U0X", "text": "x"}, "nobody called 'U0X'"),
        ("message", {"channel": INCIDENT, "user": ENGINEER, "text": 7}, "must be a text"),
        ("message", {"channel": INCIDENT, "user": ENGINEER, "text": "x", "ts": "1.0"}, "does not know 'ts'"),
        ("action", {"channel": INCIDENT, "message_ts": "1.0", "action_id": "a", "user": ENGINEER}, "no message 1.0"),
        ("edit", {"channel": INCIDENT, "ts": "1.0", "user": ENGINEER, "text": "x"}, "no message 1.0"),
    ],
)
async def test_what_cannot_be_done_is_told_in_one_sentence(
    http: aiohttp.ClientSession, name: str, body: dict[str, Any], reason: str
) -> None:
    status, answer = await post(http, name, **body)
    assert status == 400
    assert reason in answer["error"]


async def test_nonsense_is_told_too(slack: LocalSlack, http: aiohttp.ClientSession) -> None:
    async with http.post("/playground/message", data="{") as answer:
        assert (answer.status, await answer.json()) == (400, {"error": "/playground/message wants JSON."})
    async with http.get("/playground/messages", params={"channel": "C0X"}) as answer:
        assert answer.status == 400
    assert (await post(http, "dance"))[0] == 404
    foreign = {"Origin": "https://elsewhere.test"}
    body = {"channel": INCIDENT, "user": ENGINEER, "text": "x"}
    async with http.post("/playground/message", json=body, headers=foreign) as answer:
        assert answer.status == 403
    assert slack.messages(INCIDENT) == []


async def test_the_scene_the_ledger_the_status_and_the_page_are_served(
    slack: LocalSlack, http: aiohttp.ClientSession
) -> None:
    scene = await get(http, "/playground/scene")
    assert (scene["bot"]["id"], scene["model"], scene["note"]) == ("U0PILOT", "scripted", "nothing is real")
    assert [channel["name"] for channel in scene["channels"]] == ["incident-checkout", "random"]
    assert {person["role"] for person in scene["people"]} == {"on_call", "engineer", "guest", "bot"}
    root = await slack.say(INCIDENT, ENGINEER, "root")
    where = {"channel": INCIDENT, "thread_ts": root}
    assert await get(http, "/playground/ledger", **where) == {"turns": [where]}
    client = AsyncWebClient(token="xoxb-local", base_url=slack.api_url)
    await client.agents_sessions_setStatus(channel_id=INCIDENT, thread_ts=root, status="processing")
    assert (await get(http, "/playground/status", **where))["status"] == "processing"
    assert await get(http, "/") == "<h1>page</h1>"
    link = (await client.chat_getPermalink(channel=INCIDENT, message_ts=root))["permalink"]
    async with http.get(link.removeprefix(slack.url), allow_redirects=False) as answer:
        assert answer.headers["Location"] == f"/?channel={INCIDENT}&thread_ts={root}"


async def test_the_feed_tells_what_changed(slack: LocalSlack, http: aiohttp.ClientSession) -> None:
    async with http.get("/playground/feed") as feed:
        assert feed.content_type == "text/event-stream"
        assert await next_of(feed) == {"type": "hello"}
        root = await slack.say(INCIDENT, ENGINEER, "root")
        assert await next_of(feed) == {"type": "changed", "channel": INCIDENT, "thread_ts": root}
        await slack.say(INCIDENT, ENGINEER, "reply", thread_ts=root)
        assert await next_of(feed) == {"type": "changed", "channel": INCIDENT, "thread_ts": root}


async def next_of(feed: aiohttp.ClientResponse) -> Any:
    while not (line := await feed.content.readline()).startswith(b"data: "):
        assert line, "the feed ended"
    return json.loads(line.removeprefix(b"data: "))


async def test_a_port_in_use_is_one_clear_sentence(slack: LocalSlack) -> None:
    with pytest.raises(BadInput, match=f"Port {slack.port} is in use"):
        async with LocalSlack(port=slack.port):
            pass
