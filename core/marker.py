"""Markers: what a text itself says about how it wants to be taken. The first that applies, in this order:

    addressed     begins with another person or group and does not mention us
    not_for_bot   `;` (or `//`) in front
    cancel        a stop word that ends the task       (core.stop_text)
    stop_step     a stop word that ends the step
    approve       `approve`, `approve ap-7`, `approve ap-7 why`
    deny          `deny`, `deny ap-7 why`, `deny why`
    after         `+` in front: when the running turn has ended
    now           `!` in front: now, whoever I am
    none

Full-width forms count as their ASCII ones. A decision is as strict as a stop: "approve the new plan" is a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from core.messages import Level, Marker
from core.stop_text import StopWord, recognise, without_mention
from core.stop_words import DEFAULT, StopWords

LONGEST_ASSENT = 80

_ADDRESSEE = re.compile(r"\s*<(?:@(?P<user>[UWB][A-Z0-9]+)|!subteam\^[A-Z0-9]+)(?:\|[^<>\n]*)?>")
_DECISION = re.compile(
    r"/?(?P<word>approved?|den(?:y|ied))\b"
    r"(?:[\s,:]+(?P<id>ap-[a-z0-9][a-z0-9_-]*|\#?\d+)\b)?"
    r"[\s,.!;:—。]*(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DOUBTS = re.compile(
    r"\?|\b(?:not|don['’]?t|never|unless|if|when|after|before|until|only|but|except|wait|hold|later|tomorrow)\b"
    r"|不|别|等|如果|之后|以后",
    re.IGNORECASE,
)
_YES = """
    ok okay okey k kk y yes yep yeah yup sure lgtm ack agreed agree approved approve accepted fine great perfect
    proceed continue go +1 👍 👌 ✅ 好 好的 好吧 可以 行 同意 批准 没问题 确认 はい 了解 承認 네 예 좋아 ja oui si sí
    sim da да d'accord
"""
_YES_PHRASES = """
    go ahead | go for it | do it | ship it | sounds good | looks good | looks good to me | all good | de acuerdo
"""
_POLITE = frozenset({"please", "thanks", "thank", "you", "thx", "then", "谢谢"})
_ASSENT = frozenset(_YES.split()) | {phrase.strip() for phrase in _YES_PHRASES.split("|")}
_ASSENT_CODES = re.compile(
    r":(?:\+1|thumbsup|ok_hand|ok|white_check_mark|heavy_check_mark|ship|shipit|rocket)(?:::skin-tone-[2-6])?:"
)
_SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]")


@dataclass(frozen=True, slots=True)
class Ruling:
    """The words of a decision: about which request (None: the only open one), and why."""

    marker: Marker
    approval_id: str | None
    reason: str


def marker_of(
    text: str, *, bot_user: str, mentioned: bool, words: StopWords = DEFAULT
) -> tuple[Marker, str, StopWord | None]:
    """The marker of `text` (as Slack sends it), the text without marker and own mention, and the stop if it is one.

    Of a stop the text is what else was said, of a decision nothing is left: neither is conversation.
    """
    own = without_mention(text, bot_user)
    if not mentioned and is_addressed(text, bot_user):
        return Marker.ADDRESSED, own, None
    head = _head(own)
    stop = None if head == ";" else recognise(text, bot_user=bot_user, words=words)
    if head == ";" or (head == "//" and stop is None):
        return Marker.NOT_FOR_BOT, own, None
    if stop is not None:
        return (Marker.CANCEL if stop.level is Level.TASK else Marker.STOP_STEP), stop.rest, stop
    ruling = parse_decision(own)
    if ruling is not None:
        return ruling.marker, "", None
    body = own.lstrip()[1:].strip()
    if head == "+" and body and not is_assent(own):
        return Marker.AFTER, body, None
    if head == "!" and body.lstrip("!！ "):
        return Marker.NOW, body.lstrip("!！ "), None
    return Marker.NONE, own, None


def is_addressed(text: str, bot_user: str) -> bool:
    """Whether the text begins with another person or group."""
    hit = _ADDRESSEE.match(text)
    return hit is not None and hit["user"] != bot_user


def _head(text: str) -> str:
    """The first character in its ASCII form, or `//`."""
    head = unicodedata.normalize("NFKC", text.lstrip("\u200b\u200c\u200d\u2060\ufeff \t\n")[:2])
    return "//" if head == "//" else head[:1]


def parse_decision(text: str) -> Ruling | None:
    """The decision that `text` (without our mention) is, or None.

    Everything behind an id is the reason. Without an id `deny` may be followed by the reason, because a denial that
    was not meant changes nothing; `approve` must stand alone.
    """
    hit = _DECISION.fullmatch(unicodedata.normalize("NFKC", text).strip())
    if hit is None:
        return None
    marker = Marker.APPROVE if hit["word"].lower().startswith("approve") else Marker.DENY
    reason = hit["reason"].strip()
    if hit["id"] is not None:
        number = hit["id"].lower()
        return Ruling(marker, number if number.startswith("ap-") else f"ap-{number.lstrip('#')}", reason)
    if (reason and marker is Marker.APPROVE) or hit["word"].lower() in ("approved", "denied"):
        return None
    return Ruling(marker, None, reason)


def is_doubtful(reason: str) -> bool:
    """Whether what stands behind `approve ap-7` asks or puts a condition: whoever decides so has not decided yet."""
    return _DOUBTS.search(reason) is not None


def is_assent(text: str) -> bool:
    """Whether the text (without our mention) is nothing but a yes: "ok", "lgtm", 👍."""
    plain = _SKIN_TONES.sub("", unicodedata.normalize("NFKC", _ASSENT_CODES.sub(" 👍 ", text))).casefold()
    parts = [" ".join(part.split()) for part in re.split(r"[,.!;:~。、\n]+", plain.replace("’", "'")) if part.strip()]
    if len(plain) > LONGEST_ASSENT:
        return False
    said = [words for part in parts if (words := [word for word in part.split() if word not in _POLITE])]
    return bool(said) and all(_is_yes(words) for words in said)


def _is_yes(words: list[str]) -> bool:
    return " ".join(words) in _ASSENT or all(word in _ASSENT for word in words)
