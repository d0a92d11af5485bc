"""What of a history need not be looked at again."""

from __future__ import annotations

from typing import Any

import pytest

from core.checked import Checked
from core.validator import problems

TOOLS = [{"name": "look", "input_schema": {"type": "object"}}]


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def answered(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def called(call_id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "look", "input": {}}]}


def found(call_id: str, content: Any = "nothing") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]}


def begun() -> list[dict[str, Any]]:
    return [said("why?"), called("a"), found("a"), answered("the gateway"), said("and now?")]


def checked(messages: list[dict[str, Any]]) -> Checked:
    made = Checked()
    assert not problems({"messages": messages, "tools": TOOLS})
    made.found_whole(messages)
    return made


def test_at_first_everything_is_unknown() -> None:
    messages = begun()
    assert Checked().unknown(messages) is messages


def test_what_follows_the_last_fresh_words_is_what_has_to_be_checked() -> None:
    messages = begun()
    known = checked(messages)
    messages += [called("b"), found("b")]
    assert known.unknown(messages) == messages[4:]


def test_words_behind_results_are_not_fresh_because_the_results_answer_what_stands_before() -> None:
    messages = [said("why?"), called("a"), found("a")]
    messages[-1]["content"].append({"type": "text", "text": "it is the gateway"})
    known = checked(messages)
    messages += [answered("so it is"), said("and now?")]
    assert known.unknown(messages) is messages


@pytest.mark.parametrize(
    "follows",
    [
        [called("a"), found("a")],
        [called("b"), found("b", [{"type": "image", "source": {"type": "url", "url": "https://x"}}])],
        [answered("here"), {"role": "user", "content": [{"type": "document", "source": {}}]}],
    ],
    ids=["an id that was used in front", "a picture in a result", "a document"],
)
def test_what_rules_count_over_the_whole_request_makes_everything_unknown(follows: list[dict[str, Any]]) -> None:
    messages = begun()
    known = checked(messages)
    messages += follows
    assert known.unknown(messages) is messages


def test_a_front_that_was_read_anew_is_checked_anew() -> None:
    messages = begun()
    known = checked(messages)
    again = [*begun(), called("b"), found("b")]
    assert known.unknown(again) is again


@pytest.mark.parametrize("damage", ["lost", "doubled", "orphaned", "empty"])
def test_damage_behind_the_front_is_found_in_what_is_checked(damage: str) -> None:
    messages = begun()
    known = checked(messages)
    messages += {
        "lost": [called("b"), said("well?")],
        "doubled": [called("b"), {"role": "user", "content": found("b")["content"] * 2}],
        "orphaned": [answered("here"), found("c")],
        "empty": [answered("here"), said("")],
    }[damage]
    whole = problems({"messages": messages, "tools": TOOLS})
    part = problems({"messages": list(known.unknown(messages)), "tools": TOOLS})
    assert [problem.rule for problem in part] == [problem.rule for problem in whole] != []
