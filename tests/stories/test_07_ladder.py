"""Story 7: the model ends without a word. What is tried, in which order, and what people read when all is empty."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from itertools import repeat
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import Reply, call, nothing, say, stop_reason, think
from core.limits import Limits
from tests.support.rooms import FarEnds, Room, far_ends, program
from tests.support.scene import tool
from tests.support.thread import ENGINEER, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(max_steps=2, quiet_s=0.0, quiet_max_s=0.0, poll_s=0.2)
MAIN, FALLBACK = "claude-sonnet-5-5", "claude-opus-5-5"
CUT_OFF = say("It began at 14:05 with") + stop_reason("max_tokens")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    """One town for all causes: each has a room of its own."""
    tools = [tool("metrics"), tool("logs")]
    async with far_ends(tmp_path_factory.mktemp("ladder")) as made, program(made, limits=LIMITS, tools=tools):
        yield made
        made.sound()


def looks(*tools: str) -> Reply:
    """An answer that asks for tools."""
    return sum((call(name, q=f"{name}-query") for name in tools), Reply())


def asked(body: Mapping[str, Any]) -> str:
    """What the ladder said last."""
    return str(body["messages"][-1]["content"][-1]["text"])


def rungs(room: Room) -> list[tuple[str, int, bool]]:
    """Each request as (model, output limit, whether tools may be used)."""
    return [(body["model"], body["max_tokens"], "tool_choice" not in body) for body in room.requests()]


def frozen(room: Room) -> bool:
    """Whether every request had the same system prompt and the same tools."""
    return len({json.dumps([body["system"], body["tools"]]) for body in room.requests()}) == 1


def kinds(room: Room) -> list[str]:
    return [row["kind"] for row in room.all("entries", "seq")]


async def ended(room: Room, reason: str, detail: str | None = None) -> dict[str, Any]:
    """The settle of the room's only turn, once its card is released."""
    assert await room.released() == [reason]
    settle = room.all("settles")[0]
    assert settle["detail"] == detail
    assert (settle["final_event_id"] is not None) is (reason == "completed")
    attempts = [(row["ended"], row["stamp"]) for row in room.all("attempts")]
    assert attempts == [("finished", None)]
    assert settle["cost_usd"] == pytest.approx(sum(row["usd"] for row in room.all("costs")))
    return settle


async def test_a_turn_without_a_word_is_asked_once_more_and_its_answer_is_an_answer_like_any_other(
    ends: FarEnds,
) -> None:
    room = ends.room("again", looks("metrics"), nothing(), say("It is the gateway."))
    await room.ask()
    settle = await ended(room, "completed")
    assert rungs(room) == [(MAIN, 4096, True), (MAIN, 4096, True), (MAIN, 4096, False)]
    assert frozen(room)
    assert asked(room.requests()[2]).startswith("[Pilothouse, automatic] Your last message had no text.")
    assert kinds(room) == ["user", "assistant", "results", "ladder", "assistant"]
    assert settle["final_event_id"] == room.all("entries", "seq")[-1]["id"]
    assert "It is the gateway." in shown((await room.answers())[0])
    assert "Answered below." in await room.card()
    assert not room.all("diagnoses")


@pytest.mark.parametrize(
    ("word", "empty"),
    [
        ("blank", say("  \n ")),
        ("thinking", think("I know it, I just do not say it.")),
        ("tools", nothing()),
    ],
)
async def test_what_has_no_words_for_people_is_no_answer(ends: FarEnds, word: str, empty: Reply) -> None:
    """Blanks, thoughts, and calls where no tools may be used."""
    second = looks("metrics") if word == "tools" else empty
    room = ends.room(word, empty, second, say("The fallback knows it."))
    await room.ask()
    await ended(room, "completed")
    assert [model for model, _, _ in rungs(room)] == [MAIN, MAIN, FALLBACK]
    assert kinds(room) == ["user", "ladder", "ladder", "assistant"]
    assert not room.all("calls")


async def test_if_all_is_empty_people_read_what_was_looked_at_and_operators_get_one_diagnosis(
    ends: FarEnds,
) -> None:
    room = ends.room("empty", looks("metrics", "logs"), nothing(), nothing(), nothing())
    await room.ask()
    settle = await ended(room, "empty")
    assert rungs(room)[1:] == [(MAIN, 4096, True), (MAIN, 4096, False), (FALLBACK, 16_384, False)]
    assert kinds(room) == ["user", "assistant", "results", "ladder", "ladder"]
    diagnoses = room.all("diagnoses")
    assert [row["kind"] for row in diagnoses] == ["empty"]
    assert "nothing" in diagnoses[0]["text"]
    assert settle["step"] == 1

    answers = await room.answers()
    assert len(answers) == 1
    said = shown(answers[0])
    assert "I have no conclusion" in said and "Nothing below is interpreted" in said
    assert "metrics" in said and "logs" in said and "metrics-query" in said
    assert f"<@{ENGINEER}>" in said
    card = await room.card()
    assert "No answer. The model gave none, even when it was asked again." in card
    assert "What was looked at is summed up below." in card
    assert "'action_id': 'retry'" in card and "stop_step" not in card


async def test_retry_asks_the_same_again_with_everything_that_was_found(ends: FarEnds) -> None:
    room = ends.room("retry", looks("metrics"), *[nothing()] * 3, say("Now I see it: the gateway."))
    await room.ask()
    await ended(room, "empty")
    await room.press("retry", ENGINEER)
    assert await room.released(2) == ["empty", "completed"]
    last = room.requests()[-1]
    assert (last["model"], "tool_choice" in last) == (MAIN, False)
    assert "metrics says" in json.dumps(last["messages"])
    assert "I have no conclusion" not in json.dumps(last["messages"]), "our summary is no word of the model"
    assert len(room.all("diagnoses")) == 1


async def test_an_answer_that_was_cut_off_is_asked_for_in_fewer_words_and_then_with_more_room(
    ends: FarEnds,
) -> None:
    room = ends.room("long", CUT_OFF, CUT_OFF, say("The gateway, whole."))
    await room.ask()
    await ended(room, "completed")
    assert rungs(room) == [(MAIN, 4096, True), (MAIN, 4096, False), (MAIN, 16_384, False)]
    assert "in fewer words" in asked(room.requests()[1])
    assert "it may be longer now" in asked(room.requests()[2])
    assert "It began at 14:05" not in json.dumps(room.requests()[2]["messages"])
    posted = [shown(answer) for answer in await room.answers()]
    assert len(posted) == 1 and "The gateway, whole." in posted[0] and "14:05 with" not in posted[0]


async def test_if_every_answer_is_cut_off_all_four_rungs_are_climbed_in_order(ends: FarEnds) -> None:
    room = ends.room("longer", *[CUT_OFF] * 4)
    await room.ask()
    await ended(room, "empty")
    assert rungs(room) == [
        (MAIN, 4096, True),
        (MAIN, 4096, False),
        (MAIN, 16_384, False),
        (FALLBACK, 16_384, False),
    ]
    assert kinds(room) == ["user", "ladder", "ladder", "ladder"]
    turn = room.all("turns")[0]
    assert (turn["rung"], turn["rung_cause"]) == (4, "max_tokens")
    assert "max_tokens" in room.all("diagnoses")[0]["text"]
    said = shown((await room.answers())[0])
    assert "nothing had been looked at yet" in said and "Nothing was changed" in said


async def test_a_call_that_was_cut_off_does_not_run(ends: FarEnds) -> None:
    cut = looks("metrics") + stop_reason("max_tokens")
    room = ends.room("halfcall", cut, say("Without the tool: the gateway."))
    await room.ask()
    await ended(room, "completed")
    assert kinds(room) == ["user", "ladder", "assistant"]
    assert not room.all("calls")


async def test_at_the_step_limit_the_model_is_asked_for_its_answer_without_tools(ends: FarEnds) -> None:
    room = ends.room("steps", looks("metrics"), looks("logs"), say("Two steps were enough: the gateway."))
    await room.ask()
    await ended(room, "completed")
    assert rungs(room) == [(MAIN, 4096, True), (MAIN, 4096, True), (MAIN, 4096, False)]
    assert "limit of steps" in asked(room.requests()[2])
    assert frozen(room)


async def test_a_step_limit_that_brings_no_answer_either_ends_the_turn_and_names_the_limit(ends: FarEnds) -> None:
    room = ends.room("nosteps", looks("metrics"), looks("logs"), looks("metrics"))
    await room.ask()
    settle = await ended(room, "timed_out")
    assert rungs(room)[2:] == [(MAIN, 4096, False)]
    assert len(room.all("calls")) == 2, "no call runs that was not allowed any more"
    assert [row["kind"] for row in room.all("diagnoses")] == ["timed_out"]
    assert "The limit of 2 steps was reached" in settle["known"]
    card = await room.card()
    assert "Reached its limit at step 2, before there was an answer." in card
    assert "The limit of 2 steps was reached" in card and "Ran out of time" not in card
    assert "metrics-query" in card and "logs-query" in card, "what was looked at"
    assert "'action_id': 'retry'" in card
    assert not room.every("answer")


async def test_a_refusal_is_told_and_not_asked_again(ends: FarEnds) -> None:
    room = ends.room("refusal", looks("metrics"), say("I can't help with that.") + stop_reason("refusal"))
    await room.ask()
    await ended(room, "failed", "refused_by_model")
    assert len(room.requests()) == 2
    assert kinds(room) == ["user", "assistant", "results"]
    card = await room.card()
    assert "The model declined to answer this." in card and "I can't help with that." in card
    assert "It was not asked again. Reply here and ask it in another way." in card
    assert not room.every("answer")
    assert [row["kind"] for row in room.all("diagnoses")] == ["refused_by_model"]


async def test_a_refusal_on_a_rung_ends_the_ladder(ends: FarEnds) -> None:
    room = ends.room("refusing", nothing(), say("No.") + stop_reason("refusal"))
    await room.ask()
    await ended(room, "failed", "refused_by_model")
    assert len(room.requests()) == 2


async def test_the_next_turn_begins_on_the_ground_and_the_model_takes_the_history(ends: FarEnds) -> None:
    room = ends.room("after", *[nothing()] * 3, looks("metrics"), say("It is the gateway."))
    await room.ask()
    await ended(room, "empty")
    await room.reply("try again, look at the gateway")
    assert await room.released(2) == ["empty", "completed"]
    assert rungs(room)[3:] == [(MAIN, 4096, True), (MAIN, 4096, True)]
    assert [row["rung"] for row in room.all("turns", "number")] == [4, 0]


async def test_a_model_that_never_says_a_word_is_asked_three_times_and_no_more(ends: FarEnds) -> None:
    room = ends.room("forever", then=repeat(nothing()))
    await room.ask()
    await ended(room, "empty")
    assert len(room.requests()) == 3
    assert not room.all("automation"), "a person asked"


async def test_an_alert_that_came_up_empty_is_no_evidence_of_a_finished_automation(ends: FarEnds) -> None:
    room = ends.room("alarm", looks("metrics"), then=repeat(nothing()))
    room.root = await ends.slack.post_alert(room.channel, "room alarm: CheckoutErrorRate critical")
    await ended(room, "empty")
    row = room.all("automation")[0]
    assert (row["source"], row["outcome"], row["evidence"]) == ("alert", "no_output", None)
    assert len(room.all("diagnoses")) == 1


async def test_an_alert_that_the_ladder_answered_is_done_with_its_evidence(ends: FarEnds) -> None:
    room = ends.room("alarmed", looks("metrics"), nothing(), say("It is the gateway."))
    room.root = await ends.slack.post_alert(room.channel, "room alarmed: CheckoutErrorRate critical")
    await ended(room, "completed")
    row = room.all("automation")[0]
    assert (row["source"], row["outcome"]) == ("alert", "done")
    assert "metrics" in row["evidence"]
