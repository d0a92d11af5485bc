"""Cards and small messages as Slack gets them: within its limits, drawn by every client, unable to call anybody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.slack.blocks import (
    GLYPHS,
    TONES,
    RunningTurn,
    app_home,
    card_message,
    diagnosis,
    ephemeral,
    expired,
    running_list,
)
from bot.slack.message import BUTTONS, SlackMessage
from core.card import Button, CallLine, CallState, CardFacts, Glyph, StepLine, view
from core.messages import ChannelId, TurnId, UserId
from tests.contracts.sendable import assert_sendable, strings

TURN, ANN, OLA = TurnId("turn-1"), UserId("U0ENGINEER"), UserId("U0ONCALL")
CLASSIC = {"section", "context", "actions", "divider"}
HOSTILE = (
    "<!channel> <!here|x> <!subteam^S0SRE0001> <@U0CEO0001> @here ＠channel @\u200beveryone ＜!here＞ &lt;!here&gt;"
)


def facts(**more: Any) -> CardFacts:
    return CardFacts(TURN, ANN, more.pop("asked_text", "why 5xx?"), more.pop("state", "running"), **more)


def shown(message: SlackMessage) -> str:
    return "\n".join(strings(message.blocks))


def test_a_stopped_card_names_the_person_the_step_and_the_way_on() -> None:
    steps = (StepLine(3, (CallLine("loki", "gateway", CallState.STOPPED),)),)
    message = card_message(
        view(facts(state="settled", reason="stopped_step", ended_by=OLA, ended_step=3, steps=steps))
    )
    assert (
        message.blocks[0]["text"]["text"] == "■ *Stopped by <@U0ONCALL> at step 3.* Reply here to go on from there."
    )
    assert message.text.startswith("Stopped by <@U0ONCALL> at step 3. Reply here to go on from there.")
    assert "actions" not in [block["type"] for block in message.blocks]
    assert_sendable(message, {ANN, OLA})


def test_a_running_card_has_classic_blocks_and_buttons_that_carry_only_the_turn() -> None:
    message = card_message(view(facts(steps=(StepLine(1, (CallLine("loki", "q", CallState.RUNNING),)),))))
    assert {block["type"] for block in message.blocks} <= CLASSIC
    buttons = message.blocks[-1]["elements"]
    assert [button["action_id"] for button in buttons] == ["stop_step", "cancel_task"]
    assert {button["value"] for button in buttons} == {"turn-1"}
    assert all(button["accessibility_label"] for button in buttons)


def test_what_tools_and_people_said_is_plain_text_without_emoji() -> None:
    steps = (StepLine(1, (CallLine("loki", "12:34:56:warning:disk", CallState.OK),), said="*not bold*"),)
    message = card_message(view(facts(steps=steps, asked_text=HOSTILE)))
    quoting = [block["text"] for block in message.blocks if ":warning:" in json.dumps(block)]
    assert [(text["type"], text["emoji"]) for text in quoting] == [("plain_text", False)]
    assert_sendable(message, {ANN})


def test_block_ids_change_with_the_content_and_only_with_it() -> None:
    one, same, other = (card_message(view(facts(doing=doing))) for doing in ("thinking", "thinking", "writing"))
    ids = [[block["block_id"] for block in message.blocks] for message in (one, same, other)]
    assert ids[0] == ids[1]
    assert not set(ids[0]) & set(ids[2])
    assert len(set(ids[0])) == len(ids[0])


def test_an_answer_that_slack_refused_stands_on_the_card() -> None:
    answer = "**Root cause**: the gateway. " + "word " * 5_000
    message = card_message(view(facts(state="settled", reason="completed", answer_fallback=answer)))
    assert "*Root cause*: the gateway." in shown(message)
    assert shown(message).count("…") == 1
    assert_sendable(message, {ANN})


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=3_000), st.text(max_size=300), st.sampled_from(CallState))
def test_whatever_is_quoted_a_card_can_be_sent(text: str, summary: str, state: CallState) -> None:
    calls = tuple(CallLine(summary, text, state) for _ in range(9))
    steps = tuple(StepLine(number, calls, said=text) for number in (1, 2, 3))
    running = facts(steps=steps, asked_text=text, doing=summary)
    ended = facts(state="settled", reason="failed", steps=steps, known=text, answer_fallback=text)
    for one in (running, ended):
        assert_sendable(card_message(view(one)), {ANN})


@pytest.mark.parametrize("cell", ["@here " * 600, "&" * 3_000, "＜!here＞ " * 400, "😀" * 3_000, "\u0301" * 4_000])
def test_a_card_stays_within_the_limits_when_the_text_grows_on_the_way(cell: str) -> None:
    for one in (facts(asked_text=cell, doing=cell), facts(state="settled", reason="failed", known=cell)):
        assert_sendable(card_message(view(one)), {ANN})
    assert_sendable(ephemeral(cell))


def test_a_kept_note_offers_to_redirect() -> None:
    message = ephemeral("Kept as a note.", [(Button.REDIRECT_NOW, "m-7")])
    button = message.blocks[-1]["elements"][0]
    assert (button["action_id"], button["text"]["text"], button["value"]) == ("redirect_now", "Redirect now", "m-7")


def test_an_old_button_says_expired_and_what_to_do() -> None:
    assert expired().text == (
        "This button has expired and nothing was changed. Mention me in the thread to go on from here."
    )


def test_an_ephemeral_mentions_people_and_nobody_else() -> None:
    message = ephemeral(f"Only @{{{OLA}}} may stop this. {HOSTILE}", [(Button.CANCEL_TASK, "turn-1")])
    assert message.text.startswith("Only <@U0ONCALL> may stop this.")
    assert_sendable(message, {OLA})


def test_the_list_of_running_turns_has_stop_buttons_for_each() -> None:
    turns = [RunningTurn(TurnId(f"t{n}"), ANN, HOSTILE, ChannelId("C0INCIDENT"), 61.0) for n in range(12)]
    message = running_list(turns)
    actions = [block for block in message.blocks if block["type"] == "actions"]
    assert [[button["value"] for button in block["elements"]] for block in actions[:2]] == [["t0"] * 2, ["t1"] * 2]
    assert "and 2 more" in shown(message)
    assert_sendable(message, {ANN})
    assert running_list([]).text == "Nothing is running here."


def test_the_home_tab_explains_and_lists() -> None:
    home = app_home(
        [RunningTurn(TURN, ANN, "why?", ChannelId("C0INCIDENT"), 3.0, "https://x/p1")], bot=UserId("U0PILOT")
    )
    assert home["type"] == "home" and len(home["blocks"]) <= 100
    said = "\n".join(strings(home["blocks"]))
    assert "<@U0PILOT>" in said and "<https://x/p1|Open>" in said
    assert "Nothing that you asked for is running." in "\n".join(
        strings(app_home([], bot=UserId("U0PILOT"))["blocks"])
    )


def test_a_diagnosis_says_what_happened_what_is_known_and_what_to_do() -> None:
    message = diagnosis(TURN, "No answer. The ladder is exhausted.", HOSTILE, "Look at the model's status page.")
    assert "pilothouse turns show turn-1" in shown(message)
    assert "→ Look at the model's status page." in shown(message)
    assert_sendable(message)


def test_every_glyph_tone_and_button_is_drawn() -> None:
    assert set(GLYPHS) == set(Glyph)
    assert set(BUTTONS) == set(Button)
    assert set(TONES) == {"working", "stopping", "done", "neutral", "problem"}
