"""Files in the local Slack: the upload in three steps with Slack's refusals, where they are seen, and how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.playground.slack import LocalSlack
from tests.support.png import png

CHANNEL, ENGINEER = "C0INCIDENT", "U0ENGINEER"
PNG = png(640, 400)


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as running:
        yield running


@pytest.fixture
def client(slack: LocalSlack) -> AsyncWebClient:
    return AsyncWebClient(token=slack.workspace.bot_token, base_url=slack.api_url, retry_handlers=[])


async def uploaded(client: AsyncWebClient, content: bytes = PNG, **more: Any) -> str:
    """The id of a file whose bytes are there, and that nobody sees yet."""
    given = await client.files_getUploadURLExternal(filename="chart.png", length=len(content), **more)
    async with aiohttp.ClientSession() as http, http.post(given["upload_url"], data=content) as response:
        assert response.status == 200
    return str(given["file_id"])


async def refused(work: Any) -> str:
    with pytest.raises(SlackApiError) as error:
        await work
    return str(error.value.response["error"])


async def test_a_file_is_seen_by_nobody_before_it_is_shared(slack: LocalSlack, client: AsyncWebClient) -> None:
    root = await slack.say(CHANNEL, ENGINEER, "why?")
    file = await uploaded(client)
    assert await refused(client.files_info(file=file)) == "file_not_found"
    async with aiohttp.ClientSession() as http, http.get(f"{slack.url}/playground/pictures/{file}") as response:
        assert response.status == 404
    assert len(slack.messages(CHANNEL, root)) == 1


async def test_a_shared_file_stands_in_the_replies_with_its_title_its_size_and_its_words(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    root = await slack.say(CHANNEL, ENGINEER, "why?")
    file = await uploaded(client, alt_txt="errors rise at 14:05")
    await client.files_completeUploadExternal(
        files=[{"id": file, "title": "errors"}], channel_id=CHANNEL, thread_ts=root, initial_comment="see *this*"
    )
    replies = await client.conversations_replies(channel=CHANNEL, ts=root)
    message = replies["messages"][1]
    assert (message["text"], message["thread_ts"]) == ("see *this*", root)
    (shown,) = message["files"]
    assert (shown["id"], shown["title"], shown["alt_txt"]) == (file, "errors", "errors rise at 14:05")
    assert (shown["original_w"], shown["original_h"], shown["size"]) == (640, 400, len(PNG))
    assert (await client.files_info(file=file))["file"]["title"] == "errors"


async def test_the_page_gets_pictures_without_a_token_and_nothing_else(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    file = await uploaded(client)
    await client.files_completeUploadExternal(files=[{"id": file, "title": "t"}], channel_id=CHANNEL)
    slack.host_file("F0NOTES", "notes.html", b"<script>alert(1)</script>", "text/html")
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{slack.url}/playground/pictures/{file}") as response:
            assert (response.status, response.content_type) == (200, "image/png")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert await response.read() == PNG
        async with http.get(f"{slack.url}/playground/pictures/F0NOTES") as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("length", "alt", "error"),
    [
        (0, "", "missing_argument"),
        (2 * 1024**3, "", "file_upload_size_restricted"),
        (9, "a" * 1_001, "alt_txt_too_large"),
    ],
)
async def test_an_upload_is_refused_with_slacks_words(
    client: AsyncWebClient, length: int, alt: str, error: str
) -> None:
    arguments = {"filename": "chart.png", "length": length} | ({"alt_txt": alt} if alt else {})
    assert await refused(client.api_call("files.getUploadURLExternal", data=arguments)) == error


async def test_a_share_is_refused_with_slacks_words(slack: LocalSlack, client: AsyncWebClient) -> None:
    empty = (await client.files_getUploadURLExternal(filename="chart.png", length=9))["file_id"]

    async def share(file: str, channel: str = CHANNEL) -> Any:
        return await client.files_completeUploadExternal(files=[{"id": file, "title": "t"}], channel_id=channel)

    assert await refused(share("F0NONE")) == "file_not_found"
    assert await refused(share(empty)) == "file_not_found", "its bytes never came"
    assert await refused(share(await uploaded(client), "C0NOWHERE")) == "channel_not_found"
    slack.workspace.scopes = slack.workspace.scopes - {"files:write"}
    assert await refused(share("F0NONE")) == "missing_scope"
    assert await refused(client.files_getUploadURLExternal(filename="a.png", length=1)) == "missing_scope"


async def test_a_share_can_be_held_back_after_it_was_confirmed(slack: LocalSlack, client: AsyncWebClient) -> None:
    root = await slack.say(CHANNEL, ENGINEER, "why?")
    slack.hold_shares()
    file = await uploaded(client)
    answer = await client.files_completeUploadExternal(
        files=[{"id": file, "title": "t"}], channel_id=CHANNEL, thread_ts=root
    )
    assert answer["ok"] and len(slack.messages(CHANNEL, root)) == 1
    slack.release_shares()
    assert [one["id"] for one in slack.messages(CHANNEL, root)[1]["files"]] == [file]


async def test_a_share_into_a_thread_whose_root_is_gone_lands_beside_it(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    root = await slack.say(CHANNEL, ENGINEER, "why?")
    await slack.delete(CHANNEL, root, ENGINEER)
    file = await uploaded(client)
    await client.files_completeUploadExternal(files=[{"id": file, "title": "t"}], channel_id=CHANNEL, thread_ts=root)
    assert "thread_ts" not in slack.messages(CHANNEL)[-1]


async def test_shared_files_outlive_the_process(tmp_path: Path) -> None:
    kept = tmp_path / "slack.jsonl"
    async with LocalSlack(keep=kept) as slack:
        client = AsyncWebClient(token=slack.workspace.bot_token, base_url=slack.api_url)
        file = await uploaded(client)
        await uploaded(client)
        await client.files_completeUploadExternal(files=[{"id": file, "title": "errors"}], channel_id=CHANNEL)
    async with LocalSlack(keep=kept) as slack:
        assert list(slack.state.files) == [file], "what was never shared is forgotten"
        assert slack.state.files[file].content == PNG and slack.state.files[file].title == "errors"
