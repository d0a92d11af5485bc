"""Kubernetes: objects, events, logs of pods, and what each rollout of a deployment changed.

Answers are read as JSON and not as the client's models: a cluster newer or odder than the client must not become
an exception. Secrets are no kind that this tool knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp

from bot.importing import imported
from bot.tools.kubernetes_text import (
    Object,
    dig,
    events_text,
    history_text,
    items,
    logs_text,
    object_text,
    objects_text,
)
from bot.tools.reading import HEALTH_S, LONGEST_S, Answer, decoded, refused, unreachable, whole
from bot.tools.shaping import Arguments, ReadTool, object_schema, whole_argument
from core.errors import ToolError
from core.ports import Tool, ToolOutput, ToolSpec

NAME = "Kubernetes"
CLIENT = "bot.tools.kubernetes_client"
PAGE = 500
NAME_PATTERN = "^[a-z0-9][-a-z0-9.]{0,251}$"

# kind: which API, the method that lists, the method that reads one.
KINDS: Mapping[str, tuple[str, str, str]] = {
    "pods": ("core", "list_namespaced_pod", "read_namespaced_pod"),
    "deployments": ("apps", "list_namespaced_deployment", "read_namespaced_deployment"),
    "replicasets": ("apps", "list_namespaced_replica_set", "read_namespaced_replica_set"),
    "services": ("core", "list_namespaced_service", "read_namespaced_service"),
    "configmaps": ("core", "list_namespaced_config_map", "read_namespaced_config_map"),
    "nodes": ("core", "list_node", "read_node"),
}
CLUSTER_WIDE = frozenset({"nodes"})


def _name_argument(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "pattern": NAME_PATTERN}


GET = ToolSpec(
    "kubernetes_get",
    "List objects of a kind as a table, newest first, or read one as YAML when a name is given. Nodes have no "
    "namespace.",
    object_schema(
        ["kind"],
        kind={"type": "string", "enum": list(KINDS), "description": "Kind of the objects"},
        namespace=_name_argument("Namespace; needed for every kind but nodes"),
        name=_name_argument("Name of one object"),
    ),
)
EVENTS = ToolSpec(
    "kubernetes_events",
    "Events of a namespace, newest first; with a name only those of that object and of what it created (a "
    "deployment's replica sets and pods).",
    object_schema(["namespace"], namespace=_name_argument("Namespace"), name=_name_argument("Name of an object")),
)
LOGS = ToolSpec(
    "kubernetes_logs",
    "The last lines that a pod logged, newest first. For more than one pod or for filters use Loki.",
    object_schema(
        ["namespace", "pod"],
        namespace=_name_argument("Namespace"),
        pod=_name_argument("Name of the pod"),
        container=_name_argument("Container; needed if the pod has several"),
        tail_lines=whole_argument("How many lines from the end", 100, 1, 1_000),
    ),
)
HISTORY = ToolSpec(
    "kubernetes_rollout_history",
    "The revisions of a deployment, newest first: when, image, change cause, and what each one changed in the pod "
    "template.",
    object_schema(
        ["namespace", "deployment"],
        namespace=_name_argument("Namespace"),
        deployment=_name_argument("Name of the deployment"),
    ),
)


class Cluster:
    """One API server. Use it with `async with`; its client is imported, in a thread, and made with the first call."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._loading: asyncio.Future[Any] | None = None
        self._api: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._api is not None:
            await self._api.close()

    async def call(self, group: str, method: str, *where: str, **given: Any) -> aiohttp.ClientResponse:
        """One call of the client."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(imported, CLIENT))
        module = await asyncio.shield(self._loading)
        if self._api is None:
            self._api = self._make(module)
        response: aiohttp.ClientResponse = await getattr(module.GROUPS[group](self._api), method)(*where, **given)
        return response


def connect(host: str, token: str | None = None, ca_file: str | None = None, verify_tls: bool = True) -> Cluster:
    """What reaches one API server."""
    return Cluster(lambda module: module.client(host, token, ca_file, verify_tls))


def tools(api: Cluster, now: Callable[[], float]) -> list[Tool]:
    """The tools for one cluster; `now` gives seconds since the epoch."""
    reader = Reader(api, now)
    return [
        ReadTool(GET, reader.get, reader.check),
        ReadTool(EVENTS, reader.events, reader.check),
        ReadTool(LOGS, reader.logs, reader.check),
        ReadTool(HISTORY, reader.history, reader.check),
    ]


@dataclass(frozen=True, slots=True)
class Reader:
    """What the tools do. Every method raises only ToolError."""

    api: Cluster
    now: Callable[[], float]

    async def check(self) -> object:
        return await self._json(self._read("version", "get_code"), longest_s=HEALTH_S)

    async def get(self, arguments: Arguments) -> ToolOutput:
        kind, namespace, name = arguments["kind"], arguments.get("namespace"), arguments.get("name")
        if kind not in CLUSTER_WIDE and namespace is None:
            raise ToolError(f"kubernetes_get: {kind} need a namespace.")
        where = [] if kind in CLUSTER_WIDE else [str(namespace)]
        if name is not None:
            return ToolOutput(object_text(await self._one(kind, name, *where)))
        found = await self._list(kind, *where)
        place = f"in {namespace}" if where else "in the cluster"
        return ToolOutput(objects_text(kind, place, found, self.now()))

    async def events(self, arguments: Arguments) -> ToolOutput:
        namespace, name = arguments["namespace"], arguments.get("name")
        found = await self._json(self._read("core", "list_namespaced_event"), namespace, limit=PAGE)
        return ToolOutput(events_text(found, namespace, name))

    async def logs(self, arguments: Arguments) -> ToolOutput:
        pod, lines = arguments["pod"], arguments["tail_lines"]
        chosen = {"container": arguments["container"]} if "container" in arguments else {}
        read = self._read("core", "read_namespaced_pod_log")
        answer = await self._answer(
            read, pod, arguments["namespace"], tail_lines=lines, timestamps=True, longest_s=LONGEST_S, **chosen
        )
        return ToolOutput(logs_text(answer.text, pod, lines))

    async def history(self, arguments: Arguments) -> ToolOutput:
        namespace, name = arguments["namespace"], arguments["deployment"]
        deployment = await self._one("deployments", name, namespace)
        wanted = dig(deployment, "spec", "selector", "matchLabels", default={})
        selector = ",".join(f"{key}={value}" for key, value in wanted.items()) if isinstance(wanted, dict) else ""
        sets = await self._list("replicasets", namespace, label_selector=selector)
        return ToolOutput(history_text(deployment, items(sets), self.now()))

    def _read(self, group: str, method: str) -> Callable[..., Any]:
        return partial(self.api.call, group, method)

    async def _one(self, kind: str, name: str, *where: str) -> Object:
        group, _, method = KINDS[kind]
        found = await self._json(self._read(group, method), name, *where)
        if not isinstance(found, dict):
            raise ToolError(f"{NAME} answered in an unknown shape: an object was expected.")
        return found

    async def _list(self, kind: str, *where: str, **query: Any) -> Any:
        group, method, _ = KINDS[kind]
        return await self._json(self._read(group, method), *where, limit=PAGE, **query)

    async def _json(self, method: Callable[..., Any], *where: str, longest_s: float = LONGEST_S, **query: Any) -> Any:
        return decoded(NAME, await self._answer(method, *where, longest_s=longest_s, **query))

    async def _answer(self, method: Callable[..., Any], *where: str, longest_s: float, **query: Any) -> Answer:
        """One call of the client, its answer unread by it. Raises ToolError for everything but a 200."""
        limit = aiohttp.ClientTimeout(total=longest_s)
        try:
            response: aiohttp.ClientResponse = await method(
                *where, **query, _preload_content=False, _request_timeout=limit
            )
            async with response:
                answer = await whole(response, NAME)
        except TimeoutError as error:
            raise ToolError(f"{NAME} did not answer within {longest_s:g} s.") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(NAME, error) from error
        if answer.status != 200:
            raise refused(NAME, answer)
        return answer
