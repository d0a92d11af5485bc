"""What a worker decides, one decision at a time, and what each has to answer.

Nothing here decides as the product does: before each decision the committed rows are read, and from them follows
what must come back. A write under an old epoch must be refused and change nothing; what starts must be refused when
a stop reaches its turn; a cut must carry the stamp of the first force that applies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from core.actor import settled_before
from core.approvals import Request
from core.cancel import Cancel
from core.errors import LostLease, Overtaken, Stopped
from core.gateway import Call, CallResult, CallStatus, Gateway, cancelled, not_run
from core.ledger import Claimed, Frozen, Spent, Surroundings
from core.messages import Level
from core.ports import Tier, Usage
from core.proposal import decided
from core.remediation import EmptyCause, Rung, ask
from core.safe_point import Force, Probe
from core.settle import Detail, Outcome, Reason, reason_of
from core.turn import CRASHES_THAT_ABANDON, Stamp
from storage.ledger.sql import SqlLedger
from tests.simulation.laws_of_approvals import ASKS
from tests.simulation.snapshot import Row, Snapshot
from tests.simulation.world import LIMITS, Job, World
from tests.support.scene import tool

T = TypeVar("T")

SPENT = Usage(10, 5)
VALID_S = 25.0
STEPS = (
    ("look",),
    ("look", "change"),
    ("look", "look", "nothing"),
    ("change", "change"),
    (ASKS,),
    ("look", ASKS, "change"),
    ("change", ASKS, "nothing", ASKS),
    (ASKS, "look", ASKS, "change", ASKS),
)
"""What the model calls at once; the writes of the last four wait for people."""


class Decisions:
    """The decisions of the workers of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        tools = [tool("look"), tool("change", tier=Tier.WRITE), tool(ASKS, tier=Tier.WRITE)]
        self._gateway = Gateway(tools, LIMITS, world.loop.time)
        self._frozen = Frozen("claude-test", "You are a test.", self._gateway.declaration())

    async def is_current(self, job: Job) -> bool:
        """Whether this job still has the lease."""
        session = self._world.snapshot().one("sessions", id=job.claimed.lease.session)
        assert session is not None
        return (session["epoch"], session["lease_owner"]) == (job.claimed.lease.epoch, job.worker)

    async def renew(self, number: int) -> None:
        """Worker `number` extends its lease; it keeps it if nobody took it."""
        job = self._world.jobs.get(number)
        if job is not None:
            lease = job.claimed.lease
            kept = await self._world.ledger(job.worker).renew({lease.session: lease.epoch})
            assert (lease.session in kept) == await self.is_current(job)

    async def claim(self, number: int, *, read_on: bool = True) -> None:
        """Worker `number` tries to take the session."""
        session, name, now = self._world.session(), self._world.names[number], self._world.snapshot()
        if session is None:
            return
        expected = self._claimable(now, name)
        ledger = self._world.ledger(name)
        claimed = await ledger.claim(session, name, self._frozen)
        assert (claimed is not None) == expected, f"claim gave {claimed}, expected {expected}"
        if claimed is not None and claimed.wanted is not None:
            if not read_on:
                self._world.stale.append(Job(claimed, name, 0))
                return
            around = Surroundings(thread="what was said above")
            claimed = await ledger.claim(session, name, self._frozen, surroundings=around, holding=claimed.lease)
        if claimed is not None:
            self._world.jobs[number] = self._job(claimed, name)

    def _claimable(self, now: Snapshot, name: str) -> bool:
        session = now["sessions"][0]
        free = session["lease_owner"] in (None, name) or session["lease_until"] <= self._world.loop.database_now()
        turns = [turn for turn in now["turns"] if turn["state"] != "settled"]
        if not turns or not free:
            return False
        if turns[0]["state"] == "suspended" and not self._wakes(now, turns[0]):
            return False
        return bool(now.stops_in_scope(turns[0])) or turns[0]["start_after"] <= self._world.loop.database_now()

    def _wakes(self, now: Snapshot, turn: Row) -> bool:
        """Whether a turn that waits for people goes on: all is decided, the time is over, or somebody spoke."""
        waits = now.of("suspensions", turn_id=turn["id"], ended_at=None)
        still = any(wait["until"] > self._world.loop.database_now() for wait in waits)
        return not still or bool(now.stops_in_scope(turn)) or self._waiting_steers() > 0

    def _job(self, claimed: Claimed, name: str, *, asked: bool = False) -> Job:
        job = Job(claimed, name, claimed.steps, asked)
        approved, results = decided(claimed.open_calls, self._gateway.again, claimed.at)
        job.calls = [found.call for found in claimed.open_calls]
        job.results = {result.call.position: result for result in results}
        job.approved = {call.position for call in approved}
        assert job.approved == self._may_run(claimed), "people decided otherwise"
        if not job.calls:
            job.outcome = settled_before(claimed)
        return job

    def _may_run(self, claimed: Claimed) -> set[int]:
        """The places of the open calls that were approved in time, with no denial and nothing unknown before them."""
        now, found = self._world.snapshot(), set()
        for call in now.of("calls", turn_id=claimed.turn, step=claimed.steps):
            request = now.one("approvals", call_row=call["id"])
            if call["status"] in ("intent", "unknown") or (request and request["state"] == "denied"):
                break
            if request and request["state"] == "approved" and claimed.at < request["expires_at"]:
                found |= {call["position"]} if call["status"] == "open" else set()
        return found if claimed.open_calls else set()

    def _cut(self, stamp: Stamp, claimed: Claimed) -> Outcome:
        level = claimed.stop.level if claimed.stop else Level.STEP
        author = claimed.stop.author if claimed.stop and stamp is Stamp.STOP else None
        return Outcome(reason_of(stamp, level), stamp=stamp, step=claimed.steps, ended_by=author)

    async def _write(self, job: Job, do: Callable[[SqlLedger], Awaitable[T]], *, starts: bool = False) -> T | None:
        """One decision under the lease of `job`; None when it was refused, as it had to be."""
        before = self._world.snapshot()
        session = before.one("sessions", id=job.claimed.lease.session)
        turn = before.one("turns", id=job.claimed.turn)
        assert session is not None and turn is not None
        mine = (session["epoch"], session["lease_owner"]) == (job.claimed.lease.epoch, job.worker)
        stopped = bool(before.stops_in_scope(turn))
        try:
            result = await do(self._world.ledger(job.worker))
        except LostLease:
            assert not mine, "a write under the current epoch was refused"
            assert self._world.snapshot().tables == before.tables, "a refused write wrote something"
            return None
        except Stopped:
            assert mine and starts and stopped, "something was stopped by nobody"
            assert self._world.snapshot().tables == before.tables, "a stopped start wrote something"
            raise
        except Overtaken:
            assert mine and starts and not stopped, "a stop was taken for something else"
            assert self._world.snapshot().tables == before.tables, "an overtaken start wrote something"
            raise
        assert mine, f"epoch {job.claimed.lease.epoch} wrote, the current one is {session['epoch']}"
        assert not (starts and stopped), "something started after a stop"
        return result

    def _waiting_steers(self) -> int:
        return len(
            [
                row
                for row in self._world.snapshot().of("messages", state="waiting", disposition="steer")
                if row["turn_id"] is None
            ]
        )

    def _stop_reaches(self, job: Job) -> bool:
        now = self._world.snapshot()
        turn = now.one("turns", id=job.claimed.turn)
        return turn is not None and bool(now.stops_in_scope(turn))

    async def work(self, job: Job, action: str, choice: int) -> bool:
        """Do `action`; False when the job is not in this worker's hands any more."""
        do: Callable[[Job, int], Awaitable[bool]] = getattr(self, f"_{action}")
        return await do(job, choice)

    async def _open(self, job: Job, choice: int) -> bool:
        job.asked = True
        names = STEPS[choice % len(STEPS)]
        blocks = [
            {"type": "tool_use", "id": self._world.id("toolu_"), "name": name, "input": {"at": choice}}
            for name in names
        ]
        calls = [self._gateway.admit(number, block, broken=False) for number, block in enumerate(blocks)]
        spent = [Spent("claude-test", job.step + 1, SPENT)]
        try:
            if (
                await self._write(
                    job,
                    lambda ledger: _done(ledger.open(job.claimed, job.step + 1, blocks, calls, spent)),
                    starts=True,
                )
                is None
            ):
                return False
        except Stopped:
            return await self._drop(job, 1)
        self._world.booked += 1
        job.step += 1
        job.calls = calls
        job.asks = ASKS in names
        return True

    async def _suspend(self, job: Job, choice: int) -> bool:
        """Ask people about the writes of the step; its tool may know of the first one that it is impossible."""
        for call in job.recordable():
            job.results[call.position] = self._result(job, call, choice)
        writes = [call for call in job.calls if call.position not in job.results]
        if choice >= len(STEPS) and len(writes) > 1:
            job.results[writes[0].position] = CallResult(writes[0], CallStatus.ERROR, "There is no such revision.")
            writes = writes[1:]
        known = list(job.results.values())
        requests = [Request(call, "- 42\n+ 41", asks=call.tool == ASKS) for call in writes]
        stop, steers = self._stop_reaches(job), self._waiting_steers()
        told = await self._write(
            job, lambda ledger: _told(ledger.suspend(job.claimed, job.step, known, requests, VALID_S))
        )
        if told is None:
            return False
        (mail,) = told
        if mail is None:
            assert not stop and not steers, "people were asked after a stop or a steer"
            return False
        assert (mail.stop is not None, mail.steers) == (stop, steers)
        job.asks = False
        job.results |= {call.position: not_run(call, "a person spoke") for call in writes}
        return True

    async def _put_back(self, job: Job, choice: int) -> bool:
        """This worker goes down before it has begun all that was approved: the rest waits for the next one."""
        done = [result for place, result in job.results.items() if place in job.intended]
        stop, steers = self._stop_reaches(job), self._waiting_steers()
        told = await self._write(job, lambda ledger: _told(ledger.suspend(job.claimed, job.step, done, (), 0.0)))
        if told is None:
            return False
        (mail,) = told
        assert (mail is None) == (not stop and not steers), "put back in spite of a stop or a steer"
        return mail is not None

    async def _intend(self, job: Job, choice: int) -> bool:
        call = job.next_write()
        assert call is not None
        overtaken = self._waiting_steers() > 0 or self._ran_out(job, call)
        try:
            if (
                await self._write(job, lambda ledger: _done(ledger.intend(job.claimed, job.step, call)), starts=True)
                is None
            ):
                return False
            assert not overtaken, "a write began after a steer, or after its approval ran out"
            job.intended.add(call.position)
        except Stopped:
            job.results[call.position] = not_run(call, "a person stopped this step")
        except Overtaken as why:
            assert overtaken, f"a write was refused: {why}"
            job.results[call.position] = not_run(call, str(why))
        return True

    def _ran_out(self, job: Job, call: Call) -> bool:
        now = self._world.snapshot()
        row = now.one("calls", turn_id=job.claimed.turn, step=job.step, position=call.position)
        request = now.one("approvals", call_row=row["id"]) if row is not None else None
        return request is not None and bool(request["expires_at"] <= self._world.loop.database_now())

    def _result(self, job: Job, call: Call, choice: int) -> CallResult:
        if call.refusal is not None:
            return CallResult(call, CallStatus.REFUSED, call.refusal)
        if call.writes and call.position not in job.intended:
            return not_run(call, "nobody wanted it")
        if call.writes:
            status = CallStatus.UNKNOWN if choice % 5 == 4 else CallStatus.OK
            return CallResult(call, status, f"changed: {status.value}")
        if choice % 3 == 2:
            return cancelled(call, Cancel.STEER, 2.0)
        return CallResult(call, CallStatus.OK, "" if choice % 2 else f"looked at {choice}")

    async def _record(self, job: Job, choice: int) -> bool:
        call = job.recordable()[0]
        result = self._result(job, call, choice)
        done = await self._write(job, lambda ledger: _done(ledger.record(job.claimed, job.step, [result])))
        if done is not None:
            job.results[call.position] = result
        return done is not None

    async def _close(self, job: Job, choice: int) -> bool:
        for call in job.calls:
            job.results.setdefault(call.position, self._result(job, call, choice))
        results = [job.results[call.position] for call in job.calls]
        drains = choice % 4 == 3
        stop, steers = self._stop_reaches(job), self._waiting_steers()

        def probe(found: int) -> Stamp | None:
            assert found == steers
            return Probe({Force.STEER: lambda: found > 0, Force.DRAIN: lambda: drains}).ask()

        closed = await self._write(job, lambda ledger: ledger.close(job.claimed, job.step, results, probe))
        if closed is None:
            return False
        job.calls, job.results, job.intended, job.approved = [], {}, set(), set()
        job.claimed.steps = job.step
        if any(result.status is CallStatus.UNKNOWN for result in results):
            assert closed.stamp is None
            job.outcome = Outcome(Reason.FAILED, detail=Detail.OUTCOME_UNKNOWN, known="unknown", step=job.step)
            return True
        return await self._cut_with(job, closed.stamp, closed.stop, self._force(stop, steers, drains))

    def _force(self, stop: bool, steers: int, drains: bool) -> Stamp | None:
        return Stamp.STOP if stop else Stamp.STEER if steers else Stamp.DRAIN if drains else None

    async def _cut_with(self, job: Job, stamp: Stamp | None, stop: Any, expected: Stamp | None) -> bool:
        assert stamp is expected, f"stamped {stamp}, expected {expected}"
        job.claimed.stop = stop
        if stamp is Stamp.DRAIN:
            await self._world.ledger(job.worker).release(job.claimed.lease)
            return False
        if stamp is not None:
            job.outcome = self._cut(stamp, job.claimed)
        elif job.claimed.crashes >= CRASHES_THAT_ABANDON:
            job.outcome = Outcome(Reason.ABANDONED, known="too many crashes", step=job.step)
        return True

    async def _drop(self, job: Job, choice: int) -> bool:
        job.asked = True
        wanted = [Stamp.STEER, Stamp.STOP, Stamp.DRAIN][choice % 3]
        stop, steers = self._stop_reaches(job), self._waiting_steers()
        spent = [Spent("claude-test", job.step, SPENT)]
        closed = await self._write(job, lambda ledger: ledger.drop(job.claimed, wanted, spent))
        if closed is None:
            return False
        self._world.booked += 1
        return await self._cut_with(job, closed.stamp, closed.stop, self._force(stop, steers, wanted is Stamp.DRAIN))

    async def _climb(self, job: Job, choice: int) -> bool:
        job.asked = True
        rung = Rung(min(job.claimed.rung + 1, Rung.SUMMARY))
        words = None if rung is Rung.SUMMARY else ask(rung, EmptyCause.NOTHING)
        spent = [Spent("claude-test", job.step, SPENT)]
        stop, steers = self._stop_reaches(job), self._waiting_steers()
        mail = await self._write(
            job, lambda ledger: ledger.climb(job.claimed, rung, EmptyCause.NOTHING, words, spent)
        )
        if mail is None:
            return False
        self._world.booked += 1
        job.claimed.rung = rung
        assert (mail.stop is not None, mail.steers) == (stop, steers)
        if rung is Rung.SUMMARY:
            job.outcome = Outcome(Reason.EMPTY, summary="nothing", known="nothing", step=job.step)
        return True

    async def _join(self, job: Job, choice: int) -> bool:
        """Words came before the first request: the turn takes them too."""
        again = await self._world.ledger(job.worker).claim(
            job.claimed.lease.session, job.worker, self._frozen, holding=job.claimed.lease
        )
        if again is not None:
            fresh = self._job(again, job.worker)
            job.claimed, job.outcome = fresh.claimed, fresh.outcome
        return again is not None

    async def _answer(self, job: Job, choice: int) -> bool:
        said = [{"type": "text", "text": "It is the gateway."}]
        job.outcome = Outcome(Reason.COMPLETED, answer=said, answer_text="It is the gateway.", step=job.step)
        return True

    async def _fail(self, job: Job, choice: int) -> bool:
        if choice % 2:
            job.outcome = Outcome(Reason.TIMED_OUT, known="no time", step=job.step)
        else:
            job.outcome = Outcome(Reason.FAILED, detail=Detail.PROVIDER, known="no model", step=job.step)
        return True

    async def _settle(self, job: Job, choice: int) -> bool:
        assert job.outcome is not None
        outcome, now = job.outcome, self._world.snapshot()
        turn = now.one("turns", id=job.claimed.turn)
        assert turn is not None
        heard = {stop["level"] for stop in now.stops_in_scope(turn)}
        steered = outcome.reason is Reason.EMPTY and self._waiting_steers() > 0
        expected = Reason.STEERED if steered else outcome.reason
        if heard and outcome.detail is not Detail.OUTCOME_UNKNOWN:
            expected = Reason.CANCELLED if "task" in heard else Reason.STOPPED_STEP
        spent: Sequence[Spent] = [Spent("claude-test", job.step, SPENT)] if choice % 2 else []
        settled = await self._write(job, lambda ledger: ledger.settle(job.claimed, outcome, spent))
        if settled is None:
            return False
        self._world.booked += len(spent)
        assert settled.reason is expected, f"settled {settled.reason}, expected {expected}"
        after = self._world.snapshot()
        unsettled = [row["id"] for row in after["turns"] if row["state"] != "settled"]
        assert unsettled == ([settled.next_turn] if settled.next_turn else [])
        await self._world.ledger(job.worker).release(job.claimed.lease)
        return False

    async def bring_to_an_end(self) -> None:
        """The workers of before are gone, and a patient one does what is left, until nothing is."""
        world = self._world
        world.jobs, world.names[0] = {}, "patient"
        for _ in range(200):
            world.loop.pass_time(20.0)
            job = world.jobs.get(0)
            if job is None:
                if all(turn["state"] == "settled" for turn in world.snapshot()["turns"]):
                    break
                await self.claim(0)
            elif not await self.work(job, "answer" if "answer" in job.may() else job.may()[0], 0):
                del world.jobs[0]
        now = world.snapshot()
        assert all(turn["state"] == "settled" for turn in now["turns"]), "a turn never ends"
        assert len(now["costs"]) == world.booked, "spent tokens were not booked"
        world.look()


async def _done(work: Awaitable[None]) -> bool:
    """True when it was written: what returns nothing must be told from what was refused."""
    await work
    return True


async def _told(work: Awaitable[T]) -> tuple[T]:
    """What a decision returned, which may be nothing: that must be told from what was refused."""
    return (await work,)
