"""Story 9: Slack refuses, forgets, hangs up and loses answers, on every kind of call. The answer arrives once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import formatdate
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import hold_until, say
from core.limits import Limits
from tests.support.rooms import FarEnds, Room, far_ends, program
from tests.support.thread import ENGINEER, part_of, shown

LIMITS = Limits(quiet_s=0.0, quiet_max_s=0.0, poll_s=0.2, lease_s=120.0)
LAST = say("It is the *gateway*, after all.")
RATE_LIMITED = {"ok": False, "error": "ratelimited"}

NOT_DONE: dict[str, Any] = {
    "number": {"status": 429, "headers": {"Retry-After": "1"}, "body": RATE_LIMITED},
    "garbage": {"status": 429, "headers": {"Retry-After": "soon"}, "body": RATE_LIMITED},
    "body": {"status": 200, "body": {"ok": False, "error": "rate_limited", "retry_after": 1}},
    "broken": {"status": 500, "body": {"ok": False, "error": "internal_error"}},
    "html": {"status": 502, "body": "<html>Bad gateway</html>"},
    "fatal": {"status": 200, "body": {"ok": False, "error": "fatal_error"}},
    "timeout": "timeout",
    "reset": "reset",
}
DONE = {"lostanswer": "commit_then_reset", "lateanswer": "commit_then_timeout"}
"""Slack did it, and we were not told."""
FAILURES = {**NOT_DONE, "date": None, **DONE}

OFTEN = ("number", "html", "timeout", "reset", "lostanswer")

Which = Callable[[Mapping[str, Any]], bool]
CALLS: dict[str, tuple[str, Which]] = {
    "answer": ("chat.postMessage", lambda args: part_of(args).startswith("answer")),
    "card": ("chat.postMessage", lambda args: part_of(args).startswith("card")),
    "progress": ("chat.update", lambda args: "stop_step" in json.dumps(args)),
    "final": ("chat.update", lambda args: "stop_step" not in json.dumps(args)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    """Every failure on every call, each in a room of its own, all at once; and then it is over."""
    async with far_ends(tmp_path_factory.mktemp("fails")) as made, program(made, limits=LIMITS):
        go = {word: asyncio.Event() for word in words()}
        for word in words():
            call, failure = word.split("x")
            made.room(word, LAST + hold_until(go[word]))
            fail(made, word, call, FAILURES[failure] or in_two_seconds())
        await asyncio.gather(*(room.ask() for room in made.rooms.values()))
        await asyncio.gather(*(goes_on(made.rooms[word], word, go[word]) for word in words() if "cardx" not in word))
        await until_nothing_is_unclear(made)
        await asyncio.gather(*(goes_on(made.rooms[word], word, go[word]) for word in words() if "cardx" in word))
        await until_nothing_is_unclear(made)
        for room in made.rooms.values():
            await room.released()
            await room.until(lambda room=room: [row["state"] for row in answers(room)] == ["sent"])
        yield made


async def goes_on(room: Room, word: str, go: asyncio.Event) -> None:
    """The answer comes once there is a card, or once its progress was shown all the same."""
    await room.cards()
    if word.startswith("progress"):
        await room.until(lambda: len(updates(room)) >= 2)
    go.set()


def words() -> list[str]:
    """An answer can meet every failure, the others a choice of them."""
    return [f"answerx{failure}" for failure in FAILURES] + [
        f"{call}x{failure}" for call in ("card", "progress", "final") for failure in OFTEN
    ]


def in_two_seconds() -> Any:
    """A date may be asked for as well."""
    return {"status": 429, "headers": {"Retry-After": formatdate(time.time() + 2, usegmt=True)}, "body": RATE_LIMITED}


def fail(ends: FarEnds, word: str, call: str, response: Any) -> None:
    method, which = CALLS[call]
    channel = ends.rooms[word].channel
    ends.slack.script(method, [response], lambda args: args["channel"] == channel and which(args))


def updates(room: Room) -> list[Any]:
    return [call for call in room.slack.called("chat.update") if call.args["channel"] == room.channel]


def answers(room: Room) -> list[dict[str, Any]]:
    return [row for row in room.all("outbox") if row["kind"] == "answer"]


async def until_nothing_is_unclear(ends: FarEnds) -> None:
    """Let time pass for what has to be looked up, as soon as nothing is under way any more: twice, as is promised."""

    def unclear() -> list[dict[str, Any]]:
        sending = [row for row in ends.rows("outbox") if row["state"] == "sending"]
        return sending + [row for row in ends.rows("cards") if row["sending"] is not None]

    room = next(iter(ends.rooms.values()))
    for lookups in (0, 1):
        await room.until(lambda: all(row["error"] for row in unclear()))
        await room.until(lambda n=lookups: all(row["lookups"] >= n for row in unclear()))
        ends.as_if_earlier(31.0)


each = pytest.mark.parametrize


@each("word", words())
def test_the_turn_is_answered_and_its_card_is_released_whatever_slack_does(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    assert [row["reason"] for row in room.all("settles")] == ["completed"]
    card = room.all("cards")[0]
    assert (card["state"], card["error"], card["sending"]) == ("released", None, None)


@each("word", words())
def test_the_answer_arrives_exactly_once_and_so_does_the_card(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    marks = Counter(json.dumps(post["metadata"]) for post in room.every("") if "metadata" in post)
    assert max(marks.values()) == 1, marks
    answer = room.every("answer")
    assert len(answer) == 1 and "gateway" in shown(answer[0]) and f"<@{ENGINEER}>" in shown(answer[0])
    assert len(room.every("card")) == 1
    assert room.own("answer")[0]["thread_ts"] == room.root


@each("word", words())
def test_no_card_keeps_its_buttons_or_goes_on_investigating(ends: FarEnds, word: str) -> None:
    room = ends.rooms[word]
    for card in room.own("card"):
        assert "Answered" in shown(card) and "stop_step" not in shown(card)


@each("failure", OFTEN)
def test_progress_never_follows_the_final_card(ends: FarEnds, failure: str) -> None:
    room = ends.rooms[f"progressx{failure}"]
    states = ["stop_step" in shown(version["message"]) for version in ends.slack.versions(room.channel, _card(room))]
    assert states == sorted(states, reverse=True)


def _card(room: Room) -> str:
    return str(room.own("card")[0]["ts"])


@each("failure", NOT_DONE)
def test_what_may_have_happened_is_looked_for_twice_before_it_is_posted_again(ends: FarEnds, failure: str) -> None:
    unclear = failure in ("broken", "html", "fatal", "timeout", "reset")
    for call in ("answer", "card") if failure in OFTEN else ("answer",):
        room = ends.rooms[f"{call}x{failure}"]
        looks = [one.at for one in ends.slack.called("conversations.replies") if one.args["channel"] == room.channel]
        posts = [one.at for one in ends.slack.called("chat.postMessage") if one.args["channel"] == room.channel]
        assert len([at for at in looks if at < posts[-1]]) >= (2 if unclear else 0)
        assert unclear or not looks


@each("failure", DONE)
def test_what_did_happen_is_found_and_not_posted_again(ends: FarEnds, failure: str) -> None:
    for call in ("answer", "card") if failure in OFTEN else ("answer",):
        room = ends.rooms[f"{call}x{failure}"]
        method, which = CALLS[call]
        posts = [one for one in ends.slack.called(method) if one.args["channel"] == room.channel and which(one.args)]
        assert len(posts) == 1
    room = ends.rooms["cardxlostanswer"]
    assert room.all("cards")[0]["message_ts"] == _card(room)


@each("failure", ["number", "date", "garbage", "body"])
def test_slack_is_left_alone_for_as_long_as_it_asks(ends: FarEnds, failure: str) -> None:
    least = {"number": 1.0, "date": 0.9, "garbage": 4.9, "body": 1.0}[failure]
    room = ends.rooms[f"answerx{failure}"]
    posts = [one for one in ends.slack.called("chat.postMessage") if one.args["channel"] == room.channel]
    first, second = [one.at for one in posts if part_of(one.args).startswith("answer")]
    assert second - first >= least


def test_a_method_that_is_limited_pauses_for_the_whole_workspace(ends: FarEnds) -> None:
    garbage = ends.rooms["answerxgarbage"].channel
    posts = ends.slack.called("chat.postMessage")
    refused = next(one.at for one in posts if one.args["channel"] == garbage and one.status == 429)
    assert not [one for one in posts if refused + 2.5 < one.at < refused + 4.9], (
        "what was under way has ended by then"
    )


def test_the_model_was_asked_once_a_room(ends: FarEnds) -> None:
    ends.sound()
    assert {len(room.requests()) for room in ends.rooms.values()} == {1}
