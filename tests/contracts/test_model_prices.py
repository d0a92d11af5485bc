"""What an answer costs, and a model that is loaded in a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bot.late_model import LateModel
from bot.prices import DEFAULT_MODEL, cost_usd, known
from core.errors import BadInput
from core.ports import Model, ModelAnswer, ModelRequest, StreamProgress, Usage

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(input_tokens=MILLION), 2.0),
        (Usage(output_tokens=MILLION), 10.0),
        (Usage(cache_read_tokens=MILLION), 0.1),
        (Usage(cache_write_tokens=MILLION), 2.5),
        (Usage(1_000, 500, 20_000, 3_000), 0.0165),
        (Usage(), 0.0),
    ],
)
def test_each_kind_of_token_has_its_price(usage: Usage, usd: float) -> None:
    assert cost_usd("claude-sonnet-5-5", usage) == pytest.approx(usd)


def test_the_date_of_a_snapshot_does_not_matter() -> None:
    assert known("claude-haiku-4-5-20251001")
    assert cost_usd("claude-haiku-4-5-20251001", Usage(output_tokens=MILLION)) == 5.0


def test_an_unknown_model_is_booked_at_the_default_models_price_and_is_not_known() -> None:
    usage = Usage(10_000, 2_000)
    assert not known("claude-tomorrow-9")
    assert cost_usd("claude-tomorrow-9", usage) == cost_usd(DEFAULT_MODEL, usage) > 0


def test_a_long_prompt_costs_more_where_the_list_says_so() -> None:
    short, long = Usage(cache_read_tokens=100_000), Usage(cache_read_tokens=100_001)
    assert cost_usd("claude-haiku-5-5", long) > 4 * cost_usd("claude-haiku-5-5", short)


ASK = ModelRequest("m", "", [], [{"role": "user", "content": "hi"}], 10)


class Says:
    """A model that always says the same."""

    closed = False

    async def close(self) -> None:
        self.closed = True

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        return ModelAnswer([{"type": "text", "text": "hi"}], "end_turn", Usage(), request.model)


async def test_a_late_model_loads_once_in_a_thread_and_then_answers() -> None:
    threads: list[threading.Thread] = []

    def load() -> Model:
        threads.append(threading.current_thread())
        return Says()

    late = LateModel(load)
    late.start()
    answers = await asyncio.gather(*(late.stream(ASK, StreamProgress()) for _ in range(3)))
    assert [answer.content[0]["text"] for answer in answers] == ["hi"] * 3
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


async def test_a_cancelled_request_does_not_end_the_loading() -> None:
    release = threading.Event()

    def load() -> Model:
        release.wait(10)
        return Says()

    late = LateModel(load)
    first = asyncio.create_task(late.stream(ASK, StreamProgress()))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert (await late.stream(ASK, StreamProgress())).stop_reason == "end_turn"


async def test_what_goes_wrong_while_loading_is_told_to_every_request() -> None:
    def load() -> Model:
        raise BadInput("set the key")

    late = LateModel(load)
    for _ in range(2):
        with pytest.raises(BadInput, match="set the key"):
            await late.stream(ASK, StreamProgress())


async def test_closing_a_late_model_closes_the_loaded_one_and_forgives_one_that_never_came() -> None:
    model = Says()
    late = LateModel(lambda: model)
    await late.close()
    assert not model.closed
    late.start()
    await late.close()
    assert model.closed

    def load() -> Model:
        raise BadInput("set the key")

    broken = LateModel(load)
    broken.start()
    await broken.close()
