"""Files: the three-step upload, files.info, and how a file looks in a message."""

from __future__ import annotations

import mimetypes
from functools import partial

from bot.playground.slack import limits
from bot.playground.slack.chat import authored, conversation, thread_of
from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Channel, Json
from bot.playground.slack.refusal import Refused
from bot.playground.slack.state import SharedFile

LARGEST = 1024**3
LONGEST_ALT = 1_000
PNG = b"\x89PNG\r\n\x1a\n"


def shown(desk: Desk, file: SharedFile, user: str) -> Json:
    """The `file` object of messages and answers."""
    where = f"{desk.url}/files/{file.id}"
    described = {"alt_txt": file.alt} if file.alt else {}
    return {
        "id": file.id,
        "name": file.name,
        "title": file.title or file.name,
        "mimetype": file.mimetype,
        "filetype": file.name.rpartition(".")[2],
        "size": len(file.content),
        "user": user,
        "mode": "hosted",
        "is_external": False,
        "url_private": where,
        "url_private_download": f"{where}/download",
        "permalink": where,
        **described,
        **_measured(file.content),
    }


def _measured(content: bytes) -> Json:
    """Slack says of a picture how large it is; this one reads the size of a PNG."""
    if not content.startswith(PNG) or len(content) < 24:
        return {}
    return {
        "original_w": int.from_bytes(content[16:20], "big"),
        "original_h": int.from_bytes(content[20:24], "big"),
    }


def keep(
    desk: Desk, name: str, content: bytes, mimetype: str | None = None, file_id: str | None = None
) -> SharedFile:
    """Put a file on the files host."""
    kind = mimetype or mimetypes.guess_type(name)[0] or "application/octet-stream"
    file = SharedFile(file_id or desk.state.next_id("F"), name, kind, content, complete=True)
    desk.state.files[file.id] = file
    return file


async def get_upload_url(desk: Desk, args: Json) -> Json:
    if not str(args["length"]).isdigit():
        raise Refused("invalid_arguments", "length must be a number")
    if int(args["length"]) > LARGEST:
        raise Refused("file_upload_size_restricted")
    if int(args["length"]) == 0:
        raise Refused("missing_argument")
    if len(str(args.get("alt_txt") or "")) > LONGEST_ALT:
        raise Refused("alt_txt_too_large")
    file = keep(desk, str(args["filename"]), b"")
    file.complete, file.alt = False, str(args.get("alt_txt") or "")
    return {"ok": True, "upload_url": f"{desk.url}/upload/{file.id}", "file_id": file.id}


def _completed(desk: Desk, args: Json) -> list[SharedFile]:
    wanted = args["files"]
    if not isinstance(wanted, list) or not all(isinstance(item, dict) for item in wanted):
        raise Refused("invalid_arguments", "files must be a list of objects")
    found: list[SharedFile] = []
    for item in wanted:
        file = desk.state.files.get(str(item.get("id")))
        if file is None or not file.content:
            raise Refused("file_not_found")
        file.title = str(item.get("title") or file.name)
        found.append(file)
    return found


async def complete_upload(desk: Desk, args: Json) -> Json:
    """The files are shared behind the answer, which does not say where: `held_shares` lets them wait."""
    files = _completed(desk, args)
    where = args.get("channel_id") or args.get("channels")
    channel = conversation(desk, where) if where else None
    if channel is not None and channel.is_archived:
        raise Refused("posting_to_channel_denied")
    if args.get("blocks"):
        limits.check_blocks(args["blocks"])
    for file in files:
        file.complete = True
        if desk.state.keep_file is not None:
            desk.state.keep_file(file)
    if channel is not None:
        share = partial(_share, desk, channel, files, args)
        if desk.state.held_shares is None:
            share()
        else:
            desk.state.held_shares.append(share)
    return {"ok": True, "files": [shown(desk, file, desk.workspace.bot_user_id) for file in files]}


def _share(desk: Desk, channel: Channel, files: list[SharedFile], args: Json) -> None:
    bot = desk.workspace.bot_user_id
    text = {"text": args.get("initial_comment") or "", "blocks": args.get("blocks")}
    body = authored(desk, text, desk.state.next_ts())
    body |= {"files": [shown(desk, file, bot) for file in files], "upload": True}
    thread_ts = thread_of(desk, channel, args)
    if thread_ts is not None:
        body["thread_ts"] = thread_ts
    desk.publish(desk.state.add(channel.id, body, bot))


async def file_info(desk: Desk, args: Json) -> Json:
    file = desk.state.files.get(str(args["file"]))
    if file is None or not file.complete:
        raise Refused("file_not_found")
    return {"ok": True, "file": shown(desk, file, desk.workspace.bot_user_id)}


METHODS = {
    "files.getUploadURLExternal": get_upload_url,
    "files.completeUploadExternal": complete_upload,
    "files.info": file_info,
}
