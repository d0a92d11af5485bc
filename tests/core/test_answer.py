"""One answer of the model: dropped as a whole, retried within bounds, booked, and never refused twice as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from core.answer import BACKOFF_S, Dropped, Got, NoAnswer
from core.cancel import Cancel
from core.control import Mail
from core.errors import (
    ModelBusy,
    ModelError,
    ModelMisconfigured,
    ModelStreamBroken,
    ModelUnavailable,
)
from core.history import EntryKind, user_block
from core.ledger import Frozen
from core.ports import ModelAnswer, ModelRequest, StreamProgress, Usage
from core.settle import Detail
from core.validator import problems
from tests.core.asking import FINE, Asking
from tests.core.doubles import STEP, TASK, Line, claimed
from tests.support.virtual_time import ends_within, in_virtual_time, now, run


def writes_for(seconds: float, chars: int = 0) -> Line:
    """A line that is being written for `seconds`."""

    async def line(_request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        progress.input_tokens, progress.output_chars = 100, chars
        await asyncio.sleep(seconds)
        return FINE

    return line


# -- the request


@in_virtual_time
async def test_a_request_is_what_is_frozen_and_what_was_said() -> None:
    tools = [{"name": "metrics", "description": "d", "input_schema": {"type": "object"}}]
    asking = Asking(FINE, turn=claimed(frozen=Frozen("claude-test", "You are a test.", tools)))
    assert await asking.ask(max_tokens=7, without_tools=True, model="claude-other") is FINE
    request = asking.model.requests[0]
    assert (request.system, request.tools, request.max_tokens) == ("You are a test.", tools, 7)
    assert (request.model, request.without_tools) == ("claude-other", True)
    assert request.messages == asking.turn.messages
    assert not asking.ledger.wrote


@in_virtual_time
async def test_what_was_asked_is_booked_once() -> None:
    asking = Asking(FINE)
    await asking.ask()
    (spent,) = asking.answerer.take_spent()
    assert (spent.model, spent.step, spent.usage) == ("claude-test", 2, Usage(10, 5))
    assert asking.answerer.take_spent() == ()


@in_virtual_time
async def test_a_broken_history_is_sewn_before_it_leaves_and_the_stitch_is_recorded() -> None:
    call = {"type": "tool_use", "id": "toolu_lost", "name": "metrics", "input": {}}
    broken = [
        {"role": "user", "content": [user_block("why?")]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [user_block("and now?")]},
    ]
    asking = Asking(FINE, turn=claimed(messages=broken))
    assert problems({"messages": broken})
    assert await asking.ask() is FINE
    assert not problems({"messages": asking.model.requests[0].messages})
    assert asking.ledger.words("go_on_from") == [(EntryKind.MENDED, ["R20", "R24"])]
    assert asking.turn.messages == asking.ledger.messages == asking.model.requests[0].messages


@in_virtual_time
async def test_a_history_that_cannot_be_repaired_honestly_is_not_sent() -> None:
    asking = Asking(FINE, turn=claimed(messages=[]))
    got = await asking.ask()
    assert isinstance(got, NoAnswer) and got.detail is Detail.STRUCTURAL_400
    assert not asking.model.requests


# -- what keeps it from being asked, or throws it away


@pytest.mark.parametrize(
    ("mail", "why"),
    [(Mail(STEP), Cancel.STOP_STEP), (Mail(TASK, 1), Cancel.CANCEL_TASK), (Mail(steers=1), Cancel.STEER)],
)
def test_a_fact_that_is_known_before_keeps_the_request_from_leaving(mail: Mail, why: Cancel) -> None:
    async def ask() -> Asking:
        asking = Asking(FINE)
        asking.control.note(mail)
        assert await asking.ask() == Dropped(why)
        return asking

    asking = run(ask())
    assert not asking.model.requests and not asking.answerer.asked


@in_virtual_time
async def test_within_the_margin_of_the_lease_nothing_is_asked() -> None:
    asking = Asking(FINE)
    asking.control.lease_deadline = 0.0
    assert await asking.ask() == Dropped(Cancel.LEASE)
    assert not asking.model.requests


@in_virtual_time
async def test_a_worker_that_drains_asks_nothing_new() -> None:
    asking = Asking(FINE)
    asking.control.drain()
    assert await asking.ask() == Dropped(Cancel.DRAIN)
    assert not asking.model.requests


@pytest.mark.parametrize(
    ("mail", "why"),
    [(Mail(STEP), Cancel.STOP_STEP), (Mail(TASK), Cancel.CANCEL_TASK), (Mail(steers=1), Cancel.STEER)],
)
def test_a_stop_or_a_steer_throws_away_what_is_being_written_at_once(mail: Mail, why: Cancel) -> None:
    async def ask() -> Asking:
        asking = Asking(writes_for(60, chars=4_000))
        asking.happens(5, asking.control.note, mail)
        assert await ends_within(asking.ask(), 5.0) == Dropped(why)
        return asking

    (spent,) = run(ask()).answerer.take_spent()
    assert spent.usage == Usage(100, 1_000, estimated=True)


@in_virtual_time
async def test_what_is_being_written_ends_with_the_lease() -> None:
    asking = Asking(writes_for(60))
    asking.control.lease_deadline = 12.0
    assert await ends_within(asking.ask(), 12.0) == Dropped(Cancel.LEASE)


@in_virtual_time
async def test_an_answer_that_takes_too_long_is_dropped_at_its_limit() -> None:
    asking = Asking(writes_for(600))
    assert await ends_within(asking.ask(answer_by=40.0), 40.0) == Dropped(Cancel.LIMIT)
    assert asking.control.answer_by is None


@pytest.mark.parametrize(("needs", "ends"), [(18.0, None), (19.5, None), (21.0, 20.0), (600.0, 20.0)])
def test_drain_lets_a_running_answer_finish_until_ten_seconds_before_its_limit(
    needs: float, ends: float | None
) -> None:
    async def ask() -> tuple[Got, float]:
        asking = Asking(writes_for(needs))
        asking.happens(5, asking.control.drain)
        return await asking.ask(), now()

    got, at = run(ask())
    assert got == (FINE if ends is None else Dropped(Cancel.DRAIN))
    assert at == (needs if ends is None else ends)


@in_virtual_time
async def test_a_stream_that_had_not_begun_costs_nothing() -> None:
    async def silent(_request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        progress.started = False
        await asyncio.sleep(60)
        return FINE

    asking = Asking(silent)
    asking.happens(5, asking.control.note, Mail(STEP))
    await asking.ask()
    assert asking.answerer.take_spent() == ()


@in_virtual_time
async def test_a_model_that_ignores_its_cancellation_does_not_hold_up_a_stop() -> None:
    async def deaf(_request: ModelRequest, _progress: StreamProgress) -> ModelAnswer:
        while now() < 500:
            try:
                await asyncio.sleep(500)
            except asyncio.CancelledError:
                continue
        return FINE

    asking = Asking(deaf)
    asking.happens(5, asking.control.note, Mail(STEP))
    assert await ends_within(asking.ask(), 6.0) == Dropped(Cancel.STOP_STEP)


@in_virtual_time
async def test_cancelling_the_question_closes_its_stream() -> None:
    closed: list[float] = []

    async def held(_request: ModelRequest, _progress: StreamProgress) -> ModelAnswer:
        try:
            await asyncio.sleep(600)
        finally:
            closed.append(now())
        return FINE

    task = asyncio.ensure_future(Asking(held).ask())
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [3.0]


# -- retries

RETRYABLE = [
    lambda: ModelBusy("429"),
    lambda: ModelBusy("529"),
    lambda: ModelStreamBroken("cut"),
    lambda: ModelUnavailable("no route"),
    lambda: ModelError("odd"),
    lambda: asyncio.CancelledError("the model's own"),
]


@pytest.mark.parametrize("error", RETRYABLE)
def test_what_can_be_retried_is_retried_until_it_answers(error: Callable[[], BaseException]) -> None:
    async def ask() -> tuple[Got, Asking]:
        asking = Asking(error(), error(), FINE)
        return await asking.ask(), asking

    got, asking = run(ask())
    assert got is FINE
    assert asking.model.sent_at == [0.0, 0.5, 1.5]
    assert [spent.usage.estimated for spent in asking.answerer.take_spent()] == [True, True, False]


@pytest.mark.parametrize("error", RETRYABLE)
def test_retries_are_bounded_and_end_in_one_true_sentence(error: Callable[[], BaseException]) -> None:
    async def ask() -> tuple[Got, Asking]:
        asking = Asking(*(error() for _ in range(99)))
        return await ends_within(asking.ask(), sum(BACKOFF_S)), asking

    got, asking = run(ask())
    tries = len(BACKOFF_S) + 1
    assert isinstance(got, NoAnswer) and got.detail is Detail.PROVIDER
    assert got.known.startswith(f"The model gave no answer after {tries} tries: ")
    assert len(asking.model.requests) == tries


@pytest.mark.parametrize(("jitter", "second"), [(0.0, 0.25), (0.5, 0.5), (1.0, 0.75)])
def test_jitter_keeps_workers_from_coming_back_together(jitter: float, second: float) -> None:
    async def ask() -> list[float]:
        asking = Asking(ModelBusy("529"), FINE, jitter=jitter)
        await asking.ask()
        return asking.model.sent_at

    assert run(ask()) == [0.0, second]


@in_virtual_time
async def test_what_the_api_asks_for_is_waited_for_within_the_time_of_the_turn() -> None:
    asking = Asking(ModelBusy("429", 30.0), FINE)
    assert await asking.ask() is FINE
    assert asking.model.sent_at == [0.0, 30.0]


@in_virtual_time
async def test_what_the_api_asks_for_beyond_the_time_of_the_turn_is_told_at_once() -> None:
    asking = Asking(ModelBusy("429: come back in ten minutes", 600.0), FINE)
    got = await ends_within(asking.ask(), 0.0)
    assert isinstance(got, NoAnswer) and "ten minutes" in got.known and "after 1 tries" in got.known


@in_virtual_time
async def test_a_retry_after_of_nothing_does_not_spin() -> None:
    asking = Asking(*(ModelBusy("429", 0.0) for _ in range(99)))
    assert isinstance(await asking.ask(), NoAnswer)
    assert now() >= 0.5


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (lambda asking: asking.arrives(Mail(TASK)), Cancel.CANCEL_TASK),
        (lambda asking: asking.arrives(Mail(steers=1)), Cancel.STEER),
        (lambda asking: asking.control.drain(), Cancel.DRAIN),
    ],
)
def test_waiting_for_a_retry_can_be_stopped(fact: Callable[[Asking], None], why: Cancel) -> None:
    async def ask() -> Asking:
        asking = Asking(ModelBusy("429", 30.0), FINE)
        asking.happens(4, fact, asking)
        assert await ends_within(asking.ask(), 4.0) == Dropped(why)
        return asking

    assert len(run(ask()).model.requests) == 1


@in_virtual_time
async def test_a_stop_that_no_bell_told_of_is_seen_before_the_next_try() -> None:
    asking = Asking(ModelBusy("529"), FINE)
    asking.ledger.box = Mail(STEP)
    assert await asking.ask() == Dropped(Cancel.STOP_STEP)
    assert len(asking.model.requests) == 1


@in_virtual_time
async def test_what_only_an_operator_can_mend_is_not_retried() -> None:
    asking = Asking(ModelMisconfigured("The API key is not valid."), FINE)
    assert await asking.ask() == NoAnswer(Detail.PROVIDER, "The API key is not valid.")
    assert len(asking.model.requests) == 1


@in_virtual_time
async def test_a_fault_of_ours_goes_to_the_door_around_the_turn_and_is_booked() -> None:
    asking = Asking(ZeroDivisionError("a bug"), FINE)
    with pytest.raises(ZeroDivisionError):
        await asking.ask()
    assert [spent.usage.estimated for spent in asking.answerer.take_spent()] == [True]
