"""The page of the local Slack in a real browser, in front of a small server with an incident of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.e2e.page_fixture import PageServer
from tests.e2e.page_scene import CHANNEL, ENGINEER, GUEST, ON_CALL, PILOT, running_card
from tests.support.browser import PHONE, chromium, watched_page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[PageServer]:
    server = PageServer()
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, server: PageServer, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    async with watched_page(browser, server.url, phone="on_a_phone" in request.node.name) as page:
        yield page


async def open_channel(page: Page, server: PageServer) -> Locator:
    await page.goto(server.url)
    timeline = page.locator("#timeline")
    await expect(timeline.get_by_text("what is going on?")).to_be_visible()
    return timeline


async def open_thread(page: Page, server: PageServer, view: str = "thread") -> Locator:
    await page.goto(f"{server.url}#/{CHANNEL}/{server.root}/{view}")
    thread = page.locator("#replies")
    await expect(thread.get_by_role("button", name="Stop step")).to_be_attached()
    return thread


async def heard(page: Page, server: PageServer, what: str) -> dict[str, Any]:
    """Wait until the page asked the server for something, and say what with."""
    for _ in range(200):
        if found := [body for name, body in server.heard if name == what]:
            return found[-1]
        await page.evaluate("() => new Promise((resolve) => requestAnimationFrame(resolve))")
    raise AssertionError(f"the page never asked for {what}; it asked for {server.heard}")


# -- drawing --------------------------------------------------------------------------------------------------


async def test_a_card_and_an_answer_look_like_slack_s(page: Page, server: PageServer) -> None:
    thread = await open_thread(page, server)
    card = thread.locator("article", has=page.get_by_role("button", name="Stop step"))
    await expect(card.locator("strong")).to_have_text("Investigating")
    await expect(card.locator(".mention")).to_have_text("@olive")
    await expect(card.locator(".context")).to_contain_text("step 2 of 8")
    await expect(card.get_by_role("button", name="Stop step")).to_have_class(re.compile(r"\bdanger\b"))
    answer = thread.locator("article", has=page.locator(".markdown"))
    await expect(answer.locator(".md-heading")).to_have_text("The gateway, not web-3")
    await expect(answer.locator("ol > li")).to_have_count(3)
    await expect(answer.locator("tbody tr")).to_have_count(3)
    await expect(answer.locator("pre")).to_contain_text('job="checkout"')
    await expect(answer.get_by_role("button", name="Helpful", exact=True)).to_be_visible()
    alert = page.locator("#timeline .attachment")
    await expect(alert.locator("dd").first).to_have_text("critical")
    assert await alert.evaluate("node => getComputedStyle(node, '::before').backgroundColor") == "rgb(224, 30, 90)"


MRKDWN = [
    ("*bold* _it_ ~s~ `co*de*`", "<strong>bold</strong> <em>it</em> <s>s</s> <code>co*de*</code>"),
    ("2*3*4 snake_case_name", "2*3*4 snake_case_name"),
    ("a &lt;b&gt; &amp;amp;", "a &lt;b&gt; &amp;amp;"),
    ("<@U0ENGINEER> in <#C0RANDOM>", '<span class="mention me">@emil</span> in <span class="mention">#random</span>'),
    ("<!here>", '<span class="mention me">@here</span>'),
    ("10:30:45 :nope:", "10:30:45 :nope:"),
    ("<javascript:alert(1)|click>", "<span>click</span>"),
]


MARKDOWN = [
    ("**b** *i* _i_ ~~s~~ `a*b*`", "<p><strong>b</strong> <em>i</em> <em>i</em> <s>s</s> <code>a*b*</code></p>"),
    ("- a\n  - b\n- c", "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>"),
    ("<b>x</b> <@U0ENGINEER>", "<p>&lt;b&gt;x&lt;/b&gt; &lt;@U0ENGINEER&gt;</p>"),
    ("[x](javascript:alert(1))", "<p><span>x</span></p>"),
    ("```py\n**a**\n", '<pre class="code" tabindex="0" data-language="py">**a**\n</pre>'),
    ("> q\n\nsnake_case_name", "<blockquote><p>q</p></blockquote><p>snake_case_name</p>"),
]


DRAW = """async ([module, name, texts]) => {
    const read = (await import(module))[name];
    return texts.map((text) => {
        const box = document.createElement("div");
        box.append(...read(text));
        return box.innerHTML;
    });
}"""


async def test_slack_s_markup_and_markdown_are_each_read_by_their_own_rules(page: Page, server: PageServer) -> None:
    await open_channel(page, server)
    mrkdwn = await page.evaluate(DRAW, ["/mrkdwn.js", "mrkdwn", [text for text, _ in MRKDWN]])
    assert mrkdwn == [f'<span class="para">{html}</span>' for _, html in MRKDWN]
    assert await page.evaluate(DRAW, ["/markdown.js", "markdown", [text for text, _ in MARKDOWN]]) == [
        html for _, html in MARKDOWN
    ]


async def test_nothing_in_a_message_becomes_markup(page: Page, server: PageServer) -> None:
    evil = "<img src=x onerror=document.title='hacked'>"
    text = {"type": "mrkdwn", "text": evil}
    server.say(user=GUEST, text=evil)
    server.say(user=PILOT, bot_id="B0PILOT", username=evil, text="", blocks=[{"type": "section", "text": text}])
    server.say(user=GUEST, text="", blocks=[{"type": "markdown", "text": evil}, {"type": evil}])
    server.say(user=GUEST, text="", attachments=[{"title": evil, "title_link": "javascript:alert(1)", "text": evil}])
    timeline = await open_channel(page, server)
    await expect(timeline.get_by_text("onerror").first).to_be_visible()
    assert await timeline.locator("img, script, [onerror], a[href^=javascript]").count() == 0
    assert await page.title() == "Pilothouse: a local Slack"


async def test_a_block_that_the_page_does_not_know_is_drawn_as_its_type(page: Page, server: PageServer) -> None:
    server.say(user=PILOT, bot_id="B0PILOT", text="", blocks=[{"type": "hologram"}])
    timeline = await open_channel(page, server)
    await expect(timeline.get_by_text("Block of type hologram")).to_be_visible()


async def test_a_card_that_is_updated_stays_where_it_is_and_keeps_the_focus(page: Page, server: PageServer) -> None:
    thread = await open_thread(page, server)
    card = next(m for m in server.messages[CHANNEL] if m.get("text") == "Investigating")
    stop = thread.get_by_role("button", name="Stop step")
    await stop.focus()
    node, before = await stop.element_handle(), await stop.bounding_box()
    for step in (3, 4, 5):
        server.change(card["ts"], blocks=running_card(step, f"Reading log {step} of `gateway`"))
        await expect(thread.get_by_text(f"step {step} of 8")).to_be_attached()
    assert await stop.bounding_box() == before
    assert node is not None and await node.evaluate("node => node === document.activeElement")


async def test_an_ephemeral_is_shown_only_to_the_one_it_is_for(page: Page, server: PageServer) -> None:
    thread = await open_thread(page, server)
    await expect(thread.get_by_text("Only visible to you")).to_have_count(0)
    await page.locator("#people").get_by_role("radio", name=re.compile("Gus")).click()
    await expect(thread.get_by_text("Only visible to you")).to_be_visible()
    await thread.get_by_role("button", name="Dismiss").click()
    await expect(thread.get_by_text("Only visible to you")).to_have_count(0)


# -- writing --------------------------------------------------------------------------------------------------


async def test_a_name_after_at_is_offered_and_a_mention_opens_its_thread(page: Page, server: PageServer) -> None:
    await open_channel(page, server)
    box = page.locator("#channel-composer textarea")
    await box.press_sequentially("@pi")
    await expect(page.locator("#channel-composer [role=option]")).to_have_text(["PilothouseApp"])
    await box.press("Enter")
    await expect(box).to_have_value("@Pilothouse ")
    await box.press_sequentially("is `@olive` there, @emil & <b>?")
    await box.press("Enter")
    sent = await heard(page, server, "message")
    assert sent == {
        "channel": CHANNEL,
        "user": ENGINEER,
        "text": f"<@{PILOT}> is `@olive` there, <@{ENGINEER}> & <b>?",
    }
    await expect(page.locator("#replies article")).to_have_count(1)
    await expect(page.locator("#thread-composer textarea")).to_be_focused()
    await expect(box).to_have_value("")


async def test_shift_enter_breaks_the_line_and_a_composing_enter_sends_nothing(
    page: Page, server: PageServer
) -> None:
    await open_thread(page, server)
    box = page.locator("#thread-composer textarea")
    await box.press_sequentially("one")
    await box.press("Shift+Enter")
    await box.press_sequentially("two")
    await box.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "keyCode": 229})
    assert server.heard == []
    await box.press("Enter")
    sent = await heard(page, server, "message")
    assert (sent["text"], sent["thread_ts"]) == ("one\ntwo", server.root)


async def test_a_first_move_is_sent_with_one_click_as_the_chosen_person(page: Page, server: PageServer) -> None:
    await open_thread(page, server)
    await page.locator("#thread-composer").get_by_role("radio", name=re.compile("Olive")).click()
    await page.get_by_role("button", name="刹车").click()
    sent = await heard(page, server, "message")
    assert (sent["text"], sent["user"]) == ("刹车", ON_CALL)


async def test_a_refusal_is_said_and_the_words_stay_in_the_box(page: Page, server: PageServer) -> None:
    await open_channel(page, server)
    server.refusal = "#incident-checkout is archived: nobody can write there."
    box = page.locator("#channel-composer textarea")
    await box.fill("hello?")
    await box.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text(server.refusal)
    await expect(box).to_have_value("hello?")


async def test_a_message_can_be_edited_while_the_thread_moves(page: Page, server: PageServer) -> None:
    timeline = await open_channel(page, server)
    mine = timeline.locator(f"article[data-ts='{server.root}']")
    await mine.hover()
    await mine.get_by_role("button", name="Edit message").click()
    pen = mine.get_by_role("textbox", name="Edit message")
    await expect(pen).to_have_value("@Pilothouse checkout answers 5xx since 14:05, what is going on?")
    await pen.fill("@Pilothouse is it the gateway?")
    server.say(user=ON_CALL, text="one more thing")
    await expect(timeline.get_by_text("one more thing")).to_be_visible()
    await expect(pen).to_have_value("@Pilothouse is it the gateway?")
    await pen.press("Enter")
    assert (await heard(page, server, "edit"))["text"] == f"<@{PILOT}> is it the gateway?"
    await expect(timeline.get_by_text("(edited)")).to_have_count(2)


async def test_anyone_may_delete_the_bot_s_card_after_a_question(page: Page, server: PageServer) -> None:
    thread = await open_thread(page, server)
    card = thread.locator("article", has=page.get_by_role("button", name="Stop step"))
    await card.hover()
    await card.get_by_role("button", name="Delete message").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    assert (await heard(page, server, "delete"))["user"] == ENGINEER
    await expect(card).to_have_count(0)


async def test_a_reaction_is_given_and_taken_back(page: Page, server: PageServer) -> None:
    thread = await open_thread(page, server)
    root = thread.locator("article").first
    await root.hover()
    await root.get_by_role("button", name="React with octagonal sign").click()
    assert (await heard(page, server, "react"))["name"] == "octagonal_sign"
    await root.get_by_role("button", name="octagonal sign, 1", exact=True).click()
    assert (await heard(page, server, "unreact"))["name"] == "octagonal_sign"


# -- the brakes -----------------------------------------------------------------------------------------------


async def test_a_click_goes_out_once_and_its_button_waits(page: Page, server: PageServer) -> None:
    thread = await open_thread(page, server)
    server.hold.clear()
    stop = thread.get_by_role("button", name="Stop step")
    await stop.evaluate("node => { for (let i = 0; i < 50; i++) node.click(); }")
    await expect(stop).to_be_disabled()
    server.hold.set()
    await expect(stop).to_be_enabled()
    card = next(m for m in server.messages[CHANNEL] if m.get("text") == "Investigating")
    click = {
        "channel": CHANNEL,
        "message_ts": card["ts"],
        "action_id": "stop_step",
        "user": ENGINEER,
        "value": "turn-2",
    }
    assert server.heard == [("action", click)]


async def test_the_native_stop_is_there_while_the_bot_works(page: Page, server: PageServer) -> None:
    await open_thread(page, server)
    strip = page.locator("#status")
    await expect(strip).to_contain_text("Pilothouse is working")
    before = await strip.bounding_box()
    await strip.get_by_role("button", name="Stop").click()
    assert await heard(page, server, "native_stop") == {
        "channel": CHANNEL,
        "thread_ts": server.root,
        "user": ENGINEER,
    }
    await expect(strip).to_contain_text("You write as Emil Brandt")
    assert await strip.bounding_box() == before


# -- the ledger -----------------------------------------------------------------------------------------------


async def test_the_ledger_explains_each_turn_and_follows_it(page: Page, server: PageServer) -> None:
    await open_thread(page, server)
    await page.get_by_role("button", name="Ledger", exact=True).click()
    ledger = page.get_by_role("complementary", name="What the ledger says")
    first = ledger.get_by_role("region", name="Turn 1")
    await expect(first).to_contain_text("Cut is not empty")
    await expect(first).to_contain_text("cut because somebody redirected it")
    await first.get_by_text("Calls").click()
    await expect(first.locator(".call").last).to_contain_text("cancelled")
    second = ledger.get_by_role("region", name="Turn 2")
    await expect(second).to_contain_text("participant_steers")
    server.ledger["turns"][1] |= {
        "state": "settled",
        "reason": "stopped_step",
        "stamp": "stop",
        "card_state": "released",
    }
    server.ledger["stops"] = [{"author": ON_CALL, "level": "step", "at": server.canvas.base, "ts": server.root}]
    server.ring()
    await expect(second).to_contain_text("Nothing more starts until somebody writes")
    await expect(ledger).to_contain_text("Olive Tanaka stopped the step")
    await expect(first.locator("details[open]")).to_have_count(1)


# -- around it ------------------------------------------------------------------------------------------------


async def test_a_lost_feed_is_said_and_found_again(page: Page, server: PageServer) -> None:
    timeline = await open_channel(page, server)
    await expect(page.locator("#model")).to_contain_text("Scripted model · live")
    server.drop_feeds()
    await expect(page.locator("#reconnecting")).to_be_visible()
    server.say(user=ON_CALL, text="said in the meantime")
    await expect(page.locator("#model")).to_contain_text("live")
    await expect(timeline.get_by_text("said in the meantime")).to_be_visible()


async def test_messages_and_what_can_be_done_with_them_are_reached_by_keyboard(
    page: Page, server: PageServer
) -> None:
    thread = await open_thread(page, server)
    await thread.locator("article").last.focus()
    await page.keyboard.press("ArrowUp")
    focused = page.locator("article:focus")
    await expect(focused.get_by_role("button", name="Stop step")).to_be_visible()
    await expect(focused.get_by_role("toolbar")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(thread.get_by_role("button", name="Stop step")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("section.thread")).to_be_hidden()


async def test_a_permalink_leads_to_the_thread(page: Page, server: PageServer) -> None:
    await page.goto(f"{server.url}?channel={CHANNEL}&thread_ts={server.root}")
    await expect(page.locator("#replies").get_by_role("button", name="Stop step")).to_be_visible()


async def test_on_a_phone_there_is_one_column_and_a_way_between_the_places(page: Page, server: PageServer) -> None:
    timeline = await open_channel(page, server)
    await timeline.get_by_role("button", name=re.compile("4 replies")).tap()
    await expect(page.locator("main")).to_be_hidden()
    await expect(page.locator("#replies").get_by_role("button", name="Stop step")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    await page.get_by_role("button", name="Ledger").tap()
    await expect(page.get_by_role("region", name="Turn 1")).to_be_visible()
    await page.go_back()
    await expect(page.locator("#replies")).to_be_visible()
    await page.get_by_role("button", name="Channels and people").tap()
    await expect(page.get_by_role("radio", name=re.compile("Olive Tanaka"))).to_be_visible()
    await page.get_by_role("button", name="random").tap()
    await expect(page.get_by_role("heading", name="This is the very beginning of #random")).to_be_visible()


async def test_on_a_phone_a_long_press_opens_the_actions(page: Page, server: PageServer) -> None:
    timeline = await open_channel(page, server)
    mine = timeline.get_by_text("what is going on?")
    await mine.dispatch_event("pointerdown", {"pointerType": "touch", "bubbles": True})
    sheet = page.get_by_role("dialog", name="Message actions")
    await sheet.get_by_role("button", name="React with octagonal sign").tap()
    assert (await heard(page, server, "react"))["ts"] == server.root
    await expect(sheet).to_be_hidden()
