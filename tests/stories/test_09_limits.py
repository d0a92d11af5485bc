"""Story 9: ten running turns share one workspace's limits. Slack never has to say no, and no card stands still."""

from __future__ import annotations

import asyncio
from itertools import chain, pairwise, repeat
from pathlib import Path

from bot.playground.model import call, hold_until, pace, say
from bot.playground.slack.chaos import Chaos
from bot.slack.pace import BURST, PER_MINUTE, RESERVED_FOR_URGENT, Pace
from core.limits import Limits
from tests.support.rooms import Room, far_ends, program
from tests.support.scene import tool
from tests.support.thread import part_of

LIMITS = Limits(quiet_s=0.0, quiet_max_s=0.0, poll_s=0.2, lease_s=120.0, max_steps=1_000)
LONGEST_STILL_S = 15.0
TURNS = 10
MOST_BETWEEN = PER_MINUTE["chat.update"] / 60 * LONGEST_STILL_S + BURST["chat.update"] - RESERVED_FOR_URGENT
"""So many edits fit into that time. (On a busy machine everything takes longer, but no card is passed over.)"""


async def test_ten_running_turns_are_never_limited_and_no_card_stands_still_while_others_change(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with far_ends(tmp_path) as ends:
        ends.slack.limits_on()
        go = asyncio.Event()
        last = say("It is the gateway.") + hold_until(go)
        step = call("metrics", q="up") + pace(0.7)
        for number in range(TURNS):
            busy = number % 2
            ends.room(f"turn{number}", then=chain(repeat(step, 30), [last]) if busy else [last])
        rooms = list(ends.rooms.values())
        async with program(ends, limits=LIMITS, tools=[tool("metrics")], pace=Pace(loop.time)):
            await asyncio.gather(*(room.ask() for room in rooms))
            for room in rooms:
                await room.until(lambda room=room: len(changes(room)) >= 3)
            edits = [one.args["channel"] for one in ends.slack.called("chat.update")]
            go.set()
            for room in rooms:
                await room.answers()
        for room in rooms:
            mine = [number for number, channel in enumerate(edits) if channel == room.channel]
            assert max(after - before for before, after in pairwise([-1, *mine, len(edits)])) <= MOST_BETWEEN + 1
        limited = [one for one in ends.slack.calls if one.status == 429]
        assert not limited
        ends.sound()


def changes(room: Room) -> list[float]:
    """When the room's card was posted and changed."""
    return [
        version["at"] for version in room.slack.every_version(room.channel) if part_of(version["message"]) == "card"
    ]


def test_for_an_hour_of_ten_busy_cards_and_what_else_is_said_the_pace_keeps_below_slacks_limits() -> None:
    """The same with nothing but the two clocks: whatever the writer is allowed, Slack takes."""
    now = 0.0
    ours, slack = Pace(lambda: now), Chaos(lambda: now, limits=True)
    shown = dict.fromkeys(range(TURNS), 0.0)
    stillest = 0.0
    while now < 3600.0:
        now += 0.1
        if round(now * 10) % 1200 == 0:
            for _ in range(3):
                if ours.may("chat.update", "C1", urgent=True):
                    assert slack.retry_after_s("chat.update", {}) == 0
        if ours.may("chat.postMessage", "C1", urgent=True):
            assert slack.retry_after_s("chat.postMessage", {"channel": "C1"}) == 0
        card = min(shown, key=lambda one: shown[one])
        if ours.may("chat.update", "C1", urgent=False):
            assert slack.retry_after_s("chat.update", {}) == 0
            stillest = max(stillest, now - shown[card])
            shown[card] = now
    assert stillest <= LONGEST_STILL_S + 3, "even when final cards take their share of the budget"
