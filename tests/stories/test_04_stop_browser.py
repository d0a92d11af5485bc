"""Story 4 with a browser: a page that goes on asking is silent once somebody stopped it, and gone with its turn."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.browser import Chromium, executable
from bot.browser_page import Bounds
from bot.playground.model import call, say
from bot.tools.browser import tools
from tests.support.site import LISTED, Sites, sites
from tests.support.story import QUICK, called, holds, words_of
from tests.support.thread import in_town

pytestmark = pytest.mark.browser

POLLS = "<p>The queue is full.</p><script>setInterval(() => fetch('/poll', {cache: 'no-store'}), 50)</script>"


@pytest.fixture
async def site() -> AsyncIterator[Sites]:
    if executable() is None and not os.environ.get("CI"):
        pytest.skip("there is no Chromium on this machine")
    async with sites() as found:
        found.pages["/queue"] = POLLS
        found.pages["/other"] = POLLS.replace("/poll", "/else")
        yield found


@pytest.fixture
async def chromium(site: Sites) -> AsyncIterator[Chromium]:
    """A running one that waits for a page as long as it asks for things."""
    made = Chromium(site.guard(), Bounds(load_s=60.0, call_s=70.0, settle_s=60.0))
    await made.running()
    yield made
    await made.close()


async def contexts(chromium: Chromium) -> int:
    return len((await chromium.running()).contexts)


@pytest.mark.parametrize(("button", "reason"), [("stop_step", "stopped_step"), ("cancel_task", "cancelled")])
async def test_a_page_is_silent_and_gone_when_its_turn_was_stopped(
    tmp_path: Path, site: Sites, chromium: Chromium, button: str, reason: str
) -> None:
    script = [call("browser_open", url=site.url(path)) for path in ("/queue", "/other")]
    given = {"limits": QUICK, "script": script, "tools": tools(chromium, LISTED, lambda: 0.0)}
    async with in_town(tmp_path, **given) as thread:
        await thread.ask()
        await called(thread, "browser_open", "open")
        await site.asked("/poll", 5)
        await thread.press(button)
        await holds(thread, [reason])
        at_the_end = site.count("/poll")
        assert await contexts(chromium) == 0

        await thread.reply("<@U0PILOT> look at the other one")
        await site.asked("/else", 20)
        await thread.press(button)
        await holds(thread, [reason, reason])
        assert site.count("/poll") == at_the_end
        assert [row["status"] for row in await thread.rows("calls")] == ["cancelled", "cancelled"]


async def test_a_reply_hurries_a_page_and_the_next_turn_begins_without_it(
    tmp_path: Path, site: Sites, chromium: Chromium
) -> None:
    script = [call("browser_open", url=site.url("/queue")), say("It is the gateway.")]
    given = {"limits": QUICK, "script": script, "tools": tools(chromium, LISTED, lambda: 0.0)}
    async with in_town(tmp_path, **given) as thread:
        await thread.ask()
        await site.asked("/poll", 5)
        await thread.reply("look at the gateway")
        await holds(thread, ["steered", "completed"])
        assert "because a person redirected the investigation. Nothing was read." in words_of(thread.requests()[1])[0]
        assert await contexts(chromium) == 0
