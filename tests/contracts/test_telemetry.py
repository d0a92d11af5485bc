"""Log lines that can't be forged and hold no secret; counters that Prometheus can read."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from bot.telemetry import Telemetry, clean, configure_logging
from core.errors import BadInput

HIDDEN = "hidden-in-a-variable"
KEY = "sk-ant-api03-secret"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_how_bad_where_and_what(stream: io.StringIO) -> None:
    structlog.get_logger("bot.app").warning("stuck", turn="t1", waited_s=1.5)
    [line] = _lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "warning", "logger": "bot.app", "event": "stuck", "turn": "t1", "waited_s": 1.5}


def test_text_with_line_breaks_can_not_forge_a_second_line(stream: io.StringIO) -> None:
    forged = "user=bob\n2026-01-01 ERROR root logged in\r\n{}\u2028{}\x85{}"
    structlog.get_logger().info("message", text=forged)
    assert stream.getvalue().count("\n") == 1
    assert _lines(stream)[0]["text"] == "user=bob\n2026-01-01 ERROR root logged in\n{}{}{}"


def test_text_can_not_steer_the_terminal_that_shows_it(stream: io.StringIO) -> None:
    structlog.get_logger().info("message", text="\x1b[2J\x1b[31mfake\x1b]0;title\x07\x9b1m\u202ereversed\x00\x7f")
    written = stream.getvalue()
    assert _lines(stream)[0]["text"] == "fake1mreversed"
    assert "\\u001b" not in written and "\x1b" not in written


def test_text_is_never_used_as_a_format(stream: io.StringIO) -> None:
    hostile = "%s%s%n {0.__class__} {event} %(levelname)s"
    structlog.get_logger().info("message", text=hostile)
    structlog.get_logger().info(hostile)
    logging.getLogger("library").warning("heard %s", hostile)
    texts = [line.get("text") or line["event"] for line in _lines(stream)]
    assert texts == [hostile, hostile, f"heard {hostile}"]


def test_secrets_go_from_every_place_of_a_line(stream: io.StringIO) -> None:
    structlog.get_logger().info(
        f"event {KEY}",
        text=f"key {KEY}",
        **{KEY: 1},
        nested={"headers": [{"Authorization": "Bearer q1w2e3r4t5"}], KEY: (KEY, {KEY})},
        thing=BadInput(KEY),
    )
    written = stream.getvalue()
    assert "secret" not in written and "q1w2e3r4t5" not in written
    assert _lines(stream)[0]["text"] == "key [redacted API key]"


def test_secrets_go_from_exceptions_and_no_variable_is_shown(stream: io.StringIO) -> None:
    def fails(password: str) -> None:
        raise ValueError(f"token xoxb-1-2-abc\nrefused for {len(password)} reasons")

    try:
        fails(HIDDEN)
    except ValueError:
        structlog.get_logger().exception("turn_failed")
    try:
        fails(HIDDEN)
    except ValueError:
        logging.getLogger("library").exception("it failed")
    written = stream.getvalue()
    assert [line["exception"].splitlines()[0] for line in _lines(stream)] == [
        "Traceback (most recent call last):"
    ] * 2
    assert "token [redacted Slack token]" in written
    assert "xoxb" not in written and HIDDEN not in written


def test_libraries_write_the_same_lines_but_only_what_they_complain_about(stream: io.StringIO) -> None:
    logging.getLogger("slack_bolt").info("connected")
    logging.getLogger("slack_bolt").error("token %s refused", "xapp-1-A-1-abc")
    [line] = _lines(stream)
    assert (line["logger"], line["level"]) == ("slack_bolt", "error")
    assert line["event"] == "token [redacted Slack token] refused"


def test_a_record_whose_arguments_do_not_fit_is_still_one_line(stream: io.StringIO) -> None:
    broken = {"name": "library", "levelno": logging.ERROR, "msg": "%d tries", "args": ("many",)}
    logging.getLogger().handlers[0].handle(logging.makeLogRecord(broken))
    [line] = _lines(stream)
    assert (line["event"], line["text"]) == ("log_record_broken", "%d tries")


def test_long_and_deep_values_are_cut() -> None:
    assert len(clean("a" * 1_000_000)) < 21_000
    deep: Any = "end"
    for _ in range(50):
        deep = [deep]
    assert "…" in json.dumps(clean(deep), ensure_ascii=False)


def test_lone_surrogates_can_be_written(stream: io.StringIO) -> None:
    structlog.get_logger().info("message", text="a\ud800b")
    assert stream.getvalue().encode()
    assert _lines(stream)[0]["text"] == "ab"


def test_everything_that_is_counted_is_on_the_page() -> None:
    telemetry = Telemetry()
    telemetry.turn_settled("steered")
    telemetry.stitch("R1")
    telemetry.sweep_found("open_cards", 2)
    telemetry.event("app_mention")
    telemetry.slack_call("chat.update", "ok")
    telemetry.model_request("claude-sonnet-5-5", "ok")
    telemetry.tool_call("prometheus_query", "timeout")
    page = telemetry.page().decode()
    for line in (
        'pilothouse_turns_settled_total{reason="steered"} 1.0',
        'pilothouse_stitches_total{rule="R1"} 1.0',
        'pilothouse_sweep_finds_total{sweep="open_cards"} 2.0',
        'pilothouse_slack_events_total{kind="app_mention"} 1.0',
        'pilothouse_slack_calls_total{method="chat.update",outcome="ok"} 1.0',
        'pilothouse_model_requests_total{model="claude-sonnet-5-5",outcome="ok"} 1.0',
        'pilothouse_tool_calls_total{status="timeout",tool="prometheus_query"} 1.0',
    ):
        assert line in page


class _LateClock:
    """A clock whose sleeps last longer than they should."""

    def __init__(self, *late_s: float) -> None:
        self._late_s = list(late_s)
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if not self._late_s:
            raise asyncio.CancelledError
        self._now += seconds + self._late_s.pop(0)


async def test_a_late_event_loop_is_measured_and_told(stream: io.StringIO) -> None:
    telemetry = Telemetry()
    with pytest.raises(asyncio.CancelledError):
        await telemetry.watch_loop(_LateClock(0.002, 0.3, 0.04))
    assert [(line["event"], line["lag_ms"]) for line in _lines(stream)] == [("loop_lag", 300)]
    page = telemetry.page().decode()
    assert 'pilothouse_loop_lag_seconds_bucket{le="0.25"} 2.0' in page
    assert "pilothouse_loop_lag_seconds_count 3.0" in page
