"""Makes the README's pictures anew: plays stories 1 to 6 and 12 in the real demo and photographs its page.

    .venv/bin/python docs/pictures.py

Needs the packages for tests and a Chromium. Each picture is one story; `PICTURES` names them.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, ViewportSize, expect

from bot.demo import INCIDENT, SCRIPTED, town
from tests.support.browser import PHONE, chromium
from tests.support.room import EMIL, GATEWAY, GUS, OLIVE, SAM, Room

HERE = Path(__file__).parent
DESK = ViewportSize(width=1280, height=800)
WIDE = ViewportSize(width=1280, height=1120)
TALL = ViewportSize(width=1280, height=1290)
HOUR_OF_THE_INCIDENT = 14
Scheme = Literal["light", "dark"]

expect.set_options(timeout=60_000)


@asynccontextmanager
async def room(browser: Browser, view: ViewportSize, scheme: Scheme) -> AsyncIterator[Room]:
    """A new demo and a page in front of it, whose clock shows the hour of the incident."""
    phone = view is PHONE
    with tempfile.TemporaryDirectory() as data:
        async with town(Path(data), model_name=SCRIPTED, speed=4) as made:
            await made.slack.post_alert(INCIDENT, quiet=True)
            running = asyncio.ensure_future(made.app.run())
            await made.slack.connected(1, timeout_s=60)
            context = await browser.new_context(
                viewport=view,
                color_scheme=scheme,
                timezone_id=_zone(),
                device_scale_factor=2 if phone else 1,
                is_mobile=phone,
                has_touch=phone,
            )
            page = await context.new_page()
            page.set_default_timeout(60_000)
            await page.goto(made.slack.url)
            yield Room(page, made)
            await context.close()
            made.app.stop()
            await running


def _zone() -> str:
    """A zone in which it is the hour of the incident now. In these names a minus lies east."""
    east = (HOUR_OF_THE_INCIDENT - datetime.now(UTC).hour + 12) % 24 - 12
    return f"Etc/GMT{-east:+d}" if east else "Etc/GMT"


async def steer(room: Room) -> None:
    """Story 2: a reply redirects what runs; the ledger explains how each turn ended."""
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.reply(GATEWAY)
    await room.reads("Answered below.")
    await room.open_ledger()
    second = room.page.get_by_role("region", name="Turn 2")
    await expect(second).to_contain_text("completed")
    await second.get_by_text("Calls").click()
    await room.page.locator("#replies").evaluate("node => (node.scrollTop = 0)")


async def alert(room: Room) -> None:
    """Story 1: called under an alert; the card at work, with its buttons."""
    room.slow_logs()
    firing = room.page.locator("#timeline article").first
    await firing.hover()
    await firing.get_by_role("button", name="Reply in thread").click()
    await room.page.get_by_role("button", name="@Pilothouse what is this?").click()
    await room.looks_at_the_slow_logs()


async def stop(room: Room) -> None:
    """Story 4: a brake in any language; the next words go on from there."""
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.reply("刹车，先停一下，我还没确认范围")
    await room.reads(re.compile("Stopped by @olive at step 2"))
    await room.write_as(OLIVE)


async def note(room: Room) -> None:
    """Story 6: what does not steer: chatter, `+`, and somebody new, who is asked."""
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.reply("@emil did you see the deploy?", OLIVE)
    await room.reply("+ also check the db", EMIL)
    await room.reply("isn't it the gateway?", SAM)
    await room.reads("Redirect now", times=2)
    await room.has_sign("isn't it the gateway?", "memo")


async def guest(room: Room) -> None:
    """Story 4: who may not stop is told so, and nobody else sees it."""
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.press("Stop this step", GUS)
    await expect(room.message("I did not stop: only")).to_be_visible()


async def approve(room: Room) -> None:
    """Story 12: a change waits for whoever may approve it."""
    await room.ask("roll back the gateway", OLIVE)
    await room.reads(re.compile("Approve this change"))
    await expect(room.button("Approve")).to_be_visible()


async def finished(room: Room) -> None:
    """Story 12: approved, run once, and looked at again, with a chart."""
    await approve(room)
    await room.press("Approve", OLIVE)
    await expect(room.message("is back on revision 41")).to_be_visible()
    await expect(room.thread.locator("figure.shared img").last).to_be_visible()
    await room.reads(re.compile("It ran"))


async def phone(room: Room) -> None:
    """Story 1 on a phone, in the dark."""
    room.slow_logs()
    await room.page.locator("#channel-composer .moves button").first.tap()
    await room.looks_at_the_slow_logs()


PICTURES: Mapping[str, tuple[Callable[[Room], Awaitable[None]], ViewportSize, Scheme]] = {
    "steer": (steer, TALL, "light"),
    "alert": (alert, DESK, "light"),
    "stop": (stop, DESK, "dark"),
    "note": (note, DESK, "light"),
    "guest": (guest, DESK, "dark"),
    "approve": (approve, WIDE, "light"),
    "finished": (finished, WIDE, "light"),
    "phone": (phone, PHONE, "dark"),
}


async def main(names: list[str]) -> None:
    async with chromium() as browser:
        for name in names or PICTURES:
            play, view, scheme = PICTURES[name]
            async with room(browser, view, scheme) as made:
                await play(made)
                await made.page.mouse.move(0, 0)
                await made.page.screenshot(path=HERE / f"{name}.png", animations="disabled")
                sys.stdout.write(f"docs/{name}.png\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
