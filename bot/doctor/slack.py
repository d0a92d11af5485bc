"""Is Slack as we need it: the tokens and what they may, the way by which events come, and the clock.

The clock of this machine is compared with the `Date` that Slack answers with: in HTTP mode a request whose signature
is more than 300 s off is refused, and then nothing arrives without a word in Slack.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import yaml
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.doctor.finding import Finding, failing, ok, warning
from bot.settings import SlackPart
from bot.slack.connection import SKEW_WARNING_S, cannot_begin
from bot.slack.signature import WINDOW_S
from bot.slack.verdict import read_failure
from core.card_words import span

MANIFEST = Path(__file__).parents[2] / "manifest.yml"
REINSTALL = "add them under OAuth & Permissions of the app (or paste manifest.yml there) and install the app again"
NEW_APP_TOKEN = "make an app-level token (xapp-) with connections:write under Basic Information of the app"
OTHER_TOKENS = {
    "xapp-": "an app-level token, which belongs into SLACK_APP_TOKEN",
    "xoxp-": "a token of a person",
    "xoxe": "a token for rotation",
}
_SIGNING_SECRET = re.compile(r"[0-9a-f]{32}")
_APP_OF_TOKEN = re.compile(r"xapp-\d+-(A[A-Z0-9]+)-")


@dataclass(frozen=True, slots=True)
class Scopes:
    """What the manifest asks for; without the optional ones a feature is missing, nothing else."""

    required: frozenset[str]
    optional: frozenset[str]

    @classmethod
    def of(cls, manifest: Path) -> Scopes | None:
        """The scopes of a manifest; None where there is none."""
        if not manifest.is_file():
            return None
        scopes = yaml.safe_load(manifest.read_text(encoding="utf-8"))["oauth_config"]["scopes"]
        return cls(frozenset(scopes["bot"]), frozenset(scopes.get("bot_optional", ())))


@dataclass(frozen=True, slots=True)
class Told:
    """What `auth.test` answered: `who` we are (None when the token is refused), and the headers by small names."""

    who: Mapping[str, Any] | None
    headers: Mapping[str, str] = field(default_factory=dict)
    off_s: float | None = None


class SlackDoctor:
    """Asks one workspace. `clock`: seconds since the epoch by this machine."""

    def __init__(
        self,
        client: AsyncWebClient,
        slack: SlackPart,
        scopes: Scopes | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._slack = slack
        self._scopes = scopes
        self._clock = clock

    async def look(self) -> list[Finding]:
        """Everything about Slack but the people and channels of the configuration."""
        told, token = await self._bot_token()
        return [
            token,
            *(self._granted(told) if told.who is not None else ()),
            *(await self._app_token(told) if self._slack.mode == "socket" else self._signing_secret()),
            *self._time(told),
        ]

    async def _bot_token(self) -> tuple[Told, Finding]:
        token = self._slack.bot_token.get_secret_value()
        if not token:
            says = "SLACK_BOT_TOKEN is not set: copy the Bot User OAuth Token (xoxb-) of the app's Install App page."
            return Told(None), failing("bot token", says)
        other = next((what for begins, what in OTHER_TOKENS.items() if token.startswith(begins)), None)
        if other is not None:
            says = f"SLACK_BOT_TOKEN holds {other}: copy the Bot User OAuth Token, which starts with xoxb-."
            return Told(None), failing("bot token", says)
        began = self._clock()
        try:
            response = await self._client.auth_test()
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            read_failure(error)
            hint = "SLACK_BOT_TOKEN is not valid ({}); copy the token that starts with xoxb- again."
            said = error.response.headers if isinstance(error, SlackApiError) else {}
            return self._told(None, said, began), failing(
                "bot token", str(cannot_begin(error, self._client, self._slack, hint))
            )
        who = response.data if isinstance(response.data, dict) else {}
        told = self._told(who, response.headers, began)
        if not who.get("bot_id"):
            says = "SLACK_BOT_TOKEN is a person's, not the bot's: copy the Bot User OAuth Token (xoxb-)."
            return told, failing("bot token", says)
        place = who.get("team") or who.get("team_id") or "an organisation"
        return told, ok("bot token", f"Slack knows us as {who.get('user') or who.get('user_id')} in {place}.")

    def _told(self, who: Mapping[str, Any] | None, headers: Any, began: float) -> Told:
        ended = self._clock()
        small = {str(name).lower(): str(value) for name, value in dict(headers or {}).items()}
        try:
            date = parsedate_to_datetime(small.get("date", "")).timestamp()
        except (TypeError, ValueError):
            return Told(who, small)
        # Slack's Date is cut to the second, and was written at some moment between our two looks at the clock.
        least_s, most_s = began - date - 1.0, ended - date
        return Told(who, small, max(least_s, min(most_s, 0.0)))

    def _granted(self, told: Told) -> Sequence[Finding]:
        header = told.headers.get("x-oauth-scopes")
        if self._scopes is None:
            return [warning("scopes", "There is no manifest.yml beside the program: the scopes can't be compared.")]
        if header is None:
            return [warning("scopes", "Slack did not say which scopes the token has: a proxy may drop its headers.")]
        granted = {scope.strip() for scope in header.split(",") if scope.strip()}
        missing = sorted(self._scopes.required - granted)
        lacking = sorted(self._scopes.optional - granted)
        if missing:
            return [failing("scopes", f"The bot token lacks {', '.join(missing)}: {REINSTALL}.")]
        if lacking:
            says = f"The bot token lacks {', '.join(lacking)}, so files or reactions don't work: {REINSTALL}."
            return [warning("scopes", says)]
        more = sorted(granted - self._scopes.required - self._scopes.optional)
        unused = f" Not needed: {', '.join(more)}." if more else ""
        return [ok("scopes", f"The bot token has every scope of manifest.yml.{unused}")]

    async def _app_token(self, told: Told) -> Sequence[Finding]:
        token = self._slack.app_token.get_secret_value()
        if not token:
            return [failing("app token", f"SLACK_APP_TOKEN is not set, and Socket Mode needs it: {NEW_APP_TOKEN}.")]
        if token.startswith("xox"):
            return [failing("app token", f"SLACK_APP_TOKEN holds a token of another kind: {NEW_APP_TOKEN}.")]
        try:
            await self._client.apps_connections_open(app_token=token)
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            if read_failure(error).error == "missing_scope":
                return [failing("app token", f"SLACK_APP_TOKEN lacks the scope connections:write: {NEW_APP_TOKEN}.")]
            hint = "SLACK_APP_TOKEN is not valid ({}); it must start with xapp- and have connections:write."
            return [failing("app token", str(cannot_begin(error, self._client, self._slack, hint)))]
        of = _APP_OF_TOKEN.match(token)
        app = await self._app(told) if of is not None else None
        if of is not None and app is not None and of[1] != app:
            says = f"SLACK_APP_TOKEN is of the app {of[1]}, SLACK_BOT_TOKEN of {app}: take both tokens from one app."
            return [failing("app token", says)]
        return [ok("app token", "Socket Mode: Slack opens a connection for the app token (connections:write).")]

    async def _app(self, told: Told) -> str | None:
        """The id of the bot token's app, where Slack says it."""
        if told.who is None or not told.who.get("bot_id"):
            return None
        try:
            response = await self._client.bots_info(bot=str(told.who["bot_id"]))
        except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
            read_failure(error)
            return None
        bot = response.data.get("bot") if isinstance(response.data, dict) else None
        return str(bot["app_id"]) if isinstance(bot, Mapping) and bot.get("app_id") else None

    def _signing_secret(self) -> Sequence[Finding]:
        secret = self._slack.signing_secret.get_secret_value().strip()
        where = "copy the Signing Secret from Basic Information of the app"
        if not secret:
            return [failing("signing secret", f"SLACK_SIGNING_SECRET is not set, and HTTP mode needs it: {where}.")]
        if not _SIGNING_SECRET.fullmatch(secret):
            says = f"SLACK_SIGNING_SECRET does not look like one (32 characters of 0-9 and a-f): {where}."
            return [warning("signing secret", says)]
        says = "HTTP mode: there is a signing secret; whether it is this app's shows with Slack's first request."
        return [ok("signing secret", says)]

    def _time(self, told: Told) -> Sequence[Finding]:
        if told.off_s is None:
            return []
        off_s = abs(told.off_s)
        where = "ahead of" if told.off_s > 0 else "behind"
        says = f"This machine's clock is {span(off_s)} {where} Slack's"
        if off_s > WINDOW_S:
            so = "signed requests more than 5 min off are refused"
            return [failing("clock", f"{says}, and {so}: let NTP set it (`timedatectl set-ntp true`).")]
        if off_s > SKEW_WARNING_S:
            return [warning("clock", f"{says}; beyond 5 min signed requests are refused. Check NTP.")]
        return [ok("clock", "This machine's clock agrees with Slack's.")]
