"""The scripted model refuses what the real one refuses, with its words, and holds its client to law 1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import pytest

from bot.claude import ClaudeModel, connect
from bot.playground.model import MIDDLE, Reply, ScriptedModel, call_with, hold_until, pace, say, think
from core.errors import BadInput, ModelMisconfigured, ModelRefusedHistory, ModelUnavailable
from core.ports import ModelAnswer, ModelRequest, StreamProgress

Message = dict[str, Any]
TOOLS = [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]
Serve = Callable[..., AbstractAsyncContextManager[tuple[ScriptedModel, ClaudeModel]]]


@pytest.fixture
def serve() -> Serve:
    @asynccontextmanager
    async def start(*replies: Reply, **options: Any) -> AsyncIterator[tuple[ScriptedModel, ClaudeModel]]:
        async with ScriptedModel(replies, **options) as server:
            model = ClaudeModel(connect("sk-test", server.url, direct=True))
            try:
                yield server, model
            finally:
                await model.close()

    return start


def user(*texts: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def assistant(answer: ModelAnswer) -> Message:
    return {"role": "assistant", "content": list(answer.content)}


def result(call_id: str, *texts: str) -> Message:
    found = {"type": "tool_result", "tool_use_id": call_id, "content": "42"}
    return {"role": "user", "content": [found, *user(*texts)["content"]]}


async def ask(claude: ClaudeModel, *messages: Message, **changes: Any) -> ModelAnswer:
    asked = {"system": "You look.", "tools": TOOLS, "model": "claude-sonnet-5-5", "max_tokens": 100, **changes}
    return await claude.stream(ModelRequest(messages=messages, **asked), StreamProgress())


LOOK = think("I wonder.") + say("Looking.") + call_with("look", {"at": "it"}, id="toolu_1")


async def test_a_healthy_conversation_with_signed_thinking_goes_round(serve: Serve) -> None:
    async with serve(LOOK, think("So.") + say("It is 42."), say("Sure.")) as (server, model):
        first = await ask(model, user("what?"))
        second = await ask(model, user("what?"), assistant(first), result("toolu_1"))
        await ask(model, user("what?"), assistant(first), result("toolu_1"), assistant(second), user("sure?"))
        assert server.violations == []
        assert [seen.status for seen in server.requests] == [200, 200, 200]


async def test_a_call_without_its_result_is_refused_in_the_apis_words(serve: Serve) -> None:
    async with serve(LOOK) as (server, model):
        first = await ask(model, user("what?"))
        with pytest.raises(ModelRefusedHistory, match="`tool_use` ids were found without `tool_result` blocks"):
            await ask(model, user("what?"), assistant(first), user("never mind"))
        assert server.violations[0].startswith("R20: ")
        assert server.requests[1].status == 400


async def test_an_edited_thinking_text_has_an_invalid_signature(serve: Serve) -> None:
    async with serve(LOOK) as (server, model):
        first = await ask(model, user("what?"))
        thought = dict(first.content[0], thinking="I know.")
        forged = {"role": "assistant", "content": [thought, *first.content[1:]]}
        with pytest.raises(ModelRefusedHistory, match=r"content.0: Invalid `signature` in `thinking` block$"):
            await ask(model, user("what?"), forged, result("toolu_1"))
        assert server.violations[0].startswith("R42: ")


@pytest.mark.parametrize(
    "edit",
    [
        {"messages": ["other words"]},
        {"system": "You look away."},
        {"tools": [*TOOLS, {"name": "touch", "description": "Touch.", "input_schema": {"type": "object"}}]},
    ],
    ids=["an earlier message", "the system prompt", "the tools"],
)
async def test_thinking_is_bound_to_everything_before_it(serve: Serve, edit: dict[str, Any]) -> None:
    async with serve(LOOK) as (server, model):
        first = await ask(model, user("what?"))
        words = edit.pop("messages", ["what?"])
        with pytest.raises(ModelRefusedHistory, match="The block is bound to a different conversation"):
            await ask(model, user(*words), assistant(first), result("toolu_1"), **edit)
        assert server.violations[0].startswith("R48: ")


async def test_thinking_may_be_left_out_from_the_start_but_not_from_the_middle(serve: Serve) -> None:
    replies = [think(f"Thought {n}.") + call_with("look", {}, id=f"toolu_{n}") for n in range(3)]
    async with serve(*replies) as (_, model):
        history: list[Message] = [user("what?")]
        for n in range(3):
            history += [assistant(await ask(model, *history)), result(f"toolu_{n}")]

    def without(*left_out: int) -> list[Message]:
        return [dict(m, content=m["content"][1:]) if n in left_out else m for n, m in enumerate(history)]

    async with serve(say("fine")) as (fresh, model):
        await ask(model, *without(1))
        assert fresh.violations == []
    async with serve(say("fine")) as (fresh, model):
        with pytest.raises(ModelRefusedHistory, match="an earlier thinking block is missing or out of order"):
            await ask(model, *without(3))


async def test_signatures_survive_a_restart_of_the_server(serve: Serve) -> None:
    async with serve(LOOK) as (_, model):
        first = await ask(model, user("what?"))
    async with serve(say("42")) as (server, model):
        await ask(model, user("what?"), assistant(first), result("toolu_1"))
        assert server.violations == []


async def test_moved_cache_marks_and_the_order_of_keys_are_no_edits(serve: Serve) -> None:
    async with serve(LOOK, say("42")) as (server, model):
        first = await ask(model, user("what?"))
        turned = {"role": "assistant", "content": [dict(reversed(block.items())) for block in first.content]}
        marked = user("what?")
        marked["content"][0]["cache_control"] = {"type": "ephemeral"}
        await ask(model, marked, turned, result("toolu_1"))
        assert server.violations == []


PLAIN = call_with("look", {}, id="toolu_9")


async def test_the_system_prompt_is_frozen_without_thinking_too(serve: Serve) -> None:
    async with serve(PLAIN) as (server, model):
        first = await ask(model, user("what?"))
        with pytest.raises(ModelRefusedHistory, match="the system prompt of this conversation has changed"):
            await ask(model, user("what?"), assistant(first), result("toolu_9"), system="You look away.")
        assert server.violations[0].startswith("law 1: ")


async def test_a_tool_list_in_another_order_is_a_changed_tool_list(serve: Serve) -> None:
    other = {"name": "touch", "description": "Touch.", "input_schema": {"type": "object"}}
    async with serve(PLAIN) as (_, model):
        first = await ask(model, user("what?"), tools=[*TOOLS, other])
        with pytest.raises(ModelRefusedHistory, match="the tool list of this conversation has changed"):
            await ask(model, user("what?"), assistant(first), result("toolu_9"), tools=[other, *TOOLS])


async def test_the_last_user_message_may_grow_until_the_model_has_answered(serve: Serve) -> None:
    async with serve(say("half"), say("more"), say("end")) as (server, model):
        await ask(model, user("what?"))
        grown = await ask(model, user("what?", "it's the gateway"))
        await ask(model, user("what?", "it's the gateway"), assistant(grown), user("and now?"))
        assert server.violations == []


async def test_words_added_before_an_answer_are_a_rewrite(serve: Serve) -> None:
    async with serve(PLAIN) as (server, model):
        first = await ask(model, user("what?"))
        with pytest.raises(ModelRefusedHistory, match=r"messages\.1: this answer was given to other words"):
            await ask(model, user("what?", "slipped in"), assistant(first), result("toolu_9"))
        assert len(server.violations) == 1


async def test_a_dropped_entry_is_a_rewrite(serve: Serve) -> None:
    again = call_with("look", {}, id="toolu_10")
    async with serve(PLAIN, again) as (server, model):
        history = [user("what?"), assistant(await ask(model, user("what?"))), result("toolu_9", "look harder")]
        await ask(model, *history)
        with pytest.raises(ModelRefusedHistory, match="entry 3 of 4 is gone"):
            await ask(model, *history[:2], result("toolu_9"))
        assert len(server.violations) == 1


async def test_threads_with_the_same_opening_and_the_same_answer_are_told_apart(serve: Serve) -> None:
    async with serve(*[say("done")] * 4) as (server, model):
        first, second = await ask(model, user("go")), await ask(model, user("go"))
        await ask(model, user("go"), assistant(first), user("this is thread one"))
        await ask(model, user("go"), assistant(second), user("this is thread two"))
        with pytest.raises(ModelRefusedHistory):
            await ask(model, user("go"), assistant(second), user("there is no thread three"))
        assert len(server.violations) == 1


async def test_with_a_user_id_the_conversation_is_known_from_the_first_word(serve: Serve) -> None:
    async with ScriptedModel([say("one"), say("two")]) as server:
        model = ClaudeModel(connect("sk-test", server.url, direct=True), {"metadata": {"user_id": "C1-1.2"}})
        await ask(model, user("go", "left"))
        with pytest.raises(ModelRefusedHistory, match="entry 1 of 2 is gone"):
            await ask(model, user("go", "right"))
        await model.close()


async def test_without_checks_anything_goes(serve: Serve) -> None:
    async with serve(say("fine"), check=False) as (server, model):
        await ask(model, {"role": "assistant", "content": "I begin."})
        assert server.violations == []


async def test_an_unknown_model_is_not_found(serve: Serve) -> None:
    async with serve() as (_, model):
        with pytest.raises(ModelMisconfigured, match=r"`claude-nonesuch` \(model: claude-nonesuch\)"):
            await ask(model, user("hi"), model="claude-nonesuch")


async def test_a_wrong_key_is_refused_and_a_right_one_is_not(serve: Serve) -> None:
    async with serve(say("hi"), api_key="sk-test") as (_, model):
        await ask(model, user("hi"))
    async with serve(say("hi"), api_key="sk-other") as (_, model):
        with pytest.raises(ModelMisconfigured, match="invalid x-api-key"):
            await ask(model, user("hi"))


@pytest.mark.parametrize("key", ["", " ", "sk-a\nb", "sk-ä", "sk a"])
def test_what_cannot_be_a_key_is_refused_before_it_gets_into_a_header(key: str) -> None:
    with pytest.raises(BadInput, match="copy it again") as caught:
        connect(key)
    assert not key.strip() or key not in str(caught.value)


async def test_a_script_that_ran_out_says_so(serve: Serve) -> None:
    async with serve(say("only one")) as (server, model):
        await ask(model, user("hi"))
        with pytest.raises(ModelUnavailable, match="the script has 1 replies, and this is request 2"):
            await ask(model, user("hi"))
        assert len(server.violations) == 1


async def test_a_script_can_be_a_function_of_the_request() -> None:
    def echo(body: dict[str, Any], number: int) -> Reply:
        return say(f"{number}: {body['messages'][-1]['content'][0]['text']}")

    async with ScriptedModel(echo) as server:
        model = ClaudeModel(connect("sk-test", server.url, direct=True))
        assert (await ask(model, user("hi"))).content[0]["text"] == "0: hi"
        await model.close()


async def test_requests_are_kept_in_the_order_of_arrival_with_their_fate(serve: Serve) -> None:
    never = asyncio.Event()
    async with serve(say("long") + hold_until(never, MIDDLE), say("short")) as (server, model):
        slow = asyncio.create_task(ask(model, user("first")))
        await server.wait_for(lambda seen: len(seen.requests) == 1 and seen.requests[0].holding)
        await ask(model, user("second"))
        slow.cancel()
        await server.wait_for(lambda seen: [one.finished for one in seen.requests] == ["dropped", True])
        assert [one.body["messages"][0]["content"][0]["text"] for one in server.requests] == ["first", "second"]


async def test_speed_divides_every_pause(serve: Serve) -> None:
    slow = say("a slow answer") + pace(60, chars_per_s=0.1)
    async with serve(slow, speed=100_000) as (_, model):
        await asyncio.wait_for(ask(model, user("hi")), 10)


async def test_the_sdks_own_stream_helper_reads_it_too(serve: Serve) -> None:
    async with serve(LOOK) as (server, _):
        client = anthropic.AsyncAnthropic(
            api_key="k", base_url=server.url, http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False)
        )
        async with client.messages.stream(
            model="claude-sonnet-5-5", max_tokens=9, tools=TOOLS, messages=[user("hi")]
        ) as stream:
            message = await stream.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
        assert message.stop_reason == "tool_use" and message.usage.output_tokens > 1
        await client.close()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "The request body is not valid JSON"),
        (b"[]", "an object is required"),
        (b'{"model": "claude-sonnet-5-5", "messages": []}', "max_tokens: Field required"),
        (b'{"model": "claude-sonnet-5-5", "messages": 7, "max_tokens": 1}', "messages: Input should be a valid list"),
        (b'{"model": "claude-sonnet-5-5", "messages": [], "max_tokens": 1}', "at least one message is required"),
        (b'{"model": ["x"], "messages": [], "max_tokens": 1}', "model: "),
        (
            b'{"model": "claude-sonnet-5-5", "messages": [1], "system": 5, "metadata": 5, "max_tokens": 1}',
            "messages.0",
        ),
    ],
)
async def test_a_body_that_is_no_request_is_refused_in_the_apis_shape(serve: Serve, data: bytes, text: str) -> None:
    async with serve() as (server, _), aiohttp.ClientSession() as session:
        async with session.post(f"{server.url}/v1/messages", data=data) as response:
            body = await response.json()
            assert response.status in (400, 404)
        assert body["type"] == "error" and text in body["error"]["message"]


async def test_a_client_that_does_not_stream_gets_one_object(serve: Serve) -> None:
    async with serve(say("hi")) as (server, _):
        client = anthropic.AsyncAnthropic(
            api_key="k", base_url=server.url, http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False)
        )
        message = await client.messages.create(model="claude-sonnet-5-5", max_tokens=9, messages=[user("hi")])
        assert message.content[0].text == "hi"
        await client.close()
