"""Stories 1 to 6 in a browser: people at the demo's page, and the real product behind it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from bot.demo import Town, town
from tests.support.browser import chromium, watched_page
from tests.support.room import EMIL, GATEWAY, GUS, OLIVE, SAM, Room

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PATIENCE_S = 45.0
FAST, SLOW = 12.0, 0.3
GO_ON = "Reply here to go on from there."
OVER = "The task is over; mention me here to start again."

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    async with town(tmp_path_factory.mktemp("demo"), speed=FAST) as made:
        task = asyncio.ensure_future(made.app.run())
        await made.slack.connected(1)
        yield made
        made.app.stop()
        await task


@pytest_asyncio.fixture(loop_scope="module")
async def room(browser: Browser, running: Town) -> AsyncIterator[Room]:
    """A page of its own in front of the one demo; nothing of a story before goes on in it."""
    async with watched_page(browser, running.slack.url, timeout_s=PATIENCE_S) as page:
        await page.goto(running.slack.url)
        room = Room(page, running)
        room.slow_logs(0.4)
        room.model.speed = FAST
        yield room


def turn(ledger: Locator, number: int) -> Locator:
    return ledger.get_by_role("region", name=f"Turn {number}")


# -- 1 --------------------------------------------------------------------------------------------------------


async def test_a_mention_brings_a_card_at_once_steps_and_an_answer_with_its_evidence(room: Room) -> None:
    room.slow_logs(4.0)
    await room.ask()
    for button in ("Stop this step", "Cancel task"):
        await expect(room.button(button)).to_be_visible()
    await expect(room.working_line).to_contain_text("Pilothouse is working")
    await room.looks_at_the_slow_logs()
    await expect(room.thread).to_contain_text("web-3 is much busier than the others.")
    await expect(room.thread).to_contain_text(re.compile(r"Step 2 of 8 · .* · asked by @emil"))
    await room.reads("Answered below.")
    answer = room.message("The cause is revision 42 of")
    for words in ("@emil", "PLAT-2291", "from 3s to 300ms", "upstream timed out (300ms)", "back to revision 41"):
        await expect(answer).to_contain_text(words)
    await expect(answer.get_by_role("button", name="This answer was helpful")).to_be_visible()
    await expect(room.button("Stop this step")).to_have_count(0)
    await expect(room.working_line).to_contain_text("You write as Emil Brandt")
    only = turn(await room.open_ledger(), 1)
    await expect(only).to_contain_text("The model answered; the answer is in the history and in the thread.")
    await expect(only).to_contain_text("Its card has its final form.")
    await expect(only).to_contain_text(re.compile(r"final event.*the entry of the answer"))
    await expect(only).to_contain_text(re.compile(r"steps, cost\s*\d, \$0\.\d*[1-9]"))
    await expect(only).to_contain_text("starts a turn by row asked")


async def test_a_mention_under_an_alert_knows_what_the_alert_said(room: Room, running: Town) -> None:
    root = await running.slack.post_alert("C0INCIDENT")
    await room.page.locator(f"#timeline article[data-ts='{root}']").hover()
    await (
        room.page.locator(f"#timeline article[data-ts='{root}']")
        .get_by_role("button", name="Reply in thread")
        .click()
    )
    await room.page.get_by_role("button", name="@Pilothouse what is this?").click()
    await room.reads("Answered below.")
    await expect(room.message("The cause is revision 42 of")).to_contain_text("CheckoutErrorRate")


# -- 2 --------------------------------------------------------------------------------------------------------


async def test_a_reply_redirects_what_runs_and_the_ledger_explains_how(room: Room) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.reply(GATEWAY)
    await room.has_sign(GATEWAY, "leftwards arrow with hook")
    await room.reads("Redirected by @olive at step 2, continued below.")
    redirected = room.message("Redirected by")
    await expect(redirected).to_contain_text("cancelled, nothing was read")
    await expect(redirected.locator(".block-button")).to_have_count(0)
    await room.reads("Answered below.")
    await expect(room.message("The cause is revision 42 of")).to_contain_text("@olive")
    ledger = await room.open_ledger()
    first, second = turn(ledger, 1), turn(ledger, 2)
    for words in ("steered", "cut because somebody redirected it", "only a completed turn has one"):
        await expect(first).to_contain_text(words)
    await expect(first).to_contain_text("Cut is not empty: no ladder, no diagnosis.")
    await expect(second).to_contain_text("redirects the running turn by row reply_of_participant")
    await expect(second).to_contain_text("completed")


async def test_three_replies_in_a_row_make_one_turn_and_work_is_no_stop_word(room: Room) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    for words in ("it's not that host", "it's the gateway", "stop the rollout there if you can"):
        await room.reply(words)
    await room.reads("Redirected by @olive at step 2, continued below.")
    await room.reads("Answered below.")
    ledger = await room.open_ledger()
    await expect(turn(ledger, 2).locator(".disposition[data-word='steer']")).to_have_count(3)
    await expect(turn(ledger, 3)).to_have_count(0)
    await expect(ledger.get_by_role("heading", name="Stops")).to_have_count(0)


# -- 3 --------------------------------------------------------------------------------------------------------


async def test_a_reply_while_the_model_writes_throws_the_half_answer_away(room: Room, running: Town) -> None:
    room.model.speed = SLOW
    asked = len(room.model.requests)
    await room.ask()
    await running.slack.until(lambda: len(room.model.requests) > asked, PATIENCE_S)
    await room.reply(GATEWAY)
    await room.reads("Redirected by @olive before the first step, continued below.")
    room.model.speed = FAST
    await room.reads("Answered below.")
    ledger = await room.open_ledger()
    await expect(turn(ledger, 1)).to_contain_text("steered")
    await expect(turn(ledger, 1)).to_contain_text(re.compile(r"steps, cost\s*0, "))


async def test_a_reply_to_an_answer_starts_the_next_turn(room: Room) -> None:
    await room.ask()
    await room.reads("Answered below.")
    await room.reply("thanks, and the database?")
    await room.has_sign("thanks, and the database?", "eyes")
    await room.reads("Answered below.", times=2)
    await expect(room.message("connections in use")).to_contain_text("@olive")


# -- 4 --------------------------------------------------------------------------------------------------------


async def _press_stop(room: Room) -> None:
    await room.press("Stop this step")


async def _press_cancel(room: Room) -> None:
    await room.press("Cancel task")


async def _press_the_native_stop(room: Room) -> None:
    await room.write_as(OLIVE)
    await room.working_line.get_by_role("button", name="Stop").click()


async def _write_a_first_move(room: Room) -> None:
    await room.write_as(OLIVE)
    await room.page.get_by_role("button", name="刹车").click()


async def _write_words(room: Room) -> None:
    await room.reply("stop, wrong cluster")


async def _write_cancel(room: Room) -> None:
    await room.reply("取消")


async def _react(room: Room) -> None:
    await room.act(room.message("Investigating"), "React with octagonal sign", OLIVE)


@pytest.mark.parametrize(
    ("stop", "then"),
    [
        (_press_stop, GO_ON),
        (_write_words, GO_ON),
        (_write_a_first_move, GO_ON),
        (_react, GO_ON),
        (_press_cancel, OVER),
        (_write_cancel, OVER),
        (_press_the_native_stop, OVER),
    ],
)
async def test_every_brake_says_who_stopped_it_at_which_step(
    room: Room, stop: Callable[[Room], Awaitable[None]], then: str
) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    seen = len(room.model.requests)
    await stop(room)
    await room.reads(f"Stopped by @olive at step 2. {then}")
    await expect(room.message("Stopped by @olive")).to_contain_text("loki query")
    await expect(room.button(re.compile("Stop|Cancel"))).to_have_count(0)
    assert len(room.model.requests) == seen
    ledger = await room.open_ledger()
    await expect(ledger).to_contain_text(
        f"Olive Tanaka {'stopped the step' if then is GO_ON else 'cancelled the task'}"
    )
    await expect(turn(ledger, 1)).to_contain_text("stop")


async def test_after_a_stop_of_the_step_the_next_reply_goes_on_and_fifty_clicks_are_one_stop(room: Room) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    stop = room.button("Stop this step")
    await stop.evaluate("node => { for (let i = 0; i < 50; i++) node.click(); }")
    await room.reads(f"Stopped by @emil at step 2. {GO_ON}")
    room.slow_logs(0.4)
    await room.reply("go on", EMIL)
    await room.reads("Answered below.")
    await expect(room.message("The cause is revision 42 of")).to_be_visible()
    ledger = await room.open_ledger()
    await expect(ledger.get_by_text("stopped the step")).to_have_count(1)


async def test_a_guest_is_refused_in_words_that_only_the_guest_sees(room: Room) -> None:
    room.slow_logs(5.0)
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.press("Stop this step", GUS)
    refusal = room.message("I did not stop: only")
    await expect(refusal).to_contain_text("Only visible to you")
    await expect(refusal).to_contain_text("nothing has changed")
    await room.write_as(EMIL)
    await expect(refusal).to_have_count(0)
    await expect(room.button("Stop this step")).to_be_visible()
    await room.reads("Answered below.")


# -- 5 --------------------------------------------------------------------------------------------------------


async def test_a_stop_on_an_old_card_changes_nothing_and_never_hits_the_next_question(room: Room) -> None:
    await room.ask()
    await room.reads("Answered below.")
    room.slow_logs()
    await room.reply("look at that host again, web-3", EMIL)
    await room.looks_at_the_slow_logs()
    await room.act(room.message("Answered below."), "React with octagonal sign", OLIVE)
    await expect(room.message("That turn has already ended, so nothing was changed.")).to_contain_text(
        "Only visible to you"
    )
    await room.press("Stop this step")
    await room.reads(re.compile(f"Stopped by @olive at step \\d\\. {GO_ON}"))
    room.slow_logs(0.4)
    await room.reply("and what does the gateway say?", EMIL)
    await room.reads("Answered below.", times=2)


# -- 6 --------------------------------------------------------------------------------------------------------


async def test_chatter_is_a_note_and_what_begins_with_a_plus_runs_after_the_turn(room: Room) -> None:
    room.slow_logs(5.0)
    await room.ask()
    await room.looks_at_the_slow_logs()
    chatter, later = "@emil did you see the deploy?", "+ also check the db"
    await room.reply(chatter, OLIVE)
    await room.has_sign("did you see the deploy?", "memo")
    await room.reply(later, EMIL)
    await room.has_sign(later, "hourglass flowing sand")
    await room.reads("Answered below.", times=2)
    await expect(room.message("connections in use")).to_be_visible()
    await expect(room.thread.get_by_text("Redirected by")).to_have_count(0)
    second = turn(await room.open_ledger(), 2)
    await expect(second).to_contain_text("kept, and read with the next turn")
    await expect(second).to_contain_text("runs after this turn")


async def test_a_newcomer_s_reply_is_kept_as_a_note_until_they_press_redirect_now(room: Room) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    await room.reply("it's the gateway", SAM)
    await room.has_sign("it's the gateway", "memo")
    note = room.message("Kept as a note")
    await expect(note).to_contain_text("Only visible to you")
    await room.press("Redirect now", SAM)
    await room.reads("Redirected by @sam at step 2, continued below.")
    await room.reads("Answered below.")
    await expect(room.message("The cause is revision 42 of")).to_contain_text("@sam")


# -- second thoughts ------------------------------------------------------------------------------------------


async def test_an_edited_question_redirects(room: Room) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    question = room.thread.locator("article").first
    await room.act(question, "Edit message", EMIL)
    pen = question.get_by_role("textbox", name="Edit message")
    await pen.fill("@Pilothouse is it the gateway?")
    await pen.press("Enter")
    await room.reads("Redirected by @emil at step 2, continued below.")
    await expect(question).to_contain_text("(edited)")
    await room.reads("Answered below.")


async def test_a_deleted_question_ends_its_task(room: Room) -> None:
    room.slow_logs()
    await room.ask()
    await room.looks_at_the_slow_logs()
    question = room.thread.locator("article").first
    await room.act(question, "Delete message", EMIL)
    await room.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await room.reads(f"Stopped by @emil at step 2. {OVER}")
    await expect(question).to_contain_text("This message was deleted.")
