"""A house with sites and one Chromium under their rules, and turns that open pages in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bot.browser import Chromium, executable
from bot.browser_page import Bounds
from bot.tools.browser import tools
from core.errors import ToolError
from core.gateway import Call, Gateway
from core.limits import Limits
from core.ports import Tool, ToolOutput
from tests.support.processes import until
from tests.support.site import DOCS, LISTED, Sites, sites

BOUNDS = Bounds(load_s=40.0, call_s=50.0, settle_s=3.0)
LIMITS = Limits(tool_timeout_s=120.0)


@dataclass
class House:
    """The sites, and one Chromium under their rules. `opened` and `refused` open a page outside of any turn."""

    sites: Sites
    chromium: Chromium
    tools: list[Tool]

    async def opened(self, path: str, host: str = DOCS) -> str:
        return (await self.tools[0].run({"url": self.sites.url(path, host)})).text

    async def refused(self, path: str, host: str = DOCS) -> str:
        with pytest.raises(ToolError) as caught:
            await self.opened(path, host)
        return str(caught.value)

    def turn(self, chromium: Chromium | None = None) -> Gateway:
        """The gateway of a new turn."""
        made = self.tools if chromium is None else tools(chromium, LISTED, lambda: 0.0)
        now = asyncio.get_running_loop().time
        return Gateway([Patient(tool) for tool in made], LIMITS, now).limited(LIMITS)

    def another(self, **bounds: Any) -> Chromium:
        """One more Chromium, under the same rules and within other bounds. Whoever asks for it closes it."""
        return Chromium(self.sites.guard(), replace(BOUNDS, **bounds))

    async def contexts(self) -> int:
        return len((await self.chromium.running()).contexts)


@dataclass
class Patient:
    """A browser tool whose calls may take longer: machines that run tests are busy."""

    tool: Any

    @property
    def spec(self) -> Any:
        return replace(self.tool.spec, timeout_s=120.0)

    def for_turn(self, turn: object) -> Any:
        return PatientTurn(self.tool.for_turn(turn))

    async def run(self, arguments: Any) -> ToolOutput:
        found: ToolOutput = await self.tool.run(arguments)
        return found

    async def health(self) -> str | None:
        return None


class PatientTurn(Patient):
    """`Patient` in one turn."""

    async def close(self) -> None:
        await self.tool.close()


def call(url: str, tool: str = "browser_open") -> Call:
    return Call(0, "toolu_1", tool, {"url": url}, "read", True, url)


@asynccontextmanager
async def browsing() -> AsyncIterator[House]:
    """A house. Skips the test where there is no Chromium, unless this is CI."""
    if executable() is None and not os.environ.get("CI"):
        pytest.skip("there is no Chromium on this machine")
    async with sites() as found:
        chromium = Chromium(found.guard(), BOUNDS)
        yield House(found, chromium, tools(chromium, LISTED, lambda: 1_790_000_000.0))
        await chromium.close()


@asynccontextmanager
async def anew(house: House) -> AsyncIterator[House]:
    """The house, with sites that nobody has asked for anything."""
    fresh = Sites()
    house.sites.pages, house.sites.heard, house.sites.looked_up = fresh.pages, fresh.heard, fresh.looked_up
    house.sites.addresses.clear()
    house.sites.addresses.update(fresh.addresses)
    yield house
    await until(lambda: not house.chromium._closing)
