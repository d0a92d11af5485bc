"""A history that nears the model's limit, shortened: what was said stays, what was looked at becomes excerpts.

The recent end is kept as it is, from an answer of the model on, so the cut never falls between a call and its
result. Everything in front of it becomes one message of the user's side, of marked texts:

    what people said            word for word
    answers of the model        their text, cut at a length
    calls and their results     what was asked, and the lines that somebody spoke of since, then head and tail
    files, threads, alerts      head and tail

No model is asked and no clock is read: the same history gives the same words. Lengths are taken from `STEPS`, from
generous to short, until all of it fits; only at the end of that table people's words are cut, and then it says so.
Thinking is bound to what is no longer there, so it goes. A history that was condensed before is condensed again
piece by piece: nothing is told twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from core.frame import framed, unframed
from core.history import without_thinking

MARK: Final = "[condensed]"
DATA_MARK: Final = "[condensed, data]"
HEAD: Final = (
    f"{MARK} The older part of this thread, shortened to fit. What people said is kept in their own words; what was "
    "looked at is kept as excerpts, and what is missing was left out here. Look again where it matters."
)
NOW: Final = f"{MARK} That was the older part. What follows is new."
LEFT_OUT: Final = f"{MARK} {{}} older parts were left out here. They are in the thread."
LADDER_MARK: Final = "[Pilothouse, automatic]"
DATA: Final = ("[thread", "[attachment", "[alert", "[schedule", "[The thread above", "[suture]")
"""How texts of the user's side begin that nobody said to us."""
IMAGE_BYTES: Final = 5_000
"""What a picture counts: at most about 1,600 tokens, whatever its bytes."""
ARGUMENTS_CHARS: Final = 300
TAIL_SHARES: Final = (0.5, 0.2, 0.0)
"""How much of the budget the recent end may have; less of it where people's words would have to be cut."""
SMALLER: Final = 0.8
"""A history that would not become smaller than this is left alone: else it was done with every request."""
WORD: Final = re.compile(r"[A-Za-z0-9_./:%-]{3,}")
NAME: Final = re.compile(r"[0-9]|[A-Za-z][-_./:][A-Za-z]")


class Kind(Enum):
    """What a piece of the older part is."""

    PERSON = "person"
    ANSWER = "answer"
    RESULT = "result"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Keep:
    """How many characters of each kind of piece are kept; None is all of it. `named` are lines of a result that
    somebody spoke of, `result` is the rest of it."""

    answer: int
    named: int
    result: int
    data: int
    person: int | None = None

    def of(self, kind: Kind) -> int | None:
        return {Kind.PERSON: self.person, Kind.ANSWER: self.answer, Kind.DATA: self.data}.get(kind, self.result)


STEPS: Final = (
    Keep(answer=4_000, named=2_000, result=1_500, data=2_000),
    Keep(answer=2_000, named=1_000, result=600, data=800),
    Keep(answer=1_000, named=500, result=250, data=300),
    Keep(answer=500, named=300, result=100, data=150),
    Keep(answer=250, named=200, result=40, data=80),
    Keep(answer=150, named=120, result=0, data=40),
    Keep(answer=150, named=80, result=0, data=40, person=2_000),
    Keep(answer=100, named=40, result=0, data=20, person=400),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that the older part holds. `before` is what stands in front of its text and is never cut; what is
    from a `source` outside is framed again when it has been cut."""

    kind: Kind
    before: str
    text: str
    source: str | None = None


def condense(messages: Sequence[Mapping[str, Any]], budget: int) -> list[dict[str, Any]] | None:
    """The history in at most about `budget` bytes; None when that would not make it smaller."""
    telling = _telling(messages)
    condensed: list[dict[str, Any]] = []
    for share in TAIL_SHARES:
        at = _tail_start(messages, int(budget * share))
        recent = without_thinking(messages[at:])
        head, whole = _shortened(_told_before(messages[:at]), telling, budget - weight(recent))
        condensed = [{"role": "user", "content": [_text(HEAD), *head]}, *recent]
        if whole:
            break
    return condensed if weight(condensed) <= weight(list(messages)) * SMALLER else None


def as_text(messages: Sequence[Mapping[str, Any]], budget: int) -> list[dict[str, Any]]:
    """All of the history told as one message of texts: nothing is left of it that the API could refuse."""
    head, _ = _shortened(_told_before(messages), _telling(messages), budget)
    return [{"role": "user", "content": [_text(HEAD), *head]}]


def weight(value: Any) -> int:
    """How many bytes of text the model reads of a message, a block or a list of them; pictures count flat."""
    size, pictures = _written(value)
    return size if not pictures else _weight_with_pictures(value)


def _written(value: Any) -> tuple[int, bool]:
    """How many bytes a value has as JSON, and whether there may be pictures in it."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return 0, False
    return len(text.encode("utf-8", "surrogatepass")), '"source"' in text


def _weight_with_pictures(value: Any) -> int:
    if isinstance(value, Mapping):
        if value.get("type") in ("image", "document") and isinstance(value.get("source"), Mapping):
            return IMAGE_BYTES
        content = value.get("content")
        if isinstance(content, list):
            rest = {name: each for name, each in value.items() if name != "content"}
            return weight(content) + weight(rest)
    if isinstance(value, list | tuple):
        return sum(weight(each) for each in value)
    return _written(value)[0]


def _tail_start(messages: Sequence[Mapping[str, Any]], room: int) -> int:
    """Where the recent end begins: the first answer of the model from which on everything fits into `room`."""
    start, used = len(messages), 0
    for at in range(len(messages) - 1, 0, -1):
        used += weight(messages[at])
        if used > room:
            break
        if messages[at].get("role") == "assistant":
            start = at
    return start


# -- the older part, piece by piece


def _told_before(messages: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """The pieces of messages. What the user's side said last is told apart from what has been answered."""
    calls: dict[str, Mapping[str, Any]] = {}
    pieces = list(_pieces(messages[:-1], calls))
    final = list(_pieces(messages[-1:], calls))
    fresh = [piece for piece in final if piece.kind in (Kind.PERSON, Kind.DATA)]
    pieces += [piece for piece in final if piece.kind not in (Kind.PERSON, Kind.DATA)]
    for call in calls.values():
        pieces.append(Piece(Kind.RESULT, f"{DATA_MARK} {_asked(call)}\n", "no result was recorded"))
    return [*pieces, Piece(Kind.PERSON, "", NOW), *fresh] if pieces and fresh else [*pieces, *fresh]


def _pieces(messages: Sequence[Mapping[str, Any]], calls: dict[str, Mapping[str, Any]]) -> Iterator[Piece]:
    """`calls` are those that wait for their result."""
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) else []:
            if not isinstance(block, Mapping):
                yield Piece(Kind.DATA, f"{DATA_MARK} ", _plain(block))
            elif block.get("type") == "tool_use":
                calls[str(block.get("id"))] = block
            else:
                yield from _piece(str(message.get("role")), block, calls)


def _piece(role: str, block: Mapping[str, Any], calls: dict[str, Mapping[str, Any]]) -> Iterator[Piece]:
    match block.get("type"):
        case "text" if role == "assistant":
            yield Piece(Kind.ANSWER, f"{MARK} You wrote: ", _plain(block.get("text")))
        case "text":
            yield from _said(_plain(block.get("text")))
        case "tool_result":
            call = calls.pop(str(block.get("tool_use_id")), None)
            asked = _asked(call) if call is not None else "a call that is not known any more"
            failed = " failed" if block.get("is_error") else ""
            yield _data(Kind.RESULT, f"{DATA_MARK} {asked}{failed}\n", _output(block.get("content")))
        case "thinking" | "redacted_thinking":
            return
        case kind:
            yield Piece(Kind.DATA, f"{DATA_MARK} ", f"something of the type {kind} was shown here; it is not kept")


def _said(text: str) -> Iterator[Piece]:
    """What the user's side said: a person's words, data, or pieces of an earlier condensation."""
    if text in (HEAD, NOW, "") or text.startswith(LADDER_MARK):
        return
    if text.startswith(f"{MARK} You wrote: "):
        before = f"{MARK} You wrote: "
        yield Piece(Kind.ANSWER, before, text.removeprefix(before))
    elif text.startswith(DATA_MARK) and "\n" in text:
        before, _, output = text.partition("\n")
        yield _data(Kind.RESULT, f"{before}\n", output)
    elif text.startswith((MARK, DATA_MARK)):
        yield Piece(Kind.DATA, "", text)
    else:
        yield _data(Kind.DATA if text.startswith(DATA) else Kind.PERSON, "", text)


def _data(kind: Kind, before: str, text: str) -> Piece:
    """A piece, taken out of its frame if it has one."""
    found = unframed(text)
    if found is None:
        return Piece(kind, before, text)
    return Piece(kind, before + found.before, found.text, found.source)


def _asked(call: Mapping[str, Any]) -> str:
    arguments = " ".join(_plain(call.get("input")).split())
    return f"{str(call.get('name'))[:64]} {_cut(arguments, ARGUMENTS_CHARS)}"


def _output(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(
            _plain(part["text"]) if isinstance(part, Mapping) and "text" in part else "(a part that is not kept)"
            for part in content
        )
    return _plain(content)


def _plain(value: Any) -> str:
    """Any value as text that can be written."""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False, default=str)
        except (ValueError, RecursionError):
            value = "(a value that can't be written)"
    text: str = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "\ufffd")


# -- and shortened


def _shortened(pieces: Sequence[Piece], telling: frozenset[str], room: int) -> tuple[list[dict[str, Any]], bool]:
    """The pieces in `room` bytes, and whether people's words are whole."""
    texts: list[str] = []
    for keep in STEPS:
        texts = [_told(piece, keep, telling) for piece in pieces]
        if sum(map(_size, texts)) <= room:
            return [_text(text) for text in texts], keep.person is None
    return [_text(text) for text in _newest(pieces, texts, room)], False


def _told(piece: Piece, keep: Keep, telling: frozenset[str]) -> str:
    text, most = piece.text, keep.of(piece.kind)
    if most is not None and len(text) > most:
        text = _evidence(text, keep, telling) if piece.kind is Kind.RESULT else _cut(text, most)
    if not text.strip():
        return f"{piece.before or MARK} (nothing)"
    return f"{piece.before}{text if piece.source is None else framed(piece.source, text)}"


def _evidence(text: str, keep: Keep, telling: frozenset[str]) -> str:
    """Of an output the lines that somebody spoke of, as far as they fit, and head and tail of the rest."""
    named: list[str] = []
    rest: list[str] = []
    room = keep.named
    for line in dict.fromkeys(text.splitlines()):
        if len(line) <= room and not telling.isdisjoint(_words(line)):
            named.append(line)
            room -= len(line)
        else:
            rest.append(line)
    others = "\n".join(rest)
    if named and not others.strip():
        return "\n".join(named)
    return "\n".join([*named, _cut(others, keep.result, len(text))])


def _cut(text: str, keep: int, size: int | None = None) -> str:
    """Head and tail of a text, with its true `size` between them."""
    if len(text) <= keep:
        return text
    end = keep // 4
    head, tail = text[: keep - end], text[len(text) - end :] if end else ""
    return f"{head} [… {size or len(text)} characters in all …] {tail}".strip()


def _newest(pieces: Sequence[Piece], texts: Sequence[str], room: int) -> list[str]:
    """When nothing else helps: the newest words of people first, then the newest of the rest, in their order."""
    order = sorted(range(len(texts)), key=lambda at: (pieces[at].kind is not Kind.PERSON, -at))
    kept: set[int] = set()
    for at in order:
        if _size(texts[at]) <= room:
            kept.add(at)
            room -= _size(texts[at])
    missing = len(texts) - len(kept)
    note = [LEFT_OUT.format(missing)] if missing else []
    return [*note, *(texts[at] for at in sorted(kept))]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) + 30


def _telling(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Numbers and names that people or answers speak of: what stands behind a conclusion."""
    found: set[str] = set()
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if isinstance(block, Mapping) and block.get("type") == "text":
                text = str(block.get("text"))
                if message.get("role") == "assistant" or not text.startswith((*DATA, DATA_MARK)):
                    found.update(_words(text))
    return frozenset(found)


def _words(text: str) -> set[str]:
    """Numbers, and names that are put together: what one looks for in an output."""
    return {word for word in WORD.findall(text) if NAME.search(word)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
