"""Fake signatures have the bonds of the real ones: model, text, the run of thinking, and everything in front."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from core.fake_signer import BOUND, GAP, INVALID, FakeSigner
from core.repair import suture
from core.validator import problems

MODEL = "claude-opus-5"
ASK = {"role": "user", "content": "why is search slow?"}


def answered(request: dict[str, Any], thinking: str, said: str, reply: str) -> dict[str, Any]:
    """`request` with a signed answer and the next words of a person."""
    signature = FakeSigner.sign(request, MODEL, thinking)
    blocks = [
        {"type": "thinking", "thinking": thinking, "signature": signature},
        {"type": "text", "text": said},
    ]
    answer = {"role": "assistant", "content": blocks}
    return {**request, "messages": [*request["messages"], answer, {"role": "user", "content": reply}]}


def signed() -> dict[str, Any]:
    request = {"messages": [ASK], "system": "You are on call.", "signatures": {"model": MODEL}}
    request = answered(request, "cache or disk", "I look at the cache.", "and?")
    return answered(request, "the cache", "It is the cache.", "thanks")


def found(request: dict[str, Any]) -> list[tuple[str, str]]:
    return [(problem.rule, problem.path) for problem in problems(request)]


def test_what_was_signed_is_good() -> None:
    assert problems(signed()) == []
    assert suture(signed()).repairs == []


def test_the_format_is_fixed() -> None:
    assert FakeSigner.sign({"messages": [ASK]}, MODEL, "cache or disk") == (
        "FAKEeyJtIjogImNsYXVkZS1vcHVzLTUiLCAidCI6ICJiNjIxZGIyOTJkNjk5N2NkIiwg"
        "ImMiOiAiMTJhZTMyY2IxZWMwMmQwMSIsICJwIjogImI1YTYxYTdkMDhjMGRiNGEifQ=="
    )


@pytest.mark.parametrize("part", ["system", "tools"])
def test_a_changed_system_prompt_or_tool_list_unbinds_every_block(part: str) -> None:
    request = {**signed(), part: [{"name": "logs", "input_schema": {"type": "object"}}]}
    assert found(request) == [("R48", "messages.1.content.0"), ("R48", "messages.3.content.0")]


def test_changed_words_unbind_what_stands_behind_them() -> None:
    request = signed()
    request["messages"][2] = {"role": "user", "content": "and now?"}
    assert found(request) == [("R48", "messages.3.content.0")]


def test_a_gap_in_the_run_unbinds_what_stands_behind_it() -> None:
    request = signed()
    del request["messages"][1]["content"][0]
    assert found(request) == [("R49", "messages.3.content.0")]


@pytest.mark.parametrize("signature", ["", "reasoning_content", "FAKE", "FAKEeyJtIjogImNsYX", "FAKE5", 7])
def test_a_cut_or_foreign_signature_is_invalid(signature: Any) -> None:
    request = signed()
    request["messages"][3]["content"][0]["signature"] = signature
    assert FakeSigner().verify(request, 3, 0) == INVALID


def test_another_model_can_not_read_it() -> None:
    request = {**signed(), "signatures": {"model": "another"}}
    assert {rule for rule, _ in found(request)} == {"R42"}


def test_other_text_under_a_signature_is_invalid() -> None:
    request = signed()
    request["messages"][1]["content"][0]["thinking"] = "disk or cache"
    assert FakeSigner().verify(request, 1, 0) == INVALID


def test_cache_marks_are_no_part_of_what_is_signed() -> None:
    request = copy.deepcopy(signed())
    request["messages"][1]["content"][1]["cache_control"] = {"type": "ephemeral"}
    assert problems(request) == []


def test_the_words_name_the_bond() -> None:
    assert "bound to a different conversation" in BOUND
    assert "missing or out of order" in GAP
