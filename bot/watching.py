"""What is logged and counted of the work: one line for each call, each settle, and whatever went wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from bot.telemetry import Telemetry
from core.errors import ModelError
from core.gateway import CallResult
from core.ledger import Claimed, Settled, Stitch
from core.ports import Model, ModelAnswer, ModelRequest, StreamProgress
from core.trace import trace_id

log = structlog.get_logger(__name__)


class Traces(Protocol):
    """Where spans go; see `bot.tracing`."""

    def call(self, claimed: Claimed, step: int, result: CallResult) -> None: ...

    def turn(self, claimed: Claimed, settled: Settled) -> None: ...


class Watching:
    """Told by the core what happened. Without `traces` no span is made; the ids in the log are the same."""

    def __init__(self, telemetry: Telemetry, traces: Traces | None = None) -> None:
        self._telemetry = telemetry
        self._traces = traces

    def closed(self, claimed: Claimed, step: int, results: Sequence[CallResult]) -> None:
        """The calls of a step have ended."""
        trace = trace_id(claimed.turn)
        for result in results:
            known = result.call.tier != "unlisted"
            self._telemetry.tool_call(result.call.tool if known else "(unlisted)", result.status.value)
            if self._traces is not None:
                self._traces.call(claimed, step, result)
            log.info(
                "tool_call",
                trace_id=trace,
                step_index=step,
                tool=result.call.tool,
                input_summary=result.call.summary,
                output_summary=result.summary,
                status=result.status.value,
                duration_ms=round(result.duration_s * 1000, 1),
            )

    def settled(self, claimed: Claimed, settled: Settled) -> None:
        """A turn has ended."""
        self._telemetry.turn_settled(settled.reason.value)
        if self._traces is not None:
            self._traces.turn(claimed, settled)
        log.info(
            "settled",
            trace_id=trace_id(claimed.turn),
            turn=claimed.turn,
            session=claimed.lease.session,
            reason=settled.reason.value,
            next_turn=settled.next_turn,
        )

    def stitched(self, claimed: Claimed, stitch: Stitch) -> None:
        """The suture had to repair a history: a fault further up."""
        self._telemetry.stitch(stitch.rule)
        log.warning(
            "history_repaired",
            trace_id=trace_id(claimed.turn),
            turn=claimed.turn,
            session=claimed.lease.session,
            rule=stitch.rule,
            path=stitch.path,
            what=stitch.what,
        )

    def fault(self, claimed: Claimed, error: BaseException) -> None:
        """An exception reached the door around a turn."""
        log.error(
            "turn_failed",
            trace_id=trace_id(claimed.turn),
            turn=claimed.turn,
            session=claimed.lease.session,
            exc_info=error,
        )

    def trouble(self, error: BaseException) -> None:
        """A round of the worker failed, or a lease was lost; the next round goes on."""
        log.warning("worker_trouble", error=repr(error))


class CountedModel:
    """A model whose requests are counted, each with how it ended."""

    def __init__(self, model: Model, telemetry: Telemetry) -> None:
        self._model = model
        self._telemetry = telemetry

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        outcome = "dropped"
        try:
            answer = await self._model.stream(request, progress)
            outcome = answer.stop_reason
            return answer
        except ModelError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._telemetry.model_request(request.model, outcome)


class LoopClock:
    """`core.ports.Clock` over the running event loop."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
