"""Runbooks: a folder of Markdown that the model can search, and quote by file and heading."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import quote

from bot.tools.runbooks_sections import BEGINNING, MARK, Section, with_subsections
from bot.tools.runbooks_shelf import Found, Shelf
from bot.tools.shaping import Arguments, ReadTool, count_argument, left_out, object_schema, one_line, text_argument
from core.errors import ToolError
from core.ports import Tool, ToolOutput, ToolSpec

MOST_SECTIONS = 20
MOST_EXCERPT_CHARS = 320
MOST_READ_CHARS = 12_000
MOST_NAMES = 40
MOST_LEFT_OUT = 5

SEARCH = ToolSpec(
    "runbooks_search",
    "Search the team's runbooks (Markdown). Gives the best sections, each with its citation (`file.md § Heading`) "
    "and an excerpt. Words, identifiers and parts of them are found. Quote the citation when you use what it says.",
    object_schema(
        ["query"],
        query=text_argument("Words to look for, such as a service, a symptom or the name of an alert", 500),
        limit=count_argument("How many sections", 5, MOST_SECTIONS),
    ),
)
READ = ToolSpec(
    "runbooks_read",
    "Read one section of a runbook with all that stands under it, or a whole file.",
    object_schema(
        ["citation"], citation=text_argument("As runbooks_search gives it: `file.md § Heading`, or `file.md`", 500)
    ),
)


def shelf(folder: Path) -> AbstractContextManager[Shelf]:
    """The runbooks in a folder. Nothing is read yet."""
    return closing(Shelf(folder))


def tools(books: Shelf, link_base: str | None = None) -> list[Tool]:
    """The tools; `link_base` is the address under which people find the same folder."""
    reader = Reader(books, link_base.rstrip("/") if link_base else None)
    return [ReadTool(SEARCH, reader.search, reader.check), ReadTool(READ, reader.read, reader.check)]


@dataclass(frozen=True, slots=True)
class Reader:
    """What the tools do. Every method raises only ToolError."""

    books: Shelf
    link_base: str | None

    async def check(self) -> None:
        files = await asyncio.to_thread(self.books.files)
        if not files:
            raise ToolError(
                f"The folder of runbooks {self.books.folder} has no readable Markdown file.{self._rest()}"
            )

    async def search(self, arguments: Arguments) -> ToolOutput:
        query, limit = arguments["query"], min(arguments["limit"], MOST_SECTIONS)
        found = await asyncio.to_thread(self.books.search, query, limit)
        if not found:
            files = await asyncio.to_thread(self.books.files)
            return ToolOutput(f"No section has any of these words.\n{_contents(files)}{self._rest()}")
        head = f"{len(found)} sections, best first; runbooks_read gives one in full"
        told = [f"{number}. {one.section.citation}\n{_excerpt(one)}" for number, one in enumerate(found, start=1)]
        return ToolOutput("\n".join([head, *told]) + self._rest(), self._links([one.section for one in found]))

    async def read(self, arguments: Arguments) -> ToolOutput:
        files = await asyncio.to_thread(self.books.files)
        wanted = _plain(arguments["citation"])
        for name, sections in files.items():
            if _plain(name) == wanted:
                return ToolOutput(_whole(name, sections), self._links(sections[:1]))
            for section in sections:
                if _plain(section.citation) == wanted:
                    text = _cut(with_subsections(sections, section), section.citation)
                    return ToolOutput(f"{section.citation}\n\n{text}", self._links([section]))
        raise ToolError(_not_there(arguments["citation"], files))

    def _links(self, sections: Sequence[Section]) -> list[tuple[str, str]]:
        if self.link_base is None:
            return []
        return [(one.citation, f"{self.link_base}/{quote(one.file)}{_anchor(one)}") for one in sections]

    def _rest(self) -> str:
        """What was not searched, and why."""
        missing = self.books.left_out()
        shown = [f"{name} {why}" for name, why in list(missing.items())[:MOST_LEFT_OUT]]
        more = f", and {len(missing) - len(shown)} more" if len(missing) > len(shown) else ""
        return f"\n[not searched: {', '.join(shown)}{more}]" if shown else ""


def _plain(citation: str) -> str:
    """A citation as it may be repeated: in another case, with `#` for the sign, with other spaces."""
    words = re.sub(r"(?i)(\.(?:md|markdown))\s*(?:§|#+)\s*", rf"\1{MARK}", citation.strip("`\"' \n"), count=1)
    return " ".join(words.split()).casefold()


def _whole(name: str, sections: Sequence[Section]) -> str:
    text = "\n\n".join(section.text for section in sections)
    if len(text) <= MOST_READ_CHARS:
        return f"{name}\n\n{text}"
    names = "\n".join(section.citation for section in sections[:MOST_NAMES])
    return f"{name} is long ({len(text)} characters): read it section by section.\n{names}" + left_out(
        min(len(sections), MOST_NAMES), len(sections), "sections", "search for what you need"
    )


def _cut(text: str, citation: str) -> str:
    if len(text) <= MOST_READ_CHARS:
        return text
    return f"{text[:MOST_READ_CHARS]}\n[cut here: {citation} has {len(text)} characters; search in it]"


def _excerpt(found: Found) -> str:
    """The line with most of the words, and what follows it."""
    lines = [line for line in found.section.text.split("\n") if line.strip()]
    body = lines[1:] if found.section.heading != BEGINNING and len(lines) > 1 else lines
    terms = [term.casefold() for term in found.terms]
    hits = [sum(term in line.casefold() for term in terms) for line in body]
    best = hits.index(max(hits)) if hits else 0
    return "   " + one_line(" / ".join(line.strip() for line in body[best : best + 6]), MOST_EXCERPT_CHARS)


def _anchor(section: Section) -> str:
    """Where a heading is on a page of a Git host."""
    if section.heading == BEGINNING:
        return ""
    kept = re.sub(r"[^\w\- ]", "", section.heading.lower()).strip().replace(" ", "-")
    return f"#{quote(kept)}" if kept else ""


def _contents(files: dict[str, list[Section]]) -> str:
    titles = [
        f"{name} ({next((section.heading for section in sections if section.level), 'no heading')})"
        for name, sections in list(files.items())[:MOST_NAMES]
    ]
    what = "There is no runbook." if not titles else f"The runbooks are: {', '.join(titles)}."
    return what + left_out(len(titles), len(files), "files", "search with other words")


def _not_there(citation: str, files: dict[str, list[Section]]) -> str:
    known = [*files, *(section.citation for sections in files.values() for section in sections)]
    near = get_close_matches(citation, known, 3, 0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else _contents(files)
    return f"runbooks_read: there is no {one_line(citation, 120)!r}. {hint}"
