"""The model reads a part that it can use; people who check find the whole, once, and without secrets."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence import MARGIN, MOST_KEPT, Kept, KeptKind, clean, kept_of, narrowing
from core.ports import Snapshot, ToolOutput

TOKEN = "xoxb-123456789012-1234567890123-" + "Ab1" * 8
LINE = "2026-01-01T00:00:00Z gateway-7 504 after 30 s\n"


def kept(text: str, limit: int = 1_000, narrower: str = "") -> tuple[str, Kept | None]:
    return kept_of(ToolOutput(text), limit, narrower)


def test_an_output_that_the_model_reads_whole_is_kept_nowhere_else() -> None:
    assert kept("x" * 1_000) == ("x" * 1_000, None)


def test_of_a_long_output_the_model_reads_the_beginning_how_much_is_missing_and_how_to_ask_for_less() -> None:
    text = LINE * 1_000
    shown, found = kept(text, 100, "Ask for less.")
    assert shown == (
        f"{text[:100]}\n[cut: 45,900 of 46,000 characters are left out here; all of it is kept for people. "
        "Ask for less.]"
    )
    assert found is not None
    assert (found.kind, found.body, found.chars) == (KeptKind.OUTPUT, text, len(text))
    assert found.digest == hashlib.sha256(text.encode()).hexdigest()


def test_the_same_output_is_the_same_evidence_and_another_one_is_not() -> None:
    first, again, other = (kept(text * 1_000)[1] for text in (LINE, LINE, LINE[1:]))
    assert first is not None and again is not None and other is not None
    assert first.id == again.id != other.id


def test_evidence_ends_at_its_limit_and_says_how_long_it_was() -> None:
    shown, found = kept("word " * 300_000)
    assert found is not None and (len(found.body), found.chars) == (MOST_KEPT, 1_500_000)
    assert "1,499,000 of 1,500,000 characters are left out here; the first 1,000,000 are kept for people." in shown


@pytest.mark.parametrize("before", [0, 990, 1_000 + MARGIN - 20, MOST_KEPT - 20, MOST_KEPT + MARGIN - 20])
def test_no_secret_is_cut_in_two_where_nobody_knows_it_any_more(before: int) -> None:
    text = f"{('w ' * (before // 2 + 1))[:before]} {TOKEN} {'w ' * 600_000}"
    shown, found = kept(text)
    assert found is not None
    for place in (shown, found.body, clean(text, 1_000)):
        assert TOKEN[:12] not in place
    assert TOKEN not in repr(found)


def test_what_is_no_text_is_not_kept() -> None:
    assert kept("\x7fELF\x02\x01\x01\x00\x00" * 1_000) == ("[binary: 9000 characters were not kept]", None)


def test_a_page_is_kept_as_it_was_read_however_short_it_is_and_once() -> None:
    page = Snapshot("https://docs.example.com/a", 1_790_000_000.5, "d" * 64, f"# Title\n\nwhole page, {TOKEN}")
    for text in ("beginning of it", "from the cache"):
        shown, found = kept_of(ToolOutput(text, snapshot=page), 1_000)
        assert shown == text
        assert found is not None
        assert (found.kind, found.url, found.taken_at) == (KeptKind.PAGE, page.url, page.taken_at)
        assert (found.digest, found.body) == (page.digest, "# Title\n\nwhole page, [redacted Slack token]")
        assert found.id == kept_of(ToolOutput("again", snapshot=page), 1_000)[1].id  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"query": {}, "limit": {}}}, "left out, call again with a narrower `query`, `limit`."),
        ({"properties": {str(n): {} for n in range(9)}}, "call again with a narrower `0`, `1`, `2`, `3`, `4`."),
        ({"properties": {}}, "To see what is left out, look another way."),
        ({"properties": []}, "look another way"),
        ({}, "look another way"),
    ],
)  # fmt: skip
def test_how_to_ask_for_less_names_the_arguments(schema: dict[str, Any], says: str) -> None:
    assert says in narrowing(schema)


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=300), st.integers(1, 80))
def test_whatever_a_tool_says_both_parts_can_be_stored_and_are_bounded(text: str, limit: int) -> None:
    shown, found = kept(text, limit)
    for part in (shown, found.body if found is not None else ""):
        part.encode()
        assert "\x00" not in part
    assert len(shown) <= limit + 200
