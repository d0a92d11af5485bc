"""What is sent of a history: mended, without what another model thought, or shorter; never twice what was refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.answer import Dropped, NoAnswer
from core.cancel import Cancel
from core.condense import NOW
from core.control import Mail
from core.errors import ModelRefusedHistory
from core.history import EntryKind, user_block
from core.ports import Usage
from core.settle import Detail
from core.validator import problems
from tests.core.asking import FINE, LIMITS, Asking
from tests.core.doubles import TASK, answer, claimed
from tests.support.virtual_time import in_virtual_time, run

# -- a structural 400

REFUSED = ModelRefusedHistory("messages.1: `tool_use` ids were found without `tool_result` blocks")


@in_virtual_time
async def test_a_refused_history_is_never_sent_again_as_it_was() -> None:
    asking = Asking(REFUSED, FINE)
    got = await asking.ask()
    assert isinstance(got, NoAnswer) and got.detail is Detail.STRUCTURAL_400
    assert "`tool_use` ids were found" in got.known
    assert len(asking.model.requests) == 1


@in_virtual_time
async def test_what_the_ledger_knows_better_is_sent_once_instead() -> None:
    asking = Asking(REFUSED, FINE)
    asking.ledger.messages = [{"role": "user", "content": [user_block("why, really?")]}]
    assert await asking.ask() is FINE
    first, second = (request.messages for request in asking.model.requests)
    assert first != second
    assert asking.turn.messages == asking.ledger.messages


@in_virtual_time
async def test_a_second_refusal_ends_it_whatever_the_ledger_says() -> None:
    asking = Asking(REFUSED, REFUSED, FINE)
    asking.ledger.messages = [{"role": "user", "content": [user_block("why, really?")]}]
    got = await asking.ask()
    assert isinstance(got, NoAnswer) and got.detail is Detail.STRUCTURAL_400
    assert len(asking.model.requests) == 2


@in_virtual_time
async def test_a_stop_is_seen_before_the_history_is_sent_anew() -> None:
    asking = Asking(REFUSED, FINE)
    asking.ledger.messages = [{"role": "user", "content": [user_block("why, really?")]}]
    asking.ledger.box = Mail(TASK)
    assert await asking.ask() == Dropped(Cancel.CANCEL_TASK)
    assert len(asking.model.requests) == 1


THINKING = {"type": "thinking", "thinking": "hm", "signature": "of another model"}
SURE = [user_block("why?")], [THINKING, user_block("The gateway.")], [user_block("sure?")]


def thought() -> list[dict[str, Any]]:
    """A history with thinking in it."""
    return [
        {"role": role, "content": list(said)} for role, said in zip(("user", "assistant", "user"), SURE, strict=True)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different one.",
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
    ],
)
def test_a_history_refused_for_its_thinking_is_sent_once_more_without_it_and_so_for_ever(text: str) -> None:
    async def ask() -> Asking:
        asking = Asking(ModelRefusedHistory(text), FINE, turn=claimed(messages=thought()))
        assert await asking.ask() is FINE
        return asking

    asking = run(ask())
    first, second = (request.messages for request in asking.model.requests)
    assert first == thought()
    assert [block for message in second for block in message["content"]] == [
        user_block("why?"),
        user_block("The gateway."),
        user_block("sure?"),
    ]
    assert asking.ledger.words("go_on_from") == [(EntryKind.MENDED, ["R42"])]
    assert asking.turn.messages == asking.ledger.messages == second


@in_virtual_time
async def test_what_no_rule_explains_is_told_as_text_once() -> None:
    asking = Asking(REFUSED, FINE, turn=claimed(messages=thought()))
    assert await asking.ask() is FINE
    (message,) = asking.model.requests[1].messages
    said = [block["text"] for block in message["content"]]
    assert said[1:] == ["why?", "[condensed] You wrote: The gateway.", NOW, "sure?"]
    assert asking.turn.messages == [message]


@in_virtual_time
async def test_a_session_whose_history_is_refused_for_good_begins_anew_with_it_as_text() -> None:
    asking = Asking(REFUSED, REFUSED, FINE, turn=claimed(messages=thought()))
    got = await asking.ask()
    assert isinstance(got, NoAnswer) and got.detail is Detail.STRUCTURAL_400
    assert got.known.startswith("The model API refuses this history by its rule R20: messages.1: `tool_use` ids")
    assert len(asking.model.requests) == 2
    assert {block["type"] for message in asking.ledger.messages for block in message["content"]} == {"text"}
    assert "sure?" in str(asking.ledger.messages)


@in_virtual_time
async def test_another_model_is_asked_without_the_thinking_of_this_one() -> None:
    asking = Asking(FINE, turn=claimed(messages=thought()))
    assert await asking.ask(model="claude-other") is FINE
    assert "thinking" not in str(asking.model.requests[0].messages)
    assert asking.ledger.words("go_on_from") == [(EntryKind.MENDED, [])]


@in_virtual_time
async def test_a_history_that_cannot_be_mended_is_told_as_text_and_never_sent_as_it_is() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"in": deep}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": deep}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12 lines"}
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [user_block("why?")]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    asking = Asking(FINE, turn=claimed(messages=said))
    assert await asking.ask() is FINE
    (request,) = asking.model.requests
    assert not problems({"messages": request.messages})
    assert "12 lines" in str(request.messages) and "why?" in str(request.messages)


# -- its length


def long_history(rounds: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "user", "content": [user_block("<@U0ANN>: why?")]}]
    for number in range(rounds):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"at": number}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"line {number}\n" * 100}
        made.append({"role": "assistant", "content": [call]})
        made.append({"role": "user", "content": [result, user_block(f"<@U0BEN>: and {number}?")]})
    return made


SHORT = replace(LIMITS, condense_at_tokens=2_000, condense_to_tokens=1_000)


@in_virtual_time
async def test_a_history_near_the_limit_is_condensed_before_it_leaves() -> None:
    asking = Asking(FINE, turn=claimed(messages=long_history(20)), limits=SHORT)
    assert await asking.ask() is FINE
    sent = asking.model.requests[0].messages
    assert asking.ledger.words("go_on_from") == [(EntryKind.CONDENSED, [])]
    assert not problems({"messages": sent})
    assert len(str(sent)) < 6_000
    assert all(f"<@U0BEN>: and {number}?" in str(sent) for number in range(20))


@in_virtual_time
async def test_a_prompt_that_is_too_long_is_condensed_once_and_sent_again() -> None:
    too_long = ModelRefusedHistory("prompt is too long: 9000 tokens > 3000 maximum")
    asking = Asking(too_long, FINE, turn=claimed(messages=long_history(20)))
    assert await asking.ask() is FINE
    first, second = (request.messages for request in asking.model.requests)
    assert len(str(second)) < len(str(first)) / 2
    assert second == asking.turn.messages


@in_virtual_time
async def test_what_is_still_too_long_then_is_told() -> None:
    too_long = ModelRefusedHistory("prompt is too long: 9000 tokens > 3000 maximum")
    asking = Asking(too_long, too_long, turn=claimed(messages=long_history(20)))
    got = await asking.ask()
    assert isinstance(got, NoAnswer) and "rule R73: prompt is too long: 9000 tokens" in got.known


@in_virtual_time
async def test_an_answer_that_filled_the_window_has_the_next_request_condensed() -> None:
    full = replace(answer("half"), stop_reason="model_context_window_exceeded")
    asking = Asking(full, FINE, turn=claimed(messages=long_history(100)))
    await asking.ask()
    assert not asking.ledger.wrote
    await asking.ask()
    assert asking.ledger.words("go_on_from") == [(EntryKind.CONDENSED, [])]


@in_virtual_time
async def test_what_the_api_counts_decides_when_a_history_is_long() -> None:
    """Bytes say 4,000 tokens at most; the API counted 20,000."""
    counted = replace(answer("half"), usage=Usage(20_000, 5))
    limits = replace(LIMITS, condense_at_tokens=6_000, condense_to_tokens=1_000)
    asking = Asking(counted, FINE, turn=claimed(messages=long_history(12)), limits=limits)
    await asking.ask()
    assert not asking.ledger.wrote
    await asking.ask()
    assert asking.ledger.words("go_on_from") == [(EntryKind.CONDENSED, [])]
