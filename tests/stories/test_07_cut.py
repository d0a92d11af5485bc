"""Story 7, continued: a steer, a stop and a restart between any two rungs of the ladder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import FIRST_BYTE, MIDDLE, Reply, call, hold_until, http_error, nothing, say, stop_reason
from core.limits import Limits
from tests.support.rooms import NEVER, FarEnds, Room, far_ends, program
from tests.support.scene import tool
from tests.support.thread import ONCALL, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(quiet_s=0.0, quiet_max_s=0.0, poll_s=0.2, drain_s=15.0, drain_stream_margin_s=14.8)
MAIN, FALLBACK = "claude-sonnet-5-5", "claude-opus-5-5"
CUT_OFF = say("It began at 14:05 with") + stop_reason("max_tokens")
HELD = say("Half of an answer") + hold_until(NEVER, MIDDLE)
UP_TO: dict[int, list[Reply]] = {1: [nothing()], 2: [CUT_OFF, CUT_OFF], 3: [nothing(), nothing()]}
"""What brings a turn to each rung; on the fourth nothing is asked."""

Cut = Callable[[Room], Coroutine[Any, Any, Any]]
CUTS: dict[str, tuple[Cut, str, str]] = {
    "steer": (lambda room: room.reply("look at the gateway instead"), "steered", "steer"),
    "button": (lambda room: room.press("stop_step"), "stopped_step", "stop"),
    "word": (lambda room: room.reply("刹车，先停一下，我还没确认范围"), "stopped_step", "stop"),
    "cancel": (lambda room: room.reply("取消"), "cancelled", "stop"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    tools = [tool("metrics")]
    async with far_ends(tmp_path_factory.mktemp("cut")) as made, program(made, limits=LIMITS, tools=tools):
        yield made
        made.sound()


@pytest.mark.parametrize("rung", UP_TO)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_cut_on_any_rung_ends_the_ladder_and_is_never_taken_for_an_empty_turn(
    ends: FarEnds, cut: str, rung: int
) -> None:
    do, reason, stamp = CUTS[cut]
    room = ends.room(f"{cut}{rung}", *UP_TO[rung], HELD, say("Going on from there."))
    await room.ask()
    await room.held(len(UP_TO[rung]) + 1)
    await room.cards()
    await do(room)
    turns = 2 if cut == "steer" else 1
    assert (await room.released(turns))[0] == reason

    assert room.all("turns", "number")[0]["rung"] == rung
    assert (await room.settles())[0]["final_event_id"] is None
    attempt = room.all("attempts")[0]
    assert (attempt["ended"], attempt["stamp"]) == ("cut", stamp)
    assert not room.all("diagnoses") and not room.all("automation")
    assert "Half of an answer" not in json.dumps(room.all("entries"))
    assert "Half of an answer" not in json.dumps(ends.slack.every_version(room.channel))
    card = shown((await room.cards())[0])
    assert f"<@{ONCALL}>" in card and "No answer" not in card and "before the first step" in card

    if cut != "steer":
        assert len(room.requests()) == len(UP_TO[rung]) + 1, "nothing starts after a stop"
        assert not room.every("answer")
        await room.reply("<@U0PILOT> go on")
        await room.released(2)
    last = room.requests()[-1]
    assert (last["model"], last["max_tokens"], "tool_choice" in last) == (MAIN, 4096, False)
    assert [row["reason"] for row in await room.settles()] == [reason, "completed"]
    answers = [shown(post) for post in await room.answers()]
    assert len(answers) == 1 and "Going on from there." in answers[0]


@pytest.mark.parametrize("cut", ["steer", "button"])
async def test_a_cut_does_not_wait_for_a_model_that_asked_to_be_left_alone(ends: FarEnds, cut: str) -> None:
    do, reason, _ = CUTS[cut]
    busy = http_error(429, "rate_limit_error", "Number of requests has exceeded your limit", {"retry-after": "60"})
    room = ends.room(f"busy{cut}", busy, say("As you say."))
    await room.ask()
    await room.asked(1)
    await room.cards()
    await do(room)
    assert (await room.released())[0] == reason
    assert not room.all("diagnoses")


async def test_a_ladder_goes_on_at_the_same_rung_on_the_next_worker(tmp_path: Path) -> None:
    async with far_ends(tmp_path) as ends:
        seen = asyncio.Event()
        over = say("Carried over.") + hold_until(seen)
        rooms = {rung: ends.room(f"drain{rung}", *UP_TO[rung], HELD, over) for rung in UP_TO}
        atfirst = ends.room("drain0", call("metrics", q="up"), HELD, nothing(), over)
        every = [atfirst, *rooms.values()]
        async with program(ends, limits=LIMITS, tools=[tool("metrics")]):
            await asyncio.gather(*(room.ask() for room in every))
            await asyncio.gather(atfirst.held(2), *(room.held(len(UP_TO[rung]) + 1) for rung, room in rooms.items()))
            await asyncio.gather(*(room.cards() for room in every))
        for room in every:
            assert room.all("sessions")[0]["lease_owner"] is None
            assert [(row["ended"], row["stamp"]) for row in room.all("attempts")] == [("drained", "drain")]
            assert not room.all("settles")
        async with program(ends, limits=LIMITS, tools=[tool("metrics")]):
            for room in every:
                await room.until(lambda room=room: "Picked up again after a restart." in shown(room.own("card")[0]))
            seen.set()
            await asyncio.gather(*(room.released() for room in every))
        for rung, room in rooms.items():
            asked = [(body["model"], body["max_tokens"]) for body in room.requests()]
            assert asked[-1] == asked[-2] and asked[-1][0] == (FALLBACK if rung == 3 else MAIN)
            assert room.requests()[-1]["messages"] == room.requests()[-2]["messages"], "it is not asked twice over"
            assert room.all("turns")[0]["rung"] == rung
        assert atfirst.all("turns")[0]["rung"] == 1
        for room in every:
            assert [row["reason"] for row in room.all("settles")] == ["completed"]
            assert [(row["ended"], row["stamp"]) for row in room.all("attempts")] == [
                ("drained", "drain"),
                ("finished", None),
            ]
            assert room.all("turns")[0]["crashes"] == 0, "a drain is no crash"
            assert len(room.every("card")) == 1 and len(room.every("answer")) == 1
        ends.sound()


async def test_a_ladder_that_all_workers_drained_from_still_ends_with_the_honest_summary(tmp_path: Path) -> None:
    async with far_ends(tmp_path) as ends:
        room = ends.room("tired", call("metrics", q="up"), nothing(), HELD, nothing(), HELD, nothing())
        for requests in (3, 5):
            async with program(ends, limits=LIMITS, tools=[tool("metrics")]):
                if room.root is None:
                    await room.ask()
                await room.held(requests)
        async with program(ends, limits=LIMITS, tools=[tool("metrics")]):
            assert await room.released() == ["empty"]
        assert len(room.all("attempts")) == 3
        assert len(room.all("diagnoses")) == 1
        assert "metrics says" in shown((await room.answers())[0])
        ends.sound()


async def test_what_holds_the_first_byte_back_is_dropped_as_well(ends: FarEnds) -> None:
    room = ends.room("firstbyte", nothing(), hold_until(NEVER, FIRST_BYTE), say("As you say."))
    await room.ask()
    await room.held(2)
    await room.reply("look at the gateway instead")
    assert await room.released(2) == ["steered", "completed"]
