"""Buttons and slash commands -> arrivals. A button's value is an opaque id; the mailbox looks up what it means.

Buttons live for months and are never delivered twice. One that we don't know any more, or whose value we can't read,
is `Expired`: it is acknowledged and the person is told, never ignored. Slash commands know no thread and no Slack
time: they can only stop, they mean the person's only running turn, and the time of receipt stands for their ts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.slack.escape import clean_everywhere
from bot.slack.identity import Me, seen_who, text_of
from bot.slack.reading import LEVEL_OF, Ignored, Listening, Payload
from core.messages import (
    NO_RIGHTS,
    Action,
    Arrival,
    ChannelId,
    Level,
    Marker,
    Place,
    SlackTs,
    Source,
    TurnId,
    UserId,
    Who,
)
from core.stop import StopWord, recognise

_OPAQUE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_MARKERS: Mapping[Action, Marker] = {
    Action.STOP_STEP: Marker.STOP_STEP,
    Action.CANCEL_TASK: Marker.CANCEL,
    Action.STOP_HELPER: Marker.STOP_STEP,
    Action.APPROVE: Marker.APPROVE,
    Action.DENY: Marker.DENY,
    Action.REDIRECT_NOW: Marker.NOW,
    Action.RETRY: Marker.NONE,
}
_TURN_BUTTONS = frozenset({Action.STOP_STEP, Action.CANCEL_TASK, Action.RETRY})
_DECISIONS = frozenset({Action.APPROVE, Action.DENY})


@dataclass(frozen=True, slots=True)
class Expired:
    """A control that does nothing any more; who pressed it is told so, where they pressed it."""

    reason: str
    channel: ChannelId
    thread_ts: SlackTs | None
    user: UserId


def normalise_action(payload: Payload, me: Me) -> Arrival | Expired | Ignored:
    """The arrival that a `block_actions` payload is. The thread of an ephemeral message is in its `container`."""
    payload = clean_everywhere(payload)
    if text_of(payload, "type") != "block_actions":
        return Ignored(f"interaction {text_of(payload, 'type') or 'without type'}")
    container, message, actions = _map(payload, "container"), _map(payload, "message"), payload.get("actions")
    user = text_of(_map(payload, "user"), "id")
    channel = text_of(_map(payload, "channel"), "id") or text_of(container, "channel_id")
    message_ts = text_of(container, "message_ts") or text_of(message, "ts")
    thread_ts = text_of(message, "thread_ts") or text_of(container, "thread_ts") or message_ts
    pressed = actions[0] if isinstance(actions, list) and actions else None
    if not user or not channel or not isinstance(pressed, Mapping):
        return Ignored("a click without person, channel or button")
    action, subject = _known(pressed)
    ts = text_of(pressed, "action_ts")
    if action is None or subject is None or not ts:
        reason = "unknown button" if action is None else "unreadable value" if subject is None else "no time"
        return Expired(reason, ChannelId(channel), SlackTs(thread_ts) if thread_ts else None, UserId(user))
    team = _team(payload, me)
    return Arrival(
        source=Source.BUTTON,
        marker=_MARKERS[action],
        who=_who(payload, me),
        rights=NO_RIGHTS,
        author=UserId(user),
        team=team,
        channel=ChannelId(channel),
        thread_ts=SlackTs(thread_ts or ts),
        ts=SlackTs(ts),
        dedupe_key=f"act:{team}:{message_ts}:{action.value}:{user}:{ts}",
        level=None if action is Action.STOP_HELPER else LEVEL_OF.get(_MARKERS[action]),
        target_ts=SlackTs(message_ts) if message_ts else None,
        turn_id=TurnId(subject) if action in _TURN_BUTTONS else None,
        only_in_session=True,
        action=action,
        subject=subject,
        approval_id=subject if action in _DECISIONS else None,
        extra={key: found for key in ("response_url", "trigger_id") if (found := text_of(payload, key))},
    )


def _known(pressed: Payload) -> tuple[Action | None, str | None]:
    """The button and the id that it carries, each None if we can't read it."""
    name, value = text_of(pressed, "action_id"), text_of(pressed, "value")
    action = Action(name) if name in set(Action) else None
    return action, value if _OPAQUE_ID.fullmatch(value) else None


def normalise_command(
    payload: Payload, me: Me, received_ts: SlackTs, listening: Listening | None = None
) -> Arrival | Ignored:
    """The stop that a slash command is: `/pilot stop`, `/pilot-cancel`. `received_ts`: our clock, as a Slack ts."""
    payload = clean_everywhere(payload)
    user, channel = text_of(payload, "user_id"), text_of(payload, "channel_id")
    if not user or not channel:
        return Ignored("a command without person or channel")
    stop = _commanded(text_of(payload, "command"), text_of(payload, "text"), me, listening or Listening())
    if stop is None:
        return Ignored("slash commands can only stop or cancel")
    team = text_of(payload, "team_id") or text_of(payload, "enterprise_id") or me.team_id
    return Arrival(
        source=Source.MENTION,
        marker=Marker.CANCEL if stop.level is Level.TASK else Marker.STOP_STEP,
        who=Who.MEMBER,
        rights=NO_RIGHTS,
        author=UserId(user),
        team=team,
        channel=ChannelId(channel),
        thread_ts=received_ts,
        ts=received_ts,
        dedupe_key=f"cmd:{team}:{text_of(payload, 'trigger_id') or received_ts}",
        mentioned=True,
        bare=True,
        level=stop.level,
        place=Place.OUTSIDE,
    )


def _commanded(command: str, text: str, me: Me, listening: Listening) -> StopWord | None:
    """The stop in the command's text, else the one that its own name ends with."""
    if text.strip():
        return recognise(text, bot_user=me.user_id, words=listening.words)
    last = re.split(r"[-_/]", command)[-1]
    return recognise(last, bot_user=me.user_id, words=listening.words)


def _team(payload: Payload, me: Me) -> str:
    """Our workspace. In a shared channel the payload may name the other company's, so what we know comes first."""
    team = text_of(_map(payload, "team"), "id")
    if me.team_id and payload.get("is_enterprise_install") not in (True, "true"):
        return me.team_id
    places = [team, text_of(_map(payload, "user"), "team_id"), text_of(_map(payload, "enterprise"), "id")]
    return next((place for place in places if place), me.team_id)


def _who(payload: Payload, me: Me) -> Who:
    enterprise = text_of(_map(payload, "enterprise"), "id")
    if me.enterprise_id and enterprise == me.enterprise_id:
        return Who.MEMBER
    home = {"team_id": me.team_id or text_of(_map(payload, "team"), "id")}
    return seen_who(home, {"user_team": text_of(_map(payload, "user"), "team_id")}, me)


def _map(value: Payload, key: str) -> Payload:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}
