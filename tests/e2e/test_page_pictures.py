"""Pictures on the page of the local Slack: drawn in their thread, in light and in dark, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest
from playwright.async_api import Browser, expect
from slack_sdk.web.async_client import AsyncWebClient

from bot.playground.slack import LocalSlack
from bot.tools.charts import Charts
from bot.tools.series import Range
from tests.support.browser import chromium, watched_page

CHANNEL, ENGINEER = "C0INCIDENT", "U0ENGINEER"
END = 1_773_498_000.0
RISE = [
    Range(
        metric={"host": f"web-{number}"},
        values=[(END - 3_600 + 60 * minute, 0.1 if minute < 45 else 5.0 + number) for minute in range(61)],
    )
    for number in (1, 2, 3)
]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as running:
        yield running


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def chart_in_a_thread(slack: LocalSlack, executor: ThreadPoolExecutor) -> tuple[str, str]:
    """The thread and the title of a chart in it."""
    query = 'sum by (host) (rate(http_requests_total{status=~"5.."}[5m]))'
    picture = await Charts(executor).draw(query, RISE, END - 3_600, END, 60.0)
    assert picture is not None
    client = AsyncWebClient(token=slack.workspace.bot_token, base_url=slack.api_url)
    root = await slack.say(CHANNEL, ENGINEER, "why 5xx?")
    given = await client.files_getUploadURLExternal(filename="chart.png", length=len(picture.png))
    async with aiohttp.ClientSession() as http, http.post(given["upload_url"], data=picture.png) as response:
        assert response.status == 200
    await client.files_completeUploadExternal(
        files=[{"id": given["file_id"], "title": picture.title}],
        channel_id=CHANNEL,
        thread_ts=root,
        initial_comment=picture.alt,
    )
    return root, picture.title


@pytest.mark.parametrize("phone", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_chart_is_drawn_in_its_thread_as_wide_as_there_is_room(
    browser: Browser, executor: ThreadPoolExecutor, scheme: str, phone: bool
) -> None:
    async with LocalSlack() as slack:
        root, title = await chart_in_a_thread(slack, executor)
        async with watched_page(browser, slack.url, phone=phone) as page:
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.goto(f"{slack.url}/?channel={CHANNEL}&thread_ts={root}")
            drawn = page.locator("#replies").get_by_role("img", name=title)
            await expect(drawn).to_be_visible()
            await page.wait_for_function("(picture) => picture.complete", arg=await drawn.element_handle())
            assert await drawn.evaluate("(picture) => picture.naturalWidth") == 1024
            box = await drawn.bounding_box()
            room = await page.locator("#replies").bounding_box()
            assert box is not None and room is not None
            assert (
                box["width"] > 0.6 * min(room["width"], 560) and box["x"] + box["width"] <= room["x"] + room["width"]
            )
            await expect(page.locator("#replies")).to_contain_text("3 series, 2026-03-14 13:20 to 14:20 UTC")
