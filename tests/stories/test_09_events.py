"""Story 9: every event arrives twice, out of order, and again as a retry. Each has one effect."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import FIRST_BYTE, hold_until, say
from bot.playground.slack.people import Person
from core.limits import Limits
from tests.support.rooms import NEVER, FarEnds, Room, Row, far_ends, program
from tests.support.thread import ENGINEER, NEWCOMER, ONCALL, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(quiet_s=0.2, quiet_max_s=0.5, poll_s=0.2, lease_s=120.0)
TABLES = ("sessions", "messages", "stops", "turns", "settles", "cards", "outbox", "entries")
HELD = say("Half of an answer") + hold_until(NEVER, FIRST_BYTE)
LAST = say("It is the gateway, after all.")


@dataclass
class Told:
    """What the ledger said before and after everything was delivered once more."""

    ends: FarEnds
    before: dict[str, list[Row]] = field(default_factory=dict)
    after: dict[str, list[Row]] = field(default_factory=dict)
    acknowledged: list[bool] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Told]:
    async with far_ends(tmp_path_factory.mktemp("events")) as ends, program(ends, limits=LIMITS):
        ends.slack.duplicate_events(2)
        ends.slack.reorder_events()
        made = Told(ends)
        await asyncio.gather(
            _asked(ends),
            _steered(ends),
            _stopped(ends),
            _cancelled(ends),
            _reacted(ends),
            _edited(ends),
            _withdrawn(ends),
            _noted(ends),
            _alarmed(ends),
            _archived(ends),
            _lost_its_card(ends),
            _direct(ends),
        )
        await ends.slack.open_home(ENGINEER)
        await ends.slack.quiet(40)
        for room in ends.rooms.values():
            await room.released()
        await _nothing_waits(ends)
        made.before = {table: ends.rows(table) for table in TABLES}
        for envelope, _ in list(ends.slack.deliveries):
            if envelope["type"] == "events_api":
                made.kinds.add(_kind(envelope["payload"]["event"]))
                for attempt in (1, 3):
                    again = {"retry_attempt": attempt, "retry_reason": "timeout", "envelope_id": str(uuid.uuid4())}
                    delivery = await ends.slack.wire.once(envelope | again)
                    made.acknowledged.append(delivery.acknowledged)
        await _nothing_waits(ends)
        made.after = {table: ends.rows(table) for table in TABLES}
        yield made
        ends.sound()


def _kind(event: dict[str, Any]) -> str:
    return f"{event['type']}.{event.get('subtype', '')}"


async def _nothing_waits(ends: FarEnds) -> None:
    room = next(iter(ends.rooms.values()))
    await room.until(lambda: not [row for row in ends.rows("outbox") if row["state"] in ("waiting", "sending")])


async def _asked(ends: FarEnds) -> None:
    room = ends.room("asked", LAST)
    await room.ask()
    await room.released()


async def _steered(ends: FarEnds) -> None:
    room = ends.room("steered", HELD, LAST)
    await _running(room)
    await room.reply("look at the gateway instead")
    await room.released(2)


async def _stopped(ends: FarEnds) -> None:
    room = ends.room("stopped", HELD)
    await _running(room)
    card = (await room.cards())[0]["ts"]
    await asyncio.gather(*(ends.slack.press(room.channel, card, "stop_step", ONCALL) for _ in range(5)))
    await room.released()


async def _cancelled(ends: FarEnds) -> None:
    room = ends.room("cancelled", HELD)
    await _running(room)
    assert room.root is not None
    await ends.slack.native_stop(room.channel, room.root, ONCALL)
    await room.released()


async def _reacted(ends: FarEnds) -> None:
    room = ends.room("reacted", HELD)
    await _running(room)
    assert room.root is not None
    await ends.slack.react(room.channel, room.root, ONCALL, "octagonal_sign")
    await room.released()


async def _edited(ends: FarEnds) -> None:
    room = ends.room("edited", HELD, LAST)
    await _running(room)
    assert room.root is not None
    await ends.slack.edit(room.channel, room.root, ENGINEER, "<@U0PILOT> room edited: it is the database, I mean")
    await room.released(2)


async def _withdrawn(ends: FarEnds) -> None:
    go = asyncio.Event()
    room = ends.room("withdrawn", LAST + hold_until(go))
    await _running(room)
    later = await room.reply("+ also check the db", ENGINEER)
    await room.until(lambda: any(row["disposition"] == "queue" for row in room.all("messages")))
    await ends.slack.delete(room.channel, later, ENGINEER)
    await room.until(lambda: any(row["state"] == "withdrawn" for row in room.all("messages")))
    go.set()
    await room.released()


async def _noted(ends: FarEnds) -> None:
    go = asyncio.Event()
    room = ends.room("noted", LAST + hold_until(go))
    await _running(room)
    await room.reply("the dashboards look odd", NEWCOMER)
    await room.until(lambda: any(row["disposition"] == "note" for row in room.all("messages")))
    go.set()
    await room.released()


async def _alarmed(ends: FarEnds) -> None:
    room = ends.room("alarmed", LAST)
    room.root = await ends.slack.post_alert(room.channel, "room alarmed: CheckoutErrorRate")
    await room.released()


async def _archived(ends: FarEnds) -> None:
    room = ends.room("archived", HELD)
    await _running(room)
    await ends.slack.archive(room.channel, ONCALL)
    await room.released()


async def _lost_its_card(ends: FarEnds) -> None:
    go = asyncio.Event()
    room = ends.room("cardless", LAST + hold_until(go))
    await _running(room)
    first = (await room.cards())[0]["ts"]
    await ends.slack.delete(room.channel, first, ONCALL)
    await room.until(lambda: [card["ts"] for card in room.own("card")] not in ([], [first]))
    go.set()
    await room.released()


async def _direct(ends: FarEnds) -> None:
    room = ends.room("direct", LAST)
    room.channel = f"D{ENGINEER[1:]}"
    room.root = await ends.slack.say(room.channel, ENGINEER, "room direct: is checkout well?")
    await room.released()


async def _running(room: Room) -> None:
    await room.ask()
    await room.held(1)
    await room.cards()


ONCE: dict[str, tuple[list[str], int, int]] = {
    "asked": (["completed"], 0, 1),
    "steered": (["steered", "completed"], 0, 1),
    "stopped": (["stopped_step"], 1, 0),
    "cancelled": (["cancelled"], 1, 0),
    "reacted": (["stopped_step"], 1, 0),
    "edited": (["steered", "completed"], 0, 1),
    "withdrawn": (["completed"], 0, 1),
    "noted": (["completed"], 0, 1),
    "alarmed": (["completed"], 0, 1),
    "archived": (["failed"], 1, 0),
    "cardless": (["completed"], 0, 1),
    "direct": (["completed"], 0, 1),
}
"""How the turns of each room end, how many stops there are, and how many answers."""


@pytest.mark.parametrize("word", ONCE)
async def test_an_event_that_comes_three_times_and_out_of_order_has_one_effect(told: Told, word: str) -> None:
    reasons, stops, answers = ONCE[word]
    room = told.ends.rooms[word]
    assert [row["reason"] for row in await room.settles()] == reasons
    assert len(room.all("stops")) == stops
    assert len(room.every("answer")) == answers
    cards = {json.dumps(card["metadata"]) for card in room.every("card")}
    assert len(cards) == len(room.every("card")) <= len(reasons) + (word == "cardless")
    assert len(room.requests()) == len(reasons)
    texts = [
        (row["source"], row["slack_ts"], row["text"]) for row in room.all("messages") if row["source"] != "button"
    ]
    assert len(texts) == len(set(texts)), "each is kept once"


async def test_a_person_is_told_once(told: Told) -> None:
    whispers = told.ends.rooms["noted"].whispers(NEWCOMER)
    assert len(whispers) == 1 and "Kept as a note" in whispers[0]
    archived = [
        post for post in told.ends.slack.messages(f"D{ENGINEER[1:]}") if "the channel is archived" in shown(post)
    ]
    assert len(archived) == 1


@pytest.mark.parametrize("table", TABLES)
async def test_a_retry_of_everything_changes_nothing(told: Told, table: str) -> None:
    assert told.after[table] == told.before[table]


async def test_every_retry_is_acknowledged_and_every_kind_of_event_was_among_them(told: Told) -> None:
    assert all(told.acknowledged)
    assert told.kinds >= {
        "message.",
        "app_mention.",
        "message.message_changed",
        "message.message_deleted",
        "message.bot_message",
        "reaction_added.",
        "agent_session_stopped.",
        "channel_archive.",
        "app_home_opened.",
    }


async def test_an_event_that_could_not_be_committed_is_not_acknowledged_and_its_retry_counts(told: Told) -> None:
    """Slack would not say who it is, so nothing was written; the second delivery starts the turn."""
    ends = told.ends
    ends.slack.duplicate_events(0)
    ends.slack.reorder_events(False)
    down = {"status": 503, "body": {"ok": False, "error": "service_unavailable"}}
    ends.slack.script("users.info", [down, down], lambda args: args["user"] == "U0LATE")
    room = ends.room("retried", LAST)
    ends.slack.workspace.people.append(Person("U0LATE", "somebody", "Somebody Else"))
    await room.ask(user="U0LATE")
    assert await room.released() == ["completed"]
    first = [delivery for envelope, delivery in ends.slack.deliveries if room.word in str(envelope)][:2]
    assert not any(delivery.acknowledged for delivery in first)
    assert len(room.every("answer")) == 1 and len(room.all("messages")) == 1
