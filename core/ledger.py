"""The decisions about a session, as the core sees them. `storage/ledger` keeps them, in one transaction each.

Every decision locks the one row of its session in a short transaction that awaits only the database:

    arrive   a message with its disposition, a stop, a decision       (listeners do only this)
    claim    a worker takes the session: lease, attempt, the words that the turn is about
    open     the model's answer and its calls
    suspend  nothing runs until people have decided about a change
    close    the results and the stamp of a cut, or a dropped answer
    settle   settle row, card, outbox, the next turn

Everything but *arrive* is written under the lease: an old epoch is refused by the database with `LostLease`, and
nothing starts after a committed stop in scope (`Stopped`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.approvals import Approval, Request
from core.control import Mail, StopFact
from core.gateway import Call, CallResult
from core.history import EntryKind
from core.messages import Block, ChannelId, Epoch, FileRef, SessionId, SlackTs, Source, TurnId, UserId
from core.ports import Evidence, Usage
from core.remediation import EmptyCause, Looked, Rung
from core.repair_words import Known
from core.settle import Outcome, Reason
from core.turn import Stamp


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a session: `epoch` fences everything that is written under it."""

    session: SessionId
    worker: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Frozen:
    """What a session is asked with. Prompt and tools stay what they were when it began: thinking is bound to them.

    The model is the configured one; when that changes, thinking of the old one is taken out (`storage.ledger.claim`).
    """

    model: str
    system: str
    tools: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was read from Slack for the words of a turn: the thread above it, and its files as blocks."""

    thread: str = ""
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to be read from Slack before the turn can begin: the thread up to `before_ts`, and files."""

    channel: ChannelId
    thread_ts: SlackTs
    before_ts: SlackTs
    thread: bool
    files: Sequence[FileRef]


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call found without a result after a crash or a wait, and what its audit row knows.

    `approval` is the request that it waited for; None if nobody was asked.
    """

    call: Call
    status: str
    output: str | None
    links: Sequence[tuple[str, str]] = ()
    duration_s: float = 0.0
    approval: Approval | None = None


@dataclass(slots=True)
class Claimed:
    """A turn that this worker may run now.

    `wanted` is set when Slack must be read first: nothing was consumed yet, claim again with `Surroundings`.
    `messages` is the projected history. `stop` is a stop in scope, `stamp` a cut that was never settled: both
    mean that the turn is only to be closed and settled. `steers` wait for a turn that is under way: it is cut before
    it asks again. `at` is the database's time of the claim, in seconds since the epoch.
    """

    lease: Lease
    turn: TurnId
    attempt: int
    source: Source
    asked_by: UserId
    channel: ChannelId
    thread_ts: SlackTs
    frozen: Frozen
    messages: list[dict[str, Any]] = field(default_factory=list)
    wanted: Wanted | None = None
    open_calls: Sequence[OpenCall] = ()
    looked: list[Looked] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    steps: int = 0
    running_s: float = 0.0
    rung: Rung = Rung.GROUND
    rung_cause: EmptyCause | None = None
    crashes: int = 0
    stop: StopFact | None = None
    stamp: Stamp | None = None
    steers: int = 0
    at: float = 0.0
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Closed:
    """What closing a batch found at the safe point."""

    stamp: Stamp | None
    stop: StopFact | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What settling wrote. `reason` may differ from what was asked: a stop under the lock wins.

    `starts_now`: the next turn need not wait for the thread to be quiet.
    """

    reason: Reason
    next_turn: TurnId | None
    starts_now: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether the next turn starts under the same lease; if not, the session was given back."""
        return self.next_turn is not None and self.starts_now


@dataclass(frozen=True, slots=True)
class Spent:
    """One model request to book."""

    model: str
    step: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Stitch:
    """One stitch of the suture, to be recorded: it is a fault further up."""

    rule: str
    path: str
    what: str


class Ledger(Protocol):
    """The four decisions under the lease, and what belongs to them."""

    async def claim(
        self,
        session: SessionId,
        worker: str,
        frozen: Frozen,
        *,
        surroundings: Surroundings | None = None,
        holding: Lease | None = None,
    ) -> Claimed | None:
        """Take the session and its unsettled turn, or None if another worker has it or nothing is to be done.

        `holding` is the lease of a worker that claims again because the words of its turn grew.
        """
        ...

    async def open(
        self,
        claimed: Claimed,
        step: int,
        content: Sequence[Mapping[str, Any]],
        calls: Sequence[Call],
        spent: Sequence[Spent],
    ) -> None:
        """Commit the model's answer and its calls; the calls start when this returns."""
        ...

    async def intend(self, claimed: Claimed, step: int, call: Call) -> None:
        """Commit that a write is about to run; it starts when this returns.

        Raises `Overtaken` when a steer waits, or when what was approved is not this, or not any more.
        """
        ...

    async def record(self, claimed: Claimed, step: int, results: Sequence[CallResult]) -> None:
        """Commit results that are there while others of the batch still run."""
        ...

    async def suspend(
        self,
        claimed: Claimed,
        step: int,
        results: Sequence[CallResult],
        requests: Sequence[Request],
        valid_s: float,
    ) -> Mail | None:
        """Commit that the turn waits for people: what is known so far, and the requests, open for `valid_s`.

        The session is given back. Without requests that ask anybody it is due again at once. With a stop or a steer
        in the mailbox nothing is written, and that mail is returned.
        """
        ...

    async def close(
        self,
        claimed: Claimed,
        step: int,
        results: Sequence[CallResult],
        probe: Callable[[int], Stamp | None],
    ) -> Closed:
        """Commit the results; `probe(steers)` is asked at the safe point, and its stamp is written with them."""
        ...

    async def drop(self, claimed: Claimed, stamp: Stamp, spent: Sequence[Spent]) -> Closed:
        """Commit that an answer was thrown away while it was written, with the stamp of the cut.

        A stop in scope turns any stamp into `stop`; a steer that was withdrawn meanwhile leaves no stamp.
        """
        ...

    async def climb(
        self,
        claimed: Claimed,
        rung: Rung,
        cause: EmptyCause,
        words: str | None,
        spent: Sequence[Spent],
    ) -> Mail:
        """Commit the rung and what the ladder says to the model; what the mailbox holds at that moment."""
        ...

    async def settle(self, claimed: Claimed, outcome: Outcome, spent: Sequence[Spent]) -> Settled:
        """Commit how the turn ended, everything that follows from it, and the next turn.

        Gives the session back, unless the next turn starts now.
        """
        ...

    async def stitched(self, claimed: Claimed, stitches: Sequence[Stitch]) -> None:
        """Commit what the suture had to repair."""
        ...

    async def go_on_from(
        self,
        claimed: Claimed,
        kind: EntryKind,
        messages: Sequence[Mapping[str, Any]],
        stitches: Sequence[Stitch] = (),
    ) -> None:
        """Commit the messages with which every later request begins, and the stitches that led to them.

        `kind` is one of `core.history.BEGINNINGS`. Only while no call is open.
        """
        ...

    async def known(self, session: SessionId) -> Mapping[str, Known]:
        """What the audit rows know of the calls of a session, by the id of the call."""
        ...

    async def history(self, session: SessionId) -> list[dict[str, Any]]:
        """The projected history, read anew."""
        ...

    async def mail(self, session: SessionId, turn: TurnId) -> Mail:
        """What waits for a running turn: a stop in scope, steers."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the session back."""
        ...
