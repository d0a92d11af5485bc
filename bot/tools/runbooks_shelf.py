"""The folder of runbooks and its index: SQLite's full-text search, in memory, as fresh as the files.

Two tables stand side by side. `words` finds words in all their English forms, and Chinese, Japanese and Korean by
pairs of characters, since nothing parts their words. `pieces` finds any three characters in a row, so half of an
identifier is enough. Where a section stands in the two lists is added up (reciprocal rank fusion).

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from bot.tools.runbooks_sections import Section, sections_of
from bot.tools.shaping import cleaned, one_line
from core.errors import ToolError

ENDINGS = (".md", ".markdown")
MOST_BYTES = 256 * 1024
MOST_FILES = 2_000
DEEPEST = 12
MOST_TERMS = 40
CANDIDATES = 60
FUSION = 60
PIECES_WEIGHT = 0.5
HEADING_WEIGHT, BODY_WEIGHT = 6.0, 1.0

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_CJK_CHAR = re.compile(f"([{CJK}])")
_RUNS = re.compile(f"[{CJK}]+|[^{CJK}\\s]+")
_COMMON = """
a an and are as at be been but by can could did do does for from had has have how i if in into is it its me my no not
of on or our should so that the their them then there these they this to was we were what when where which who why
will with would you your
"""
COMMON = frozenset(_COMMON.split())
"""Words that stand in every question and say nothing about what it is about."""

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """A section, and the words of the query in it."""

    section: Section
    terms: Sequence[str]


@dataclass(slots=True)
class _File:
    """What is known of one file: how it was when it was read, its sections, and their rows."""

    stamp: Stamp
    sections: list[Section]
    rows: list[int]


@dataclass(slots=True)
class Shelf:
    """The runbooks of a folder. Every method looks first whether files have changed, and raises only ToolError."""

    folder: Path
    _files: dict[str, _File] = field(init=False, default_factory=dict)
    _rows: dict[int, Section] = field(init=False, default_factory=dict)
    _left_out: dict[str, str] = field(init=False, default_factory=dict)
    _kept_out: dict[str, tuple[Stamp, str]] = field(init=False, default_factory=dict)
    _index: sqlite3.Connection = field(init=False)
    _lock: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        self._index = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        words = "porter unicode61 remove_diacritics 2"
        self._index.execute(f"CREATE VIRTUAL TABLE words USING fts5(heading, body, tokenize='{words}')")
        self._index.execute("CREATE VIRTUAL TABLE pieces USING fts5(heading, body, tokenize='trigram')")

    def close(self) -> None:
        with self._lock:
            self._index.close()

    def files(self) -> dict[str, list[Section]]:
        """The sections of every file, by its path in the folder."""
        with self._lock:
            self._refresh()
            return {name: file.sections for name, file in sorted(self._files.items())}

    def left_out(self) -> dict[str, str]:
        """What was not read at the last look, and why."""
        return dict(self._left_out)

    def search(self, query: str, limit: int) -> list[Found]:
        """The sections that fit best, best first."""
        terms = terms_of(query)
        with self._lock:
            self._refresh()
            if not terms:
                return []
            scores: dict[int, float] = {}
            words = ("words", [_spaced(term) for term in terms], 1.0)
            for table, wanted, weight in (words, ("pieces", pieces_of(query), PIECES_WEIGHT)):
                for rank, row in enumerate(self._matches(table, wanted)):
                    scores[row] = scores.get(row, 0.0) + weight / (FUSION + rank)
            best = sorted(scores, key=lambda row: (-scores[row], self._rows[row].citation))[:limit]
            return [Found(self._rows[row], terms) for row in best]

    def _matches(self, table: str, terms: Sequence[str]) -> list[int]:
        if not terms:
            return []
        query = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
        order = f"bm25({table}, {HEADING_WEIGHT}, {BODY_WEIGHT})"
        select = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY {order}, rowid LIMIT ?"
        return [int(row) for (row,) in self._index.execute(select, (query, CANDIDATES))]

    def _refresh(self) -> None:
        """Read what is new or has changed, forget what is gone."""
        self._left_out = {}
        there = dict(self._walk())
        for name in [name for name in self._files if name not in there]:
            self._forget(name)
        for name, (path, stamp) in there.items():
            known = self._files.get(name)
            if known is not None and known.stamp == stamp:
                continue
            if self._kept_out.get(name, (None, ""))[0] == stamp:
                self._left_out[name] = self._kept_out[name][1]
                continue
            self._forget(name)
            try:
                text = _text(path)
            except ToolError as error:
                self._left_out[name] = str(error)
                self._kept_out[name] = (stamp, str(error))
                continue
            self._kept_out.pop(name, None)
            self._shelve(name, stamp, sections_of(name, text))

    def _forget(self, name: str) -> None:
        known = self._files.pop(name, None)
        for row in known.rows if known else ():
            del self._rows[row]
            for table in ("words", "pieces"):
                self._index.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))

    def _shelve(self, name: str, stamp: Stamp, sections: list[Section]) -> None:
        rows = []
        for section in sections:
            spaced = (_spaced(section.citation), _spaced(section.text))
            row = self._index.execute("INSERT INTO words (heading, body) VALUES (?, ?)", spaced).lastrowid
            assert row is not None
            pieces = (row, section.citation, section.text)
            self._index.execute("INSERT INTO pieces (rowid, heading, body) VALUES (?, ?, ?)", pieces)
            self._rows[row] = section
            rows.append(row)
        self._files[name] = _File(stamp, sections, rows)

    def _walk(self) -> Iterator[tuple[str, tuple[Path, Stamp]]]:
        """Every Markdown file in the folder, as it may be read. Raises ToolError when there is no folder."""
        try:
            root = self.folder.resolve(strict=True)
            if not root.is_dir():
                raise NotADirectoryError(20, "it is no folder")
        except (OSError, RuntimeError, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise ToolError(f"The folder of runbooks {self.folder} can't be read: {why}.") from error
        count = 0
        for name, path in self._inside(root, root, "", 0, {root}):
            count += 1
            if count > MOST_FILES:
                self._left_out["the rest"] = f"there are more than {MOST_FILES} files"
                return
            try:
                found = path.stat()
            except OSError as error:
                self._left_out[name] = f"can't be read ({error.strerror})"
                continue
            if stat.S_ISREG(found.st_mode):
                yield name, (path, (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino))
            else:
                self._left_out[name] = "is no plain file"

    def _inside(
        self, root: Path, folder: Path, prefix: str, depth: int, seen: set[Path]
    ) -> Iterator[tuple[str, Path]]:
        """Files by name. A link is followed if it stays in the folder; hidden files and folders are not looked at."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self._left_out[prefix or "the folder"] = f"can't be read ({error.strerror})"
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name, path = one_line(cleaned(f"{prefix}{entry.name}")), Path(entry.path)
            real = Path(os.path.realpath(path))
            if entry.is_symlink() and not real.is_relative_to(root):
                self._left_out[name] = "is a link out of the folder"
            elif real.is_dir():
                if depth >= DEEPEST:
                    self._left_out[name] = "is nested too deeply"
                elif real not in seen:
                    seen.add(real)
                    yield from self._inside(root, real, f"{prefix}{entry.name}/", depth + 1, seen)
            elif entry.name.lower().endswith(ENDINGS) and real not in seen:
                seen.add(real)
                yield name, real


def _text(path: Path) -> str:
    """A file as text. Raises ToolError with what is wrong with it."""
    try:
        with open(path, "rb", opener=_plainly) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ToolError(f"can't be read ({error.strerror})") from error
    if len(data) > MOST_BYTES:
        raise ToolError(f"is larger than {MOST_BYTES // 1024} KB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError("is not UTF-8 text") from error
    return cleaned(text.replace("\r\n", "\n").replace("\r", "\n"))


def _plainly(path: str, flags: int) -> int:
    """Opens what is a file by now, too: no link, and nothing that would let us wait."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def terms_of(query: str) -> list[str]:
    """What to look for: words and identifiers as they stand, and pairs of characters where nothing parts words."""
    found: dict[str, None] = {}
    for run in _RUNS.findall(cleaned(query)):
        if _CJK_CHAR.match(run):
            found |= dict.fromkeys(run[place : place + 2] for place in range(max(len(run) - 1, 1)))
        else:
            term = run.strip("\"'`*_.,:;!?()[]{}<>，。！？：；（）「」")
            if any(char.isalnum() for char in term):
                found[term] = None
    telling = [term for term in found if term.lower() not in COMMON]
    return (telling or list(found))[:MOST_TERMS]


def _spaced(text: str) -> str:
    """Text in which each character of a language without spaces is a word of its own."""
    return _CJK_CHAR.sub(r" \1 ", text)


def pieces_of(query: str) -> list[str]:
    """What three characters in a row can find: words and identifiers, and every three where nothing parts words."""
    found = [term for term in terms_of(query) if len(term) >= 3]
    for run in re.findall(f"[{CJK}]{{3,}}", cleaned(query)):
        found += [run[place : place + 3] for place in range(len(run) - 2)]
    return found[: 2 * MOST_TERMS]
