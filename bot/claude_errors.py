"""What a failure of the Messages API means for us: one table for statuses, one for error types, one for texts.

    429, 529, overloaded_error, rate_limit_error        ModelBusy            wait, then the same request again
    400 and 413 about the conversation                  ModelRefusedHistory  deterministic: never the same body again
    every other 400, and 401, 402, 403, 404             ModelMisconfigured   the operator acts; the text says how
    everything else, and no answer at all               ModelUnavailable     try again later

An `error` event can arrive in the middle of a stream whose status was 200, so the type counts, not only the
status. The SDK's own classes don't help there: it raises a bare status error with status 200.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from core.errors import (
    ModelBusy,
    ModelError,
    ModelMisconfigured,
    ModelRefusedHistory,
    ModelUnavailable,
)
from core.refusals import rule_of

BUSY_STATUSES = frozenset({429, 529})
BUSY_TYPES = frozenset({"overloaded_error", "rate_limit_error"})

ABOUT_THE_CONVERSATION = ("messages", "image", "content filtering")
"""Words (lower case) that say the conversation itself is at fault, where `core.refusals` knows no rule."""

SENTENCES = {
    401: "The Messages API refused the key ({text}): set ANTHROPIC_API_KEY to a valid key and start again.",
    402: "The Messages API wants to be paid first ({text}): check the plan and the billing of the account.",
    403: "The key may not use this ({text}): give it access to the model `{model}`, or use another key.",
    404: "The Messages API does not know the model `{model}` ({text}): correct `model` in the configuration.",
}
STATUS_OF_TYPE = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "api_error": 500,
    "overloaded_error": 529,
}
MAX_TEXT = 600


def is_structural(text: str) -> bool:
    """Whether the API's text says that the conversation, not the service and not the tools, is at fault."""
    lower = text.lower()
    if lower.startswith("tools"):
        return False
    return rule_of(text) is not None or any(word in lower for word in ABOUT_THE_CONVERSATION)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the answer asks us to wait; the header may be seconds, an HTTP date, absent or nonsense."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = max(seconds, 0.0)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def from_status(
    status: int, text: str, model: str, headers: Mapping[str, str] | None = None, error_type: str = ""
) -> ModelError:
    """The error for an answer with `status`. `text` is the API's own."""
    text = text.strip()[:MAX_TEXT] or f"HTTP {status}"
    if status in BUSY_STATUSES or error_type in BUSY_TYPES:
        return ModelBusy(f"The model is busy ({text}).", retry_after_s(headers or {}, time.time()))
    if status == 400:
        return _bad_request(text)
    if status == 413:
        return ModelRefusedHistory(text)
    if sentence := SENTENCES.get(status):
        return ModelMisconfigured(sentence.format(text=text, model=model))
    return ModelUnavailable(f"The model gave no answer (HTTP {status}: {text}).")


def from_error_event(error_type: str, text: str) -> ModelError:
    """The error for an `error` event inside a stream that began with status 200."""
    status = STATUS_OF_TYPE.get(error_type, 500)
    return from_status(status, text or error_type or "error event", "as configured", error_type=error_type)


def _bad_request(text: str) -> ModelError:
    """A 400 is deterministic: either the conversation can't be sent, or an option or the account is wrong."""
    if is_structural(text):
        return ModelRefusedHistory(text)
    return ModelMisconfigured(
        f"The Messages API refuses the request ({text}): check the model's options and the account's billing."
    )
