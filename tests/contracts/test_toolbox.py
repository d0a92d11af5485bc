"""The model is offered the tools whose far end is configured, and no others."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from bot.settings import Settings, ToolsPart
from bot.settings_mcp import McpServerPart
from bot.toolbox import open_tools
from core.ports import ChangeTool, Tier, Tool
from tests.support.mcp_servers import offers, raw_server

FAR = "http://127.0.0.1:1"
OFFERED = {
    "prometheus_url": {"prometheus_query", "prometheus_range", "prometheus_series"},
    "alertmanager_url": {"alertmanager_alerts", "alertmanager_silence", "alertmanager_expire_silence"},
    "loki_url": {"loki_query", "loki_labels"},
}


async def offered(part: ToolsPart) -> dict[str, Tool]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        return {tool.spec.name: tool for tool in await open_tools(Settings(tools=part), http, time.time, stack)}


async def test_without_any_far_end_no_tool_is_offered() -> None:
    assert await offered(ToolsPart()) == {}


@pytest.mark.parametrize("setting", OFFERED)
async def test_one_far_end_brings_its_own_tools(setting: str) -> None:
    assert set(await offered(ToolsPart(**{setting: FAR}))) == OFFERED[setting]


async def test_an_mcp_server_brings_its_tools_under_its_name_and_one_that_is_down_is_told(tmp_path: Path) -> None:
    offers(tmp_path, {"name": "prometheus_query"})
    part = ToolsPart(
        prometheus_url=FAR, mcp={"own": raw_server(tmp_path), "down": McpServerPart(command="/nowhere/server")}
    )
    told: list[str] = []
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        tools = await open_tools(Settings(tools=part), http, time.time, stack, told.append)
        assert (await tools[-1].run({})).text == "done"
    assert {tool.spec.name for tool in tools} == OFFERED["prometheus_url"] | {"own__prometheus_query"}
    assert told == [
        "MCP server down could not be used: there is no command /nowhere/server. Its tools are not there until a "
        "restart."
    ]


def test_what_is_not_configured_is_not_even_imported() -> None:
    heavy = "import sys, bot.app; sys.exit('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", heavy], check=False).returncode == 0


async def test_a_link_for_people_alone_brings_no_tool() -> None:
    part = ToolsPart(prometheus_link=FAR, alertmanager_link=FAR, loki_link=FAR)
    assert await offered(part) == {}


async def test_every_tool_that_changes_something_can_show_it_first() -> None:
    everything = ToolsPart(**dict.fromkeys(OFFERED, FAR), kubernetes_url=FAR)
    tools = await offered(everything)
    writes = {name for name, tool in tools.items() if tool.spec.tier is not Tier.READ}
    assert writes == {name for name, tool in tools.items() if isinstance(tool, ChangeTool)}
    assert {"alertmanager_silence", "alertmanager_expire_silence"} <= writes
