"""agents.sessions.*, assistant.threads.setStatus and the streaming family of chat.*.

There is one status slot per thread. Slack's Stop button does not change it: the app has to leave `processing`.
"""

from __future__ import annotations

from typing import Any

from bot.playground.slack import block_rules, limits
from bot.playground.slack.chat import authored, check_posting, own_message, thread_of
from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Refused
from bot.playground.slack.state import Message, Stream

STATUSES = ("active", "processing", "suspended", "closed")
STREAM_LIFE_S = 300.0
NO_STOP_EVENT = "missing_agent_session_stopped_event_subscription"
SEALED = "message_not_in_streaming_state"


def _session(desk: Desk, args: Json) -> tuple[str, str]:
    if not desk.workspace.native_stop:
        raise Refused("feature_disabled")
    channel = desk.state.reachable(args["channel_id"])
    if not channel.has(desk.workspace.bot_user_id):
        raise Refused("not_authorized")
    if not args.get("thread_ts"):
        raise Refused("thread_ts_required")
    return channel.id, str(args["thread_ts"])


async def set_status(desk: Desk, args: Json) -> Json:
    slot = _session(desk, args)
    status = args["status"]
    if status not in STATUSES:
        raise Refused("invalid_status")
    initiator = args.get("initiator_user_id")
    if slot not in desk.state.statuses and initiator and desk.workspace.person(str(initiator)) is None:
        raise Refused("user_not_found")
    desk.state.statuses.setdefault(slot, []).append(status)
    desk.state.changed(*slot)
    answer: Json = {"ok": True}
    if status == "processing" and not desk.workspace.stop_subscribed:
        answer |= {"warning": NO_STOP_EVENT, "response_metadata": {"warnings": [NO_STOP_EVENT]}}
    return answer


async def rename(desk: Desk, args: Json) -> Json:
    slot = _session(desk, args)
    if slot not in desk.state.statuses:
        raise Refused("session_not_found")
    if not 1 <= len(str(args["title"])) <= 200:
        raise Refused("invalid_name")
    return {"ok": True}


async def set_thread_status(desk: Desk, args: Json) -> Json:
    channel = desk.state.reachable(args["channel_id"])
    if desk.state.find(channel.id, str(args["thread_ts"])) is None:
        raise Refused("invalid_thread_ts")
    loading = args.get("loading_messages") or []
    if len(loading) > 10 or not all(1 <= len(text) <= 50 for text in loading):
        raise Refused("invalid_arguments", "loading_messages: 1 to 10 of 1 to 50 characters")
    desk.state.changed(channel.id, str(args["thread_ts"]))
    return {"ok": True}


# -- streams ----------------------------------------------------------------------------------------------------


def _chunk_text(args: Json) -> str:
    chunks = args.get("chunks") or []
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        raise Refused("invalid_chunks")
    told = "".join(str(chunk.get("text", "")) for chunk in chunks if chunk.get("type") == "markdown_text")
    text = str(args.get("markdown_text") or "") + told
    if len(text) > block_rules.MARKDOWN:
        raise Refused("msg_too_long")
    return text


def _grow(desk: Desk, message: Message, text: str) -> None:
    whole = message.body["text"] + text
    if len(whole) > limits.POST_TEXT:
        raise Refused("msg_too_long")
    body = message.body | {"text": whole}
    if whole:
        body["blocks"] = [{"type": "markdown", "block_id": desk.state.next_id("b"), "text": whole}]
    desk.state.change(message, body, desk.workspace.bot_user_id, "streamed")


def _running(desk: Desk, args: Json) -> Message:
    channel = desk.state.joined(args["channel"])
    message = own_message(desk, channel, args["ts"], "message_not_owned_by_app")
    stream = message.stream
    if stream is None:
        raise Refused(SEALED)
    if stream.over is None and desk.clock() - stream.started_at > STREAM_LIFE_S:
        stream.over = SEALED
    if stream.over is not None:
        raise Refused(stream.over)
    return message


async def start_stream(desk: Desk, args: Json) -> Json:
    channel = desk.state.joined(args["channel"])
    check_posting(channel, bool(args.get("thread_ts")))
    if not channel.is_im:
        for name in ("recipient_team_id", "recipient_user_id"):
            if not args.get(name):
                raise Refused(f"missing_{name}")
    text = _chunk_text(args)
    body = authored(desk, {}, desk.state.next_ts()) | {"streaming_state": "in_progress"}
    thread_ts = thread_of(desk, channel, args)
    if thread_ts is not None:
        body["thread_ts"] = thread_ts
    message = desk.state.add(channel.id, body, desk.workspace.bot_user_id)
    message.stream = Stream(desk.clock())
    if text:
        _grow(desk, message, text)
    desk.publish(message)
    return {"ok": True, "channel": channel.id, "ts": message.ts}


async def append_stream(desk: Desk, args: Json) -> Json:
    message = _running(desk, args)
    text = _chunk_text(args)
    if not text and not args.get("chunks"):
        raise Refused("no_text")
    _grow(desk, message, text)
    return {"ok": True, "channel": message.channel, "ts": message.ts}


async def stop_stream(desk: Desk, args: Json) -> Json:
    message = _running(desk, args)
    blocks = args.get("blocks")
    if blocks:
        limits.check_blocks(blocks, too_many="msg_blocks_too_many")
    if args.get("metadata"):
        limits.check_metadata(args["metadata"])
    before = desk.state.view(message)
    _grow(desk, message, _chunk_text(args))
    body: dict[str, Any] = message.body | {"streaming_state": "completed"}
    body["blocks"] = [*body.get("blocks", []), *(blocks or [])]
    if args.get("metadata"):
        body["metadata"] = args["metadata"]
    desk.state.change(message, body, desk.workspace.bot_user_id, "streamed")
    message.stream = Stream(0.0, SEALED)
    status = args.get("session_status", "active")
    slot = (message.channel, str(message.thread_ts or message.ts))
    if desk.workspace.native_stop and slot in desk.state.statuses:
        desk.state.statuses[slot].append(str(status))
    desk.republish(message, before)
    return {"ok": True, "channel": message.channel, "ts": message.ts, "message": desk.state.view(message, True)}


METHODS = {
    "agents.sessions.setStatus": set_status,
    "agents.sessions.rename": rename,
    "assistant.threads.setStatus": set_thread_status,
    "chat.startStream": start_stream,
    "chat.appendStream": append_stream,
    "chat.stopStream": stop_stream,
}
