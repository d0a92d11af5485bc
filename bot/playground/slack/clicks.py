"""A person's side, continued: buttons, the native Stop, slash commands, modals and the home tab.

Clicks, submissions and commands wait for the app's acknowledgement, as the client does, and tell what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bot.playground.slack import payloads, views
from bot.playground.slack.chat import authored
from bot.playground.slack.hands import Hands
from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Impossible
from bot.playground.slack.state import Message, View
from bot.playground.slack.wire import Delivery


def buttons(value: Any) -> Iterator[Json]:
    """Every element with an action_id, however deep."""
    if isinstance(value, dict):
        if "action_id" in value:
            yield value
        for item in value.values():
            yield from buttons(item)
    elif isinstance(value, list):
        for item in value:
            yield from buttons(item)


class Clicks(Hands):
    """Everything that a person can do."""

    # -- pressing -----------------------------------------------------------------------------------------------

    async def press(
        self, channel: str, message_ts: str, action_id: str, user: str, value: str | None = None
    ) -> Delivery:
        """Press a button. One that an older version of the message had counts too: screens are late."""
        place, person = self.channel(channel), self.person(user)
        message = self.state.lookup(channel, message_ts)
        if message is None or message.ephemeral_user not in (None, user):
            raise Impossible(f"{person.name} sees no message {message_ts} in #{place.name}.")
        shown, button = self._button(message, action_id)
        action = {
            "type": button["type"],
            "action_id": action_id,
            "block_id": button["block_id"],
            "text": button.get("text"),
            "value": value if value is not None else button.get("value", ""),
            "action_ts": self.state.next_ts(),
        }
        payload = payloads.block_actions(
            self.desk.workspace,
            person,
            place,
            shown,
            action,
            trigger_id=self.desk.issue_trigger(user),
            response_url=self.desk.issue_response_url(channel, user, shown),
            ephemeral=message.ephemeral_user is not None,
        )
        return await self.desk.wire.interaction(payload)

    def _button(self, message: Message, action_id: str) -> tuple[Json, Json]:
        for shown in (*(version["message"] for version in reversed(message.versions)), message.body):
            parts = [*shown.get("blocks", []), *shown.get("attachments", [])]
            for part in parts:
                found = next((item for item in buttons(part) if item["action_id"] == action_id), None)
                if found is not None:
                    return shown, {"block_id": part.get("block_id", "attachment"), **found}
        raise Impossible(f"There is no button {action_id!r} on the message {message.ts}.")

    async def native_stop(self, channel: str, thread_ts: str, user: str) -> None:
        """Press the Stop of the working indicator. The status stays what it is: the app has to change it."""
        place, person = self.channel(channel), self.person(user)
        if not self.desk.workspace.native_stop:
            raise Impossible("This workspace has no agent sessions, so there is no Stop in the thread.")
        if not place.has(user):
            raise Impossible(f"{person.name} is not in #{place.name}.")
        stopped: list[str] = []
        for message in self.state.streams(channel, thread_ts):
            if message.stream is not None:
                message.stream.over = "stopped_by_user"
                stopped.append(message.ts)
        event = {
            "type": "agent_session_stopped",
            "channel": channel,
            "thread_ts": thread_ts,
            "user": user,
            "streaming_message_ts": stopped,
            "event_ts": self.state.next_ts(),
        }
        if self.desk.workspace.stop_subscribed:
            self.desk.emit(event, place)
        self.state.changed(channel, thread_ts)

    async def command(self, channel: str, user: str, command: str, text: str = "") -> Delivery:
        """Use one of the app's slash commands; there is no way to do that in a thread."""
        place, person = self.channel(channel), self.person(user)
        if command not in self.desk.workspace.commands:
            raise Impossible(f"{command} is not a valid command.")
        links = {
            "trigger_id": self.desk.issue_trigger(user),
            "response_url": self.desk.issue_response_url(channel, user),
        }
        payload = payloads.slash_command(self.desk.workspace, person, place, command, text, **links)
        delivery = await self.desk.wire.interaction(payload, "slash_commands")
        answer = {"text": delivery.response} if isinstance(delivery.response, str) else delivery.response or {}
        if answer.get("text") or answer.get("blocks"):
            body = authored(self.desk, answer, self.state.next_ts())
            self.state.add(channel, body, self.desk.workspace.bot_user_id, ephemeral_user=user)
        return delivery

    # -- modals and the home tab --------------------------------------------------------------------------------

    async def open_home(self, user: str, tab: str = "home") -> None:
        person = self.person(user)
        channel = self.desk.workspace.direct_message(person.id)
        event: Json = {"type": "app_home_opened", "user": user, "channel": channel.id, "tab": tab}
        home = self.state.homes.get(user)
        if home is not None and tab == "home":
            event["view"] = views.shown(self.desk, home)
        self.desk.emit(event | {"event_ts": self.state.next_ts()})

    async def submit(self, view_id: str, user: str, values: Json | None = None) -> Delivery:
        """Submit a modal with `values` (block_id -> action_id -> state) and do what the app answers."""
        person = self.person(user)
        view = self.state.views.get(view_id)
        if view is None or view.closed or view.user != user:
            raise Impossible(f"{person.name} has no open modal {view_id}.")
        body = views.shown(self.desk, view) | {"state": {"values": values or {}}}
        payload = payloads.view_submission(self.desk.workspace, person, body, self.desk.issue_trigger(user))
        delivery = await self.desk.wire.interaction(payload)
        if delivery.acknowledged:
            self._answered(view, delivery.response)
        return delivery

    def _answered(self, view: View, response: Any) -> None:
        action = response.get("response_action") if isinstance(response, dict) else None
        if action == "update":
            views.replace(self.desk, view, response["view"])
        elif action == "push":
            views.place(self.desk, view.user, response["view"], view.root_id)
        elif action == "clear":
            for other in views.stack_of(self.desk, view.user):
                other.closed = True
        elif action is None:
            view.closed = True
        self.state.changed("", view.user)
