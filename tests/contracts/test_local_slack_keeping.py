"""The local Slack's memory: what was there when a demo ended is there when the next one begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.playground.slack import LocalSlack
from core.errors import BadInput

CHANNEL = "C0INCIDENT"


def shown(slack: LocalSlack, thread_ts: str | None = None) -> list[Any]:
    return slack.messages(CHANNEL, thread_ts)


async def test_messages_edits_reactions_and_deletions_outlive_the_process(tmp_path: Path) -> None:
    kept = tmp_path / "new" / "slack.jsonl"
    async with LocalSlack(keep=kept) as slack:
        root = await slack.say(CHANNEL, "U0ENGINEER", "what is going on?")
        reply = await slack.say(CHANNEL, "U0ONCALL", "it's teh gateway", thread_ts=root)
        wrong = await slack.say(CHANNEL, "U0ONCALL", "never mind", thread_ts=root)
        await slack.edit(CHANNEL, reply, "U0ONCALL", "it's the gateway")
        await slack.react(CHANNEL, reply, "U0ENGINEER", "+1")
        await slack.delete(CHANNEL, wrong, "U0ONCALL")
        before = [shown(slack), shown(slack, root)]
    async with LocalSlack(keep=kept) as slack:
        assert [shown(slack), shown(slack, root)] == before
        assert [message["text"] for message in shown(slack, root)] == ["what is going on?", "it's the gateway"]
        assert await slack.say(CHANNEL, "U0ENGINEER", "and now?") > wrong
    async with LocalSlack(keep=kept) as slack:
        assert [message["text"] for message in shown(slack)] == ["what is going on?", "and now?"]


async def test_a_line_that_was_cut_off_while_it_was_written_costs_only_itself(tmp_path: Path) -> None:
    kept = tmp_path / "slack.jsonl"
    async with LocalSlack(keep=kept) as slack:
        await slack.say(CHANNEL, "U0ENGINEER", "one")
        await slack.say(CHANNEL, "U0ENGINEER", "two")
    kept.write_text(kept.read_text()[:-20])
    async with LocalSlack(keep=kept) as slack:
        assert [message["text"] for message in shown(slack)] == ["one"]


async def test_a_file_that_can_t_be_used_is_one_sentence(tmp_path: Path) -> None:
    kept = tmp_path / "slack.jsonl"
    kept.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"slack\.jsonl can't be read .*: move it away"):
        async with LocalSlack(keep=kept):
            pass
