"""An event loop whose clock jumps to its next timer: nothing really sleeps, an hour takes a millisecond.

What waits for something that no timer and no task will ever bring is found at once: `Stuck` is raised instead of
waiting. Real descriptors are polled, never waited for, so nothing here may depend on a thread or a socket.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_S = 10_000_000.0


class Stuck(AssertionError):
    """Everything waits, and nothing is left that could happen."""


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: it tells the loop's clock how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Stuck("every task waits for something that will never happen")
        self.now += max(0.0, timeout)
        if self.now > LONGEST_S:
            raise Stuck(f"still busy after {LONGEST_S:.0f} s")
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at 0 s and jumps."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """An async test as a plain one that runs in virtual time."""

    @functools.wraps(test)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return wrapped


def now() -> float:
    """The seconds of the running loop's clock."""
    return asyncio.get_running_loop().time()


async def ends_within(work: Awaitable[T], seconds: float) -> T:
    """The result of `work`, which must be there within `seconds` of virtual time."""
    began = now()
    result = await work
    assert now() - began <= seconds, f"took {now() - began:g} s, not {seconds:g} s"
    return result
