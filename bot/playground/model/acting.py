"""The last act: somebody asks for the rollback, it is proposed, people decide, and what follows is looked at.

The playing SRE knows as little about approvals as the real model: it calls the tool, and reads what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.playground.model.findings import find, quoted
from bot.playground.model.plot import NAMESPACE, Direction, Wish, history
from bot.playground.model.reading import Conversation, Look, State, Taken, lines_with
from bot.playground.model.reply import Reply, call_with, say, think

ROLLBACK = "kubernetes_rollback"
DEPLOYMENT = "gateway"
ERRORS_NOW = 'sum by (service) (rate(http_requests_total{status=~"5.."}[1m]))'
CHECKS = (
    Look("prometheus_query", {"query": ERRORS_NOW}),
    Look("prometheus_range", {"query": ERRORS_NOW, "minutes_back": 30, "step_s": 30}),
)


def wants_it(directions: Sequence[Direction], conversation: Conversation) -> bool:
    """Whether the newest words ask for a change, and there is a tool for it."""
    return bool(directions) and directions[-1].wish is Wish.ACT and ROLLBACK in conversation.tools


def act(conversation: Conversation, host: str) -> Reply:
    """The next step of the change, or how it ended."""
    tried = [taken for taken in conversation.now.taken if taken.look.tool == ROLLBACK]
    if tried:
        return _after(tried[-1], conversation)
    change = find(conversation.taken, host).change
    if change is None:
        look = history(DEPLOYMENT)
        if any(taken.look.key == look.key for taken in conversation.now.taken):
            return say(f"I can't read the rollout history of `{DEPLOYMENT}`, so I propose no rollback.")
        return _calls("Which revision runs, and which came before it?", "Looking at the rollout history first.", look)
    back = {
        "namespace": NAMESPACE,
        "deployment": DEPLOYMENT,
        "from_revision": change.revision,
        "to_revision": change.revision - 1,
    }
    words = (
        f"Revision {change.revision} of `{DEPLOYMENT}` is what changed, so I propose to go back to revision "
        f"{change.revision - 1}. It runs only if somebody who may approves it."
    )
    return _calls("A rollback changes production: propose exactly one, and say why.", words, Look(ROLLBACK, back))


def _after(tried: Taken, conversation: Conversation) -> Reply:
    if tried.state is not State.SEEN:
        why = next(iter(tried.text.splitlines()), "no reason was given")[:300]
        return say(f"**I changed nothing.** The rollback did not run: {why}\n\nThe cause is still there.")
    seen = conversation.now.taken[conversation.now.taken.index(tried) + 1 :]
    checks = [look for look in CHECKS if look.tool in conversation.tools]
    if not seen and checks:
        return _calls("It ran. Did it help?", "The rollback ran. Checking whether the errors stop.", *checks)
    return think("What do the numbers say now?") + say(_outcome(tried, seen))


def _outcome(tried: Taken, seen: Sequence[Taken]) -> str:
    errors = [taken for taken in seen if taken.look.tool == "prometheus_query"]
    now = "".join(lines_with(errors, r"checkout.*\d"))
    numbers = quoted(now) if now else "no 5xx that I can see"
    lines = [
        f"**`{DEPLOYMENT}` is back on revision {tried.look.arguments['to_revision']}.**",
        "",
        f"- 5xx per second of checkout over the last minute: {numbers}",
    ]
    if any(taken.look.tool == "prometheus_range" and taken.state is State.SEEN for taken in seen):
        lines.append("- A chart of the last half hour is in this thread.")
    unread = [taken for taken in seen if taken.state in (State.FAILED, State.CANCELLED)]
    if unread:
        lines.append("- Not everything could be read; ask me again in a minute.")
    return "\n".join([*lines, "", "**Next:** keep watching for ten minutes, then look at why the change was made."])


def _calls(thought: str, words: str, *looks: Look) -> Reply:
    step = think(thought) + say(words)
    for look in looks:
        step += call_with(look.tool, look.arguments)
    return step
