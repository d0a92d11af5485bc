"""What Slack's errors mean for us, as one table, and how an answer of Slack is read.

    FINE         as good as done (already_reacted)
    LATER        we are over a limit: the method pauses for `wait_s`
    AGAIN        it did not happen for sure; try again
    UNCLEAR      nobody knows whether it happened: look before a second post
    GONE         the message to edit does not exist any more, or is not ours
    ARCHIVED     the channel is archived: settle, no retries
    UNREACHABLE  we can't write there: tell who asked, by direct message
    THREAD_GONE  the same, but it is only about this thread: its root was deleted, it is locked
    ABSENT       this person can't be reached there; the place is not to blame
    PAYLOAD      our message is refused: once more as plain text
    FEATURE      this workspace does not have it, or we lack a scope: switch it off, say so once
    DEAD         the installation is gone: nothing will work until an operator acts
    REFUSED      anything else: final for posts, three strikes for a card

Sources: the method reference and the field reports in Slack's documentation; unknown errors are REFUSED.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

DEFAULT_WAIT_S = 5.0
LONGEST_WAIT_S = 120.0
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Meaning(StrEnum):
    """What to do about an answer of Slack."""

    OK = "ok"
    FINE = "fine"
    LATER = "later"
    AGAIN = "again"
    UNCLEAR = "unclear"
    GONE = "gone"
    ARCHIVED = "archived"
    UNREACHABLE = "unreachable"
    THREAD_GONE = "thread_gone"
    ABSENT = "absent"
    PAYLOAD = "payload"
    FEATURE = "feature"
    DEAD = "dead"
    REFUSED = "refused"


NOT_YET = frozenset({Meaning.LATER, Meaning.AGAIN, Meaning.UNCLEAR, Meaning.DEAD})
"""What may be answered otherwise the next time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer of Slack, read. `data` is the body of a good one."""

    meaning: Meaning
    error: str = ""
    wait_s: float = 0.0
    data: Mapping[str, Any] | None = None

    @property
    def good(self) -> bool:
        return self.meaning in (Meaning.OK, Meaning.FINE)


_WORDS: Mapping[Meaning, str] = {
    Meaning.FINE: "already_reacted no_reaction already_pinned",
    Meaning.LATER: "ratelimited rate_limited message_limit_exceeded",
    Meaning.UNCLEAR: "fatal_error internal_error service_unavailable request_timeout update_failed"
    " messaging_processing_failed",
    Meaning.AGAIN: "team_added_to_org org_login_required external_channel_migrating accesslimited"
    " streaming_state_conflict",
    Meaning.GONE: "message_not_found cant_update_message message_not_owned_by_app edit_window_closed"
    " cant_delete_message",
    Meaning.ARCHIVED: "is_archived is_inactive",
    Meaning.UNREACHABLE: "channel_not_found not_in_channel posting_to_channel_denied"
    " slack_connect_canvas_sharing_blocked slack_connect_file_upload_sharing_blocked invalid_channel",
    Meaning.THREAD_GONE: "thread_not_found cannot_reply_to_message thread_root_deleted",
    Meaning.ABSENT: "cannot_dm_bot user_not_found users_not_found user_not_visible user_not_in_channel user_disabled"
    " user_is_bot user_is_restricted messages_tab_disabled",
    Meaning.PAYLOAD: "msg_too_long msg_blocks_too_long msg_blocks_too_many invalid_blocks invalid_blocks_format"
    " invalid_attachments block_mismatch no_text invalid_chunks too_many_attachments metadata_too_large"
    " invalid_metadata_format only_one_table_allowed markdown_text_conflict",
    Meaning.FEATURE: "missing_scope feature_disabled unknown_method method_deprecated not_agent_app no_permission"
    " file_uploads_disabled",
    Meaning.DEAD: "token_revoked account_inactive invalid_auth not_authed token_expired app_access_restricted"
    " access_denied ekm_access_denied two_factor_setup_required app_uninstalled team_not_found",
}

MEANINGS: Mapping[str, Meaning] = {word: meaning for meaning, words in _WORDS.items() for word in words.split()}


def meaning_of(error: str) -> Meaning:
    """The meaning of one of Slack's error words."""
    if error.endswith("_thread_locked"):
        return Meaning.THREAD_GONE
    if error.startswith("restricted_action") or error.endswith("_only_channel"):
        return Meaning.UNREACHABLE
    return MEANINGS.get(error, Meaning.REFUSED)


def read(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Verdict:
    """Read an answer of the Web API. A status of 429 or 5xx counts before the body: a gateway may have written it."""
    error = str(data.get("error") or "")
    if status == 429 or meaning_of(error) is Meaning.LATER:
        return Verdict(Meaning.LATER, error or "ratelimited", wait_of(headers or {}, data))
    if status >= 500:
        return Verdict(Meaning.UNCLEAR, error or f"http_{status}")
    if data.get("ok") is True:
        return Verdict(Meaning.OK, data=data)
    if not error:
        return Verdict(Meaning.UNCLEAR, f"http_{status}_without_error")
    return Verdict(meaning_of(error), error)


def read_failure(error: BaseException) -> Verdict:
    """Read what the SDK raised. Raises it again if it is none of Slack's."""
    if isinstance(error, SlackApiError):
        response = error.response
        data = response.data if isinstance(response.data, dict) else {}
        headers = {str(key): str(value) for key, value in dict(response.headers or {}).items()}
        return read(data, int(response.status_code or 0), headers)
    if isinstance(error, aiohttp.ClientConnectorError):
        return Verdict(Meaning.AGAIN, "could not connect")
    if isinstance(error, aiohttp.ClientError | asyncio.TimeoutError | SlackClientError | OSError):
        return Verdict(Meaning.UNCLEAR, type(error).__name__)
    raise error


def wait_of(headers: Mapping[str, str], data: Mapping[str, Any]) -> float:
    """How long Slack asks us to wait, in seconds: a number, a date or garbage, at most `LONGEST_WAIT_S`."""
    found = next((value for key, value in headers.items() if key.lower() == "retry-after"), None)
    raw = str(found if found is not None else data.get("retry_after", ""))
    try:
        wait = float(raw)
    except ValueError:
        wait = _until(raw, headers)
    if not math.isfinite(wait) or wait <= 0:
        wait = DEFAULT_WAIT_S
    return min(wait, LONGEST_WAIT_S)


def _until(raw: str, headers: Mapping[str, str]) -> float:
    """Seconds from the answer's own Date to the date in `raw`; NaN if one of them is none."""
    sent = next((value for key, value in headers.items() if key.lower() == "date"), "")
    try:
        return (email.utils.parsedate_to_datetime(raw) - email.utils.parsedate_to_datetime(sent)).total_seconds()
    except (TypeError, ValueError):
        return math.nan


def backoff(tries: int) -> float:
    """Seconds to wait before another try."""
    return BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
