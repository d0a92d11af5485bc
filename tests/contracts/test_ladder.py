"""Between two rungs, exactly: what is committed after one answer came up empty and before the next question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from core.ports import ModelAnswer, ModelRequest
from storage.database import Database
from tests.support.scene import BOT, FAST, Scene, answer, scene

ASK = f"<@{BOT}> checkout answers 5xx, what is going on?"
EMPTY = answer("")
CUT_OFF = answer("It began at", stop_reason="max_tokens")
SOON = replace(FAST, drain_s=4.0, drain_stream_margin_s=3.9)
GAPS: dict[str, tuple[list[ModelAnswer], ModelAnswer]] = {
    "ground and 1": ([], EMPTY),
    "1 and 2": ([CUT_OFF], CUT_OFF),
    "1 and 3": ([EMPTY], EMPTY),
    "2 and 3": ([CUT_OFF, CUT_OFF], CUT_OFF),
    "3 and the summary": ([EMPTY, EMPTY], EMPTY),
}
"""What was said before, and the answer in whose last moment somebody speaks."""


async def steer(thread: Scene) -> None:
    await thread.say("look at the gateway")


async def stop(thread: Scene) -> None:
    await thread.stop()


async def told(
    database: Database, gap: str, speak: Callable[[Scene], Awaitable[None]]
) -> tuple[list[str], dict[str, list[dict[str, Any]]], list[ModelRequest]]:
    """The reasons, some tables and the requests of a thread in which somebody speaks in the gap."""
    before, last = GAPS[gap]
    spoken: list[Scene] = []

    async def at_the_last_moment(_request: ModelRequest) -> ModelAnswer:
        await speak(spoken[0])
        return last

    lines = [*before, at_the_last_moment, answer("As you say.")]
    async with scene(database, lines, fallback="claude-other") as thread:
        spoken.append(thread)
        await thread.say(ASK)
        reasons = await thread.settled(2 if speak is steer else 1)
        tables = {name: await thread.rows(name) for name in ("diagnoses", "attempts", "outbox", "settles", "turns")}
        assert not thread.faults
        return reasons, tables, thread.model.requests


@pytest.mark.parametrize("gap", GAPS)
async def test_a_steer_between_two_rungs_ends_the_ladder_as_steered(sqlite_database: Database, gap: str) -> None:
    reasons, tables, requests = await told(sqlite_database, gap, steer)
    assert reasons == ["steered", "completed"]
    assert not tables["diagnoses"]
    assert tables["attempts"][0]["stamp"] == "steer"
    assert len(requests) == len(GAPS[gap][0]) + 2, "no rung was asked after it"
    assert not requests[-1].without_tools
    answers = [row["body"] for row in tables["outbox"] if row["kind"] == "answer"]
    assert len(answers) == 1 and "As you say." in answers[0], "no summary of what was redirected"


@pytest.mark.parametrize("gap", GAPS)
async def test_a_stop_between_two_rungs_ends_the_ladder_as_stopped(sqlite_database: Database, gap: str) -> None:
    reasons, tables, requests = await told(sqlite_database, gap, stop)
    assert reasons == ["stopped_step"]
    assert not tables["diagnoses"]
    assert tables["attempts"][0]["stamp"] == "stop"
    assert len(requests) == len(GAPS[gap][0]) + 1
    assert not [row for row in tables["outbox"] if row["kind"] == "answer"]


@pytest.mark.parametrize("words", ["look at the gateway", "<@U0OTHER> can you look at the db?"])
async def test_words_that_come_while_nobody_works_on_a_rung_do_not_join_its_turn(
    sqlite_database: Database, words: str
) -> None:
    """A steer ends the turn, a note waits for the next one: neither is answered by a rung, which may use no tools."""
    lines: list[Any] = [EMPTY, _held]
    async with scene(sqlite_database, lines, limits=SOON) as thread:
        await thread.say(ASK)
        await thread.until(lambda: _asked(thread, 2))
    assert [row["stamp"] for row in await thread.rows("attempts")] == ["drain"]
    async with scene(sqlite_database, [], running=False, name="between") as thread:
        thread.clock += 60
        await thread.say(words)
    async with scene(sqlite_database, [answer("One."), answer("Two.")], name="worker-2") as thread:
        steers = "gateway" in words
        reasons = await thread.settled(2 if steers else 1)
        assert reasons == (["steered", "completed"] if steers else ["completed"])
        requests = thread.model.requests
        assert len(requests) == 1
        assert requests[0].without_tools is not steers
        assert (words.split()[-1] in str(requests[0].messages)) is steers
        assert not thread.faults


async def _held(_request: ModelRequest) -> ModelAnswer:
    await asyncio.Event().wait()
    raise AssertionError("nobody waits that long")


async def _asked(thread: Scene, times: int) -> bool:
    return len(thread.model.requests) >= times
