"""One turn from its words to its outcome: ask the model, run its calls, cut only at safe points.

    answer = ask the model              thrown away as a whole when a stop, a steer or a lost lease comes first
    no calls, some text                 the answer; settle decides under the lock whether it still counts
    calls                               open -> batch -> close; at the fall of the balance the forces are asked
    nothing                             the ladder (core.remediation)

The loop never posts and never reads Slack: it returns an `Outcome`, and the stamp that it returns is the one that
was written in the transaction of the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from core.answer import Answerer, Ask, Dropped, Got, NoAnswer
from core.approvals import ApprovalPolicy
from core.batch import Batch
from core.cancel import SAYS, Cancel
from core.control import Control, stop_reason
from core.errors import LostLease, Stopped
from core.gateway import Call, CallResult, CallStatus, Gateway, not_run
from core.history import EntryKind, append, calls_of, result_block, said, text_of, user_block, with_own_ids
from core.ledger import Claimed, Ledger, Spent
from core.limits import Limits
from core.messages import ChannelId
from core.ports import Evidence, Model, ModelAnswer
from core.proposal import admitted, decided, propose, waiting
from core.remediation import NOT_WHOLE, EmptyCause, Rung, ask, next_rung, summary
from core.repeats import looked_at, without_repeats
from core.safe_point import Balance, Force, Probe, delta
from core.settle import Detail, Outcome, Reason, reason_of
from core.turn import CRASHES_THAT_ABANDON, Stamp


class Leave(Enum):
    """How a loop ends without an outcome."""

    HANDED_OVER = "handed_over"
    SUSPENDED = "suspended"
    JOIN = "join"


End: TypeAlias = "Outcome | Leave"
"""What a loop returns: the outcome of the turn, or why there is none here.

`HANDED_OVER`: the turn goes on at another worker. `SUSPENDED`: it waits for people, and no worker holds it.
`JOIN`: words came before the first request; claim again.
"""

GIVEN_UP = "the worker died too often on this turn, so it is given up"
OUTCOME_UNKNOWN = "A change was sent and its outcome is not known. Check the system before anything else is done."


@dataclass(frozen=True, slots=True)
class Means:
    """What a loop works with. `now` is monotonic seconds, `jitter` gives a number from 0 to 1."""

    model: Model
    gateway: Gateway
    ledger: Ledger
    limits: Limits
    now: Callable[[], float]
    jitter: Callable[[], float]
    fallback_model: str | None = None
    approvals: Callable[[ChannelId], ApprovalPolicy] = lambda _channel: ApprovalPolicy()


class AgentLoop:
    """The loop of one attempt."""

    def __init__(self, means: Means, control: Control, claimed: Claimed) -> None:
        self._means = means
        self._control = control
        self._turn = claimed
        self._messages = claimed.messages
        self._step = claimed.steps
        self._began = means.now()
        self._balance = Balance()
        self._approvals = means.approvals(claimed.channel)
        self._answerer = Answerer(
            means.model,
            means.ledger,
            control,
            claimed,
            limits=means.limits,
            now=means.now,
            jitter=means.jitter,
        )

    def take_spent(self) -> Sequence[Spent]:
        """Model requests that are not booked yet; the settle books them."""
        return self._answerer.take_spent()

    @property
    def step(self) -> int:
        """How many steps the turn has taken."""
        return self._step

    @property
    def calls_open(self) -> bool:
        """Whether the history holds calls without results: then only their results may follow."""
        return self._balance.open > 0

    async def run(self) -> End:
        """Work until the turn has an outcome or leaves this worker."""
        while True:
            if self._turn.rung is Rung.SUMMARY:
                return self._exhausted()
            end = await self._take(await self._ask())
            if end is not None:
                return end

    async def _ask(self) -> Got:
        cause = self._limit_reached()
        if cause is not None and self._turn.rung is Rung.GROUND and self._turn.rung_cause is not cause:
            await self._say(Rung.GROUND, cause, ask(Rung.GROUND, cause))
        limits = self._means.limits
        larger = self._turn.rung >= Rung.LARGER_OUTPUT
        return await self._answerer.answer(
            Ask(
                model=self._model_name(),
                messages=self._messages,
                max_tokens=limits.larger_output_tokens if larger else limits.max_output_tokens,
                without_tools=self._without_tools(),
                answer_by=self._answer_by(),
                give_up_at=self._ends_at(),
                step=self._step,
            )
        )

    async def _take(self, got: Got) -> End | None:
        """What follows from one answer; None means: ask again."""
        if isinstance(got, NoAnswer):
            return self._failed(got.detail, got.known)
        if isinstance(got, Dropped):
            return await self._cut(got.why)
        text = text_of(got.content)
        if got.stop_reason == "refusal":
            return self._failed(Detail.REFUSED_BY_MODEL, f"The model declined to answer this. {text[:300]}".strip())
        blocks = calls_of(got.content)
        whole = got.stop_reason not in NOT_WHOLE
        if blocks and whole and not self._without_tools():
            return await self._work(got, blocks)
        if text and not blocks and whole:
            own = self._model_name() == self._turn.frozen.model
            content = got.content if own else said(got.content)
            return Outcome(Reason.COMPLETED, answer=content, answer_text=text, step=self._step)
        await self._climb(NOT_WHOLE.get(got.stop_reason, EmptyCause.NOTHING))
        return None

    # -- a batch

    async def _work(self, answer: ModelAnswer, blocks: Sequence[Mapping[str, Any]]) -> End | None:
        why, _ = self._control.drop_stream()
        if why is not None and why is not Cancel.LIMIT:
            return await self._cut(why)
        means, step = self._means, self._step + 1
        content = with_own_ids(answer.content, self._messages)
        broken = [str(block["id"]) in answer.broken_calls for block in blocks]
        found = [
            means.gateway.admit(number, block, broken=broken[number])
            for number, block in enumerate(calls_of(content))
        ]
        calls = without_repeats(admitted(found, self._approvals), self._turn.looked)
        try:
            await means.ledger.open(self._turn, step, content, calls, self._answerer.spent)
        except Stopped:
            await self._answerer.look_at_mail()
            return await self._cut(Cancel.STOP_STEP)
        self.take_spent()
        self._step = step
        append(self._messages, EntryKind.ASSISTANT, content)
        self._balance.observe(content)
        self._control.work_by = self._ends_at() - means.limits.reserve_s
        waits = waiting(calls, self._approvals)
        results = await self._batch(step).run([call for call in calls if call not in waits])
        return await (self._ask_people(step, results, waits) if waits else self._close(step, results))

    def _batch(self, step: int) -> Batch:
        ledger = self._means.ledger
        return Batch(
            self._means.gateway,
            self._control,
            intend=lambda call: ledger.intend(self._turn, step, call),
            record=lambda results: ledger.record(self._turn, step, results),
            now=self._means.now,
        )

    async def _ask_people(self, step: int, results: Sequence[CallResult], waits: Sequence[Call]) -> End | None:
        """Suspend the turn until people have decided; a stop or a steer that is there already comes first.

        If nothing is left to decide about, what needs no approval runs now.
        """
        means = self._means
        requests, impossible = await propose(means.gateway, self._control, waits, self._approvals)
        known = [*results, *impossible]
        if requests and not any(request.asks for request in requests):
            known += await self._batch(step).run([request.call for request in requests])
        elif requests:
            mail = await means.ledger.suspend(self._turn, step, known, requests, self._approvals.valid_s)
            if mail is None:
                return Leave.SUSPENDED
            self._control.note(mail)
            why = SAYS[Cancel.STEER if mail.stop is None else stop_reason(mail.stop)]
            known += [not_run(request.call, why) for request in requests]
        return await self._close(step, known)

    async def close_what_was_open(self) -> End | None:
        """Close the calls that a crash or a wait left open, with what their rows know; None means: the turn goes on.

        What was approved runs now, unless the turn is given up anyway. If this worker is going down meanwhile, the
        rest waits for the next one.
        """
        found = self._turn.open_calls
        self._balance.open = len(found)
        approved, results = decided(found, self._means.gateway.again, self._turn.at)
        if self._turn.crashes >= CRASHES_THAT_ABANDON:
            results += [not_run(call, GIVEN_UP) for call in approved]
            approved = []
        ran = await self._batch(self._step).run(approved) if approved else []
        left = [result for result in ran if result.status is CallStatus.NOT_RUN]
        if left and self._control.keep_from_asking() is Cancel.DRAIN:
            done = [result for result in ran if result not in left]
            if await self._means.ledger.suspend(self._turn, self._step, done, (), 0.0) is None:
                return Leave.SUSPENDED
        return await self._close(self._step, [*results, *ran])

    async def _close(self, step: int, results: Sequence[CallResult]) -> End | None:
        results = sorted(results, key=lambda result: result.call.position)
        blocks = [result_block(result.call.call_id, result.said, is_error=result.is_error) for result in results]
        still_open = self._balance.open + delta(blocks)
        probe = self._probe if still_open == 0 else lambda _steers: None
        closed = await self._means.ledger.close(self._turn, step, results, probe)
        self._balance.observe(blocks)
        append(self._messages, EntryKind.RESULTS, blocks)
        self._remember(results)
        if any(result.status is CallStatus.UNKNOWN for result in results):
            return self._failed(Detail.OUTCOME_UNKNOWN, OUTCOME_UNKNOWN)
        if closed.stop is not None:
            self._control.stop = closed.stop
            return self._stamped(Stamp.STOP)
        if closed.stamp is Stamp.DRAIN:
            return Leave.HANDED_OVER
        return self._stamped(closed.stamp) if closed.stamp is not None else None

    def _probe(self, steers: int) -> Stamp | None:
        return Probe({Force.STEER: lambda: steers > 0, Force.DRAIN: lambda: self._control.drain_at is not None}).ask()

    # -- the ladder

    async def _climb(self, cause: EmptyCause) -> None:
        limit = self._turn.rung_cause
        if limit is EmptyCause.TIME_LIMIT or (limit is EmptyCause.STEP_LIMIT and cause is EmptyCause.NOTHING):
            await self._say(Rung.SUMMARY, limit, None)
            return
        rung = next_rung(self._turn.rung, cause, has_fallback=self._means.fallback_model is not None)
        await self._say(rung, cause, None if rung is Rung.SUMMARY else ask(rung, cause))

    async def _say(self, rung: Rung, cause: EmptyCause, words: str | None) -> None:
        mail = await self._means.ledger.climb(self._turn, rung, cause, words, self._answerer.spent)
        self.take_spent()
        self._turn.rung, self._turn.rung_cause = rung, cause
        if words is not None:
            append(self._messages, EntryKind.LADDER, [user_block(words)])
        self._control.note(mail)

    def _exhausted(self) -> Outcome:
        cause = self._turn.rung_cause or EmptyCause.NOTHING
        if cause is EmptyCause.STEP_LIMIT:
            return self._timed_out(f"The limit of {self._means.limits.max_steps} steps was reached")
        if cause is EmptyCause.TIME_LIMIT:
            return self._timed_out()
        known = f"The model returned no text (cause: {cause.value}), also on every rung of the ladder."
        return Outcome(Reason.EMPTY, summary=summary(self._turn.looked), known=known, step=self._step)

    # -- ends

    async def _cut(self, why: Cancel) -> End | None:
        """The answer was thrown away: history ends in a clean place."""
        if why is Cancel.LEASE:
            raise LostLease("the lease of this session ran out")
        if why is Cancel.LIMIT:
            return await self._over_the_limit()
        if why is Cancel.STEER and not self._answerer.asked and self._step == 0 and self._turn.rung_cause is None:
            return Leave.JOIN
        wanted = {Cancel.STEER: Stamp.STEER, Cancel.DRAIN: Stamp.DRAIN}.get(why, Stamp.STOP)
        closed = await self._means.ledger.drop(self._turn, wanted, self._answerer.spent)
        self.take_spent()
        if closed.stop is not None:
            self._control.stop = closed.stop
        if closed.stamp is None:
            self._control.steer_at = None
            return None
        return Leave.HANDED_OVER if closed.stamp is Stamp.DRAIN else self._stamped(closed.stamp)

    async def _over_the_limit(self) -> End | None:
        if self._turn.rung is not Rung.GROUND and self._ran_s() < self._means.limits.turn_s:
            await self._climb(EmptyCause.NOTHING)
            return None
        if self._turn.rung is Rung.GROUND and self._turn.rung_cause is None:
            await self._say(Rung.GROUND, EmptyCause.TIME_LIMIT, ask(Rung.GROUND, EmptyCause.TIME_LIMIT))
            return None
        return self._timed_out()

    def _stamped(self, stamp: Stamp) -> Outcome:
        stop = self._control.stop if stamp is Stamp.STOP else None
        return Outcome(
            reason_of(stamp, stop.level if stop else None),
            stamp=stamp,
            step=self._step,
            ended_by=stop.author if stop else None,
        )

    def _timed_out(self, limit: str = "The time for this turn ran out") -> Outcome:
        known = f"{limit}, and the model gave no answer when it was asked for one."
        return Outcome(Reason.TIMED_OUT, known=known, step=self._step)

    def _failed(self, detail: Detail, known: str) -> Outcome:
        return Outcome(Reason.FAILED, detail=detail, known=known, step=self._step)

    # -- limits

    def _ran_s(self) -> float:
        return self._turn.running_s + self._means.now() - self._began

    def _ends_at(self) -> float:
        return self._began + self._means.limits.turn_s - self._turn.running_s

    def _limit_reached(self) -> EmptyCause | None:
        limits = self._means.limits
        if self._ran_s() >= limits.turn_s - limits.reserve_s:
            return EmptyCause.TIME_LIMIT
        return EmptyCause.STEP_LIMIT if self._step >= limits.max_steps else None

    def _without_tools(self) -> bool:
        limited = self._turn.rung_cause in (EmptyCause.STEP_LIMIT, EmptyCause.TIME_LIMIT)
        return limited or self._turn.rung is not Rung.GROUND

    def _answer_by(self) -> float:
        limits, now = self._means.limits, self._means.now()
        if self._turn.rung is not Rung.GROUND:
            return now + limits.rung_s
        left = limits.turn_s - self._ran_s()
        return now + (max(left, 1.0) if self._without_tools() else max(left - limits.reserve_s, 0.0))

    def _model_name(self) -> str:
        if self._turn.rung is Rung.FALLBACK_MODEL and self._means.fallback_model is not None:
            return self._means.fallback_model
        return self._turn.frozen.model

    def _remember(self, results: Sequence[CallResult]) -> None:
        for result in results:
            call = result.call
            self._turn.looked.append(looked_at(call, result.status, result.text, self._step))
            if result.status is CallStatus.OK:
                self._turn.evidence.append(Evidence(call.call_id, call.tool, call.summary, result.links))
