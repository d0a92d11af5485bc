"""Story 1: a mention, a card at once, steps, an answer with its evidence, and one settle row."""

from __future__ import annotations

from pathlib import Path

from tests.support.thread import ENGINEER, in_town, shown


async def test_a_mention_is_investigated_and_answered_with_its_evidence(tmp_path: Path) -> None:
    async with in_town(tmp_path, speed=20) as thread:
        question = await thread.ask()
        card = (await thread.cards())[0]
        assert card["thread_ts"] == thread.root
        answer = (await thread.answers())[0]
        assert await thread.released() == ["completed"]

        said = shown(answer)
        assert f"<@{ENGINEER}>" in said
        assert "gateway" in said and "300ms" in said.replace(" ", "")
        assert "eyes" in thread.signs(question)

        settle = (await thread.settles())[0]
        entries = await thread.rows("entries", "seq")
        assert settle["final_event_id"] == entries[-1]["id"]
        assert settle["cost_usd"] > 0
        versions = thread.slack.versions(thread.channel, card["ts"])
        assert len(versions) >= 2
        assert "stop_step" in str(versions[0]) and "stop_step" not in str(versions[-1])
        assert not thread.town.model.violations


async def test_a_mention_under_an_alert_knows_what_the_alert_said(tmp_path: Path) -> None:
    async with in_town(tmp_path, speed=20) as thread:
        thread.root = await thread.slack.post_alert(thread.channel)
        await thread.reply("<@U0PILOT> what is this?", ENGINEER)
        await thread.answers()
        assert await thread.released() == ["completed"]
        first = str(thread.requests()[0]["messages"][0])
        assert "checkout" in first.lower()
        assert "data" in first
