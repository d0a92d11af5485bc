"""Cards and answers as Slack messages.

A card uses the classic blocks only (section, context, actions), because every client draws them, also on a phone in a
thread. What we say ourselves is mrkdwn with mentions; what a tool, a model or a person said is `plain_text` without
emoji, so that nothing in it can act. Each version of a card has block ids of its own, made from its content.

An answer is one or more messages of `markdown` blocks. When Slack refuses them, `plain_messages` says the same in
texts without blocks, and nothing is lost. Every message that leaves this module has passed `_sealed`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from bot.slack.escape import Prose, clean, escape, quiet, quiet_everywhere
from bot.slack.markdown import read
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

BUTTONS: dict[Button, tuple[str, str, str | None]] = {
    Button.STOP_STEP: ("Stop this step", "Stop the running step and wait for instructions", None),
    Button.CANCEL_TASK: ("Cancel task", "End the whole task, its helpers and what is queued", "danger"),
    Button.RETRY: ("Retry", "Ask the same again", None),
    Button.REDIRECT_NOW: ("Redirect now", "Let this reply redirect the running investigation", "primary"),
    Button.APPROVE: ("Approve", "Approve exactly this request", "primary"),
    Button.DENY: ("Deny", "Deny this request, nothing will run", "danger"),
    Button.STOP_HELPER: ("Stop helper", "Stop this helper", None),
}
"""Text, accessible label, style. No confirmation on any of them: a brake is one press."""

FEEDBACK = "feedback"
NO_TEXT = "The answer has no text."
MAX_ANSWER_SECTIONS = 3
MAX_LISTED = 10

_NAMED = regex.compile(r"(@)\{([UW][A-Z0-9]+)\}|(#)\{([CG][A-Z0-9]+)\}")


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """One message: `text` (at most 4,000 escaped characters) for notifications, readers and refusals; and `blocks`.

    Only the parts of `plain_messages` have no blocks: there the text is everything.
    """

    text: str
    blocks: list[dict[str, Any]]


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
    headline = f"{TONES[view.tone]} {_bold_first(_own(view.headline))}"
    if view.link:
        headline += f" <{escape(view.link[1])}|{escape(view.link[0])}>"
    lines = [f"{GLYPHS[glyph]} {_quoted(text)}" for glyph, text in view.lines]
    answer = _cut_answer(view.answer)
    blocks = [_mrkdwn(headline)]
    blocks += [_plain(text) for text in _few(cut("\n".join(lines), SECTION_LIMIT))] if lines else []
    blocks += [_mrkdwn(text) for text in answer]
    blocks += [_context(_own(view.footer))] if view.footer else []
    blocks += [_actions([(button, view.turn_id) for button in view.buttons])] if view.buttons else []
    text = "\n".join([_own(view.headline), *lines, *answer, _own(view.footer)])
    return _sealed(text, blocks)


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
        blocks = [_mrkdwn(asker)] if first and asker else []
        blocks.append({"type": "markdown", "text": part.text})
        if last:
            blocks += [_context(_own(footer))] if footer else []
            blocks += [_feedback(feedback_turn)] if feedback_turn else []
        messages.append(_sealed(f"{asker} {part.plain}" if first and asker else part.plain, blocks))
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
    whole = "\n\n".join([*filter(None, [_asker(asked_by)]), *said, *([_own(footer)] if footer else [])])
    return [_sealed(text, []) for text in cut(whole, TEXT_LIMIT)]


def summary_messages(
    findings: str, *, asked_by: UserId, turn_id: TurnId, footer: str, known_hosts: Collection[str] = ()
) -> list[SlackMessage]:
    """What was looked at when the model gave no answer: written by us, said to be so, with Retry on the last part."""
    opening = "**There is no answer.** The model gave none; what follows was put together from the tool results.\n\n"
    messages = answer_messages(
        opening + findings, asked_by=asked_by, footer=footer, allowed_mentions=(), known_hosts=known_hosts
    )
    last = messages[-1]
    return [*messages[:-1], _sealed(last.text, [*last.blocks, _actions([(Button.RETRY, turn_id)])])]


def diagnosis(turn_id: TurnId, happened: str, known: str, next_step: str) -> SlackMessage:
    """For the operators: what happened, what is known, what to do next."""
    lines = [f"{sign} {_quoted(text)}" for sign, text in (("•", known), ("→", next_step)) if text]
    blocks = [_mrkdwn(f"{TONES['problem']} {_bold_first(_own(happened))}")]
    blocks += [_plain(text) for text in _few(cut("\n".join(lines), SECTION_LIMIT))] if lines else []
    blocks.append(_context(f"`pilothouse turns show {escape(turn_id)}`"))
    return _sealed("\n".join([_own(happened), *lines, turn_id]), blocks)


def ephemeral(text: str, buttons: Sequence[tuple[Button, str]] = ()) -> SlackMessage:
    """A sentence of ours that only one person sees; people in it as `@{U123}`, buttons with their value."""
    said = _own(text)
    return _sealed(said, [_mrkdwn(shortened(said, SECTION_LIMIT)), *([_actions(buttons)] if buttons else [])])


def expired() -> SlackMessage:
    """For a button that means nothing any more."""
    return ephemeral("This button has expired and nothing was changed. Mention me in the thread to go on from here.")


def running_list(turns: Sequence[RunningTurn]) -> SlackMessage:
    """The turns that run, each with its own stop buttons."""
    if not turns:
        return ephemeral("Nothing is running here.")
    blocks = [_mrkdwn("*Running now.* Which one do you mean?"), *_running_blocks(turns)]
    told = [f"{_running_line(turn)}" for turn in turns[:MAX_LISTED]]
    return _sealed("\n".join(["Running now:", *told]), blocks)


def app_home(turns: Sequence[RunningTurn], *, bot: UserId) -> dict[str, Any]:
    """The Home tab: how to ask, redirect and stop, and what runs for whoever looks."""
    how = (
        f"*Ask:* mention <@{bot}> in a channel, also under an alert.\n"
        "*Redirect:* reply in the thread while it works.\n"
        "*Stop:* press the button on the card, or write `stop` in the thread. `cancel` ends the whole task.\n"
        "*After this:* begin a reply with `+` to queue it, with `;` to keep it from the bot."
    )
    running = _running_blocks(turns) if turns else [_mrkdwn("Nothing that you asked for is running.")]
    blocks = [_mrkdwn(how), {"type": "divider"}, _mrkdwn("*Running for you*"), *running]
    return {"type": "home", "blocks": _sealed("", blocks).blocks}


def _running_blocks(turns: Sequence[RunningTurn]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for turn in turns[:MAX_LISTED]:
        blocks.append(_mrkdwn(_running_line(turn)))
        blocks.append(_actions([(Button.STOP_STEP, turn.turn_id), (Button.CANCEL_TASK, turn.turn_id)]))
    if more := len(turns) - MAX_LISTED:
        blocks += [_context(f"and {more} more")] if more > 0 else []
    return blocks


def _running_line(turn: RunningTurn) -> str:
    asked = _own(" ".join(turn.asked_text.split())[:120])
    link = f" <{escape(turn.link)}|Open>" if turn.link else ""
    known = [_own(person(turn.asked_by)), *([span(turn.elapsed_s)] if turn.elapsed_s > 0 else [])]
    return f"<#{turn.channel}> {asked} ({', '.join(known)}){link}"


# ---------------------------------------------------------------------------------------------- parts of a message


def _own(text: str) -> str:
    """A sentence of ours as mrkdwn: `@{U123}` and `#{C123}` become links, everything in between is made safe."""
    prose = Prose(mrkdwn=True)
    done: list[str] = []
    at = 0
    text = clean(text)
    for hit in _NAMED.finditer(text):
        done += (prose.words(text[at : hit.start()]), f"<{hit[1] or hit[3]}{hit[2] or hit[4]}>")
        at = hit.end()
    return quiet("".join([*done, prose.words(text[at:])]))


def _quoted(text: str) -> str:
    """What somebody else said, for a block without formatting."""
    return quiet(escape(clean(text)))


def _bold_first(text: str) -> str:
    """The first sentence in bold: it is what people read at a glance."""
    first, dot, others = text.partition(". ")
    return f"*{first}{dot.strip()}* {others}".rstrip() if "*" not in first else text


def _asker(user: UserId) -> str:
    """A mention of who asked; nothing for an alert or a schedule."""
    return f"<@{user}>" if regex.fullmatch(r"[UW][A-Z0-9]+", user) else ""


def _cut_answer(answer: str) -> list[str]:
    if not answer:
        return []
    pieces = read(answer, mentions=(), hosts=(), limit=MARKDOWN_LIMIT)
    return _few(cut("\n\n".join(piece.plain for piece in pieces), SECTION_LIMIT), MAX_ANSWER_SECTIONS)


def _few(texts: Sequence[str], most: int = 1) -> list[str]:
    """The first of them, with an ellipsis if there were more."""
    kept = [text for text in texts if text.strip()][:most]
    return [*kept[:-1], f"{kept[-1]}\n…"] if kept and len(texts) > most else kept


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": shortened(text, SECTION_LIMIT)}}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": shortened(text, SECTION_LIMIT)}]}


def _actions(buttons: Sequence[tuple[Button, str]]) -> dict[str, Any]:
    return {"type": "actions", "elements": [_button(button, value) for button, value in buttons]}


def _button(button: Button, value: str) -> dict[str, Any]:
    text, label, style = BUTTONS[button]
    drawn = {
        "type": "button",
        "action_id": button.value,
        "text": {"type": "plain_text", "text": text, "emoji": False},
        "value": value,
        "accessibility_label": label,
    }
    return drawn | ({"style": style} if style else {})


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


def _sealed(text: str, blocks: Sequence[dict[str, Any]]) -> SlackMessage:
    """The message as it is sent: short enough for an edit, nothing in it calls anybody, new ids for new content."""
    quieted = quiet_everywhere([*blocks])
    safe = [{key: value for key, value in block.items() if key != "block_id"} for block in quieted]
    version = hashlib.sha256(json.dumps(safe, sort_keys=True).encode()).hexdigest()[:12]
    named = [block | {"block_id": f"{version}-{index}"} for index, block in enumerate(safe)]
    return SlackMessage(shortened(quiet(text)), named)
