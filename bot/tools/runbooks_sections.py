"""A Markdown file as sections, each with the citation under which people and the model find it again.

A section is a heading and what follows up to the next one; what stands before the first heading is a section too.
Headings are what Markdown takes for them: a `#` in a block of code, in a quotation or in a list is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt

from bot.tools.shaping import one_line

MARK = " § "
BEGINNING = "(beginning)"
MOST_HEADING_CHARS = 160
MOST_MARKED_CHARS = 1_000
MOST_HEADINGS = 2_000
"""In one file; what stands under the rest belongs to the last one."""

_BLOCKS = MarkdownIt("commonmark")
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])
_WORDS = MarkdownIt("commonmark")


@dataclass(frozen=True, slots=True)
class Section:
    """One section. `text` has its heading line and nothing of the sections below it; lines count from 0."""

    file: str
    heading: str
    citation: str
    level: int
    first_line: int
    text: str


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    line: int
    words: str
    above: tuple[str, ...]


def sections_of(file: str, text: str) -> list[Section]:
    """The sections of a file, in order; empty ones are left out."""
    lines = text.split("\n")
    headings = list(_headings(lines))
    names = _names(headings)
    starts = [0, *(heading.line for heading in headings)]
    found = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(lines)
        body = "\n".join(lines[start:end]).strip()
        level, heading = (headings[number - 1].level, headings[number - 1].words) if number else (0, BEGINNING)
        name = names[number - 1] if number else BEGINNING
        if body:
            found.append(Section(file, heading, f"{file}{MARK}{name}", level, start, body))
    return found


def _front_matter(lines: Sequence[str]) -> int:
    """How many lines at the top are settings for other programs, between two lines of `---`."""
    if lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() in ("---", "..."):
            return number + 1
        if not line.strip():
            break
    return 0


def _headings(lines: Sequence[str]) -> Iterator[_Heading]:
    """The headings of a file. Front matter is no Markdown: its end would be taken for the line under a heading."""
    front = _front_matter(lines)
    tokens = _BLOCKS.parse("\n".join([*[""] * front, *lines[front:]]))
    above: list[tuple[int, str]] = []
    count = 0
    for opened, inline in pairwise(tokens):
        if opened.type != "heading_open" or opened.level or not opened.map:
            continue
        if count == MOST_HEADINGS:
            return
        count += 1
        level, words = int(opened.tag[1:]), _words(inline.content[:MOST_MARKED_CHARS])
        above = [(rank, name) for rank, name in above if rank < level]
        yield _Heading(level, opened.map[0], words, tuple(name for _, name in above))
        above.append((level, words))


def _words(source: str) -> str:
    """A heading without its markup."""
    parts = [child for token in _WORDS.parseInline(source) for child in token.children or []]
    words = "".join(" " if part.type in ("softbreak", "hardbreak") else part.content for part in parts)
    return one_line(words, MOST_HEADING_CHARS) or "(no words)"


def _names(headings: Sequence[_Heading]) -> list[str]:
    """A name for each heading that no other in the file has: with what it is under, or a number, if it needs one."""
    deepest = max((len(heading.above) for heading in headings), default=0)
    longer = [[_under(heading, depth) for heading in headings] for depth in range(deepest + 1)]
    counted = [Counter(names) for names in longer]
    numbers: Counter[str] = Counter()
    chosen: dict[str, None] = {}
    for place in range(len(headings)):
        tried = [names[place] for names in longer]
        name = next((one for one, counts in zip(tried, counted, strict=True) if counts[one] == 1), tried[-1])
        numbers[name] += 1
        numbered = name
        while numbered in chosen:
            numbered = f"{name} ({numbers[name]})"
            numbers[name] += 1
        chosen[numbered] = None
    return list(chosen)


def _under(heading: _Heading, depth: int) -> str:
    """A heading behind the `depth` headings next above it."""
    return " > ".join([*(heading.above[-depth:] if depth else ()), heading.words])


def with_subsections(sections: Sequence[Section], chosen: Section) -> str:
    """A section and all that stands under it."""
    place = sections.index(chosen)
    below: list[str] = [chosen.text]
    for section in sections[place + 1 :]:
        if chosen.level == 0 or section.level <= chosen.level:
            break
        below.append(section.text)
    return "\n\n".join(below)
