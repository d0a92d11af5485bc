"""Kubernetes: objects, events, logs of pods, and what each rollout of a deployment changed.

Answers are read as JSON and not as the client's models: a cluster newer or odder than the client must not become
an exception. Secrets are no kind that this tool knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient, AppsV1Api, Configuration, CoreV1Api, VersionApi

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
PAGE = 500
NAME_PATTERN = "^[a-z0-9][-a-z0-9.]{0,251}$"

# kind: which API, the method that lists, the method that reads one.
KINDS: Mapping[str, tuple[type[CoreV1Api] | type[AppsV1Api], str, str]] = {
    "pods": (CoreV1Api, "list_namespaced_pod", "read_namespaced_pod"),
    "deployments": (AppsV1Api, "list_namespaced_deployment", "read_namespaced_deployment"),
    "replicasets": (AppsV1Api, "list_namespaced_replica_set", "read_namespaced_replica_set"),
    "services": (CoreV1Api, "list_namespaced_service", "read_namespaced_service"),
    "configmaps": (CoreV1Api, "list_namespaced_config_map", "read_namespaced_config_map"),
    "nodes": (CoreV1Api, "list_node", "read_node"),
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


def connect(host: str, token: str | None = None, ca_file: str | None = None, verify_tls: bool = True) -> ApiClient:
    """A client for one API server, with as many connections as there are calls. Close it, or use it with
    `async with`; it needs a running event loop.
    """
    bearer = {"BearerToken": token} if token else None
    settings = Configuration(host=host.rstrip("/"), api_key=bearer, api_key_prefix={"BearerToken": "Bearer"})
    settings.ssl_ca_cert = ca_file
    settings.verify_ssl = verify_tls
    settings.connection_pool_maxsize = 0
    return ApiClient(settings)


def tools(api: ApiClient, now: Callable[[], float]) -> list[Tool]:
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

    api: ApiClient
    now: Callable[[], float]

    async def check(self) -> object:
        return await self._json(VersionApi(self.api).get_code, longest_s=HEALTH_S)

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
        found = await self._json(CoreV1Api(self.api).list_namespaced_event, namespace, limit=PAGE)
        return ToolOutput(events_text(found, namespace, name))

    async def logs(self, arguments: Arguments) -> ToolOutput:
        pod, lines = arguments["pod"], arguments["tail_lines"]
        chosen = {"container": arguments["container"]} if "container" in arguments else {}
        read = CoreV1Api(self.api).read_namespaced_pod_log
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

    async def _one(self, kind: str, name: str, *where: str) -> Object:
        group, _, method = KINDS[kind]
        found = await self._json(getattr(group(self.api), method), name, *where)
        if not isinstance(found, dict):
            raise ToolError(f"{NAME} answered in an unknown shape: an object was expected.")
        return found

    async def _list(self, kind: str, *where: str, **query: Any) -> Any:
        group, method, _ = KINDS[kind]
        return await self._json(getattr(group(self.api), method), *where, limit=PAGE, **query)

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
