"""`pilothouse turns`: what the ledger says about turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.commands.output import AsJson, clock, complain, moment, printable, shorten, write, write_json
from bot.commands.place import Config, Data, read
from bot.commands.tables import write_table
from bot.commands.timeline import Event, timeline
from bot.commands.whole_call import whole_call
from core.card_words import ENDINGS, ended_at
from core.trace import trace_id
from core.turn import TurnState
from storage.call_reports import call_story
from storage.reports import Row, find_turn, list_turns, paused, turn_story

app = typer.Typer(help="What the ledger says about turns.")

NEWEST = 1000
LATE_S = 30.0
"""After this long an open card of a settled turn is a sign that nobody writes to Slack."""
COLUMNS = ("turn", "started", "thread", "outcome", "stamp", "card", "steps", "cost", "asked")


@app.command(name="list")
def list_(
    channel: Annotated[
        str | None, typer.Option(metavar="ID", help="Only of this channel.", show_default=False)
    ] = None,
    state: Annotated[TurnState | None, typer.Option(help="Only in this state.", show_default=False)] = None,
    newest: Annotated[int, typer.Option(min=1, help="How many, the newest ones.")] = NEWEST,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List turns, the newest last."""

    async def ask(tx: AsyncConnection) -> tuple[list[Row], Row | None]:
        wanted = None if state is None else state.value
        return await list_turns(tx, channel=channel, state=wanted, newest=newest + 1), await paused(tx)

    found, by = read(data, config, ask)
    more, found = len(found) > newest, found[-newest:]
    if as_json:
        write_json(found)
    elif found:
        write_table(COLUMNS, [_line(turn) for turn in found], wrap={"asked"})
    else:
        write("No turns.\n")
    if more:
        complain(f"There are more; these are the {newest} newest (see --newest).")
    if by is not None:
        complain(f"Paused by {by['changed_by']} since {moment(by['changed_at'])} UTC: no new turn starts.")


def _line(turn: Row) -> list[object]:
    detail = f" ({turn['detail']})" if turn["detail"] else ""
    return [
        turn["id"],
        moment(turn["created_at"]),
        f"{turn['channel']}:{turn['thread_ts']}",
        f"{turn['reason']}{detail}" if turn["reason"] else turn["state"],
        turn["stamp"],
        turn["card_state"],
        turn["steps"],
        f"${turn['cost_usd']:.4f}",
        f"@{turn['asked_by']} {shorten(turn['asked_text'], 60)}",
    ]


@app.command()
def show(
    turn: Annotated[str, typer.Argument(metavar="ID", help="The turn's id, the beginning of it, or its trace_id.")],
    call: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Only its call number N, with all that it brought.", show_default=False
        ),
    ] = None,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show everything that happened in one turn, in order; or one of its calls, whole."""

    async def ask(tx: AsyncConnection) -> Row:
        found = await find_turn(tx, turn)
        return await turn_story(tx, found) if call is None else await call_story(tx, found, call)

    story = read(data, config, ask)
    if call is not None:
        write_json(story) if as_json else write("\n".join(whole_call(story, call)) + "\n")
        return
    events = timeline(story)
    if as_json:
        lines = [{"at": event.at, "what": event.what, "words": event.words} for event in events]
        write_json({**story.pop("turn"), **story, "timeline": lines})
    else:
        write("\n".join([*_head(story), "", *_body(events), "", *_foot(story)]) + "\n")


def _head(story: Mapping[str, Any]) -> list[str]:
    turn = story["turn"]
    head = {
        f"Turn {turn['id']}": f"{turn['source']} in {turn['channel']}, thread {turn['thread_ts']}",
        "Asked": f"@{turn['asked_by']}: {shorten(turn['asked_text'], 200)}",
        "State": f"{turn['state']}: {_state(story)}",
        "Card": _card(story),
        "Trace": trace_id(turn["id"]),
    }
    if turn["successor_id"]:
        head["Next"] = f"{turn['successor_id']} goes on from here"
    return [f"{name + ':':<8} {printable(words)}" for name, words in head.items()]


def _state(story: Mapping[str, Any]) -> str:
    turn, settle = story["turn"], story["settle"]
    if settle is not None:
        ending = ENDINGS.get((settle["reason"], settle["detail"] or ""), ENDINGS[("failed", "")])
        by = f"@{settle['ended_by']}" if settle["ended_by"] else "an operator"
        return f"{settle['reason']}. {ending.happened.format(by=by, at=ended_at(settle['step']))}"
    if turn["state"] == "running":
        left = (turn["lease_until"] or 0.0) - turn["now"]
        held = f"the lease has {left:.0f} s left" if left > 0 else "the lease has run out: another worker may take it"
        return f"on {turn['lease_owner']}, {held}" if turn["lease_owner"] else "on no worker: it is to be taken"
    if turn["state"] == "waiting":
        return f"may start {max(0.0, turn['start_after'] - turn['now']):.1f} s from now"
    return "waits for a decision, a timer or a job"


def _card(story: Mapping[str, Any]) -> str:
    card, turn = story["card"], story["turn"]
    if card is None:
        return "none"
    words = f"{card['state']}, " + (f"message {card['message_ts']}" if card["message_ts"] else "not posted")
    if card["error"]:
        words += f", last error {card['error']}"
    late_s = turn["now"] - turn["settled_at"] if turn["settled_at"] is not None else 0.0
    if card["state"] == "open" and late_s > LATE_S and not story["helpers"]:
        words += f"; the turn settled {late_s:.0f} s ago, so the writer is behind: is `pilothouse serve` running?"
    return words


def _body(events: list[Event]) -> list[str]:
    if not events:
        return []
    began = events[0].at
    day = moment(began)[:10]
    width = max(len(event.what) for event in events)
    lines = [
        f"{clock(event.at)} {event.at - began:+10.3f} s  {event.what:<{width}}  {printable(event.words)}"
        for event in events
    ]
    return [f"{day}, UTC, and seconds since the first line:", *lines]


def _foot(story: Mapping[str, Any]) -> list[str]:
    costs = story["costs"]
    if not costs:
        return ["Cost:    nothing booked yet"]
    dollars = sum(row["usd"] for row in costs)
    guessed = sum(1 for row in costs if row["estimated"])
    tokens = (
        f"{sum(row['input_tokens'] for row in costs)} tokens in, {sum(row['output_tokens'] for row in costs)} out, "
        f"{sum(row['cache_read_tokens'] for row in costs)} read from cache"
    )
    estimated = f", {guessed} of them dropped and estimated" if guessed else ""
    requests = f"{len(costs)} model request{'s' if len(costs) != 1 else ''}"
    return [f"Cost:    ${dollars:.4f} for {requests}{estimated}: {tokens}"]
