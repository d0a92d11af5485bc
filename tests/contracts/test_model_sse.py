"""The SSE parser reads what the standard says, however the bytes are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.sse import Event, SseParser

STREAM = (
    '\ufeff: a comment\r\nevent: one\r\ndata: {"a": 1}\r\n\r\n'
    "data:no space\rdata: 第二行\r\r"
    "event: dropped for it has no data\n\n"
    "id: 7\nretry: 10\nnobody knows this: x\ndata\ndata: after an empty line\n\n"
    "data: never dispatched"
)
EVENTS = [
    Event("one", '{"a": 1}'),
    Event("", "no space\n第二行"),
    Event("", "\nafter an empty line"),
]


def test_line_ends_comments_bom_and_several_data_lines_are_read_as_the_standard_says() -> None:
    assert SseParser().feed(STREAM.encode()) == EVENTS


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    parser = SseParser()
    found = [event for byte in STREAM.encode() for event in parser.feed(bytes([byte]))]
    assert found == EVENTS


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=8))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    data, parser = STREAM.encode(), SseParser()
    edges = [0, *sorted(cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert [event for chunk in chunks for event in parser.feed(chunk)] == EVENTS


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_each_line_end_dispatches_at_the_blank_line(end: str) -> None:
    parser = SseParser()
    assert parser.feed(f"data: x{end}".encode()) == []
    assert parser.feed(end.encode()) == [Event("", "x")]


def test_bytes_that_are_no_text_are_replaced_not_raised() -> None:
    assert SseParser().feed(b"data: \xff\n\n") == [Event("", "\ufffd")]
