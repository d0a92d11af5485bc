"""One answer of the model, with its retries: thrown away as a whole as soon as somebody wants something else.

While an answer is being written nothing of it is committed, so dropping it leaves the history in a clean place. What
was dropped is booked as an estimate: its tokens were spent. A structural 400 is never sent again with the same body,
nor to another model: the history is read anew and projected once more (`core.projection`). Is that refused too, the
question ends with the exact rule, and whatever is asked next begins with the history told as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from core.cancel import Cancel, let_go
from core.control import Control
from core.errors import ModelBusy, ModelError, ModelMisconfigured, ModelRefusedHistory, ModelStreamBroken
from core.ledger import Claimed, Ledger, Spent
from core.limits import Limits
from core.ports import Model, ModelAnswer, ModelRequest, StreamProgress
from core.projection import Projection
from core.refusals import told
from core.repair import NotRepairable
from core.settle import Detail


@dataclass(frozen=True, slots=True)
class Dropped:
    """An answer that was thrown away, and why."""

    why: Cancel


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No answer can be had; `known` is one sentence for people."""

    detail: Detail
    known: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the model. `answer_by` is when it is thrown away (monotonic seconds)."""

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int
    without_tools: bool
    answer_by: float
    give_up_at: float
    step: int


Got: TypeAlias = "ModelAnswer | Dropped | NoAnswer"

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0)

CUT_SHORT = ModelStreamBroken("The model's stream was cut short from inside.")
"""What is made of a stream that was cancelled by something of its own."""


class Answerer:
    """Asks the model for one attempt of one turn. `now` is monotonic seconds, `jitter` gives 0 to 1."""

    def __init__(
        self,
        model: Model,
        ledger: Ledger,
        control: Control,
        claimed: Claimed,
        *,
        limits: Limits,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._model = model
        self._ledger = ledger
        self._control = control
        self._turn = claimed
        self._now = now
        self._jitter = jitter
        self._projection = Projection(ledger, claimed, limits)
        self._spent: list[Spent] = []
        self.asked = False

    @property
    def spent(self) -> Sequence[Spent]:
        """Model requests that are not booked yet."""
        return tuple(self._spent)

    def take_spent(self) -> Sequence[Spent]:
        """The same, and forget them: they are booked, or whoever takes them writes them."""
        spent, self._spent = tuple(self._spent), []
        return spent

    async def look_at_mail(self) -> None:
        """Read the mailbox now instead of waiting for the bell."""
        self._control.note(await self._ledger.mail(self._turn.lease.session, self._turn.turn))

    async def answer(self, ask: Ask) -> Got:
        """One answer, with retries for what can be retried."""
        tries = 0
        anew = False
        while True:
            why = self._control.keep_from_asking()
            if why is not None:
                return Dropped(why)
            try:
                request = await self._request(ask)
            except NotRepairable as error:
                if anew or not await self._projection.again(ask.messages, str(error), []):
                    return await self._refused(ask, f"This history can't be repaired honestly: {error}")
                anew = True
                continue
            got = await self._stream(ask, request)
            if not isinstance(got, ModelError):
                return got
            if isinstance(got, ModelMisconfigured):
                return NoAnswer(Detail.PROVIDER, str(got))
            if isinstance(got, ModelRefusedHistory):
                if anew or not await self._projection.again(ask.messages, str(got), request.messages):
                    return await self._refused(ask, told(str(got)))
                anew = True
                await self.look_at_mail()
                continue
            wait = self._backoff(tries, got)
            tries += 1
            if wait is None or self._now() + wait >= ask.give_up_at:
                return NoAnswer(Detail.PROVIDER, f"The model gave no answer after {tries} tries: {got}")
            await self._pause(wait)

    async def _refused(self, ask: Ask, known: str) -> NoAnswer:
        """Nothing can be sent: the turn ends here, and the session goes on with its history told as text."""
        if ask.messages:
            await self._projection.give_up(ask.messages)
        return NoAnswer(Detail.STRUCTURAL_400, known)

    async def _request(self, ask: Ask) -> ModelRequest:
        parts = await self._projection.parts(ask.messages, ask.model)
        return ModelRequest(
            model=ask.model,
            system=parts.system,
            tools=parts.tools,
            messages=parts.messages,
            max_tokens=ask.max_tokens,
            without_tools=ask.without_tools,
            thinking=parts.thinking,
        )

    async def _stream(self, ask: Ask, request: ModelRequest) -> ModelAnswer | Dropped | ModelError:
        progress = StreamProgress()
        self.asked = True
        self._control.answer_by = ask.answer_by
        task: asyncio.Task[ModelAnswer] = asyncio.ensure_future(self._model.stream(request, progress))
        why: Cancel | None = None
        try:
            while not task.done():
                why, again = self._control.drop_stream()
                if why is not None:
                    break
                await self._control.wait({task}, again)
        finally:
            self._control.answer_by = None
            await let_go(task)
        if why is None and not task.cancelled() and task.exception() is None:
            answer = task.result()
            self._spent.append(Spent(answer.model or request.model, ask.step, answer.usage))
            self._projection.learn(request.messages, answer)
            return answer
        self._book(request.model, ask.step, progress)
        if why is not None:
            return Dropped(why)
        error = CUT_SHORT if task.cancelled() else task.exception()
        if isinstance(error, ModelError):
            return error
        raise error or AssertionError

    def _book(self, model: str, step: int, progress: StreamProgress) -> None:
        if progress.started:
            self._spent.append(Spent(model, step, progress.estimate()))

    def _backoff(self, tries: int, error: ModelError) -> float | None:
        """How long to wait before the next try, in seconds; None when trying on makes no sense."""
        if tries >= len(BACKOFF_S):
            return None
        if isinstance(error, ModelBusy) and error.retry_after_s is not None:
            return max(error.retry_after_s, 0.1)
        return BACKOFF_S[tries] * (0.5 + self._jitter())

    async def _pause(self, seconds: float) -> None:
        until = self._now() + seconds
        while self._now() < until and self._control.keep_from_asking() is None:
            _, again = self._control.drop_stream()
            await self._control.wait((), min(until, again))
        await self.look_at_mail()
