"""Both far ends in a process of their own: `python -m bench.far_ends [--lenient]`.

It prints one line of JSON (`{"slack", "model", "workspace": {...}}`), then does what lines on its stdin say, and
ends when stdin ends:

    {"do": "say", "channel", "user", "text", "ts", "thread_ts"?}      {"do": "press", "channel", "message_ts", ...}
    {"do": "report"}  ->  {"violations": [...], "requests": n, "first_request_at": seconds, "events": n}

The model plays what the newest words of a person ask for: `plan rounds=3 calls=3 tool=probe before=1.5` is three
rounds of three parallel calls and a final text, each answer after 1.5 s. Deltas are 12 characters, as the API's are
about; a stream is sent in one piece, to the product and to the bare SDK alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from bot.playground.model import Reply, ScriptedModel, call, pace, say
from bot.playground.slack import Channel, LocalSlack, Workspace

CHANNELS = 8
PLAN = re.compile(r"\bplan((?: \w+=[\w.]+)*)")
SPOKEN = "I look at the error rate by status code, at the logs of the gateway, and at what changed last."
QUERY = "sum by (code) (rate(http_requests_total{job='checkout'}[5m]))"
ANSWER = (
    "**The gateway's change of 14:03 is the cause.** Since 14:05 checkout answers 5xx for 12 % of requests; every "
    "one of them went through gateway-7, and its upstream time-out was lowered from 5 s to 500 ms two minutes "
    "before. Host web-3 is loaded because it gets the retries, not the other way round.\n\n"
    "- error rate by code: only 504, only through gateway-7\n"
    "- gateway log: `upstream timed out (0.5s)` since 14:05:11\n"
    "- rollout history: revision 42 of `gateway-config` at 14:03, by deploy-bot\n\n"
    "Next: roll `gateway-config` back to revision 41, then watch the 504 rate for five minutes. "
    "Nothing was changed by me."
)


def script(body: dict[str, Any], number: int) -> Reply:
    """The next answer of the plan in a request's newest words."""
    plan, answered = _plan(body["messages"])
    before = pace(before_s=float(plan.get("before", 0)))
    if answered >= int(plan.get("rounds", 3)):
        return say(ANSWER) + before
    tool = plan.get("tool", "probe")
    calls = [
        call(tool, query=f"{QUERY} # {answered}.{n}", start="-1h", step="30s")
        for n in range(int(plan.get("calls", 3)))
    ]
    return sum(calls, say(SPOKEN)) + before


def _plan(messages: list[Mapping[str, Any]]) -> tuple[dict[str, str], int]:
    """The newest plan, and how many answers were given to it."""
    answered = 0
    for message in reversed(messages):
        answered += message["role"] == "assistant"
        for block in message["content"] if message["role"] == "user" else ():
            found = PLAN.search(str(block.get("text", "")))
            if found is not None:
                return dict(pair.split("=") for pair in found[1].split()), answered
    return {}, answered


def workspace() -> Workspace:
    """A workspace with some channels, so that their limits do not add up."""
    made = Workspace()
    made.channels += [Channel(f"C0BENCH{number}", f"bench-{number}") for number in range(CHANNELS)]
    return made


class Desk:
    """Does what the lines on stdin say."""

    def __init__(self, slack: LocalSlack, model: ScriptedModel) -> None:
        self._slack = slack
        self._model = model

    async def do(self, line: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """One line; what to answer, if anything."""
        given = {key: value for key, value in line.items() if key != "do"}
        match line["do"]:
            case "say":
                await self._slack.say(**given)
            case "press":
                await self._slack.press(**given)
            case "report":
                return self._report()
            case "forget":
                self._model.requests.clear()
        return None

    def _report(self) -> Mapping[str, Any]:
        seen = self._model.requests
        return {
            "violations": self._model.violations,
            "requests": len(seen),
            "first_request_at": seen[0].at if seen else None,
            "events": sum(request.events_sent for request in seen),
            "calls": len(self._slack.calls),
        }


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _tell(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def main(lenient: bool) -> None:
    """Serve until stdin ends. `lenient`: the model checks nothing, so that it keeps up with a crowd."""
    async with ScriptedModel(script, check=not lenient) as model, LocalSlack(workspace()) as slack:
        made = slack.workspace
        _tell(
            {
                "slack": slack.api_url,
                "model": model.url,
                "workspace": {
                    "bot_token": made.bot_token,
                    "app_token": made.app_token,
                    "signing_secret": made.signing_secret,
                    "bot": made.bot_user_id,
                },
            }
        )
        desk, reader = Desk(slack, model), await _lines()
        async for line in reader:
            answer = await desk.do(json.loads(line))
            if answer is not None:
                _tell(answer)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main("--lenient" in sys.argv))
