"""One event of Slack -> one `Arrival` for the mailbox, or why it is none of ours.

Pure: nothing is asked, nothing is sent, and every field of an event may be missing.

    message, app_mention      one dedupe key for both: (team, channel, ts). Whether we are mentioned is read from the
                              message itself, so that both say the same and either may come first, or alone
    message_changed           an edit, if its text or files changed; a stop by edit has the edit's own ts
    message_deleted, tombstone    a deletion
    reaction_added            a stop, or a "yes" on something of ours
    agent_session_stopped     the native Stop
    (block_actions and slash commands: `bot.slack.normalise_interaction`)

A message in a thread or a reaction counts only in a session (`only_in_session`): the mailbox looks. Retries are not
looked at here: a retry may be the first delivery that reaches us, so only the dedupe key decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.slack.escape import clean_everywhere
from bot.slack.identity import SLACKS_OWN, Me, app_of, author_of_event, is_bot, is_own, seen_who, team_of, text_of
from bot.slack.normalise_edits import changed, deleted
from bot.slack.reading import (
    LEVEL_OF,
    Ignored,
    Listening,
    OwnPostGone,
    Payload,
    Reading,
    Where,
    file_refs,
    read,
    where_is,
)
from bot.slack.rendering import message_text, plain
from core.messages import (
    NO_RIGHTS,
    Arrival,
    ChannelId,
    Marker,
    Place,
    SlackTs,
    Source,
    UserId,
    Who,
)

__all__ = ["Ignored", "Listening", "Me", "OwnPostGone", "normalise_event"]

WORDLESS = "(mentioned without any words)"
PERSONS_SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "me_message", "bot_message"})
_MARKER_OF = {level: marker for marker, level in LEVEL_OF.items()}


def normalise_event(payload: Payload, me: Me, listening: Listening | None = None) -> Arrival | Ignored | OwnPostGone:
    """The arrival that an `event_callback` payload is. Every field of it may be missing."""
    listening = listening or Listening()
    event = clean_everywhere(payload.get("event"))
    if not isinstance(event, Mapping):
        return Ignored("no event in it")
    match text_of(event, "type"):
        case "message" | "app_mention":
            return _message_event(payload, event, me, listening)
        case "reaction_added":
            return _reaction(payload, event, me, listening)
        case "agent_session_stopped":
            return _native_stop(payload, event, me, listening)
        case other:
            return Ignored(f"event {other or 'without type'}")


def _message_event(payload: Payload, event: Payload, me: Me, listening: Listening) -> Arrival | Ignored | OwnPostGone:
    channel, ts = text_of(event, "channel"), text_of(event, "ts")
    if not channel or not ts:
        return Ignored("message without channel or ts")
    match text_of(event, "subtype"):
        case "message_changed":
            return changed(payload, event, me, listening)
        case "message_deleted":
            previous = event.get("previous_message")
            return deleted(payload, event, previous if isinstance(previous, Mapping) else {}, me)
        case subtype if subtype not in PERSONS_SUBTYPES:
            return Ignored(f"system message {subtype}")
        case _:
            return _message(payload, event, me, listening)


# -- new messages ----------------------------------------------------------------------------------------------------


def _message(payload: Payload, event: Payload, me: Me, listening: Listening) -> Arrival | Ignored:
    if is_own(event, me):
        return Ignored("our own post")
    if text_of(event, "user") in SLACKS_OWN:
        return Ignored("Slack's own notice")
    if event.get("edited") and text_of(event, "type") == "app_mention":
        return Ignored("an edit, which comes as message_changed")
    author = author_of_event(event)
    if not author:
        return Ignored("nobody wrote it")
    where = where_is(payload, event, me)
    reading = read(event, where, me, listening)
    alert = is_bot(event) and bool({author, text_of(event, "bot_id"), app_of(event)} & listening.alert_bots)
    if alert and where.is_root and not where.direct:
        return _arrival(Source.ALERT, payload, event, me, where, Reading(Marker.NONE, message_text(event)))
    if where.direct:
        source = Source.DIRECT_MESSAGE
    elif reading.mentioned:
        source = Source.MENTION
    elif not where.is_root or (reading.stop and not is_bot(event)):
        source = Source.REPLY
    else:
        return Ignored("neither mentions us nor is in a thread")
    if not reading.text and not reading.is_control:
        if source is Source.REPLY:
            return Ignored("nothing in it")
        reading = replace(reading, text=WORDLESS)
    return _arrival(source, payload, event, me, where, reading)


def _arrival(source: Source, payload: Payload, event: Payload, me: Me, where: Where, reading: Reading) -> Arrival:
    outside = reading.stop is not None and where.is_root
    return Arrival(
        source=source,
        marker=reading.marker,
        who=seen_who(payload, event, me),
        rights=NO_RIGHTS,
        author=author_of_event(event),
        team=where.team,
        channel=ChannelId(where.channel),
        thread_ts=SlackTs(where.thread_ts),
        ts=SlackTs(where.ts),
        dedupe_key=f"msg:{where.team}:{where.channel}:{where.ts}",
        text=reading.text,
        mentioned=reading.mentioned,
        bare=reading.stop is not None and reading.stop.bare,
        rest=plain(reading.stop.rest) if reading.stop is not None else "",
        level=LEVEL_OF.get(reading.marker),
        files=file_refs(event.get("files")),
        place=Place.OUTSIDE if outside else Place.THREAD,
        only_in_session=source is Source.REPLY,
        assent=reading.assent,
        approval_id=reading.approval_id,
        reason=plain(reading.reason),
    )


# -- reactions and the native Stop -----------------------------------------------------------------------------------


def _reaction(payload: Payload, event: Payload, me: Me, listening: Listening) -> Arrival | Ignored:
    item = event.get("item")
    user, name = text_of(event, "user"), text_of(event, "reaction").partition("::")[0]
    if not isinstance(item, Mapping) or text_of(item, "type") != "message" or not text_of(item, "ts"):
        return Ignored("a reaction to something else")
    if not user or user == me.user_id or user in SLACKS_OWN:
        return Ignored("our own reaction")
    stops = name in listening.stop_reactions
    assents = name in listening.assent_reactions and text_of(event, "item_user") == me.user_id
    ts = text_of(event, "event_ts")
    if not ts or not (stops or assents):
        return Ignored("a reaction that means nothing to us")
    return _control(
        Source.REACTION,
        Marker.STOP_STEP if stops else Marker.NONE,
        team_of(payload, me),
        (text_of(item, "channel"), text_of(item, "ts"), ts),
        user,
        key=f"react:{user}:{name}",
        assent=assents and not stops,
        place=Place.TARGET,
    )


def _native_stop(payload: Payload, event: Payload, me: Me, listening: Listening) -> Arrival | Ignored:
    channel, thread, ts = text_of(event, "channel"), text_of(event, "thread_ts"), text_of(event, "event_ts")
    user = text_of(event, "user")
    if not channel or not ts or not user:
        return Ignored("a native stop without channel, time or user")
    return _control(
        Source.NATIVE_STOP,
        _MARKER_OF[listening.native_stop],
        team_of(payload, me),
        (channel, thread or ts, ts),
        user,
        key=f"native:{user}",
        place=Place.THREAD if thread else Place.OUTSIDE,
    )


def _control(
    source: Source,
    marker: Marker,
    team: str,
    at: tuple[str, str, str],
    user: str,
    *,
    key: str,
    place: Place,
    assent: bool = False,
) -> Arrival:
    channel, target, ts = at
    return Arrival(
        source=source,
        marker=marker,
        who=Who.MEMBER,
        rights=NO_RIGHTS,
        author=UserId(user),
        team=team,
        channel=ChannelId(channel),
        thread_ts=SlackTs(target),
        ts=SlackTs(ts),
        dedupe_key=f"{key}:{team}:{channel}:{target}:{ts}",
        level=LEVEL_OF.get(marker),
        target_ts=SlackTs(target) if place is Place.TARGET else None,
        place=place,
        only_in_session=place is Place.TARGET,
        assent=assent,
    )
