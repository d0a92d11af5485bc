"""What the method reference says: tiers, scopes, argument names and error names of every method we serve.

`reference.json` is a trimmed copy of the method descriptions of slack-ruby/slack-api-ref (MIT). The two tables
below add what real workspaces answer and the reference does not list. A handler that answers with a name which
neither knows is a bug of the local Slack, and `confirm` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from bot.playground.slack.refusal import Refused

ANYWHERE = frozenset(
    [
        "not_authed",
        "invalid_auth",
        "token_revoked",
        "account_inactive",
        "not_allowed_token_type",
        "missing_scope",
        "unknown_method",
        "ratelimited",
        "rate_limited",
        "internal_error",
        "invalid_arg_name",
        "invalid_arguments",
    ]
)

UNLISTED_SCOPES: Mapping[str, tuple[str, ...]] = {"apps.connections.open": ("connections:write",)}
"""The reference lists scopes of bots and people, none of app tokens."""

UNLISTED_ERRORS: Mapping[str, frozenset[str]] = {
    "chat.postMessage": frozenset({"msg_too_long", "invalid_attachments", "user_not_found"}),
    "chat.postEphemeral": frozenset(
        {"msg_blocks_too_long", "invalid_metadata_format", "invalid_metadata_schema", "metadata_too_large"}
    ),
    "chat.update": frozenset({"msg_blocks_too_long", "not_in_channel"}),
    "chat.startStream": frozenset({"msg_too_long"}),
    "chat.appendStream": frozenset({"msg_too_long"}),
    "chat.stopStream": frozenset({"msg_too_long", "stopped_by_user", "invalid_blocks_format"}),
    "files.completeUploadExternal": frozenset({"msg_blocks_too_long", "invalid_blocks_format"}),
    "chat.delete": frozenset({"not_in_channel", "is_archived"}),
    "conversations.replies": frozenset({"not_in_channel"}),
    "conversations.info": frozenset({"not_in_channel"}),
    "reactions.add": frozenset({"not_in_channel"}),
    "reactions.remove": frozenset({"not_in_channel"}),
    "reactions.get": frozenset({"not_in_channel"}),
    "views.open": frozenset({"invalid_arguments"}),
}
UNLISTED_ARGS: Mapping[str, frozenset[str]] = {
    "chat.stopStream": frozenset({"session_status"}),
    "files.completeUploadExternal": frozenset({"channel"}),
}
EVERYWHERE = frozenset({"team_id"})
"""Arguments of calls with an organisation's token; the SDK and Bolt send them to every workspace."""

NOT_REALLY_REQUIRED: Mapping[str, frozenset[str]] = {
    "chat.appendStream": frozenset({"markdown_text"}),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One method as documented. `tier` is t1 to t4, or t5 for "special"."""

    tier: str
    scopes: tuple[str, ...]
    required: tuple[str, ...]
    args: frozenset[str]
    errors: frozenset[str]


def load() -> dict[str, Entry]:
    """Every served method's entry."""
    raw = json.loads(files("bot.playground.slack").joinpath("reference.json").read_text("utf-8"))
    return {name: _entry(name, entry) for name, entry in raw.items()}


def _entry(name: str, raw: Mapping[str, Any]) -> Entry:
    needless = NOT_REALLY_REQUIRED.get(name, frozenset())
    return Entry(
        raw["tier"] or "t5",
        UNLISTED_SCOPES.get(name, tuple(raw["scopes"])),
        tuple(arg for arg in raw["required"] if arg not in needless),
        frozenset(raw["args"]) | EVERYWHERE | UNLISTED_ARGS.get(name, frozenset()),
        frozenset(raw["errors"]) | UNLISTED_ERRORS.get(name, frozenset()),
    )


REFERENCE = load()


def confirm(method: str, error: str) -> None:
    """Raise LookupError for an error that Slack would not give here."""
    if error not in ANYWHERE and error not in REFERENCE[method].errors:
        raise LookupError(f"{method} has no error {error!r} in the reference")


def check_arguments(method: str, args: Mapping[str, Any]) -> None:
    """Refuse names that the method does not know, and calls without a required argument."""
    entry = REFERENCE[method]
    unknown = sorted(set(args) - entry.args)
    if unknown:
        raise Refused("invalid_arg_name", *(f"unknown argument: {name}" for name in unknown))
    missing = [name for name in entry.required if args.get(name) in (None, "")]
    if missing:
        raise Refused("invalid_arguments", *(f"missing required field: {name}" for name in missing))


def check_scopes(method: str, granted: frozenset[str]) -> None:
    """Refuse a method of which no scope was granted."""
    needed = REFERENCE[method].scopes
    if needed and not granted & set(needed):
        raise Refused("missing_scope", needed=needed[0], provided=",".join(sorted(granted)))
