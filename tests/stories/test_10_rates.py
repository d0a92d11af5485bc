"""Story 10, rates: many cards share one budget, fairly, and Slack never has to say no."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.playground.model import say
from bot.slack.pace import Pace
from bot.slack.verdict import read, wait_of
from tests.support.replay import ended, staged
from tests.support.thread import ONCALL

CARDS = 10
ALLOWED_A_MINUTE = 50
MOST_BETWEEN_S = 15.0


def test_ten_cards_that_change_every_second_stay_within_the_budget_and_all_keep_moving() -> None:
    clock = [0.0]
    pace = Pace(lambda: clock[0])
    shown = dict.fromkeys(range(CARDS), 0.0)
    sent: list[float] = []
    longest = 0.0
    while clock[0] < 600:
        clock[0] += 0.5
        for card in sorted(shown, key=lambda card: shown[card]):
            if clock[0] - shown[card] >= 2.0 and pace.may("chat.update", "C1", urgent=False):
                longest = max(longest, clock[0] - shown[card])
                shown[card] = clock[0]
                sent.append(clock[0])
    assert longest <= MOST_BETWEEN_S
    in_a_minute = [sum(at - 60 < other <= at for other in sent) for at in sent]
    assert max(in_a_minute) <= ALLOWED_A_MINUTE + 10
    assert max(in_a_minute[len(sent) // 2 :]) <= ALLOWED_A_MINUTE


def test_what_is_final_goes_out_even_when_progress_has_used_its_share() -> None:
    clock = [0.0]
    pace = Pace(lambda: clock[0])
    while pace.may("chat.update", "C1", urgent=False):
        pass
    assert [pace.may("chat.update", "C1", urgent=True) for _ in range(4)] == [True] * 4


def test_a_pause_is_for_the_method_and_the_workspace() -> None:
    clock = [0.0]
    pace = Pace(lambda: clock[0])
    pace.pause("chat.update", 7.0)
    assert not pace.may("chat.update", "C1", urgent=True) and not pace.may("chat.update", "C2", urgent=True)
    assert pace.may("chat.postMessage", "C1", urgent=True)
    clock[0] = 7.1
    assert pace.may("chat.update", "C1", urgent=True)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("12", 12.0),
        ("0", 5.0),
        ("-3", 5.0),
        ("soon", 5.0),
        ("", 5.0),
        ("99999", 120.0),
        ("nan", 5.0),
        ("inf", 5.0),
        ("1e400", 5.0),
        ("Wed, 30 Nov 2026 10:00:30 GMT", 30.0),
        ("Wed, 30 Nov 2026 09:00:00 GMT", 5.0),
        ("Wed, 30 Nov 2099 10:00:00 GMT", 120.0),
    ],
)
def test_whatever_a_429_carries_is_a_wait_between_nothing_and_two_minutes(header: str, seconds: float) -> None:
    headers = {"Retry-After": header, "Date": "Wed, 30 Nov 2026 10:00:00 GMT"}
    assert wait_of(headers, {}) == pytest.approx(seconds)
    assert read({"ok": False, "error": "ratelimited"}, 429, headers).wait_s == pytest.approx(seconds)
    assert read({}, 429, {}).wait_s == 5.0


async def test_a_dozen_threads_at_once_never_make_slack_refuse_a_call(tmp_path: Path) -> None:
    async with staged(tmp_path, pace=Pace(asyncio.get_running_loop().time)) as stage:
        stage.ends.slack.limits_on()
        rooms = [stage.room(f"limited{number}", say("It was the gateway.")) for number in range(12)]
        await asyncio.gather(*(room.ask() for room in rooms))
        for room in rooms:
            await ended(room, "completed")
        for number in range(3):
            await rooms[0].reply(f"<@{ONCALL}> words to somebody {number}", ONCALL)
        refused = [call for call in stage.ends.slack.calls if call.status == 429]
        assert refused == []
