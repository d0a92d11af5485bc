"""What comes out of a tool: what the model reads of it, and what is kept beside that for people who check.

    clean     text that everybody can store and send: no NUL, no half characters, no secrets, within a limit
    kept_of   the part that the model reads, and the whole as evidence when it is more than that, or a page as it
              was read

Evidence is named by what it is: the same page that was read once, or the same output, is kept once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.ports import Snapshot, ToolOutput
from core.redaction import redact

MOST_KEPT = 1_000_000
"""Characters of one piece of evidence."""
MARGIN = 4_096
"""Characters read beyond a limit, so that no secret is cut in two where it could not be recognised."""
BINARY_SAMPLE = 4_000
SHORTEST_BINARY = 32
MOST_NARROWING = 5
UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\ufffd\ud800-\udfff]")


class KeptKind(StrEnum):
    """What a piece of evidence is."""

    OUTPUT = "output"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Kept:
    """One piece of evidence. `chars` is how long it was, `digest` the SHA-256 of what was read, as hex.

    A page has where it was read from in the end (`url`) and when (`taken_at`, seconds since the epoch).
    """

    id: str
    kind: KeptKind
    body: str
    chars: int
    digest: str
    url: str | None = None
    taken_at: float | None = None


def kept_of(output: ToolOutput, limit: int, narrowing: str = "") -> tuple[str, Kept | None]:
    """What the model reads of an output (about `limit` characters), and what is kept beside it.

    `narrowing` tells the model how to ask for less.
    """
    text, page = output.text, None if output.snapshot is None else _page(output.snapshot)
    if len(text) <= limit or _is_binary(text):
        return clean(text, limit), page
    body = _cut(text, MOST_KEPT)
    kept = page or Kept(_sha256(body), KeptKind.OUTPUT, body, len(text), _sha256(text))
    if len(body) <= limit:
        return body, kept
    left, all_of_it = len(text) - limit, "all of it is" if len(text) <= MOST_KEPT else f"the first {MOST_KEPT:,} are"
    note = f"[cut: {left:,} of {len(text):,} characters are left out here; {all_of_it} kept for people. {narrowing}"
    return f"{body[:limit]}\n{note.rstrip()}]", kept


def _page(page: Snapshot) -> Kept:
    body, url = clean(page.text, MOST_KEPT), clean(page.url, MARGIN)
    name = _sha256("\0".join((url, repr(page.taken_at), page.digest, body)))
    return Kept(name, KeptKind.PAGE, body, len(page.text), page.digest, url, page.taken_at)


def narrowing(schema: Mapping[str, Any]) -> str:
    """How a call of a tool with these arguments is made smaller, as a sentence for the model."""
    properties = schema.get("properties")
    names = [str(name)[:40] for name in properties][:MOST_NARROWING] if isinstance(properties, Mapping) else []
    if not names:
        return "To see what is left out, look another way."
    listed = ", ".join(f"`{name}`" for name in names)
    return f"To see what is left out, call again with a narrower {listed}."


def clean(text: str, limit: int) -> str:
    """Tool output as it may be kept: no NUL, no lone surrogates, no secrets, no more than `limit` characters.

    What is no text at all is not kept: nobody can read it, and it would be paid for with every later request.
    """
    if _is_binary(text):
        return f"[binary: {len(text)} characters were not kept]"
    if len(text) <= limit:
        cut = redact(whole(text))
        return cut if len(cut) <= limit else cut[:limit]
    return f"{_cut(text, limit)}\n[cut: {len(text) - limit} more characters were not kept]"


def whole(text: str) -> str:
    """Text that everybody can write: no NUL, and no half of a character without the other."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "\ufffd")


def _cut(text: str, limit: int) -> str:
    """The first `limit` characters without secrets. The last word that was read may be half of one: it goes."""
    if len(text) <= limit + MARGIN:
        return redact(whole(text))[:limit]
    found = redact(whole(text[: limit + MARGIN]))
    last = found.rsplit(maxsplit=1)[-1] if found else ""
    return found[: len(found) - min(len(last), MARGIN)][:limit]


def _is_binary(text: str) -> bool:
    """Whether a tenth of the beginning is control characters, half characters, or what could not be decoded."""
    sample = text[:BINARY_SAMPLE]
    return len(sample) >= SHORTEST_BINARY and len(UNREADABLE.findall(sample)) * 10 > len(sample)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
