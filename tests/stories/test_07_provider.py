"""Story 7, continued: no time left, a provider that fails, streams that break. None of it is mistaken for silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import repeat

import pytest
import pytest_asyncio

from bot.playground.model import (
    FIRST_BYTE,
    MIDDLE,
    Reply,
    call,
    cut_after,
    error_event_after,
    hold_until,
    http_error,
    insert_after,
    no_message_stop,
    nothing,
    raw,
    say,
)
from core.limits import Limits
from tests.support.rooms import NEVER, FarEnds, Room, far_ends, program
from tests.support.scene import tool
from tests.support.thread import shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(turn_s=6.0, reserve_s=3.0, rung_s=1.0, quiet_s=0.0, quiet_max_s=0.0, poll_s=0.2)

HALF = say("It began at 14:05 and half of it is written")
WHOLE = say("The gateway, whole.")
BUSY = http_error(429, "rate_limit_error", "Number of requests has exceeded your limit", {"retry-after": "0"})
OVERLOADED = http_error(529, "overloaded_error", "Overloaded")
NO_JSON = b"event: content_block_delta\ndata: {nobody can read this\n\n"
OF_TOMORROW = b'event: weather\ndata: {"type": "weather", "sky": "blue"}\n\n'

ROOMS: dict[str, list[Reply]] = {
    "hurried": [HALF + hold_until(NEVER, MIDDLE), WHOLE],
    "late": [HALF + hold_until(NEVER, MIDDLE), HALF + hold_until(NEVER, MIDDLE)],
    "latequiet": [hold_until(NEVER, FIRST_BYTE), nothing()],
    "stuckrung": [nothing(), hold_until(NEVER, FIRST_BYTE), say("The fallback knows it.")],
    "once429": [BUSY, WHOLE],
    "once500": [http_error(500, "api_error", "Internal server error"), WHOLE],
    "cut": [HALF + cut_after(MIDDLE), HALF + cut_after(MIDDLE), WHOLE],
    "nostop": [HALF + no_message_stop(), WHOLE],
    "errorevent": [HALF + error_event_after(MIDDLE), WHOLE],
    "nojson": [HALF + insert_after(MIDDLE, NO_JSON), WHOLE],
    "html": [raw(b"<html>a proxy's page</html>"), WHOLE],
    "tomorrow": [WHOLE + insert_after(MIDDLE, OF_TOMORROW)],
    "nokey": [http_error(401, "authentication_error", "invalid x-api-key")],
    "bricked": [http_error(400, "invalid_request_error", "messages.0: text content blocks must be non-empty")],
    "found": [call("metrics", q="up"), http_error(401, "authentication_error", "invalid x-api-key")],
}
FOR_EVER: dict[str, Reply] = {
    "always429": BUSY,
    "always529": OVERLOADED,
    "alwayscut": HALF + cut_after(MIDDLE),
    "alwaysnojson": HALF + insert_after(MIDDLE, NO_JSON),
    "alwayserror": HALF + error_event_after(MIDDLE),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    """All rooms at once, because each of them takes its time."""
    tools = [tool("metrics")]
    async with far_ends(tmp_path_factory.mktemp("provider")) as made, program(made, limits=LIMITS, tools=tools):
        rooms = [made.room(word, *replies) for word, replies in ROOMS.items()]
        rooms += [made.room(word, then=repeat(reply)) for word, reply in FOR_EVER.items()]
        await asyncio.gather(*(room.ask() for room in rooms))
        yield made
        made.sound()


async def completed(ends: FarEnds, word: str, requests: int) -> Room:
    """A room whose turn was answered after so many requests."""
    room = ends.rooms[word]
    assert await room.released() == ["completed"]
    assert len(room.requests()) == requests
    posted = [shown(post) for post in await room.answers()]
    assert len(posted) == 1
    assert not room.all("diagnoses")
    return room


async def failed(ends: FarEnds, word: str, detail: str) -> tuple[Room, str]:
    """A room whose turn failed, and its card."""
    room = ends.rooms[word]
    assert await room.released() == ["failed"]
    settle = room.all("settles")[0]
    assert (settle["detail"], settle["final_event_id"]) == (detail, None)
    assert [row["kind"] for row in room.all("diagnoses")] == [detail]
    assert not room.every("answer"), "nothing is posted as if it were an answer"
    card = await room.card()
    assert settle["known"][:60] in card and "'action_id': 'retry'" in card
    return room, card


# -- time


async def test_when_the_time_is_nearly_over_the_model_is_asked_for_its_answer_without_tools(ends: FarEnds) -> None:
    room = await completed(ends, "hurried", 2)
    last = room.requests()[1]
    assert "The time for this turn is nearly over" in last["messages"][-1]["content"][-1]["text"]
    assert last["tool_choice"] == {"type": "none"}
    assert [row["kind"] for row in room.all("entries", "seq")] == ["user", "ladder", "assistant"]
    assert [bool(row["estimated"]) for row in room.all("costs")] == [True, False], "what was dropped was spent"


@pytest.mark.parametrize("word", ["late", "latequiet"])
async def test_if_there_is_no_answer_by_then_the_turn_has_timed_out_and_says_so(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    assert await room.released() == ["timed_out"]
    assert len(room.requests()) == 2
    assert [row["kind"] for row in room.all("diagnoses")] == ["timed_out"]
    card = await room.card()
    assert "Reached its limit before the first step, before there was an answer." in card
    assert "The time for this turn ran out" in card
    assert "Press Retry, or reply here with something narrower." in card
    assert not room.every("answer")
    assert "half of it is written" not in json.dumps(room.all("entries"))


async def test_a_rung_that_takes_too_long_is_left_for_the_next_one(ends: FarEnds) -> None:
    room = await completed(ends, "stuckrung", 3)
    assert [body["model"] for body in room.requests()][-1] == "claude-opus-5-5"
    assert room.all("turns")[0]["rung"] == 3


# -- a provider that fails


@pytest.mark.parametrize(
    ("word", "requests"),
    [("once429", 2), ("once500", 2), ("cut", 3), ("nostop", 2), ("errorevent", 2), ("nojson", 2), ("html", 2)],
)
async def test_what_failed_is_asked_again_with_the_same_words(ends: FarEnds, word: str, requests: int) -> None:
    room = await completed(ends, word, requests)
    assert len({json.dumps(body) for body in room.requests()}) == 1, "the ladder has no part in it"
    assert [row["kind"] for row in room.all("entries", "seq")] == ["user", "assistant"]
    assert room.all("turns")[0]["rung"] == 0


@pytest.mark.parametrize("word", ["cut", "nostop", "errorevent", "nojson"])
async def test_nothing_of_a_broken_answer_is_kept_or_shown(ends: FarEnds, word: str) -> None:
    room = await completed(ends, word, len(ROOMS[word]))
    assert "half of it is written" not in json.dumps(room.all("entries"))
    assert "half of it is written" not in json.dumps(ends.slack.every_version(room.channel))


async def test_an_event_that_nobody_knows_yet_is_passed_over(ends: FarEnds) -> None:
    await completed(ends, "tomorrow", 1)


@pytest.mark.parametrize("word", FOR_EVER)
async def test_a_provider_that_fails_for_ever_is_told_and_is_not_taken_for_silence(ends: FarEnds, word: str) -> None:
    room, card = await failed(ends, word, "provider")
    assert "The model could not be reached before the first step, also after retries." in card
    assert "Press Retry in a few minutes. Nothing runs in the meantime." in card
    assert 2 <= len(room.requests()) <= 12
    assert room.all("turns")[0]["rung"] == 0
    assert "tries" in room.all("settles")[0]["known"]


async def test_a_busy_model_is_asked_when_it_said_that_it_may_be(ends: FarEnds) -> None:
    room, _ = await failed(ends, "always429", "provider")
    assert len(room.requests()) == 6
    assert "exceeded your limit" in room.all("settles")[0]["known"]


async def test_a_wrong_key_is_not_tried_twice(ends: FarEnds) -> None:
    room, card = await failed(ends, "nokey", "provider")
    assert len(room.requests()) == 1
    assert "set ANTHROPIC_API_KEY to a valid key" in card


async def test_a_conversation_that_the_api_refuses_is_never_sent_again_as_it_is(ends: FarEnds) -> None:
    room, card = await failed(ends, "bricked", "structural_400")
    assert len(room.requests()) == 1
    assert "The model's API refused this conversation as it stands." in card


async def test_what_was_looked_at_before_the_failure_is_on_the_card(ends: FarEnds) -> None:
    _, card = await failed(ends, "found", "provider")
    assert "at step 1" in card and "metrics" in card
