"""A long history, shortened: what people said stays word for word, and the evidence behind what was concluded."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from core.condense import HEAD, NOW, as_text, condense, weight
from core.frame import framed, unframed
from core.history import user_block
from core.repair import suture
from core.validator import Profile, problems
from tests.core.test_repair_properties import healthy

LOG = "\n".join(f"14:{minute:02d} GET /health 200 in 3 ms" for minute in range(60))


def step(number: int, found: str, *words: str, **more: Any) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "logs", "input": {"app": f"app-{number}"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": found, **more}
    return [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, *map(user_block, words)]},
    ]


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [user_block(text)]}


def asked(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [user_block(text) for text in texts]}


def turns(count: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(count):
        made.append(asked(f"<@U0ANN>: question {number}?"))
        made += step(number, f"{LOG}\n14:05 gateway-{number} upstream timed out after 300ms\n{LOG}")
        made.append(said(f"gateway-{number} timed out after 300ms."))
    return [*made, asked("<@U0BEN>: and now?")]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [str(block.get("text", block.get("content"))) for each in messages for block in each["content"]]


def test_a_long_history_becomes_short_and_stays_valid() -> None:
    history = turns(30)
    short = condense(history, 20_000)
    assert short is not None
    assert weight(short) < 21_000 < weight(history)
    assert not problems({"messages": short}) and not problems({"messages": short}, Profile.FIRST_PARTY)
    assert short[0]["content"][0]["text"] == HEAD


def test_people_are_kept_word_for_word_and_so_is_the_recent_end() -> None:
    history = turns(30)
    short = condense(history, 20_000)
    assert short is not None
    kept = texts(short)
    assert [f"<@U0ANN>: question {number}?" in kept for number in range(30)] == [True] * 30
    assert short[-3:] == history[-3:]


def test_the_evidence_behind_a_conclusion_outlives_the_log_around_it() -> None:
    short = condense(turns(30), 20_000)
    assert short is not None
    everything = "\n".join(texts(short))
    for number in range(30):
        assert f"14:05 gateway-{number} upstream timed out after 300ms" in everything
        assert f"gateway-{number} timed out after 300ms." in everything


def test_the_cut_never_falls_between_a_call_and_its_result() -> None:
    history = [asked("why?"), *[each for number in range(40) for each in step(number, LOG, f"word {number}")]]
    for budget in range(2_000, 60_000, 1_500):
        short = condense(history, budget)
        if short is not None:
            assert not problems({"messages": short})


def test_a_history_that_cannot_become_much_shorter_is_left_as_it_is() -> None:
    assert condense(turns(2), 1_000_000) is None


def test_it_can_be_condensed_again_and_nothing_is_told_twice() -> None:
    first = condense(turns(30), 20_000)
    assert first is not None
    again = condense([*first[:-1], *turns(30)[1:]], 20_000)
    assert again is not None
    kept = texts(again)
    assert kept.count(HEAD) == 1
    assert not any(each.count("[condensed") > 1 for each in kept)
    assert "<@U0ANN>: question 0?" in kept and "<@U0BEN>: and now?" in kept


def test_the_same_history_gives_the_same_bytes() -> None:
    assert json.dumps(condense(turns(30), 20_000)) == json.dumps(condense(turns(30), 20_000))


def test_thinking_goes_with_what_it_was_bound_to() -> None:
    history = turns(30)
    history[-2]["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "s"})
    assert "thinking" not in json.dumps(condense(history, 20_000))


def test_what_data_said_is_cut_before_what_a_person_said() -> None:
    wordy = "<@U0ANN>: " + "we saw it in Frankfurt first, then everywhere. " * 80
    thread = f"[thread: data]\n{framed('thread', 'noise' * 3_000)}"
    short = condense([asked(thread, wordy), *turns(20)], 12_000)
    assert short is not None
    assert wordy in texts(short)
    [told] = [text for text in texts(short) if text.startswith("[thread")]
    cut = unframed(told)
    assert len(told) < 2_500 and cut is not None and cut.source == "thread" and cut.text.startswith("noise")


def test_when_even_people_said_too_much_their_newest_words_stay_and_the_rest_is_counted() -> None:
    history = [
        each for number in range(500) for each in (asked(f"<@U0ANN>: {number} " + "words " * 100), said("Yes."))
    ]
    short = condense([*history, asked("<@U0BEN>: and now?")], 20_000)
    assert short is not None
    assert weight(short) < 22_000
    kept = "\n".join(texts(short))
    assert "older parts were left out here" in kept and "<@U0ANN>: 490 " in kept


def test_what_the_ladder_said_is_not_kept() -> None:
    short = condense([*turns(20), said("hm"), asked("[Pilothouse, automatic] Answer now."), *turns(9)], 9_000)
    assert short is not None and "automatic" not in json.dumps(short)


def test_what_was_said_last_is_told_apart_from_what_has_been_answered() -> None:
    kept = texts(as_text(turns(3), 10_000))
    assert kept[-2:] == [NOW, "<@U0BEN>: and now?"]
    again = texts(as_text([*as_text(turns(3), 10_000), said("Fine."), asked("<@U0ANN>: sure?")], 10_000))
    assert again.count(NOW) == 1 and again[-2:] == [NOW, "<@U0ANN>: sure?"]


def test_as_text_leaves_nothing_that_could_be_refused() -> None:
    broken = [
        asked("<@U0ANN>: why?"),
        *step(1, "half \ud800 and\0nul", is_error=True),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, 7, {"type": "sticker"}]},
        {"role": "user", "content": [{"type": "image", "source": {}}, {"type": "tool_result", "content": {"a": 1}}]},
        {"role": "assistant", "content": "in one string"},
        {"role": "user", "content": None},
    ]
    told = as_text(broken, 10_000)
    assert not problems({"messages": told})
    everything = "\n".join(texts(told))
    assert "<@U0ANN>: why?" in everything and "in one string" in everything and "app-1" in everything


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(healthy())
def test_every_healthy_history_is_healthy_when_it_is_condensed(history: list[dict[str, Any]]) -> None:
    for budget in (300, 700, 1_500):
        short = condense(history, budget)
        if short is not None:
            assert suture({"messages": short}).repairs == []
    assert not problems({"messages": as_text(history, 300)})


@pytest.mark.parametrize("output", ["a" * 20_000, "a-" * 10_000, "1" * 20_000, "\n" * 20_000, "x.y " * 5_000])
def test_no_output_makes_it_slow(output: str) -> None:
    history = [asked("why?"), *[each for number in range(20) for each in step(number, output)], said(output)]
    began = time.process_time()
    condense([*history, asked("so?")], 20_000)
    assert time.process_time() - began < 1.0
