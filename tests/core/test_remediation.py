"""The ladder: which rung follows which cause, what is said to the model, and the honest summary at its end."""

from __future__ import annotations

from itertools import product

import pytest

from core.remediation import ASKS, LIMIT_ASKS, EmptyCause, Looked, Rung, ask, next_rung, summary

G, A, L, F, S = Rung
N, T = EmptyCause.NOTHING, EmptyCause.MAX_TOKENS


@pytest.mark.parametrize(
    ("rung", "cause", "has_fallback", "after"),
    [
        (G, N, True, A),
        (G, N, False, A),
        (G, T, True, A),
        (G, T, False, A),
        (A, N, True, F),
        (A, N, False, S),
        (A, T, True, L),
        (A, T, False, L),
        (L, N, True, F),
        (L, N, False, S),
        (L, T, True, F),
        (L, T, False, S),
        (F, N, True, S),
        (F, T, True, S),
        (F, N, False, S),
        (S, N, True, S),
    ],
)
def test_each_cause_climbs_to_its_rung(rung: Rung, cause: EmptyCause, has_fallback: bool, after: Rung) -> None:
    assert next_rung(rung, cause, has_fallback=has_fallback) is after


@pytest.mark.parametrize(("cause", "has_fallback"), list(product(EmptyCause, (True, False))))
def test_the_ladder_only_goes_up_and_ends_with_the_summary(cause: EmptyCause, has_fallback: bool) -> None:
    rung, climbed = Rung.GROUND, [Rung.GROUND]
    while rung is not Rung.SUMMARY:
        rung = next_rung(rung, cause, has_fallback=has_fallback)
        climbed.append(rung)
    assert climbed == sorted(set(climbed))
    assert (Rung.FALLBACK_MODEL in climbed) is has_fallback
    assert (Rung.LARGER_OUTPUT in climbed) is (cause is EmptyCause.MAX_TOKENS)


def test_what_the_ladder_says_is_marked_as_ours() -> None:
    said = [ask(rung, cause) for rung in ASKS for cause in EmptyCause]
    said += [ask(Rung.GROUND, cause) for cause in LIMIT_ASKS]
    assert all(words.startswith("[Pilothouse, automatic] ") for words in said)


@pytest.mark.parametrize("cause", [EmptyCause.STEP_LIMIT, EmptyCause.TIME_LIMIT])
def test_at_a_limit_the_model_is_told_which_one_and_to_answer_without_tools(cause: EmptyCause) -> None:
    words = ask(Rung.GROUND, cause)
    assert ("steps" in words) is (cause is EmptyCause.STEP_LIMIT)
    assert "without tools" in words


def test_a_message_that_was_cut_off_is_not_said_to_have_had_no_text() -> None:
    assert "no text" in ask(Rung.ASK_AGAIN, EmptyCause.NOTHING)
    cut = ask(Rung.ASK_AGAIN, EmptyCause.MAX_TOKENS)
    assert "cut off" in cut and "no text" not in cut


def looked(number: int, status: str = "ok", output: str = "") -> Looked:
    return Looked("metrics", f"query=up{{host='h{number}'}}", status, output or f"value {number}")


def test_with_nothing_looked_at_the_summary_says_so_and_what_to_do() -> None:
    words = summary([])
    assert "nothing had been looked at" in words
    assert "Nothing was changed" in words
    assert "Retry" in words


def test_the_summary_lists_what_was_looked_at_and_claims_no_conclusion() -> None:
    words = summary([looked(1), looked(2, "timeout", "No answer within 10 s")])
    assert "no conclusion" in words and "Nothing below is interpreted" in words
    assert "- metrics `query=up{host='h1'}` (ok): `value 1`" in words
    assert "- metrics `query=up{host='h2'}` (timeout)\n" in words
    assert "Retry" in words


def test_the_summary_is_true_for_an_answer_that_was_cut_off_as_well_as_for_none() -> None:
    assert "returned no text" not in summary([looked(1)])
    assert "no complete answer" in summary([looked(1)])


def test_the_summary_is_bounded() -> None:
    words = summary([looked(number, output="x" * 100_000) for number in range(500)])
    assert len(words) < 5_000
    assert "- and 488 more calls" in words


def test_what_a_tool_said_cannot_leave_its_code_span() -> None:
    line = summary([Looked("logs", "a`b", "ok", "x` <!channel> `y\n# heading")]).splitlines()[2]
    assert line == "- logs `a'b` (ok): `x' <!channel> 'y # heading`"
