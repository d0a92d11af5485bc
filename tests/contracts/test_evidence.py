"""What calls bring is kept whole beside their rows, once, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.ports import Snapshot, Tier, ToolOutput
from storage.database import Database
from tests.support.scene import BOT, FAST, answer, scene, tool

ASK = f"<@{BOT}> checkout answers 5xx, what is going on?"
TOKEN = "xoxb-123456789012-" + "Ab1" * 8
LONG = f"{TOKEN}\n" + "gateway-7 504 after 30 s\n" * 500
PAGE = Snapshot("https://docs.example.com/rollback", 1_790_000_000.25, "d" * 64, "# Roll back\n\nUse undo.")


async def long(arguments: Mapping[str, Any]) -> ToolOutput:
    return ToolOutput(LONG)


async def page(arguments: Mapping[str, Any]) -> ToolOutput:
    return ToolOutput("Roll back", snapshot=PAGE)


async def test_a_long_output_and_a_page_are_kept_once_beside_every_call_that_brought_them(database: Database) -> None:
    lines = [
        answer("", ("logs", {"query": "a"}), ("logs", {"query": "b"}), ("page", {"url": "x"}), ("short", {})),
        answer("", ("page", {"url": "y"})),
        answer("The gateway."),
    ]
    tools = [tool("logs", long), tool("page", page), tool("short")]
    async with scene(database, lines, tools, limits=replace(FAST, output_chars=200)) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        kept = {row["kind"]: row for row in await thread.rows("evidence")}
        output, snapshot = kept["output"], kept["page"]
        calls = [(row["tool"], row["evidence_id"]) for row in await thread.rows("calls", "step, position")]
        assert calls == [
            ("logs", output["id"]),
            ("logs", output["id"]),
            ("page", snapshot["id"]),
            ("short", None),
            ("page", snapshot["id"]),
        ]
        assert len(await thread.rows("evidence")) == 2
        assert (output["body"], output["chars"]) == (LONG.replace(TOKEN, "[redacted Slack token]"), len(LONG))
        assert (snapshot["url"], snapshot["taken_at"]) == (PAGE.url, PAGE.taken_at)
        assert (snapshot["digest"], snapshot["body"]) == (PAGE.digest, PAGE.text)
        said = str(thread.model.requests[1].messages)
        assert "characters are left out here; all of it is kept for people." in said


async def test_arguments_are_kept_without_secrets_unless_the_call_may_have_to_run_from_its_row(
    sqlite_database: Database,
) -> None:
    given = {"query": f"key {TOKEN}", "password": "hunter2"}
    lines = [answer("", ("logs", given), ("change", given)), answer("Done.")]
    async with scene(sqlite_database, lines, [tool("logs"), tool("change", tier=Tier.WRITE)]) as thread:
        await thread.say(ASK)
        await thread.settled()
        rows = {row["tool"]: row for row in await thread.rows("calls")}
        assert json.loads(rows["logs"]["arguments"]) == {
            "query": "key [redacted Slack token]",
            "password": "[redacted]",
        }
        assert json.loads(rows["change"]["arguments"]) == given
        for row in rows.values():
            assert row["input_summary"] == "query=key [redacted Slack token] password=[redacted]"
