"""The calls of one step: reads at once, writes in order, the hurry, and a true result for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from core.batch import Batch
from core.control import Control, Mail
from core.errors import LostLease, ToolError
from core.gateway import Call, CallResult, CallStatus, Gateway
from core.limits import Limits
from core.ports import Tier
from tests.core.doubles import STEP, TASK, FakeTool, PaperLedger, after, call, claimed, stubborn, tool
from tests.support.virtual_time import ends_within, in_virtual_time, now, run

LIMITS = Limits(tool_timeout_s=10.0, patience_s=2.0, drain_s=25.0)
OK, CANCELLED, NOT_RUN = CallStatus.OK, CallStatus.CANCELLED, CallStatus.NOT_RUN
WRITE = Tier.WRITE


class Step:
    """One step: its tools, its control plane, and what was committed."""

    def __init__(self, *tools: FakeTool) -> None:
        self.tools = {made.spec.name: made for made in tools}
        self.control = Control(LIMITS, now)
        self.ledger = PaperLedger()

    async def run(self, calls: Sequence[Call]) -> list[CallResult]:
        turn = claimed()
        batch = Batch(
            Gateway(self.tools.values(), LIMITS, now),
            self.control,
            intend=lambda one: self.ledger.intend(turn, 1, one),
            record=lambda results: self.ledger.record(turn, 1, results),
            now=now,
        )
        return await batch.run(calls)

    def note(self, mail: Mail, at: float = 0.0) -> None:
        """The mailbox says so from `at` on."""

        def arrives() -> None:
            self.ledger.box = mail
            self.control.note(mail)

        asyncio.get_running_loop().call_at(at, arrives)


def reads(*seconds: float, **spec: Any) -> tuple[list[FakeTool], list[Call]]:
    tools = [tool(f"r{number}", after(s, f"read {number}"), **spec) for number, s in enumerate(seconds)]
    return tools, [call(made.spec.name, interruptible=made.spec.interruptible) for made in tools]


def writes(*seconds: float, error: BaseException | None = None) -> tuple[list[FakeTool], list[Call]]:
    tools = [tool(f"w{n}", after(s, "did it", error=error), tier=WRITE) for n, s in enumerate(seconds)]
    return tools, [call(made.spec.name, WRITE) for made in tools]


def statuses(results: Sequence[CallResult]) -> list[CallStatus]:
    return [result.status for result in results]


# -- how it runs


@in_virtual_time
async def test_reads_run_at_once_and_their_results_come_in_the_order_of_the_calls() -> None:
    tools, calls = reads(5, 1, 3)
    results = await ends_within(Step(*tools).run(calls), 5.0)
    assert [result.text for result in results] == ["read 0", "read 1", "read 2"]
    assert [result.call for result in results] == calls


@in_virtual_time
async def test_256_parallel_calls_take_as_long_as_the_slowest_one() -> None:
    tools, calls = reads(*(number % 9 for number in range(256)))
    results = await ends_within(Step(*tools).run(calls), 8.0)
    assert statuses(results) == [OK] * 256


@in_virtual_time
async def test_a_batch_of_nothing_has_no_results() -> None:
    assert await Step().run([]) == []


@in_virtual_time
async def test_two_calls_with_one_id_each_have_their_own_result() -> None:
    twin = tool("twin")
    results = await Step(twin).run([call("twin", call_id="toolu_same"), call("twin", call_id="toolu_same")])
    assert statuses(results) == [OK, OK]
    assert twin.began == 2


@in_virtual_time
async def test_writes_run_one_after_another_in_order_each_with_its_intent_first() -> None:
    tools, calls = writes(3, 1, 2)
    step = Step(*tools)
    results = await ends_within(step.run(calls), 6.0)
    assert statuses(results) == [OK] * 3
    ids = [one.call_id for one in calls]
    expected = [row for one in ids for row in (("intend", one), ("record", [one]))]
    assert step.ledger.wrote == expected


@in_virtual_time
async def test_reads_do_not_wait_for_writes() -> None:
    slow, change = writes(8)
    quick, look = reads(8)
    assert statuses(await ends_within(Step(*slow, *quick).run([*change, *look]), 8.0)) == [OK, OK]


@in_virtual_time
async def test_a_write_with_bad_arguments_is_refused_and_those_behind_it_still_run() -> None:
    tools, calls = writes(1, 1)
    refused = call("w0", WRITE, refusal="Nothing was run: bad.")
    step = Step(*tools)
    assert statuses(await step.run([refused, calls[1]])) == [CallStatus.REFUSED, OK]
    assert step.ledger.words("intend") == [(calls[1].call_id,)]


@in_virtual_time
async def test_a_write_that_failed_for_a_known_reason_does_not_keep_the_next_from_running() -> None:
    tools = [tool("w0", after(1, error=ToolError("no such deployment")), tier=WRITE), writes(1, 1)[0][1]]
    results = await Step(*tools).run([call("w0", WRITE), call("w1", WRITE)])
    assert statuses(results) == [CallStatus.ERROR, OK]


@pytest.mark.parametrize("work", [after(3_600), after(1, error=ValueError()), stubborn(3_600)])
def test_behind_a_write_whose_outcome_is_unknown_nothing_is_run(work: Callable[..., Any]) -> None:
    async def both() -> tuple[list[CallResult], PaperLedger]:
        step = Step(tool("w0", work, tier=WRITE), tool("w1", tier=WRITE), tool("look"))
        calls = [call("w0", WRITE), call("w1", WRITE), call("look")]
        return await ends_within(step.run(calls), 11.0), step.ledger

    results, ledger = run(both())
    assert statuses(results) == [CallStatus.UNKNOWN, NOT_RUN, OK]
    assert results[1].text == "Not run: the outcome of a write before it is unknown. Nothing was changed by it."
    assert len(ledger.words("intend")) == 1


@in_virtual_time
async def test_whatever_one_tool_raises_the_others_keep_their_results() -> None:
    odd = [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), type("Odd", (BaseException,), {})()]
    tools, calls = reads(2, 0)
    tools += [tool(f"odd{number}", after(1, error=error)) for number, error in enumerate(odd)]
    results = await Step(*tools).run([*calls, *(call(f"odd{number}") for number in range(len(odd)))])
    assert statuses(results) == [OK, OK] + [CallStatus.ERROR] * len(odd)


# -- what is recorded while it runs


@in_virtual_time
async def test_finished_results_are_recorded_while_slow_siblings_run() -> None:
    tools, calls = reads(0.01, 9, 4)
    step = Step(*tools)
    task = asyncio.ensure_future(step.run(calls))
    await asyncio.sleep(0.2)
    assert step.ledger.words("record") == [([calls[0].call_id],)]
    await asyncio.sleep(4)
    assert step.ledger.words("record") == [([calls[0].call_id],), ([calls[2].call_id],)]
    await task
    assert len(step.ledger.wrote) == 2, "what ends last is committed with the batch itself"


@in_virtual_time
async def test_results_that_come_together_are_recorded_together() -> None:
    tools, calls = reads(1.0, 1.01, 1.02, 9)
    step = Step(*tools)
    await step.run(calls)
    assert step.ledger.words("record") == [([one.call_id for one in calls[:3]],)]


# -- the hurry


@in_virtual_time
async def test_from_a_steer_on_reads_have_patience_and_are_then_cancelled_with_a_true_result() -> None:
    tools, calls = reads(2, 3_600, 4.5)
    step = Step(*tools)
    step.note(Mail(steers=1), at=3)
    results = await ends_within(step.run(calls), 5.0)
    assert statuses(results) == [OK, CANCELLED, OK]
    assert results[1].text == (
        "Cancelled after 5.0 s because a person redirected the investigation. Nothing was read."
    )


@in_virtual_time
async def test_a_withdrawn_steer_hurries_nothing() -> None:
    tools, calls = reads(8)
    step = Step(*tools)
    step.note(Mail(steers=1), at=3)
    step.note(Mail(), at=4)
    assert statuses(await step.run(calls)) == [OK]


@pytest.mark.parametrize("fact", ["steer", "drain"])
def test_neither_a_steer_nor_a_drain_hurries_a_write_or_a_patient_read(fact: str) -> None:
    async def hurried() -> list[CallResult]:
        slow, change = writes(9, 1)
        quick, look = reads(9, interruptible=False)
        step = Step(*slow, *quick)
        loop = asyncio.get_running_loop()
        loop.call_at(1, *((step.control.note, Mail(steers=1)) if fact == "steer" else (step.control.drain,)))
        return await ends_within(step.run([*change, *look]), 9.0)

    results = run(hurried())
    assert statuses(results) == [OK, NOT_RUN, OK]
    assert "Nothing was changed by it" in results[1].text


@pytest.mark.parametrize(
    ("stop", "why"), [(STEP, "a person stopped this step"), (TASK, "a person cancelled the task")]
)
def test_a_stop_cancels_reads_at_once_lets_the_running_write_end_and_runs_nothing_behind_it(
    stop: Any, why: str
) -> None:
    async def stopped() -> tuple[list[CallResult], PaperLedger]:
        slow, change = writes(5, 1)
        quick, look = reads(9)
        step = Step(*slow, *quick)
        step.note(Mail(stop), at=2)
        return await ends_within(step.run([*change, *look]), 5.0), step.ledger

    results, ledger = run(stopped())
    assert statuses(results) == [OK, NOT_RUN, CANCELLED]
    assert results[1].text == f"Not run: {why}. Nothing was changed by it."
    assert results[2].text == f"Cancelled after 2.0 s because {why}. Nothing was read."
    assert len(ledger.words("intend")) == 1


@pytest.mark.parametrize("fact", ["stop", "steer long ago", "time is over"])
def test_a_fact_that_came_before_the_batch_keeps_every_call_from_running(fact: str) -> None:
    async def late() -> tuple[list[CallResult], Step]:
        await asyncio.sleep(10)
        quick, look = reads(1, 1)
        slow, change = writes(1)
        step = Step(*quick, *slow)
        step.control.note(Mail(STEP if fact == "stop" else None, steers=fact == "steer long ago"))
        step.control.work_by = 10.0 if fact == "time is over" else 1_000.0
        if fact == "steer long ago":
            step.control.steer_at = 0.0
        return await ends_within(step.run([*look, *change]), 0.0), step

    results, step = run(late())
    assert statuses(results) == [NOT_RUN] * 3
    assert not any(made.began for made in step.tools.values())
    assert not step.ledger.words("intend")


@in_virtual_time
async def test_a_stop_that_only_the_database_knows_keeps_a_write_from_starting() -> None:
    tools, calls = writes(1, 1)
    step = Step(*tools)
    step.ledger.box = Mail(STEP)
    assert statuses(await step.run(calls)) == [NOT_RUN, NOT_RUN]
    assert not any(made.began for made in tools)


@in_virtual_time
async def test_a_read_that_ignores_its_cancellation_does_not_hold_up_a_stop() -> None:
    step = Step(tool("deaf", stubborn(3_600)))
    step.note(Mail(TASK), at=2)
    results = await ends_within(step.run([call("deaf")]), 3.0)
    assert statuses(results) == [CANCELLED]


@in_virtual_time
async def test_when_the_time_of_the_turn_runs_out_reads_are_cancelled_and_no_write_is_started() -> None:
    slow, change = writes(6, 6, 6)
    quick, look = reads(9, timeout_s=9.0)
    step = Step(*slow, *quick)
    step.control.work_by = 8.0
    results = await ends_within(step.run([*change, *look]), 12.0)
    assert statuses(results) == [OK, OK, NOT_RUN, CANCELLED]
    assert "the time of this turn ran out" in results[2].text and "the time of this turn ran out" in results[3].text


# -- the lease


@in_virtual_time
async def test_when_the_lease_runs_out_the_batch_ends_and_cancels_what_runs() -> None:
    tools, calls = reads(9)
    change = writes(9)
    step = Step(*tools, *change[0])
    step.control.lease_deadline = 4.0
    with pytest.raises(LostLease):
        await step.run([*calls, *change[1]])
    assert now() == 4.0
    await asyncio.sleep(100)
    assert not step.ledger.words("record")


@in_virtual_time
async def test_a_stop_does_not_hide_that_the_lease_ran_out_while_a_write_ends() -> None:
    change = writes(9)
    step = Step(*change[0])
    step.control.lease_deadline = 4.0
    step.note(Mail(STEP), at=1.0)
    with pytest.raises(LostLease):
        await step.run(change[1])
    assert now() == 4.0


@in_virtual_time
async def test_a_lease_that_is_renewed_in_time_ends_nothing() -> None:
    tools, calls = reads(9)
    step = Step(*tools)
    step.control.lease_deadline = 4.0

    def renewed() -> None:
        step.control.lease_deadline = 20.0
        step.control.wake()

    asyncio.get_running_loop().call_at(3.5, renewed)
    assert statuses(await step.run(calls)) == [OK]


@in_virtual_time
async def test_without_a_lease_no_write_is_intended_or_started() -> None:
    tools, calls = writes(1)
    step = Step(*tools)
    step.control.lease_deadline = 0.0
    with pytest.raises(LostLease):
        await step.run(calls)
    assert not step.ledger.wrote and not tools[0].began


@in_virtual_time
async def test_a_write_whose_intent_took_longer_than_the_lease_is_not_started() -> None:
    tools, calls = writes(1)
    step = Step(*tools)
    step.control.lease_deadline = 4.0

    async def slow_intent(_call: Call) -> None:
        await asyncio.sleep(5)

    batch = Batch(Gateway(tools, LIMITS, now), step.control, intend=slow_intent, record=lambda _: _never(), now=now)
    with pytest.raises(LostLease):
        await batch.run(calls)
    assert not tools[0].began


async def _never() -> None:
    raise AssertionError("nothing is recorded here")


# -- faults of the ledger


@pytest.mark.parametrize("verb", ["intend", "record"])
def test_when_the_ledger_fails_the_batch_fails_at_once_and_leaves_nothing_running(verb: str) -> None:
    async def failed() -> None:
        slow, change = writes(1, 1)
        quick, look = reads(9)
        step = Step(*slow, *quick)
        step.ledger.trouble[verb] = ConnectionError("the database went away")
        with pytest.raises(ConnectionError):
            await step.run([*change, *look])
        assert now() <= 1.0
        assert not slow[1].began
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    run(failed())


@in_virtual_time
async def test_an_old_epoch_ends_the_batch_from_whatever_it_writes() -> None:
    tools, calls = reads(1, 9)
    step = Step(*tools)
    step.ledger.lost = True
    with pytest.raises(LostLease):
        await step.run(calls)
    assert now() < 2.0


@in_virtual_time
async def test_cancelling_the_batch_cancels_its_calls_and_is_passed_on() -> None:
    tools, calls = reads(9)
    task = asyncio.ensure_future(Step(*tools).run(calls))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1
