"""A page as the model reads it: Markdown, the main content first, menus and scripts gone, within a limit."""

from __future__ import annotations

import codecs
from typing import Any

import lxml.html
from html_to_markdown import ConversionOptions, convert
from lxml.etree import ParserError

from core.evidence import clean

NOISE = ("script", "style", "noscript", "template", "svg", "iframe", "nav", "footer", "aside", "form", "header")
CHARSETS = ("ascii", "big5", "cp", "euc", "gb", "iso8859", "iso2022", "koi8", "latin", "mac", "shift_jis", "utf")
"""How the names of encodings begin that pages are written in; others do something else to bytes."""
MAIN = ("//main", "//*[@role='main']", "//article", "//body")
CUT = "\n\n[cut: the page goes on]"


def markdown_of(body: bytes, charset: str, *, html: bool, limit: int) -> str:
    """The page's text, at most `limit` characters. Never raises for what a page does."""
    text = body.decode(_encoding(charset), "replace")
    if html:
        text = _converted(text)
    return beginning(clean(text.strip(), limit), limit)


def _encoding(charset: str) -> str:
    """The encoding that a page names, if it is one."""
    try:
        name = codecs.lookup(charset).name.replace("-", "_")
    except (LookupError, ValueError):
        return "utf-8"
    return name if name.startswith(CHARSETS) else "utf-8"


def beginning(text: str, limit: int) -> str:
    """The first part of a page that is longer than `limit` characters, which says so."""
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


def _converted(text: str) -> str:
    try:
        page: Any = lxml.html.document_fromstring(text.encode("utf-8"), parser=lxml.html.HTMLParser(encoding="utf-8"))
    except (ParserError, ValueError):
        return ""
    for noise in list(page.iter(*NOISE)):
        if noise.tag != "header" or next(noise.iterancestors("main"), None) is None:
            noise.drop_tree()
    title = page.findtext(".//title") or ""
    main = next((found[0] for path in MAIN if (found := page.xpath(path))), page)
    rest = lxml.html.tostring(main, encoding="unicode")
    said = convert(rest, ConversionOptions()).content or ""
    return f"# {title.strip()}\n\n{said}" if title.strip() and not said.lstrip().startswith("# ") else said
