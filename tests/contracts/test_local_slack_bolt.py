"""The local Slack against the real thing on the other side: slack_bolt and slack_sdk, unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.playground.slack import LocalSlack, Workspace

INCIDENT = "C0INCIDENT"
BUTTON = {
    "type": "actions",
    "elements": [
        {
            "type": "button",
            "action_id": "stop_step",
            "text": {"type": "plain_text", "text": "Stop"},
            "value": "turn-1",
        }
    ],
}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@dataclass
class Bot:
    """A small real Bolt app that writes down what it hears. `deaf` makes that many event listeners fail first."""

    slack: LocalSlack
    deaf: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    clicks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = AsyncWebClient(token="xoxb-local", base_url=self.slack.api_url)
        self.app = AsyncApp(client=self.client, signing_secret="local-signing-secret", process_before_response=True)
        for name in ("message", "app_mention", "reaction_added", "agent_session_stopped", "app_home_opened"):
            self.app.event(name)(self._event)
        self.app.action("stop_step")(self._click)
        self.app.view("redirect")(self._submitted)

    async def _event(self, body: dict[str, Any]) -> None:
        if self.deaf:
            self.deaf -= 1
            raise RuntimeError("the database is down")
        self.events.append(body["event"])
        self.bodies.append(body)

    async def _click(self, ack: Any, body: dict[str, Any], respond: Any, client: AsyncWebClient) -> None:
        await ack()
        self.clicks.append(body)
        await respond(text="taken", response_type="ephemeral", replace_original=False)
        modal = {"type": "modal", "callback_id": "redirect", "title": text("Redirect"), "blocks": []}
        await client.views_open(trigger_id=body["trigger_id"], view=modal)

    async def _submitted(self, ack: Any, view: dict[str, Any]) -> None:
        self.clicks.append(view)
        await ack()

    def heard(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


def text(words: str) -> dict[str, str]:
    return {"type": "plain_text", "text": words}


@asynccontextmanager
async def over_sockets(slack: LocalSlack) -> AsyncIterator[Bot]:
    bot = Bot(slack)
    handler = AsyncSocketModeHandler(bot.app, "xapp-local", web_client=bot.client, ping_interval=1)
    await handler.connect_async()
    await slack.connected()
    try:
        yield bot
    finally:
        await handler.close_async()


@asynccontextmanager
async def over_http(slack: LocalSlack) -> AsyncIterator[Bot]:
    bot = Bot(slack)
    runner = web.AppRunner(bot.app.web_app("/slack/events"), handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    slack.http_mode(f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events")
    try:
        yield bot
    finally:
        await runner.cleanup()


@pytest.fixture(params=[over_sockets, over_http], ids=["sockets", "http"])
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[tuple[LocalSlack, Bot]]:
    async with LocalSlack(speed=600, seed=1) as slack, request.param(slack) as bot:
        yield slack, bot
        await slack.quiet()


async def test_a_mention_arrives_as_message_and_app_mention_with_different_event_ids(scene: Any) -> None:
    slack, bot = scene
    ts = await slack.say(INCIDENT, "U0ENGINEER", "@pilot why is a < b & c?")
    await slack.until(lambda: len(bot.events) == 2)
    assert sorted(event["type"] for event in bot.events) == ["app_mention", "message"]
    assert {event["ts"] for event in bot.events} == {ts}
    assert {event["text"] for event in bot.events} == {"<@U0PILOT> why is a &lt; b &amp; c?"}
    assert len({body["event_id"] for body in bot.bodies}) == 2
    assert bot.heard("message")[0]["channel_type"] == "channel"
    assert "channel_type" not in bot.heard("app_mention")[0]


async def test_the_bot_answers_in_the_thread_and_everybody_sees_it(scene: Any) -> None:
    slack, bot = scene
    root = await slack.say(INCIDENT, "U0ENGINEER", "hello")
    metadata = {"event_type": "turn_part", "event_payload": {"turn": "t1", "part": 1}}
    posted = await bot.client.chat_postMessage(
        channel=INCIDENT, thread_ts=root, text="card", blocks=[BUTTON], metadata=metadata
    )
    assert posted["message"]["thread_ts"] == root
    thread = slack.messages(INCIDENT, root)
    assert [message["text"] for message in thread] == ["hello", "card"]
    assert thread[0]["reply_count"] == 1
    page = await bot.client.conversations_replies(channel=INCIDENT, ts=root, include_all_metadata=True)
    assert page["messages"][1]["metadata"] == metadata
    plain = await bot.client.conversations_replies(channel=INCIDENT, ts=root)
    assert "metadata" not in plain["messages"][1]


async def test_a_click_is_acknowledged_answered_by_response_url_and_opens_a_modal(scene: Any) -> None:
    slack, bot = scene
    root = await slack.say(INCIDENT, "U0ENGINEER", "hello")
    card = await bot.client.chat_postMessage(channel=INCIDENT, thread_ts=root, text="card", blocks=[BUTTON])
    click = await slack.press(INCIDENT, card["ts"], "stop_step", "U0ONCALL")
    assert click.acknowledged
    await slack.until(lambda: slack.called("views.open"))
    assert bot.clicks[0]["actions"][0]["value"] == "turn-1"
    assert bot.clicks[0]["container"]["thread_ts"] == root
    seen = [m for m in slack.messages(INCIDENT, root) if m.get("ephemeral")]
    assert [(m["text"], m["ephemeral_user"]) for m in seen] == [("taken", "U0ONCALL")]
    [view] = slack.state.views.values()
    submitted = await slack.submit(view.id, "U0ONCALL", {"b": {"a": {"type": "plain_text_input", "value": "db"}}})
    assert submitted.acknowledged
    assert bot.clicks[1]["state"]["values"]["b"]["a"]["value"] == "db"


async def test_an_unknown_button_is_not_acknowledged_and_never_comes_again() -> None:
    async with LocalSlack(speed=6000, ack_timeout_s=0.2) as slack, over_sockets(slack) as bot:
        block = {"type": "actions", "elements": [{**BUTTON["elements"][0], "action_id": "old"}]}
        card = await bot.client.chat_postMessage(channel=INCIDENT, text="card", blocks=[block])
        click = await slack.press(INCIDENT, card["ts"], "old", "U0ONCALL")
        assert not click.acknowledged
        await slack.quiet()
        assert sum(envelope["type"] == "interactive" for envelope, _ in slack.deliveries) == 1


async def test_an_event_that_fails_comes_again_with_its_attempt_and_reason(scene: Any) -> None:
    slack, bot = scene
    slack.wire.ack_timeout_s = 0.3
    bot.deaf = 2
    await slack.say(INCIDENT, "U0ENGINEER", "are you there?")
    await slack.until(lambda: bot.events)
    await slack.quiet()
    attempts = [envelope["retry_attempt"] for envelope, _ in slack.deliveries]
    assert attempts == [0, 1, 2]
    assert slack.deliveries[1][0]["retry_reason"] in ("timeout", "http_error")
    assert len(bot.events) == 1


async def test_events_sent_while_nobody_listens_arrive_by_the_schedule() -> None:
    async with LocalSlack(retry_schedule_s=(0.0, 0.0, 1.0)) as slack:
        await slack.say(INCIDENT, "U0ENGINEER", "anybody?")
        async with over_sockets(slack) as bot:
            await slack.until(lambda: bot.events)
            assert [d.acknowledged for _, d in slack.deliveries] == [False, False, False, True]


async def test_a_refresh_brings_the_socket_back_and_nothing_is_lost() -> None:
    async with LocalSlack(speed=600) as slack, over_sockets(slack) as bot:
        await slack.refresh()
        await slack.say(INCIDENT, "U0ENGINEER", "still there?")
        await slack.until(lambda: bot.events)
        assert len(slack.called("apps.connections.open")) == 2


async def test_a_ghost_swallows_clicks_but_events_come_again() -> None:
    async with LocalSlack(speed=6000, ack_timeout_s=0.1, seed=3) as slack, over_sockets(slack) as bot:
        card = await bot.client.chat_postMessage(channel=INCIDENT, text="card", blocks=[BUTTON])
        slack.wire.add_ghosts(9)
        assert slack.wire.hello()["num_connections"] == 10
        clicks = [await slack.press(INCIDENT, card["ts"], "stop_step", "U0ONCALL") for _ in range(8)]
        assert not all(click.acknowledged for click in clicks)
        slack.wire.schedule_s = (0.0,) * 60
        await slack.say(INCIDENT, "U0ENGINEER", "stop")
        await slack.until(lambda: bot.heard("message"))


async def test_an_edit_that_mentions_brings_a_second_mention(scene: Any) -> None:
    slack, bot = scene
    ts = await slack.say(INCIDENT, "U0ENGINEER", "look")
    await slack.edit(INCIDENT, ts, "U0ENGINEER", "<@U0PILOT> look")
    await slack.until(lambda: len(bot.events) == 3)
    changed = next(e for e in bot.heard("message") if e.get("subtype") == "message_changed")
    assert changed["previous_message"]["text"] == "look"
    assert changed["message"]["edited"]["user"] == "U0ENGINEER"
    assert bot.heard("app_mention")[0]["edited"] == changed["message"]["edited"]


async def test_deleting_a_root_with_replies_leaves_a_tombstone_and_posts_land_outside(scene: Any) -> None:
    slack, bot = scene
    root = await slack.say(INCIDENT, "U0ENGINEER", "root")
    await slack.say(INCIDENT, "U0ONCALL", "reply", thread_ts=root)
    await slack.delete(INCIDENT, root, "U0ENGINEER")
    await slack.until(lambda: any(e.get("subtype") == "message_changed" for e in bot.events))
    changed = next(e for e in bot.events if e.get("subtype") == "message_changed")
    assert changed["message"]["subtype"] == "tombstone"
    posted = await bot.client.chat_postMessage(channel=INCIDENT, thread_ts=root, text="answer")
    assert "thread_ts" not in posted["message"]
    with pytest.raises(SlackApiError, match="message_not_found"):
        await bot.client.chat_getPermalink(channel=INCIDENT, message_ts=root)


async def test_reactions_and_the_native_stop_arrive(scene: Any) -> None:
    slack, bot = scene
    root = await slack.say(INCIDENT, "U0ENGINEER", "hello")
    await slack.react(INCIDENT, root, "U0ONCALL", "octagonal_sign")
    await bot.client.agents_sessions_setStatus(channel_id=INCIDENT, thread_ts=root, status="processing")
    await slack.native_stop(INCIDENT, root, "U0ONCALL")
    await slack.until(lambda: bot.heard("agent_session_stopped") and bot.heard("reaction_added"))
    assert bot.heard("reaction_added")[0]["item"]["ts"] == root
    assert bot.heard("agent_session_stopped")[0]["thread_ts"] == root
    assert slack.statuses(INCIDENT, root) == ["processing"]


async def test_an_alert_has_no_text_and_a_bot_id(scene: Any) -> None:
    slack, bot = scene
    await slack.post_alert(INCIDENT)
    await slack.until(lambda: bot.events)
    [alert] = bot.events
    assert (alert["subtype"], alert["text"], alert["bot_id"]) == ("bot_message", "", "B0MONITOR")
    assert alert["attachments"][0]["title"].startswith("[FIRING:1]")


async def test_direct_messages_need_no_mention(scene: Any) -> None:
    slack, bot = scene
    await slack.say("D0ENGINEER", "U0ENGINEER", "<@U0PILOT> hello")
    await slack.quiet()
    assert [(e["type"], e["channel_type"]) for e in bot.events] == [("message", "im")]
    opened = await bot.client.conversations_open(users="U0ENGINEER")
    assert opened["channel"]["id"] == "D0ENGINEER"


async def test_a_wrong_clock_makes_bolt_refuse_signed_requests() -> None:
    async with LocalSlack(speed=60000) as slack, over_http(slack) as bot:
        assert slack.wire.http is not None
        slack.wire.http.skew_s = -420
        await slack.say(INCIDENT, "U0ENGINEER", "hello")
        await slack.quiet()
        assert bot.events == []
        assert {delivery.status for _, delivery in slack.deliveries} == {401}


async def test_every_event_can_come_twice_and_out_of_order() -> None:
    async with LocalSlack(seed=5) as slack, over_sockets(slack) as bot:
        slack.duplicate_events(2)
        slack.reorder_events()
        sent = [await slack.say(INCIDENT, "U0ENGINEER", f"number {n}") for n in range(6)]
        await slack.until(lambda: len(bot.events) == 18)
        order = [event["ts"] for event in bot.events]
        assert sorted(order) == sorted(sent * 3)
        assert order != sorted(order)
        assert len({body["event_id"] for body in bot.bodies}) == 12


async def test_an_injected_envelope_is_acknowledged_and_its_message_exists() -> None:
    workspace = Workspace(team_id="T0HOME001", bot_user_id="U0BOT0001")
    async with LocalSlack(workspace) as slack, over_sockets(slack) as bot:
        event = {
            "type": "message",
            "channel": "C0INC0001",
            "user": "U0ANN0001",
            "text": "hi",
            "ts": "1790000000.000100",
        }
        delivery = await slack.inject(
            {
                "type": "events_api",
                "envelope_id": "e1",
                "retry_attempt": 1,
                "retry_reason": "timeout",
                "payload": {"type": "event_callback", "team_id": "T0HOME001", "event_id": "Ev1", "event": event},
            }
        )
        assert delivery.acknowledged
        assert bot.events[0]["text"] == "hi"
        posted = await bot.client.chat_postMessage(channel="C0INC0001", thread_ts=event["ts"], text="yes?")
        assert posted["message"]["thread_ts"] == event["ts"]


async def test_more_than_ten_sockets_are_turned_away() -> None:
    async with LocalSlack() as slack:
        slack.wire.add_ghosts(10)
        bot = Bot(slack)
        opened = await bot.client.apps_connections_open(app_token="xapp-local")
        async with bot_session() as session, session.ws_connect(opened["url"]) as socket:
            assert await socket.receive_json() == {"type": "disconnect", "reason": "too_many_websockets"}


@asynccontextmanager
async def bot_session() -> AsyncIterator[Any]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_an_ambiguous_post_is_there_although_its_caller_saw_a_reset() -> None:
    async with LocalSlack() as slack:
        client = AsyncWebClient(token="xoxb-local", base_url=slack.api_url, retry_handlers=[])
        slack.script("chat.postMessage", ["commit_then_reset", "reset", {"status": 502, "body": "<html>bad</html>"}])
        for _ in range(3):
            with pytest.raises((aiohttp.ClientError, SlackApiError)):
                await client.chat_postMessage(channel=INCIDENT, text="once")
        assert [message["text"] for message in slack.messages(INCIDENT)] == ["once"]
        assert [call.status for call in slack.called("chat.postMessage")] == [0, 0, 502]
