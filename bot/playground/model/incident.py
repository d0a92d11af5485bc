"""The incident, played: a script that investigates with the tools it was given and goes where people send it.

It decides from the conversation alone. Each request is read anew: what do people want now, what has been looked
at since the last answer, what came of it? Then it takes the next look that is still open, or answers from what
was really seen. So it goes on after a redirection, a stop or a restart as if nothing had happened, and what failed
or was cancelled is said, not invented.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.playground.model.acting import act, wants_it
from bot.playground.model.findings import (
    about,
    alert_in,
    busiest_host,
    conclusion,
    find,
    not_read,
    pods_of,
)
from bot.playground.model.plot import FULL, SAYS, Direction, Stage, Ways, Wish, direction, looks_of
from bot.playground.model.reading import Conversation, Look, State, read
from bot.playground.model.reply import Reply, Script, call_with, pace, say, think

BEFORE_S = 0.7
CHARS_PER_S = 240.0
SUSPECT = "web-3"
CAUSE = (Stage.GATEWAY, Stage.CONFIRM)
MOST_CANCELLED = 2
"""A look that was cut short is taken again, but not for ever."""


def incident_script(before_s: float = BEFORE_S, chars_per_s: float = CHARS_PER_S) -> Script:
    """The script of the playing SRE: `before_s` until it begins to speak, then `chars_per_s`."""
    rhythm = pace(before_s, chars_per_s=chars_per_s, delta_chars=9)
    return lambda body, number: reply_to(read(body)) + rhythm


def reply_to(conversation: Conversation) -> Reply:
    """The next step of the plan, or the answer."""
    directions = [direction(text) for text in conversation.now.words]
    host = _host(directions, conversation)
    if wants_it(directions, conversation):
        return act(conversation, host)
    plan = plan_of(directions, conversation)
    for stage in plan:
        looks, again = _open_looks(looks_of(stage, host, pods_of(conversation.taken)), conversation)
        if looks:
            return _step(stage, looks, host, conversation, again=again)
    thought = "I have what I need. What is proven, and what follows?" if plan else "No look needed. What do I know?"
    return think(thought) + say(_answer(plan, directions, host, conversation))


def plan_of(directions: Sequence[Direction], conversation: Conversation) -> tuple[Stage, ...]:
    """Where to look, in order: the opening's plan, changed by every later word of the episode."""
    plan: tuple[Stage, ...] = () if directions else FULL
    for at, one in enumerate(directions):
        if at == 0 and conversation.is_first:
            plan = _opening(one)
        elif one.to and one.also:
            plan = (*plan, *(stage for stage in one.to if stage not in plan))
        elif one.to:
            rest = () if Stage.GATEWAY in one.to else tuple(stage for stage in plan if stage not in one.to)
            plan = (*one.to, *rest)
        elif one.wish is Wish.GO_ON and not plan and not conversation.is_first:
            plan = (Stage.OVERVIEW,)
        plan = tuple(stage for stage in plan if stage not in one.without)
    return plan


def _opening(first: Direction) -> tuple[Stage, ...]:
    """A new thread is about the incident, unless it asks for something else by name."""
    if Stage.GATEWAY in first.to:
        return (Stage.OVERVIEW, *CAUSE)
    elsewhere = {Stage.DATABASE, Stage.CATALOG, Stage.CHANGES, Stage.EVENTS}
    return first.to if first.to and set(first.to) <= elsewhere else FULL


def _host(directions: Sequence[Direction], conversation: Conversation) -> str:
    named = [one.host for one in directions if one.host]
    return named[-1] if named else busiest_host(conversation.taken) or SUSPECT


def _open_looks(questions: Sequence[Ways], conversation: Conversation) -> tuple[list[Look], bool]:
    """For each question without an answer the next way to ask it; and whether that is a second try."""
    found: list[Look] = []
    again = False
    for ways in questions:
        usable = [way for way in ways if way.tool in conversation.tools]
        tried = {way.key: [one.state for one in conversation.now.taken if one.look.key == way.key] for way in usable}
        if any(_answered(way, tried[way.key]) for way in usable):
            continue
        open_ways = [way for way in usable if _may_try(tried[way.key])]
        if open_ways and open_ways[0] not in found:
            found.append(open_ways[0])
            again = again or any(tried.values())
    return found, again


def _answered(way: Look, states: Sequence[State]) -> bool:
    """A metric that has no series may have another name; logs without such a line are an answer."""
    return State.SEEN in states or (way.tool == "loki_query" and State.EMPTY in states)


def _may_try(states: Sequence[State]) -> bool:
    return all(state is State.CANCELLED for state in states) and len(states) < MOST_CANCELLED


def _step(stage: Stage, looks: Sequence[Look], host: str, conversation: Conversation, *, again: bool) -> Reply:
    thought, words = (text.format(host=host) for text in SAYS[stage])
    if not conversation.now.taken and (alert := alert_in(conversation.told)):
        words = f"This is about the alert “{alert}”. {words}"
    said = " ".join([*_troubles(conversation), "Let me look at that another way." if again else words])
    step = think(thought) + say(said)
    for look in looks:
        step += call_with(look.tool, look.arguments)
    return step


def _troubles(conversation: Conversation) -> list[str]:
    """What the last step did not bring, said before the next one."""
    states = [taken.state for taken in conversation.now.last_batch]
    texts = []
    if cancelled := states.count(State.CANCELLED):
        texts.append(f"{cancelled} of {len(states)} calls were cancelled, so nothing was read from them.")
    if failed := states.count(State.FAILED):
        texts.append(f"{failed} of {len(states)} calls failed.")
    if empty := states.count(State.EMPTY):
        texts.append(f"{empty} of {len(states)} calls found nothing.")
    return texts


def _answer(plan: Sequence[Stage], directions: Sequence[Direction], host: str, conversation: Conversation) -> str:
    found = find(conversation.taken, host)
    wishes = [one.wish for one in directions if one.wish is not None]
    parts: list[str] = []
    if alert := alert_in(conversation.told):
        parts.append(f"About the alert “{alert}”:")
    if set(plan) & {*CAUSE, Stage.HOST}:
        parts.append(conclusion(found, host, chinese=conversation.chinese))
    parts += about(plan, found)
    if not plan:
        parts.append(_without_looking(wishes[-1] if wishes else None, conversation, host))
    return "\n\n".join([*parts, *_left_out(conversation)])


def _left_out(conversation: Conversation) -> list[str]:
    lines = not_read(conversation)
    return ["\n".join(lines).strip()] if lines else []


def _without_looking(wish: Wish | None, conversation: Conversation, host: str) -> str:
    """A reply that needs no new look."""
    found = find(conversation.taken, host)
    known = conclusion(found, host, chinese=conversation.chinese)
    if wish is Wish.THANKS:
        return "You're welcome. I'll stay in this thread; reply when I should look again."
    if wish is Wish.CLARIFY:
        return (
            "Understood, I stopped looking there. Which one should I look at instead? What I can see is the "
            "namespace `shop` (gateway, checkout, catalog) on web-1 to web-3."
        )
    if wish is Wish.ACT and found.change is not None:
        return (
            "I can look, but I have no tool here that changes anything. The command would be "
            f"`kubectl -n shop rollout undo deployment/gateway --to-revision={found.change.revision - 1}`; when it "
            "has run, reply and I'll check whether the errors stop."
        )
    offer = (
        "I took no new look for this. I can look at errors, hosts, the gateway, the database, catalog, or changes."
    )
    return f"What I know so far:\n\n{known}\n\n{offer}"
