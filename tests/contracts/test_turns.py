"""Whole turns over the real ledger: what ends them, what follows, and what the history looks like afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.messages import Level
from core.ports import ModelAnswer, ModelRequest, ToolOutput
from core.validator import problems
from storage.database import Database
from tests.support.scene import BOT, FAST, answer, scene, tool

ASK = f"<@{BOT}> checkout answers 5xx, what is going on?"


async def test_a_question_is_answered_with_what_the_tools_said(sqlite_database: Database) -> None:
    lines = [answer("", ("metrics", {"q": "up"}), ("logs", {"q": "error"})), answer("It is the gateway.")]
    async with scene(sqlite_database, lines, [tool("metrics"), tool("logs")]) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        settle = (await thread.rows("settles"))[0]
        entries = await thread.rows("entries", "seq")
        assert [entry["kind"] for entry in entries] == ["user", "assistant", "results", "assistant"]
        assert settle["final_event_id"] == entries[-1]["id"]
        assert settle["cost_usd"] > 0
        assert [row["status"] for row in await thread.rows("calls")] == ["ok", "ok"]
        answers = [row for row in await thread.rows("outbox") if row["kind"] == "answer"]
        assert len(answers) == 1
        assert not problems({"messages": thread.model.requests[-1].messages, "tools": [{"name": "metrics"}]})


async def test_a_reply_while_a_batch_runs_cuts_at_its_end_and_starts_the_next_turn(
    sqlite_database: Database,
) -> None:
    slow_began = asyncio.Event()

    async def slow(arguments: Mapping[str, Any]) -> ToolOutput:
        slow_began.set()
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    lines = [
        answer("", ("metrics", {}), ("logs", {}), ("slow", {})),
        answer("The gateway it is."),
    ]
    async with scene(sqlite_database, lines, [tool("metrics"), tool("logs"), tool("slow", slow)]) as thread:
        await thread.say(ASK)
        await slow_began.wait()
        await thread.say("don't look at that host, it's the gateway", who="U0ENGINEER")
        assert await thread.settled(2) == ["steered", "completed"]
        first = (await thread.rows("settles", "created_at"))[0]
        assert first["final_event_id"] is None
        assert first["ended_by"] == "U0ENGINEER"
        statuses = {row["tool"]: row["status"] for row in await thread.rows("calls")}
        assert statuses == {"metrics": "ok", "logs": "ok", "slow": "cancelled"}
        assert [row["stamp"] for row in await thread.rows("attempts", "started_at")] == ["steer", None]
        last = thread.model.requests[-1].messages
        assert "it's the gateway" in str(last[-1]["content"][-1])
        assert "Nothing was read" in str(last[-1]["content"])
        assert not await thread.rows("diagnoses")
        turns = await thread.rows("turns", "number")
        assert turns[1]["predecessor_id"] == turns[0]["id"]
        assert not thread.faults


async def test_a_reply_while_the_model_writes_throws_the_half_answer_away(sqlite_database: Database) -> None:
    writing = asyncio.Event()

    async def half(_request: ModelRequest) -> ModelAnswer:
        writing.set()
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    async with scene(sqlite_database, [half, answer("As you say.")]) as thread:
        await thread.say(ASK)
        await writing.wait()
        await thread.say("it's the gateway")
        assert await thread.settled(2) == ["steered", "completed"]
        kinds = [entry["kind"] for entry in await thread.rows("entries", "seq")]
        assert kinds == ["user", "user", "assistant"]
        costs = await thread.rows("costs")
        assert [bool(cost["estimated"]) for cost in costs] == [True, False]


async def test_a_stop_ends_the_step_and_the_next_reply_goes_on(sqlite_database: Database) -> None:
    began = asyncio.Event()

    async def slow(arguments: Mapping[str, Any]) -> ToolOutput:
        began.set()
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    lines = [answer("", ("slow", {})), answer("Going on.")]
    async with scene(sqlite_database, lines, [tool("slow", slow)]) as thread:
        await thread.say(ASK)
        await began.wait()
        await thread.say("stop, wrong cluster", who="U0ENGINEER")
        assert await thread.settled(1) == ["stopped_step"]
        assert len(thread.model.requests) == 1
        await thread.say("look at eu-west instead", who="U0ENGINEER")
        assert await thread.settled(2) == ["stopped_step", "completed"]
        said = str(thread.model.requests[-1].messages)
        assert "wrong cluster" in said
        assert "stop" not in said.replace("a person stopped this step", "")


async def test_a_stop_that_is_older_than_the_question_does_not_touch_it(sqlite_database: Database) -> None:
    async with scene(sqlite_database, [answer("Hello.")]) as thread:
        await thread.stop(Level.TASK, ts="1790000001.000000")
        await thread.say(ASK, ts="1790000002.000000")
        assert await thread.settled() == ["completed"]


async def test_a_stop_that_is_newer_than_a_late_question_keeps_it_from_starting(
    sqlite_database: Database,
) -> None:
    async with scene(sqlite_database, []) as thread:
        await thread.stop(Level.STEP, ts="1790000009.000000")
        arrived = await thread.say(ASK, ts="1790000002.000000")
        assert arrived.turn is None
        assert (await thread.rows("messages", "arrived_at"))[-1]["state"] == "stopped"
        told = [row for row in await thread.rows("outbox") if row["kind"] == "ephemeral"]
        assert "Stopped before it started" in told[-1]["body"]


async def test_a_turn_that_produced_nothing_climbs_the_ladder_and_says_so_honestly(
    sqlite_database: Database,
) -> None:
    lines = [answer("", ("metrics", {})), answer(""), answer(""), answer("")]
    async with scene(sqlite_database, lines, [tool("metrics")], fallback="claude-other") as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["empty"]
        assert [request.model for request in thread.model.requests][-1] == "claude-other"
        assert all(request.without_tools for request in thread.model.requests[2:])
        assert len(await thread.rows("diagnoses")) == 1
        posted = [row for row in await thread.rows("outbox") if row["kind"] == "answer"]
        assert "metrics" in posted[0]["body"]


async def test_a_steer_between_two_rungs_ends_the_ladder_as_steered(sqlite_database: Database) -> None:
    hold = asyncio.Event()
    reached = asyncio.Event()

    async def rung(_request: ModelRequest) -> ModelAnswer:
        reached.set()
        await hold.wait()
        return answer("")

    async with scene(sqlite_database, [answer(""), rung, answer("Fine.")]) as thread:
        await thread.say(ASK)
        await reached.wait()
        await thread.say("look at the gateway")
        assert await thread.settled(2) == ["steered", "completed"]
        assert not await thread.rows("diagnoses")


async def test_fifty_clicks_are_one_stop(sqlite_database: Database) -> None:
    began = asyncio.Event()

    async def slow(arguments: Mapping[str, Any]) -> ToolOutput:
        began.set()
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    async with scene(sqlite_database, [answer("", ("slow", {}))], [tool("slow", slow)]) as thread:
        await thread.say(ASK)
        await began.wait()
        await asyncio.gather(*(thread.stop(ts=f"{thread.clock + 0.02 * number:.6f}") for number in range(1, 51)))
        assert await thread.settled() == ["stopped_step"]
        assert len(await thread.rows("stops")) == 1


async def test_queued_words_run_after_the_turn_as_one(sqlite_database: Database) -> None:
    hold = asyncio.Event()

    async def first(_request: ModelRequest) -> ModelAnswer:
        await hold.wait()
        return answer("First.")

    async with scene(sqlite_database, [first, answer("Second.")]) as thread:
        await thread.say(ASK)
        await thread.say("+ also check the db")
        await thread.say("+ and the cache")
        hold.set()
        assert await thread.settled(2) == ["completed", "completed"]
        last = str(thread.model.requests[-1].messages[-1])
        assert "also check the db" in last and "and the cache" in last


async def test_a_stop_between_two_words_of_a_waiting_turn_takes_only_the_older_one(
    sqlite_database: Database,
) -> None:
    writing = asyncio.Event()

    async def half(_request: ModelRequest) -> ModelAnswer:
        writing.set()
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    slow = replace(FAST, quiet_s=0.5, quiet_max_s=2.0)
    async with scene(sqlite_database, [half, answer("Fine.")], limits=slow) as thread:
        await thread.say(ASK, ts="1790000001.000000")
        await writing.wait()
        await thread.say("look at the gateway", ts="1790000012.000000")
        await thread.say("look at the cache", ts="1790000010.000000")

        async def waits() -> bool:
            return len(await thread.rows("turns")) == 2

        await thread.until(waits)
        await thread.stop(Level.STEP, ts="1790000011.000000")
        assert (await thread.settled(2))[-1] == "completed"
        said = str(thread.model.requests[-1].messages)
        assert "the gateway" in said and "the cache" not in said


async def test_a_model_that_spins_is_answered_from_evidence_and_a_new_turn_looks_again(
    sqlite_database: Database,
) -> None:
    look = ("metrics", {"q": "up"})
    lines = [*[answer("", look) for _ in range(4)], answer("All up."), answer("", look), answer("Still up.")]
    counted = tool("metrics")
    async with scene(sqlite_database, lines, [counted]) as thread:
        await thread.say(ASK)
        await thread.settled()
        assert counted.began == 2
        rows = await thread.rows("calls", "step")
        assert [row["status"] for row in rows] == ["ok"] * 4
        told = ["You have this already, from step 2" in row["output_summary"] for row in rows]
        assert told == [False, False, True, True]
        await thread.say(f"<@{BOT}> and now?")
        await thread.settled(2)
        assert counted.began == 3


async def test_a_worker_that_takes_over_knows_what_was_asked_twice(sqlite_database: Database) -> None:
    look = ("metrics", {"q": "up"})
    third = asyncio.Event()

    async def crash(request: ModelRequest) -> ModelAnswer:
        third.set()
        await asyncio.sleep(60)
        raise AssertionError("nobody waits that long")

    counted = tool("metrics")
    async with scene(sqlite_database, [answer("", look), answer("", look), crash], [counted]) as first:
        await first.say(ASK)
        await third.wait()
    lines = [answer("", look), answer("All up.")]
    async with scene(sqlite_database, lines, [counted], name="worker-2") as second:
        assert await second.settled() == ["completed"]
        assert counted.began == 2
        assert "You have this already, from step 2" in str(second.model.requests[-1].messages)
