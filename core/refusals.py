"""What the Messages API means when it refuses a conversation: which rule, and what may be sent instead.

A structural refusal is deterministic: the same body is refused for ever, by every model. So it is never sent again,
nor to another model; the history is projected once more, in the way that the rule suggests.

The texts are the API's own and of those who speak its language, in lower case; all words of a row have to be in it,
and the first row that fits decides. `core.validator` names the rules.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Remedy(Enum):
    """How the history is projected once more."""

    ANEW = "anew"
    WITHOUT_THINKING = "without_thinking"
    WITHOUT_PICTURES = "without_pictures"
    CONDENSED = "condensed"


RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("R73", ("prompt is too long",)),
    ("R73", ("exceed", "context limit")),
    ("R73", ("input is too long",)),
    ("R72", ("request exceeds the maximum",)),
    ("R72", ("request_too_large",)),
    ("R49", ("missing or out of order",)),
    ("R48", ("bound to a different conversation",)),
    ("R47", ("thinking", "cannot be modified")),
    ("R43", ("must start with a thinking block",)),
    ("R44", ("first block must be `thinking`",)),
    ("R45", ("when thinking is disabled",)),
    ("R41", ("each thinking block must contain thinking",)),
    ("R4B", ("final block", "cannot be `thinking`")),
    ("R40", (".thinking.signature",)),
    ("R40", (".thinking.thinking",)),
    ("R42", ("in `thinking` block",)),
    ("R42", ("in `redacted_thinking` block",)),
    ("R20", ("tool_use", "without", "tool_result")),
    ("R20", ("tool_result", "at the beginning of this message")),
    ("R36", ("unexpected", "tool_use_id", "_tool_result")),
    ("R21", ("unexpected", "tool_use_id")),
    ("R22", ("ids must be unique",)),
    ("R23", ("must have a single result",)),
    ("R53", ("cache_control", "empty text")),
    ("R08", ("non-empty content",)),
    ("R10", ("non-empty",)),
    ("R11", ("non-whitespace",)),
    ("R06", ("roles must alternate",)),
    ("R03", ("first message must use",)),
    ("R01", ("at least one message",)),
    ("R04", ("assistant message prefill",)),
    ("R05", ("trailing whitespace",)),
    ("R35", ("without a corresponding",)),
    ("R30", ("if `is_error` is true",)),
    ("R25", ("blocks can only be in",)),
    ("R51", ("must define tools",)),
    ("R50", ("tool names must be unique",)),
    ("R52", ("blocks with cache_control",)),
    ("R54", ("cache_control", "must not come after")),
    ("R60", ("input should be 'image/",)),
    ("R61", ("image", "media type")),
    ("R62", ("could not process image",)),
    ("R63", ("image", "exceed")),
    ("R70", ("surrogate",)),
    ("R70", ("not valid json",)),
    ("R27", ("valid dictionary",)),
    ("R26", ("should match pattern",)),
    ("R07", ("extra inputs",)),
)
PICTURE_RULES: Final = frozenset({"R60", "R61", "R62", "R63"})
SIZE_RULES: Final = frozenset({"R72", "R73"})
TOO_LONG: Final = re.compile(r"(\d+)\s*tokens?\s*>\s*(\d+)")


def rule_of(text: str) -> str | None:
    """The rule that the API's text speaks of, None when it is none that we know."""
    lower = text.lower()
    return next((rule for rule, words in RULES if all(word in lower for word in words)), None)


def remedy_for(text: str) -> Remedy:
    """What may be sent instead of what was refused with `text`."""
    rule = rule_of(text)
    if rule is None:
        return Remedy.ANEW
    if rule.startswith("R4") and rule not in ("R04", "R4A"):
        return Remedy.WITHOUT_THINKING
    if rule in PICTURE_RULES:
        return Remedy.WITHOUT_PICTURES
    return Remedy.CONDENSED if rule in SIZE_RULES else Remedy.ANEW


def counted(text: str) -> tuple[int, int] | None:
    """(tokens that were sent, tokens that fit) where a refusal names them."""
    found = TOO_LONG.search(text)
    return (int(found[1]), int(found[2])) if found else None


def told(text: str) -> str:
    """One sentence for people: the rule, and the API's own words."""
    rule = rule_of(text)
    named = f" by its rule {rule}" if rule is not None else ""
    return f"The model API refuses this history{named}: {text}"
