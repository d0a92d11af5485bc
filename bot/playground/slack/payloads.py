"""The shapes that arrive at an app: event callbacks, block actions, view submissions, slash commands. All pure."""

from __future__ import annotations

from typing import Any

from bot.playground.slack.people import Channel, Json, Person, Workspace


def event_callback(workspace: Workspace, event: Json, event_id: str, at: float, shared: bool = False) -> Json:
    """The outer payload of one event."""
    return {
        "token": "verification-token",
        "team_id": workspace.team_id,
        "enterprise_id": workspace.enterprise_id,
        "context_team_id": workspace.team_id,
        "context_enterprise_id": workspace.enterprise_id,
        "api_app_id": workspace.app_id,
        "type": "event_callback",
        "event": event,
        "event_id": event_id,
        "event_time": int(at),
        "authorizations": [
            {
                "enterprise_id": workspace.enterprise_id,
                "team_id": workspace.team_id,
                "user_id": workspace.bot_user_id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": shared,
        "event_context": f"4-{event_id}",
    }


def message_event(shown: Json, channel: Channel) -> Json:
    """`message` as it is sent when somebody writes."""
    return shown | {
        "type": "message",
        "channel": channel.id,
        "channel_type": channel.kind,
        "event_ts": shown["ts"],
    }


def mention_event(shown: Json, channel: Channel, event_ts: str) -> Json:
    """`app_mention`: the same message without a channel type."""
    kept = {key: value for key, value in shown.items() if key not in ("subtype", "channel_type")}
    return kept | {"type": "app_mention", "channel": channel.id, "event_ts": event_ts}


def changed_event(after: Json, before: Json, channel: Channel, ts: str) -> Json:
    """`message_changed`: an edit, an unfurl, a tombstone."""
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "message": after,
        "previous_message": before,
        "channel": channel.id,
        "channel_type": channel.kind,
        "ts": ts,
        "event_ts": ts,
    }


def deleted_event(before: Json, channel: Channel, ts: str) -> Json:
    """`message_deleted`, which doesn't say who did it."""
    return {
        "type": "message",
        "subtype": "message_deleted",
        "hidden": True,
        "deleted_ts": before["ts"],
        "previous_message": before,
        "channel": channel.id,
        "channel_type": channel.kind,
        "ts": ts,
        "event_ts": ts,
    }


def reaction_event(kind: str, user: str, name: str, channel: str, message: Json, ts: str) -> Json:
    """`reaction_added` or `reaction_removed`."""
    return {
        "type": kind,
        "user": user,
        "reaction": name,
        "item": {"type": "message", "channel": channel, "ts": message["ts"]},
        "item_user": message.get("user"),
        "event_ts": ts,
    }


def _actor(workspace: Workspace, person: Person) -> Json:
    return {
        "id": person.id,
        "username": person.name,
        "name": person.name,
        "team_id": person.team_id or workspace.team_id,
    }


def _interaction(workspace: Workspace, kind: str, person: Person, trigger_id: str) -> Json:
    return {
        "type": kind,
        "user": _actor(workspace, person),
        "api_app_id": workspace.app_id,
        "token": "verification-token",
        "trigger_id": trigger_id,
        "team": {"id": workspace.team_id, "domain": workspace.domain},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def block_actions(
    workspace: Workspace,
    person: Person,
    channel: Channel,
    message: Json,
    action: Json,
    *,
    trigger_id: str,
    response_url: str,
    ephemeral: bool,
) -> Json:
    """A click on a message. On an ephemeral one there is no `message`, only the container knows the thread."""
    container = {
        "type": "message",
        "message_ts": message["ts"],
        "channel_id": channel.id,
        "is_ephemeral": ephemeral,
    }
    if message.get("thread_ts"):
        container["thread_ts"] = message["thread_ts"]
    payload = _interaction(workspace, "block_actions", person, trigger_id) | {
        "container": container,
        "channel": {"id": channel.id, "name": "directmessage" if channel.is_im else channel.name},
        "state": {"values": {}},
        "response_url": response_url,
        "actions": [action],
    }
    return payload if ephemeral else payload | {"message": message}


def view_actions(workspace: Workspace, person: Person, view: Json, action: Json, trigger_id: str) -> Json:
    """A click in a modal or on the home tab."""
    return _interaction(workspace, "block_actions", person, trigger_id) | {
        "container": {"type": "view", "view_id": view["id"]},
        "view": view,
        "state": view.get("state", {"values": {}}),
        "actions": [action],
    }


def view_submission(workspace: Workspace, person: Person, view: Json, trigger_id: str) -> Json:
    """Somebody pressed the submit button of a modal."""
    return _interaction(workspace, "view_submission", person, trigger_id) | {"view": view, "response_urls": []}


def view_closed(workspace: Workspace, person: Person, view: Json) -> Json:
    """Somebody closed a modal that asked to be told."""
    return _interaction(workspace, "view_closed", person, "") | {"view": view, "is_cleared": False}


def slash_command(
    workspace: Workspace, person: Person, channel: Channel, command: str, text: str, **links: Any
) -> Json:
    """A slash command. It never knows of a thread."""
    return {
        "token": "verification-token",
        "command": command,
        "text": text,
        "channel_id": channel.id,
        "channel_name": channel.name,
        "user_id": person.id,
        "user_name": person.name,
        "team_id": workspace.team_id,
        "team_domain": workspace.domain,
        "api_app_id": workspace.app_id,
        "is_enterprise_install": "false",
        **links,
    }
