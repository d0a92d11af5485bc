"""The validator refuses what the Messages API refuses, in its words, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.validator import Profile, problems
from core.validator_images import look_at

CASES = [
    json.loads(line)
    for path in sorted((Path(__file__).parent / "histories").glob("*.jsonl"))
    for line in path.read_text(encoding="utf-8").splitlines()
]

WORDS = {
    "R02": ("use the top-level 'system' parameter", "Input should be 'user' or 'assistant'", "role: Field required"),
    "R03": ('first message must use the "user" role',),
    "R04": ("does not support assistant message prefill",),
    "R05": ("final assistant content cannot end with trailing whitespace",),
    "R06": ('roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',),
    "R07": ("Extra inputs are not permitted",),
    "R08": ("must have non-empty content",),
    "R09": ("does not match any of the expected tags", "Field required"),
    "R10": ("text content blocks must be non-empty",),
    "R11": ("text content blocks must contain non-whitespace text",),
    "R20": ("`tool_use` ids were found without `tool_result` blocks immediately after: ",),
    "R21": ("unexpected `tool_use_id` found in `tool_result` blocks: ",),
    "R22": ("`tool_use` ids must be unique",),
    "R23": ("each tool_use must have a single result. Found multiple `tool_result` blocks with id: ",),
    "R24": ("`tool_use` ids were found without `tool_result` blocks immediately after: ",),
    "R25": ("blocks can only be in `user` messages", "blocks can only be in `assistant` messages"),
    "R26": ("String should match pattern '^[a-zA-Z0-9_-]+$'",),
    "R27": ("Input should be a valid dictionary",),
    "R28": ("String should match pattern", "String should have at least 1 character"),
    "R29": ("Input should be a valid string", "does not match any of the expected tags"),
    "R30": ("all content must be type `text` if `is_error` is true",),
    "R31": ("`tool_use` ids were found without `tool_result` blocks immediately after: ",),
    "R35": ("was found without a corresponding `web_search_tool_result` block",),
    "R36": ("must have a corresponding `server_tool_use` block before it",),
    "R37": ("String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'",),
    "R40": ("thinking.signature: Field required",),
    "R41": ("each thinking block must contain thinking",),
    "R43": ("Expected `thinking` or `redacted_thinking`, but found `tool_use`",),
    "R44": ("the first block must be `thinking` or `redacted_thinking`. Found `text`.",),
    "R45": ("When thinking is disabled, an `assistant` message in the final position cannot contain",),
    "R4A": ("Thinking may not be enabled when tool_choice forces tool use.",),
    "R50": ("tools: Tool names must be unique.",),
    "R51": ("must define tools",),
    "R52": ("A maximum of 4 blocks with cache_control may be provided. Found 5.",),
    "R54": ("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block",),
    "R60": ("Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",),
    "R61": ("Image does not match the provided media type image/jpeg",),
    "R62": ("Could not process image",),
    "R63": ("image dimensions exceed max allowed size",),
    "R70": ("not valid JSON: no low surrogate in string",),
    "R71": ("not valid JSON: unexpected end of data",),
    "R72": ("Request exceeds the maximum allowed number of bytes",),
    "R74": ("There is a limit of 3 messages in a single request.",),
    "R80": ("a 'system' message must",),
}


def request_of(case: dict[str, Any]) -> dict[str, Any]:
    return {"messages": case["messages"], **case.get("request", {})}


def rules(request: dict[str, Any], profile: Profile = Profile.EVERYWHERE) -> list[str]:
    return [problem.rule for problem in problems(request, profile)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_broken_history_is_refused_by_its_rule_in_the_words_of_the_api(case: dict[str, Any]) -> None:
    found = [problem for problem in problems(request_of(case)) if problem.rule == case["rule"]]
    assert found, case["claim"]
    assert any(words in problem.problem for problem in found for words in WORDS[case["rule"]])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_first_party_api_joins_neighbours_before_it_looks(case: dict[str, Any]) -> None:
    refused = bool(problems(request_of(case), Profile.FIRST_PARTY))
    assert refused is not case.get("first_party_accepts", False)


def test_every_rule_that_the_suture_mends_has_a_case() -> None:
    assert {case["rule"] for case in CASES} >= set(WORDS) - {"R06"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "logs", "input": {"app": "search"}}


def result(call_id: str, content: Any = "no lines") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "shards"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
ASK = {"role": "user", "content": "why is search slow?"}


def healthy() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "one question", {"messages": [ASK]}
    yield (
        "a batch and a steer",
        {
            "messages": [
                ASK,
                assistant(text("I look."), call("call_1"), call("call_2")),
                user(result("call_2"), result("call_1"), text("the cache too")),
            ]
        },
    )
    yield (
        "a result without content",
        {"messages": [ASK, assistant(call("call_1")), user({"type": "tool_result", "tool_use_id": "call_1"})]},
    )
    yield "an empty string as content", {"messages": [ASK, assistant(call("call_1")), user(result("call_1", ""))]}
    yield "a paused turn sent back as it is", {"messages": [ASK, assistant(text("Searching."), SEARCH)]}
    yield (
        "a server call that waits for client results",
        {"messages": [ASK, assistant(SEARCH, call("call_1")), user(result("call_1"))]},
    )
    yield (
        "a server call answered across client results",
        {
            "messages": [
                ASK,
                assistant(SEARCH, call("call_1")),
                user(result("call_1")),
                assistant(FOUND, text("Found it.")),
                user(text("good")),
            ]
        },
    )
    yield (
        "a system message behind results",
        {
            "allow_system": True,
            "messages": [
                ASK,
                assistant(call("call_1")),
                user(result("call_1")),
                {"role": "system", "content": "The cluster is read-only."},
                {"role": "system", "content": "Be brief."},
                assistant(text("I am.")),
                user(text("thanks")),
            ],
        },
    )
    yield (
        "thinking only, in the middle",
        {"messages": [ASK, assistant({"type": "thinking", "thinking": "", "signature": "Qk1z"}), user(text("so?"))]},
    )
    yield "text that only spells NUL", {"messages": [user(text("it prints \\u0000"))]}
    yield "tools that are not known", {"messages": [ASK, assistant(call("call_1")), user(result("call_1"))]}


@pytest.mark.parametrize(("name", "request_"), list(healthy()), ids=[name for name, _ in healthy()])
@pytest.mark.parametrize("profile", list(Profile))
def test_a_healthy_history_is_accepted(name: str, request_: dict[str, Any], profile: Profile) -> None:
    assert problems(request_, profile) == [], name


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([], "R01"),
        (["just a text"], "R09"),
        ([{"role": "user"}], "R09"),
        ([{"role": "user", "content": 5}], "R09"),
        ([{"role": "user", "content": None}], "R09"),
        ([user("bare text")], "R09"),
        ([user({"text": "no type"})], "R09"),
        ([{"content": "nobody"}], "R02"),
        ([user(text("a")), user(text("b"))], "R06"),
        ([user({"type": "text", "text": "", "cache_control": {"type": "ephemeral"}})], "R53"),
        ([user({"type": "image", "source": "a picture"})], "R09"),
        ([ASK, assistant(SEARCH, text("and on")), user(text("hm"))], "R35"),
        ([{**ASK, "clear_at": "next_user_message"}], "R80"),
    ],
)
def test_a_malformed_message_is_refused_and_never_an_error(messages: list[Any], rule: str) -> None:
    assert rule in rules({"messages": messages})


def test_messages_that_are_no_list_are_refused() -> None:
    assert rules({"messages": "hello"}) == ["R09"]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"bytes", {1}, 10**5000],
    ids=["not a number", "infinity", "bytes", "a set", "5,000 digits"],
)
def test_values_that_json_lacks_are_refused_wherever_they_hide(value: Any) -> None:
    deep = {**call("call_1"), "input": {"list": [{"inner": value}]}}
    assert "R75" in rules({"messages": [ASK, assistant(deep), user(result("call_1"))]})


def test_depth_is_refused_and_no_danger() -> None:
    nested: Any = "core"
    for _ in range(50_000):
        nested = [nested]
    deep = {**call("call_1"), "input": {"list": nested}}
    assert "R75" in rules({"messages": [ASK, assistant(deep), user(result("call_1"))]})
    while isinstance(nested, list):
        nested = nested.pop()


def test_a_prefilled_answer_may_not_end_in_thinking() -> None:
    thinking = {"type": "thinking", "thinking": "cache", "signature": "Qk1z"}
    assert rules({"messages": [ASK, assistant(thinking)], "prefill": True}) == ["R4B"]


def test_a_tool_list_with_an_illegal_name_is_refused() -> None:
    assert rules({"messages": [ASK], "tools": [{"name": "a.b", "input_schema": {}}]}) == ["R28"]


def test_signatures_are_judged_by_whoever_can_check_them() -> None:
    thinking = {"type": "thinking", "thinking": "cache", "signature": "Qk1z"}
    request = {"messages": [ASK, assistant(thinking, text("The cache.")), user(text("sure?"))]}

    def cut(request: Any, message: int, block: int) -> str:
        assert (message, block) == (1, 0)
        return "Invalid `signature` in `thinking` block"

    def bound(request: Any, message: int, block: int) -> str:
        return cut(request, message, block) + ". The block is bound to a different conversation."

    def gap(request: Any, message: int, block: int) -> str:
        return bound(request, message, block) + " An earlier thinking block is missing or out of order."

    for verify, rule in ((cut, "R42"), (bound, "R48"), (gap, "R49")):
        assert [problem.rule for problem in problems(request, verify=verify)] == [rule]
    assert problems(request, verify=lambda request, message, block: None) == []


@pytest.mark.parametrize(
    ("data", "media_type", "longest"),
    [
        ("iVBORw0KGgoAAAANSUhEUgAACWAAAABkCAIAAAAAAAAA", "image/png", 2400),
        ("R0lGODlhIAMAAQ==", "image/gif", 800),
        ("/9j/4AAQSkZJRgABAQAAAQABAAD/wAARCAAQASwDASIAAhEBAxEB", "image/jpeg", 300),
        ("UklGRiQAAABXRUJQVlA4WAoAAAAQAAAAPwEA7wAA", "image/webp", 320),
        ("PGh0bWw+", None, 0),
        ("not base64!", None, 0),
        ("", None, 0),
    ],
)
def test_a_picture_is_known_by_its_first_bytes(data: str, media_type: str | None, longest: int) -> None:
    picture = look_at(data)
    assert (picture.media_type, picture.longest) == (media_type, longest)
