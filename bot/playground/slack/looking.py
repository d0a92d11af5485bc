"""What the app can look up: itself, conversations, people, reactions."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from bot.playground.slack.arguments import flag, number
from bot.playground.slack.chat import conversation
from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Channel, Json
from bot.playground.slack.refusal import Refused
from bot.playground.slack.state import Message
from core.messages import ts_order


async def auth_test(desk: Desk, args: Json) -> Json:
    workspace = desk.workspace
    return {
        "ok": True,
        "url": f"{desk.url}/",
        "team": workspace.team_name,
        "user": workspace.bot_name,
        "team_id": workspace.team_id,
        "user_id": workspace.bot_user_id,
        "bot_id": workspace.bot_id,
        "enterprise_id": workspace.enterprise_id,
        "is_enterprise_install": False,
    }


async def team_info(desk: Desk, args: Json) -> Json:
    workspace = desk.workspace
    team = {"id": workspace.team_id, "name": workspace.team_name, "domain": workspace.domain}
    return {"ok": True, "team": team}


async def bots_info(desk: Desk, args: Json) -> Json:
    person = next((p for p in desk.workspace.everyone() if p.bot_id and p.bot_id == args.get("bot")), None)
    if person is None:
        raise Refused("bot_not_found")
    shown = {"id": person.bot_id, "name": person.name, "user_id": person.id, "deleted": False}
    ours = {"app_id": desk.workspace.app_id} if person.bot_id == desk.workspace.bot_id else {}
    return {"ok": True, "bot": shown | ours}


async def users_info(desk: Desk, args: Json) -> Json:
    person = desk.workspace.person(str(args["user"]))
    if person is None:
        raise Refused("user_not_found")
    return {"ok": True, "user": person.as_user(desk.workspace.team_id)}


async def usergroup_users(desk: Desk, args: Json) -> Json:
    users = desk.workspace.usergroups.get(str(args["usergroup"]))
    if users is None:
        raise Refused("no_such_subteam")
    return {"ok": True, "users": users}


# -- pages ------------------------------------------------------------------------------------------------------


def _page(items: Sequence[Any], args: Json, default: int, most: int) -> tuple[Sequence[Any], str]:
    """One page and the cursor of the next one."""
    start = 0
    if args.get("cursor"):
        try:
            start = int(urlsafe_b64decode(str(args["cursor"])).decode().removeprefix("next:"))
        except ValueError:
            raise Refused("invalid_cursor") from None
    limit = number(args, "limit", default, most)
    more = start + limit < len(items)
    cursor = urlsafe_b64encode(f"next:{start + limit}".encode()).decode() if more else ""
    return items[start : start + limit], cursor


def _bound(args: Json, name: str) -> tuple[int, int] | None:
    value = args.get(name)
    if value in (None, "", "now"):
        return None
    try:
        return ts_order(str(value))
    except ValueError:
        raise Refused(f"invalid_ts_{name}") from None


def _between(messages: Sequence[Message], args: Json) -> list[Message]:
    oldest, latest = _bound(args, "oldest"), _bound(args, "latest")
    inclusive = flag(args, "inclusive")

    def kept(message: Message) -> bool:
        ts = ts_order(message.ts)
        if inclusive and ts in (oldest, latest):
            return True
        return (oldest is None or ts > oldest) and (latest is None or ts < latest)

    return [message for message in messages if kept(message)]


def _messages(desk: Desk, page: Sequence[Message], cursor: str, args: Json) -> Json:
    metadata = flag(args, "include_all_metadata")
    answer: Json = {
        "ok": True,
        "messages": [desk.state.view(message, metadata) for message in page],
        "has_more": bool(cursor),
    }
    for shown in answer["messages"]:
        if shown.get("thread_ts") not in (None, shown["ts"]):
            root = desk.state.find(page[0].channel, shown["thread_ts"])
            shown["parent_user_id"] = root.body.get("user") if root else None
    return answer | ({"response_metadata": {"next_cursor": cursor}} if cursor else {})


async def history(desk: Desk, args: Json) -> Json:
    """Newest first, roots and broadcast replies only."""
    channel = desk.state.joined(args["channel"])
    visible = [m for m in desk.state.everything(channel.id) if m.in_channel_view and m.ephemeral_user is None]
    page, cursor = _page(_between(visible[::-1], args), args, 100, 999)
    return _messages(desk, page, cursor, args)


async def replies(desk: Desk, args: Json) -> Json:
    """Oldest first, the root on the first page only. A reply's ts brings that reply alone."""
    channel = desk.state.joined(args["channel"])
    root = desk.state.find(channel.id, str(args["ts"]))
    if root is None:
        raise Refused("thread_not_found")
    if root.is_reply:
        return _messages(desk, [root], "", args)
    page, cursor = _page([root, *_between(desk.state.replies(root), args)], args, 1000, 1000)
    return _messages(desk, page, cursor, args)


# -- conversations ----------------------------------------------------------------------------------------------


async def info(desk: Desk, args: Json) -> Json:
    channel = desk.state.reachable(args["channel"])
    shown = channel.as_conversation(desk.workspace.bot_user_id)
    if flag(args, "include_num_members"):
        shown["num_members"] = len(_members(desk, channel))
    return {"ok": True, "channel": shown}


def _members(desk: Desk, channel: Channel) -> list[str]:
    return [person.id for person in desk.workspace.everyone() if channel.has(person.id)]


async def members(desk: Desk, args: Json) -> Json:
    channel = desk.state.reachable(args["channel"])
    page, cursor = _page(_members(desk, channel), args, 100, 1000)
    return {"ok": True, "members": page, "response_metadata": {"next_cursor": cursor}}


async def open_conversation(desk: Desk, args: Json) -> Json:
    if args.get("channel"):
        channel = desk.state.reachable(args["channel"])
    elif not args.get("users"):
        raise Refused("users_list_not_supplied")
    else:
        users = args["users"].split(",") if isinstance(args["users"], str) else args["users"]
        if len(users) != 1:
            raise Refused("too_many_users")
        if desk.workspace.person(users[0]) is None:
            raise Refused("user_not_found")
        channel = conversation(desk, users[0])
    shown = channel.as_conversation(desk.workspace.bot_user_id) if flag(args, "return_im") else {"id": channel.id}
    return {"ok": True, "channel": shown}


async def users_conversations(desk: Desk, args: Json) -> Json:
    user = str(args.get("user") or desk.workspace.bot_user_id)
    hide_archived = flag(args, "exclude_archived")
    found = [c for c in desk.workspace.channels if c.has(user) and not (hide_archived and c.is_archived)]
    page, cursor = _page(found, args, 100, 999)
    shown = [channel.as_conversation(desk.workspace.bot_user_id) for channel in page]
    return {"ok": True, "channels": shown, "response_metadata": {"next_cursor": cursor}}


# -- reactions --------------------------------------------------------------------------------------------------


def _reactable(desk: Desk, args: Json) -> Message:
    if not args.get("channel") or not args.get("timestamp"):
        raise Refused("no_item_specified")
    channel = desk.state.joined(args["channel"])
    message = desk.state.find(channel.id, str(args["timestamp"]))
    if message is None or message.is_tombstone:
        raise Refused("message_not_found")
    return message


def _emoji(args: Json) -> str:
    name = str(args["name"]).strip(":")
    if not name or not all(char.isalnum() or char in "_-+'" for char in name.replace("::", "")):
        raise Refused("invalid_name")
    return name


async def add_reaction(desk: Desk, args: Json) -> Json:
    message = _reactable(desk, args)
    if desk.channel_of(message).is_archived:
        raise Refused("is_archived")
    desk.react(message, _emoji(args), desk.workspace.bot_user_id, Refused)
    return {"ok": True}


async def remove_reaction(desk: Desk, args: Json) -> Json:
    desk.unreact(_reactable(desk, args), _emoji(args), desk.workspace.bot_user_id, Refused)
    return {"ok": True}


async def get_reactions(desk: Desk, args: Json) -> Json:
    message = _reactable(desk, args)
    return {"ok": True, "type": "message", "channel": message.channel, "message": desk.state.view(message)}


METHODS = {
    "auth.test": auth_test,
    "team.info": team_info,
    "bots.info": bots_info,
    "users.info": users_info,
    "usergroups.users.list": usergroup_users,
    "conversations.history": history,
    "conversations.replies": replies,
    "conversations.info": info,
    "conversations.members": members,
    "conversations.open": open_conversation,
    "users.conversations": users_conversations,
    "reactions.add": add_reaction,
    "reactions.remove": remove_reaction,
    "reactions.get": get_reactions,
}
