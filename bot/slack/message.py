"""The parts that every message of ours is made of, and the seal that all of them pass.

What we say ourselves is mrkdwn with mentions (`own`); what a tool, a model or a person said is `plain_text` without
emoji (`quoted`), so that nothing in it can act. `sealed` makes the message as it is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import regex

from bot.slack.escape import Prose, clean, escape, quiet, quiet_everywhere
from bot.slack.split import SECTION_LIMIT, shortened
from core.card import Button

BUTTONS: dict[Button, tuple[str, str, str | None]] = {
    Button.STOP_STEP: ("Stop this step", "Stop the running step and wait for instructions", None),
    Button.CANCEL_TASK: ("Cancel task", "End the whole task, its helpers and what is queued", "danger"),
    Button.RETRY: ("Retry", "Ask the same again", None),
    Button.REDIRECT_NOW: ("Redirect now", "Let this reply redirect the running investigation", "primary"),
    Button.APPROVE: ("Approve", "Approve exactly this request", "primary"),
    Button.DENY: ("Deny", "Deny this request, nothing will run", "danger"),
    Button.STOP_HELPER: ("Stop helper", "Stop this helper", None),
}
"""Text, accessible label, style. No confirmation on any of them: a brake is one press."""

_NAMED = regex.compile(r"(@)\{([UW][A-Z0-9]+)\}|(#)\{([CG][A-Z0-9]+)\}")


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """One message: `text` (at most 4,000 escaped characters) for notifications, readers and refusals; and `blocks`.

    Only the parts of `plain_messages` have no blocks: there the text is everything.
    """

    text: str
    blocks: list[dict[str, Any]]


def own(text: str) -> str:
    """A sentence of ours as mrkdwn: `@{U123}` and `#{C123}` become links, everything in between is made safe."""
    prose = Prose(mrkdwn=True)
    done: list[str] = []
    at = 0
    text = clean(text)
    for hit in _NAMED.finditer(text):
        done += (prose.words(text[at : hit.start()]), f"<{hit[1] or hit[3]}{hit[2] or hit[4]}>")
        at = hit.end()
    return quiet("".join([*done, prose.words(text[at:])]))


def quoted(text: str) -> str:
    """What somebody else said, for a block without formatting."""
    return quiet(escape(clean(text)))


def bold_first(text: str) -> str:
    """The first sentence in bold: it is what people read at a glance."""
    first, dot, others = text.partition(". ")
    return f"*{first}{dot.strip()}* {others}".rstrip() if "*" not in first else text


def few(texts: Sequence[str], most: int = 1) -> list[str]:
    """The first of them, with an ellipsis if there were more."""
    kept = [text for text in texts if text.strip()][:most]
    return [*kept[:-1], f"{kept[-1]}\n…"] if kept and len(texts) > most else kept


def mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": shortened(text, SECTION_LIMIT)}}


def plain(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}


def context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": shortened(text, SECTION_LIMIT)}]}


def actions(buttons: Sequence[tuple[Button, str]]) -> dict[str, Any]:
    return {"type": "actions", "elements": [_button(button, value) for button, value in buttons]}


def _button(button: Button, value: str) -> dict[str, Any]:
    text, label, style = BUTTONS[button]
    drawn = {
        "type": "button",
        "action_id": button.value,
        "text": {"type": "plain_text", "text": text, "emoji": False},
        "value": value,
        "accessibility_label": label,
    }
    return drawn | ({"style": style} if style else {})


def sealed(text: str, blocks: Sequence[dict[str, Any]]) -> SlackMessage:
    """The message as it is sent: short enough for an edit, nothing in it calls anybody, new ids for new content."""
    quieted = quiet_everywhere([*blocks])
    safe = [{key: value for key, value in block.items() if key != "block_id"} for block in quieted]
    version = hashlib.sha256(json.dumps(safe, sort_keys=True).encode()).hexdigest()[:12]
    named = [block | {"block_id": f"{version}-{index}"} for index, block in enumerate(safe)]
    return SlackMessage(shortened(quiet(text)), named)
