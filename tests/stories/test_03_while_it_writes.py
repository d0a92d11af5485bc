"""Story 3: a reply while the model writes throws the half answer away; one that comes as it ends does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.app import build
from bot.playground.model import FIRST_BYTE, MESSAGE_STOP, MIDDLE, Place, call, hold_until, say, think
from tests.support.story import QUICK, holds, quick, said_in_slack, sent, signed, taken, words_of, writing
from tests.support.thread import ENGINEER, ONCALL, Thread, in_town, shown

REDIRECTION = "don't look at that host, it's the gateway"
HALF = "I am quite sure that host web-3 is to blame for all of it, and I will go on about it at length. "
DEAF = replace(QUICK, poll_s=60.0)
"""Limits of a worker that hears of mail by the bell only."""


@asynccontextmanager
async def listening_elsewhere(thread: Thread) -> AsyncIterator[None]:
    """From now on another process takes what comes from Slack, and no bell of it is heard here."""
    settings = thread.town.settings
    async with build(settings, limits=DEAF, tools=[]) as other:
        await thread.town.app.connection.close()
        await thread.until(lambda: not thread.slack.wire.sockets)
        await other.connection.open()
        await thread.slack.connected(1)
        try:
            yield
        finally:
            await other.connection.close()


@pytest.mark.parametrize("at", [FIRST_BYTE, MIDDLE, MESSAGE_STOP])
async def test_the_half_answer_is_thrown_away_and_nothing_of_it_is_in_the_history(tmp_path: Path, at: Place) -> None:
    never = asyncio.Event()
    half = think("It must be web-3.") + say(HALF * 3) + hold_until(never, at)
    async with in_town(tmp_path, limits=QUICK, script=[half, say("It is the gateway.")]) as thread:
        question = await thread.ask()
        await writing(thread, 0)
        reply = await thread.reply(REDIRECTION)
        await holds(thread, ["steered", "completed"], never_sent=["web-3 is to blame", "It must be web-3"])

        assert thread.town.model is not None
        assert thread.town.model.requests[0].finished == "dropped"
        entries = await thread.rows("entries", "seq")
        assert [entry["kind"] for entry in entries] == ["user", "user", "assistant"]
        assert "web-3" not in str([entry["body"] for entry in entries]) and "web-3" not in said_in_slack(thread)
        assert [words.partition(": ")[2] for words in words_of(thread.requests()[1])] == [
            "checkout answers 5xx since 14:05, what is going on?",
            REDIRECTION,
        ]
        steered = (await thread.settles())[0]
        assert (steered["final_event_id"], steered["ended_by"], steered["step"]) == (None, ONCALL, 0)
        if at is not FIRST_BYTE:
            dropped = next(cost for cost in await thread.rows("costs") if cost["estimated"])
            assert dropped["turn_id"] == steered["turn_id"] and dropped["usd"] > 0
        assert "Redirected by <@U0ONCALL> before the first step, continued below." in thread.own("card")[0]["text"]
        await signed(thread, question, "eyes")
        await signed(thread, reply, "leftwards_arrow_with_hook")


async def test_calls_of_a_half_answer_never_run(tmp_path: Path) -> None:
    metrics = quick("metrics")
    half = say("Let me look at web-3.") + call("metrics", host="web-3") + hold_until(asyncio.Event(), MESSAGE_STOP)
    async with in_town(tmp_path, limits=QUICK, script=[half, say("Fine.")], tools=[metrics]) as thread:
        await thread.ask()
        await writing(thread, 0)
        await thread.reply(REDIRECTION)
        await holds(thread, ["steered", "completed"], never_sent=["web-3"])
        assert metrics.began == 0 and await thread.rows("calls") == []


async def test_an_answer_that_has_just_ended_is_posted_and_the_reply_starts_the_next_turn(tmp_path: Path) -> None:
    end = asyncio.Event()
    script = [say("It is the rollout of 14:04.") + hold_until(end, MESSAGE_STOP), say("The gateway it is.")]
    async with in_town(tmp_path, limits=DEAF, script=script) as thread:
        await thread.ask()
        await writing(thread, 0)
        async with listening_elsewhere(thread):
            reply = await taken(thread, await thread.reply(REDIRECTION))
            assert reply["disposition"] == "steer"
            end.set()
            await holds(thread, ["completed", "completed"])

        first, second = await thread.answers(2)
        assert "It is the rollout of 14:04." in shown(first) and f"<@{ENGINEER}>" in shown(first)
        assert "The gateway it is." in shown(second) and f"<@{ONCALL}>" in shown(second)
        assert [request["messages"][-1]["role"] for request in thread.requests()] == ["user", "user"]
        assert words_of(thread.requests()[1]) == [f"<@{ONCALL}>: {REDIRECTION}"]
        assert "It is the rollout of 14:04." in sent(thread)
        attempts = await thread.rows("attempts", "started_at")
        assert [(one["ended"], one["stamp"]) for one in attempts] == [("finished", None), ("finished", None)]
        assert all("Answered below." in card["text"] for card in thread.own("card"))


async def test_a_stop_as_the_answer_ends_wins_over_it(tmp_path: Path) -> None:
    end = asyncio.Event()
    script = [say("It is the rollout of 14:04.") + hold_until(end, MESSAGE_STOP)]
    async with in_town(tmp_path, limits=DEAF, script=script) as thread:
        await thread.ask()
        await writing(thread, 0)
        async with listening_elsewhere(thread):
            await taken(thread, await thread.reply("stop"))
            end.set()
            await holds(thread, ["stopped_step"])
        assert [entry["kind"] for entry in await thread.rows("entries")] == ["user"]
        assert thread.own("answer") == [] and "rollout of 14:04" not in said_in_slack(thread)
        assert "Stopped by <@U0ONCALL> before the first step." in thread.own("card")[0]["text"]


async def test_a_reply_after_the_answer_starts_the_next_turn(tmp_path: Path) -> None:
    async with in_town(tmp_path, limits=QUICK, script=[say("It is web-3."), say("The gateway.")]) as thread:
        await thread.ask()
        await holds(thread, ["completed"])
        reply = await thread.reply(REDIRECTION)
        await holds(thread, ["completed", "completed"])
        assert (await taken(thread, reply))["disposition"] == "start"
        await signed(thread, reply, "eyes")
        assert len(await thread.answers(2)) == 2
