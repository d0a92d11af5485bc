"""Spans arrive where OTLP is spoken over HTTP: one a call, the turn as their parent, the ids those of the log."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pydantic import SecretStr

from bot.playground.model import call, say
from bot.settings import TelemetryPart
from bot.telemetry import Telemetry, configure_logging
from bot.tracing import Traces, headers_of
from bot.watching import Watching
from core.errors import ToolError
from core.ports import Tier, ToolOutput
from core.trace import span_id, trace_id
from storage.database import Database
from tests.support.replay import ended, staged
from tests.support.scene import BOT, answer, scene, tool

ASK = f"<@{BOT}> checkout answers 5xx, what is going on?"
TOKEN = "xoxb-123456789012-" + "Ab1" * 8
FIELDS = {"trace_id", "step_index", "tool", "input_summary", "output_summary", "status", "duration_ms"}


@dataclass
class Receiver:
    """What a collector received."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        for resource in sent.resource_spans:
            self.resource = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


def traces(url: str, headers: str = "") -> Traces:
    return Traces(
        url, headers_of(headers), worker="w1", version="1.2", now=time.time, clock=asyncio.get_running_loop().time
    )


def attributes(span: Span) -> dict[str, Any]:
    found = {}
    for one in span.attributes:
        found[one.key] = getattr(one.value, str(one.value.WhichOneof("value")))
    return found


async def every_end(arguments: Mapping[str, Any]) -> ToolOutput:
    match arguments["how"]:
        case "ok":
            return ToolOutput(f"fine, {TOKEN}\n2026-01-01 forged")
        case "error":
            raise ToolError("no such pod")
        case "slow":
            await asyncio.sleep(60)
    raise AssertionError("unreachable")


async def test_each_call_is_one_line_and_one_span_however_it_ends_and_the_turn_is_their_parent(
    sqlite_database: Database,
) -> None:
    ways = [("look", {"how": how}) for how in ("ok", "error", "slow")]
    lines = [
        answer("", *ways, ("rm", {}), ("look", {"query": TOKEN, "other": 1})),
        answer("", ("look", {"how": "ok"})),
        answer("", ("look", {"how": "ok"})),
        answer("It is the gateway."),
    ]
    schema = {"type": "object", "properties": {"how": {}}, "required": ["how"], "additionalProperties": False}
    look = tool("look", every_end)
    look.spec = type(look.spec)("look", "looks", schema, timeout_s=0.2)
    written = io.StringIO()
    configure_logging(written)
    async with receiver() as collector:
        sent = traces(collector.url, "x-api-key=k1, x-team = sre")
        watching = Watching(Telemetry(), sent)
        began = time.time()
        async with scene(sqlite_database, lines, [look], watching=watching) as thread:
            await thread.say(ASK)
            assert await thread.settled() == ["completed"]
            turn = (await thread.rows("turns"))[0]["id"]
            rows = await thread.rows("calls", "step, position")
        await sent.close()
        closed = time.time()

    spans = {span.name: [one for one in collector.spans if one.name == span.name] for span in collector.spans}
    assert {name: len(found) for name, found in spans.items()} == {
        "execute_tool look": 6,
        "execute_tool rm": 1,
        "invoke_agent pilothouse": 1,
    }
    assert {span.trace_id.hex() for span in collector.spans} == {trace_id(turn)}
    [parent] = spans["invoke_agent pilothouse"]
    assert (parent.span_id.hex(), parent.parent_span_id) == (span_id(turn), b"")
    calls = [span for span in collector.spans if span is not parent]
    assert {span.parent_span_id.hex() for span in calls} == {span_id(turn)}
    for span in collector.spans:
        assert (began - 60) * 1e9 < span.start_time_unix_nano <= span.end_time_unix_nano <= closed * 1e9
    assert attributes(parent)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(parent)["pilothouse.reason"] == "completed"

    told = [attributes(span) for span in calls]
    assert {one["gen_ai.operation.name"] for one in told} == {"execute_tool"}
    assert {one["gen_ai.tool.call.id"] for one in told} == {row["call_id"] for row in rows}
    statuses = [one["pilothouse.status"] for one in told]
    assert statuses == ["ok", "error", "timeout", "refused", "refused", "ok", "ok"]
    assert [span.status.code == Status.STATUS_CODE_ERROR for span in calls] == [s != "ok" for s in statuses]
    assert [one.get("error.type") for one in told] == [None if s == "ok" else s for s in statuses]
    slow = calls[2]
    assert slow.end_time_unix_nano - slow.start_time_unix_nano >= 0.2e9
    assert collector.resource["service.name"] == "pilothouse" and collector.resource["service.instance.id"] == "w1"
    assert {(one["x-api-key"], one["x-team"]) for one in collector.headers} == {("k1", "sre")}

    logged = [json.loads(line) for line in written.getvalue().splitlines()]
    lines_of_calls = [line for line in logged if line["event"] == "tool_call"]
    assert [line["status"] for line in lines_of_calls] == [row["status"] for row in rows] == statuses
    for line in lines_of_calls:
        assert set(line) - {"event", "level", "logger", "timestamp"} == FIELDS
        assert line["trace_id"] == trace_id(turn)
    assert "You have this already" in lines_of_calls[-1]["output_summary"]
    assert TOKEN not in written.getvalue() and TOKEN not in str(collector.spans)


async def test_a_cancelled_a_denied_and_an_unknown_write_have_their_lines_too(sqlite_database: Database) -> None:
    written = io.StringIO()
    configure_logging(written)
    began = asyncio.Event()

    async def hang(arguments: Mapping[str, Any]) -> ToolOutput:
        began.set()
        await asyncio.sleep(60)
        raise AssertionError("nobody waits that long")

    lines = [answer("", ("slow", {})), answer("", ("change", {}), ("after", {}))]
    tools = [tool("slow", hang), tool("change", hang, tier=Tier.WRITE, timeout_s=0.2), tool("after", tier=Tier.WRITE)]
    async with scene(sqlite_database, lines, tools, watching=Watching(Telemetry())) as thread:
        await thread.say(ASK)
        await began.wait()
        await thread.say("look at the gateway instead")
        assert await thread.settled(2) == ["steered", "failed"]
    logged = [json.loads(line) for line in written.getvalue().splitlines()]
    told = [(line["tool"], line["status"]) for line in logged if line["event"] == "tool_call"]
    assert told == [("slow", "cancelled"), ("change", "unknown"), ("after", "not_run")]


async def test_a_receiver_that_is_not_there_costs_nothing_but_its_spans(sqlite_database: Database) -> None:
    sent = traces("http://127.0.0.1:1")
    lines = [answer("", ("look", {})), answer("Fine.")]
    async with scene(sqlite_database, lines, [tool("look")], watching=Watching(Telemetry(), sent)) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
    await sent.close()


def test_nothing_of_opentelemetry_is_imported_unless_it_is_configured() -> None:
    program = "import sys, bot.app; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


async def test_the_program_sends_its_spans_where_the_configuration_says_before_it_ends(tmp_path: Path) -> None:
    async with receiver() as collector:
        to = TelemetryPart(otlp_endpoint=f"{collector.url}/", otlp_headers=SecretStr("authorization=Bearer%20k1"))
        there = staged(tmp_path, settings=lambda settings: settings.model_copy(update={"telemetry": to}))
        async with there as stage:
            room = stage.room("spans", call("look", room="spans"), say("The gateway."))
            await room.ask()
            await ended(room, "completed")
            [turn] = room.all("turns")
        told = {(span.name, span.trace_id.hex()) for span in collector.spans}
        trace = trace_id(turn["id"])
        assert told == {("execute_tool look", trace), ("invoke_agent pilothouse", trace)}
        assert {headers["authorization"] for headers in collector.headers} == {"Bearer k1"}
