"""`pilothouse policy`: the table, and why it decides as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.steering import rows
from tests.support.cli import Run, json_of, sentence_of

pytest_plugins = ["tests.e2e.cli_fixtures"]


def test_policy_show_prints_every_row_in_order(cli: Run) -> None:
    assert json_of(cli("policy", "show", "--json")) == rows()
    _, out, _ = cli("policy", "show")
    assert [line.split()[0] for line in out.splitlines()] == ["ROW", *(row["row"] for row in rows())]


def test_policy_show_has_the_rows_that_a_channel_adds(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "pilothouse.toml"
    config.write_text('[[channels.C0RANDOM.policy]]\nsource = "reply"\nwho = "member"\nto = "steer"\n')
    shown = json_of(cli("policy", "show", "--json", "--channel", "C0RANDOM"))
    assert [row["row"] for row in shown if row["row"].startswith("channel:")] == ["channel:1"]
    case = ["--source", "reply", "--who", "member", "--state", "running", "--json"]
    here = json_of(cli("policy", "explain", *case, "--channel", "C0RANDOM", "--config", config))
    assert (here["disposition"], here["row"]) == ("steer", "channel:1")
    there = json_of(cli("policy", "explain", *case, "--channel", "C0OTHER"))
    assert (there["disposition"], there["row"]) == ("note", "reply_of_member")


@pytest.mark.parametrize(
    ("who", "text", "marker", "disposition"),
    [
        ("participant", "don't look at that host, it's the gateway", "none", "steer"),
        ("member", "lunch?", "none", "note"),
        ("member", "! it's the gateway", "now", "steer"),
        ("member", "+ also check the db", "after", "queue"),
        ("member", "<@U0ANN0001> can you look?", "addressed", "note"),
        ("member", "stop, wrong cluster", "stop_step", "control"),
        ("member", "刹车，先停一下，我还没确认范围", "stop_step", "control"),
        ("member", "取消", "cancel", "control"),
        ("participant", "stop the rollout", "none", "steer"),
        ("member", "@pilot what is this?", "none", "steer"),
        ("guest", "stop", "stop_step", "refuse"),
    ],
)
def test_policy_explain_reads_the_marker_from_the_text(
    cli: Run, who: str, text: str, marker: str, disposition: str
) -> None:
    source = "mention" if "@pilot" in text else "reply"
    case = ["--source", source, "--who", who, "--state", "running", "--text", text]
    found = json_of(cli("policy", "explain", *case, "--json"))
    assert (found["case"]["marker"], found["disposition"]) == (marker, disposition)


def test_policy_explain_says_the_row_why_not_the_others_and_what_the_person_is_told(cli: Run) -> None:
    case = ["--source", "reply", "--marker", "approve", "--who", "member", "--state", "suspended"]
    _, out, _ = cli("policy", "explain", *case)
    assert "Decision:  refuse\n" in out
    assert "Row:       may_not_approve\n" in out
    assert (
        "Told:      Your decision was not taken: only the people whom the configuration names can decide this" in out
    )
    assert "Passed over, in order (4):" in out
    assert "may_not_stop        marker is approve" in out
    allowed = json_of(cli("policy", "explain", *case, "--rights", "approve", "--json"))
    assert (allowed["disposition"], allowed["effect"], allowed["told"]) == ("control", "decide", None)


def test_policy_explain_refuses_rights_that_do_not_exist_and_text_where_there_is_none(cli: Run) -> None:
    case = ["--who", "member", "--state", "idle"]
    said = sentence_of(cli("policy", "explain", "--source", "reply", *case, "--rights", "fly"))
    assert said == "fly is no right: give any of ask, steer, stop, approve, or nothing."
    said = sentence_of(cli("policy", "explain", "--source", "button", *case, "--text", "stop"))
    assert said == "A button carries no text: leave --text out, or give a source that people write."
