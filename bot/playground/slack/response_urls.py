"""`response_url`: answering a click for 30 minutes, 5 times, also where the bot may not post."""

from __future__ import annotations

from aiohttp import web

from bot.playground.slack.arguments import flag, read_arguments
from bot.playground.slack.chat import authored, check_content
from bot.playground.slack.desk import Desk, Ticket
from bot.playground.slack.limits import POST_TEXT
from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Refused


async def serve(desk: Desk, request: web.Request) -> web.Response:
    """One use of a response_url."""
    try:
        args = await read_arguments(request)
        ticket = desk.use_ticket(request.match_info["ticket"])
        _answer(desk, ticket, args)
    except Refused as refusal:
        status = 404 if refusal.error in ("expired_url", "used_url") else 400
        return web.json_response({"ok": False, "error": refusal.error, **refusal.extra}, status=status)
    return web.json_response({"ok": True})


def _answer(desk: Desk, ticket: Ticket, args: Json) -> None:
    original = desk.state.lookup(ticket.channel, ticket.message_ts)
    bot = desk.workspace.bot_user_id
    if flag(args, "delete_original"):
        if original is not None and not original.gone:
            if original.ephemeral_user is None:
                desk.withdraw(original, bot)
            else:
                desk.state.remove(original, bot)
        return
    check_content(args, POST_TEXT)
    body = authored(desk, args, desk.state.next_ts())
    if flag(args, "replace_original") and original is not None and not original.gone:
        before = desk.state.view(original)
        kept = {key: original.body[key] for key in ("ts", "thread_ts", "reactions") if key in original.body}
        desk.state.change(original, body | kept, bot)
        if original.ephemeral_user is None:
            desk.republish(original, before)
        return
    thread_ts = args.get("thread_ts") or ticket.thread_ts
    if thread_ts:
        body["thread_ts"] = thread_ts
    if args.get("response_type") == "in_channel":
        desk.publish(desk.state.add(ticket.channel, body, bot))
    else:
        desk.state.add(ticket.channel, body, bot, ephemeral_user=ticket.user)
