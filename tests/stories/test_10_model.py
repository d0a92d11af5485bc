"""Story 10, streams: a broken, busy or hostile stream runs nothing and stops nobody from stopping."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from bot.playground.model import (
    MESSAGE_STOP,
    MIDDLE,
    broken_call,
    call,
    cut_after,
    error_event_after,
    hold_until,
    http_error,
    no_message_stop,
    say,
)
from tests.support.replay import Stage, ended, stored
from tests.support.rooms import Room
from tests.support.thread import ONCALL, shown

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

HUGE = "9" * 5_000


def results_of(room: Room) -> list[str]:
    """The results in the last user message that the model got."""
    content = room.requests()[-1]["messages"][-1]["content"]
    return [str(block["content"]) for block in content if block["type"] == "tool_result"]


@pytest.mark.parametrize(
    ("word", "reply"),
    [
        ("midtool", say("Looking.") + call("look", room="midtool") + cut_after(6)),
        ("nostop", call("look", room="nostop") + no_message_stop()),
        ("lastmoment", call("look", room="lastmoment") + cut_after(MESSAGE_STOP)),
        ("overloaded", call("look", room="overloaded") + error_event_after(MIDDLE)),
        ("refused529", http_error(529, "overloaded_error", "Overloaded")),
    ],
)
async def test_a_call_of_an_answer_that_never_ended_is_not_run_and_leaves_no_trace(
    stage: Stage, word: str, reply: object
) -> None:
    room = stage.room(word, reply, say("It was the gateway."))
    await room.ask()
    await ended(room, "completed")
    assert word not in stage.gate.began and room.all("calls") == []
    assert len(room.requests()) == 2 and len(room.every("answer")) == 1
    assert room.requests()[0]["messages"] == room.requests()[1]["messages"]
    assert "Looking." not in stored(room) + str(room.every("answer"))


@pytest.mark.parametrize("raw", ['{"room": "x', "[1, 2]", '{"room": }', "", '"text"', "{" * 100])
async def test_arguments_that_are_no_object_are_refused_and_the_history_stays_valid(stage: Stage, raw: str) -> None:
    word = f"broken{len(raw)}"
    room = stage.room(word, broken_call("look", raw), say("It was the gateway."))
    await room.ask()
    await ended(room, "completed")
    statuses = [row["status"] for row in room.all("calls")]
    assert statuses in (["refused"], ["ok"] if raw == "" else ["refused"])
    assert len(results_of(room)) == 1 and word not in stage.gate.began


async def test_a_number_of_five_thousand_digits_is_only_a_long_argument(stage: Stage) -> None:
    room = stage.room("huge", broken_call("look", f'{{"room": "huge", "n": {HUGE}}}'), say("Looked."))
    await room.ask()
    await ended(room, "completed")
    assert [row["status"] for row in room.all("calls")] == ["ok"]
    assert HUGE in room.all("calls")[0]["arguments"]


async def test_a_tool_that_is_not_offered_is_an_error_result_and_a_row(stage: Stage) -> None:
    room = stage.room("shell", call("run_shell", command="rm -rf /"), say("I can't do that."))
    await room.ask()
    await ended(room, "completed")
    assert [(row["tool"], row["status"]) for row in room.all("calls")] == [("run_shell", "refused")]
    assert "run_shell" in results_of(room)[0] and "look" in results_of(room)[0]


async def test_a_stop_is_heard_while_the_model_asks_to_be_left_alone_for_half_a_minute(stage: Stage) -> None:
    busy = http_error(429, "rate_limit_error", "slow down", {"retry-after": "30"})
    room = stage.room("leftalone", busy)
    await room.ask()
    await room.until(lambda: len(room.requests()) == 1)
    began = time.monotonic()
    await room.reply("stop", ONCALL)
    await ended(room, "stopped_step")
    assert time.monotonic() - began < 20 and len(room.requests()) == 1


async def test_a_stop_is_heard_while_a_request_is_under_way(stage: Stage) -> None:
    never = asyncio.Event()
    room = stage.room("underway", say("I think that") + hold_until(never))
    await room.ask()
    await room.until(lambda: len(room.seen()) == 1 and room.seen()[0].holding)
    began = time.monotonic()
    await room.reply("cancel", ONCALL)
    await ended(room, "cancelled")
    assert time.monotonic() - began < 20
    never.set()
    await room.until(lambda: room.seen()[0].finished == "dropped")
    assert "I think that" not in json.dumps([shown(message) for message in room.messages()])
