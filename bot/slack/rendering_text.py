"""One escaped string of Slack as readable text.

Slack sends `& < >` of a person as entities and its own tokens in angle brackets. The tokens are replaced first and
the entities last, so that nothing a person typed can pass for a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"<([@#!]?)([^<>\n|]+)(?:\|([^<>\n]*))?>")
_UNSEEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def unescape(text: str) -> str:
    """What the person typed: each entity decoded once."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def plain(text: str) -> str:
    """Text as Slack sends it, with tokens made readable and entities decoded."""
    return unescape(_TOKEN.sub(_readable, _UNSEEN.sub("", text.replace("\r\n", "\n"))))


def one_line(text: str) -> str:
    """`text` without line breaks and without brackets that would end a heading of ours."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def _readable(hit: re.Match[str]) -> str:
    sort, body, label = hit[1], hit[2], hit[3] or ""
    return _READ[sort](body, label)


def _person(user: str, label: str) -> str:
    return f"@{label.lstrip('@')} ({user})" if label else f"@{user}"


def _channel(channel: str, label: str) -> str:
    return f"#{label} ({channel})" if label else f"#{channel}"


def _special(body: str, label: str) -> str:
    kind, _, rest = body.partition("^")
    match kind:
        case "here" | "channel" | "everyone":
            return f"@{kind}"
        case "subteam":
            return _person(rest.partition("^")[0], label)
        case "date":
            return label or rest
        case _:
            return label or f"@{kind}"


def _link(address: str, label: str) -> str:
    shown = address.removeprefix("mailto:") if address.startswith("mailto:") else address
    return shown if not label or label in (address, shown) else f"{label} ({shown})"


_READ: dict[str, Callable[[str, str], str]] = {"@": _person, "#": _channel, "!": _special, "": _link}
