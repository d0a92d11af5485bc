"""The one door for tool calls: allow-list, arguments, time limit, truncation, redaction, and a result for each call.

Whoever asks for a tool gets an answer, always: unknown tool, bad arguments, refusal and time-out become results that
the model can read and act on. A call that writes is recorded before it runs (`Ledger.intend`); if its outcome is not
known it is said to be unknown, and it is never run again by itself.

A tool is somebody else's code: it runs in a task of its own, so that whatever it raises ends there, and one that
ignores its cancellation is left behind instead of waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from core.arguments import check_of, fault_of, summarise
from core.cancel import LETTING_GO_S, SAYS, Cancel, let_go
from core.errors import OutcomeUnknown, ToolError
from core.evidence import Kept, clean, kept_of, narrowing, whole
from core.frame import framed
from core.limits import Limits
from core.pictures import admitted
from core.ports import ChangeTool, PerTurnTool, Picture, Tier, Tool, ToolOutput, ToolSpec, TurnTool


class CallStatus(StrEnum):
    """What became of a call. `open` and `intent` are on the way; everything else is an end."""

    OPEN = "open"
    INTENT = "intent"
    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    DENIED = "denied"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class Known:
    """What a turn has read already: `hint` is ours, `text` is what the tool said then."""

    hint: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a committed answer. `refusal` is set when it must not run, with the words for the model;
    `known` when it need not."""

    position: int
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    tier: str
    interruptible: bool
    summary: str
    refusal: str | None = None
    known: Known | None = None

    @property
    def writes(self) -> bool:
        return self.tier in (Tier.WRITE.value, Tier.EXTERNAL.value)


@dataclass(frozen=True, slots=True)
class CallResult:
    """The end of one call: what came of it, and what the audit keeps. `duration_s` in seconds.

    `kept` is the whole output, when `text` is less, or the page that it was taken from. `hint` is what we say to it.
    `pictures` are for people.
    `ended_s` is when it ended, in monotonic seconds; None when only the past knows.
    """

    call: Call
    status: CallStatus
    text: str
    links: Sequence[tuple[str, str]] = ()
    duration_s: float = 0.0
    kept: Kept | None = None
    hint: str = ""
    pictures: Sequence[Picture] = ()
    ended_s: float | None = None

    @property
    def is_error(self) -> bool:
        return self.status is not CallStatus.OK

    @property
    def said(self) -> str:
        """What the model reads."""
        text = as_read(self.call.tool, self.status, self.text)
        return f"{self.hint}\n{text}" if self.hint else text

    @property
    def summary(self) -> str:
        """What it came to in one short line for people and logs."""
        return " ".join(f"{self.hint} {self.text}".split())[:200]


class Gateway:
    """The tools that may be called, and how. `now` is monotonic seconds."""

    def __init__(self, tools: Iterable[Tool], limits: Limits, now: Callable[[], float]) -> None:
        self._tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        self._per_turn = [tool for tool in self._tools.values() if isinstance(tool, PerTurnTool)]
        self._held: list[TurnTool] = []
        self._checks = {name: check_of(tool.spec) for name, tool in self._tools.items()}
        self._limits = limits
        self._now = now

    def limited(self, limits: Limits) -> Gateway:
        """The same door for one turn, under the limits of its channel."""
        made = copy(self)
        made._limits = limits
        made._held = [tool.for_turn(made) for tool in self._per_turn]
        made._tools = self._tools | {tool.spec.name: tool for tool in made._held}
        return made

    async def close(self) -> None:
        """Let the tools let go of what they hold for this turn; what takes longer than a moment is not waited for."""
        closing = [asyncio.ensure_future(tool.close()) for tool in self._held]
        if closing:
            await asyncio.wait(closing, timeout=LETTING_GO_S)
        for task in closing:
            await let_go(task)

    @property
    def specs(self) -> list[ToolSpec]:
        """What the model is offered, in a stable order."""
        return [self._tools[name].spec for name in sorted(self._tools)]

    def declaration(self) -> list[dict[str, Any]]:
        """The `tools` of a request."""
        return [
            {"name": spec.name, "description": spec.description, "input_schema": dict(spec.input_schema)}
            for spec in self.specs
        ]

    def admit(self, position: int, block: Mapping[str, Any], *, broken: bool) -> Call:
        """Look at one `tool_use` block of an answer: may it run, and as what. Never raises."""
        name = whole(str(block["name"]))[:LONGEST_NAME]
        raw = block.get("input")
        arguments: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        tool = self._tools.get(name)
        spec = tool.spec if tool is not None else None
        return Call(
            position=position,
            call_id=str(block["id"]),
            tool=name,
            arguments=arguments,
            tier=spec.tier.value if spec is not None else "unlisted",
            interruptible=spec.interruptible and spec.tier is Tier.READ if spec is not None else True,
            summary=summarise(arguments),
            refusal=self._refusal(name, arguments, broken=broken),
        )

    def _refusal(self, name: str, arguments: Mapping[str, Any], *, broken: bool) -> str | None:
        if name not in self._tools:
            offered = ", ".join(sorted(self._tools)) or "none"
            return f"There is no tool named {name[:64]!r} here, so nothing was run. The tools are: {offered}."
        if broken:
            return "The arguments were cut off or are not valid JSON, so nothing was run. Send the call again."
        return fault_of(self._checks[name], arguments)

    def again(self, call: Call) -> Call:
        """A call that waited for its approval, as the tools of now see it: what is gone or changed is refused."""
        refusal = self._refusal(call.tool, call.arguments, broken=False)
        if refusal is None and self._tools[call.tool].spec.tier.value != call.tier:
            refusal = "This tool is treated differently since the call was approved, so nothing was run. Ask again."
        return replace(call, refusal=refusal)

    async def preview(self, call: Call) -> str | CallResult:
        """What an admitted write would change, in its tool's words; its end, if it can be seen to be impossible."""
        tool = self._tools[call.tool]
        if not isinstance(tool, ChangeTool):
            return ""
        try:
            async with asyncio.timeout(self._limits.tool_timeout_s):
                return clean(await tool.preview(call.arguments), PREVIEW_CHARS)
        except ToolError as error:
            return CallResult(call, CallStatus.ERROR, clean(f"Nothing was run: {error}", self._limits.output_chars))
        except Exception as error:  # noqa: BLE001 - the door around a tool: people decide by the arguments then
            return f"What it would change could not be read ({type(error).__name__})."

    async def run(self, call: Call) -> CallResult:
        """Run one admitted call within its time limit. Cancelling the task cancels the tool and is passed on."""
        return replace(await self._run(call), ended_s=self._now())

    async def _run(self, call: Call) -> CallResult:
        if call.refusal is not None:
            return CallResult(call, CallStatus.REFUSED, call.refusal)
        if call.known is not None:
            return CallResult(call, CallStatus.OK, call.known.text, hint=call.known.hint)
        tool = self._tools[call.tool]
        limit = min(tool.spec.timeout_s, self._limits.tool_timeout_s) if not call.writes else tool.spec.timeout_s
        began = self._now()
        task = asyncio.ensure_future(_door(tool, call.arguments))
        try:
            await asyncio.wait({task}, timeout=limit)
            late = not task.done()
        finally:
            await let_go(task)
        got = CUT_SHORT if not task.done() or task.cancelled() else task.result()
        if isinstance(got, ToolOutput):
            return self._end(call, CallStatus.ERROR if got.is_error else CallStatus.OK, got, began)
        if late:
            return self._timed_out(call, limit, self._now() - began)
        return self._failed(call, got, began)

    def _end(self, call: Call, status: CallStatus, output: ToolOutput, began: float) -> CallResult:
        narrower = narrowing(self._tools[call.tool].spec.input_schema)
        text, kept = kept_of(output, self._limits.output_chars, narrower)
        pictures, about = admitted(output.pictures, clean)
        took = self._now() - began
        return CallResult(call, status, text + about, _links(output), took, kept, pictures=pictures)

    def _failed(self, call: Call, error: BaseException, began: float) -> CallResult:
        if isinstance(error, ToolError):
            return self._end(call, CallStatus.ERROR, ToolOutput(str(error)), began)
        if isinstance(error, OutcomeUnknown) and call.writes:
            return self._end(call, CallStatus.UNKNOWN, ToolOutput(str(error)), began)
        text = f"The tool failed inside ({type(error).__name__}). "
        if call.writes:
            text += "It may have been done or not: check before anything else."
            return self._end(call, CallStatus.UNKNOWN, ToolOutput(text), began)
        return self._end(call, CallStatus.ERROR, ToolOutput(f"{text}Nothing more is known; try another way."), began)

    def _timed_out(self, call: Call, limit: float, took: float) -> CallResult:
        if call.writes:
            text = f"No answer within {limit:g} s. It may have been done or not: check before anything else."
            return CallResult(call, CallStatus.UNKNOWN, text, duration_s=took)
        text = f"No answer within {limit:g} s, so nothing was read. Ask for less, or look another way."
        return CallResult(call, CallStatus.TIMEOUT, text, duration_s=took)


CUT_SHORT = asyncio.CancelledError()
"""What a tool raised that was cancelled by something of its own."""

AFTER_AN_UNKNOWN = "the outcome of a write before it is unknown"
MOST_LINKS = 20
LONGEST_NAME = 200
PREVIEW_CHARS = 8_000


async def _door(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutput | BaseException:
    """What a tool said or raised; only a cancellation goes on."""
    try:
        output = await tool.run(arguments)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the door around a tool: whatever it raises is its result
        return error
    usable = isinstance(output, ToolOutput) and isinstance(output.text, str)
    return output if usable else TypeError("a tool returns a ToolOutput with text")


def _links(output: ToolOutput) -> Sequence[tuple[str, str]]:
    """The links that can be kept as they are: an address that had to be changed leads nowhere."""
    kept = [(clean(title, 200), url) for title, url in output.links if clean(url, 2_000) == url]
    return tuple(kept[:MOST_LINKS])


def as_read(tool: str, status: CallStatus, text: str) -> str:
    """What a tool said, marked as the data that it is; what we say of a call stands as it is."""
    return framed(tool, text) if status in (CallStatus.OK, CallStatus.ERROR) and text.strip() else text


def cancelled(call: Call, reason: Cancel, after_s: float) -> CallResult:
    """The true result of an interruptible call that was cancelled: nothing was read."""
    text = f"Cancelled after {after_s:.1f} s because {SAYS[reason]}. Nothing was read."
    return CallResult(call, CallStatus.CANCELLED, text, duration_s=after_s)


def not_run(call: Call, why: str) -> CallResult:
    """The true result of a call that never started."""
    return CallResult(call, CallStatus.NOT_RUN, f"Not run: {why}. Nothing was changed by it.")


def recovered(
    call: Call,
    status: CallStatus,
    output: str | None,
    links: Sequence[tuple[str, str]] = (),
    duration_s: float = 0.0,
) -> CallResult:
    """The result of a call that was found without one after a crash or a wait, from what the audit row knows."""
    if output is not None and status not in (CallStatus.OPEN, CallStatus.INTENT):
        return CallResult(call, status, output, links, duration_s)
    if call.refusal is not None:
        return CallResult(call, CallStatus.REFUSED, call.refusal)
    if not call.writes:
        text = "Interrupted by a restart. Nothing was read; ask again if it still matters."
        return CallResult(call, CallStatus.INTERRUPTED, text)
    if status is CallStatus.OPEN:
        return not_run(call, "a restart came before it was started")
    text = "Interrupted by a restart while it ran. Its outcome is unknown: check first, do not repeat it blindly."
    return CallResult(call, CallStatus.UNKNOWN, text)
