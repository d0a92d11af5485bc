"""The post that asks for approval, and what it becomes when nobody can decide about it any more."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bot.slack.escape import code_lines, code_span
from bot.slack.message import (
    SlackMessage,
    actions,
    bold_first,
    context,
    mrkdwn,
    own,
    plain,
    quoted,
    sealed,
)
from bot.slack.split import SECTION_LIMIT, TEXT_LIMIT, cut
from core.approvals import ApprovalState
from core.card import Button
from core.card_lines import short, tool_words
from core.card_words import person
from core.redaction import redact
from core.request import RequestFacts, exact, headline, middle_out, visible

SIGNS = {
    ApprovalState.OPEN: "◐",
    ApprovalState.APPROVED: "✓",
    ApprovalState.DENIED: "✕",
    ApprovalState.EXPIRED: "–",
    ApprovalState.WITHDRAWN: "–",
    ApprovalState.STOPPED: "■",
}
CODE_CHARS = (2_400, 1_600, 1_000, 400)
"""How much is shown of what is long: the first that fits."""
SAID_CHARS = 300
REASON_CHARS = 500
MOST_NAMED = 10
_PERSON, _GROUP = re.compile(r"[UW][A-Z0-9]+"), re.compile(r"S[A-Z0-9]+")


def request_message(facts: RequestFacts, approvers: Collection[str]) -> SlackMessage:
    """The post as it stands now. `approvers` are user ids and ids of user groups; they are named while it is open."""
    head = own(headline(facts))
    given = partial(exact, facts.arguments)
    blocks = [
        mrkdwn(f"{SIGNS[facts.state]} {bold_first(head)}"),
        mrkdwn(_fitted(f"Exactly this: {code_span(facts.tool, mrkdwn=True)}", given, SECTION_LIMIT)),
    ]
    told = [head]
    if facts.open:
        if facts.preview:
            change = partial(middle_out, visible(redact(facts.preview)))
            blocks.append(mrkdwn(_fitted("What it would change:", change, SECTION_LIMIT)))
        blocks += _why(facts)
        who = _who_may(facts, approvers)
        blocks += [mrkdwn(who), actions([(Button.APPROVE, facts.id), (Button.DENY, facts.id)])]
        told.append(who)
    elif facts.reason and facts.state is ApprovalState.DENIED:
        reason = f"Reason: {short(redact(facts.reason), REASON_CHARS)}"
        blocks.append(plain(quoted(reason)))
        told.append(quoted(reason))
    return sealed(_fitted("\n".join(told), given, TEXT_LIMIT), blocks)


def _fitted(label: str, drawn: Callable[[int], str], limit: int) -> str:
    """What somebody else said, as a code block: nothing in it can act, and it can't end it.

    It is drawn as long as it fits once it is escaped, so that nothing is cut off uncounted.
    """
    block = label
    for most in CODE_CHARS:
        block = "\n".join([label, "```", *code_lines(drawn(most), mrkdwn=True), "```"])
        if len(cut(block, limit)) == 1:
            break
    return block


def _why(facts: RequestFacts) -> list[dict[str, Any]]:
    """Where the proposal comes from: whose words the model had read, and what it said, which may not speak for us."""
    seen = ", ".join(tool_words(tool) for tool in facts.looked_at)
    read = f"I had read: {seen}" if seen else "I had read no tool's results"
    said = short(visible(redact(facts.said)), SAID_CHARS)
    blocks = [context(own(f"Asked by {person(facts.asked_by)} · {read}"))]
    return [*blocks, plain(quoted(f"I said: {said}"))] if said else blocks


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
