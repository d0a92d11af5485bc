"""The demo's page as people use it, so that a browser story reads like the thread that it is about."""

from __future__ import annotations

import re
from dataclasses import dataclass

from playwright.async_api import Locator, Page, expect

from bot.demo import Town
from bot.playground.model import ScriptedModel

OLIVE, EMIL, SAM, GUS = "Olive", "Emil", "Sam", "Gus"
QUESTION = "checkout answers 5xx since 14:05, what is going on?"
GATEWAY = "don't look at that host, it's the gateway"
SLOW_S = 9.0
"""Nearly the limit of a call: long enough for whoever wants to redirect or stop while it runs."""


@dataclass(frozen=True, slots=True)
class Room:
    """One page in front of the running demo."""

    page: Page
    town: Town

    # -- what people do

    async def write_as(self, who: str) -> None:
        await self.page.locator("#people").get_by_role("radio", name=re.compile(who)).click()

    async def ask(self, words: str = QUESTION, who: str = EMIL) -> None:
        """Type a mention in the channel, the name taken from the list; its thread opens."""
        await self.write_as(who)
        box = self.page.locator("#channel-composer textarea")
        await box.press_sequentially("@pi")
        await box.press("Enter")
        await expect(box).to_have_value("@Pilothouse ")
        await box.fill(f"@Pilothouse {words}")
        await box.press("Enter")
        await expect(self.thread.locator("article").first).to_contain_text(words)

    async def reply(self, words: str, who: str = OLIVE) -> None:
        await self.write_as(who)
        box = self.page.locator("#thread-composer textarea")
        await box.fill(words)
        await box.press("Enter")
        await expect(self.message(words)).to_be_visible()

    async def press(self, button: str, who: str = OLIVE) -> None:
        """Press the newest button of that name in the thread."""
        await self.write_as(who)
        await self.button(button).last.click()

    async def act(self, message: Locator, action: str, who: str) -> None:
        """Use the toolbar of a message."""
        await self.write_as(who)
        await message.hover()
        await message.get_by_role("button", name=action).click()

    async def open_ledger(self) -> Locator:
        ledger = self.page.get_by_role("complementary", name="What the ledger says")
        if not await ledger.is_visible():
            await self.page.get_by_role("button", name="Ledger", exact=True).click()
        await expect(ledger).to_be_visible()
        return ledger

    # -- what people see

    @property
    def thread(self) -> Locator:
        return self.page.locator("#replies")

    @property
    def working_line(self) -> Locator:
        return self.page.locator("#status")

    def button(self, text: str | re.Pattern[str]) -> Locator:
        """Buttons of cards by what stands on them; their names are longer, for those who can't see the card."""
        return self.thread.locator(".block-button").filter(has_text=text)

    def message(self, words: str) -> Locator:
        return self.thread.locator("article").filter(has_text=words).last

    async def reads(self, words: str | re.Pattern[str], times: int = 1) -> None:
        """Wait until these words stand in the thread."""
        await expect(self.thread.get_by_text(words)).to_have_count(times)

    async def has_sign(self, words: str, sign: str) -> None:
        """Wait for a reaction on the first message with these words: cards quote them later."""
        said = self.thread.locator("article").filter(has_text=words).first
        await expect(said.get_by_role("button", name=f"{sign}, 1", exact=True)).to_be_visible()

    async def looks_at_the_slow_logs(self) -> None:
        """Wait for the second step, in which one of three calls is slow."""
        await self.reads("Investigating: running loki query.")

    # -- how fast the far ends are

    def slow_logs(self, seconds: float = SLOW_S) -> None:
        self.town.world.slow("loki", seconds, match="web-3")

    @property
    def model(self) -> ScriptedModel:
        assert self.town.model is not None
        return self.town.model
