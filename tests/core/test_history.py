"""The history with the model: entries, the messages that they project to, and the prefix that never changes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.history import (
    BEGINNINGS,
    Entry,
    EntryKind,
    append,
    calls_of,
    flatten,
    has_thinking,
    project,
    result_block,
    role_of,
    text_of,
    user_block,
    with_own_ids,
    without_thinking,
)
from core.validator import problems

KINDS = st.sampled_from([kind for kind in EntryKind if kind not in BEGINNINGS])


def entry(number: int, kind: EntryKind, *texts: str) -> Entry:
    return Entry(f"e{number}", kind, 0, [user_block(text) for text in texts])


@pytest.mark.parametrize("kind", EntryKind)
def test_only_what_the_model_said_is_on_the_models_side(kind: EntryKind) -> None:
    assert role_of(kind) == ("assistant" if kind is EntryKind.ASSISTANT else "user")


def test_what_the_ladder_says_is_on_the_users_side() -> None:
    assert project([entry(1, EntryKind.LADDER, "again")])[0]["role"] == "user"


def test_entries_of_one_role_are_one_message_with_results_before_the_words_of_a_steer() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "logs", "input": {}}
    messages = project(
        [
            entry(1, EntryKind.USER, "why?"),
            Entry("e2", EntryKind.ASSISTANT, 1, [call]),
            Entry("e3", EntryKind.RESULTS, 1, [result_block("toolu_1", "fine", is_error=False)]),
            entry(4, EntryKind.USER, "look at the gateway"),
        ]
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["type"] for block in messages[-1]["content"]] == ["tool_result", "text"]
    assert not problems({"messages": messages})


@given(st.lists(st.tuples(KINDS, st.text(min_size=1, max_size=5)), max_size=12), st.integers(0, 12))
def test_each_projection_is_a_prefix_of_every_later_one(entries: list[tuple[EntryKind, str]], at: int) -> None:
    made = [entry(number, kind, text) for number, (kind, text) in enumerate(entries)]
    earlier, later = flatten(project(made[:at])), flatten(project(made))
    assert later[: len(earlier)] == earlier


@given(st.lists(st.tuples(KINDS, st.text(min_size=1, max_size=5)), max_size=12))
def test_appending_one_by_one_is_projecting_at_once(entries: list[tuple[EntryKind, str]]) -> None:
    messages: list[dict[str, Any]] = []
    for kind, text in entries:
        append(messages, kind, [user_block(text)])
    assert messages == project(entry(n, kind, text) for n, (kind, text) in enumerate(entries))
    assert all(left["role"] != right["role"] for left, right in pairwise(messages))


def test_appending_does_not_change_a_message_that_somebody_holds() -> None:
    messages = project([entry(1, EntryKind.USER, "why?")])
    held = messages[0]
    append(messages, EntryKind.USER, [user_block("and where?")])
    assert len(held["content"]) == 1
    assert len(messages[0]["content"]) == 2


def test_the_text_of_an_answer_is_its_text_blocks_and_nothing_else() -> None:
    content = [
        {"type": "thinking", "thinking": "secret", "signature": "s"},
        {"type": "text", "text": "It is "},
        {"type": "tool_use", "id": "t", "name": "logs", "input": {"text": "no"}},
        {"type": "text", "text": "the gateway.\n"},
    ]
    assert text_of(content) == "It is \n\nthe gateway."
    assert text_of([{"type": "text", "text": " \n"}]) == ""
    assert text_of([]) == ""


def test_the_calls_of_an_answer_are_ours_and_not_the_servers() -> None:
    content = [{"type": "tool_use", "id": "a"}, {"type": "server_tool_use", "id": "b"}, {"type": "text", "text": ""}]
    assert [block["id"] for block in calls_of(content)] == ["a"]


def test_an_id_that_was_used_before_gets_a_number_of_its_own() -> None:
    def calls(*ids: str) -> list[dict[str, Any]]:
        return [{"type": "tool_use", "id": one, "name": "logs", "input": {}} for one in ids]

    def ids(content: Any) -> list[str]:
        return [block["id"] for block in content]

    before = [{"role": "assistant", "content": calls("a", "a_2")}]
    assert ids(with_own_ids(calls("a", "b", "b", "b"), before)) == ["a_3", "b", "b_2", "b_3"]
    fresh = calls("c", "d")
    assert with_own_ids(fresh, before) == fresh
    assert with_own_ids([user_block("a")], before) == [user_block("a")]


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_blank_text_is_never_sent_because_it_would_be_refused(text: str) -> None:
    assert result_block("toolu_1", text, is_error=False)["content"] == "(no output)"
    assert user_block(text)["text"] == "(empty message)"


def test_only_a_failed_result_is_marked_as_an_error() -> None:
    assert "is_error" not in result_block("toolu_1", "fine", is_error=False)
    assert result_block("toolu_1", "broken", is_error=True)["is_error"] is True


@pytest.mark.parametrize("kind", sorted(BEGINNINGS))
def test_a_projection_begins_anew_with_what_was_mended_or_condensed(kind: EntryKind) -> None:
    kept = [{"role": "user", "content": [user_block("why, in short?")]}]
    made = [entry(1, EntryKind.USER, "why?"), Entry("e2", kind, 0, kept), entry(3, EntryKind.ASSISTANT, "So.")]
    assert project(made) == [*kept, {"role": "assistant", "content": [user_block("So.")]}]
    assert project([*made, entry(4, EntryKind.USER, "and?")])[:2] == project(made)
    assert kept == [{"role": "user", "content": [user_block("why, in short?")]}]


def test_without_thinking_nothing_else_goes_and_no_message_is_empty() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = [
        {"role": "user", "content": [user_block("why?")]},
        {"role": "assistant", "content": [thinking]},
        {"role": "user", "content": [user_block("well?")]},
        {"role": "assistant", "content": [thinking, user_block("So.")]},
    ]
    assert has_thinking(messages)
    assert without_thinking(messages) == [
        {"role": "user", "content": [user_block("why?"), user_block("well?")]},
        {"role": "assistant", "content": [user_block("So.")]},
    ]
    assert not has_thinking(without_thinking(messages))
