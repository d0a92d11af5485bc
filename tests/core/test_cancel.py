"""Cancelled is not failed: one reason of a closed list, and the first one stays."""

from __future__ import annotations

import asyncio

from core.cancel import SAYS, Cancel, CancelToken
from tests.support.virtual_time import in_virtual_time


def test_every_reason_can_be_said_in_words() -> None:
    assert set(SAYS) == set(Cancel)
    assert all(words and words[0].islower() and not words.endswith(".") for words in SAYS.values())


@in_virtual_time
async def test_the_first_reason_stays() -> None:
    token = CancelToken()
    assert not token.cancelled and token.reason is None
    assert token.cancel(Cancel.STEER)
    assert not token.cancel(Cancel.CANCEL_TASK)
    assert token.cancelled and token.reason is Cancel.STEER


@in_virtual_time
async def test_who_waits_and_who_asks_late_hear_the_same() -> None:
    token = CancelToken()
    waiting = asyncio.ensure_future(token.wait())
    await asyncio.sleep(1)
    assert not waiting.done()
    token.cancel(Cancel.STOP_STEP)
    assert await waiting is Cancel.STOP_STEP
    assert await token.wait() is Cancel.STOP_STEP
