"""One virtual time for the event loop and the database: leases and pauses cost nothing, and every run is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.support.virtual_time import VirtualTimeLoop

T = TypeVar("T")

EPOCH_S = 1_790_000_000.0
"""What the database's clock says when a loop begins."""

TICK_S = 1e-6


class SharedClock(VirtualTimeLoop):
    """A loop in virtual time, whose time is the database's too."""

    def pass_time(self, seconds: float) -> None:
        self._jumping.now += seconds

    def database_now(self) -> float:
        """The database's clock. It moves a little with each look, so that what is later is never equal."""
        self.pass_time(TICK_S)
        return EPOCH_S + self.time()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a loop of its own."""
    with asyncio.Runner(loop_factory=SharedClock) as runner:
        return runner.run(main)
