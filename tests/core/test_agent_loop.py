"""One turn from its words to its outcome: cuts only at safe points, the ladder, the limits, and law 1 throughout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.agent_loop import AgentLoop, End, Leave, Means
from core.approvals import ApprovalPolicy
from core.control import Control, Mail
from core.errors import LostLease, ModelBusy, ModelRefusedHistory, ModelStreamBroken
from core.frame import framed
from core.gateway import CallStatus, Gateway
from core.history import flatten
from core.ledger import Claimed, OpenCall
from core.limits import Limits
from core.messages import ChannelId
from core.ports import ModelAnswer, ModelRequest, StreamProgress, Tier, Usage
from core.remediation import EmptyCause, Rung
from core.settle import Detail, Outcome, Reason
from core.turn import Stamp
from core.validator import problems
from tests.core.doubles import (
    STEP,
    TASK,
    FakeTool,
    Line,
    Lines,
    PaperLedger,
    after,
    answer,
    call,
    claimed,
    stubborn,
    tool,
    unasked,
)
from tests.support.virtual_time import ends_within, in_virtual_time, now, run

LIMITS = Limits(tool_timeout_s=10.0, max_steps=8, turn_s=120.0, reserve_s=30.0, rung_s=60.0, patience_s=2.0)
FINE = answer("It is the gateway.")
NOTHING = answer("")
CUT_OFF = answer("It is the gatew", stop_reason="max_tokens")
LOOK = ("look", {"q": "up"})


class Turn:
    """One attempt of a turn, with a model that says lines and a ledger on paper."""

    def __init__(self, *lines: Line, tools: Any = (), turn: Claimed | None = None, **limits: Any) -> None:
        self.model = Lines(list(lines))
        self.ledger = PaperLedger()
        self.turn = turn or claimed()
        self.ledger.messages = list(self.turn.messages)
        self.limits = Limits(**{name: getattr(LIMITS, name) for name in Limits.__slots__} | limits)
        self.tools: list[FakeTool] = list(tools) or [tool("look")]
        self.control = Control(self.limits, now)
        self.approvals: Callable[[ChannelId], ApprovalPolicy] | None = None

    async def run(self, *, fallback: str | None = "claude-other") -> End:
        means = Means(
            self.model,
            Gateway(self.tools, self.limits, now),
            self.ledger,
            self.limits,
            now,
            lambda: 0.5,
            fallback,
            approvals=self.approvals or unasked(self.tools),
        )
        self.loop = AgentLoop(means, self.control, self.turn)
        end = await self.loop.close_what_was_open() if self.turn.open_calls else None
        return end if end is not None else await self.loop.run()

    def arrives(self, mail: Mail, at: float | None = None) -> None:
        """The mailbox holds it and the bell rings, now or at a time."""
        if at is not None:
            asyncio.get_running_loop().call_at(at, self.arrives, mail)
            return
        self.ledger.box = mail
        self.control.note(mail)

    @property
    def requests(self) -> list[ModelRequest]:
        return self.model.requests

    def holds_law_1(self) -> None:
        """Every request is valid, and each is a prefix of the next one."""
        for request in self.requests:
            assert not problems({"messages": request.messages})
        for earlier, later in pairwise(flatten(request.messages) for request in self.requests):
            assert later[: len(earlier)] == earlier


def writes_for(seconds: float, then: ModelAnswer = FINE) -> Line:
    async def line(_request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        progress.output_chars = 400
        await asyncio.sleep(seconds)
        return then

    return line


def outcome(end: End) -> Outcome:
    assert isinstance(end, Outcome), end
    return end


# -- the plain way


@in_virtual_time
async def test_an_answer_without_calls_completes_the_turn_as_it_came() -> None:
    turn = Turn(FINE)
    end = outcome(await turn.run())
    assert (end.reason, end.answer, end.answer_text) == (Reason.COMPLETED, FINE.content, "It is the gateway.")
    assert turn.ledger.wrote == []
    assert turn.loop.take_spent()[0].usage == Usage(10, 5)


@in_virtual_time
async def test_calls_are_committed_run_and_closed_before_the_model_is_asked_again() -> None:
    first = answer("I look.", LOOK, LOOK)
    turn = Turn(first, FINE, tools=[tool("look", after(1, "42"))])
    end = outcome(await turn.run())
    ids = [block["id"] for block in first.content[1:]]
    assert turn.ledger.wrote == [("open", 1, ids), ("close", 1, ["ok", "ok"], None)]
    assert (end.reason, end.step) == (Reason.COMPLETED, 1)
    assert [one.tool for one in turn.turn.evidence] == ["look", "look"]
    assert turn.requests[1].messages[-2]["content"] == first.content
    assert [block["content"] for block in turn.requests[1].messages[-1]["content"]] == [framed("look", "42")] * 2
    turn.holds_law_1()


@in_virtual_time
async def test_what_the_model_asks_for_wrongly_is_told_to_it_and_the_turn_goes_on() -> None:
    broken = answer("", LOOK)
    broken = ModelAnswer(broken.content, "tool_use", broken.usage, broken.model, frozenset({broken.content[0]["id"]}))
    strict = FakeTool(tool("look").spec, after(0))
    turn = Turn(answer("", ("rm", {})), broken, FINE, tools=[strict])
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.ledger.words("close") == [(1, ["refused"], None), (2, ["refused"], None)]
    assert strict.began == 0
    assert not turn.turn.evidence
    turn.holds_law_1()


@in_virtual_time
async def test_duplicate_call_ids_in_one_answer_run_both_and_leave_a_history_that_can_be_sent() -> None:
    twins = answer("", LOOK, LOOK)
    for block in twins.content:
        block["id"] = "toolu_same"
    turn = Turn(twins, FINE)
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.tools[0].began == 2
    assert not turn.ledger.words("stitched")
    turn.holds_law_1()


@in_virtual_time
async def test_an_id_that_an_earlier_answer_had_is_another_call() -> None:
    def same() -> ModelAnswer:
        made = answer("", LOOK)
        made.content[0]["id"] = "toolu_same"
        return made

    turn = Turn(same(), same(), FINE)
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.ledger.words("open") == [(1, ["toolu_same"]), (2, ["toolu_same_2"])]
    assert not turn.ledger.words("stitched")
    turn.holds_law_1()


@in_virtual_time
async def test_256_parallel_calls_are_one_batch() -> None:
    turn = Turn(answer("", *[LOOK] * 256), FINE, tools=[tool("look", after(3))])
    assert outcome(await ends_within(turn.run(), 3.5)).reason is Reason.COMPLETED
    assert turn.ledger.words("close") == [(1, ["ok"] * 256, None)]
    turn.holds_law_1()


# -- cuts


@in_virtual_time
async def test_a_steer_cuts_at_the_end_of_the_batch_and_the_model_is_not_asked_again() -> None:
    turn = Turn(answer("", LOOK, ("slow", {})), tools=[tool("look", after(1)), tool("slow", after(9.0))])
    turn.arrives(Mail(steers=1), at=0.5)
    end = outcome(await ends_within(turn.run(), 2.5))
    assert (end.reason, end.stamp, end.step) == (Reason.STEERED, Stamp.STEER, 1)
    assert turn.ledger.words("close") == [(1, ["ok", "cancelled"], Stamp.STEER)]
    assert len(turn.requests) == 1


@in_virtual_time
async def test_a_steer_that_no_bell_told_of_is_found_at_the_safe_point() -> None:
    turn = Turn(answer("", LOOK))
    turn.ledger.box = Mail(steers=1)
    assert outcome(await turn.run()).reason is Reason.STEERED


@pytest.mark.parametrize(
    ("mail", "draining", "end"),
    [
        (Mail(STEP, steers=1), True, Reason.STOPPED_STEP),
        (Mail(TASK, steers=1), True, Reason.CANCELLED),
        (Mail(steers=1), True, Reason.STEERED),
        (Mail(steers=1), False, Reason.STEERED),
        (Mail(), True, Leave.HANDED_OVER),
    ],
)
def test_at_a_safe_point_stop_beats_steer_and_steer_beats_drain(mail: Mail, draining: bool, end: Any) -> None:
    async def cut() -> tuple[End, Turn]:
        turn = Turn(answer("", LOOK), tools=[tool("look", after(1))])
        turn.arrives(mail, at=0.5)
        if draining:
            asyncio.get_running_loop().call_at(0.4, turn.control.drain)
        return await turn.run(), turn

    got, turn = run(cut())
    assert (got.reason if isinstance(got, Outcome) else got) == end
    assert len(turn.requests) == 1
    (closed,) = turn.ledger.words("close")
    expected = {Reason.STEERED: Stamp.STEER, Leave.HANDED_OVER: Stamp.DRAIN}.get(end, Stamp.STOP)
    assert closed[-1] is expected


@pytest.mark.parametrize(("stop", "reason"), [(STEP, Reason.STOPPED_STEP), (TASK, Reason.CANCELLED)])
def test_a_stop_says_who_ended_the_turn_and_at_which_step(stop: Any, reason: Reason) -> None:
    async def cut() -> Outcome:
        turn = Turn(answer("", LOOK), answer("", ("slow", {})), tools=[tool("look"), tool("slow", after(9))])
        turn.arrives(Mail(stop), at=1)
        return outcome(await ends_within(turn.run(), 1.0))

    end = run(cut())
    assert (end.reason, end.stamp, end.step, end.ended_by) == (reason, Stamp.STOP, 2, stop.author)


@in_virtual_time
async def test_a_stop_that_is_committed_before_the_calls_are_keeps_all_of_them_out_of_history() -> None:
    turn = Turn(answer("", LOOK))
    turn.ledger.box = Mail(STEP)
    end = outcome(await turn.run())
    assert (end.reason, end.step, end.ended_by) == (Reason.STOPPED_STEP, 0, STEP.author)
    assert turn.ledger.wrote == [("drop", Stamp.STOP)]
    assert turn.tools[0].began == 0
    assert turn.turn.messages == claimed().messages


@pytest.mark.parametrize(
    ("mail", "reason"),
    [(Mail(STEP), Reason.STOPPED_STEP), (Mail(TASK), Reason.CANCELLED), (Mail(steers=1), Reason.STEERED)],
)
def test_what_is_being_written_is_thrown_away_and_booked_as_an_estimate(mail: Mail, reason: Reason) -> None:
    async def cut() -> tuple[Outcome, Turn]:
        turn = Turn(writes_for(60, answer("", LOOK)))
        turn.arrives(mail, at=5)
        return outcome(await ends_within(turn.run(), 5.0)), turn

    end, turn = run(cut())
    assert end.reason is reason
    assert turn.turn.messages == claimed().messages
    assert [spent.usage for spent in turn.ledger.spent] == [Usage(0, 100, estimated=True)]
    assert turn.tools[0].began == 0


@in_virtual_time
async def test_a_steer_that_is_withdrawn_meanwhile_only_costs_the_answer() -> None:
    turn = Turn(writes_for(60), FINE)
    turn.arrives(Mail(steers=1), at=5)
    asyncio.get_running_loop().call_at(5, setattr, turn.ledger, "box", Mail())
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.ledger.wrote == [("drop", None)]


@in_virtual_time
async def test_words_that_come_before_the_first_request_join_the_turn() -> None:
    turn = Turn(FINE)
    turn.arrives(Mail(steers=1))
    assert await turn.run() is Leave.JOIN
    assert not turn.requests and not turn.ledger.wrote


@pytest.mark.parametrize(
    "changes",
    [{"rung": Rung.ASK_AGAIN, "rung_cause": EmptyCause.NOTHING}, {"rung_cause": EmptyCause.TIME_LIMIT}, {"steps": 1}],
)
def test_words_do_not_join_a_turn_that_has_asked_before_elsewhere(changes: dict[str, Any]) -> None:
    async def cut() -> End:
        turn = Turn(FINE, turn=claimed(**changes))
        turn.arrives(Mail(steers=1))
        return await turn.run()

    assert outcome(run(cut())).reason is Reason.STEERED


@in_virtual_time
async def test_a_finished_answer_is_kept_when_a_steer_comes_with_its_last_byte() -> None:
    turn = Turn(writes_for(5))
    turn.ledger.box = Mail(steers=1)
    assert outcome(await turn.run()).reason is Reason.COMPLETED


@in_virtual_time
async def test_a_steer_that_came_with_the_last_byte_runs_no_calls() -> None:
    turn = Turn(writes_for(5, answer("", LOOK)))

    async def line(request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        turn.arrives(Mail(steers=1))
        return answer("", LOOK)

    turn.model.lines = [line]
    assert outcome(await turn.run()).reason is Reason.STEERED
    assert turn.tools[0].began == 0


@in_virtual_time
async def test_a_draining_worker_hands_the_turn_over_before_it_asks() -> None:
    turn = Turn(FINE)
    turn.control.drain()
    assert await turn.run() is Leave.HANDED_OVER
    assert turn.ledger.wrote == [("drop", Stamp.DRAIN)]
    assert not turn.requests


@in_virtual_time
async def test_drain_lets_a_running_answer_complete_the_turn() -> None:
    turn = Turn(writes_for(14))
    turn.control.drain_at = None
    asyncio.get_running_loop().call_at(1, turn.control.drain)
    assert outcome(await turn.run()).reason is Reason.COMPLETED


@in_virtual_time
async def test_drain_hands_over_what_is_still_being_written_ten_seconds_before_its_limit() -> None:
    turn = Turn(writes_for(100))
    asyncio.get_running_loop().call_at(1, turn.control.drain)
    assert await ends_within(turn.run(), 16.0) is Leave.HANDED_OVER
    assert turn.ledger.wrote == [("drop", Stamp.DRAIN)]


@pytest.mark.parametrize("lines", [(writes_for(60),), (answer("", ("slow", {})),)])
def test_a_lost_lease_ends_the_loop_wherever_it_is(lines: tuple[Line, ...]) -> None:
    async def lost() -> PaperLedger:
        turn = Turn(*lines, tools=[tool("slow", after(9))])
        turn.control.lease_deadline = 4.0
        with pytest.raises(LostLease):
            await turn.run()
        assert now() == 4.0
        return turn.ledger

    assert not run(lost()).words("close")


# -- an open call of the server


@in_virtual_time
async def test_while_a_server_call_is_open_a_batch_is_closed_but_is_no_safe_point() -> None:
    searching = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    both = answer("", LOOK)
    both = ModelAnswer([searching, *both.content], "tool_use", both.usage, both.model)
    turn = Turn(both, FINE)

    async def look(arguments: Any) -> Any:
        turn.ledger.box = Mail(steers=1)
        return await after(0)(arguments)

    turn.tools = [tool("look", look)]
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.ledger.words("close") == [(1, ["ok"], None)]


@pytest.mark.parametrize("reason", ["pause_turn", "model_context_window_exceeded", "max_tokens"])
def test_an_answer_that_is_not_whole_is_neither_posted_nor_run(reason: str) -> None:
    async def half() -> Turn:
        turn = Turn(answer("Half a sen", stop_reason=reason), answer("x", LOOK, stop_reason=reason), FINE)
        assert outcome(await turn.run()).answer == FINE.content
        return turn

    turn = run(half())
    assert turn.tools[0].began == 0
    assert "Half a sen" not in str(turn.requests[-1].messages)
    turn.holds_law_1()


# -- writes


@pytest.mark.parametrize("work", [after(3_600), after(1, error=OSError("reset")), after(1, error=SystemExit())])
@pytest.mark.parametrize("mail", [Mail(), Mail(STEP), Mail(steers=1)])
def test_a_write_whose_outcome_is_unknown_ends_the_task_whatever_else_is_waiting(
    work: Callable[..., Any], mail: Mail
) -> None:
    async def unknown() -> tuple[Outcome, Turn]:
        turn = Turn(answer("", ("scale", {}), ("scale", {})), tools=[tool("scale", work, tier=Tier.WRITE)])
        turn.arrives(mail, at=0.5)
        return outcome(await ends_within(turn.run(), 11.0)), turn

    end, turn = run(unknown())
    assert (end.reason, end.detail) == (Reason.FAILED, Detail.OUTCOME_UNKNOWN)
    assert "not known" in end.known and "Check" in end.known
    assert turn.ledger.words("close") == [(1, ["unknown", "not_run"], None)]
    assert len(turn.requests) == 1 and turn.tools[0].began == 1


# -- the ladder


def says(turn: Turn) -> list[tuple[str, int, bool]]:
    """Model, output limit and tool choice of every request."""
    return [(request.model, request.max_tokens, request.without_tools) for request in turn.requests]


BASE, AGAIN = ("claude-test", 4_096, False), ("claude-test", 4_096, True)
LARGER, OTHER = ("claude-test", 16_384, True), ("claude-other", 16_384, True)


@pytest.mark.parametrize(
    ("lines", "fallback", "asked"),
    [
        ([NOTHING] * 4, "claude-other", [BASE, AGAIN, OTHER]),
        ([NOTHING] * 4, None, [BASE, AGAIN]),
        ([CUT_OFF] * 4, "claude-other", [BASE, AGAIN, LARGER, OTHER]),
        ([CUT_OFF] * 4, None, [BASE, AGAIN, LARGER]),
        ([NOTHING, CUT_OFF, NOTHING, NOTHING], "claude-other", [BASE, AGAIN, LARGER, OTHER]),
        ([answer("", LOOK, stop_reason="max_tokens")] * 4, None, [BASE, AGAIN, LARGER]),
        ([NOTHING, *[answer("", LOOK)] * 3], None, [BASE, AGAIN]),
        ([NOTHING, *[answer("x", LOOK)] * 3], None, [BASE, AGAIN]),
        ([answer(" \n")] * 4, None, [BASE, AGAIN]),
    ],
)
def test_each_cause_climbs_its_rungs_and_ends_in_an_honest_summary(
    lines: list[Line], fallback: str | None, asked: list[tuple[str, int, bool]]
) -> None:
    async def climb() -> tuple[Outcome, Turn]:
        turn = Turn(*lines)
        return outcome(await turn.run(fallback=fallback)), turn

    end, turn = run(climb())
    assert end.reason is Reason.EMPTY and end.answer is None
    assert "nothing had been looked at yet" in end.summary
    assert says(turn) == asked
    assert turn.ledger.words("climb")[-1][0] is Rung.SUMMARY
    assert turn.tools[0].began == 0
    assert {message["role"] for message in turn.turn.messages} == {"user"}
    turn.holds_law_1()


@pytest.mark.parametrize("empty", range(1, 4))
def test_an_answer_on_any_rung_completes_the_turn(empty: int) -> None:
    async def climb() -> Turn:
        turn = Turn(*[CUT_OFF] * empty, FINE)
        assert outcome(await turn.run()).reason is Reason.COMPLETED
        return turn

    run(climb()).holds_law_1()


@pytest.mark.parametrize(
    ("mail", "reason"),
    [(Mail(STEP), Reason.STOPPED_STEP), (Mail(TASK), Reason.CANCELLED), (Mail(steers=1), Reason.STEERED)],
)
def test_a_steer_or_a_stop_ends_the_ladder_like_any_cut(mail: Mail, reason: Reason) -> None:
    async def climb() -> tuple[Outcome, Turn]:
        turn = Turn(NOTHING, writes_for(30))
        turn.arrives(mail, at=5)
        return outcome(await ends_within(turn.run(), 5.0)), turn

    end, turn = run(climb())
    assert (end.reason, end.summary) == (reason, "")
    assert len(turn.requests) == 2


@in_virtual_time
async def test_a_stop_that_is_found_while_climbing_keeps_the_next_rung_from_being_asked() -> None:
    turn = Turn(NOTHING, FINE)
    turn.ledger.box = Mail(STEP)
    assert outcome(await turn.run()).reason is Reason.STOPPED_STEP
    assert len(turn.requests) == 1


@in_virtual_time
async def test_a_rung_has_sixty_seconds() -> None:
    turn = Turn(NOTHING, writes_for(600), FINE)
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.model.sent_at == [0.0, 0.0, 60.0]


@in_virtual_time
async def test_the_ladder_goes_on_at_the_rung_where_another_worker_left_it() -> None:
    turn = Turn(NOTHING, turn=claimed(rung=Rung.LARGER_OUTPUT, rung_cause=EmptyCause.MAX_TOKENS))
    end = outcome(await turn.run(fallback=None))
    assert says(turn) == [LARGER]
    assert end.reason is Reason.EMPTY


@in_virtual_time
async def test_an_exhausted_ladder_is_not_climbed_again_after_a_crash() -> None:
    turn = Turn(turn=claimed(rung=Rung.SUMMARY, rung_cause=EmptyCause.NOTHING))
    assert outcome(await turn.run()).reason is Reason.EMPTY
    assert not turn.requests


@in_virtual_time
async def test_the_summary_tells_what_was_looked_at() -> None:
    turn = Turn(answer("", LOOK), NOTHING, NOTHING, tools=[tool("look", after(1, "503 on gw-2"))])
    end = outcome(await turn.run(fallback=None))
    assert "- look `q=up` (ok): `503 on gw-2`" in end.summary


@in_virtual_time
async def test_a_refusal_is_told_and_not_retried() -> None:
    turn = Turn(answer("I can't help with that.", stop_reason="refusal"), FINE)
    end = outcome(await turn.run())
    assert (end.reason, end.detail) == (Reason.FAILED, Detail.REFUSED_BY_MODEL)
    assert "I can't help with that." in end.known
    assert len(turn.requests) == 1


@pytest.mark.parametrize(
    ("error", "detail", "tries"),
    [
        (lambda: ModelBusy("529"), Detail.PROVIDER, 6),
        (lambda: ModelStreamBroken("cut"), Detail.PROVIDER, 6),
        (lambda: ModelRefusedHistory("400"), Detail.STRUCTURAL_400, 1),
    ],
)
def test_provider_errors_end_the_turn_apart_from_the_ladder(
    error: Callable[[], Exception], detail: Detail, tries: int
) -> None:
    async def fail() -> tuple[Outcome, Turn]:
        turn = Turn(*(error() for _ in range(99)))
        return outcome(await ends_within(turn.run(), 60.0)), turn

    end, turn = run(fail())
    assert (end.reason, end.detail) == (Reason.FAILED, detail)
    assert len(turn.requests) == tries
    assert not turn.ledger.words("climb")


# -- limits


@in_virtual_time
async def test_at_the_step_limit_the_model_is_asked_for_its_answer_without_tools() -> None:
    turn = Turn(*[answer("", LOOK)] * 3, FINE, max_steps=3)
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert [request.without_tools for request in turn.requests] == [False] * 3 + [True]
    assert "limit of steps" in str(turn.requests[-1].messages[-1]["content"][-1])
    turn.holds_law_1()


@pytest.mark.parametrize("last", [NOTHING, answer("", LOOK), answer("more", LOOK)])
def test_only_if_that_fails_too_the_turn_is_timed_out(last: ModelAnswer) -> None:
    async def limited() -> tuple[Outcome, Turn]:
        turn = Turn(*[answer("", LOOK)] * 3, last, FINE, max_steps=3)
        return outcome(await turn.run()), turn

    end, turn = run(limited())
    assert end.reason is Reason.TIMED_OUT
    assert end.known.startswith("The limit of 3 steps was reached")
    assert len(turn.ledger.words("close")) == 3 and len(turn.requests) == 4


@in_virtual_time
async def test_an_answer_at_the_step_limit_that_was_only_too_long_may_be_longer() -> None:
    turn = Turn(answer("", LOOK), CUT_OFF, CUT_OFF, FINE, max_steps=1)
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert says(turn)[-1] == LARGER


@in_virtual_time
async def test_with_thirty_seconds_left_the_model_is_asked_for_its_answer() -> None:
    turn = Turn(writes_for(600), writes_for(20))
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.model.sent_at == [0.0, 90.0]
    assert "nearly over" in str(turn.requests[-1].messages[-1]["content"][-1])
    assert turn.requests[-1].without_tools


@in_virtual_time
async def test_a_model_that_never_answers_is_timed_out_at_the_turns_limit() -> None:
    turn = Turn(*[writes_for(9_999)] * 99)
    end = outcome(await ends_within(turn.run(), 120.0))
    assert end.reason is Reason.TIMED_OUT
    assert end.known.startswith("The time for this turn ran out")
    assert [spent.usage.estimated for spent in turn.ledger.spent + list(turn.loop.take_spent())] == [True, True]


@in_virtual_time
async def test_an_empty_answer_at_the_time_limit_is_timed_out_and_not_empty() -> None:
    turn = Turn(writes_for(600), NOTHING, FINE)
    assert outcome(await turn.run()).reason is Reason.TIMED_OUT
    assert len(turn.requests) == 2


@in_virtual_time
async def test_time_spent_on_other_workers_counts() -> None:
    turn = Turn(writes_for(600), writes_for(600), turn=claimed(running_s=80.0))
    assert outcome(await ends_within(turn.run(), 40.0)).reason is Reason.TIMED_OUT
    assert turn.model.sent_at == [0.0, 10.0]


@in_virtual_time
async def test_a_turn_whose_time_is_over_when_it_is_claimed_still_gets_one_question() -> None:
    turn = Turn(FINE, turn=claimed(running_s=500.0))
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.requests[0].without_tools


@in_virtual_time
async def test_a_batch_does_not_outlive_the_time_of_the_turn() -> None:
    long = tool("scale", after(20), tier=Tier.WRITE, timeout_s=30.0)
    turn = Turn(answer("", *[("scale", {})] * 99), FINE, tools=[long])
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert long.began == 5 and now() == 100.0
    (closed,) = turn.ledger.words("close")
    assert closed[1] == ["ok"] * 5 + ["not_run"] * 94


@in_virtual_time
async def test_tools_that_hang_and_are_deaf_do_not_keep_the_turn() -> None:
    turn = Turn(*[answer("", ("deaf", {}))] * 99, tools=[tool("deaf", stubborn(9_999))])
    end = outcome(await ends_within(turn.run(), 125.0))
    assert end.reason is Reason.TIMED_OUT


@in_virtual_time
async def test_nothing_is_asked_or_started_within_the_margin_of_the_lease() -> None:
    turn = Turn(answer("", LOOK), FINE, tools=[tool("look", after(5))])
    turn.control.lease_deadline = 5.0
    with pytest.raises(LostLease):
        await turn.run()
    assert len(turn.requests) == 1


# -- after a crash


def found(status: CallStatus, tier: Tier = Tier.READ, output: str | None = None) -> OpenCall:
    return OpenCall(call("look", tier), status.value, output)


def crashed(*calls: OpenCall) -> Claimed:
    """A turn that was found with an open batch."""
    said = [{"type": "tool_use", "id": one.call.call_id, "name": "look", "input": {}} for one in calls]
    messages = [*claimed().messages, {"role": "assistant", "content": said}]
    return claimed(messages=messages, open_calls=calls, steps=1, attempt=2, crashes=1)


@in_virtual_time
async def test_what_a_crash_left_open_is_closed_with_what_is_known_and_the_turn_goes_on() -> None:
    turn = Turn(FINE, turn=crashed(found(CallStatus.OPEN), found(CallStatus.OK, output="42")))
    assert outcome(await turn.run()).reason is Reason.COMPLETED
    assert turn.ledger.words("close") == [(1, ["interrupted", "ok"], None)]
    assert turn.tools[0].began == 0
    turn.holds_law_1()


@pytest.mark.parametrize(
    ("status", "reason", "becomes"),
    [(CallStatus.OPEN, Reason.COMPLETED, "not_run"), (CallStatus.INTENT, Reason.FAILED, "unknown")],
)
def test_a_write_that_a_crash_left_open_is_unknown_if_it_may_have_begun(
    status: CallStatus, reason: Reason, becomes: str
) -> None:
    async def recover() -> tuple[Outcome, Turn]:
        turn = Turn(FINE, turn=crashed(found(status, Tier.WRITE)))
        return outcome(await turn.run()), turn

    end, turn = run(recover())
    assert end.reason is reason
    assert turn.ledger.words("close") == [(1, [becomes], None)]
    assert turn.tools[0].began == 0


@pytest.mark.parametrize(("mail", "reason"), [(Mail(STEP), Reason.STOPPED_STEP), (Mail(steers=1), Reason.STEERED)])
def test_what_a_crash_left_open_is_a_safe_point_once_it_is_closed(mail: Mail, reason: Reason) -> None:
    async def recover() -> Turn:
        turn = Turn(FINE, turn=crashed(found(CallStatus.OPEN)))
        turn.ledger.box = mail
        assert outcome(await turn.run()).reason is reason
        return turn

    assert not run(recover()).requests


@in_virtual_time
async def test_a_fault_in_the_middle_of_a_batch_is_seen_from_outside() -> None:
    turn = Turn(answer("", LOOK))
    turn.ledger.trouble["close"] = ConnectionError("the database went away")
    with pytest.raises(ConnectionError):
        await turn.run()


# -- whatever the model does

TEXTS = st.sampled_from(["", " ", "It is the gateway.", "one\ntwo"])
CALLS = st.lists(
    st.tuples(st.sampled_from(["look", "scale", "rm", "odd", "deaf", ""]), st.sampled_from(["a", "b", ""])),
    max_size=4,
)
STOPS = st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn", "stop_sequence", "new_reason"])


@st.composite
def said(draw: st.DrawFn) -> Line:
    error = draw(st.sampled_from([None] * 5 + [ModelBusy("529"), ModelStreamBroken("cut")]))
    if error is not None:
        return error
    made = answer(draw(TEXTS), *((name, {}) for name, _ in draw(CALLS)), stop_reason=draw(STOPS))
    ids = draw(st.booleans())
    for block in made.content:
        if block["type"] == "tool_use":
            block["name"] = block["name"] or "no_name"
            block["id"] = "toolu_same" if ids else block["id"]
    return writes_for(draw(st.sampled_from([0, 1, 50])), made)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(said(), max_size=14),
    mail=st.sampled_from([Mail(), Mail(STEP), Mail(TASK), Mail(steers=1)]),
    at=st.floats(0.1, 150),
    drains=st.booleans(),
)
def test_whatever_the_model_says_the_turn_ends_in_time_and_every_request_is_valid(
    lines: list[Line], mail: Mail, at: float, drains: bool
) -> None:
    tools = [
        tool("look", after(3)),
        tool("scale", after(2), tier=Tier.WRITE),
        tool("odd", after(1, error=SystemExit())),
        tool("deaf", stubborn(30)),
    ]

    async def any_turn() -> tuple[End, Turn]:
        turn = Turn(*lines, *[FINE] * 99, tools=tools)
        turn.arrives(mail, at=at)
        if drains:
            asyncio.get_running_loop().call_at(at / 2, turn.control.drain)
        return await ends_within(turn.run(), 400.0), turn

    end, turn = run(any_turn())
    turn.holds_law_1()
    assert isinstance(end, Outcome) or end is Leave.HANDED_OVER
    assert not turn.loop.calls_open
    opened, closed = turn.ledger.words("open"), turn.ledger.words("close")
    assert [len(ids) for _, ids in opened] == [len(statuses) for _, statuses, _ in closed]
