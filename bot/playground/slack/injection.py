"""Raw envelopes, as tests have recorded them, made consistent with the workspace they are thrown into.

What such a payload says has happened has happened here too: its message exists and can be answered, edited and
deleted, so does the root of its thread, its channel is there, and its addresses lead to this server.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Channel, Json

CHANGES = ("message_changed", "message_deleted", "message_replied")


def prepare(desk: Desk, envelope: Json) -> Json:
    """A copy of `envelope`, its addresses and triggers alive, after its event was written down."""
    copy: Json = json.loads(json.dumps(envelope).replace("https://files.slack.test/", f"{desk.url}/files/"))
    copy.setdefault("envelope_id", desk.state.next_id("envelope-"))
    copy.setdefault("type", "events_api")
    copy.pop("to", None)
    payload = copy.get("payload")
    if not isinstance(payload, dict):
        return copy
    if isinstance(payload.get("event"), dict):
        absorb(desk, payload["event"])
    else:
        _revive(desk, payload)
    return copy


def _revive(desk: Desk, payload: Json) -> None:
    user = str(payload.get("user_id") or (payload.get("user") or {}).get("id") or "")
    channel = str(payload.get("channel_id") or (payload.get("channel") or {}).get("id") or "")
    if channel:
        ensure_channel(desk, channel)
    url = payload.get("response_url")
    if url and urlsplit(url).netloc != urlsplit(desk.url).netloc:
        payload["response_url"] = desk.issue_response_url(channel, user, payload.get("message"))
    trigger = payload.get("trigger_id")
    if trigger and trigger not in desk.triggers:
        desk.triggers[trigger] = desk.clock()
        desk.trigger_users[trigger] = user


def ensure_channel(desk: Desk, wanted: str, user: str | None = None) -> Channel:
    """The channel, made if the workspace has none of this id."""
    found = desk.workspace.channel(wanted)
    if found is not None:
        return found
    direct = wanted.startswith("D")
    members = {desk.workspace.bot_user_id, user or ""} if direct else None
    made = Channel(wanted, wanted.lower(), members, wanted.startswith("G"), is_im=direct, user=user)
    desk.workspace.channels.append(made)
    return made


def absorb(desk: Desk, event: Json) -> None:
    """Write down what an event says, without telling anybody."""
    kind, where = event.get("type"), event.get("channel")
    if not isinstance(where, str):
        return
    channel = ensure_channel(desk, where, event.get("user"))
    if kind in ("channel_archive", "group_archive"):
        channel.is_archived = True
    if kind not in ("message", "app_mention"):
        return
    if event.get("subtype") in CHANGES:
        _absorb_change(desk, where, event)
    elif desk.state.lookup(where, event.get("ts")) is None and event.get("ts"):
        _absorb_root(desk, where, event)
        kept = {key: value for key, value in event.items() if key not in ("channel", "channel_type", "event_ts")}
        desk.state.add(where, kept | {"type": "message"}, str(event.get("user") or event.get("bot_id")))


def _absorb_root(desk: Desk, channel: str, event: Json) -> None:
    """A reply has a root; its words are not known."""
    root = event.get("thread_ts")
    if root and root != event["ts"] and desk.state.lookup(channel, root) is None:
        user = str(event.get("parent_user_id") or "USOMEBODY")
        desk.state.add(channel, {"type": "message", "user": user, "text": "(before the recording)", "ts": root}, user)


def _absorb_change(desk: Desk, channel: str, event: Json) -> None:
    after = event.get("message") or {}
    message = desk.state.lookup(channel, event.get("deleted_ts") or after.get("ts"))
    if message is None or message.gone:
        return
    if event["subtype"] == "message_deleted":
        desk.state.remove(message, "somebody")
    elif after:
        desk.state.change(message, dict(after), str(after.get("user")))
