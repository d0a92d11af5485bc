"""Cards and answers as Slack messages.

A card uses the classic blocks only (section, context, actions), because every client draws them, also on a phone in a
thread. What we say ourselves is mrkdwn with mentions; what a tool, a model or a person said is `plain_text` without
emoji, so that nothing in it can act. Each version of a card has block ids of its own, made from its content.

An answer is one or more messages of `markdown` blocks. When Slack refuses them, `plain_messages` says the same in
texts without blocks, and nothing is lost. Every message that leaves this module has passed `sealed`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from bot.slack.escape import escape
from bot.slack.markdown import read
from bot.slack.message import (
    SlackMessage,
    actions,
    bold_first,
    context,
    few,
    mrkdwn,
    own,
    plain,
    quoted,
    sealed,
)
from bot.slack.split import MARKDOWN_LIMIT, SECTION_LIMIT, TEXT_LIMIT, Part, cut, parts, shortened
from core.card import Button, CardView, Glyph
from core.card_words import person, span
from core.messages import ChannelId, TurnId, UserId

GLYPHS: dict[Glyph, str] = {
    Glyph.ASKED: "❝",
    Glyph.FOLDED: "⋯",
    Glyph.SAID: "›",
    Glyph.NOTE: "•",
    Glyph.NEXT: "→",
    Glyph.RUNNING: "○",
    Glyph.OK: "✓",
    Glyph.FAILED: "✕",
    Glyph.ENDED: "–",
    Glyph.UNKNOWN: "?",
    Glyph.ASKING: "…",
}

TONES = {"working": "◐", "stopping": "◑", "done": "✓", "neutral": "■", "problem": "▲"}

FEEDBACK = "feedback"
NO_TEXT = "The answer has no text."
MAX_ANSWER_SECTIONS = 3
MAX_LISTED = 10


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """One line of a list of running turns."""

    turn_id: TurnId
    asked_by: UserId
    asked_text: str
    channel: ChannelId
    elapsed_s: float
    link: str | None = None


def card_message(view: CardView) -> SlackMessage:
    """A card. Posting and editing take the same message: it stays within the limits of an edit."""
    headline = f"{TONES[view.tone]} {bold_first(own(view.headline))}"
    if view.link:
        headline += f" <{escape(view.link[1])}|{escape(view.link[0])}>"
    lines = [f"{GLYPHS[glyph]} {quoted(text)}" for glyph, text in view.lines]
    answer = _cut_answer(view.answer)
    blocks = [mrkdwn(headline)]
    blocks += [plain(text) for text in few(cut("\n".join(lines), SECTION_LIMIT))] if lines else []
    blocks += [mrkdwn(text) for text in answer]
    blocks += [context(own(view.footer))] if view.footer else []
    blocks += [actions([(button, view.turn_id) for button in view.buttons])] if view.buttons else []
    text = "\n".join([own(view.headline), *lines, *answer, own(view.footer)])
    return sealed(text, blocks)


def answer_messages(
    markdown: str,
    *,
    asked_by: UserId,
    footer: str,
    allowed_mentions: Collection[str],
    known_hosts: Collection[str] = (),
    feedback_turn: str | None = None,
) -> list[SlackMessage]:
    """An answer in as few messages as Slack's limits allow: who asked is mentioned first, footer and feedback last.

    The values of the feedback buttons are `<turn id>:up` and `<turn id>:down`.
    """
    pieces = read(markdown, mentions=allowed_mentions, hosts=known_hosts, limit=MARKDOWN_LIMIT)
    asker = _asker(asked_by)
    answer = parts(pieces) or [Part(NO_TEXT, NO_TEXT)]
    messages: list[SlackMessage] = []
    for index, part in enumerate(answer):
        first, last = index == 0, index == len(answer) - 1
        blocks = [mrkdwn(asker)] if first and asker else []
        blocks.append({"type": "markdown", "text": part.text})
        if last:
            blocks += [context(own(footer))] if footer else []
            blocks += [_feedback(feedback_turn)] if feedback_turn else []
        messages.append(sealed(f"{asker} {part.plain}" if first and asker else part.plain, blocks))
    return messages


def plain_messages(
    markdown: str,
    *,
    asked_by: UserId,
    footer: str,
    allowed_mentions: Collection[str],
    known_hosts: Collection[str] = (),
) -> list[SlackMessage]:
    """The same answer without blocks, for when Slack refuses them: all of its words, in texts of at most 4,000."""
    pieces = read(markdown, mentions=allowed_mentions, hosts=known_hosts, limit=MARKDOWN_LIMIT)
    said = [piece.plain for piece in pieces] or [NO_TEXT]
    whole = "\n\n".join([*filter(None, [_asker(asked_by)]), *said, *([own(footer)] if footer else [])])
    return [sealed(text, []) for text in cut(whole, TEXT_LIMIT)]


def summary_messages(
    findings: str, *, asked_by: UserId, turn_id: TurnId, footer: str, known_hosts: Collection[str] = ()
) -> list[SlackMessage]:
    """What was looked at when the model gave no answer: written by us, said to be so, with Retry on the last part."""
    opening = "**There is no answer.** The model gave none; what follows was put together from the tool results.\n\n"
    messages = answer_messages(
        opening + findings, asked_by=asked_by, footer=footer, allowed_mentions=(), known_hosts=known_hosts
    )
    last = messages[-1]
    return [*messages[:-1], sealed(last.text, [*last.blocks, actions([(Button.RETRY, turn_id)])])]


def diagnosis(turn_id: TurnId, happened: str, known: str, next_step: str) -> SlackMessage:
    """For the operators: what happened, what is known, what to do next."""
    lines = [f"{sign} {quoted(text)}" for sign, text in (("•", known), ("→", next_step)) if text]
    blocks = [mrkdwn(f"{TONES['problem']} {bold_first(own(happened))}")]
    blocks += [plain(text) for text in few(cut("\n".join(lines), SECTION_LIMIT))] if lines else []
    blocks.append(context(f"`pilothouse turns show {escape(turn_id)}`"))
    return sealed("\n".join([own(happened), *lines, turn_id]), blocks)


def ephemeral(text: str, buttons: Sequence[tuple[Button, str]] = ()) -> SlackMessage:
    """A sentence of ours that only one person sees; people in it as `@{U123}`, buttons with their value."""
    said = own(text)
    return sealed(said, [mrkdwn(shortened(said, SECTION_LIMIT)), *([actions(buttons)] if buttons else [])])


def expired() -> SlackMessage:
    """For a button that means nothing any more."""
    return ephemeral("This button has expired and nothing was changed. Mention me in the thread to go on from here.")


def running_list(turns: Sequence[RunningTurn]) -> SlackMessage:
    """The turns that run, each with its own stop buttons."""
    if not turns:
        return ephemeral("Nothing is running here.")
    blocks = [mrkdwn("*Running now.* Which one do you mean?"), *_running_blocks(turns)]
    told = [f"{_running_line(turn)}" for turn in turns[:MAX_LISTED]]
    return sealed("\n".join(["Running now:", *told]), blocks)


def app_home(turns: Sequence[RunningTurn], *, bot: UserId) -> dict[str, Any]:
    """The Home tab: how to ask, redirect and stop, and what runs for whoever looks."""
    how = (
        f"*Ask:* mention <@{bot}> in a channel, also under an alert.\n"
        "*Redirect:* reply in the thread while it works.\n"
        "*Stop:* press the button on the card, or write `stop` in the thread. `cancel` ends the whole task.\n"
        "*After this:* begin a reply with `+` to queue it, with `;` to keep it from the bot."
    )
    running = _running_blocks(turns) if turns else [mrkdwn("Nothing that you asked for is running.")]
    blocks = [mrkdwn(how), {"type": "divider"}, mrkdwn("*Running for you*"), *running]
    return {"type": "home", "blocks": sealed("", blocks).blocks}


def _running_blocks(turns: Sequence[RunningTurn]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for turn in turns[:MAX_LISTED]:
        blocks.append(mrkdwn(_running_line(turn)))
        blocks.append(actions([(Button.STOP_STEP, turn.turn_id), (Button.CANCEL_TASK, turn.turn_id)]))
    if more := len(turns) - MAX_LISTED:
        blocks += [context(f"and {more} more")] if more > 0 else []
    return blocks


def _running_line(turn: RunningTurn) -> str:
    asked = own(" ".join(turn.asked_text.split())[:120])
    link = f" <{escape(turn.link)}|Open>" if turn.link else ""
    known = [own(person(turn.asked_by)), *([span(turn.elapsed_s)] if turn.elapsed_s > 0 else [])]
    return f"<#{turn.channel}> {asked} ({', '.join(known)}){link}"


# ---------------------------------------------------------------------------------------------- parts of a message


def _asker(user: UserId) -> str:
    """A mention of who asked; nothing for an alert or a schedule."""
    return f"<@{user}>" if regex.fullmatch(r"[UW][A-Z0-9]+", user) else ""


def _cut_answer(answer: str) -> list[str]:
    if not answer:
        return []
    pieces = read(answer, mentions=(), hosts=(), limit=MARKDOWN_LIMIT)
    return few(cut("\n\n".join(piece.plain for piece in pieces), SECTION_LIMIT), MAX_ANSWER_SECTIONS)


def _feedback(turn: str) -> dict[str, Any]:
    def choice(text: str, label: str, value: str) -> dict[str, Any]:
        said = {"type": "plain_text", "text": text, "emoji": False}
        return {"text": said, "accessibility_label": label, "value": f"{turn}:{value}"}

    buttons = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": choice("Helpful", "This answer was helpful", "up"),
        "negative_button": choice("Not helpful", "This answer was not helpful", "down"),
    }
    return {"type": "context_actions", "elements": [buttons]}
