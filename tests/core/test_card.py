"""A card tells the truth: open exactly as long as something runs, one honest sentence for each end."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.card import (
    Button,
    CallLine,
    CallState,
    CardFacts,
    CardView,
    Glyph,
    HelperLine,
    StepLine,
    view,
)
from core.card_lines import asks, tool_words
from core.errors import IllegalMove
from core.messages import Level, TurnId, UserId

ANN, OLA = UserId("U0ENGINEER"), UserId("U0ONCALL")

STEPS = (
    StepLine(
        1, (CallLine("alerts", "", CallState.OK, 0.3), CallLine("prometheus", "5xx by service", CallState.OK, 1.2))
    ),
    StepLine(2, (CallLine("loki", "checkout errors", CallState.ERROR, 3.1),), said="The host looks odd."),
    StepLine(3, (CallLine("kubernetes", "rollout of gateway", CallState.RUNNING, 4.0),)),
)

RUNNING = CardFacts(
    TurnId("turn-1"),
    ANN,
    "why is checkout answering 5xx?",
    "running",
    steps=STEPS,
    max_steps=8,
    elapsed_s=41.3,
    cost_usd=0.0312,
    model="claude-sonnet-5-5",
    doing="running 1 call",
)


def settled(reason: str, detail: str | None = None, **more: object) -> CardFacts:
    return replace(RUNNING, state="settled", reason=reason, detail=detail, ended_step=3, **more)  # type: ignore[arg-type]


def lines(card: CardView) -> str:
    return "\n".join(text for _, text in card.lines)


ENDS = [
    ("completed", None, "Answered. The answer follows in this thread.", ()),
    ("empty", None, "No answer. The model gave none, even when it was asked again.", (Button.RETRY,)),
    ("steered", None, "Redirected by @{U0ONCALL} at step 3, continued below.", ()),
    ("stopped_step", None, "Stopped by @{U0ONCALL} at step 3. Reply here to go on from there.", ()),
    ("cancelled", None, "Stopped by @{U0ONCALL} at step 3. The task is over; mention me here to start again.", ()),
    ("dispatched", None, "The helpers are done, continued below.", ()),
    ("awaiting", None, "Asked a question and ended here. It goes on with the answer.", ()),
    ("timed_out", None, "Reached its limit at step 3, before there was an answer.", (Button.RETRY,)),
    ("abandoned", None, "Given up at step 3: the worker crashed three times on this turn.", (Button.RETRY,)),
    ("failed", "refused_by_model", "The model declined to answer this.", (Button.RETRY,)),
    ("failed", "channel_archived", "Ended at step 3: this place took no more messages while the turn ran.", ()),
    ("failed", "outcome_unknown", "Ended at step 3: it is not known whether a change was made.", ()),
    ("failed", "structural_400", "The model's API refused this conversation as it stands.", (Button.RETRY,)),
    ("failed", "provider", "The model could not be reached at step 3, also after retries.", (Button.RETRY,)),
    ("failed", "internal", "Ended at step 3 by a fault of this bot.", (Button.RETRY,)),
]


@pytest.mark.parametrize(("reason", "detail", "headline", "buttons"), ENDS)
def test_each_way_to_end_has_its_own_sentence_and_its_own_way_on(
    reason: str, detail: str | None, headline: str, buttons: tuple[Button, ...]
) -> None:
    card = view(settled(reason, detail, ended_by=OLA))
    assert card.headline == headline
    assert card.buttons == buttons
    assert not card.open


@pytest.mark.parametrize(("reason", "detail", "headline", "buttons"), ENDS)
def test_a_released_card_shows_nothing_that_runs_whatever_the_rows_still_say(
    reason: str, detail: str | None, headline: str, buttons: tuple[Button, ...]
) -> None:
    card = view(settled(reason, detail, ended_by=OLA))
    assert Glyph.RUNNING not in [glyph for glyph, _ in card.lines]
    assert "running" not in lines(card)


def test_a_released_card_with_a_running_line_is_refused() -> None:
    with pytest.raises(IllegalMove, match="released card"):
        CardView(TurnId("t"), "Answered.", ((Glyph.RUNNING, "loki"),), "", (), "done", False)


def test_a_settle_that_nobody_knows_is_refused() -> None:
    with pytest.raises(IllegalMove, match="vanished"):
        view(settled("vanished"))


@pytest.mark.parametrize("reason", ["steered", "stopped_step", "cancelled"])
def test_a_stop_or_a_redirection_is_neutral_and_its_call_says_stopped_not_failed(reason: str) -> None:
    card = view(settled(reason, ended_by=OLA))
    assert card.tone == "neutral"
    assert (Glyph.ENDED, "kubernetes: rollout of gateway (stopped)") in card.lines


def test_a_stop_before_the_first_step_and_one_by_the_operators_are_named_as_such() -> None:
    card = view(replace(settled("stopped_step"), ended_step=0, steps=()))
    assert card.headline == "Stopped by an operator before the first step. Reply here to go on from there."


@pytest.mark.parametrize("reason", ["empty", "timed_out", "abandoned", "failed"])
def test_a_problem_says_what_is_known_and_what_to_do_next(reason: str) -> None:
    card = view(settled(reason, known="The gateway was changed at 14:02."))
    assert card.tone == "problem"
    assert (Glyph.NOTE, "Known: The gateway was changed at 14:02.") in card.lines
    assert any(glyph is Glyph.NEXT for glyph, _ in card.lines)


def test_after_an_unknown_outcome_there_is_no_button_that_could_repeat_it() -> None:
    unknown = CallLine("rollback", "gateway to revision 41", CallState.UNKNOWN, 30.0)
    card = view(replace(settled("failed", "outcome_unknown"), steps=(StepLine(1, (unknown,)),)))
    assert card.buttons == ()
    assert (Glyph.UNKNOWN, "rollback: gateway to revision 41 (outcome unknown, it may have run, 30 s)") in card.lines
    assert "Check first whether it happened" in lines(card)


def test_a_crash_leaves_calls_interrupted() -> None:
    assert "kubernetes: rollout of gateway (interrupted by a restart)" in lines(view(settled("abandoned")))


def test_an_answered_card_is_short_and_does_not_alarm() -> None:
    card = view(replace(settled("completed", answer_posted=True), answer_link="https://team.slack.com/p1"))
    assert card.headline == "Answered below."
    assert card.link == ("Open the answer", "https://team.slack.com/p1")
    assert card.lines[1:] == ((Glyph.FOLDED, "3 steps, 4 calls (1 failed on the way)"),)


def test_an_answer_that_slack_refused_is_on_the_card() -> None:
    card = view(settled("completed", answer_fallback="It is the gateway."))
    assert card.headline == "Answered. Slack did not take the answer as a message, so it is here."
    assert card.answer == "It is the gateway."


def test_an_empty_turn_says_what_was_looked_at() -> None:
    card = view(settled("empty", answer_posted=True))
    assert card.headline.endswith("What was looked at is summed up below.")
    assert "loki: checkout errors (failed, 3.1 s)" in lines(card)


def test_while_it_runs_the_card_says_what_step_time_cost_and_who_asked() -> None:
    card = view(RUNNING)
    assert card.headline == "Investigating: running 1 call."
    assert card.footer == "Step 3 of 8 · 41 s · $0.03 · claude-sonnet-5-5 · asked by @{U0ENGINEER}"
    assert card.buttons == (Button.STOP_STEP, Button.CANCEL_TASK)
    assert (card.tone, card.open) == ("working", True)
    assert (Glyph.RUNNING, "kubernetes: rollout of gateway (running, 4 s)") in card.lines


def test_older_steps_are_folded_and_many_calls_are_counted() -> None:
    steps = tuple(StepLine(n, tuple(CallLine("loki", f"q{i}", CallState.OK) for i in range(9))) for n in range(1, 7))
    card = view(replace(RUNNING, steps=steps))
    assert (Glyph.FOLDED, "5 earlier steps, 45 calls") in card.lines
    assert (Glyph.FOLDED, "and 3 more calls") in card.lines
    assert len(card.lines) < 20


def test_a_read_is_one_line_with_both_ends_of_its_query() -> None:
    query = 'sum by (service) (rate(http_requests_total{service="checkout",status=~"5.."}[5m]))'
    card = view(replace(RUNNING, steps=(StepLine(1, (CallLine("prometheus_query", query, CallState.OK, 0.1),)),)))
    assert (Glyph.OK, 'prometheus query: sum by (service) (rat….."}[5m]))') in card.lines


def test_a_write_keeps_each_argument_by_its_name() -> None:
    asked = {"namespace": "shop", "deployment": "gateway", "to_revision": 41, "dry": False}
    said = asks(asked, writes=True)
    assert said == "namespace=shop deployment=gateway to_revision=41 dry=false"
    card = view(
        replace(RUNNING, steps=(StepLine(1, (CallLine("rollback", said, CallState.RUNNING, None, writes=True),)),))
    )
    assert (Glyph.RUNNING, f"rollback: {said} (running)") in card.lines


def test_what_a_call_asks_shows_no_secret() -> None:
    for writes in (False, True):
        said = asks(
            {"query": "{app='x'} |= 'Authorization: Bearer sk-ant-api03-abcdefghijklmnopqrstuv'"}, writes=writes
        )
        assert "abcdefghijkl" not in said and "app='x'" in said
        assert "hunter2" not in asks({"user": "bob", "password": "hunter2"}, writes=writes)


def test_a_tool_without_a_name_that_can_be_seen_breaks_no_line() -> None:
    for name in ("\n", " \t ", "_"):
        assert tool_words(name) == "(no name)"


def test_what_is_folded_away_still_names_an_unknown_outcome() -> None:
    steps = (StepLine(1, (CallLine("rollback", "", CallState.UNKNOWN),)), StepLine(2, ()), StepLine(3, ()))
    assert "2 earlier steps, 1 call (1 with unknown outcome)" in lines(view(replace(RUNNING, steps=steps)))


@pytest.mark.parametrize(
    ("level", "headline", "buttons"),
    [
        (Level.STEP, "Stopping this step for @{U0ONCALL}.", (Button.CANCEL_TASK,)),
        (Level.TASK, "Stopping the task for @{U0ONCALL}.", ()),
    ],
)
def test_between_the_stop_and_the_end_the_card_says_stopping(
    level: Level, headline: str, buttons: tuple[Button, ...]
) -> None:
    card = view(replace(RUNNING, stopping_by=OLA, stop_level=level))
    assert card.headline == f"{headline} Nothing new starts; running calls are ending."
    assert (card.tone, card.open, card.buttons) == ("stopping", True, buttons)


def test_a_restart_and_the_ladder_are_told() -> None:
    card = view(replace(RUNNING, resumed=True, rung=2))
    assert "Picked up again after a restart. Nothing that was found is lost." in lines(card)
    assert "No answer yet, asking again (try 2 of 4)." in lines(card)


@pytest.mark.parametrize("doing", ["approval ap-7", "waiting for approval ap-7"])
def test_a_suspended_turn_links_to_what_it_waits_for(doing: str) -> None:
    card = view(replace(RUNNING, state="suspended", doing=doing, request_link="https://team.slack.com/p2"))
    assert card.headline == "Waiting for approval ap-7."
    assert card.link == ("Open the request", "https://team.slack.com/p2")


def test_a_turn_can_be_stopped_before_it_starts_and_says_what_it_waits_for() -> None:
    card = view(CardFacts(TurnId("t"), ANN, "and the db?", "waiting"))
    assert card.headline == "Starting. It begins as soon as a worker is free."
    quiet = view(CardFacts(TurnId("t"), ANN, "and the db?", "waiting", quiet=True))
    assert quiet.headline == "Starting with your words. It waits a moment, in case more of them follow."
    assert Button.CANCEL_TASK in card.buttons
    assert card.footer == "asked by @{U0ENGINEER}"


def test_a_dispatched_turn_keeps_its_card_open_until_the_last_helper_is_done() -> None:
    helpers = (
        HelperLine("db", "running", "slow queries"),
        HelperLine("gateway", "asking"),
        HelperLine("logs", "done"),
    )
    card = view(settled("dispatched", helpers=helpers))
    assert card.open and card.tone == "working"
    assert card.headline == "2 helpers at work. This goes on with what they report."
    assert card.lines[-3:] == (
        (Glyph.RUNNING, "db: slow queries"),
        (Glyph.ASKING, "gateway: waits for an answer"),
        (Glyph.OK, "logs: done"),
    )
    done = view(settled("dispatched", helpers=tuple(replace(helper, state="done") for helper in helpers)))
    assert not done.open


def test_a_change_that_waits_for_people_says_so_and_links_to_its_request() -> None:
    step = StepLine(1, (CallLine("undo", "to=41", CallState.ASKED, writes=True),))
    link = "https://slack.test/p1"
    waiting = replace(RUNNING, state="suspended", steps=(step,), doing="approval of ap-7", request_link=link)
    card = view(waiting)
    assert card.headline == "Waiting for approval of ap-7."
    assert (Glyph.ASKING, "undo: to=41 (waits for approval)") in card.lines
    assert card.link == ("Open the request", "https://slack.test/p1")


def test_a_settled_card_shows_no_change_that_still_waits() -> None:
    step = StepLine(1, (CallLine("undo", "to=41", CallState.ASKED, writes=True),))
    card = view(settled("stopped_step", ended_by=OLA, steps=(step,)))
    assert (Glyph.ENDED, "undo: to=41 (stopped)") in card.lines


CALLS = st.builds(CallLine, st.text(max_size=20), st.text(max_size=300), st.sampled_from(CallState))
ANY_STEPS = st.lists(st.builds(StepLine, st.integers(1, 9), st.lists(CALLS, max_size=12).map(tuple)), max_size=9)


@settings(max_examples=60, deadline=None)
@given(
    ANY_STEPS,
    st.sampled_from(["waiting", "running", "suspended", "settled"]),
    st.sampled_from([(reason, detail) for reason, detail, _, _ in ENDS]),
    st.lists(st.sampled_from(["running", "asking", "done"]), max_size=3),
)
def test_a_card_is_open_exactly_while_its_turn_or_a_helper_is(
    steps: list[StepLine],
    state: Literal["waiting", "running", "suspended", "settled"],
    end: tuple[str, str | None],
    helpers: list[Literal["running", "asking", "done"]],
) -> None:
    card = view(
        replace(
            RUNNING,
            steps=tuple(steps),
            state=state,
            reason=end[0],
            detail=end[1],
            helpers=tuple(HelperLine("h", helper) for helper in helpers),
        )
    )
    assert card.open == (state != "settled" or any(helper != "done" for helper in helpers))
    assert (Button.CANCEL_TASK in card.buttons) == card.open
    assert all(len(text) < 1_000 and "\n" not in text for _, text in card.lines)
