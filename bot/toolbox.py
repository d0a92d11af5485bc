"""Opens the tools that are configured; what a tool needs and isn't configured is not offered to the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

import aiohttp
import structlog

from bot.importing import imported
from bot.settings import Settings, ToolsPart
from bot.tools import alertmanager, kubernetes, kubernetes_api, loki, prometheus
from bot.tools.charts import Charts
from core.errors import BadInput
from core.ports import Tool

NEEDED = "pip install 'pilothouse[browser]', and a chromium in PATH"
log = structlog.get_logger(__name__)


def note(trouble: str) -> None:
    """A configured tool that can't be offered as it is configured: the log is where an operator learns of it."""
    log.warning("tool_trouble", trouble=trouble)


async def open_tools(
    settings: Settings,
    http: aiohttp.ClientSession,
    now: Callable[[], float],
    stack: AsyncExitStack,
    tell: Callable[[str], None] = note,
) -> list[Tool]:
    """The configured tools; `now` gives seconds since the epoch.

    `tell` gets a sentence for each far end that is configured and whose tools are not there, or not all of them.
    """
    found: list[Tool] = []
    tools = settings.tools
    if tools.prometheus_url:
        drawing = ThreadPoolExecutor(1, "drawing")
        stack.callback(drawing.shutdown, wait=False, cancel_futures=True)
        link = tools.prometheus_link
        found += prometheus.tools(tools.prometheus_url, http, now, link, charts=Charts(drawing))
    if tools.alertmanager_url:
        found += alertmanager.tools(tools.alertmanager_url, http, now, tools.alertmanager_link)
    if tools.loki_url:
        found += loki.tools(tools.loki_url, http, now, tools.loki_link)
    if cluster := _cluster(tools):
        open_cluster = await stack.enter_async_context(cluster)
        found += kubernetes.tools(open_cluster, now, tools.kubernetes_namespaces, tools.kubernetes_max_replicas)
    if tools.web_domains:
        reader, domains = imported("bot.web_proxy"), sorted(tools.web_domains)
        proxy = reader.WebProxy(domains, now=now, clock=time.monotonic, networks=tools.web_networks)
        found += imported("bot.tools.web").tools(proxy, domains)
        if tools.browser:
            chromium = await _browser(proxy)
            stack.push_async_callback(chromium.close)
            found += imported("bot.tools.browser").tools(chromium, domains, now)
    elif tools.browser:
        raise BadInput("tools.browser opens only pages of tools.web_domains, and none is named there.")
    if tools.mcp:
        mcp = await asyncio.to_thread(imported, "bot.tools.mcp")
        found += await mcp.open_tools(tools.mcp, stack, tell)
    if tools.runbooks:
        shelved = imported("bot.tools.runbooks")
        books = stack.enter_context(shelved.shelf(tools.runbooks.expanduser()))
        found += shelved.tools(books, tools.runbooks_link)
    return found


def _cluster(tools: ToolsPart) -> kubernetes_api.Cluster | None:
    """The one way to Kubernetes that is configured."""
    if tools.kubernetes_in_cluster:
        return kubernetes_api.in_cluster()
    if tools.kubernetes_kubeconfig:
        return kubernetes_api.by_kubeconfig(tools.kubernetes_kubeconfig.expanduser(), tools.kubernetes_context)
    if tools.kubernetes_url:
        token, authority = tools.kubernetes_token.get_secret_value() or None, tools.kubernetes_ca_file
        return kubernetes_api.connect(
            tools.kubernetes_url, token, str(authority) if authority else None, tools.kubernetes_verify
        )
    return None


async def _browser(guard: Any) -> Any:
    """The browser, which starts when a page is opened for the first time. Raises `BadInput` if there is none."""
    if find_spec("playwright") is None:
        raise BadInput(f"tools.browser needs the package playwright: {NEEDED}.")
    browser = await asyncio.to_thread(imported, "bot.browser")
    if browser.executable() is None:
        raise BadInput(f"tools.browser needs a Chromium: {NEEDED}.")
    return browser.Chromium(guard)
