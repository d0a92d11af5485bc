"""Loki: log lines, newest first, or a metric query over logs; and which labels there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from pydantic import BaseModel, TypeAdapter

from bot.tools.matchers import LABEL_PATTERN
from bot.tools.reading import HEALTH_S, FarEnd, shaped
from bot.tools.series import RESPONSE, Response, shared_line, split_labels, text_of
from bot.tools.shaping import (
    Arguments,
    ReadTool,
    count_argument,
    left_out,
    moment,
    object_schema,
    one_line,
    text_argument,
    whole_argument,
)
from core.ports import Tool, ToolOutput, ToolSpec

NAME = "Loki"
MOST_LINE_CHARS = 600
MOST_LINES = 500
MOST_VALUES = 200
LABELS_OF_A_LINE = ("namespace", "app", "pod", "container", "host", "node", "level")

QUERY = ToolSpec(
    "loki_query",
    'Read log lines with LogQL, newest first, e.g. {namespace="shop", app="gateway"} |= "timed out". A metric query '
    'such as sum by (host) (count_over_time({app="gateway"} |= "error" [5m])) gives counts over time instead.',
    object_schema(
        ["query"],
        query=text_argument("LogQL query"),
        minutes_back=whole_argument("How far back from now, in minutes", 30, 1, 1_440),
        limit=count_argument("How many lines at most", 50, MOST_LINES),
    ),
)
LABELS = ToolSpec(
    "loki_labels",
    "The label names that log streams have, or with a name the values of that label; with a match only those of the "
    'streams that it selects, e.g. {namespace="shop"}.',
    object_schema(
        [],
        name={
            "type": "string",
            "description": "Label whose values are wanted; the names of all labels if left out",
            "pattern": LABEL_PATTERN,
            "maxLength": 128,
        },
        match=text_argument('Stream selector, e.g. {namespace="shop"}', 1_000),
        minutes_back=whole_argument("How far back from now, in minutes", 60, 1, 10_080),
    ),
)


class Stream(BaseModel):
    """One stream of a log query: entries are [nanoseconds, line, perhaps structured metadata]."""

    stream: dict[str, str] = {}
    values: list[tuple[float, str] | tuple[float, str, Any]] = []


class Found(BaseModel):
    """`/loki/api/v1/labels` and `/loki/api/v1/label/NAME/values`; Loki leaves `data` out when there is none."""

    data: list[str] | None = None


STREAMS, FOUND = TypeAdapter(list[Stream]), TypeAdapter(Found)


def tools(
    base_url: str,
    session: aiohttp.ClientSession,
    now: Callable[[], float],
    link_base: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[Tool]:
    """The tools for one Loki. `base_url` is where its `/loki/api/v1` begins; `link_base` is the Grafana in which
    people look at it; `headers` go with each request (authorisation, tenant); `now` gives seconds since the epoch.
    """
    far_end = FarEnd(NAME, base_url.rstrip("/"), session, dict(headers or {}))
    reader = Reader(far_end, now, link_base.rstrip("/") if link_base else None)
    return [ReadTool(QUERY, reader.query, reader.check), ReadTool(LABELS, reader.labels, reader.check)]


@dataclass(frozen=True, slots=True)
class Reader:
    """What the tool does. Every method raises only ToolError."""

    far_end: FarEnd
    now: Callable[[], float]
    link_base: str | None

    async def check(self) -> object:
        return await self.far_end.ask("/loki/api/v1/labels", {}, HEALTH_S)

    async def query(self, arguments: Arguments) -> ToolOutput:
        query, minutes = arguments["query"], arguments["minutes_back"]
        limit = min(int(arguments["limit"]), MOST_LINES)
        end = self.now()
        start = end - minutes * 60
        asked: dict[str, str | float] = {
            "query": query,
            "start": int(start * 1e9),
            "end": int(end * 1e9),
            "limit": limit,
            "direction": "backward",
            "step": max(minutes * 60 // 60, 1),
        }
        response = shaped(NAME, RESPONSE, await self.far_end.ask("/loki/api/v1/query_range", asked))
        if response.data.resultType == "streams":
            text = self._lines(response, minutes, limit)
        else:
            text = text_of(NAME, response)
        return ToolOutput(text, self._links(query, start, end))

    async def labels(self, arguments: Arguments) -> ToolOutput:
        name, match, minutes = arguments.get("name"), arguments.get("match"), arguments["minutes_back"]
        end = self.now()
        asked: dict[str, str | float | list[str]] = {
            "start": int((end - minutes * 60) * 1e9),
            "end": int(end * 1e9),
            "query": [match] if match else [],
        }
        path = "/loki/api/v1/labels" if name is None else f"/loki/api/v1/label/{name}/values"
        found = sorted(shaped(NAME, FOUND, await self.far_end.ask(path, asked)).data or [])
        what = "label names" if name is None else f"values of {name}"
        where = f"{f' in {one_line(match)}' if match else ''} in the last {minutes} min"
        if not found:
            return ToolOutput(f"No {what}{where}. Look further back{', or at other streams' if match else ''}.")
        shown = [one_line(value, 200) for value in found[:MOST_VALUES]]
        more = left_out(len(shown), len(found), "of them", "add a match")
        return ToolOutput(f"{len(found)} {what}{where}: {', '.join(shown)}{more}")

    def _lines(self, response: Response, minutes: int, limit: int) -> str:
        streams = shaped(NAME, STREAMS, response.data.result)
        entries = sorted(
            ((entry[0] / 1e9, entry[1], one.stream) for one in streams for entry in one.values),
            key=lambda entry: -entry[0],
        )
        if not entries:
            return f"No line matches in the last {minutes} min. Check the labels, or look further back."
        shared, names = split_labels([labels for _, _, labels in entries])
        names = [name for name in LABELS_OF_A_LINE if name in names]
        head = f"{len(entries)} lines of the last {minutes} min, newest first{shared_line(shared)}"
        lines = [
            f"{moment(t)} {_origin(labels, names, line)}{one_line(line, MOST_LINE_CHARS)}"
            for t, line, labels in entries
        ]
        text = "\n".join([head, *lines])
        if len(entries) >= limit:
            text += f"\n[limit of {limit} reached: there may be more before {moment(entries[-1][0])}]"
        return text

    def _links(self, query: str, start: float, end: float) -> list[tuple[str, str]]:
        """Grafana's Explore, with this query over this time."""
        if self.link_base is None:
            return []
        pane = {
            "datasource": "loki",
            "queries": [{"refId": "A", "expr": query, "datasource": {"type": "loki"}}],
            "range": {"from": str(int(start * 1000)), "to": str(int(end * 1000))},
        }
        asked = {"schemaVersion": "1", "panes": json.dumps({"a": pane})}
        return [(f"{NAME}: {one_line(query, 80)}", f"{self.link_base}/explore?{urlencode(asked)}")]


def _origin(labels: Mapping[str, str], names: list[str], line: str) -> str:
    """Where a line comes from, as far as the lines differ and the line doesn't say so itself."""
    parts = [labels[name] for name in names if labels.get(name) and labels[name] not in line]
    return f"[{' '.join(parts)}] " if parts else ""
