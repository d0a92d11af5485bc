"""The calls that the writer makes: one function, one call, one verdict. Nothing here retries and nothing here raises.

Every post carries our metadata (turn, part), so that a post whose outcome is unclear can be found again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.slack.message import SlackMessage
from bot.slack.verdict import Meaning, Verdict, read, read_failure

METADATA = "pilothouse_post"
PAGE = 200
PAGES = 20

UPLOAD = "files.getUploadURLExternal"
SHARE = "files.completeUploadExternal"
UPLOAD_S = 60.0

MOST_TRIES = 12
"""How often a call is sent that did not happen for sure, before its row fails."""

Counted = Callable[[str, str], None]

Work = Callable[[AsyncConnection], Awaitable[None]]
"""What is written when the outcome of a call is known."""
Made = tuple[Callable[[], Awaitable[Verdict]], Callable[[Verdict], Work]]
"""One prepared call, and the `Work` that follows from its verdict."""
Proxy = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a post is recognised by."""

    turn: str
    part: str

    def metadata(self) -> dict[str, Any]:
        return {"event_type": METADATA, "event_payload": {"turn": self.turn, "part": self.part}}

    def is_on(self, message: Mapping[str, Any]) -> bool:
        metadata = message.get("metadata") or {}
        payload = metadata.get("event_payload") or {}
        return (
            metadata.get("event_type") == METADATA
            and payload.get("turn") == self.turn
            and str(payload.get("part")) == self.part
        )


class Sender:
    """One workspace's Web API. `counted(method, outcome)` hears of every call; `proxy` is that of an address."""

    def __init__(
        self, client: AsyncWebClient, http: aiohttp.ClientSession, counted: Counted, proxy: Proxy = lambda _: None
    ) -> None:
        self._client = client
        self._http = http
        self._counted = counted
        self._proxy = proxy

    async def post(self, channel: str, thread_ts: str | None, message: SlackMessage, mark: Mark) -> Verdict:
        """Post into a thread. A thread whose root is gone is THREAD_GONE: the stray post is deleted again."""
        verdict = await self._call(
            "chat.postMessage",
            channel=channel,
            thread_ts=thread_ts,
            text=message.text,
            blocks=message.blocks or None,
            metadata=mark.metadata(),
            unfurl_links=False,
            unfurl_media=False,
        )
        if verdict.meaning is not Meaning.OK or thread_ts is None or verdict.data is None:
            return verdict
        posted = verdict.data.get("message") or {}
        if posted.get("thread_ts") == thread_ts or "ts" not in posted:
            return verdict
        await self._call("chat.delete", channel=channel, ts=str(verdict.data.get("ts", "")))
        return Verdict(Meaning.THREAD_GONE, "thread_root_deleted")

    async def update(self, channel: str, ts: str, message: SlackMessage) -> Verdict:
        """Edit a message; text and blocks together, or Slack removes the blocks."""
        return await self._call("chat.update", channel=channel, ts=ts, text=message.text, blocks=message.blocks)

    async def ephemeral(self, channel: str, thread_ts: str | None, person: str, message: SlackMessage) -> Verdict:
        """Words that only one person sees."""
        return await self._call(
            "chat.postEphemeral",
            channel=channel,
            thread_ts=thread_ts,
            user=person,
            text=message.text,
            blocks=message.blocks or None,
        )

    async def react(self, channel: str, ts: str, name: str) -> Verdict:
        """A sign on somebody's message."""
        return await self._call("reactions.add", channel=channel, timestamp=ts, name=name)

    async def direct(self, person: str, message: SlackMessage, mark: Mark) -> Verdict:
        """A direct message."""
        opened = await self._call("conversations.open", users=person)
        if not opened.good or opened.data is None:
            return opened
        return await self.post(_channel_of(opened.data), None, message, mark)

    async def status(self, channel: str, thread_ts: str, status: str) -> Verdict:
        """The thread's agent session."""
        return await self._call("agents.sessions.setStatus", channel_id=channel, thread_ts=thread_ts, status=status)

    async def find(self, channel: str, thread_ts: str, mark: Mark) -> Verdict:
        """Look for a post by its mark. OK with `data["ts"]`, or OK with no ts when it is not there."""
        return await self._look(channel, thread_ts, mark.is_on)

    async def find_file(self, channel: str, thread_ts: str, file: str) -> Verdict:
        """The same for the post that shares a file."""
        return await self._look(
            channel,
            thread_ts,
            lambda message: any(one.get("id") == file for one in message.get("files") or ()),
        )

    async def _look(self, channel: str, thread_ts: str, is_it: Callable[[Mapping[str, Any]], bool]) -> Verdict:
        cursor: str | None = None
        for _ in range(PAGES):
            verdict = await self._call(
                "conversations.replies",
                channel=channel,
                ts=thread_ts,
                limit=PAGE,
                cursor=cursor,
                include_all_metadata=True,
            )
            if not verdict.good or verdict.data is None:
                return verdict
            for message in verdict.data.get("messages") or ():
                if is_it(message):
                    return Verdict(Meaning.OK, data={"ts": str(message["ts"])})
            cursor = (verdict.data.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return Verdict(Meaning.OK, data={})

    async def find_direct(self, person: str, mark: Mark) -> Verdict:
        """The same for a direct message, among the newest with this person."""
        opened = await self._call("conversations.open", users=person)
        if not opened.good or opened.data is None:
            return opened
        verdict = await self._call(
            "conversations.history", channel=_channel_of(opened.data), limit=PAGE, include_all_metadata=True
        )
        if not verdict.good or verdict.data is None:
            return verdict
        found = [message for message in verdict.data.get("messages") or () if mark.is_on(message)]
        return Verdict(Meaning.OK, data={"ts": str(found[0]["ts"])} if found else {})

    async def upload(self, name: str, content: bytes) -> Verdict:
        """Bring the bytes of a file to Slack: OK with `data["file"]`. Nobody sees it before it is shared.

        No `alt_txt`: files that have one are now and then never shared (python-slack-sdk issues 1575 and 1818).
        """
        given = await self._call(UPLOAD, filename=name, length=len(content))
        if not given.good or given.data is None:
            return given
        address = str(given.data.get("upload_url", ""))
        try:
            async with self._http.post(
                address,
                data=BytesIO(content),
                proxy=self._proxy(address),
                timeout=aiohttp.ClientTimeout(total=UPLOAD_S),
            ) as response:
                status = response.status
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            return read_failure(error)
        if status != 200:
            return Verdict(Meaning.UNCLEAR, f"upload_http_{status}")
        return Verdict(Meaning.OK, data={"file": str(given.data.get("file_id", ""))})

    async def share(self, channel: str, thread_ts: str | None, file: str, title: str, comment: str) -> Verdict:
        """Have an uploaded file posted: good means that Slack will do it. A thread whose root is gone is THREAD_GONE:
        Slack would not say that the file landed elsewhere, so the root is looked for before.
        """
        if thread_ts is not None:
            root = await self._call("chat.getPermalink", channel=channel, message_ts=thread_ts)
            if root.meaning is Meaning.GONE:
                return Verdict(Meaning.THREAD_GONE, "thread_root_deleted")
        verdict = await self._call(
            SHARE,
            files=[{"id": file, "title": title}],
            channel_id=channel,
            thread_ts=thread_ts,
            initial_comment=comment,
        )
        return Verdict(Meaning.REFUSED, verdict.error) if verdict.error == "access_denied" else verdict

    async def _call(self, method: str, **arguments: Any) -> Verdict:
        given = {key: value for key, value in arguments.items() if value is not None}
        call: Callable[..., Awaitable[Any]] = self._client.api_call
        try:
            response = await call(method, **{_SENT_AS.get(method, "params"): given})
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            verdict = read_failure(error)
        else:
            data = response.data if isinstance(response.data, dict) else {}
            verdict = read(data, int(response.status_code), {str(k): str(v) for k, v in response.headers.items()})
        self._counted(method, verdict.error or verdict.meaning.value)
        return verdict


def _channel_of(opened: Mapping[str, Any]) -> str:
    return str((opened.get("channel") or {}).get("id", ""))


_SENT_AS: Mapping[str, str] = {
    SHARE: "json",
    "chat.postMessage": "json",
    "chat.update": "json",
    "chat.postEphemeral": "json",
    "chat.delete": "json",
    "reactions.add": "json",
    "conversations.open": "json",
    "agents.sessions.setStatus": "json",
}
"""Where the arguments of a method stand in the request, if not in its address."""
