"""A history in a file: whatever it holds, the answer is a request or one clear sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import BadInput
from core.history_file import check, parse, repair
from core.validator import Profile

OPEN = [
    {"role": "user", "content": "why?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "call.1", "name": "logs", "input": {}}]},
]


def test_a_list_is_the_messages_of_a_request() -> None:
    assert parse(json.dumps(OPEN)) == {"messages": OPEN}


def test_an_object_keeps_its_other_parts() -> None:
    request = {"messages": OPEN, "tools": [], "system": "You are on call."}
    assert parse(json.dumps(request).encode()) == request


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse(b"\xef\xbb\xbf" + json.dumps(OPEN).encode()) == {"messages": OPEN}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{not json", "The file is not JSON: .* at line 1, column 2."),
        ("", "The file is not JSON"),
        (b"\xff\xfe[]", "The file is not UTF-8: byte 0 can't be read"),
        ("[" * 1_000_000, "nested too deeply"),
        ('{"a":' * 1_000_000, "nested too deeply"),
        ('"a text"', "The file holds no conversation"),
        ("5" * 5_000, "The file holds no conversation"),
        ('{"turns": []}', "The file holds no conversation"),
        ('{"messages": {}}', "The file holds no conversation"),
    ],
    ids=["broken", "empty", "not UTF-8", "brackets", "braces", "text", "number", "no messages", "no list"],
)
def test_a_bad_file_gets_one_clear_sentence(content: str | bytes, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as caught:
        parse(content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_5000_digits_is_read_checked_and_kept_as_text(sign: str) -> None:
    digits = sign + "12345" * 1000
    calls = [{"type": "tool_use", "id": "call_1", "name": "add", "input": {"n": "DIGITS"}}]
    results = [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}]
    history = [OPEN[0], {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    request = parse(json.dumps(history).replace('"DIGITS"', digits))
    assert [problem.rule for problem in check(request)] == ["R75"]
    assert repair(request)["messages"][1]["content"][0]["input"] == {"n": f"[suture] {digits}"}


def test_check_names_rule_and_place() -> None:
    found = {(problem.rule, problem.path) for problem in check(parse(json.dumps(OPEN)))}
    assert ("R26", "messages.1.content.0.tool_use.id") in found
    assert ("R20", "messages.1") in found


def test_repair_gives_messages_and_repairs_that_are_json() -> None:
    repaired = repair(parse(json.dumps(OPEN)))
    assert set(repaired) == {"messages", "repairs"}
    assert {each["rule"] for each in repaired["repairs"]} == {"R20", "R26"}
    assert check({"messages": json.loads(json.dumps(repaired["messages"]))}) == []


def test_repair_names_what_must_change_beside_the_messages() -> None:
    tool: dict[str, Any] = {"name": "find", "input_schema": {"type": "object"}}
    repaired = repair({"messages": OPEN[:1], "tools": [tool, {**tool, "description": "tickets"}]})
    assert [each["name"] for each in repaired["changes"]["tools"]] == ["find", "find_2"]


def test_the_profile_is_a_choice() -> None:
    neighbours = {"messages": [OPEN[0], OPEN[0]]}
    assert check(neighbours, Profile.FIRST_PARTY) == []
    assert [problem.rule for problem in check(neighbours)] == ["R06"]
    assert repair(neighbours, Profile.FIRST_PARTY) == {"messages": neighbours["messages"], "repairs": []}
