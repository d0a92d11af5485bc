"""Long texts in parts that Slack takes.

A message has one budget for all of its Markdown, one for blocks *after* Slack has expanded the Markdown, and one for
the cells of its tables; the numbers stay below Slack's own, because the count is Slack's. What is cut is cut between
pieces, then between lines, then between words, then between what a reader sees as one character; never inside an
entity, a mention, a link or a code span, and a code block is closed before the cut and opened again after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add, gt

import regex

from bot.slack.escape import size
from bot.slack.markdown import FENCE, MAX_CELL_CHARS, MAX_ROWS, Piece

MARKDOWN_LIMIT = 11_000
TEXT_LIMIT = 3_900
SECTION_LIMIT = 2_900
MAX_BLOCKS = 40
SPARE = 60

_ATOM = regex.compile(
    r"&(?:amp|lt|gt);|<@[UW][A-Z0-9]+>|<https?://[^<>\n]*>|`` [^\n]*? ``|`[^`\n]+`|\[[^\[\]\n]*\]\([^()\n]*\)|\X"
)
_CODE_ATOM = regex.compile(r"&(?:amp|lt|gt);|\X")
_FENCE_LINE = regex.compile(rf"(?P<lead>[> 0-9.)-]*?){FENCE}(?P<info>[^`]*)$")


@dataclass(frozen=True, slots=True)
class Part:
    """What goes into one message: the Markdown, and the same for `text`."""

    text: str
    plain: str


def parts(pieces: Sequence[Piece], limit: int = MARKDOWN_LIMIT) -> list[Part]:
    """The pieces in as few messages as the limits allow, in order."""
    packed: list[list[Piece]] = []
    used = room = (limit, MAX_BLOCKS, MAX_CELL_CHARS, MAX_ROWS)
    for piece in _small(pieces, limit):
        needed = (size(piece.text) + 2, piece.blocks, piece.cells, piece.rows)
        used = tuple(map(add, used, needed))
        if not packed or any(map(gt, used, room)):
            packed.append([])
            used = needed
        packed[-1].append(piece)
    return [Part("\n\n".join(p.text for p in group), "\n\n".join(p.plain for p in group)) for group in packed]


def _small(pieces: Iterable[Piece], limit: int) -> Iterator[Piece]:
    for piece in pieces:
        if size(piece.text) + 2 <= limit and piece.blocks <= MAX_BLOCKS:
            yield piece
            continue
        most_lines = None if piece.blocks <= MAX_BLOCKS else MAX_BLOCKS
        for text in cut(piece.text, limit - 2, most_lines):
            yield Piece(text, text, min(piece.blocks, MAX_BLOCKS))


def cut(text: str, limit: int, most_lines: int | None = None) -> list[str]:
    """A text in parts of at most `limit`, cut between lines where that is possible; code blocks stay code blocks."""
    done: list[str] = []
    lines: list[str] = []
    fence = ""
    used = 0
    for line in _short_lines(text, limit // 2):
        needed = size(line) + 1
        if lines and (used + needed + len(fence) > limit - SPARE or len(lines) == most_lines):
            done.append(_closed(lines, fence))
            lines = [fence] if fence else []
            used = size(fence) + 1
        fence = _next_fence(fence, line)
        lines.append(line)
        used += needed
    return [*done, "\n".join(lines)]


def _closed(lines: Sequence[str], fence: str) -> str:
    return "\n".join([*lines, _closing(fence)] if fence else lines)


def _closing(fence: str) -> str:
    return fence[: fence.index(FENCE)] + FENCE if fence else ""


def _next_fence(fence: str, line: str) -> str:
    """The line that reopens the code block in which the text is after `line`; empty outside of one."""
    hit = _FENCE_LINE.match(line)
    if hit is None:
        return fence
    if fence:
        return "" if not hit["info"].strip() else fence
    lead = regex.sub(r"[^> ]", " ", hit["lead"])
    return f"{lead}{FENCE}{hit['info'].rstrip()}"


def _short_lines(text: str, limit: int) -> Iterator[str]:
    inside = ""
    for line in text.split("\n"):
        if size(line) <= limit:
            yield line
        else:
            yield from cut_line(line, limit, code=bool(inside))
        inside = _next_fence(inside, line)


def cut_line(line: str, limit: int, *, code: bool = False) -> list[str]:
    """One line in parts of at most `limit`, at white space if there is any in the last quarter."""
    done: list[str] = []
    atoms: list[str] = []
    used = 0
    for atom in _atoms(line, limit, code=code):
        if used + size(atom) > limit and atoms:
            keep = _last_space(atoms)
            done.append("".join(atoms[:keep]))
            atoms = atoms[keep:]
            used = sum(map(size, atoms))
        atoms.append(atom)
        used += size(atom)
    return [*done, "".join(atoms)]


def _last_space(atoms: Sequence[str]) -> int:
    for index in range(len(atoms), len(atoms) * 3 // 4, -1):
        if atoms[index - 1].isspace():
            return index
    return len(atoms)


def _atoms(line: str, limit: int, *, code: bool) -> Iterator[str]:
    for atom in (_CODE_ATOM if code else _ATOM).findall(line):
        if size(atom) <= limit // 4 or code:
            yield from _bounded(atom, limit)
        elif atom.startswith("`"):
            for inner in cut_line(atom.strip("` "), limit // 4, code=True):
                yield f"`{inner}`"
        else:
            yield from (small for inner in _CODE_ATOM.findall(atom) for small in _bounded(inner, limit))


def _bounded(atom: str, limit: int) -> Iterator[str]:
    """A character with thousands of marks on it is one cluster; past the limit it is not one that anybody reads."""
    if size(atom) <= limit // 4:
        yield atom
    else:
        yield from atom


def shortened(text: str, limit: int = TEXT_LIMIT) -> str:
    """The beginning of an escaped text, whole words and entities, with an ellipsis if there was more."""
    if size(text) <= limit:
        return text
    first = cut(text, limit - 10)[0].rstrip()
    return f"{first}\n\u2026"
