"""Good rows of every table, as many as a test wants, in an order that foreign keys allow."""

from __future__ import annotations

from typing import Any

from storage.tables import metadata

Row = dict[str, Any]

PARENTS = ("sessions", "turns", "entries", "calls", "suspensions")
"""What other tables refer to."""


def good_rows(number: int, parents: int | None = None) -> dict[str, Row]:
    """Row `number` of every table, which refers to the parents of that number or of another one."""
    n, p = number, parents or number
    own = _row(session_id=f"s{p}", turn_id=f"t{p}")
    rows: dict[str, Row] = {
        "sessions": _row(id=f"s{n}", team="T1", channel="C1", thread_ts=f"{n}.000001", state="idle"),
        "turns": _row(id=f"t{n}", session_id=f"s{p}", number=n, state="running", source="mention")
        | _row(asked_by="U1", asked_text="why?", newest_ts="1.000001", first_at=1, start_after=1),
        "messages": _row(id=f"m{n}", dedupe_key=f"k{n}", source="mention", marker="none", **own)
        | _row(who="member", author="U1", text="why?", slack_ts="1.000001", arrived_at=1)
        | _row(disposition="start", policy_row="r", state="consumed"),
        "stops": _row(id=f"p{n}", level="step", author="U1", source="reply", **own)
        | _row(slack_ts="1.000002", arrived_at=1),
        "attempts": _row(turn_id=f"t{p}", number=n, worker="w1", epoch=1, started_at=1),
        "entries": _row(id=f"e{n}", seq=n, kind="user", step=1, body="[]", epoch=1, **own),
        "evidence": _row(id=f"{n:064}", kind="output", body="all fine", chars=8, digest=f"{n:064}"),
        "calls": _row(id=f"c{n}", step=1, position=n, call_id="x", tool="t", tier="read", **own)
        | _row(status="open", arguments="{}", input_summary=""),
        "suspensions": _row(id=f"su{n}", kind="approval", until=1, **own),
        "approvals": _row(number=n, suspension_id=f"su{p}", call_row=f"c{p}", digest="d", preview="", **own)
        | _row(state="open", expires_at=1),
        "settles": _row(reason="completed", final_event_id=f"e{p}", step=1, **own)
        | _row(input_tokens=1, output_tokens=1, cost_usd=0.1),
        "cards": _row(channel="C1", thread_ts="1.000001", state="open", opened_at=1, **own),
        "outbox": _row(id=n, kind="answer", priority=1, dedupe_key=f"o{n}", channel="C1", **own)
        | _row(body="{}", state="waiting"),
        "pictures": _row(id=f"c{p}.{n}", call_row=f"c{p}", title="up", alt="all up", png=b"\x89PNG", **own),
        "costs": _row(id=n, turn_id=f"t{p}", step=1, model="m", input_tokens=1, output_tokens=1)
        | _row(cache_read_tokens=0, cache_write_tokens=0, estimated=False, usd=0.1),
        "diagnoses": _row(turn_id=f"t{p}", kind="k", text="t"),
        "automation": _row(turn_id=f"t{p}", source="alert", outcome="failed"),
        "repairs": _row(id=n, rule="R1", path=f"{n}", what="w", **own),
        "leases": _row(name=f"sweep{n}", owner="w1", until=1),
        "switches": _row(name=f"paused{n}", value="no", changed_by="U1", changed_at=1),
    }
    return {table.name: _created(table.c, rows[table.name]) for table in metadata.sorted_tables}


def _row(**values: Any) -> Row:
    return values


def _created(columns: Any, row: Row) -> Row:
    return row | {"created_at": 1} if "created_at" in columns else row
