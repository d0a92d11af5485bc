"""What a Slack message says, and where: the values that every normalised event is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.slack.identity import Me, team_of, text_of
from bot.slack.rendering import message_text, plain
from core.marker import is_assent, marker_of, parse_decision
from core.messages import ChannelId, FileRef, Level, Marker, SlackTs
from core.stop import StopWord, without_mention
from core.stop_words import DEFAULT, StopWords

Payload = Mapping[str, Any]

LEVEL_OF = {Marker.STOP_STEP: Level.STEP, Marker.CANCEL: Level.TASK}


@dataclass(frozen=True, slots=True)
class Listening:
    """What the configuration says about listening. `alert_bots`: user, bot or app ids that may start a turn."""

    words: StopWords = DEFAULT
    stop_reactions: frozenset[str] = frozenset({"octagonal_sign"})
    assent_reactions: frozenset[str] = frozenset(
        {"+1", "thumbsup", "ok", "ok_hand", "white_check_mark", "heavy_check_mark"}
    )
    native_stop: Level = Level.TASK
    alert_bots: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Not ours: acknowledged and not stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class OwnPostGone:
    """Somebody deleted a post of ours, as a card: it can't be edited any more."""

    team: str
    channel: ChannelId
    ts: SlackTs


@dataclass(frozen=True, slots=True)
class Where:
    team: str
    channel: str
    ts: str
    thread_ts: str
    direct: bool

    @property
    def is_root(self) -> bool:
        return self.thread_ts == self.ts


def where_is(payload: Payload, message: Payload, me: Me, channel: str = "", channel_type: str = "") -> Where:
    """Where a message is; a message that is in no thread is the root of its own."""
    channel = channel or text_of(message, "channel")
    direct = (channel_type or text_of(message, "channel_type")) == "im" or channel.startswith("D")
    ts = text_of(message, "ts")
    return Where(team_of(payload, me), channel, ts, text_of(message, "thread_ts") or ts, direct)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says. `text` is what may become conversation."""

    marker: Marker
    text: str
    stop: StopWord | None = None
    mentioned: bool = False
    assent: bool = False
    approval_id: str | None = None
    reason: str = ""

    @property
    def is_control(self) -> bool:
        """Whether it is a stop or a decision, of which no words need to be left."""
        return self.stop is not None or self.marker in (Marker.APPROVE, Marker.DENY)


def read(message: Payload, where: Where, me: Me, listening: Listening) -> Reading:
    raw = text_of(message, "text")
    mentioned = f"<@{me.user_id}>" in raw or f"<@{me.user_id}|" in raw or _mentions(message.get("blocks"), me.user_id)
    mentioned = mentioned or text_of(message, "type") == "app_mention"
    marker, cleaned, stop = marker_of(
        raw or message_text({"blocks": message.get("blocks")}),
        bot_user=me.user_id,
        mentioned=mentioned or where.direct,
        words=listening.words,
    )
    own = without_mention(raw, me.user_id)
    ruling = parse_decision(own) if marker in (Marker.APPROVE, Marker.DENY) else None
    if ruling is not None:
        return Reading(marker, "", None, mentioned, is_assent(own), ruling.approval_id, ruling.reason)
    text = plain(stop.rest) if stop is not None else message_text(message, cleaned if raw else None)
    return Reading(marker, text.strip(), stop, mentioned, is_assent(own))


def _mentions(blocks: object, user_id: str) -> bool:
    """Whether a rich text mentions us, which the `text` of a message built from blocks need not show."""
    pending: list[object] = [blocks]
    for _ in range(2_000):
        if not pending:
            return False
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, Mapping):
            if item.get("type") == "user" and item.get("user_id") == user_id:
                return True
            pending.append(item.get("elements"))
    return False


def file_refs(files: object) -> Sequence[FileRef]:
    """The files of a message, as far as they can be fetched."""
    found = [file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else []
    return tuple(
        FileRef(
            text_of(file, "id"),
            text_of(file, "name") or text_of(file, "title") or text_of(file, "id"),
            text_of(file, "mimetype"),
            file["size"] if isinstance(file.get("size"), int) else 0,
            text_of(file, "url_private_download") or text_of(file, "url_private"),
        )
        for file in found
        if text_of(file, "id")
    )
