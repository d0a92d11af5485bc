"""The machine's Chromium, and a page that fails its test for every error in it and every request elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, ViewportSize, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking"
    " --disable-component-update --disable-sync --no-first-run"
)
DESK = ViewportSize(width=1440, height=900)
PHONE = ViewportSize(width=390, height=844)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser. Skips the test where there is none, unless this is CI."""
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("there is no Chromium on this machine")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        await browser.close()


@asynccontextmanager
async def watched_page(
    browser: Browser, url: str, *, phone: bool = False, timeout_s: float = 10
) -> AsyncIterator[Page]:
    """A page in a context of its own."""
    context = await browser.new_context(viewport=PHONE if phone else DESK, has_touch=phone, is_mobile=phone)
    page = await context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: None if sent.url.startswith(url) else faults.append(sent.url))
    page.set_default_timeout(timeout_s * 1000)
    yield page
    await context.close()
    assert faults == []
