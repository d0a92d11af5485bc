"""Takes secrets out of text before anybody keeps it: logs, the model, cards, the audit.

One table of patterns, each with what stands in its place, and with the signs (in small letters) without which it
can't be there: most text has none of them, and costs next to nothing. What a pattern leaves (the scheme, the name of
the field) still lets people and the model see that something was there. Redacting is idempotent, and works on whole
text only: a secret that is split over two pieces must be joined first. Rather one word too many than one secret: a
short piece of a token is taken for a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_EDGE = r"(?<![A-Za-z0-9])"

PATTERNS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("-----begin",),
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)",
        "[redacted private key]",
    ),
    (("xox",), _EDGE + r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9][A-Za-z0-9-]*", "[redacted Slack token]"),
    (("xapp-",), _EDGE + r"xapp-[A-Za-z0-9][A-Za-z0-9-]*", "[redacted Slack token]"),
    (("hooks.slack.com",), r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[\w/-]+", r"\1[redacted]"),
    (("ticket=", "app_id="), r"([?&](?:ticket|app_id)=)[0-9a-fA-F-]{16,}", r"\1[redacted]"),
    (("sk-",), _EDGE + r"sk-(?:ant-[A-Za-z0-9]|[A-Za-z0-9]{20})[\w-]*", "[redacted API key]"),
    (
        ("akia", "asia", "agpa", "aida", "aroa"),
        _EDGE + r"(?:AKIA|ASIA|AGPA|AIDA|AROA)[0-9A-Z]{16}(?![0-9A-Za-z])",
        "[redacted AWS key]",
    ),
    (("gh", "glpat-"), _EDGE + r"(?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9][\w-]*", "[redacted Git token]"),
    (("eyj",), _EDGE + r"eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){0,2}", "[redacted JWT]"),
    (
        ("authorization",),
        r"((?i:authorization)[\"']?\s{0,9}[:=]\s{0,9}[\"']?(?i:bearer|basic|token|digest|apikey) +)"
        r"(?!\[redacted)[^\s\"',\[]{3,}",
        r"\1[redacted]",
    ),
    (
        ("bearer", "basic", "authorization"),
        _EDGE + r"((?i:bearer|basic|authorization[\"']?[:=]) *)"
        r"(?=[^\s\"',]{0,99}(?:[a-z][A-Z]|[0-9]|=))[A-Za-z0-9+/._~-]{8,}=*",
        r"\1[redacted]",
    ),
    (("://",), r"(://[^\s/:@]{0,100}:)(?!\[redacted)[^\s/@]{1,200}(?=@)", r"\1[redacted]"),
    (
        ("pass", "pwd", "secret", "key", "token"),
        r"((?i:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|(?:auth|access|refresh|id)[_-]?token)"
        r"[\"']?\s{0,9}(?:=\s{0,9}[\"']?|:\s{0,9}[\"']|:\s{0,9}(?=[^\s\"',;&]{0,99}[0-9])))(?!\[redacted)[^\s\"',;&\[]{6,}",
        r"\1[redacted]",
    ),
)

SECRET_NAME = re.compile(
    r"(?:password|passw(?:or)?d|passphrase|pwd|secret|token|credentials?|authorization|cookie"
    r"|(?:api|access|private|signing|encryption)[_-]?key)s?$",
    re.IGNORECASE,
)
"""A field with such a name holds a secret, whatever it looks like."""
DEEPEST = 64

_RULES = tuple((signs, re.compile(pattern, re.DOTALL), instead) for signs, pattern, instead in PATTERNS)
_IS_SECRET = re.compile(r"\bkind\\*[\"']?\s*:\s*\\*[\"']?Secret\b")
_JSON_DATA = re.compile(r"(\\*\"(?:data|stringData)\\*\"\s*:\s*)\{[^{}]*\}")
_YAML_DATA = re.compile(r"^(\s*(?:- +)?)(?:data|stringData):\s*(\{.*\})?\s*$")
_YAML_KEY = re.compile(r"^(\s*[\w.-]+:)\s")


def redact(text: str) -> str:
    """`text` without the secrets that can be recognised by their shape."""
    if _IS_SECRET.search(text):
        text = _without_secret_data(text)
    folded = text.casefold()
    for signs, pattern, instead in _RULES:
        if any(sign in folded for sign in signs):
            text = pattern.sub(instead, text)
    return text


def redact_values(value: Any, depth: int = DEEPEST) -> Any:
    """A JSON value without the secrets in its texts and names, and without what stands under a secret's name."""
    if isinstance(value, str):
        return redact(value)
    if depth == 0:
        return "[redacted: nested too deep]"
    if isinstance(value, Mapping):
        return {
            redact(str(name)): "[redacted]" if _is_secret(name, held) else redact_values(held, depth - 1)
            for name, held in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_values(item, depth - 1) for item in value]
    return value


def _is_secret(name: object, held: object) -> bool:
    return isinstance(held, str) and bool(held) and SECRET_NAME.search(str(name)) is not None


def _without_secret_data(text: str) -> str:
    """The data of Kubernetes secrets is only encoded, so no pattern can know it: what stands under `data` goes."""
    text = _JSON_DATA.sub(r"\1{[redacted]}", text)
    kept: list[str] = []
    inside: int | None = None
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        if inside is not None and (not line.strip() or indent > inside):
            key = _YAML_KEY.match(f"{line} ")
            if key is not None:
                kept.append(f"{key[1]} [redacted]")
            continue
        opened = _YAML_DATA.match(line)
        inside = len(opened[1]) if opened is not None and opened[2] is None else None
        kept.append(line if opened is None or opened[2] is None else f"{line[: opened.start(2)]}[redacted]")
    return "\n".join(kept)
