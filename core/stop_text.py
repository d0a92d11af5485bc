"""How a text is recognised as a stop.

First it is folded: NFKC, case, invisible characters, emphasis and emoji go; our own mention goes; code, links and
other people's mentions become one character that no word matches; quoted lines go. Then it is read as a row of stop
words, polite words and closing marks:

    the row reaches the end               a stop, and nothing else was said ("please stop", "停停停", "STOP!!")
    a strong word, closed by , . ! ; : —  a stop; what follows is the rest ("stop, wrong cluster")
      or a line break, then other words
    a weak word, closed, after our mention   the same; elsewhere a weak word counts only as the whole text
    anything else                         no stop ("stop the rollout", "别停", "stop?")

Nothing is ever searched inside a text: a word that is found somewhere is not a stop. Only the beginning of a long
text is folded, so that a message of any size costs the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from core.messages import Level
from core.stop_words import DEFAULT, StopWords

LONGEST_ROW: Final = 1_000

_OPAQUE = "\0"
_STOP_SIGN = "🛑"
_CLOSERS = frozenset(",.!;:—。、\n")
_NEVER_SEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800*")
_TOKENS = re.compile(
    r"(?P<code>```[\s\S]*?(?:```|\Z)|`[^`\n]+`)"
    r"|(?P<quote>^[ \t]*(?:(?:>>>|&gt;&gt;&gt;)[\s\S]*|(?:>|&gt;)[^\n]*))"
    r"|<@(?P<user>[A-Z0-9]+)(?:\|[^<>\n]*)?>"
    r"|(?P<token><[^<>\n]+>)"
    r"|(?P<struck>(?<!\w)~[^~\n]+~(?!\w))"
    r"|(?P<sign>:(?:octagonal_sign|stop_sign):)"
    r"|(?P<emoji>:(?=[0-9_+'-]{0,40}[a-z])[a-z0-9_+'-]{1,100}(?:::skin-tone-[2-6])?:)"
    r"|(?P<entity>&(?:amp|lt|gt);)",
    re.MULTILINE,
)
_LEADING = "".join(sorted(_CLOSERS)) + "，！；：．… \t"
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}


@dataclass(frozen=True, slots=True)
class StopWord:
    """What a text says. `bare`: it says nothing else. `rest` is what else it says, in the person's own words."""

    level: Level
    bare: bool
    rest: str = ""


class _Kind(StrEnum):
    STEP = "step"
    TASK = "task"
    WEAK = "weak"
    POLITE = "polite"


_LEVELS = {_Kind.STEP: Level.STEP, _Kind.TASK: Level.TASK, _Kind.WEAK: Level.STEP}


@dataclass(frozen=True, slots=True)
class _Folded:
    """A text as it is read. `origin[i]` is where the i-th character comes from in `source`."""

    source: str
    chars: str
    origin: tuple[int, ...]
    bot_user: str
    after_mention: bool


def recognise(text: str, *, bot_user: str, words: StopWords = DEFAULT) -> StopWord | None:
    """The stop that `text` (as Slack sends it, escaped) is, or None. `bot_user` is our own user id."""
    folded = _fold(text, bot_user)
    lexicon = _lexicon(words)
    start = len(folded.chars) - len(folded.chars.lstrip())
    match folded.chars[start : start + 1]:
        case "/":
            return _command(folded, start, lexicon)
        case "+":
            found = _read_row(folded, start + 1, lexicon)
            return found if found is not None and found.bare else None
        case _:
            return _read_row(folded, start, lexicon)


def _command(folded: _Folded, at: int, lexicon: _Lexicon) -> StopWord | None:
    """`/stop` and `/cancel`, with or without more words behind them; `//stop` only alone."""
    slashes = 2 if folded.chars.startswith("//", at) else 1
    start = at + slashes
    found = _read_row(folded, start, lexicon)
    if slashes == 2 or found is not None:
        return found if found is None or found.bare or slashes == 1 else None
    hit = _match(folded.chars, start, lexicon)
    if hit is None or hit[1] not in (_Kind.STEP, _Kind.TASK) or not folded.chars[hit[0]].isspace():
        return None
    return StopWord(_LEVELS[hit[1]], False, _own_words(folded, hit[0]))


def _read_row(folded: _Folded, start: int, lexicon: _Lexicon) -> StopWord | None:
    """Read words from `start` on: to the end of the text, or to the last place where the row was closed."""
    level: Level | None = None
    counts = False
    closed: tuple[Level, int] | None = None
    at, end_of_words = start, start
    while at < len(folded.chars):
        char = folded.chars[at]
        if char in _CLOSERS or _is_decoration(char):
            at += 1
            if level is not None and counts and char in _CLOSERS:
                closed = (level, at)
            continue
        hit = _match(folded.chars, at, lexicon)
        if hit is None:
            return _closed_at(folded, closed)
        at, kind = hit
        if kind is not _Kind.POLITE:
            level = Level.TASK if Level.TASK in (level, _LEVELS[kind]) else Level.STEP
            counts = counts or kind is not _Kind.WEAK or folded.after_mention
        end_of_words = at
    if level is None:
        return None
    rest = "" if len(folded.chars) >= LONGEST_ROW else _own_words(folded, end_of_words)
    return StopWord(level, not rest, rest)


def _closed_at(folded: _Folded, closed: tuple[Level, int] | None) -> StopWord | None:
    if closed is None:
        return None
    level, at = closed
    rest = _own_words(folded, at)
    return StopWord(level, not rest, rest)


def _own_words(folded: _Folded, at: int) -> str:
    """What the person wrote from the folded position on, or nothing if no word is left in it."""
    begin = folded.origin[at - 1] + 1 if at else 0
    rest = without_mention(folded.source[begin:], folded.bot_user)
    without_emoji = _TOKENS.sub(lambda hit: "" if hit.lastgroup in ("emoji", "sign") else hit[0], rest)
    if not any(char.isalnum() for char in without_emoji):
        return ""
    return without_emoji.strip() if rest.startswith(":") else rest.lstrip(_LEADING).strip()


def without_mention(text: str, bot_user: str) -> str:
    """The text without our own mention, wherever it stands."""
    return re.sub(rf"[ \t]*<@{re.escape(bot_user)}(?:\|[^<>\n]*)?>", "", text).strip()


def _is_decoration(char: str) -> bool:
    return char.isspace() or char in "~¡" or (char != _STOP_SIGN and unicodedata.category(char) in ("So", "Sk"))


# -- the list, ready for matching ------------------------------------------------------------------------------------

_Entry = tuple[str, _Kind]
_Lexicon = Mapping[str, tuple[_Entry, ...]]


def _fold_word(word: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold()).split())


@lru_cache(maxsize=64)
def _lexicon(words: StopWords) -> _Lexicon:
    """Words by their first character, the longest first; a task word beats a step word of the same spelling."""
    kinds: dict[str, _Kind] = {}
    for kind, entries in (
        (_Kind.POLITE, words.polite),
        (_Kind.WEAK, words.weak),
        (_Kind.STEP, words.step),
        (_Kind.TASK, words.task),
    ):
        kinds.update({_fold_word(word): kind for word in entries if _fold_word(word)})
    by_first: dict[str, list[_Entry]] = {}
    for word in sorted(kinds, key=lambda word: (-len(word), word)):
        by_first.setdefault(word[0], []).append((word, kinds[word]))
    return MappingProxyType({first: tuple(entries) for first, entries in by_first.items()})


def _match(chars: str, at: int, lexicon: _Lexicon) -> tuple[int, _Kind] | None:
    """The longest word at `at`: where it ends, and of which kind it is."""
    for word, kind in lexicon.get(chars[at : at + 1], ()):
        end = at + len(word)
        if chars.startswith(word, at) and not _runs_on(chars, end):
            return end, kind
    return None


def _runs_on(chars: str, end: int) -> bool:
    """Whether the word goes on behind `end`. Scripts without spaces between words have no such border."""
    if end >= len(chars) or not _is_spaced(chars[end - 1]):
        return False
    following = chars[end]
    return _is_spaced(following) or following in "_'’-@#$%/\\"


def _is_spaced(char: str) -> bool:
    """A letter or digit of a script that puts spaces between words."""
    return char.isalnum() and not ("\u1100" <= char <= "\u11ff" or "\u2e80" <= char <= "\ud7ff" or char >= "\uf900")


# -- folding ---------------------------------------------------------------------------------------------------------


def _fold(text: str, bot_user: str) -> _Folded:
    """The text as it is read, character by character with its origin."""
    source = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    chars: list[str] = []
    origin: list[int] = []
    after_mention = False
    for part, at in _parts(source, bot_user):
        if len(chars) >= LONGEST_ROW:
            break
        if part == "" and not "".join(chars).strip():
            after_mention = True
        for char in part or " ":
            if char == " " and chars and chars[-1] in " \n":
                continue
            chars.append(char)
            origin.append(at)
    return _Folded(source, "".join(chars), tuple(origin), bot_user, after_mention)


def _parts(source: str, bot_user: str) -> Iterator[tuple[str, int]]:
    """Pieces of folded text with their place in `source`; an empty piece is our own mention."""
    done = 0
    for hit in _TOKENS.finditer(source):
        yield from _plain(source, done, hit.start())
        done = hit.end()
        match hit.lastgroup:
            case "user":
                yield ("" if hit["user"] == bot_user else _OPAQUE), done - 1
            case "quote":
                pass
            case "emoji":
                yield " ", done - 1
            case "sign":
                yield _STOP_SIGN, done - 1
            case "entity":
                yield _ENTITIES[hit[0]], done - 1
            case _:
                yield _OPAQUE, done - 1
    yield from _plain(source, done, len(source))


def _plain(source: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Ordinary characters, each together with the marks that combine with it."""
    at = start
    while at < end:
        stop = at + 1
        while stop < end and (unicodedata.combining(source[stop]) or source[stop] in "\uff9e\uff9f"):
            stop += 1
        folded = "".join(_fold_cluster(source, at, stop))
        if folded:
            yield folded, stop - 1
        at = stop


def _fold_cluster(source: str, at: int, stop: int) -> Iterator[str]:
    cluster = source[at:stop]
    if cluster == "\n":
        yield "\n"
        return
    if cluster == "_" and not (_wordy(source, at - 1) and _wordy(source, stop)):
        return
    wide = unicodedata.normalize("NFKC", cluster).casefold()
    for char in unicodedata.normalize("NFKC", wide):
        if char.isspace():
            yield "\n" if char in "\u2028\u2029\u0085\x0b\x0c" else " "
        elif not _is_unseen(char):
            yield char


def _wordy(source: str, at: int) -> bool:
    return 0 <= at < len(source) and source[at].isalnum()


def _is_unseen(char: str) -> bool:
    return (
        char in _NEVER_SEEN
        or "\ufe00" <= char <= "\ufe0f"
        or "\u180b" <= char <= "\u180f"
        or unicodedata.category(char) in ("Cf", "Cc", "Cs")
    )
