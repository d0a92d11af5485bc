"""Spans for OpenTelemetry, sent by OTLP over HTTP: one for each tool call, and one for each turn as their parent.

Imported only when an endpoint is configured. The ids of a turn's trace and span follow from the turn, so the calls of
all its attempts, on whatever worker, hang on it. A thread of the SDK sends what has gathered; a receiver that is not
there costs what did not fit into its queue, and nothing waits for it. Names are those of OpenTelemetry's semantic
conventions for generative AI; what these don't know begins with `pilothouse.`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context

from bot.telemetry import clean
from core.gateway import CallResult
from core.ledger import Claimed, Settled
from core.messages import TurnId
from core.settle import Reason
from core.trace import span_id, trace_id

PATH = "/v1/traces"
AGENT = "pilothouse"
PROVIDER = "anthropic"
SEND_TIMEOUT_S = 3.0
CLOSE_S = 3.0
NS = 1_000_000_000
FAILURES = frozenset({Reason.FAILED, Reason.TIMED_OUT, Reason.ABANDONED, Reason.EMPTY})


class Traces:
    """The spans of one worker. `now` gives seconds since the epoch, `clock` the monotonic seconds of results."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        *,
        worker: str,
        version: str,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._now = now
        self._clock = clock
        self._ids = _Ids()
        resource = Resource.create({"service.name": AGENT, "service.version": version, "service.instance.id": worker})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(
            endpoint=endpoint.rstrip("/") + PATH, headers=dict(headers) or None, timeout=SEND_TIMEOUT_S
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(AGENT, version)

    def call(self, claimed: Claimed, step: int, result: CallResult) -> None:
        """A call has ended."""
        call = result.call
        ended = self._now() - (self._clock() - result.ended_s if result.ended_s is not None else 0.0)
        attributes = {
            gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.EXECUTE_TOOL.value,
            gen_ai.GEN_AI_TOOL_NAME: call.tool,
            gen_ai.GEN_AI_TOOL_CALL_ID: call.call_id,
            gen_ai.GEN_AI_TOOL_TYPE: "function",
            gen_ai.GEN_AI_AGENT_NAME: AGENT,
            gen_ai.GEN_AI_CONVERSATION_ID: claimed.lease.session,
            "pilothouse.turn": claimed.turn,
            "pilothouse.step_index": step,
            "pilothouse.tier": call.tier,
            "pilothouse.status": result.status.value,
            "pilothouse.input_summary": call.summary,
            "pilothouse.output_summary": result.summary,
        }
        span = self._tracer.start_span(
            clean(f"execute_tool {call.tool}"),
            context=set_span_in_context(NonRecordingSpan(_context(claimed.turn))),
            kind=SpanKind.INTERNAL,
            attributes=clean(attributes),
            start_time=int((ended - result.duration_s) * NS),
        )
        if result.is_error:
            span.set_attribute(ERROR_TYPE, result.status.value)
            span.set_status(Status(StatusCode.ERROR))
        span.end(int(ended * NS))

    def turn(self, claimed: Claimed, settled: Settled) -> None:
        """A turn has ended: from when somebody asked until it was settled."""
        ended = self._now()
        attributes = {
            gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.INVOKE_AGENT.value,
            gen_ai.GEN_AI_PROVIDER_NAME: PROVIDER,
            gen_ai.GEN_AI_AGENT_NAME: AGENT,
            gen_ai.GEN_AI_CONVERSATION_ID: claimed.lease.session,
            gen_ai.GEN_AI_REQUEST_MODEL: claimed.frozen.model,
            "pilothouse.turn": claimed.turn,
            "pilothouse.source": claimed.source.value,
            "pilothouse.reason": settled.reason.value,
            "pilothouse.attempt": claimed.attempt,
        }
        self._ids.next = _context(claimed.turn)
        span = self._tracer.start_span(
            f"invoke_agent {AGENT}",
            context=set_span_in_context(NonRecordingSpan(_NOTHING)),
            kind=SpanKind.INTERNAL,
            attributes=clean(attributes),
            start_time=int(min(claimed.created_at or ended, ended) * NS),
        )
        if settled.reason in FAILURES:
            span.set_attribute(ERROR_TYPE, settled.reason.value)
            span.set_status(Status(StatusCode.ERROR))
        span.end(int(ended * NS))

    async def close(self) -> None:
        """Send what has gathered, for a few seconds at most."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            self._provider.shutdown()
            loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=work, daemon=True).start()
        try:
            await asyncio.wait_for(ended.wait(), CLOSE_S)
        except TimeoutError:
            return


class _Ids(IdGenerator):
    """Ids by chance, except for the span that a turn is: `next` holds those."""

    def __init__(self) -> None:
        self.next: SpanContext | None = None
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        return self._random.generate_trace_id() if self.next is None else self.next.trace_id

    def generate_span_id(self) -> int:
        if self.next is None:
            return self._random.generate_span_id()
        own, self.next = self.next.span_id, None
        return own


_NOTHING = SpanContext(0, 0, is_remote=False)


def _context(turn: TurnId) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id(turn), 16), int(span_id(turn), 16), is_remote=False, trace_flags=flags)


def headers_of(written: str) -> dict[str, str]:
    """Headers as the environment variable writes them: `name=value,name=value`, values percent-encoded."""
    pairs = (pair.partition("=") for pair in written.split(",") if "=" in pair)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
