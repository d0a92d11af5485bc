"""One session on one worker: what is run, what is only settled, and that the lease goes back however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from core.actor import NOT_READ, Actor
from core.agent_loop import Means
from core.control import Control, Mail
from core.errors import LostLease
from core.gateway import CallStatus, Gateway
from core.ledger import Claimed, Frozen, OpenCall, Settled, Surroundings, Wanted
from core.limits import Limits
from core.messages import ChannelId, SlackTs, TurnId
from core.ports import Tier
from core.settle import Detail, Outcome, Reason
from core.turn import CRASHES_THAT_ABANDON, Stamp
from tests.core.doubles import SESSION, STEP, TASK, Lines, PaperLedger, after, answer, call, claimed, tool, unasked
from tests.support.scene import keeping
from tests.support.virtual_time import ends_within, in_virtual_time, now, run

FINE = answer("It is the gateway.")
WANTED = Wanted(ChannelId("C0INCIDENT"), SlackTs("1.0"), SlackTs("2.0"), True, ())
RELEASED = [(SESSION,)]


class House:
    """An actor, the session that it works on, and whoever listens to it. `reads` is how Slack is read."""

    def __init__(self, *claims: Claimed | None, lines: Any = (FINE,), tools: Any = (), **limits: Any) -> None:
        self.model = Lines(list(lines))
        self.ledger = PaperLedger(claims=list(claims))
        self.ledger.messages = list(claimed().messages)
        self.limits = Limits(**limits)
        self.tools = list(tools) or [tool("look")]
        self.heard: list[str] = []
        self.faults: list[BaseException] = []
        self.outcomes: list[Outcome] = []
        self.controls: list[Control] = []
        self.asked_at: list[float] = []
        self.draining = False
        self.reads: Callable[[], Any] = lambda: after_s(0, Surroundings("[the thread above]"))
        settle = self.ledger.settle

        async def kept(turn: Claimed, outcome: Outcome, spent: Any) -> Settled:
            self.outcomes.append(outcome)
            return await settle(turn, outcome, spent)

        self.ledger.settle = kept  # type: ignore[method-assign]

    async def read(self, wanted: Wanted) -> Surroundings:
        self.heard.append("read")
        found: Surroundings = await self.reads()
        return found

    def took(self, turn: Claimed, control: Control, asked_at: float) -> None:
        self.heard.append("taken")
        self.controls.append(control)
        self.asked_at.append(asked_at)

    async def run(self) -> None:
        gateway = Gateway(self.tools, self.limits, now)
        actor = Actor(
            Means(self.model, gateway, self.ledger, self.limits, now, lambda: 0.5, approvals=unasked(self.tools)),
            lambda: Frozen("claude-test", "You are a test.", []),
            self,
            worker="worker-1",
            limits=lambda _channel: self.limits,
            draining=lambda: self.draining,
            taken=self.took,
            settled=lambda _turn, _settled: self.heard.append("settled"),
            fault=lambda _turn, error: self.faults.append(error),
        )
        await actor.run(SESSION)

    @property
    def verbs(self) -> list[str]:
        return [row[0] for row in self.ledger.wrote]


async def after_s(seconds: float, found: Any = None) -> Any:
    await asyncio.sleep(seconds)
    if isinstance(found, BaseException):
        raise found
    return found


# -- the plain way


@in_virtual_time
async def test_a_turn_is_claimed_run_settled_and_the_lease_goes_back() -> None:
    house = House(claimed())
    await house.run()
    assert house.verbs == ["claim", "settle", "release"]
    assert house.heard == ["taken", "settled"]
    assert house.outcomes[0].reason is Reason.COMPLETED
    assert [spent.usage.estimated for spent in house.ledger.spent] == [False]


@in_virtual_time
async def test_without_a_turn_there_is_nothing_to_give_back() -> None:
    house = House(None)
    await house.run()
    assert house.verbs == ["claim"]


@pytest.mark.parametrize(("starts_now", "claims"), [(True, 2), (False, 1)])
def test_the_next_turn_runs_here_unless_it_waits_for_a_quiet_thread(starts_now: bool, claims: int) -> None:
    async def ran() -> House:
        house = House(claimed(), None)
        house.ledger.settled = Settled(Reason.COMPLETED, TurnId("t2"), starts_now)
        await house.run()
        return house

    house = run(ran())
    assert len(house.ledger.words("claim")) == claims
    assert house.ledger.words("release") == RELEASED


@in_virtual_time
async def test_limits_are_those_of_the_channel() -> None:
    house = House(claimed(), lines=[answer("", ("look", {})), FINE], max_steps=1)
    await house.run()
    assert [request.without_tools for request in house.model.requests] == [False, True]


# -- turns that are only settled


@pytest.mark.parametrize(
    ("found", "reason", "stamp"),
    [
        ({"stamp": Stamp.STEER}, Reason.STEERED, Stamp.STEER),
        ({"stamp": Stamp.DISPATCH}, Reason.DISPATCHED, Stamp.DISPATCH),
        ({"stamp": Stamp.AWAIT}, Reason.AWAITING, Stamp.AWAIT),
        ({"stamp": Stamp.STOP, "stop": STEP}, Reason.STOPPED_STEP, Stamp.STOP),
        ({"stamp": Stamp.STOP, "stop": TASK}, Reason.CANCELLED, Stamp.STOP),
        ({"stamp": Stamp.STEER, "crashes": 9}, Reason.STEERED, Stamp.STEER),
        ({"stamp": Stamp.STEER, "stop": STEP}, Reason.STEERED, Stamp.STEER),
        ({"stop": STEP}, Reason.STOPPED_STEP, Stamp.STOP),
        ({"stop": TASK, "crashes": 9}, Reason.CANCELLED, Stamp.STOP),
        ({"crashes": CRASHES_THAT_ABANDON}, Reason.ABANDONED, None),
    ],
)
def test_a_turn_that_was_cut_stopped_or_crashed_too_often_is_settled_and_not_run(
    found: dict[str, Any], reason: Reason, stamp: Stamp | None
) -> None:
    async def ran() -> House:
        house = House(claimed(**found))
        await house.run()
        return house

    house = run(ran())
    (end,) = house.outcomes
    assert (end.reason, end.stamp) == (reason, stamp)
    assert end.ended_by == (found["stop"].author if stamp is Stamp.STOP else None)
    assert not house.model.requests
    assert ("died 3 times" in end.known) is (reason is Reason.ABANDONED)


@in_virtual_time
async def test_two_crashes_do_not_abandon() -> None:
    house = House(claimed(crashes=2))
    await house.run()
    assert house.outcomes[0].reason is Reason.COMPLETED


def with_open_calls(*statuses: CallStatus, tier: Tier = Tier.READ, **changes: Any) -> Claimed:
    opened = [OpenCall(call("look", tier), status.value, None) for status in statuses]
    said = [{"type": "tool_use", "id": one.call.call_id, "name": "look", "input": {}} for one in opened]
    messages = [*claimed().messages, {"role": "assistant", "content": said}]
    return claimed(messages=messages, open_calls=opened, steps=1, **changes)


@in_virtual_time
async def test_a_turn_that_crashes_in_its_batch_each_time_is_abandoned_once_the_batch_is_closed() -> None:
    house = House(with_open_calls(CallStatus.OPEN, crashes=CRASHES_THAT_ABANDON))
    await house.run()
    assert house.outcomes[0].reason is Reason.ABANDONED
    assert house.ledger.words("close") == [(1, ["interrupted"], None)]
    assert not house.model.requests


@in_virtual_time
async def test_an_unknown_write_is_said_even_by_the_crash_that_abandons() -> None:
    house = House(with_open_calls(CallStatus.INTENT, tier=Tier.WRITE, crashes=CRASHES_THAT_ABANDON))
    await house.run()
    assert house.outcomes[0].detail is Detail.OUTCOME_UNKNOWN


# -- the door around a turn


@in_virtual_time
async def test_whatever_goes_wrong_inside_is_settled_truthfully_and_told_to_the_operators() -> None:
    house = House(claimed(), lines=[ZeroDivisionError("secret")])
    await house.run()
    (end,) = house.outcomes
    assert (end.reason, end.detail) == (Reason.FAILED, Detail.INTERNAL)
    assert "ZeroDivisionError" in end.known and "secret" not in end.known
    assert [type(error) for error in house.faults] == [ZeroDivisionError]
    assert house.ledger.words("release") == RELEASED


@in_virtual_time
async def test_a_fault_in_the_middle_of_a_batch_leaves_the_turn_to_be_closed_from_its_rows() -> None:
    house = House(claimed(), lines=[answer("", ("look", {}))])
    house.ledger.trouble["close"] = ConnectionError("the database went away")
    await house.run()
    assert not house.outcomes
    assert [type(error) for error in house.faults] == [ConnectionError]
    assert house.ledger.words("release") == RELEASED


@in_virtual_time
async def test_a_batch_that_can_never_be_closed_does_not_keep_the_turn_for_ever() -> None:
    house = House(with_open_calls(CallStatus.OPEN, crashes=CRASHES_THAT_ABANDON))
    house.ledger.trouble["close"] = ValueError("a row that nobody can write")
    await house.run()
    assert house.outcomes[0].detail is Detail.INTERNAL


@in_virtual_time
async def test_a_lost_lease_settles_nothing_and_is_no_fault() -> None:
    house = House(claimed(), lines=[answer("", ("look", {}))])
    house.ledger.trouble["open"] = LostLease("an old epoch")
    with pytest.raises(LostLease):
        await house.run()
    assert not house.outcomes and not house.faults


@in_virtual_time
async def test_a_turn_that_is_cancelled_gives_its_lease_back() -> None:
    house = House(claimed(), lines=[answer("", ("slow", {}))], tools=[tool("slow", after(9), tier=Tier.WRITE)])
    task = asyncio.ensure_future(house.run())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert house.ledger.words("release") == RELEASED
    assert not house.outcomes


# -- draining


@in_virtual_time
async def test_a_draining_worker_claims_nothing() -> None:
    house = House(claimed())
    house.draining = True
    await house.run()
    assert house.verbs == []


@in_virtual_time
async def test_a_worker_that_begins_to_drain_leaves_the_next_turn_to_another() -> None:
    async def last(_request: Any, _progress: Any) -> Any:
        house.draining = True
        return FINE

    house = House(claimed(), claimed(), lines=[last])
    house.ledger.settled = Settled(Reason.COMPLETED, TurnId("t2"), starts_now=True)
    await house.run()
    assert house.verbs == ["claim", "settle", "release"]


@in_virtual_time
async def test_what_is_handed_over_is_released_and_not_settled() -> None:
    house = House(claimed(), lines=[answer("", ("look", {}))], tools=[tool("look", after(1))])
    asyncio.get_running_loop().call_at(0.5, lambda: house.controls[0].drain())
    await house.run()
    assert house.verbs == ["claim", "open", "close", "release"]
    assert house.ledger.words("close")[0][-1] is Stamp.DRAIN


# -- words that join, and what they refer to


@in_virtual_time
async def test_words_that_come_before_the_first_request_are_claimed_under_the_same_lease() -> None:
    first, joined = claimed(), claimed(messages=[{"role": "user", "content": [{"type": "text", "text": "and db"}]}])
    house = House(first, joined)
    took = house.took

    def steered(turn: Claimed, control: Control, asked_at: float) -> None:
        took(turn, control, asked_at)
        if turn is first:
            control.note(Mail(steers=1))

    house.took = steered  # type: ignore[method-assign]
    await house.run()
    assert [given[0] for given in house.ledger.words("claim")] == [None, first.lease]
    assert house.model.requests[0].messages == joined.messages
    assert house.outcomes[0].reason is Reason.COMPLETED
    assert house.controls[0] is house.controls[1]


@in_virtual_time
async def test_a_session_that_was_taken_while_words_joined_is_left_alone() -> None:
    house = House(claimed(wanted=WANTED), None)
    with pytest.raises(LostLease):
        await house.run()
    assert not house.outcomes


@in_virtual_time
async def test_what_the_words_refer_to_is_read_under_a_lease_that_is_known_to_be_held() -> None:
    house = House(claimed(wanted=WANTED), claimed())
    house.reads = lambda: after_s(8, Surroundings("[the thread above]"))
    await house.run()
    assert house.heard == ["taken", "read", "taken", "settled"]
    assert house.ledger.words("claim")[1] == (claimed().lease, Surroundings("[the thread above]"))
    assert house.asked_at == [0.0, 8.0]


@in_virtual_time
async def test_the_deadline_of_a_lease_counts_from_before_the_claim() -> None:
    house = House(claimed())
    claim = house.ledger.claim

    async def slow(*given: Any, **named: Any) -> Claimed | None:
        await asyncio.sleep(5)
        return await claim(*given, **named)

    house.ledger.claim = slow  # type: ignore[method-assign]
    await house.run()
    assert house.asked_at == [0.0]


@pytest.mark.parametrize("found", [after_s, lambda _s: deaf(600), lambda _s: after_s(1, asyncio.CancelledError())])
def test_slack_may_take_its_time_but_not_for_ever(found: Callable[[float], Any]) -> None:
    async def ran() -> House:
        house = House(claimed(wanted=WANTED), claimed(), reading_s=20.0)
        house.reads = lambda: found(600)
        await ends_within(house.run(), 21.0)
        return house

    house = run(ran())
    assert house.ledger.words("claim")[1][1] == Surroundings(NOT_READ)
    assert house.outcomes[0].reason is Reason.COMPLETED


async def deaf(seconds: float) -> None:
    while now() < seconds:
        try:
            await asyncio.sleep(seconds - now())
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("fact", ["stop", "lease"])
def test_a_stop_or_a_lost_lease_ends_the_reading(fact: str) -> None:
    async def ran() -> House:
        house = House(claimed(wanted=WANTED), claimed(stop=STEP))
        house.reads = lambda: after_s(600)
        if fact == "stop":
            asyncio.get_running_loop().call_at(3, lambda: house.controls[0].note(Mail(STEP)))
        else:
            asyncio.get_running_loop().call_at(0, lambda: setattr(house.controls[0], "lease_deadline", 3.0))
            asyncio.get_running_loop().call_at(1, lambda: house.controls[0].wake())
        await ends_within(house.run(), 3.0)
        return house

    house = run(ran())
    assert house.outcomes[0].reason is Reason.STOPPED_STEP
    assert not house.model.requests


# -- what tools hold for a turn


@pytest.mark.parametrize(
    ("end", "reason"),
    [("answered", Reason.COMPLETED), ("stopped", Reason.STOPPED_STEP), ("failed", Reason.FAILED)],
)
def test_what_a_tool_holds_for_a_turn_is_gone_before_the_turn_is_settled(end: str, reason: Reason) -> None:
    browser = keeping("look")

    async def ran() -> House:
        async def stopped(*_: Any) -> Any:
            house.ledger.box = Mail(STEP)
            house.controls[0].note(Mail(STEP))
            await asyncio.sleep(600)

        lines = {"answered": FINE, "stopped": stopped, "failed": RuntimeError("a bug")}
        house = House(claimed(), lines=(answer("", ("look", {})), lines[end]), tools=[browser])
        house.ledger.wrote = browser.told
        await house.run()
        return house

    house = run(ran())
    said = [row[0] for row in browser.told]
    assert len(browser.held) == 1 and said.count("closed") == 1
    assert said.index("open") < said.index("closed") < said.index("settle")
    assert house.outcomes[0].reason is reason
