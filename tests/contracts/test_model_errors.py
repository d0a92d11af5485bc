"""The model adapter over real HTTP and the real SDK: what goes wrong, and who must act."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from bot.claude import ClaudeModel, connect
from bot.playground.model import (
    FIRST_BYTE,
    MESSAGE_STOP,
    MIDDLE,
    Place,
    Reply,
    ScriptedModel,
    block,
    call,
    cut_after,
    error_event_after,
    http_error,
    no_message_stop,
    raw,
    say,
)
from core.errors import (
    ModelBusy,
    ModelError,
    ModelMisconfigured,
    ModelRefusedHistory,
    ModelStreamBroken,
    ModelUnavailable,
)
from core.ports import ModelAnswer, ModelRequest, StreamProgress

TOOLS = [
    {"name": "look", "description": "Look.", "input_schema": {"type": "object"}},
    {"name": "touch", "description": "Touch.", "input_schema": {"type": "object"}},
]
ASK = ModelRequest(
    model="claude-sonnet-5-5",
    system="You look after checkout.",
    tools=TOOLS,
    messages=[{"role": "user", "content": [{"type": "text", "text": "What is wrong?"}]}],
    max_tokens=1000,
)

Served = tuple[ScriptedModel, ClaudeModel]
Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve() -> Serve:
    @asynccontextmanager
    async def start(*replies: Reply) -> AsyncIterator[Served]:
        async with ScriptedModel(replies) as server:
            model = ClaudeModel(connect("sk-test", server.url, direct=True))
            try:
                yield server, model
            finally:
                await model.close()

    return start


async def answer_to(serve: Serve, reply: Reply) -> ModelAnswer:
    async with serve(reply) as (server, model):
        answer = await model.stream(ASK, StreamProgress())
        assert server.violations == []
        return answer


async def error_of(serve: Serve, reply: Reply) -> ModelError:
    async with serve(reply) as (_, model):
        with pytest.raises(ModelError) as caught:
            await model.stream(ASK, StreamProgress())
        return caught.value


async def test_an_overloaded_event_inside_a_200_means_busy(serve: Serve) -> None:
    error = await error_of(serve, say("half an answer") + error_event_after(MIDDLE, "overloaded_error", "Overloaded"))
    assert isinstance(error, ModelBusy)


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        ("rate_limit_error", ModelBusy),
        ("api_error", ModelUnavailable),
        ("timeout_error", ModelUnavailable),
        ("something_new", ModelUnavailable),
        ("authentication_error", ModelMisconfigured),
    ],
)
async def test_other_error_events_say_who_must_act(serve: Serve, type: str, expected: type[ModelError]) -> None:
    assert isinstance(await error_of(serve, say("x") + error_event_after(3, type, "why")), expected)


@pytest.mark.parametrize(
    "text", ["tools: Tool names must be unique.", "tools.0.custom.name: String should match pattern '^[a-z]$'"]
)
async def test_tools_that_are_refused_are_the_operators_and_no_history_is_at_fault(serve: Serve, text: str) -> None:
    error = await error_of(serve, http_error(400, "invalid_request_error", text))
    assert isinstance(error, ModelMisconfigured) and text in str(error)


async def test_a_history_refused_inside_the_stream_is_a_refused_history(serve: Serve) -> None:
    text = "messages.1: `tool_use` ids were found without `tool_result` blocks"
    error = await error_of(serve, say("x") + error_event_after(1, "invalid_request_error", text))
    assert isinstance(error, ModelRefusedHistory) and str(error) == text


@pytest.mark.parametrize("at", [1, 2, 5, MIDDLE, MESSAGE_STOP])
async def test_a_connection_cut_inside_the_stream_is_no_answer(serve: Serve, at: Place | int) -> None:
    error = await error_of(serve, say("half") + call("touch", really="yes") + cut_after(at))
    assert isinstance(error, ModelStreamBroken)


async def test_a_connection_cut_before_the_first_byte_is_no_answer(serve: Serve) -> None:
    assert isinstance(await error_of(serve, say("x") + cut_after(FIRST_BYTE)), ModelUnavailable)


async def test_a_stream_that_ends_in_order_without_message_stop_is_no_answer(serve: Serve) -> None:
    assert isinstance(await error_of(serve, call("touch") + no_message_stop()), ModelStreamBroken)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502 Bad Gateway</html>",
        b'data: {"type": "message_start"\n\n',
        b'data: {"type": "message_start", "message": 7}\n\n',
        b'data: ["message_stop"]\n\n',
        b'data: {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}\n\n',
        b'data: {"type": "message_stop"}\n\n',
    ],
)
async def test_malformed_streams_are_broken_streams(serve: Serve, body: bytes) -> None:
    assert isinstance(await error_of(serve, raw(body)), ModelStreamBroken)


async def test_a_call_without_an_id_is_a_broken_stream(serve: Serve) -> None:
    nameless = block(type="tool_use", id="", name="look", input={})
    assert isinstance(await error_of(serve, nameless), ModelStreamBroken)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (http_error(429, "rate_limit_error", "slow down", {"retry-after": "30"}), 30.0),
        (http_error(529, "overloaded_error", "Overloaded"), None),
        (http_error(529, "overloaded_error", "Overloaded", {"retry-after": "soon"}), None),
        (http_error(429, "rate_limit_error", "x", {"retry-after": "nan"}), None),
        (http_error(429, "rate_limit_error", "x", {"retry-after": "-5"}), None),
        (http_error(429, "rate_limit_error", "x", {"retry-after": "Fri, 01 Jan 2021 00:00:00 GMT"}), 0.0),
    ],
)
async def test_busy_says_how_long_if_the_api_does(serve: Serve, reply: Reply, expected: float | None) -> None:
    error = await error_of(serve, reply)
    assert isinstance(error, ModelBusy) and error.retry_after_s == expected


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
async def test_server_errors_are_unavailable_and_are_not_retried_by_the_sdk(serve: Serve, status: int) -> None:
    async with serve(http_error(status, "api_error", "internal"), say("second")) as (server, model):
        with pytest.raises(ModelUnavailable):
            await model.stream(ASK, StreamProgress())
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "type", "advice"),
    [
        (401, "authentication_error", "set ANTHROPIC_API_KEY"),
        (403, "permission_error", "`claude-sonnet-5-5`"),
        (404, "not_found_error", "correct `model`"),
        (402, "billing_error", "billing"),
    ],
)
async def test_what_the_operator_must_mend_says_how(serve: Serve, status: int, type: str, advice: str) -> None:
    error = await error_of(serve, http_error(status, type, "the API's words"))
    assert isinstance(error, ModelMisconfigured)
    assert advice in str(error) and "the API's words" in str(error)


async def test_a_structural_400_carries_the_apis_own_text(serve: Serve) -> None:
    text = "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1."
    error = await error_of(serve, http_error(400, "invalid_request_error", text))
    assert isinstance(error, ModelRefusedHistory) and str(error) == text


async def test_a_400_about_money_or_options_is_the_operators(serve: Serve) -> None:
    for text in ("Your credit balance is too low to access the Anthropic API.", "max_tokens: 900000 > 64000"):
        error = await error_of(serve, http_error(400, "invalid_request_error", text))
        assert isinstance(error, ModelMisconfigured) and text in str(error)


async def test_nobody_listening_is_unavailable() -> None:
    async with ScriptedModel([]) as server:
        address = server.url
    model = ClaudeModel(connect("sk-test", address, direct=True))
    with pytest.raises(ModelUnavailable, match="could not be reached"):
        await model.stream(ASK, StreamProgress())
    await model.close()
