"""A model's Markdown, read by a parser and written anew in the few shapes that Slack draws well.

    read(text, style)   ->  pieces: paragraphs, headings, lists, quotes, rules, tables, code blocks

Two dialects: `MARKDOWN` for `markdown` blocks, `MRKDWN` for the `text` of a message (and for everything when Slack
refuses blocks). The parser decides what is code, what is a link and what is a table; what it drops on purpose (the
cells of a row that is too long, what is nested too deep) is noticed, because the words of each piece are counted: a
piece that would lose a word is shown as its own source, in a code block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import regex
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from rich.cells import cell_len

from bot.slack.escape import MENTION, Prose, clean, code_lines, code_span, escape, glued, quiet, size, unescape

MAX_CELL_CHARS = 10_000
MAX_ROWS = 100
MAX_COLUMNS = 20
EMPTY_CELL = "-"
FENCE = "```"
_LONGEST_LABEL = 500

_LANGUAGE = regex.compile(r"[A-Za-z0-9+#.-]{1,20}")
_WORD = regex.compile(r"[^\W_]+")
_STARTS_A_BLOCK = regex.compile(
    r"(?:(?:#{1,6}|[-+*]|\d{1,9}[.)])(?=\s|$)|>|~~~|=+\s*$|-+\s*$|(?:[-*_][ \t]*+){3,}$|\|)"
)
_DEFINES = regex.compile(r"\[(?:[^\[\]\\]|\\.)++\]:", regex.DOTALL)
_EXPANDING = frozenset({"heading", "hr", "table", "fence", "code_block", "blockquote"})


def _parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough, no HTML, and nothing that hides words from the reader."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["reference", "entity", "html_block", "html_inline", "text_join"])
    for name in ("normalizeLink", "normalizeLinkText"):
        setattr(parser, name, str)
    return parser


_PARSER = _parser()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the marks are spelled."""

    strong: str
    em: str
    strike: str
    headings: bool
    tables: bool
    languages: bool
    escapes: bool


MARKDOWN = Dialect("**", "*", "~~", headings=True, tables=True, languages=True, escapes=True)
MRKDWN = Dialect("*", "_", "~", headings=False, tables=False, languages=False, escapes=False)


def _mrkdwn_link(label: str, address: str) -> str:
    return f"<{escape(address)}|{label.replace('|', '/')}>"


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of an answer. `blocks` is what Slack makes of it; `cells` and `rows` count for its tables."""

    text: str
    plain: str
    blocks: int = 1
    cells: int = 0
    rows: int = 0


def read(text: str, *, mentions: Collection[str], hosts: Collection[str], limit: int) -> list[Piece]:
    """The pieces of a model's Markdown. One longer than `limit` loses its bold marks, so that it can be cut."""
    text = clean(text)
    lines = text.split("\n")
    rich = _Writer(MARKDOWN, Prose(mentions, hosts))
    plain = _Writer(MRKDWN, Prose(mentions, hosts, _mrkdwn_link, mrkdwn=True))
    pieces: list[Piece] = []
    at = 0
    for node in _blocks(text):
        start, end = node.map or (at, at)
        pieces += _source(lines[at:start])
        at = max(at, end)
        pieces += _piece(node, lines[start:end], rich, plain, limit)
    return pieces + _source(lines[at:])


def _blocks(text: str) -> list[SyntaxTreeNode]:
    """The tree of the blocks. Inline marks stay a flat list, put aside: their depth has no limit, a stack has one."""
    tokens = _PARSER.parse(text)
    for token in tokens:
        token.meta = {"marks": token.children or []}
        token.children = None
    return SyntaxTreeNode(tokens).children


def _piece(node: SyntaxTreeNode, source: Sequence[str], rich: _Writer, plain: _Writer, limit: int) -> list[Piece]:
    written = "\n".join(rich.block(node))
    if size(written) > limit:
        written = "\n".join(rich.unmarked().block(node))
    flat = "\n".join(plain.block(node))
    if not written.strip() and not flat.strip():
        return _source(source)
    if _lost(source, written) or _lost(source, flat):
        return _source(source)
    expanding = sum(1 for inner in node.walk() if inner.type in _EXPANDING)
    cells, rows = _cells(node) if node.type == "table" and rich.draws(node) else (0, 0)
    return [Piece(quiet(written), quiet(flat), max(1, expanding), cells, rows)]


def _source(lines: Sequence[str]) -> list[Piece]:
    """Lines as they came, in a code block."""
    if not any(line.strip() for line in lines):
        return []
    source = "\n".join(lines).strip("\n")
    text, plain = (quiet("\n".join([FENCE, *code_lines(source, mrkdwn=mrkdwn), FENCE])) for mrkdwn in (False, True))
    return [Piece(text, plain)]


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.replace("\u200b", "")))


def _lost(source: Sequence[str], written: str) -> bool:
    before = MENTION.sub(r" \1 ", "\n".join(source))
    return bool(_words(before) - (_words(unescape(written)) | _words(written)))


def _rows(table: SyntaxTreeNode) -> list[list[SyntaxTreeNode]]:
    return [row.children for section in table.children for row in section.children]


def _cells(table: SyntaxTreeNode) -> tuple[int, int]:
    rows = _rows(table)
    return sum(len(_raw(cell)) or 1 for row in rows for cell in row), len(rows)


def _raw(cell: SyntaxTreeNode) -> str:
    return cell.children[0].content if cell.children else ""


class _Writer:
    """Writes blocks and inline marks in one dialect."""

    def __init__(self, dialect: Dialect, prose: Prose) -> None:
        self._dialect = dialect
        self._prose = prose
        self._label = replace(prose, mentions=(), hosts=())

    def unmarked(self) -> _Writer:
        """The same without bold, italic and strikethrough."""
        return _Writer(replace(self._dialect, strong="", em="", strike=""), self._prose)

    def draws(self, table: SyntaxTreeNode) -> bool:
        """Whether this table can be sent as a table."""
        rows = _rows(table)
        chars, count = _cells(table)
        fits = chars <= MAX_CELL_CHARS and count <= MAX_ROWS and len(rows[0]) <= MAX_COLUMNS
        return self._dialect.tables and fits and table.parent is not None and table.parent.type == "root"

    def block(self, node: SyntaxTreeNode) -> list[str]:
        """The lines of one block."""
        match node.type:
            case "paragraph":
                return self._paragraph(node)
            case "heading":
                return self._heading(node)
            case "fence" | "code_block":
                return self._code(node)
            case "hr":
                return ["---"]
            case "blockquote":
                return [f"> {line}".rstrip() for line in self._stack(node.children)]
            case "bullet_list" | "ordered_list":
                return [line for item in node.children for line in self._item(item)]
            case "table":
                return self._table(node)
            case _:
                return self._stack(node.children)

    def _stack(self, nodes: Sequence[SyntaxTreeNode]) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            written = self.block(node)
            tight = node.type in ("bullet_list", "ordered_list") and lines
            lines += written if tight or not lines else ["", *written]
        return lines

    def _paragraph(self, node: SyntaxTreeNode) -> list[str]:
        text = self._inline(node)
        if self._dialect.escapes and _DEFINES.match(text):
            text = f"\\{text}"
        return [self._not_a_block(line) for line in text.split("\n")]

    def _not_a_block(self, line: str) -> str:
        line = line.lstrip()
        hit = _STARTS_A_BLOCK.match(line) if self._dialect.escapes else None
        if hit is None:
            return line
        at = hit.end() - 1 if line[0].isdigit() else 0
        return f"{line[:at]}\\{line[at:]}"

    def _heading(self, node: SyntaxTreeNode) -> list[str]:
        if self._dialect.headings:
            title = " ".join(self._inline(node).split("\n"))
            return [f"{'#' * int(node.tag[1])} {title}".rstrip()]
        bare = " ".join(self.unmarked()._inline(node).split("\n"))
        mark = self._dialect.strong
        return [f"{mark}{bare}{mark}" if bare.strip() and "`" not in bare else bare]

    def _code(self, node: SyntaxTreeNode) -> list[str]:
        info = node.info.strip()
        content = node.content.removesuffix("\n")
        named = bool(_LANGUAGE.fullmatch(info))
        if info and not named:
            content = f"{info}\n{content}"
        body = [
            FENCE + (info if named and self._dialect.languages else ""),
            *code_lines(content, mrkdwn=self._prose.mrkdwn),
            FENCE,
        ]
        return [f"{info}:", *body] if named and not self._dialect.languages else body

    def _item(self, item: SyntaxTreeNode) -> list[str]:
        mark = f"{item.info}{item.markup} " if item.info else "- "
        first, *others = self._stack(item.children) or [""]
        return [(mark + first).rstrip(), *((" " * len(mark) + line).rstrip() for line in others)]

    def _table(self, table: SyntaxTreeNode) -> list[str]:
        if not self.draws(table):
            cells = [[_raw(cell) or EMPTY_CELL for cell in row] for row in _rows(table)]
            return [FENCE, *code_lines(_aligned(cells), mrkdwn=self._prose.mrkdwn), FENCE]
        rows = [[self._cell(cell) for cell in row] for row in _rows(table)]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]

    def _cell(self, cell: SyntaxTreeNode) -> str:
        written = self._inline(cell) if cell.children else ""
        return regex.sub(r"(?<!\\)\|", r"\\|", written) or EMPTY_CELL

    def _inline(self, node: SyntaxTreeNode) -> str:
        """The inline marks of a block, read as a flat list."""
        tokens: list[Token] = [token for child in node.children for token in child.meta["marks"]]
        done: list[str] = []
        links: list[tuple[int, Token]] = []
        for token, text in _joined(tokens, as_written=self._dialect.escapes):
            match token.type:
                case "link_open":
                    links.append((len(done), token))
                case "link_close" if links:
                    start, opened = links.pop()
                    done[start:] = [self._link(glued(done[start:]), opened)]
                case _:
                    done.append(self._mark(token, text, linked=bool(links)))
        return glued(done)

    def _mark(self, token: Token, text: str, *, linked: bool) -> str:
        match token.type:
            case "text" | "text_special":
                return self._label.words(text) if linked else self._prose.words(text)
            case "softbreak":
                return "\n"
            case "hardbreak":
                return "\\\n" if self._dialect.escapes else "\n"
            case "strong_open" | "strong_close":
                return self._dialect.strong
            case "em_open" | "em_close":
                return self._dialect.em
            case "s_open" | "s_close":
                return self._dialect.strike
            case "code_inline":
                return code_span(token.content, mrkdwn=self._prose.mrkdwn)
            case "image":
                return self._link(escape(token.content), token)
            case _:
                return escape(token.content)

    def _link(self, label: str, token: Token) -> str:
        address = str(token.attrGet("href") or token.attrGet("src") or "").removeprefix("mailto:")
        title = str(token.attrGet("title") or "")
        after = f" ({self._prose.words(title)})" if title else ""
        if unescape(label).strip("`") == address:
            label = ""
        if not address:
            return f"{label}{after}"
        if size(label) > _LONGEST_LABEL or "\n" in label:
            return f"{label} ({self._prose.address(address)}){after}"
        return self._prose.address(address, label) + after


def _joined(tokens: Sequence[Token], *, as_written: bool) -> list[tuple[Token, str]]:
    """The tokens, with text and escaped characters in one; what was no code and no link must not become one."""
    joined: list[tuple[Token, str]] = []
    for token in tokens:
        if token.type not in ("text", "text_special"):
            joined.append((token, ""))
            continue
        text = token.markup if token.type == "text_special" and as_written else token.content
        text = text.replace("\\`", "'").replace("`", "'")
        if joined and joined[-1][0].type in ("text", "text_special"):
            joined[-1] = (joined[-1][0], joined[-1][1] + text)
        else:
            joined.append((token, text))
    return [(token, text.replace("](", "] (")) for token, text in joined]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as columns of one width, for a code block."""
    widths = [min(40, max(map(cell_len, column))) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
