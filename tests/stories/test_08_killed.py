"""Story 8: `kill -9` at any moment. One program is killed while each of these threads is at a moment of its own."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import FIRST_BYTE, MIDDLE, call, hold_until, nothing, say
from bot.playground.slack import Call
from tests.support.bot_process import serving
from tests.support.rooms import NEVER, FarEnds, Room, far_ends
from tests.support.thread import ENGINEER, ONCALL, PATIENCE_S, part_of, shown

pytestmark = [pytest.mark.process]

SLOWLY = '{namespace="shop"} |= "slowly"'
HALF = say("Half of an answer")
LAST = say("It is the gateway, after all.")
BATCH = call("prometheus_query", query="up") + call("loki_query", query=SLOWLY)

RUNNING = ("reading", "asked", "writing", "batch", "rung", "carding", "cardlost")
"""Threads whose turn runs when the program dies."""
SETTLED = ("unposted", "posting", "lost", "closing")
"""Threads whose turn has settled, while something of it is still on its way to Slack."""
HANGING = ("carding", "cardlost")
"""Threads whose card is being posted, and Slack does not answer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    """Everything that happened, once it is over."""
    async with far_ends(tmp_path_factory.mktemp("killed")) as made:
        made.world.slow("loki", 300.0, match="slowly")
        go, last, carded = asyncio.Event(), asyncio.Event(), asyncio.Event()
        _rooms(made, go, last, carded)
        async with serving(made) as first:
            await _until_each_is_there(made, go, last)
            await first.kill()
        made.as_if_earlier(61.0)
        made.world.slow("loki", 0.0, match="slowly")
        async with serving(made):
            await made.rooms["cardlost"].cards()
            carded.set()
            for room in made.rooms.values():
                await room.released()
                await room.until(lambda room=room: len(room.own("answer")) == 1)
        yield made


def _rooms(ends: FarEnds, go: asyncio.Event, last: asyncio.Event, carded: asyncio.Event) -> None:
    held = HALF + hold_until(NEVER, MIDDLE)
    ends.room("reading", LAST)
    ends.room("asked", HALF + hold_until(NEVER, FIRST_BYTE), LAST)
    ends.room("writing", held, LAST)
    ends.room("batch", BATCH, LAST)
    ends.room("rung", nothing(), held, LAST)
    ends.room("carding", held, LAST)
    ends.room("cardlost", held, LAST + hold_until(carded))
    for word in SETTLED:
        ends.room(word, LAST + hold_until(last if word == "unposted" else go))


async def _until_each_is_there(ends: FarEnds, go: asyncio.Event, last: asyncio.Event) -> None:
    """Bring every thread to its moment, the short-lived ones last: a call that hangs is given up after a while."""
    rooms, slack = ends.rooms, ends.slack
    _script(ends, "conversations.replies", "reading", "timeout")
    for word, part, response in (
        ("carding", "card", "commit_then_timeout"),
        ("cardlost", "card", "timeout"),
        ("posting", "answer", "commit_then_timeout"),
        ("lost", "answer", "timeout"),
    ):
        _script(ends, "chat.postMessage", word, response, part)
    _script(ends, "chat.update", "closing", "timeout", says="Answered")
    await asyncio.gather(*(room.ask() for word, room in rooms.items() if word not in ("reading", *HANGING)))
    await asyncio.gather(*(rooms[word].held(1) for word in ("asked", "writing", *SETTLED)), rooms["rung"].held(2))
    batch = rooms["batch"]
    await batch.until(lambda: [row["status"] for row in batch.all("calls")] == ["ok", "open"])
    await asyncio.gather(*(room.cards() for word, room in rooms.items() if word not in ("reading", *HANGING)))
    await asyncio.gather(*(rooms[word].ask() for word in HANGING))
    await asyncio.gather(*(rooms[word].held(1) for word in HANGING))
    await slack.until(lambda: all(_called(ends, "chat.postMessage", word) for word in HANGING), PATIENCE_S)
    go.set()
    twice = ("posting", "lost", "closing")
    await slack.until(lambda: all(_called(ends, "chat.postMessage", word, times=2) for word in twice), PATIENCE_S)
    await slack.until(lambda: _unanswered(ends, "closing"), PATIENCE_S)
    await rooms["closing"].until(lambda: [row["state"] for row in _answers(rooms["closing"])] == ["sent"])
    busy = {"status": 429, "headers": {"Retry-After": "60"}, "body": {"ok": False, "error": "ratelimited"}}
    _script(ends, "chat.postMessage", "unposted", busy, "answer")
    last.set()
    await slack.until(lambda: _called(ends, "chat.postMessage", "unposted", times=2), PATIENCE_S)
    await rooms["unposted"].until(lambda: [row["state"] for row in _answers(rooms["unposted"])] == ["waiting"])
    odd = "CheckoutErrorRate looks odd"
    rooms["reading"].root = await slack.say(rooms["reading"].channel, ONCALL, odd, quiet=True)
    await rooms["reading"].reply("<@U0PILOT> room reading: what is this?", ENGINEER)
    await slack.until(lambda: _called(ends, "conversations.replies", "reading"), PATIENCE_S)


def _answers(room: Room) -> list[dict[str, Any]]:
    return [row for row in room.all("outbox") if row["kind"] == "answer"]


def _script(ends: FarEnds, method: str, word: str, response: Any, part: str = "", says: str = "") -> None:
    channel = ends.rooms[word].channel

    def this_one(args: Mapping[str, Any]) -> bool:
        return args["channel"] == channel and part_of(args).startswith(part) and says in shown(args)

    ends.slack.script(method, [response], this_one)


def _calls(ends: FarEnds, method: str, word: str) -> list[Call]:
    return [call for call in ends.slack.called(method) if call.args.get("channel") == ends.rooms[word].channel]


def _called(ends: FarEnds, method: str, word: str, times: int = 1) -> bool:
    return len(_calls(ends, method, word)) >= times


def _unanswered(ends: FarEnds, word: str) -> list[Call]:
    """Updates of a card that Slack neither made nor answered."""
    return [call for call in _calls(ends, "chat.update", word) if call.status == 0]


each = pytest.mark.parametrize


@each("word", [*RUNNING, *SETTLED])
def test_every_turn_ends_once_its_card_is_released_and_its_session_is_free(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    assert [row["reason"] for row in room.all("settles")] == ["completed"]
    card = room.all("cards")[0]
    assert (card["state"], card["error"]) == ("released", None)
    session = room.all("sessions")[0]
    assert (session["state"], session["lease_owner"]) == ("idle", None)
    assert not room.all("diagnoses")


@each("word", [*RUNNING, *SETTLED])
def test_nothing_is_posted_twice_and_there_is_one_answer(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    marks = Counter(json.dumps(post["metadata"]) for post in room.every("") if "metadata" in post)
    assert max(marks.values()) == 1, marks
    answers = room.every("answer")
    assert len(answers) == 1 and "It is the gateway, after all." in shown(answers[0])
    assert "Half of an answer" not in json.dumps(ends.slack.every_version(room.channel))


@each("word", [*RUNNING, *SETTLED])
def test_there_is_one_card_and_it_says_how_it_ended(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    cards = room.own("card")
    assert len(cards) == len(room.every("card")) == 1
    late = word in ("unposted", "posting", "lost") and "Answered. The answer follows in this thread." in shown(
        cards[0]
    )
    assert late or "Answered below." in shown(cards[0])
    assert "stop_step" not in shown(cards[0])


@each("word", RUNNING)
def test_what_a_killed_program_left_is_one_crash_and_another_attempt_of_the_same_turn(
    ends: FarEnds, word: str
) -> None:
    room = ends.rooms[word]
    assert [row["ended"] for row in room.all("attempts")] == ["crashed", "finished"]
    assert room.all("turns")[0]["crashes"] == 1
    workers = [row["worker"] for row in room.all("attempts")]
    assert len(set(workers)) == 2
    epochs = [row["epoch"] for row in room.all("attempts")]
    assert epochs == sorted(set(epochs))


@each("word", SETTLED)
def test_a_turn_that_had_settled_is_not_run_again(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    assert [row["ended"] for row in room.all("attempts")] == ["finished"]
    assert len(room.requests()) == 1


def test_an_open_read_is_closed_as_interrupted_and_a_finished_one_keeps_its_result(ends: FarEnds) -> None:
    room = ends.rooms["batch"]
    calls = {row["tool"]: row for row in room.all("calls")}
    assert calls["prometheus_query"]["status"] == "ok"
    assert calls["loki_query"]["status"] == "interrupted"
    assert "Interrupted by a restart. Nothing was read" in calls["loki_query"]["output"]
    results = room.requests()[1]["messages"][-1]["content"]
    assert [block["type"] for block in results] == ["tool_result", "tool_result"]
    assert "up" in json.dumps(results[0]) and "Interrupted by a restart" in json.dumps(results[1])
    asked = [call for call in ends.world.calls if call.api == "prometheus"]
    assert len(asked) == 1, "what had been read was not read again"


def test_a_crash_on_a_rung_goes_on_at_that_rung(ends: FarEnds) -> None:
    room = ends.rooms["rung"]
    assert [row["kind"] for row in room.all("entries", "seq")] == ["user", "ladder", "assistant"]
    assert room.requests()[1]["messages"] == room.requests()[2]["messages"]
    assert room.requests()[2]["tool_choice"] == {"type": "none"}


def test_a_card_whose_post_was_never_answered_is_found_again(ends: FarEnds) -> None:
    room = ends.rooms["carding"]
    assert room.all("cards")[0]["message_ts"] == room.every("card")[0]["ts"]
    posts = [call for call in _calls(ends, "chat.postMessage", "carding") if part_of(call.args) == "card"]
    assert [call.status for call in posts] == [0]


@each(("word", "part"), [("cardlost", "card"), ("lost", "answer")])
def test_a_post_that_never_happened_is_looked_for_twice_before_it_is_made(
    ends: FarEnds, word: str, part: str
) -> None:
    looks = _calls(ends, "conversations.replies", word)
    lost, made = (call for call in _calls(ends, "chat.postMessage", word) if part_of(call.args).startswith(part))
    assert lost.status == 0 and made.ok
    assert len(looks) == 2 and lost.at <= looks[0].at <= looks[1].at <= made.at


def test_a_final_card_whose_update_was_never_answered_is_drawn_anew_and_sent_again(ends: FarEnds) -> None:
    """Until then the card said that work goes on. What is sent is what is true by then, not the lost words again."""
    updates = _calls(ends, "chat.update", "closing")
    card = ends.rooms["closing"].own("card")[0]
    lost = _unanswered(ends, "closing")
    assert len(lost) == 1 and "Answered" in shown(lost[0].args)
    after = updates[updates.index(lost[0]) + 1 :]
    assert after and all(call.ok for call in after)
    assert all(call.args["ts"] == card["ts"] for call in updates)
    assert "Answered below." in shown(after[-1].args) and "Answered below." in shown(card)


def test_the_reading_that_a_kill_broke_off_was_done_again(ends: FarEnds) -> None:
    room = ends.rooms["reading"]
    assert "CheckoutErrorRate" in json.dumps(room.requests()[0]["messages"][0])
    assert len(room.requests()) == 1


def test_the_model_was_never_sent_a_history_that_it_refuses(ends: FarEnds) -> None:
    ends.sound()
    assert not ends.rows("repairs"), "and the suture had nothing to do"
