"""Story 9, continued: what Slack refuses for good. The card's row says why, and the answer finds another way once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import hold_until, say
from bot.playground.slack import Workspace
from bot.playground.slack.people import ALL_SCOPES
from core.limits import Limits
from tests.support.rooms import FarEnds, Room, far_ends, program
from tests.support.thread import ENGINEER, ONCALL, Message, part_of, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(quiet_s=0.0, quiet_max_s=0.0, poll_s=0.2, lease_s=120.0)
WORDS = "It is the *gateway*, after all: `timeout 300ms` since 14:05."
LAST = say(WORDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarEnds]:
    async with far_ends(tmp_path_factory.mktemp("refuses")) as made, program(made, limits=LIMITS):
        yield made
        made.sound()


def refuse(room: Room, method: str, error: str, times: int = 1, which: Callable[[Any], bool] = bool) -> None:
    """Slack refuses the next calls about this room."""
    answer = {"status": 200, "body": {"ok": False, "error": error}}
    room.slack.script(method, [answer] * times, lambda args: args.get("channel") == room.channel and which(args))


def is_answer(args: Mapping[str, Any]) -> bool:
    return part_of(args).startswith("answer")


def is_card(args: Mapping[str, Any]) -> bool:
    return part_of(args).startswith("card")


def told(room: Room, user: str = ENGINEER) -> list[Message]:
    """What `user` was told directly about this room."""
    direct = [post for post in room.slack.messages(f"D{user[1:]}") if post.get("user") == "U0PILOT"]
    return [post for post in direct if _mine(room, post)]


def _mine(room: Room, post: Message) -> bool:
    turns = {row["id"] for row in room.all("turns")}
    return ((post.get("metadata") or {}).get("event_payload") or {}).get("turn") in turns


def calls(room: Room, method: str) -> list[Any]:
    return [call for call in room.slack.called(method) if call.args.get("channel") == room.channel]


def card_row(room: Room) -> tuple[str, str | None]:
    card = room.all("cards")[0]
    return card["state"], card["error"]


# -- the message is refused


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_too_long", "msg_blocks_too_long", "invalid_blocks_format"])
async def test_an_answer_whose_form_is_refused_is_said_in_plain_text(ends: FarEnds, error: str) -> None:
    room = ends.room(f"form{error.replace('_', '')}", LAST)
    refuse(room, "chat.postMessage", error, which=is_answer)
    await room.ask()
    assert await room.released() == ["completed"]
    assert card_row(room) == ("released", None)
    posted = room.every("answer")
    assert len(posted) == 1 and not posted[0].get("blocks")
    assert "gateway" in posted[0]["text"] and "timeout 300ms" in posted[0]["text"]
    assert f"<@{ENGINEER}>" in posted[0]["text"]
    assert not told(room)


async def test_an_answer_that_is_refused_in_every_form_is_on_the_card_and_sent_directly(ends: FarEnds) -> None:
    room = ends.room("noform", LAST)
    refuse(room, "chat.postMessage", "invalid_blocks", times=9, which=is_answer)
    await room.ask()
    await room.until(lambda: len(told(room)) == 1)
    await room.until(lambda: "timeout 300ms" in shown(room.own("card")[0]))
    assert await room.released() == ["completed"]
    assert len([call for call in calls(room, "chat.postMessage") if is_answer(call.args)]) == 2
    assert not room.every("answer")
    assert "Slack refused my answer in the thread (invalid_blocks), so here it is:" in shown(told(room)[0])
    card = shown(room.own("card")[0])
    assert "Answered. Slack did not take the answer as a message, so it is here." in card
    assert room.all("settles")[0]["final_event_id"] is not None


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_too_long", "an_error_of_tomorrow"])
async def test_a_card_whose_form_is_refused_is_shown_as_text(ends: FarEnds, error: str) -> None:
    seen = asyncio.Event()
    room = ends.room(f"cardform{error.replace('_', '')}", LAST + hold_until(seen))
    refuse(room, "chat.postMessage", error, which=is_card)
    await room.ask()
    card = (await room.cards())[0]
    assert "Investigating" in card["text"]
    seen.set()
    assert await room.released() == ["completed"]
    assert card_row(room) == ("released", None)
    assert "Answered" in shown(room.own("card")[0])
    assert len(room.every("card")) == 1 and len(room.every("answer")) == 1


async def test_a_final_card_that_is_refused_again_and_again_is_given_up_and_its_row_says_why(ends: FarEnds) -> None:
    room = ends.room("nofinal", LAST)
    refuse(room, "chat.update", "invalid_blocks", times=20)
    await room.ask()
    assert await room.released() == ["completed"]
    assert card_row(room) == ("released", "invalid_blocks")
    assert len(calls(room, "chat.update")) <= 4
    assert len(room.every("answer")) == 1


# -- the card is gone


async def test_a_card_that_a_person_deleted_is_edited_once_more_and_replaced_by_a_new_one(ends: FarEnds) -> None:
    seen = asyncio.Event()
    room = ends.room("gone", LAST + hold_until(seen))
    await room.ask()
    first = (await room.cards())[0]
    await ends.slack.delete(room.channel, first["ts"], ONCALL)
    await room.until(lambda: len(room.own("card")) == 1 and room.own("card")[0]["ts"] != first["ts"])
    failed = [call for call in calls(room, "chat.update") if call.args["ts"] == first["ts"] and not call.ok]
    assert [call.response["error"] for call in failed] == ["message_not_found"]
    assert "stop_step" in shown(room.own("card")[0])
    seen.set()
    assert await room.released() == ["completed"]
    assert card_row(room) == ("released", None)
    assert len(room.every("card")) == 2 and len(room.every("answer")) == 1
    assert "Answered" in shown(room.own("card")[0])


async def test_a_card_that_is_deleted_twice_does_not_come_back_and_the_answer_comes_all_the_same(
    ends: FarEnds,
) -> None:
    seen = asyncio.Event()
    room = ends.room("gonetwice", LAST + hold_until(seen))
    await room.ask()
    for number in (1, 2):
        card = (await room.cards())[0]
        await ends.slack.delete(room.channel, card["ts"], ONCALL)
        await room.until(lambda ts=card["ts"]: ts not in [post["ts"] for post in room.own("card")])
        if number == 1:
            await room.until(lambda: len(room.own("card")) == 1)
    await room.until(lambda: room.all("cards")[0]["error"] == "message_not_found")
    seen.set()
    assert await room.released() == ["completed"]
    assert card_row(room) == ("released", "message_not_found")
    await room.answers()
    assert len(room.every("card")) == 2 and len(room.every("answer")) == 1
    assert len([call for call in calls(room, "chat.update") if not call.ok]) == 2


async def test_a_stop_still_works_when_somebody_deleted_the_card(ends: FarEnds) -> None:
    room = ends.room("gonestop", LAST + hold_until(asyncio.Event()))
    await room.ask()
    first = (await room.cards())[0]
    await ends.slack.delete(room.channel, first["ts"], ONCALL)
    await room.reply("stop")
    assert await room.released() == ["stopped_step"]
    assert not room.every("answer")


# -- the place is gone


async def test_a_channel_that_is_archived_ends_the_turn_and_who_asked_is_told_directly(ends: FarEnds) -> None:
    room = ends.room("archive", LAST + hold_until(asyncio.Event()))
    await room.ask()
    await room.held(1)
    await room.cards()
    await ends.slack.archive(room.channel, ONCALL)
    assert await room.released() == ["failed"]
    settle = room.all("settles")[0]
    assert (settle["detail"], settle["final_event_id"]) == ("channel_archived", None)
    assert card_row(room) == ("released", "archived")
    await room.until(lambda: len(told(room)) == 1)
    assert "the channel is archived" in shown(told(room)[0])
    assert len(room.requests()) == 1
    assert not room.every("answer")


@pytest.mark.parametrize(("method", "error"), [("chat.postMessage", "is_archived"), ("chat.update", "is_inactive")])
async def test_an_archived_channel_is_believed_from_an_error_as_well_as_from_the_event(
    ends: FarEnds, method: str, error: str
) -> None:
    seen = asyncio.Event()
    room = ends.room(error.replace("_", ""), LAST + hold_until(seen))
    which = is_answer if method == "chat.postMessage" else (lambda args: "stop_step" not in json.dumps(args))
    refuse(room, method, error, times=9, which=which)
    await room.ask()
    await room.cards()
    seen.set()
    assert await room.released() == ["completed"]
    state, why = card_row(room)
    assert state == "released" and why in (None, error)
    assert len([call for call in calls(room, method) if which(call.args)]) == 1, "there is no second try"
    await room.until(lambda: len(told(room)) + len(room.every("answer")) == 1)


async def test_where_posting_is_restricted_the_answer_goes_on_the_card_and_to_who_asked(ends: FarEnds) -> None:
    seen = asyncio.Event()
    room = ends.room("restricted", LAST + hold_until(seen))
    await room.ask()
    await room.cards()
    place = ends.slack.workspace.channel(room.channel)
    assert place is not None
    place.posting = "read_only_channel"
    seen.set()
    assert await room.released() == ["completed"]
    await room.until(lambda: len(told(room)) == 1)
    assert "restricted_action_read_only_channel" in shown(told(room)[0]) and "timeout 300ms" in shown(told(room)[0])
    await room.until(lambda: "timeout 300ms" in shown(room.own("card")[0]))
    assert len([call for call in calls(room, "chat.postMessage") if is_answer(call.args)]) == 1


async def test_nothing_is_left_at_the_root_of_a_channel_whose_thread_is_gone(ends: FarEnds) -> None:
    seen = asyncio.Event()
    room = ends.room("rootless", LAST + hold_until(seen))
    room.root = await ends.slack.say(room.channel, ENGINEER, "checkout looks odd", quiet=True)
    await room.reply("<@U0PILOT> room rootless: what is this?", ENGINEER)
    await room.cards()
    await room.held(1)
    await ends.slack.delete(room.channel, room.root, ENGINEER)
    seen.set()
    await room.released()
    await room.until(lambda: len(told(room)) == 1)
    assert "timeout 300ms" in shown(told(room)[0])
    own = [post for post in ends.slack.messages(room.channel) if post.get("user") == "U0PILOT"]
    assert not own, "a stray post is taken back"
    assert (
        len(calls(room, "chat.delete"))
        == len([call for call in calls(room, "chat.postMessage") if is_answer(call.args)])
        == 1
    )


# -- what a workspace does not have


async def test_without_reactions_and_sessions_everything_else_goes_on(tmp_path: Path) -> None:
    poor = Workspace(native_stop=False, scopes=ALL_SCOPES - {"reactions:write"})
    async with far_ends(tmp_path, workspace=poor) as ends, program(ends, limits=LIMITS):
        first, second = ends.room("first", LAST), ends.room("second", LAST)
        for room in (first, second):
            await room.ask()
            assert await room.released() == ["completed"]
            assert card_row(room) == ("released", None)
            assert len(room.every("answer")) == 1
            await room.until(
                lambda room=room: {row["state"] for row in room.all("outbox")} <= {"sent", "failed", "dropped"}
            )
        assert [call.response["error"] for call in ends.slack.called("reactions.add")] == ["missing_scope"]
        errors = [call.response["error"] for call in ends.slack.called("agents.sessions.setStatus")]
        assert errors == ["feature_disabled"]
        ends.sound()


async def test_a_lookup_that_slack_refuses_for_good_does_not_go_on_for_ever(ends: FarEnds) -> None:
    room = ends.room("blind", LAST)
    room.slack.script("chat.postMessage", ["reset"], lambda args: args["channel"] == room.channel and is_answer(args))
    refuse(room, "conversations.replies", "missing_scope", times=99)
    await room.ask()
    await room.until(lambda: any(row["error"] for row in room.all("outbox") if row["kind"] == "answer"))
    ends.as_if_earlier(31.0)
    await room.until(lambda: [row["state"] for row in room.all("outbox") if row["kind"] == "answer"] == ["failed"])
    assert await room.released() == ["completed"]
    await room.until(lambda: len(told(room)) == 1)
    assert len(calls(room, "conversations.replies")) == 1


async def test_a_direct_message_whose_answer_was_lost_is_not_sent_twice(ends: FarEnds) -> None:
    room = ends.room("direct", LAST)
    refuse(room, "chat.postMessage", "invalid_blocks", times=9, which=is_answer)
    place = f"D{ENGINEER[1:]}"
    room.slack.script("chat.postMessage", ["commit_then_reset"], lambda args: args["channel"] == place)
    await room.ask()
    await room.until(lambda: any(row["error"] for row in room.all("outbox") if row["kind"] == "direct"))
    ends.as_if_earlier(31.0)
    await room.until(lambda: [row["state"] for row in room.all("outbox") if row["kind"] == "direct"] == ["sent"])
    assert len(told(room)) == 1
