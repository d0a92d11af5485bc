"""One call as an auditor reads it: what was asked, how it ended, and the whole of what it brought."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bot.commands.output import harmless, moment, printable

Row = Mapping[str, Any]


def whole_call(row: Row, number: int) -> list[str]:
    """The lines of one row of `storage.call_reports.call_story`."""
    return [f"{name + ':':<10} {printable(words)}" for name, words in _head(row, number)] + ["", *_body(row)]


def _head(row: Row, number: int) -> Iterator[tuple[str, str]]:
    yield f"Call {number}", f"{row['tool']} ({row['tier']}), step {row['step']} of {row['turn_id']}"
    took = "" if row["duration_ms"] is None else f" after {row['duration_ms'] / 1000:.2f} s"
    at = f", {moment(row['ended_at'])} UTC" if row["ended_at"] is not None else ""
    yield "Status", f"{row['status']}{took}{at}"
    yield "Arguments", json.dumps(row["arguments"], ensure_ascii=False)
    if row["evidence_id"] is not None:
        yield "Evidence", _evidence(row)


def _evidence(row: Row) -> str:
    kept = len(row["evidence"])
    size = f"{row['evidence_chars']:,} characters"
    size += f" (the first {kept:,} are kept)" if kept < row["evidence_chars"] else ""
    if row["evidence_kind"] == "page":
        read = f"{row['evidence_url']}, read {moment(row['evidence_taken_at'])} UTC"
        return f"the page {read}, {size}, sha256 of its bytes {row['evidence_digest']}"
    return f"the whole output, {size}, sha256 {row['evidence_digest']}"


def _body(row: Row) -> list[str]:
    body = row["evidence"] if row["evidence_id"] is not None else row["output"]
    if body is None:
        return ["(no output)"]
    return [harmless(line.expandtabs(4)).rstrip() for line in body.split("\n")]
