"""chat.*: posting, editing, deleting, ephemeral messages and permalinks."""

from __future__ import annotations

from typing import Any

from bot.playground.slack import block_rules, limits
from bot.playground.slack.arguments import flag
from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Channel, Json
from bot.playground.slack.refusal import Refused
from bot.playground.slack.state import Message

CANT_SHOW = "This content can't be displayed."


def conversation(desk: Desk, wanted: Any) -> Channel:
    """Where to post: a channel that the bot is in, or the direct message with a person."""
    if str(wanted).startswith(("U", "W")):
        if desk.workspace.person(str(wanted)) is None:
            raise Refused("channel_not_found")
        return desk.workspace.direct_message(str(wanted))
    return desk.state.joined(wanted)


def check_content(args: Json, most_text: int | None) -> None:
    """Text, blocks, attachments and metadata within limits. `most_text` None: Slack cuts the text instead."""
    text, blocks, attachments = args.get("text"), args.get("blocks"), args.get("attachments")
    markdown = args.get("markdown_text")
    if markdown is not None and (text or blocks):
        raise Refused("markdown_text_conflict")
    if not text and not blocks and not attachments and not markdown:
        raise Refused("no_text")
    if markdown is not None and len(str(markdown)) > block_rules.MARKDOWN:
        raise Refused("msg_too_long")
    if most_text is not None and len(str(text or "")) > most_text:
        raise Refused("msg_too_long")
    if blocks:
        limits.check_blocks(blocks)
    if attachments:
        limits.check_attachments(attachments)
    if args.get("metadata"):
        limits.check_metadata(args["metadata"])


def content(desk: Desk, args: Json) -> Json:
    """The part of a message body that the caller decides."""
    blocks = args.get("blocks") or []
    if args.get("markdown_text"):
        blocks = [{"type": "markdown", "text": args["markdown_text"]}]
    body: Json = {"text": str(args.get("text") or args.get("markdown_text") or (CANT_SHOW if blocks else ""))}
    if blocks:
        body["blocks"] = [{"block_id": desk.state.next_id("b"), **block} for block in blocks]
    if args.get("attachments"):
        body["attachments"] = [{"id": index, **item} for index, item in enumerate(args["attachments"], 1)]
    if args.get("metadata"):
        body["metadata"] = args["metadata"]
    return body


def authored(desk: Desk, args: Json, ts: str) -> Json:
    """A message body of ours, at `ts`."""
    workspace = desk.workspace
    return {
        "type": "message",
        "user": workspace.bot_user_id,
        "bot_id": workspace.bot_id,
        "app_id": workspace.app_id,
        "team": workspace.team_id,
        "ts": ts,
        **content(desk, args),
    }


def thread_of(desk: Desk, channel: Channel, args: Json) -> str | None:
    """The thread that a post really lands in: none if the root is gone, and nobody says so."""
    wanted = args.get("thread_ts")
    root = desk.state.find(channel.id, wanted)
    if root is None or root.is_tombstone:
        return None
    return str(wanted)


def check_posting(channel: Channel, threaded: bool) -> None:
    if channel.is_archived:
        raise Refused("is_archived")
    rule = channel.posting
    if rule == "thread_only_channel" and threaded:
        return
    if rule in ("non_threadable_channel", "thread_locked") and not threaded:
        return
    if rule is not None:
        raise Refused(f"restricted_action_{rule}")


async def post_message(desk: Desk, args: Json) -> Json:
    channel = conversation(desk, args["channel"])
    check_posting(channel, bool(args.get("thread_ts")))
    check_content(args, None)
    warning: Json = {}
    if len(str(args.get("text") or "")) > limits.POST_TEXT:
        args = args | {"text": args["text"][: limits.POST_TEXT]}
        warning = {"warning": "message_truncated", "response_metadata": {"warnings": ["message_truncated"]}}
    body = authored(desk, args, desk.state.next_ts())
    thread_ts = thread_of(desk, channel, args)
    if thread_ts is not None:
        body["thread_ts"] = thread_ts
        if flag(args, "reply_broadcast"):
            body["subtype"] = "thread_broadcast"
    message = desk.state.add(channel.id, body, desk.workspace.bot_user_id)
    desk.publish(message)
    return {"ok": True, "channel": channel.id, "ts": message.ts, "message": desk.state.view(message, True), **warning}


def own_message(desk: Desk, channel: Channel, ts: Any, not_ours: str) -> Message:
    message = desk.state.find(channel.id, str(ts))
    if message is None or message.is_tombstone:
        raise Refused("message_not_found")
    if not desk.is_ours(message.body):
        raise Refused(not_ours)
    return message


def edited_body(desk: Desk, message: Message, args: Json) -> Json:
    """The body after `chat.update`: text alone takes the blocks away and shows as edited, blocks don't."""
    kept = {key: value for key, value in message.body.items() if key not in ("blocks", "edited", "text")}
    body = kept | content(desk, args)
    if args.get("attachments") == []:
        body.pop("attachments", None)
    if not args.get("blocks") and not args.get("markdown_text"):
        body["edited"] = {"user": desk.workspace.bot_user_id, "ts": desk.state.next_ts()}
    return body


async def update(desk: Desk, args: Json) -> Json:
    channel = desk.state.joined(args["channel"])
    if channel.is_archived:
        raise Refused("is_inactive")
    message = own_message(desk, channel, args["ts"], "cant_update_message")
    if message.stream is not None and message.stream.over is None:
        raise Refused("streaming_state_conflict")
    if args.get("attachments") != [] or args.get("text") or args.get("blocks"):
        check_content(args, limits.EDIT_TEXT)
    before = desk.state.view(message)
    desk.state.change(message, edited_body(desk, message, args), desk.workspace.bot_user_id)
    desk.republish(message, before)
    shown = desk.state.view(message, True)
    return {"ok": True, "channel": channel.id, "ts": message.ts, "text": shown["text"], "message": shown}


async def delete(desk: Desk, args: Json) -> Json:
    channel = desk.state.joined(args["channel"])
    if channel.is_archived:
        raise Refused("is_archived")
    message = own_message(desk, channel, args["ts"], "cant_delete_message")
    desk.withdraw(message, desk.workspace.bot_user_id)
    return {"ok": True, "channel": channel.id, "ts": message.ts}


async def post_ephemeral(desk: Desk, args: Json) -> Json:
    channel = desk.state.joined(args["channel"])
    if channel.is_archived:
        raise Refused("is_archived")
    user = str(args["user"])
    if desk.workspace.person(user) is None or not channel.has(user):
        raise Refused("user_not_in_channel")
    check_content(args, limits.POST_TEXT)
    body = authored(desk, args, desk.state.next_ts())
    thread_ts = thread_of(desk, channel, args)
    if thread_ts is not None:
        body["thread_ts"] = thread_ts
    message = desk.state.add(channel.id, body, desk.workspace.bot_user_id, ephemeral_user=user)
    return {"ok": True, "message_ts": message.ts}


async def get_permalink(desk: Desk, args: Json) -> Json:
    channel = desk.state.reachable(args["channel"])
    message = desk.state.find(channel.id, str(args["message_ts"]))
    if message is None or message.is_tombstone:
        raise Refused("message_not_found")
    link = f"{desk.url}/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.is_reply:
        link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
    return {"ok": True, "channel": channel.id, "permalink": link}


METHODS = {
    "chat.postMessage": post_message,
    "chat.update": update,
    "chat.delete": delete,
    "chat.postEphemeral": post_ephemeral,
    "chat.getPermalink": get_permalink,
}
