"""A person's side: what somebody can write, change and delete in Slack's client, and how it would refuse them.

Every method does the thing, lets the events go out, and returns; nothing here waits for the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bot.playground.slack import uploads
from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Channel, Json, Person
from bot.playground.slack.refusal import Impossible
from bot.playground.slack.state import Message
from bot.playground.slack.typed import as_sent

LONGEST_TEXT = 12_000


class Hands:
    """The hands of everybody in the workspace."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.state = desk.state

    # -- who and where ------------------------------------------------------------------------------------------

    def channel(self, wanted: str) -> Channel:
        channel = self.desk.workspace.channel(wanted)
        if channel is None:
            raise Impossible(f"There is no channel {wanted!r} in this workspace.")
        return channel

    def person(self, wanted: str) -> Person:
        person = self.desk.workspace.person(wanted)
        if person is None:
            raise Impossible(f"There is nobody called {wanted!r} in this workspace.")
        return person

    def _message(self, channel: str, ts: str) -> Message:
        message = self.state.lookup(channel, ts)
        if message is None or message.gone:
            raise Impossible(f"There is no message {ts} in {channel}.")
        return message

    def _visible(self, channel: str, ts: str, user: str) -> Message:
        message = self._message(channel, ts)
        if message.ephemeral_user not in (None, user):
            raise Impossible(f"Only {message.ephemeral_user} can see the message {ts}.")
        return message

    # -- writing ------------------------------------------------------------------------------------------------

    async def say(
        self,
        channel: str,
        user: str,
        text: str,
        thread_ts: str | None = None,
        *,
        ts: str | None = None,
        broadcast: bool = False,
        files: Sequence[Json] = (),
        quiet: bool = False,
        **extra: Any,
    ) -> str:
        """Write a message and return its ts. `quiet`: it is there, but nobody is told (an older message).

        A file is `{"name", "content": bytes, "mimetype"?, "id"?}`. `extra` goes into the message: `attachments`,
        `blocks`, `subtype`.
        """
        place, person = self.channel(channel), self.person(user)
        if place.is_archived:
            raise Impossible(f"#{place.name} is archived: nobody can write there.")
        if not place.has(user):
            raise Impossible(f"{person.name} is not in #{place.name}.")
        if not quiet and text.startswith("/"):
            raise Impossible("Slack takes a text that begins with / for a command: put a space in front of it.")
        if not text.strip() and not files and not extra:
            raise Impossible("There is nothing to send: the text is empty.")
        if len(text) > LONGEST_TEXT:
            raise Impossible(f"The text is too long: {len(text)} characters, people can send {LONGEST_TEXT}.")
        body = self._written(person, as_sent(text, self.desk.workspace), ts or self.state.next_ts())
        if thread_ts is not None and thread_ts != body["ts"]:
            body["thread_ts"] = self._root(place.id, thread_ts)
        if files:
            kept = [uploads.keep(self.desk, f["name"], f["content"], f.get("mimetype"), f.get("id")) for f in files]
            body["files"] = [uploads.shown(self.desk, file, user) for file in kept]
            body["subtype"] = "file_share"
        if broadcast:
            body["subtype"] = "thread_broadcast"
        message = self.state.add(place.id, body | extra, user)
        if not quiet:
            self.desk.publish(message)
        return message.ts

    def _written(self, person: Person, text: str, ts: str) -> Json:
        home = self.desk.workspace.team_id
        team = person.team_id or home
        body: Json = {"type": "message", "user": person.id, "text": text, "ts": ts, "team": team}
        if person.bot_id is not None:
            return body | {"bot_id": person.bot_id, "app_id": f"A{person.bot_id[1:]}"}
        if team != home:
            body |= {"user_team": team, "source_team": team}
        return body | {"client_msg_id": f"cm-{ts}"}

    def _root(self, channel: str, thread_ts: str) -> str:
        message = self._message(channel, thread_ts)
        if message.ephemeral_user is not None:
            raise Impossible("Nobody can reply to a message that only one person sees.")
        return message.thread_ts or message.ts

    async def post_alert(
        self,
        channel: str,
        title: str = "[FIRING:1] CheckoutErrorRate critical",
        *,
        text: str = "",
        attachments: Sequence[Json] | None = None,
        user: str = "U0MONITOR",
        quiet: bool = False,
        **extra: Any,
    ) -> str:
        """What a monitoring bot posts: no text, everything in an attachment. `quiet` as in `say`."""
        place, person = self.channel(channel), self.person(user)
        fields = [
            {"title": "service", "value": "checkout", "short": True},
            {"title": "severity", "value": "critical", "short": True},
        ]
        alert = {
            "id": 1,
            "color": "#a30200",
            "fallback": title,
            "title": title,
            "text": "5xx answers of checkout are above 5 % since 14:05.",
            "fields": fields,
        }
        body: Json = {
            "type": "message",
            "subtype": "bot_message",
            "bot_id": person.bot_id,
            "username": person.real_name,
            "text": text,
            "ts": self.state.next_ts(),
            "attachments": list(attachments) if attachments is not None else [alert],
        }
        message = self.state.add(place.id, body | extra, user)
        if not quiet:
            self.desk.publish(message)
        return message.ts

    async def edit(self, channel: str, ts: str, user: str, text: str) -> None:
        """Change one's own message; mentioning us in the new text brings a second mention."""
        message = self._visible(channel, ts, user)
        if message.body.get("user") != user:
            raise Impossible("People can only edit what they wrote themselves.")
        before = self.state.view(message)
        sent = as_sent(text, self.desk.workspace)
        edited = {"user": user, "ts": self.state.next_ts()}
        self.state.change(message, message.body | {"text": sent, "edited": edited}, user)
        self.desk.republish(message, before, again=True)

    async def unfurl(self, channel: str, ts: str, title: str = "A dashboard") -> None:
        """What Slack does two seconds after a link was posted: the same text again, with a preview."""
        message = self._message(channel, ts)
        before = self.state.view(message)
        preview = {"id": 1, "title": title, "fallback": title, "from_url": "https://example.test/d/1"}
        self.state.change(message, message.body | {"attachments": [preview]}, "USLACKBOT", "unfurled")
        self.desk.republish(message, before)

    async def delete(self, channel: str, ts: str, user: str) -> None:
        """Delete one's own message, or (members only) one of a bot, such as our card."""
        message, person = self._visible(channel, ts, user), self.person(user)
        if message.ephemeral_user is not None:
            self.state.remove(message, user)
            return
        foreign = message.body.get("user") != user
        if foreign and (not message.body.get("bot_id") or person.is_restricted or person.is_stranger):
            raise Impossible("People can only delete what they wrote themselves, and members what a bot wrote.")
        self.desk.withdraw(message, user)

    async def react(self, channel: str, ts: str, user: str, name: str) -> None:
        message = self._reactable(channel, ts, user)
        self.desk.react(message, name.strip(":"), user, lambda _: Impossible(f"You reacted with :{name}: already."))

    async def unreact(self, channel: str, ts: str, user: str, name: str) -> None:
        message = self._reactable(channel, ts, user)
        self.desk.unreact(message, name.strip(":"), user, lambda _: Impossible(f"You didn't react with :{name}:."))

    def _reactable(self, channel: str, ts: str, user: str) -> Message:
        self.person(user)
        message = self._visible(channel, ts, user)
        if message.ephemeral_user is not None or message.is_tombstone:
            raise Impossible("Nobody can react to this message.")
        return message
