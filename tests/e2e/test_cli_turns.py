"""`pilothouse turns`: what the ledger says, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

from core.messages import Source, TurnId, Who
from core.ports import Snapshot, ToolOutput
from core.settle import Detail, Outcome, Reason
from core.trace import trace_id
from tests.support.cli import Run, happen, json_of, sentence_of
from tests.support.house import ROOT, House

PAGE = Snapshot("https://docs.example.com/a", 1_789_997_600.0, "d" * 64, "# Title\x1b[2J\n\n  whole")

pytest_plugins = ["tests.e2e.cli_fixtures"]


def test_turns_list_gives_rows_with_the_keys_that_programs_rely_on(cli: Run, place: Path) -> None:
    first, second = happen(place, lambda house: house.steered())
    listed = json_of(cli("turns", "list", "--json", "--data", place))
    keys = "id channel thread_ts state stamp reason detail final_event_id card_state"
    assert [tuple(row[key] for key in keys.split()) for row in listed] == [
        (first, "C0INCIDENT", ROOT, "settled", "steer", "steered", None, None, "open"),
        (second, "C0INCIDENT", ROOT, "settled", None, "completed", None, listed[1]["final_event_id"], "open"),
    ]
    assert listed[1]["final_event_id"].startswith(second)


def test_turns_list_is_plain_columns_when_no_terminal_reads_it(cli: Run, place: Path) -> None:
    first, second = happen(place, lambda house: house.steered())
    _, out, _ = cli("turns", "list", "--data", place)
    head, *lines = out.splitlines()
    assert head.split() == ["TURN", "STARTED", "THREAD", "OUTCOME", "STAMP", "CARD", "STEPS", "COST", "ASKED"]
    assert [line.split()[0] for line in lines] == [first, second]
    assert "\x1b" not in out


def test_turns_list_says_that_there_are_more_and_that_turns_are_paused(cli: Run, place: Path) -> None:
    happen(place, lambda house: house.steered())
    cli("pause", "--data", place)
    code, out, err = cli("turns", "list", "--newest", "1", "--json", "--data", place)
    assert (code, len(json.loads(out))) == (0, 1)
    more, paused = err.splitlines()
    assert more == "pilothouse: There are more; these are the 1 newest (see --newest)."
    assert paused.startswith("pilothouse: Paused by ")


def test_turns_show_tells_a_cut_in_the_order_in_which_it_happened(cli: Run, place: Path) -> None:
    first, second = happen(place, lambda house: house.steered())
    code, out, _ = cli("turns", "show", first, "--data", place)
    assert code == 0
    told = [
        f"Turn {first}: mention in C0INCIDENT, thread {ROOT}",
        "settled: steered. Redirected by @U0ONCALL at step 1, continued below.",
        f"{second} goes on from here",
        'message  mention by @U0ENGINEER (member) "why 5xx?" -> start by row asked; consumed',
        "turn 1 of the session",
        "card     opened",
        "attempt 1 on w1, epoch 1",
        "the model is told: <@U0ENGINEER>: why 5xx?",
        f'"it\'s the gateway" -> steer by row asked; consumed by {second}',
        "step 1: the model asks for 1 call: loki_query(query=up)",
        "step 1: loki_query(query=up) ok after 0.25 s: all fine",
        "step 1: 1 result committed, nothing is open",
        "attempt 1 cut, stamp steer, at the safe point behind step 1",
        "settle   steered by @U0ONCALL at step 1: no final event",
        "Cost:    $0.0100 for 1 model request: 100 tokens in, 10 out, 0 read from cache",
    ]
    places = [out.find(line) for line in told]
    assert -1 not in places
    assert places == sorted(places)


def test_turns_show_as_json_has_the_rows_and_the_timeline(cli: Run, place: Path) -> None:
    turn = happen(place, lambda house: house.completed())
    shown = json_of(cli("turns", "show", turn, "--json", "--data", place))
    assert (shown["id"], shown["state"], shown["reason"], shown["stamp"]) == (turn, "settled", "completed", None)
    assert [call["tool"] for call in shown["calls"]] == ["prometheus_query", "loki_query"]
    assert shown["settle"]["final_event_id"] == shown["final_event_id"]
    assert " ".join(event["what"] for event in shown["timeline"]) == (
        "message turn outbox card attempt entry step call call step answer attempt settle outbox"
    )


def test_turns_show_prints_one_call_whole_with_what_was_kept_of_it(cli: Run, place: Path) -> None:
    async def story(house: House) -> str:
        asked = await house.say("why 5xx?")
        claimed = await house.claim(asked.session)
        await house.step(claimed, 1, ["prometheus_query", "loki_query"], brought=ToolOutput("up  1\n" * 9_000))
        await house.step(claimed, 2, ["read_web_page"], brought=ToolOutput("a part", snapshot=PAGE))
        await house.answer(claimed)
        return claimed.turn

    turn = happen(place, story)
    _, out, _ = cli("turns", "show", turn, "--call", "2", "--data", place)
    head, body = out.split("\n\n", 1)
    assert head.splitlines()[0] == f"Call 2:    loki_query (read), step 1 of {turn}"
    assert 'Arguments: {"query": "up"}' in head
    assert "Evidence:  the whole output, 54,000 characters, sha256 " in head
    assert body == "up  1\n" * 9_000 + "\n"
    _, out, _ = cli("turns", "show", turn, "--call", "3", "--data", place)
    assert (
        "Evidence:  the page https://docs.example.com/a, read 2026-09-21 13:33:20 UTC, 20 characters, sha256 of its "
        f"bytes {'d' * 64}\n\n# Title [2J\n\n  whole\n" in out
    )
    row = json_of(cli("turns", "show", turn, "--call", "3", "--json", "--data", place))
    assert (row["evidence"], row["evidence_kind"]) == (PAGE.text, "page")
    said = sentence_of(cli("turns", "show", turn, "--call", "4", "--data", place))
    assert said == f"Turn {turn} has 3 calls: give the number of one, as `turns show` counts them."


def test_turns_show_takes_the_beginning_of_an_id_and_says_when_it_fits_several(cli: Run, place: Path) -> None:
    first, second = happen(place, lambda house: house.steered())
    assert json_of(cli("turns", "show", first[:5], "--json", "--data", place))["id"] == first
    said = sentence_of(cli("turns", "show", "t-0", "--data", place))
    assert said == f"More than one turn begins with t-0 ({first}, {second}): give more of the id."
    _, out, _ = cli("turns", "show", trace_id(second), "--data", place)
    assert f"Turn {second}: " in out and f"Trace:   {trace_id(second)}" in out
    said = sentence_of(cli("turns", "show", trace_id(TurnId("t-none")), "--data", place))
    assert said.startswith(f"There is no turn {trace_id(TurnId('t-none'))}: ")
    said = sentence_of(cli("turns", "show", "t-9", "--data", place))
    assert said == "There is no turn t-9: see `pilothouse turns list` for their ids."


def test_nothing_that_people_wrote_can_act_on_the_terminal(cli: Run, place: Path) -> None:
    async def story(house: House) -> str:
        asked = await house.say("disk \x1b[2J\x1b[31mfull\n\u202elive\x07", source=Source.ALERT, who=Who.BOT)
        claimed = await house.claim(asked.session)
        outcome = Outcome(Reason.FAILED, Detail.PROVIDER, known="529 for two minutes")
        await house.ledger.settle(claimed, outcome, [])
        return claimed.turn

    turn = happen(place, story)
    for arguments in (["turns", "list"], ["turns", "show", turn]):
        _, out, _ = cli(*arguments, "--data", place)
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "disk [2J [31mfull live" in out
    assert "diagnosis   provider: 529 for two minutes" in out
    assert "automation  alert: failed" in out
