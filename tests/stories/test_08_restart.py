"""Story 8: SIGTERM, Ctrl-C and an operator's stop, each while real work is under way in a program of its own."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from bot.playground.model import MIDDLE, call, hold_until, say
from tests.support.bot_process import BotProcess, command, serving
from tests.support.rooms import NEVER, FarEnds, Row, far_ends
from tests.support.thread import ONCALL, shown

pytestmark = [pytest.mark.process]

SLOWLY = '{namespace="shop"} |= "slowly"'
BATCH = call("prometheus_query", query="up") + call("loki_query", query=SLOWLY)
HALF = say("Half of an answer")
LAST = say("It is the gateway, after all.")
DRAINED = ("batch", "writing")
"""Threads whose turn goes on in the next program."""


@dataclass
class Told:
    """What was seen on the way: exit codes, and the rows between two programs."""

    ends: FarEnds
    codes: dict[str, int] = field(default_factory=dict)
    between: dict[str, list[Row]] = field(default_factory=dict)
    stopped: tuple[int, str] = (0, "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Told]:
    """Three programs, one after another, on the same data."""
    async with far_ends(tmp_path_factory.mktemp("restart")) as ends:
        ends.world.slow("loki", 300.0, match="slowly")
        made = Told(ends)
        async with serving(ends, patience_s=3, drain_stream_margin_s=22) as first:
            await _sigterm_in_the_middle(ends, first, made)
        for table in ("sessions", "leases", "attempts", "settles", "calls", "cards", "turns"):
            made.between[table] = ends.rows(table)
        ends.world.slow("loki", 0.0, match="slowly")
        async with serving(ends) as second:
            await _go_on_and_stop(ends, second, made)
        async with serving(ends) as third:
            third.signal(signal.SIGINT)
            made.codes["Ctrl-C"] = await third.ended(25)
        yield made


async def _sigterm_in_the_middle(ends: FarEnds, program: BotProcess, made: Told) -> None:
    go = asyncio.Event()
    batch, steered = ends.room("batch", BATCH, LAST), ends.room("steered", BATCH, LAST)
    writing = ends.room("writing", HALF + hold_until(NEVER, MIDDLE), LAST)
    finishing = ends.room("finishing", LAST + hold_until(go, MIDDLE))
    done = ends.room("done", LAST)
    rooms = [batch, steered, writing, finishing, done]
    await asyncio.gather(*(room.ask() for room in rooms))
    for room in (batch, steered):
        await room.until(lambda room=room: [row["status"] for row in room.all("calls")] == ["ok", "open"])
    await asyncio.gather(writing.held(1), finishing.held(1), done.released(), *(room.cards() for room in rooms))
    await steered.reply("look at the gateway instead")
    await steered.until(lambda: any(row["disposition"] == "steer" for row in steered.all("messages")))
    program.signal(signal.SIGTERM)
    program.signal(signal.SIGTERM)
    await ends.slack.until(lambda: not ends.slack.wire.sockets)
    go.set()
    made.codes["SIGTERM"] = await program.ended(25)


async def _go_on_and_stop(ends: FarEnds, program: BotProcess, made: Told) -> None:
    for word in (*DRAINED, "steered"):
        await ends.rooms[word].released()
    operated = ends.room("operated", HALF + hold_until(NEVER, MIDDLE))
    await operated.ask()
    await operated.held(1)
    await operated.cards()
    made.stopped = await command(ends, "stop", "--all")
    await operated.released()
    program.signal(signal.SIGTERM)
    made.codes["SIGTERM while idle"] = await program.ended(25)


each = pytest.mark.parametrize


@each("how", ["SIGTERM", "SIGTERM while idle", "Ctrl-C"])
def test_the_program_ends_in_time_and_says_that_all_is_well(told: Told, how: str) -> None:
    """The first of them got its SIGTERM twice."""
    assert told.codes[how] == 0


def test_after_sigterm_nobody_holds_anything(told: Told) -> None:
    assert [row["lease_owner"] for row in told.between["sessions"]] == [None] * 5
    assert told.between["leases"] == []


@each("word", DRAINED)
def test_a_drained_turn_is_not_over(told: Told, word: str) -> None:
    turn = told.ends.rooms[word].all("turns")[0]["id"]
    assert [row["stamp"] for row in told.between["attempts"] if row["turn_id"] == turn] == ["drain"]
    assert not [row for row in told.between["settles"] if row["turn_id"] == turn]
    assert [row["state"] for row in told.between["cards"] if row["turn_id"] == turn] == ["open"]


@each("word", DRAINED)
def test_the_next_program_goes_on_with_the_same_turn_and_the_same_card(told: Told, word: str) -> None:
    room = told.ends.rooms[word]
    assert len(room.all("turns")) == 1
    assert [(row["ended"], row["stamp"]) for row in room.all("attempts")] == [
        ("drained", "drain"),
        ("finished", None),
    ]
    assert len({row["worker"] for row in room.all("attempts")}) == 2
    assert room.all("turns")[0]["crashes"] == 0
    assert len(room.every("card")) == 1 and len(room.every("answer")) == 1
    assert "Answered below." in shown(room.own("card")[0])
    card = room.all("cards")[0]
    assert (card["state"], card["error"]) == ("released", None)


def test_a_batch_is_hurried_and_closed_with_true_results_before_the_program_ends(told: Told) -> None:
    room = told.ends.rooms["batch"]
    turn = room.all("turns")[0]["id"]
    between = {row["tool"]: row for row in told.between["calls"] if row["turn_id"] == turn}
    assert between["prometheus_query"]["status"] == "ok"
    assert between["loki_query"]["status"] == "cancelled"
    assert "this worker is being shut down" in between["loki_query"]["output"]
    assert "Nothing was read" in json.dumps(room.requests()[1]["messages"][-1])
    assert len(room.requests()) == 2, "nothing new is asked while draining"


def test_an_answer_that_ends_soon_is_waited_for_and_posted_before_the_program_ends(told: Told) -> None:
    room = told.ends.rooms["finishing"]
    turn = room.all("turns")[0]["id"]
    assert [row["reason"] for row in told.between["settles"] if row["turn_id"] == turn] == ["completed"]
    assert [row["state"] for row in told.between["cards"] if row["turn_id"] == turn] == ["released"]
    assert len(room.every("answer")) == 1


def test_a_steer_and_a_drain_together_settle_the_turn_and_leave_the_next_one_to_the_next_program(told: Told) -> None:
    room = told.ends.rooms["steered"]
    first, second = room.all("turns", "number")
    assert [row["reason"] for row in told.between["settles"] if row["turn_id"] == first["id"]] == ["steered"]
    assert [row["state"] for row in told.between["turns"] if row["id"] == second["id"]] == ["waiting"]
    assert [row["reason"] for row in room.all("settles")] == ["steered", "completed"]
    assert f"<@{ONCALL}>" in shown(room.own("card")[0])
    assert "look at the gateway instead" in json.dumps(room.requests()[-1]["messages"][-1])
    assert len(room.every("card")) == 2 and len(room.every("answer")) == 1


def test_an_operator_stops_what_runs_in_another_process(told: Told) -> None:
    code, said = told.stopped
    assert code == 0, said
    room = told.ends.rooms["operated"]
    assert [row["reason"] for row in room.all("settles")] == ["cancelled"]
    assert len(room.requests()) == 1
    assert "Stopped by an operator before the first step." in shown(room.own("card")[0])
    assert not room.every("answer")


def test_the_model_was_never_sent_a_history_that_it_refuses(told: Told) -> None:
    told.ends.sound()
    assert not told.ends.rows("repairs")
