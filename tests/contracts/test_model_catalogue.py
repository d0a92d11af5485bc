"""The scripted API lists its models as the Models API does, for the SDK and for whoever asks by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import anthropic
import pytest
from anthropic import AsyncAnthropic

from bot.claude import connect
from bot.playground.model import ScriptedModel

NAMES = ("claude-fable-5-2", "claude-sonnet-5-5", "claude-sonnet-4-5", "claude-haiku-4-5", "scripted-model")
STAGES = {"claude-sonnet-4-5": "deprecated", "claude-haiku-4-5": "retired"}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel([], models=NAMES, stages=STAGES, api_key="sk-test") as running:
        yield running


@pytest.fixture
async def client(server: ScriptedModel) -> AsyncIterator[AsyncAnthropic]:
    async with connect("sk-test", server.url, direct=True) as made:
        yield made


async def test_a_model_is_told_by_its_id(client: AsyncAnthropic) -> None:
    info = await client.models.retrieve("claude-sonnet-5-5")
    assert (info.type, info.id, info.display_name, info.lifecycle, info.line) == (
        "model",
        "claude-sonnet-5-5",
        "Claude Sonnet 5.5",
        "active",
        "sonnet",
    )


async def test_an_unknown_model_is_a_404_that_names_it(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as refused:
        await client.models.retrieve("claude-sonet")
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "model: claude-sonet"},
        "request_id": refused.value.request_id,
    }


async def test_the_list_goes_on_from_page_to_page_and_leaves_retired_models_out(client: AsyncAnthropic) -> None:
    listed = [info.id async for info in client.models.list(limit=2)]
    assert listed == [name for name in NAMES if name != "claude-haiku-4-5"]
    page = await client.models.list(limit=2)
    assert (page.first_id, page.last_id, page.has_more) == ("claude-fable-5-2", "claude-sonnet-5-5", True)
    before = await client.models.list(before_id="claude-sonnet-4-5", limit=1)
    assert [info.id for info in before.data] == ["claude-sonnet-5-5"] and before.has_more
    retired = await client.models.list(lifecycle=["retired"])
    assert [info.id for info in retired.data] == ["claude-haiku-4-5"]


async def test_a_retired_model_is_known_but_answers_nothing(client: AsyncAnthropic) -> None:
    assert (await client.models.retrieve("claude-haiku-4-5")).lifecycle == "retired"
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(
            model="claude-haiku-4-5", max_tokens=5, messages=[{"role": "user", "content": "Hello"}]
        )


@pytest.mark.parametrize(
    ("headers", "query", "status", "message"),
    [
        ({"x-api-key": "sk-other", "anthropic-version": "2023-06-01"}, "", 401, "invalid x-api-key"),
        ({"x-api-key": "sk-test"}, "", 400, "anthropic-version: header is required"),
        (
            {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"},
            "?limit=1001",
            400,
            "limit: Input should be a number between 1 and 1000",
        ),
        ({"x-api-key": "sk-test", "anthropic-version": "2023-06-01"}, "?after_id=x", 400, "after_id: no such model"),
    ],
)
async def test_what_the_api_refuses(
    server: ScriptedModel, headers: dict[str, str], query: str, status: int, message: str
) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/models{query}", headers=headers) as answer:
        assert (answer.status, (await answer.json())["error"]["message"]) == (status, message)
