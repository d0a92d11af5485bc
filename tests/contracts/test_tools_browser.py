"""The browser's tools are offered when they are wanted and can work; otherwise one sentence says what is missing."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.settings import Settings, ToolsPart
from bot.toolbox import open_tools
from core.errors import BadInput
from core.ports import PerTurnTool, Tier, Tool

NAMES = ["browser_open", "browser_screenshot"]
NEEDED = "pip install 'pilothouse[browser]', and a chromium in PATH"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


@pytest.fixture
def in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A PATH with a Chromium that nobody may start; what it returns takes the Chromium away."""
    chromium = tmp_path / "chromium"
    chromium.write_text("#!/bin/sh\nexit 1\n")
    chromium.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return chromium.unlink


async def opened(stack: AsyncExitStack, **tools: Any) -> list[Tool]:
    http = await stack.enter_async_context(aiohttp.ClientSession())
    found = await open_tools(Settings(tools=ToolsPart(**tools)), http, time.time, stack)
    return [tool for tool in found if tool.spec.name.startswith("browser_")]


async def test_two_reads_are_offered_that_hold_something_for_a_turn(
    stack: AsyncExitStack, in_path: Callable[[], None]
) -> None:
    found = await opened(stack, browser=True, web_domains=["docs.shop.test"])
    assert [tool.spec.name for tool in found] == NAMES
    assert all(isinstance(tool, PerTurnTool) and tool.spec.tier is Tier.READ for tool in found)
    assert [await tool.health() for tool in found] == [None, None]


@pytest.mark.parametrize("tools", [{}, {"web_domains": ["docs.shop.test"]}])
async def test_nothing_is_offered_that_was_not_asked_for(stack: AsyncExitStack, tools: dict[str, Any]) -> None:
    assert await opened(stack, **tools) == []


async def test_a_chromium_that_went_is_a_finding(stack: AsyncExitStack, in_path: Callable[[], None]) -> None:
    found = await opened(stack, browser=True, web_domains=["docs.shop.test"])
    in_path()
    for tool in found:
        assert await tool.health() == (
            "There is no Chromium in PATH, so no page can be opened in a browser: install it (package chromium)."
        )


async def test_without_domains_a_browser_is_a_mistake(stack: AsyncExitStack, in_path: Callable[[], None]) -> None:
    with pytest.raises(BadInput, match=r"^tools\.browser opens only pages of tools\.web_domains, and none is named"):
        await opened(stack, browser=True)


async def test_without_the_package_it_says_what_to_install(
    stack: AsyncExitStack, in_path: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "playwright", None)
    with pytest.raises(BadInput) as caught:
        await opened(stack, browser=True, web_domains=["docs.shop.test"])
    assert str(caught.value) == f"tools.browser needs the package playwright: {NEEDED}."


async def test_without_a_chromium_it_says_what_to_install(stack: AsyncExitStack, in_path: Callable[[], None]) -> None:
    in_path()
    with pytest.raises(BadInput) as caught:
        await opened(stack, browser=True, web_domains=["docs.shop.test"])
    assert str(caught.value) == f"tools.browser needs a Chromium: {NEEDED}."
