"""Results are short, clean and say what was left out; arguments are checked before anything is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.shaping import (
    MOST_CHARS,
    ReadTool,
    age,
    capped,
    checked,
    cleaned,
    clock,
    left_out,
    moment,
    number,
    object_schema,
    one_line,
    parsed_moment,
    table,
    text_argument,
    whole_argument,
)
from core.errors import ToolError
from core.ports import ToolOutput, ToolSpec

SPEC = ToolSpec(
    "look", "Looks.", object_schema(["what"], what=text_argument("What", 10), times=whole_argument("Times", 3, 1, 9))
)


def test_nul_and_lone_surrogates_are_replaced_and_nothing_else() -> None:
    assert cleaned("a\0b\ud800c\udc00d 😀 é") == "a\ufffdb\ufffdc\ufffdd 😀 é"


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_clean_text_can_always_be_stored_and_sent(text: str) -> None:
    clean = cleaned(text)
    clean.encode()
    assert "\0" not in clean


@given(st.text(), st.integers(min_value=100, max_value=300))
def test_capped_text_keeps_within_its_limit(text: str, limit: int) -> None:
    assert len(capped(text * 40, limit)) <= limit


def test_what_was_cut_is_said() -> None:
    text = capped("x" * (MOST_CHARS + 1))
    assert len(text) == MOST_CHARS
    assert text.endswith("[cut here: 1000001 characters in all; narrow the question to see the rest]")
    assert left_out(3, 5, "pods", "ask by name") == "\n[2 more pods not shown: ask by name]"
    assert left_out(5, 5, "pods", "ask by name") == ""


def test_a_table_has_one_line_a_row_whatever_stands_in_its_cells() -> None:
    assert table(["a", "b"], [["1\n2", ""], ["x" * 500, "y"]]) == f"a | b\n1 2 | -\n{'x' * 399}… | y"
    assert one_line(" a \t b\r\n") == "a b"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (7.0, "7"), (6.245614, "6.2456"), (1234567.8, "1234568"), (0.00012345, "0.00012345"),
     (-2.5, "-2.5"), (1e20, "100000000000000000000"), (math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_times_and_ages_are_readable_and_never_raise() -> None:
    assert moment(1_790_000_000.4) == "2026-09-21T14:13:20Z" and clock(1_790_000_000) == "14:13:20"
    assert moment(1e300) == f"{1e300:.0f}" and moment(math.nan) == "NaN" and clock(math.inf) == "+Inf"
    assert [age(s) for s in (0, 59, 61, 3 * 3600 + 5, 4 * 86400 + 7200, -1, 1e12)] == [
        "0s", "59s", "1m1s", "3h5s", "4d2h", "-", "-",
    ]  # fmt: skip


def test_a_time_without_a_zone_is_no_moment() -> None:
    assert parsed_moment("2026-09-21T14:13:20Z") == 1_790_000_000
    assert parsed_moment("2026-09-21T16:13:20+02:00") == 1_790_000_000
    for text in ("", "now", "2026-09-21T14:13:20", "14:05", "1790000000"):
        with pytest.raises(ToolError, match="RFC 3339"):
            parsed_moment(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'what' is a required property"),
        ({"what": 3}, "argument what: 3 is not of type 'string'"),
        ({"what": ""}, "argument what"),
        ({"what": "x" * 11}, "argument what"),
        ({"what": "x", "times": 0}, "argument times: 0 is less than the minimum of 1"),
        ({"what": "x", "times": 10}, "argument times"),
        ({"what": "x", "times": True}, "argument times"),
        ({"what": "x", "times": "3"}, "argument times"),
        ({"what": "x", "extra": 1}, "'extra' was unexpected"),
    ],
)
def test_wrong_arguments_are_named(arguments: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ToolError) as refused:
        checked(SPEC, arguments)
    assert str(refused.value).startswith("look: ") and words in str(refused.value)


def test_defaults_are_filled_in() -> None:
    assert checked(SPEC, {"what": "x"}) == {"what": "x", "times": 3}
    assert checked(SPEC, {"what": "x", "times": 4}) == {"what": "x", "times": 4}


async def test_a_read_tool_cleans_and_caps_what_it_found_and_what_went_wrong() -> None:
    async def look(arguments: Mapping[str, Any]) -> ToolOutput:
        if arguments["what"] == "bad":
            raise ToolError("\0" * 5_000)
        return ToolOutput("\0" + "x" * MOST_CHARS, [("title", "https://example.com")])

    async def check() -> None:
        raise ToolError("down\0\nreally")

    tool = ReadTool(SPEC, look, check)
    found = await tool.run({"what": "good"})
    assert found.text.startswith("\ufffdx") and len(found.text) == MOST_CHARS and len(found.links) == 1
    with pytest.raises(ToolError) as failed:
        await tool.run({"what": "bad"})
    assert "\0" not in str(failed.value) and len(str(failed.value)) == 2_000
    assert await tool.health() == "down\ufffd really"
