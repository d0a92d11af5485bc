"""What the ledger says, for people: `storage.reports` over both dialects, on rows that the transactions wrote."""

from __future__ import annotations

import json

import pytest

from core.errors import BadInput
from core.ledger import Stitch
from core.messages import (
    ChannelId,
    Level,
    Marker,
    SlackTs,
    Source,
    UserId,
    Who,
)
from core.settle import Detail, Outcome, Reason
from core.turn import Stamp
from storage.database import Database
from storage.reports import find_turn, ledger_panel, list_turns, paused, reached, targets, turn_story
from tests.support.house import ROOT, House


@pytest.fixture
def house(database: Database) -> House:
    return House(database)


async def test_a_completed_turn_is_listed_with_its_final_event_and_without_a_stamp(house: House) -> None:
    turn = await house.completed()
    async with house.db.reading() as tx:
        (line,) = await list_turns(tx)
    assert line["id"] == turn
    assert (line["channel"], line["thread_ts"], line["state"]) == ("C0INCIDENT", ROOT, "settled")
    assert (line["reason"], line["detail"], line["stamp"], line["card_state"]) == ("completed", None, None, "open")
    assert line["final_event_id"].startswith(turn)
    assert (line["steps"], line["cost_usd"]) == (1, pytest.approx(0.04))


async def test_a_steered_turn_is_listed_with_its_stamp_and_its_successor_without_one(house: House) -> None:
    first, second = await house.steered()
    async with house.db.reading() as tx:
        lines = await list_turns(tx)
    assert [line["id"] for line in lines] == [first, second]
    assert [line["stamp"] for line in lines] == ["steer", None]
    assert [line["reason"] for line in lines] == ["steered", "completed"]
    assert [line["ended_by"] for line in lines] == ["U0ONCALL", None]
    assert lines[0]["final_event_id"] is None


async def test_the_cost_of_a_running_turn_is_what_was_booked_so_far(house: House) -> None:
    claimed = await house.claim((await house.say("why?")).session)
    await house.step(claimed, 1, ["loki_query"])
    async with house.db.reading() as tx:
        (line,) = await list_turns(tx)
    assert (line["state"], line["reason"], line["cost_usd"]) == ("running", None, pytest.approx(0.01))


async def test_a_list_can_be_of_one_channel_one_state_and_the_newest(house: House) -> None:
    here = await house.completed()
    there = await house.completed(channel=ChannelId("C0RANDOM"))
    running = (await house.say("and now?")).turn
    async with house.db.reading() as tx:
        assert [line["id"] for line in await list_turns(tx, channel="C0RANDOM")] == [there]
        assert [line["id"] for line in await list_turns(tx, state="waiting")] == [running]
        assert [line["id"] for line in await list_turns(tx, newest=2)] == [there, running]
        assert [line["id"] for line in await list_turns(tx, turn=here)] == [here]


async def test_a_turn_is_found_by_the_beginning_of_its_id_if_that_means_only_one(house: House) -> None:
    first, second = await house.steered()
    async with house.db.reading() as tx:
        assert await find_turn(tx, first) == first
        assert await find_turn(tx, second[:-1]) == second
        with pytest.raises(BadInput, match=r"More than one turn begins with t- \(.*\): give more of the id"):
            await find_turn(tx, "t-")
        with pytest.raises(BadInput, match="There is no turn t-9: see `pilothouse turns list`"):
            await find_turn(tx, "t-9")
        with pytest.raises(BadInput, match="There is no turn"):
            await find_turn(tx, "t_00")
        with pytest.raises(BadInput, match="There is no turn without an id"):
            await find_turn(tx, "")


async def test_the_story_of_a_cut_turn_shows_the_message_that_cut_it_and_who_consumed_that(house: House) -> None:
    first, second = await house.steered()
    async with house.db.reading() as tx:
        story = await turn_story(tx, first)
    assert [(word["text"], word["disposition"], word["turn_id"]) for word in story["messages"]] == [
        ("why 5xx?", "start", first),
        ("it's the gateway", "steer", second),
    ]
    assert [(one["number"], one["ended"], one["stamp"]) for one in story["attempts"]] == [(1, "cut", "steer")]
    assert [entry["kind"] for entry in story["entries"]] == ["user", "assistant", "results"]
    assert [(call["tool"], call["status"], call["duration_ms"]) for call in story["calls"]] == [
        ("loki_query", "ok", 250.0)
    ]
    assert story["settle"]["reason"] == "steered"
    assert story["turn"]["successor_id"] == second
    assert (story["diagnosis"], story["automation"]) == (None, None)
    json.dumps(story)


async def test_the_story_of_a_failed_turn_holds_its_diagnosis_its_repairs_and_the_automation_row(
    house: House,
) -> None:
    asked = await house.say("disk full", source=Source.ALERT, author=UserId("B0ALERTS"), who=Who.BOT)
    claimed = await house.claim(asked.session)
    await house.ledger.stitched(claimed, [Stitch("R20", "messages.1", "closed a lost call")])
    await house.ledger.settle(claimed, Outcome(Reason.FAILED, Detail.PROVIDER, known="529 for two minutes"), [])
    async with house.db.reading() as tx:
        story = await turn_story(tx, claimed.turn)
    assert (story["diagnosis"]["kind"], story["diagnosis"]["text"]) == ("provider", "529 for two minutes")
    assert (story["automation"]["outcome"], story["settle"]["detail"]) == ("failed", "provider")
    assert [(one["rule"], one["what"]) for one in story["repairs"]] == [("R20", "closed a lost call")]


async def test_the_story_holds_the_stop_that_ended_a_turn_and_not_the_one_that_came_after(house: House) -> None:
    asked = await house.say("why?")
    claimed = await house.claim(asked.session)
    stop = {"source": Source.REPLY, "marker": Marker.CANCEL, "bare": True, "level": Level.TASK}
    await house.say("", **stop, ts=SlackTs("1790000500.000100"))
    await house.ledger.settle(claimed, Outcome(Reason.CANCELLED, stamp=Stamp.STOP), [])
    await house.say("", **stop, ts=SlackTs("1790000900.000100"), author=UserId("U0ONCALL"))
    async with house.db.reading() as tx:
        story = await turn_story(tx, claimed.turn)
    assert [(one["author"], one["level"]) for one in story["stops"]] == [("U0ENGINEER", "task")]
    assert [word["disposition"] for word in story["messages"]] == ["start", "control"]


async def test_the_panel_shows_a_thread_with_every_message_once(house: House) -> None:
    first, second = await house.steered()
    await house.completed(channel=ChannelId("C0RANDOM"))
    await house.say("lunch?", source=Source.REPLY, author=UserId("U0OTHER"))
    panel = await ledger_panel(house.db, "C0INCIDENT", ROOT)
    assert [turn["id"] for turn in panel["turns"]] == [first, second]
    assert [[word["text"] for word in turn["messages"]] for turn in panel["turns"]] == [
        ["why 5xx?"],
        ["it's the gateway"],
    ]
    assert [word["text"] for word in panel["loose"]] == ["lunch?"]
    assert [turn["attempts"] for turn in panel["turns"]] == [
        [{"number": 1, "worker": "w1", "end": "cut", "stamp": "steer"}],
        [{"number": 1, "worker": "w1", "end": "finished", "stamp": None}],
    ]
    assert panel["turns"][0]["calls"] == [
        {"step": 1, "tool": "loki_query", "status": "ok", "duration_ms": 250.0, "input_summary": "query=up"}
    ]
    json.dumps(panel)


async def test_the_panel_shows_notes_and_stops_under_the_turn_that_ran_then(house: House) -> None:
    turn = (await house.say("why?")).turn
    await house.say("lunch?", source=Source.REPLY, author=UserId("U0OTHER"))
    stop = {"source": Source.REPLY, "marker": Marker.STOP_STEP, "bare": True, "level": Level.STEP}
    await house.say("", **stop, ts=SlackTs("1790000500.000100"))
    panel = await ledger_panel(house.db, "C0INCIDENT", ROOT)
    assert [turn["id"] for turn in panel["turns"]] == [turn]
    assert [word["disposition"] for word in panel["turns"][0]["messages"]] == ["start", "note", "control"]
    assert [(one["author"], one["level"], one["ts"]) for one in panel["stops"]] == [
        ("U0ENGINEER", "step", "1790000500.000100")
    ]
    assert panel["loose"] == []


async def test_the_panel_takes_the_same_few_statements_however_many_turns_there_are(house: House) -> None:
    await house.steered()
    await ledger_panel(house.db, "C0INCIDENT", ROOT)
    before = house.db.statements
    await ledger_panel(house.db, "C0INCIDENT", ROOT)
    few = house.db.statements - before
    for _ in range(3):
        await house.completed()
    before = house.db.statements
    await ledger_panel(house.db, "C0INCIDENT", ROOT)
    assert house.db.statements - before == few <= 10


async def test_the_panel_of_a_thread_that_nobody_asked_in_is_empty(house: House) -> None:
    assert await ledger_panel(house.db, "C0INCIDENT", "1.0") == {"turns": [], "loose": [], "stops": []}


async def test_what_a_stop_is_about_is_what_has_not_settled_there(house: House) -> None:
    await house.completed()
    here = (await house.say("and now?")).turn
    there = (await house.say("why?", channel=ChannelId("C0RANDOM"))).turn
    async with house.db.reading() as tx:
        assert [row["id"] for row in await targets(tx)] == [here, there]
        assert [row["id"] for row in await targets(tx, channel="C0RANDOM")] == [there]
        assert [row["id"] for row in await targets(tx, channel="C0INCIDENT", thread_ts=ROOT)] == [here]
        assert [row["id"] for row in await targets(tx, turn=str(there))] == [there]
        (row,) = await targets(tx, turn=str(here))
        assert row["newest_word"] >= row["newest_ts"]


async def test_a_turn_is_reached_by_a_stop_that_is_newer_than_what_it_consumed(house: House) -> None:
    turn = (await house.say("why?")).turn
    stop = {"source": Source.REPLY, "marker": Marker.CANCEL, "bare": True, "level": Level.TASK}
    async with house.db.reading() as tx:
        assert not await reached(tx, str(turn))
    await house.say("", **stop, ts=SlackTs("1790000500.000100"))
    async with house.db.reading() as tx:
        assert await reached(tx, str(turn))


async def test_who_paused_is_known_until_somebody_resumes(house: House) -> None:
    async with house.db.reading() as tx:
        assert await paused(tx) is None
    await house.ledger.pause(True, "ann")
    async with house.db.reading() as tx:
        switch = await paused(tx)
        assert switch is not None
        assert switch["changed_by"] == "ann"
    await house.ledger.pause(False, "ann")
    async with house.db.reading() as tx:
        assert await paused(tx) is None
