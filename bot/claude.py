"""The model over HTTP: one streamed request of the Messages API, through the transport of the anthropic SDK.

The SDK brings connections (those of aiohttp, which parses in C), authentication, proxies and headers. Its typed
requests and events and its retries are not used: it would walk the whole history once more for every request, an
event read by our own parser costs a tenth, content blocks stay exactly as they came, and a retry must be ours,
because a stop has to be able to end it. So: `max_retries=0`, 60 s without a byte is the limit, and a cancelled task
closes its connection at once, which is what makes the API stop generating.

Importing this module imports the SDK, which takes 1.5 s: `bot.late_model` does it in a thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream

from bot.assembly import Assembly
from bot.claude_errors import from_status
from bot.sse import SseParser
from core.errors import BadInput, ModelError, ModelRefusedHistory, ModelStreamBroken, ModelUnavailable
from core.messages import Block
from core.ports import ModelAnswer, ModelRequest, StreamProgress

PATH = "/v1/messages"
RawStream = AsyncStream[object]
READ_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
LAST_BYTES_S = 0.2
"""How long to wait, after `message_stop`, for the end of the body: then the connection can be used again."""

MARK: Mapping[str, str] = {"type": "ephemeral"}
MAX_MARKS = 4
UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


def connect(api_key: str, base_url: str | None = None, *, direct: bool = False) -> AsyncAnthropic:
    """A client that leaves retries to us. `direct`: past the proxies of the environment (for the loopback).

    Raises `BadInput` for what can't be a key: sent as a header, it would end up in an exception's text.
    """
    key = api_key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("ANTHROPIC_API_KEY is empty or holds characters that no key has: copy it again.")
    timeout = anthropic.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    return AsyncAnthropic(
        api_key=key,
        base_url=base_url,
        max_retries=0,
        timeout=timeout,
        http_client=anthropic.DefaultAioHttpClient(trust_env=not direct, timeout=timeout),
    )


class ClaudeModel:
    """The `core.ports.Model` that talks to the Messages API, or to whatever speaks it.

    `options` go into every request as they are (`thinking`, `metadata`, ...); they belong to the frozen part of
    a conversation, so they must not change while its sessions live.
    """

    def __init__(self, client: AsyncAnthropic, options: Mapping[str, Any] | None = None) -> None:
        self._client = client
        self._options = dict(options or {})

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        """Send `request` once and return the whole answer; see `core.ports.Model`."""
        assembly = Assembly(progress)
        try:
            await self._receive(body_of(request, self._options), assembly)
        except ModelError:
            raise
        except anthropic.APIStatusError as error:
            raise _refused(error, request.model) from error
        except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
            if progress.started:
                raise ModelStreamBroken(f"The model's stream broke off ({reason}).") from error
            raise ModelUnavailable(f"The model could not be reached ({reason}).") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise ModelRefusedHistory(f"The request body is not valid JSON: {error}") from error
        return assembly.answer()

    async def close(self) -> None:
        """Close the pool of connections."""
        await self._client.close()

    async def _receive(self, body: Mapping[str, Any], assembly: Assembly) -> None:
        parser = SseParser()
        data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        request = self._client.post(PATH, cast_to=object, content=data, stream=True, stream_cls=RawStream)
        async with await request as raw:
            chunks = raw.response.aiter_bytes()
            async for chunk in chunks:
                for event in parser.feed(chunk):
                    assembly.take(*event)
                    if assembly.done:
                        break
                if assembly.done:
                    break
            if assembly.done:
                await _drain(chunks)


def body_of(request: ModelRequest, options: Mapping[str, Any]) -> dict[str, Any]:
    """The request's body, with cache marks. Nothing of `request` is changed or copied deeply."""
    marks = MAX_MARKS - _count_marks([*request.tools, *request.messages])
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": list(request.messages),
        "stream": True,
        **options,
    }
    if request.thinking is not None:
        body["thinking"] = request.thinking
    if request.system.strip():
        marked = marks > 0
        marks -= marked
        body["system"] = [_mark({"type": "text", "text": request.system}, marked)]
    if request.tools:
        marked = marks > 0
        marks -= marked
        body["tools"] = [*request.tools[:-1], _mark(request.tools[-1], marked)]
        if request.without_tools:
            body["tool_choice"] = {"type": "none"}
    _mark_users(body["messages"], marks)
    return body


def _mark_users(messages: list[Mapping[str, Any]], marks: int) -> None:
    """Mark the end of the last user messages: the newest is written, the one before it is what the last
    request wrote, and so is found however long the batch between them is."""
    for index in range(len(messages) - 1, -1, -1):
        if marks <= 0 or index < len(messages) - 8:
            return
        message = messages[index]
        if message.get("role") == "user" and (content := _marked_content(message.get("content"))):
            messages[index] = {**message, "content": content}
            marks -= 1


def _marked_content(content: Any) -> list[Any] | None:
    """`content` with a mark on its last block, or None where no mark may be."""
    blocks: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    if not blocks or not isinstance(blocks[-1], Mapping):
        return None
    last = blocks[-1]
    if last.get("type") in UNMARKABLE or last.get("text") == "" or "cache_control" in last:
        return None
    return [*blocks[:-1], _mark(last, True)]


def _mark(block: Mapping[str, Any], marked: bool) -> Mapping[str, Any]:
    return {**block, "cache_control": MARK} if marked else block


def _count_marks(items: Sequence[Any]) -> int:
    """How many cache marks `items` carry already, on themselves or in their content."""
    marks = 0
    for item in items:
        if isinstance(item, dict):
            marks += "cache_control" in item
            content = item.get("content")
            marks += _count_marks(content) if isinstance(content, list) else 0
    return marks


async def _drain(chunks: Any) -> None:
    """Read to the end of the body, if it is about to come, so that the connection goes back to the pool."""
    try:
        async with asyncio.timeout(LAST_BYTES_S):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx2.HTTPError):
        pass


def _refused(error: anthropic.APIStatusError, model: str) -> ModelError:
    """The error that an answer with a status of 400 or more means, with the API's own text where it has one."""
    body = error.body
    detail: Block = body.get("error", {}) if isinstance(body, dict) else {}
    detail = detail if isinstance(detail, dict) else {}
    text = str(detail.get("message") or error.message)
    return from_status(error.status_code, text, model, error.response.headers, str(detail.get("type", "")))
