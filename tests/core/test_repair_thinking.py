"""Thinking is bound to what stands in front of it: the suture keeps what still is, and takes out the rest."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from core.repair import PASSES, Known, Sutured, suture
from core.repair_lines import Line, Scene, write_all
from core.repair_words import placeholder
from core.validator import problems


def blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(each) if isinstance(each, str) else each for each in content]}


def assistant(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(call_id: str, name: str = "logs") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"app": "search"}}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


ASK = {"role": "user", "content": "why is search slow?"}


class Signer:
    """Signs thinking as bound to everything in front of it, as the newest models do."""

    @staticmethod
    def sign(thinking: str, request: Mapping[str, Any], message: int, block: int) -> str:
        in_front = [[each["role"], blocks(each)] for each in request["messages"][:message]]
        in_front.append(["assistant", blocks(request["messages"][message])[:block]])
        prefix = json.dumps([request.get("system"), request.get("tools"), in_front], sort_keys=True)
        bound = hashlib.sha256(prefix.encode()).digest()[:9]
        return base64.b64encode(hashlib.sha256(thinking.encode()).digest()[:9] + bound).decode()

    @classmethod
    def verify(cls, request: Mapping[str, Any], message: int, block: int) -> str | None:
        thinking = blocks(request["messages"][message])[block]
        right = cls.sign(thinking["thinking"], request, message, block)
        if thinking["signature"] == right:
            return None
        wrong = "Invalid `signature` in `thinking` block"
        bound = ". The block is bound to a different conversation."
        return wrong + (bound if thinking["signature"][:12] == right[:12] else "")


def thought(history: list[dict[str, Any]], thinking: str, *content: Any) -> list[dict[str, Any]]:
    """`history` with an answer that was thought on it."""
    answer = assistant({"type": "thinking", "thinking": thinking, "signature": ""}, *content)
    signed = [*history, answer]
    answer["content"][0]["signature"] = Signer.sign(thinking, {"messages": signed}, len(history), 0)
    return signed


def thoughts(messages: list[dict[str, Any]]) -> list[str]:
    return [block["thinking"] for each in messages for block in blocks(each) if block["type"] == "thinking"]


def two_thoughts() -> list[dict[str, Any]]:
    history = thought([ASK], "first", call("call_1"))
    history = thought([*history, user(result("call_1", "12 lines"))], "second", "Twelve lines.")
    return [*history, user("so?")]


def test_signed_thinking_comes_out_as_it_came() -> None:
    history = two_thoughts()
    assert suture(history, verify=Signer.verify) == Sutured(history, [])


def test_a_cut_signature_takes_itself_and_all_behind_it_along() -> None:
    history = two_thoughts()
    history[1]["content"][0]["signature"] = "EpQx"
    assert thoughts(suture(history, verify=Signer.verify).messages) == []
    history = two_thoughts()
    history[3]["content"][0]["signature"] = "EpQx"
    assert thoughts(suture(history, verify=Signer.verify).messages) == ["first"]


def test_a_changed_system_prompt_takes_all_thinking() -> None:
    request = {"messages": two_thoughts(), "system": "Today is Friday."}
    sutured = suture(request, verify=Signer.verify)
    assert thoughts(sutured.messages) == []
    assert {repair.rule for repair in sutured.repairs} == {"R42"}


def test_words_added_to_a_message_that_was_sent_move_to_the_next_one() -> None:
    history = two_thoughts()
    history[2] = user(*history[2]["content"], "look at the cache too")
    sutured = suture(history, verify=Signer.verify)
    assert thoughts(sutured.messages) == ["first", "second"]
    assert sutured.messages[4] == user("look at the cache too", "so?")


def test_a_result_that_rewrote_the_past_is_put_behind_the_answer() -> None:
    lost = result("call_1", placeholder(Known()), is_error=True)
    history = thought([ASK, assistant(call("call_1")), user(lost)], "no lines then", "I have none.")
    history.append(user("and now?"))
    rewritten = [*history[:2], user(result("call_1", "12 lines")), *history[3:]]
    sutured = suture(rewritten, verify=Signer.verify)
    assert sutured.messages[:4] == history[:4]
    assert "12 lines" in sutured.messages[4]["content"][0]["text"]


def test_without_a_check_thinking_behind_an_edit_goes_and_in_front_of_it_stays() -> None:
    history = two_thoughts()
    history[2] = user("no result here")
    assert thoughts(suture(history).messages) == ["first"]


def test_joining_neighbours_is_no_edit() -> None:
    history = [user("one"), user("two"), *two_thoughts()[1:]]
    assert thoughts(suture(history).messages) == ["first", "second"]


def test_moving_cache_marks_is_no_edit() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    history = [user({**text(f"part {at}"), **mark}) for at in range(5)]
    history = [user(*[each["content"][0] for each in history]), *two_thoughts()[1:]]
    assert thoughts(suture(history).messages) == ["first", "second"]


def test_all_thinking_can_be_taken_out_for_a_request_that_was_refused_for_it() -> None:
    sutured = suture(two_thoughts(), without_thinking=True)
    assert thoughts(sutured.messages) == []
    assert problems({"messages": sutured.messages}) == []


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.__name__.strip("_"))
def test_each_pass_is_the_identity_on_healthy_lines(each: Any) -> None:
    history = two_thoughts()
    lines = [Line(at, message["role"], blocks(message), message) for at, message in enumerate(history)]
    scene = Scene({"messages": history})
    assert write_all(each(lines, scene)) == history
    assert scene.repairs == []
