"""The frame around everything that was not said to us: what tools, pages, alerts, files and bystanders bring is data.

    <untrusted from="search_logs" seal="3f9a1c2b4d5e6f70">
    ...
    </untrusted seal="3f9a1c2b4d5e6f70">

The seal is a digest of what stands between, so nothing that stands there can hold it, and nothing can end the frame
from within; whatever imitates its marks loses its bracket as well. The same text always has the same frame.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

SEAL_CHARS = 16
LONGEST_SOURCE = 100

_MARK = re.compile(r"[<＜﹤](?=[\s/\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*untrusted)", re.IGNORECASE)
_NOT_A_NAME = re.compile(r"[^\w .:/@-]+")
_FRAMED = re.compile(
    r'(?P<before>(?:(?!<untrusted ).)*)<untrusted from="(?P<source>[^"\n]*)" seal="(?P<seal>[0-9a-f]{16})">\n'
    r'(?P<text>.*)\n</untrusted seal="(?P=seal)">',
    re.DOTALL,
)
_OUR_HEADS = re.compile(
    r"(?<=\n)(\s*)(?:(<)(?=@[A-Z0-9]+(?:\|[^>\n]*)?>)"
    r"|\[(?=(?:note|alert|schedule|thread|condensed|suture|Pilothouse)\b))"
)


@dataclass(frozen=True, slots=True)
class Framed:
    """A framed text taken apart: our words before it, where it is from, and what it says."""

    before: str
    source: str
    text: str


def framed(source: str, text: str) -> str:
    """`text` as data that `source` brought."""
    name = _NOT_A_NAME.sub(" ", source)[:LONGEST_SOURCE].strip() or "outside"
    inside = _MARK.sub("‹", text)
    seal = _seal(name, inside)
    return f'<untrusted from="{name}" seal="{seal}">\n{inside}\n</untrusted seal="{seal}">'


def unframed(text: str) -> Framed | None:
    """What `framed` made, taken apart; None when it is not one of ours or not whole."""
    hit = _FRAMED.fullmatch(text)
    if hit is None or hit["seal"] != _seal(hit["source"], hit["text"]):
        return None
    return Framed(hit["before"], hit["source"], hit["text"])


def own_words(text: str) -> str:
    """What one person said: no line of it can pass for somebody else's words, for ours, or for a frame."""
    return _OUR_HEADS.sub(lambda hit: hit[1] + ("‹" if hit[2] else "⟦"), _MARK.sub("‹", text))


def _seal(source: str, text: str) -> str:
    return hashlib.sha256(f"{source}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:SEAL_CHARS]
