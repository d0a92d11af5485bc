"""Bolt's listeners: commit, then acknowledge. Everything is normalised, identified and handed to the mailbox.

With `process_before_response=True` Bolt acknowledges when the listener has returned, so an exception here (the
database is down, Slack would not say who it is) means no acknowledgement, and Slack's retry is the second chance.
Catch-alls see to it that nothing stays unacknowledged: unknown events are ignored, unknown buttons say that they have
expired. No turn ever runs in a listener.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import structlog
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.blocks import RunningTurn, app_home, ephemeral, expired
from bot.slack.identity import Me
from bot.slack.message import SlackMessage
from bot.slack.normalise import normalise_event
from bot.slack.normalise_interaction import Expired, normalise_action, normalise_command
from bot.slack.people import People, Unknown
from bot.slack.reading import Ignored, Listening, OwnPostGone
from bot.slack.verdict import read_failure
from core.control import Closed
from core.messages import Action, Arrival, SlackTs, UserId
from storage.mailbox import Mailbox

log = structlog.get_logger(__name__)

ANYTHING = re.compile(r".*", re.DOTALL)
ARCHIVED = frozenset({"channel_archive", "group_archive"})
CLOSED = ARCHIVED | {"channel_deleted", "group_deleted", "channel_left", "group_left"}
REVOKED = frozenset({"tokens_revoked", "app_uninstalled"})
FEEDBACK = "feedback"

Ack = Callable[..., Awaitable[None]]


class Events:
    """What the listeners do. `now_ts` gives our clock as a Slack timestamp, `heard(kind)` counts."""

    def __init__(
        self,
        client: AsyncWebClient,
        me: Me,
        people: People,
        mailbox: Mailbox,
        listening: Listening,
        *,
        now_ts: Callable[[], str],
        running: Callable[[str], Awaitable[list[RunningTurn]]],
        heard: Callable[[str], None] = lambda _kind: None,
        proxy: Callable[[str], str | None] = lambda _address: None,
    ) -> None:
        self._client = client
        self._me = me
        self._people = people
        self._mailbox = mailbox
        self._listening = listening
        self._now_ts = now_ts
        self._running = running
        self._heard = heard
        self._proxy = proxy
        self._later: set[asyncio.Task[None]] = set()

    def register(self, app: AsyncApp) -> None:
        """Put the listeners on a Bolt app: one for each kind of payload, each catching everything."""
        app.event(ANYTHING)(self.on_event)
        app.action(ANYTHING)(self.on_action)
        app.command(ANYTHING)(self.on_command)
        app.shortcut(ANYTHING)(self.on_other)
        app.view(ANYTHING)(self.on_other)
        app.view_closed(ANYTHING)(self.on_other)
        app.options(ANYTHING)(self.on_other)

    async def on_event(self, body: dict[str, Any]) -> None:
        """Every event of the Events API."""
        event = body.get("event")
        kind = str(event.get("type", "")) if isinstance(event, Mapping) else ""
        self._heard(kind)
        if not isinstance(event, Mapping) or await self._lifecycle(kind, event):
            return
        found = normalise_event(body, self._me, self._listening)
        match found:
            case Ignored():
                log.debug("event_ignored", kind=kind, reason=found.reason)
            case OwnPostGone():
                await self._mailbox.post_gone(found.channel, found.ts)
            case Arrival():
                await self._take(found)

    async def _take(self, arrival: Arrival) -> None:
        if not await self._mailbox.concerns_us(arrival):
            return
        arrived = await self._mailbox.arrive(await self._people.identify(arrival))
        if arrived.duplicate:
            log.debug("duplicate", key=arrival.dedupe_key)
        elif arrived.session is not None:
            log.info(
                "arrived",
                session=arrived.session,
                source=arrival.source.value,
                marker=arrival.marker.value,
                disposition=arrived.disposition.value if arrived.disposition else None,
                policy_row=arrived.row,
                turn=arrived.turn,
            )

    async def _lifecycle(self, kind: str, event: Mapping[str, Any]) -> bool:
        """What happens to channels, people and the installation; whether the event was one of these."""
        channel = event.get("channel")
        ours = kind == "member_left_channel" and event.get("user") == self._me.user_id
        if isinstance(channel, str) and (kind in CLOSED or ours):
            log.warning("place_closed", channel=channel, why=kind)
            await self._mailbox.closed(Closed.ARCHIVED if kind in ARCHIVED else Closed.CHANNEL, channel)
        elif kind in REVOKED:
            log.critical("slack_installation_revoked", kind=kind, hint="reinstall the app to go on")
        elif kind == "user_change" and isinstance(event.get("user"), Mapping):
            self._people.forget(str(event["user"].get("id", "")))
        elif kind == "app_home_opened":
            if event.get("tab", "home") == "home":
                self._soon(self._show_home(UserId(str(event.get("user", "")))))
        else:
            return False
        return True

    async def on_action(self, ack: Ack, body: dict[str, Any]) -> None:
        """Every click. A click is never delivered twice, so what goes wrong here is said to who clicked."""
        found = normalise_action(body, self._me)
        self._heard("block_actions")
        if isinstance(found, Expired) and self._is_feedback(body):
            await ack()
            return
        try:
            if isinstance(found, Arrival):
                await self._clicked(found)
            elif isinstance(found, Expired):
                self._say(found.channel, found.thread_ts, found.user, expired())
        except Unknown:
            assert isinstance(found, Arrival)
            said = "I could not check with Slack who you are, so nothing was done. Press again, or write `stop`."
            self._say(found.channel, found.thread_ts, found.author, ephemeral(said))
        await ack()

    async def _clicked(self, arrival: Arrival) -> None:
        arrived = await self._mailbox.arrive(await self._people.identify(arrival))
        if arrived.session is None and not arrived.duplicate:
            self._say(arrival.channel, arrival.thread_ts, arrival.author, expired())
        elif arrival.action is Action.REDIRECT_NOW and arrived.notice is None and not arrived.duplicate:
            self._replace(arrival, "Redirecting now with your words.")

    async def on_command(self, ack: Ack, body: dict[str, Any]) -> None:
        """Slash commands know no thread: they stop the person's only running turn, or list what runs."""
        found = normalise_command(body, self._me, SlackTs(self._now_ts()), self._listening)
        if isinstance(found, Arrival):
            await self._mailbox.arrive(await self._people.identify(found))
            await ack()
            return
        await ack(f"Mention <@{self._me.user_id}> to ask something. This command can only `stop` or `cancel`.")

    async def on_other(self, ack: Ack) -> None:
        """Shortcuts, views and options that we don't have (any more)."""
        await ack()

    # -- words that need no row: nothing depends on them

    def _is_feedback(self, body: Mapping[str, Any]) -> bool:
        actions = body.get("actions") or [{}]
        if not str(actions[0].get("action_id", "")).startswith(FEEDBACK):
            return False
        value = str(actions[0].get("value", ""))
        turn, _, verdict = value.rpartition(":")
        log.info("feedback", turn=turn, verdict=verdict, user=(body.get("user") or {}).get("id"))
        self._heard(f"feedback_{verdict}")
        return True

    def _say(self, channel: str, thread_ts: str | None, user: str, message: SlackMessage) -> None:
        async def say() -> None:
            try:
                await self._client.chat_postEphemeral(
                    channel=channel,
                    user=user,
                    thread_ts=thread_ts,
                    text=message.text,
                    blocks=message.blocks,
                )
            except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
                log.warning("ephemeral_not_sent", error=read_failure(error).error)

        self._soon(say())

    def _replace(self, arrival: Arrival, text: str) -> None:
        address = str(arrival.extra.get("response_url", ""))
        if not address:
            return

        async def replace() -> None:
            body = {"replace_original": True, "text": text, "blocks": ephemeral(text).blocks}
            session = self._client.session
            if session is None:
                return
            try:
                async with session.post(address, json=body, proxy=self._proxy(address)) as response:
                    await response.read()
            except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
                log.warning("ephemeral_not_replaced", error=read_failure(error).error)

        self._soon(replace())

    async def _show_home(self, user: UserId) -> None:
        try:
            home = app_home(await self._running(user), bot=UserId(self._me.user_id))
            await self._client.views_publish(user_id=user, view=home)
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            log.warning("home_not_shown", error=read_failure(error).error)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)
