"""The post that asks for approval, and what it becomes when nobody can decide about it any more."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from bot.slack.escape import code_lines, code_span
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
from bot.slack.split import SECTION_LIMIT, cut
from core.approvals import ApprovalState
from core.card import Button
from core.card_lines import short, tool_words
from core.card_words import person
from core.redaction import redact
from core.request import RequestFacts, exact, headline, visible

SIGNS = {
    ApprovalState.OPEN: "◐",
    ApprovalState.APPROVED: "✓",
    ApprovalState.DENIED: "✕",
    ApprovalState.EXPIRED: "–",
    ApprovalState.WITHDRAWN: "–",
    ApprovalState.STOPPED: "■",
}
SAID_CHARS = 300
REASON_CHARS = 500
MOST_NAMED = 10
_PERSON, _GROUP = re.compile(r"[UW][A-Z0-9]+"), re.compile(r"S[A-Z0-9]+")


def request_message(facts: RequestFacts, approvers: Collection[str]) -> SlackMessage:
    """The post as it stands now. `approvers` are user ids and ids of user groups; they are named while it is open."""
    head = own(headline(facts))
    given = exact(facts.arguments)
    blocks = [
        mrkdwn(f"{SIGNS[facts.state]} {bold_first(head)}"),
        *_code(f"Exactly this: {code_span(facts.tool, mrkdwn=True)}", given),
    ]
    told = [head, quoted(given)]
    if facts.open:
        blocks += _code("What it would change:", visible(redact(facts.preview))) if facts.preview else []
        why = _why(facts)
        blocks += [context(own(why))] if why else []
        who = _who_may(facts, approvers)
        blocks += [mrkdwn(who), actions([(Button.APPROVE, facts.id), (Button.DENY, facts.id)])]
        told.insert(1, who)
    elif facts.reason and facts.state is ApprovalState.DENIED:
        reason = f"Reason: {short(redact(facts.reason), REASON_CHARS)}"
        blocks.append(plain(quoted(reason)))
        told.insert(1, quoted(reason))
    return sealed("\n".join(told), blocks)


def _code(label: str, text: str) -> list[dict[str, Any]]:
    """What somebody else said, as a code block: nothing in it can act, and it can't end it."""
    block = "\n".join([label, "```", *code_lines(text, mrkdwn=True), "```"])
    return [mrkdwn(part) for part in few(cut(block, SECTION_LIMIT))]


def _why(facts: RequestFacts) -> str:
    """Where the proposal comes from: what the model said, and whose words it had read."""
    said = short(visible(redact(facts.said)), SAID_CHARS)
    seen = ", ".join(tool_words(tool) for tool in facts.looked_at)
    parts = [f"Asked by {person(facts.asked_by)}"]
    parts += [f"I said: {said}"] if said else []
    parts += [f"I had read: {seen}" if seen else "I had read no tool's results"]
    return " · ".join(parts)


def _who_may(facts: RequestFacts, approvers: Collection[str]) -> str:
    named = sorted(approvers)
    shown = [_mention(one) for one in named[:MOST_NAMED] if _mention(one)]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    until = datetime.fromtimestamp(facts.expires_at, UTC)
    moment = f"<!date^{int(facts.expires_at)}^{{time}}|{until:%H:%M} UTC>"
    who = f"{' '.join(shown)}{more} can decide" if shown else "Whoever may approve here can decide"
    how = f"press a button, or write `approve {facts.id}` or `deny {facts.id} why` in this thread"
    return f"{who} until {moment}: {how}."


def _mention(name: str) -> str:
    if _PERSON.fullmatch(name):
        return f"<@{name}>"
    return f"<!subteam^{name}>" if _GROUP.fullmatch(name) else ""
