"""views.*: modals and the home tab."""

from __future__ import annotations

from bot.playground.slack.desk import Desk
from bot.playground.slack.limits import check_view
from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Refused
from bot.playground.slack.state import View

STACK = 3


def shown(desk: Desk, view: View) -> Json:
    """The `view` object of answers and payloads."""
    workspace = desk.workspace
    return {
        "id": view.id,
        "team_id": workspace.team_id,
        "app_id": workspace.app_id,
        "bot_id": workspace.bot_id,
        "hash": view.hash,
        "root_view_id": view.root_id,
        "private_metadata": "",
        "callback_id": "",
        "state": {"values": {}},
        **view.body,
    }


def new_hash(desk: Desk) -> str:
    return f"{int(desk.clock())}.{desk.rng.getrandbits(32):08x}"


def _answer(desk: Desk, view: View) -> Json:
    desk.state.changed("", view.user)
    return {"ok": True, "view": shown(desk, view)}


def stack_of(desk: Desk, user: str) -> list[View]:
    """The open modals of a person, the one on top last."""
    return [view for view in desk.state.views.values() if view.user == user and not view.closed]


def place(desk: Desk, user: str, body: Json, root: str | None = None) -> View:
    """Put a new modal in front of a person."""
    name = desk.state.next_id("V")
    view = View(name, user, body, new_hash(desk), root or name)
    desk.state.views[name] = view
    return view


def _presser(desk: Desk, args: Json) -> str:
    trigger = args.get("trigger_id") or args.get("interactivity_pointer")
    desk.use_trigger(trigger)
    return desk.trigger_users[str(trigger)]


async def open_view(desk: Desk, args: Json) -> Json:
    body = check_view(args["view"])
    return _answer(desk, place(desk, _presser(desk, args), body))


async def push_view(desk: Desk, args: Json) -> Json:
    body = check_view(args["view"])
    user = _presser(desk, args)
    stack = stack_of(desk, user)
    if not stack:
        raise Refused("not_found")
    if len(stack) >= STACK:
        raise Refused("push_limit_reached")
    return _answer(desk, place(desk, user, body, stack[0].root_id))


async def update_view(desk: Desk, args: Json) -> Json:
    body = check_view(args["view"])
    views = {view.body.get("external_id"): view for view in desk.state.views.values()}
    found = desk.state.views.get(str(args.get("view_id"))) or views.get(args.get("external_id") or "?")
    if found is None or found.closed:
        raise Refused("not_found")
    replace(desk, found, body, args.get("hash"))
    return _answer(desk, found)


def replace(desk: Desk, view: View, body: Json, expected_hash: str | None = None) -> None:
    """Show another body in the same modal."""
    if expected_hash and expected_hash != view.hash:
        raise Refused("hash_conflict")
    view.body, view.hash = body, new_hash(desk)


async def publish_home(desk: Desk, args: Json) -> Json:
    body = check_view(args["view"])
    user = str(args["user_id"])
    if desk.workspace.person(user) is None:
        raise Refused("invalid_arguments", "user_id is unknown")
    home = desk.state.homes.get(user)
    if home is None:
        name = desk.state.next_id("V")
        home = desk.state.homes[user] = View(name, user, body, new_hash(desk), name)
    else:
        replace(desk, home, body, args.get("hash"))
    return _answer(desk, home)


METHODS = {
    "views.open": open_view,
    "views.push": push_view,
    "views.update": update_view,
    "views.publish": publish_home,
}
