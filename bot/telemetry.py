"""What operators see: one JSON line an event on stderr, and counters for Prometheus.

A log line is made of constant event names and values. Values may hold anything that a person, a tool or the model
wrote, so each is cleaned on its way out: secrets go (also from exception texts), control characters go, line
breaks are escaped, long text is cut, and nothing of it is ever used as a format. Tracebacks show code, never the
values of variables. The log lines of libraries take the same way.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from core.ports import Clock
from core.redaction import redact

LAG_WARNING_S = 0.25
LAG_PROBE_S = 0.1
LONGEST_VALUE = 20_000
LONGEST_WORD = 40
REMEMBERED_WORDS = 1_000
DEEPEST_VALUE = 6
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

# Escape sequences of terminals as a whole, then what else steers a terminal or turns the direction of text.
_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

log = structlog.get_logger(__name__)


def clean(value: Any, depth: int = DEEPEST_VALUE) -> Any:
    """`value` as it may stand in a log line."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _clean_text(value)
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {_clean_text(str(key)): clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item, depth - 1) for item in value]
    return _clean_text(repr(value))


def configure_logging(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send every log line of this process, also those of libraries, to `stream` (stderr) as JSON."""
    stream = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *_DRESS,
            _cleaned,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda name="pilothouse": _Output(name, stream),
        cache_logger_on_first_use=False,
    )
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_DRESS,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _cleaned,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries tell what they do at INFO; what they complain about is enough.
    root.setLevel(max(level, logging.WARNING))


class Telemetry:
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._turns = self._counter("turns_settled", "Turns that ended, by reason.", "reason")
        self._stitches = self._counter("stitches", "Stitches of the suture: faults further up.", "rule")
        self._finds = self._counter("sweep_finds", "What a sweep had to put right.", "sweep")
        self._events = self._counter("slack_events", "What arrived from Slack.", "kind")
        self._slack = self._counter("slack_calls", "Calls of the Slack Web API.", "method", "outcome")
        self._model = self._counter("model_requests", "Requests to the model.", "model", "outcome")
        self._tools = self._counter("tool_calls", "Calls through the gateway.", "tool", "status")
        self._lag = Histogram(
            "pilothouse_loop_lag_seconds",
            "How late the event loop runs what is due.",
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )

    def turn_settled(self, reason: str) -> None:
        self._turns.labels(reason).inc()

    def stitch(self, rule: str) -> None:
        self._stitches.labels(rule).inc()

    def sweep_found(self, sweep: str, count: int = 1) -> None:
        self._finds.labels(sweep).inc(count)

    def event(self, kind: str) -> None:
        self._events.labels(kind).inc()

    def slack_call(self, method: str, outcome: str) -> None:
        self._slack.labels(method, outcome).inc()

    def model_request(self, model: str, outcome: str) -> None:
        self._model.labels(model, outcome).inc()

    def tool_call(self, tool: str, status: str) -> None:
        self._tools.labels(tool, status).inc()

    def page(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self.registry)

    async def watch_loop(self, clock: Clock) -> None:
        """Measure for ever how late the event loop is; a lag of `LAG_WARNING_S` is logged."""
        while True:
            before = clock.monotonic()
            await clock.sleep(LAG_PROBE_S)
            lag_s = max(0.0, clock.monotonic() - before - LAG_PROBE_S)
            self._lag.observe(lag_s)
            if lag_s >= LAG_WARNING_S:
                log.warning("loop_lag", lag_ms=round(lag_s * 1000))

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"pilothouse_{name}", help_text, labels, registry=self.registry)


class _Output(structlog.PrintLogger):
    """Prints finished lines, and knows what its module is called."""

    def __init__(self, name: str, stream: TextIO) -> None:
        super().__init__(stream)
        self.name = name


class _Handler(logging.StreamHandler[TextIO]):
    """Writes the records of libraries; one whose arguments don't fit its text is still one JSON line."""

    def handleError(self, record: logging.LogRecord) -> None:
        log.warning("log_record_broken", logger=record.name, text=str(record.msg))


def _clean_text(text: str) -> str:
    return _clean_word(text) if len(text) <= LONGEST_WORD else _clean_now(text)


@lru_cache(REMEMBERED_WORDS)
def _clean_word(text: str) -> str:
    """Names of events, fields, tools and states come again in every line."""
    return _clean_now(text)


def _clean_now(text: str) -> str:
    cut = redact(text[: LONGEST_VALUE * 2])
    if len(cut) > LONGEST_VALUE or len(text) > LONGEST_VALUE * 2:
        cut = f"{cut[:LONGEST_VALUE]}… [cut: {len(text)} characters]"
    return _CONTROL.sub("", cut)


def _cleaned(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {_clean_text(name): clean(value) for name, value in line.items()}


_DRESS: list[Callable[..., Any]] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]
