"""Does each tool's far end answer: all are asked at once, each with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.doctor.finding import Finding, failing, ok, warning
from core.ports import Tool

LIMIT_S = 10.0
ADVICE = "Check that it runs, and its address and token under [tools] in the configuration."


async def look(
    tools: Sequence[Tool] | Exception, troubles: Sequence[str] = (), limit_s: float = LIMIT_S
) -> list[Finding]:
    """One finding a tool; a tool may take `limit_s` to answer. `tools` may be why they could not be opened.

    `troubles`: what was said when they were opened, a sentence for each far end whose tools are not all there.
    """
    if isinstance(tools, Exception):
        why = str(tools).rstrip(".") or type(tools).__name__
        return [failing("tools", f"The tools can't be opened: {why}. `pilothouse serve` would not start.")]
    if not tools and not troubles:
        says = "No tool is configured, so the model can look at nothing: name the far ends under [tools]."
        return [warning("tools", says)]
    answers = await asyncio.gather(*(_one(tool, limit_s) for tool in tools))
    return [*(failing("tools", says) for says in troubles), *answers]


async def _one(tool: Tool, limit_s: float) -> Finding:
    name = f"tool {tool.spec.name}"
    answers = await asyncio.gather(asyncio.wait_for(tool.health(), limit_s), return_exceptions=True)
    match answers[0]:
        case None:
            return ok(name, "Its far end answers.")
        case TimeoutError():
            return failing(name, f"Its far end did not answer within {limit_s:g} s. {ADVICE}")
        case BaseException() as error:
            return failing(name, f"Asking its far end failed ({type(error).__name__}: {error}). {ADVICE}")
        case says:
            return failing(name, f"{says.rstrip('.')}. {ADVICE}")
