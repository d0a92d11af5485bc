"""Reads from Slack what the words of a turn refer to: the thread above a first mention, and files.

Everything read here is data from outside. What Slack refuses is said in the text, so that the model does not guess.
Control is no conversation here either: stop words are left out of the thread, and so is what is not for us (`;`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.attachments import FILE_BYTES, Room, block_of
from bot.slack.rendering import thread_context
from bot.slack.rendering_text import one_line
from bot.slack.verdict import NOT_YET, read_failure
from core.evidence import whole
from core.history import user_block
from core.ledger import Surroundings, Wanted
from core.marker import marker_of
from core.messages import Block, FileRef, Marker
from core.stop_words import DEFAULT, StopWords

log = structlog.get_logger(__name__)

PAGE = 1000
SHORT_WAIT_S = 5.0
RETRY_S = 0.5
PAGES = 25
THREAD_CHARS = 12_000
FILES = 5
LONGEST_NAME = 120
CHUNK_BYTES = 64 * 1024
FILE_S = 15.0


class SlackReader:
    """`core.actor.Reader` over the Web API. `bot_user` is our own user id."""

    def __init__(
        self,
        client: AsyncWebClient,
        http: aiohttp.ClientSession,
        token: str,
        *,
        bot_user: str = "",
        words: StopWords = DEFAULT,
        proxy: Callable[[str], str | None] = lambda _address: None,
    ) -> None:
        self._client = client
        self._http = http
        self._token = token
        self._bot_user = bot_user
        self._words = words
        self._proxy = proxy
        self._hinted = False

    async def read(self, wanted: Wanted) -> Surroundings:
        """The thread up to the first word of the turn, and what is in the files."""
        thread = await self._thread(wanted) if wanted.thread else ""
        room = Room()
        blocks = [await self._file(file, room) for file in wanted.files[:FILES]]
        if len(wanted.files) > FILES:
            blocks.append(user_block(f"[{len(wanted.files) - FILES} more files were not read]"))
        return Surroundings(thread, blocks)

    async def _thread(self, wanted: Wanted) -> str:
        found: dict[str, Mapping[str, Any]] = {}
        cursor: str | None = None
        try:
            for _ in range(PAGES):
                data = await self._page(wanted, cursor)
                found |= {str(message.get("ts")): message for message in data.get("messages") or ()}
                cursor = (data.get("response_metadata") or {}).get("next_cursor") or None
                if cursor is None:
                    break
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            verdict = read_failure(error)
            log.warning("thread_not_read", channel=wanted.channel, error=verdict.error)
            if not found:
                return f"[The thread above this message could not be read: {verdict.error}]"
        said = [kept for message in found.values() if (kept := self._conversation(message)) is not None]
        return whole(thread_context(said, wanted.before_ts, THREAD_CHARS))

    async def _page(self, wanted: Wanted, cursor: str | None) -> Mapping[str, Any]:
        """One page, asked for again if Slack is busy for no longer than a person would wait."""
        for patience_s in (SHORT_WAIT_S, SHORT_WAIT_S, 0.0):
            try:
                response = await self._client.conversations_replies(
                    channel=wanted.channel, ts=wanted.thread_ts, limit=PAGE, cursor=cursor
                )
                return response.data if isinstance(response.data, dict) else {}
            except Exception as error:
                verdict = read_failure(error)
                if verdict.meaning not in NOT_YET or verdict.wait_s > patience_s or not patience_s:
                    raise
                await asyncio.sleep(verdict.wait_s or RETRY_S)
        raise AssertionError("the last try has no patience")

    def _conversation(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A message without what is control in it; None when nothing is left, or when it is not for us."""
        if message.get("bot_id"):
            return message
        marker, _, stop = marker_of(
            str(message.get("text", "")), bot_user=self._bot_user, mentioned=False, words=self._words
        )
        if marker is Marker.NOT_FOR_BOT or (stop is not None and stop.bare):
            return None
        return message if stop is None else {**message, "text": stop.rest, "blocks": []}

    async def _file(self, file: FileRef, room: Room) -> Block:
        name = one_line(file.name or file.id)[:LONGEST_NAME]
        if file.size > FILE_BYTES:
            return user_block(f"[attachment {name}: not read, {file.size} bytes is more than {FILE_BYTES}]")
        try:
            async with self._http.get(
                file.url,
                headers={"Authorization": f"Bearer {self._token}"},
                timeout=aiohttp.ClientTimeout(total=FILE_S),
                proxy=self._proxy(file.url),
            ) as response:
                kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                if response.status != 200:
                    return user_block(f"[attachment {name} unavailable: Slack answered {response.status}]")
                if kind == "text/html" and file.mimetype != "text/html":
                    self._hint(file)
                    return user_block(f"[attachment {name} unavailable: files:read missing]")
                content = await _read(response)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return user_block(f"[attachment {name} unavailable: {type(error).__name__}]")
        return block_of(name, file.mimetype, content, room)

    def _hint(self, file: FileRef) -> None:
        """Tell the operators once."""
        if not self._hinted:
            self._hinted = True
            log.warning("file_not_readable", file=file.id, hint="grant the scope files:read and reinstall the app")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to one byte more than a file may have."""
    content = bytearray()
    async for piece in response.content.iter_chunked(CHUNK_BYTES):
        content += piece
        if len(content) > FILE_BYTES:
            break
    return bytes(content)
