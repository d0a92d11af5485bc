"""What admins and time do to a workspace: archive, invite, remove, share, uninstall."""

from __future__ import annotations

from bot.playground.slack.clicks import Clicks
from bot.playground.slack.people import Json


class Admin(Clicks):
    """The hands of somebody who may change the workspace."""

    async def archive(self, channel: str, user: str) -> None:
        place = self.channel(channel)
        place.is_archived = True
        ts = self.state.next_ts()
        kind = "group_archive" if place.is_private else "channel_archive"
        self.desk.emit({"type": kind, "channel": channel, "user": user, "event_ts": ts}, place)

    async def unarchive(self, channel: str, user: str) -> None:
        place = self.channel(channel)
        place.is_archived = False
        kind = "group_unarchive" if place.is_private else "channel_unarchive"
        event = {"type": kind, "channel": channel, "user": user, "event_ts": self.state.next_ts()}
        self.desk.emit(event, place)

    async def invite(self, channel: str, user: str, inviter: str) -> None:
        """Add somebody, the bot too, to a channel."""
        place = self.channel(channel)
        if place.members is not None:
            place.members.add(user)
        self.desk.emit(self._membership("member_joined_channel", channel, user) | {"inviter": inviter}, place)

    async def kick(self, channel: str, user: str) -> None:
        """Remove somebody, the bot too, from a channel."""
        place = self.channel(channel)
        if place.members is None:
            place.members = {person.id for person in self.desk.workspace.everyone()}
        event = self._membership("member_left_channel", channel, user)
        if user == self.desk.workspace.bot_user_id:
            ours = "group_left" if place.is_private else "channel_left"
            self.desk.emit({"type": ours, "channel": channel, "event_ts": event["event_ts"]}, place)
        self.desk.emit(event, place)
        place.members.discard(user)

    def _membership(self, kind: str, channel: str, user: str) -> Json:
        place = self.channel(channel)
        return {
            "type": kind,
            "user": user,
            "channel": channel,
            "channel_type": "G" if place.is_private else "C",
            "team": self.desk.workspace.team_id,
            "event_ts": self.state.next_ts(),
        }

    async def share(self, channel: str) -> None:
        """Make it a Slack Connect channel."""
        place = self.channel(channel)
        place.is_ext_shared = True
        event = {"type": "channel_shared", "channel": channel, "event_ts": self.state.next_ts()}
        self.desk.emit(event, place)

    async def uninstall(self) -> None:
        """Remove the app: it is told twice, and its token is dead."""
        ts = self.state.next_ts()
        workspace = self.desk.workspace
        self.desk.emit({"type": "app_uninstalled", "event_ts": ts})
        self.desk.emit(
            {"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [workspace.bot_user_id]}, "event_ts": ts}
        )
        workspace.token_error = "account_inactive"
