"""When a turn may be cut: the balance of calls, and the four questions in their order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.safe_point import PRIORITY, Balance, Force, Probe, delta, stamp_of
from core.turn import Stamp

CALL = {"type": "tool_use", "id": "toolu_1", "name": "logs", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "fine"}
SERVER = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
REMOTE = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "y", "input": {}}
REMOTE_RESULT = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []}
TEXT = {"type": "text", "text": "I look at the logs."}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


@pytest.mark.parametrize(
    ("blocks", "change"),
    [
        ([], 0),
        ([TEXT, THINKING], 0),
        ([CALL], 1),
        ([TEXT, CALL, CALL, CALL], 3),
        ([RESULT, RESULT], -2),
        ([RESULT, TEXT], -1),
        ([SERVER], 1),
        ([SERVER, FOUND], 0),
        ([SERVER, FOUND, TEXT, CALL], 1),
        ([SERVER, CALL], 2),
        ([REMOTE], 1),
        ([REMOTE, REMOTE_RESULT], 0),
        ([{"type": "bash_code_execution_tool_result"}], -1),
        ([{"text": "a block without a type"}], 0),
    ],
)
def test_an_entry_counts_its_calls_minus_its_results(blocks: list[dict[str, Any]], change: int) -> None:
    assert delta(blocks) == change


def test_a_batch_is_a_safe_point_when_its_last_result_is_there_and_not_before() -> None:
    balance = Balance()
    assert not balance.observe([CALL, CALL, CALL])
    assert not balance.observe([RESULT])
    assert not balance.observe([RESULT])
    assert balance.observe([RESULT])
    assert balance.open == 0


def test_results_of_one_batch_in_one_entry_are_one_safe_point() -> None:
    balance = Balance()
    balance.observe([TEXT, CALL, CALL])
    assert balance.observe([RESULT, RESULT])


def test_text_alone_is_never_a_safe_point() -> None:
    balance = Balance()
    assert not balance.observe([TEXT])
    assert not balance.observe([])
    assert balance.open == 0


def test_a_server_call_that_closes_in_its_own_answer_is_no_safe_point() -> None:
    assert not Balance().observe([SERVER, FOUND, TEXT])


def test_an_open_server_call_keeps_the_batch_around_it_open() -> None:
    balance = Balance()
    assert not balance.observe([SERVER, CALL])
    assert not balance.observe([RESULT])
    assert balance.observe([FOUND, TEXT])


def test_a_new_call_beside_the_result_of_a_server_call_keeps_the_balance_open() -> None:
    balance = Balance()
    balance.observe([SERVER])
    assert not balance.observe([FOUND, CALL])
    assert balance.observe([RESULT])


def test_results_that_nobody_asked_for_do_not_make_a_debt() -> None:
    balance = Balance()
    assert not balance.observe([RESULT, RESULT])
    assert balance.open == 0
    balance.observe([CALL])
    assert balance.observe([RESULT])


@given(st.lists(st.tuples(st.integers(1, 9), st.randoms(use_true_random=False)), max_size=8))
def test_each_batch_is_exactly_one_safe_point_however_its_results_come(batches: list[tuple[int, Any]]) -> None:
    balance, safe_points = Balance(), 0
    for calls, random in batches:
        safe_points += balance.observe([TEXT, *[CALL] * calls])
        left = calls
        while left:
            together = random.randint(1, left)
            left -= together
            assert balance.open > 0
            safe_points += balance.observe([RESULT] * together)
    assert safe_points == len(batches)
    assert balance.open == 0


# -- the four forces


def test_the_order_is_steer_drain_dispatch_await() -> None:
    assert PRIORITY == (Force.STEER, Force.DRAIN, Force.DISPATCH, Force.AWAIT)


@pytest.mark.parametrize("applies", list(product((False, True), repeat=4)))
def test_the_first_force_that_applies_decides_and_the_rest_are_not_asked(applies: tuple[bool, ...]) -> None:
    asked: list[Force] = []

    def question(force: Force, yes: bool) -> Callable[[], bool]:
        def ask() -> bool:
            asked.append(force)
            return yes

        return ask

    probe = Probe({force: question(force, yes) for force, yes in zip(PRIORITY, applies, strict=True)})
    first = applies.index(True) if any(applies) else None
    stamp = probe.ask()
    assert stamp is (None if first is None else stamp_of(PRIORITY[first]))
    expected = list(PRIORITY) if first is None else list(PRIORITY[: first + 1])
    assert asked == expected
    assert probe.asked == expected


def test_a_force_that_nobody_can_ask_about_does_not_apply() -> None:
    assert Probe({}).ask() is None
    assert Probe({Force.AWAIT: lambda: True}).ask() is Stamp.AWAIT


@pytest.mark.parametrize("force", Force)
def test_a_force_leaves_the_stamp_of_its_own_name(force: Force) -> None:
    assert stamp_of(force).value == force.value


def test_stop_is_not_a_force() -> None:
    assert {stamp_of(force) for force in Force} == set(Stamp) - {Stamp.STOP}
