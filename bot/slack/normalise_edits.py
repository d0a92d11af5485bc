"""Edits and deletions of messages -> arrivals about the message that they mean (`target_ts`).

An edit counts when its text or files changed: previews of links and metadata arrive as edits, too. A text that was
edited into a stop is a stop at the time of the edit; one that was a stop before has been heard.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.slack.identity import SLACKS_OWN, Me, author_of_event, is_bot, is_own, seen_who, team_of, text_of
from bot.slack.reading import (
    LEVEL_OF,
    Ignored,
    Listening,
    OwnPostGone,
    Payload,
    file_refs,
    read,
    where_is,
)
from bot.slack.rendering import plain
from core.messages import NO_RIGHTS, Arrival, ChannelId, Level, Marker, SlackTs, Source, UserId
from core.stop import recognise


def changed(payload: Payload, event: Payload, me: Me, listening: Listening) -> Arrival | Ignored | OwnPostGone:
    message, previous = event.get("message"), event.get("previous_message")
    if not isinstance(message, Mapping):
        return Ignored("an edit without its message")
    before: Payload = previous if isinstance(previous, Mapping) else {}
    if text_of(message, "subtype") == "tombstone":
        return deleted(payload, {**event, "deleted_ts": text_of(message, "ts")}, before, me)
    if is_own(message, me) or is_bot(message) or text_of(message, "user") in SLACKS_OWN:
        return Ignored("an edit by a program")
    if before and _content(message) == _content(before):
        return Ignored("text and files are unchanged")
    author = text_of(message, "user")
    if not author or not text_of(message, "ts"):
        return Ignored("an edit of nobody's message")
    return _edit(payload, event, message, before, me, listening)


def _edit(
    payload: Payload, event: Payload, message: Payload, before: Payload, me: Me, listening: Listening
) -> Arrival | Ignored:
    where = where_is(payload, message, me, text_of(event, "channel"), text_of(event, "channel_type"))
    reading = read(message, where, me, listening)
    if reading.stop is not None:
        earlier = recognise(text_of(before, "text"), bot_user=me.user_id, words=listening.words)
        if earlier is not None and (earlier.level is Level.TASK or reading.stop.level is Level.STEP):
            return Ignored("it was a stop before the edit, and has been heard")
    if not reading.text and not reading.is_control:
        return Ignored("nothing is left in it")
    edited = message.get("edited")
    editor = text_of(edited, "user") if isinstance(edited, Mapping) else ""
    edited_ts = text_of(edited, "ts") if isinstance(edited, Mapping) else ""
    own_ts = text_of(event, "event_ts") or text_of(event, "ts")
    return Arrival(
        source=Source.EDIT,
        marker=reading.marker,
        who=seen_who(payload, message, me),
        rights=NO_RIGHTS,
        author=UserId(editor or text_of(message, "user")),
        team=where.team,
        channel=ChannelId(where.channel),
        thread_ts=SlackTs(where.thread_ts),
        ts=SlackTs(own_ts),
        dedupe_key=f"edit:{where.team}:{where.channel}:{where.ts}:{edited_ts or own_ts}",
        text=reading.text,
        mentioned=reading.mentioned,
        bare=reading.stop is not None and reading.stop.bare,
        rest=plain(reading.stop.rest) if reading.stop is not None else "",
        level=LEVEL_OF.get(reading.marker),
        target_ts=SlackTs(where.ts),
        files=file_refs(message.get("files")),
        only_in_session=True,
        by_author=not editor or editor == text_of(message, "user"),
        assent=reading.assent,
    )


def _content(message: Payload) -> tuple[str, tuple[str, ...]]:
    return text_of(message, "text"), tuple(file.id for file in file_refs(message.get("files")))


def deleted(payload: Payload, event: Payload, previous: Payload, me: Me) -> Arrival | Ignored | OwnPostGone:
    ts, channel = text_of(event, "deleted_ts"), text_of(event, "channel")
    if not ts:
        return Ignored("a deletion of nothing")
    team = team_of(payload, me)
    if is_own(previous, me):
        return OwnPostGone(team, ChannelId(channel), SlackTs(ts))
    return Arrival(
        source=Source.DELETE,
        marker=Marker.NONE,
        who=seen_who(payload, previous, me),
        rights=NO_RIGHTS,
        author=author_of_event(previous),
        team=team,
        channel=ChannelId(channel),
        thread_ts=SlackTs(text_of(previous, "thread_ts") or text_of(event, "thread_ts") or ts),
        ts=SlackTs(text_of(event, "event_ts") or text_of(event, "ts")),
        dedupe_key=f"del:{team}:{channel}:{ts}",
        target_ts=SlackTs(ts),
        only_in_session=True,
    )
