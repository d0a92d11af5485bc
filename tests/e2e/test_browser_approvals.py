"""Story 12 in a browser: a change is proposed, and people approve it, deny it, stop it or let it run out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from bot.demo import Town, town
from core.limits import Limits
from tests.support.browser import chromium, watched_page
from tests.support.room import EMIL, OLIVE, SAM, Room

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PATIENCE_S = 45.0
FAST = 12.0
ROLL_BACK = "roll it back"
QUICK = replace(Limits(), quiet_s=0.2)

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def room(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Room]:
    """A page in front of a demo of its own: a rollback mends its world for good."""
    limits = replace(QUICK, approval_s=getattr(request, "param", 900.0))
    async with town(tmp_path / "demo", speed=FAST, limits=limits) as made:
        running = asyncio.ensure_future(made.app.run())
        await made.slack.connected(1)
        async with watched_page(browser, made.slack.url, timeout_s=PATIENCE_S) as page:
            await page.goto(made.slack.url)
            yield Room(page, made)
        made.app.stop()
        await running


def rolled_back(made: Town) -> bool:
    return made.world.incident.rollouts["gateway"][-1].revision > 42


async def asks(room: Room) -> None:
    """The rollback is asked for, and its request stands in the thread."""
    await room.ask(ROLL_BACK)
    await room.reads(re.compile("Approve this change"))
    await expect(room.button("Approve")).to_be_visible()
    await room.reads("Waiting for approval of ap-1.")
    assert not rolled_back(room.town)


async def test_an_incident_is_finished_the_rollback_is_approved_and_the_world_recovers(room: Room) -> None:
    await asks(room)
    request = room.message("Approve this change")
    for words in ("@olive", "to_revision", "routes-r41.yaml", "approve ap-1", "deny ap-1 why"):
        await expect(request).to_contain_text(words)
    await expect(room.message("Waiting for approval").get_by_role("link", name="Open the request")).to_be_visible()
    await room.press("Approve", who=SAM)
    await room.reads(re.compile("Your decision was not taken"))
    assert not rolled_back(room.town)
    await room.press("Approve", who=OLIVE)
    await room.reads(re.compile(r"gateway. is back on revision 41|gateway is back on revision 41"))
    await room.reads(re.compile("Approved by .*It ran"))
    await expect(room.button("Approve")).to_have_count(0)
    await expect(room.button("Deny")).to_have_count(0)
    assert rolled_back(room.town)
    await expect(room.message("is back on revision 41")).to_contain_text("checkout | 0")


async def test_a_denial_with_its_reason_changes_nothing(room: Room) -> None:
    await asks(room)
    await room.reply("deny ap-1 not during the sale", who=OLIVE)
    await expect(room.message("I changed nothing")).to_contain_text("not during the sale")
    await room.reads(re.compile("Denied by"))
    await expect(room.button("Approve")).to_have_count(0)
    assert not rolled_back(room.town)


async def test_a_stop_while_it_waits_leaves_no_button(room: Room) -> None:
    await asks(room)
    await room.press("Stop this step", who=EMIL)
    await room.reads(re.compile("Stopped by @emil: kubernetes rollback"))
    await expect(room.button("Approve")).to_have_count(0)
    await expect(room.button("Stop this step")).to_have_count(0)
    assert not rolled_back(room.town)


@pytest.mark.parametrize("room", [2.0], indirect=True)
async def test_what_nobody_decides_runs_out_and_says_so(room: Room) -> None:
    await room.ask(ROLL_BACK)
    await room.reads(re.compile("Ran out: kubernetes rollback"))
    await expect(room.message("I changed nothing")).to_contain_text("nobody approved it in time")
    await expect(room.button("Approve")).to_have_count(0)
    assert not rolled_back(room.town)
