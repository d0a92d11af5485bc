"""Does the API know the configured models: asked when the program starts, and again every while until it does.

A wrong name fails every turn, and a key that was revoked too; here it is one line in the log and a warning of
`/healthz` right at the start. It keeps nobody waiting and ends nothing: what stands in front of the API may know more
than it lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from bot.doctor.finding import Finding
from bot.http import Health, Part

log = structlog.get_logger(__name__)

AGAIN_S = 60.0

Ask = Callable[[], Awaitable[Sequence[Finding]]]


class ModelNames:
    """Asks in the background from `start` to `close`; `part` is what `/healthz` shows."""

    def __init__(self, ask: Ask, again_s: float = AGAIN_S) -> None:
        self._ask = ask
        self._again_s = again_s
        self._found: Sequence[Finding] = ()
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._asking = asyncio.create_task(self._until_known(), name="model names")

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def part(self) -> Part:
        """Never failing: starting the program again would not help."""
        if not self._found:
            return Part(Health.OK, "Whether the API knows the models is being asked.")
        worse = [one for one in self._found if one.health is not Health.OK]
        says = " ".join(one.says for one in worse or self._found)
        return Part(Health.WARNING if worse else Health.OK, says)

    async def _until_known(self) -> None:
        while True:
            found = await self._ask()
            if list(found) != list(self._found):
                _tell(found)
            self._found = found
            if all(one.health is Health.OK for one in found):
                return
            await asyncio.sleep(self._again_s)


def _tell(found: Sequence[Finding]) -> None:
    for one in found:
        if one.health is Health.FAILING:
            log.error("model_not_usable", which=one.check, says=one.says)
        elif one.health is Health.WARNING:
            log.warning("model_in_doubt", which=one.check, says=one.says)
