"""A real MCP server, made with the SDK, that does what the servers of the registries can't be told to do.

    python mcp_server.py FOLDER            over stdio
    python mcp_server.py FOLDER PORT       over streamable HTTP, at /mcp

It offers what FOLDER/tools.json holds at that moment, and writes a line to FOLDER/calls for each call it gets and
each that is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)


def main(folder: Path, port: int | None) -> None:
    bus = InMemorySubscriptionBus()
    calls = folder / "calls"

    def note(line: str) -> None:
        with calls.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    async def offered(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        tools = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
        return ListToolsResult(tools=[Tool.model_validate(one) for one in tools])

    async def called(context: Any, params: CallToolRequestParams) -> CallToolResult:
        note(params.name)
        if params.name == "die":
            os.write(2, b"a bolt came loose\n")
            os._exit(3)
        if params.name == "hang":
            try:
                await asyncio.Event().wait()
            finally:
                note("hang was cancelled")
        if params.name == "change":
            await bus.publish(ToolsListChanged())
        words = f"{params.name} {json.dumps(params.arguments)} {os.getpid()}"
        return CallToolResult(content=[TextContent(text=words)])

    server: Server[Any] = Server(
        "own", on_list_tools=offered, on_call_tool=called, on_subscriptions_listen=ListenHandler(bus)
    )
    if port is None:
        asyncio.run(_stdio(server))
    else:
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")


async def _stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
