"""The model adapter over real HTTP and the real SDK, against the scripted model: what makes an answer."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from bot.assembly import Assembly
from bot.claude import ClaudeModel, connect
from bot.playground.model import (
    FIRST_BYTE,
    MESSAGE_STOP,
    MIDDLE,
    Place,
    Reply,
    ScriptedModel,
    block,
    broken_call,
    call,
    call_with,
    hold_until,
    insert_after,
    nothing,
    pace,
    raw,
    say,
    stop_reason,
    think,
    usage,
)
from core.errors import (
    ModelError,
    ModelRefusedHistory,
)
from core.ports import ModelAnswer, ModelRequest, StreamProgress, Usage

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


async def test_thinking_text_and_parallel_calls_arrive_block_by_block(serve: Serve) -> None:
    reply = (
        think("Hm.")
        + say("Looking at “checkout” 🔎.")
        + call("look", path='C:\\a "b"', n=[1, 2.5, None])
        + call("touch")
    )
    answer = await answer_to(serve, reply)
    thought, text, first, second = answer.content
    assert thought["type"] == "thinking" and thought["thinking"] == "Hm." and thought["signature"]
    assert text == {"type": "text", "text": "Looking at “checkout” 🔎."}
    assert (first["name"], first["input"]) == ("look", {"path": 'C:\\a "b"', "n": [1, 2.5, None]})
    assert (second["name"], second["input"]) == ("touch", {})
    assert first["id"] != second["id"]
    assert (answer.stop_reason, answer.model, answer.broken_calls) == ("tool_use", "claude-sonnet-5-5", frozenset())


async def test_usage_is_the_final_one_and_progress_knows_the_start(serve: Serve) -> None:
    tokens = {
        "input_tokens": 7,
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 11,
        "output_tokens": 42,
    }
    async with serve(say("Twelve chars") + usage(**tokens)) as (_, model):
        progress = StreamProgress()
        answer = await model.stream(ASK, progress)
    assert answer.usage == Usage(7, 42, 90, 11)
    assert progress.started and progress.output_chars == len("Twelve chars")
    assert progress.estimate() == Usage(7, 3, 90, 11, estimated=True)


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "pause_turn", "end_turn"])
async def test_a_stop_reason_is_handed_on_even_without_content(serve: Serve, reason: str) -> None:
    answer = await answer_to(serve, nothing() + stop_reason(reason))
    assert (answer.content, answer.stop_reason) == ([], reason)


async def test_blocks_that_nobody_knows_yet_are_kept_as_they_came(serve: Serve) -> None:
    hologram = {"type": "hologram", "data": {"deep": [1, {"x": None}]}, "citations": None}
    answer = await answer_to(serve, block(**hologram) + say("ok"))
    assert answer.content[0] == hologram


async def test_unknown_events_comments_and_line_ends_do_no_harm(serve: Serve) -> None:
    strange = b': keep-alive\r\n\r\nevent: tomorrow\rdata: {"type": "tomorrow",\rdata: "x": 1}\r\r'
    answer = await answer_to(serve, say("ok") + insert_after(2, strange))
    assert answer.content == [{"type": "text", "text": "ok"}]


def sse(*events: dict[str, object]) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event, indent=1)}\n\n" for event in events)


async def test_a_stream_with_bom_crlf_and_data_on_many_lines_is_an_answer(serve: Serve) -> None:
    body = (
        sse(
            {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "smell_delta", "smell": "?"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        )
        .replace("\n ", "\ndata: ")
        .replace("\n}", "\ndata: }")
    )
    answer = await answer_to(serve, raw(b"\xef\xbb\xbf" + body.replace("\n", "\r\n").encode()))
    assert answer.content == [{"type": "text", "text": "ab"}]
    assert answer.usage == Usage(1, 2)


@pytest.mark.parametrize(
    "broken",
    ['{"path": "/var/lo', "[1, 2]", "null", '{"n": NaN}', "[" * 100_000, '{"a":' * 80 + "1" + "}" * 80],
    ids=["cut in a string", "a list", "null", "NaN", "a tower of lists", "80 deep"],
)
async def test_a_call_whose_input_is_no_object_is_named_and_emptied(serve: Serve, broken: str) -> None:
    good = call_with("look", {"a": 1}, id="toolu_good")
    answer = await answer_to(serve, good + broken_call("touch", broken, id="toolu_bad") + pace(delta_chars=5000))
    assert [one["input"] for one in answer.content] == [{"a": 1}, {}]
    assert answer.broken_calls == {"toolu_bad"}


async def test_an_integer_of_5000_digits_stays_its_digits(serve: Serve) -> None:
    digits = "9" * 5000
    answer = await answer_to(serve, broken_call("look", f'{{"n": {digits}, "m": -12}}'))
    assert answer.content[0]["input"] == {"n": digits, "m": -12}
    assert answer.broken_calls == frozenset()


async def test_nul_and_lone_surrogates_are_replaced_on_the_way_in(serve: Serve) -> None:
    reply = say("a\0b\ud800c") + broken_call("look", '{"k\\u0000": "x\\udc00y", "smile": "\\ud83d\\ude00"}')
    answer = await answer_to(serve, reply)
    assert answer.content[0]["text"] == "a\ufffdb\ufffdc"
    assert answer.content[1]["input"] == {"k\ufffd": "x\ufffdy", "smile": "😀"}


async def test_a_large_input_in_small_pieces_is_put_together(serve: Serve) -> None:
    text = "0123456789" * 2_000
    answer = await answer_to(serve, call("look", text=text) + pace(delta_chars=7))
    assert answer.content[0]["input"] == {"text": text}


@pytest.mark.parametrize("at", [FIRST_BYTE, 1, MIDDLE, MESSAGE_STOP])
async def test_cancelling_closes_the_connection_at_once(serve: Serve, at: Place | int) -> None:
    never = asyncio.Event()
    async with serve(say("a long story about a gateway") + hold_until(never, at)) as (server, model):
        task = asyncio.create_task(model.stream(ASK, StreamProgress()))
        await server.wait_for(lambda seen: bool(seen.requests) and seen.requests[0].holding)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_for(lambda seen: seen.requests[0].finished == "dropped", timeout_s=2)


async def test_a_stream_is_not_over_before_message_stop(serve: Serve) -> None:
    release = asyncio.Event()
    async with serve(say("done") + hold_until(release, MESSAGE_STOP)) as (server, model):
        progress = StreamProgress()
        task = asyncio.create_task(model.stream(ASK, progress))
        await server.wait_for(lambda seen: bool(seen.requests) and seen.requests[0].holding)
        assert not task.done()
        release.set()
        assert (await task).content == [{"type": "text", "text": "done"}]
        await server.wait_for(lambda seen: seen.requests[0].finished is True)


async def test_one_connection_serves_the_next_request(serve: Serve) -> None:
    async with serve(say("one"), say("two")) as (server, model):
        for _ in range(2):
            await model.stream(ASK, StreamProgress())
        assert [seen.finished for seen in server.requests] == [True, True]
        assert len({seen.connection for seen in server.requests}) == 1


async def test_cache_marks_are_added_without_touching_the_callers_messages(serve: Serve) -> None:
    request = ModelRequest(
        model=ASK.model,
        system=ASK.system,
        tools=TOOLS,
        messages=[
            *ASK.messages,
            {"role": "assistant", "content": [{"type": "text", "text": "Which one?"}]},
            {"role": "user", "content": "checkout"},
        ],
        max_tokens=10,
        without_tools=True,
    )
    before = copy.deepcopy(request)
    async with serve(say("ok")) as (server, model):
        await model.stream(request, StreamProgress())
        body = server.requests[0].body
    mark = {"type": "ephemeral"}
    assert request == before
    assert body["system"] == [{"type": "text", "text": ASK.system, "cache_control": mark}]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    assert body["messages"][0]["content"][-1]["cache_control"] == mark
    assert body["messages"][2]["content"] == [{"type": "text", "text": "checkout", "cache_control": mark}]
    assert body["tool_choice"] == {"type": "none"}


async def test_never_more_than_four_cache_marks_and_none_where_the_api_refuses_them(serve: Serve) -> None:
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": [marked, marked, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Go on."}]},
        {"role": "user", "content": [{"type": "text", "text": "c"}]},
    ]
    request = ModelRequest(ASK.model, ASK.system, TOOLS, messages, 10)
    async with serve(say("ok")) as (server, model):
        await model.stream(request, StreamProgress())
        assert str(server.requests[0].body).count("cache_control") == 4
        assert server.violations == []


async def test_what_json_cannot_say_is_a_refused_history_and_never_leaves(serve: Serve) -> None:
    for text in ("\ud800", float("nan"), object()):
        messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        async with serve(say("x")) as (server, model):
            with pytest.raises(ModelRefusedHistory, match="not valid JSON"):
                await model.stream(ModelRequest(ASK.model, "", [], messages, 10), StreamProgress())
            assert server.requests == []


async def test_a_number_beyond_all_floats_stays_its_digits_and_the_history_can_be_sent() -> None:
    assembly = Assembly(StreamProgress())
    start = {"type": "message_start", "message": {"model": "m", "usage": {}}}
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    events = [
        start,
        {"type": "content_block_start", "index": 0, "content_block": block},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"a":1e400,"b":-1e999,"c":1.5}'},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    ]
    for event in events:
        assembly.take(str(event["type"]), json.dumps(event))
    assert assembly.answer().content[0]["input"] == {"a": "1e400", "b": "-1e999", "c": 1.5}
