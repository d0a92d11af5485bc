"""Story 10, logs and secrets: what a tool brings forges no line, steers no terminal, and keeps no secret in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.playground.model import call, pace, say
from core.ports import ToolOutput
from tests.support.replay import Gate, ended, staged
from tests.support.thread import shown

SECRETS = {
    "xapp": "xapp-1-A0123456789-1234567890123-" + "ab" * 32,
    "xoxb": "xoxb-123456789012-1234567890123-" + "Ab1" * 8,
    "xoxe": "xoxe.xoxp-1-" + "Mi0y" * 10,
    "anthropic": "sk-ant-api03-" + "Zz9" * 31,
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2" * 9,
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJlc2lnbmF0dXJl",
}
PASSWORD = base64.b64encode(b"hunter2hunter2").decode()
MANIFEST = f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  password: {PASSWORD}\n"
FORGED = "user=bob\n2026-01-01 ERROR root logged in %s%s%n {0.__class__} \u001b[2J\u001b[31mfake"


class Leaky(Gate):
    """A tool that brings everything that it should not."""

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        if arguments.get("fail"):
            raise RuntimeError(f"no access with {SECRETS['github']}")
        return ToolOutput("\n".join([FORGED, *SECRETS.values(), MANIFEST]))


Leaky.spec = type(Gate.spec)("leak", "leaks", {"type": "object", "additionalProperties": True})


async def test_secrets_of_a_tool_are_in_no_log_no_request_no_card_and_no_row(tmp_path: Path) -> None:
    lines = [
        say(f"Using {SECRETS['xoxb']}")
        + pace(delta_chars=7)
        + call("leak", token=SECRETS["aws"])
        + call("leak", fail=True),
        say(f"The key is {SECRETS['anthropic']}, and {SECRETS['github']}.") + pace(delta_chars=11),
    ]
    async with staged(tmp_path, tools=[Leaky()]) as stage:
        room = stage.room("leak", *lines)
        await room.ask()
        await ended(room, "completed")
        results = [
            str(block["content"])
            for block in room.requests()[1]["messages"][-1]["content"]
            if block["type"] == "tool_result"
        ]
        places = {
            "log": stage.log.getvalue(),
            "results": "\n".join(results),
            "rows": "\n".join(
                str(row[column])
                for row in room.all("calls")
                for column in ("input_summary", "output_summary", "output", "links")
            ),
            "slack": "\n".join(shown(version["message"]) for version in stage.ends.slack.every_version(room.channel)),
        }
        for place, found in places.items():
            for name, secret in SECRETS.items():
                assert secret not in found, (place, name)
            assert PASSWORD not in found, place
        assert all(json.loads(line)["event"] for line in stage.log.getvalue().splitlines())
        assert "\u001b" not in stage.log.getvalue() and "root logged in" in places["results"]
