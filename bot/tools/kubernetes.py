"""Kubernetes: objects, events, logs of pods, what each rollout of a deployment changed, and changes of what runs.

Secrets are no kind that these tools know. The changes are in `kubernetes_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bot.tools import kubernetes_arguments as argument
from bot.tools.kubernetes_api import Api, Cluster
from bot.tools.kubernetes_api import connect as connect
from bot.tools.kubernetes_changes import MOST_REPLICAS, change_tools
from bot.tools.kubernetes_describe import OWNED, describe_text
from bot.tools.kubernetes_history import history_text
from bot.tools.kubernetes_objects import KINDS, Kind, Object, items, kind_of, selector_of
from bot.tools.kubernetes_text import events_text, logs_text, object_text, objects_text
from bot.tools.shaping import Arguments, ReadTool, count_argument, object_schema
from core.errors import ToolError
from core.ports import Tool, ToolOutput, ToolSpec

EVENTS_OF_A_DESCRIPTION = 15
MOST_LINES = 1_000


def _get(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_get",
        "List objects of a kind as a table, newest first, or read one as YAML when a name is given. Nodes and "
        "namespaces have no namespace. Secrets are never read, and of environment variables only the names.",
        object_schema(
            ["kind"],
            kind=argument.kind(),
            namespace=argument.namespace(open_ones, "Namespace; needed for every kind but nodes and namespaces"),
            name=argument.name("Name of one object"),
        ),
    )


def _describe(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_describe",
        "One object in short: what its spec says, its conditions, its pods if it has any, and its newest events. "
        "Better than kubernetes_get to find out why something is not well.",
        object_schema(
            ["kind", "name"],
            kind=argument.kind(),
            namespace=argument.namespace(open_ones, "Namespace; needed for every kind but nodes and namespaces"),
            name=argument.name("Name of the object"),
        ),
    )


def _events(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_events",
        "Events of a namespace, newest first; with a name only those of that object and of what it created (a "
        "deployment's replica sets and pods).",
        object_schema(
            ["namespace"],
            namespace=argument.namespace(open_ones),
            name=argument.name("Name of an object"),
            only_warnings={"type": "boolean", "description": "Leave out what is normal", "default": False},
        ),
    )


def _logs(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_logs",
        "The last lines that a pod logged, newest first. For more than one pod or for filters use Loki.",
        object_schema(
            ["namespace", "pod"],
            namespace=argument.namespace(open_ones),
            pod=argument.name("Name of the pod"),
            container=argument.name("Container; needed if the pod has several"),
            tail_lines=count_argument("How many lines from the end", 100, MOST_LINES),
            previous={
                "type": "boolean",
                "description": "Those of the container before its last restart, to see why it crashed",
                "default": False,
            },
        ),
    )


def _history(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_rollout_history",
        "The revisions of a deployment, newest first: when, image, change cause, and what each one changed in the "
        "pod template.",
        object_schema(
            ["namespace", "deployment"],
            namespace=argument.namespace(open_ones),
            deployment=argument.name("Name of the deployment"),
        ),
    )


def tools(
    cluster: Cluster,
    now: Callable[[], float],
    namespaces: Collection[str] = (),
    most_replicas: int = MOST_REPLICAS,
) -> list[Tool]:
    """The tools for one cluster; `now` gives seconds since the epoch. With `namespaces` no other one is open."""
    api = Api(cluster)
    reader = Reader(api, now, frozenset(namespaces))
    return [
        ReadTool(_get(namespaces), reader.get, api.check),
        ReadTool(_describe(namespaces), reader.describe, api.check),
        ReadTool(_events(namespaces), reader.events, api.check),
        ReadTool(_logs(namespaces), reader.logs, api.check),
        ReadTool(_history(namespaces), reader.history, api.check),
        *change_tools(api, now, namespaces, most_replicas),
    ]


@dataclass(frozen=True, slots=True)
class Reader:
    """What the reads do. Every method raises only ToolError."""

    api: Api
    now: Callable[[], float]
    namespaces: frozenset[str]

    async def get(self, arguments: Arguments) -> ToolOutput:
        kind, where = self._place("kubernetes_get", arguments)
        if "name" in arguments:
            return ToolOutput(object_text(await self.api.one(kind, arguments["name"], *where)))
        found = await self.api.many(kind, *where)
        if kind.plural == "namespaces" and self.namespaces:
            found = {"items": [one for one in items(found) if self._is_open(one)]}
        place = f"in {where[0]}" if where else "in the cluster"
        return ToolOutput(objects_text(kind.plural, place, found, self.now()))

    async def describe(self, arguments: Arguments) -> ToolOutput:
        kind, where = self._place("kubernetes_describe", arguments)
        name = arguments["name"]
        one = await self.api.one(kind, name, *where)
        missing: list[str] = []
        pods = await self._pods(kind, one, missing, *where)
        try:
            events = await self._told(kind, name, *where)
        except ToolError as error:
            events = f"[its events can't be read: {error}]"
        return ToolOutput("\n".join([describe_text(kind, one, pods, self.now()), *missing, events]))

    async def _pods(self, kind: Kind, one: Object, missing: list[str], *where: str) -> list[Object]:
        """The pods of a workload; why they can't be read goes into `missing`."""
        selector = selector_of(one) if kind.plural in OWNED else None
        if selector is None:
            return []
        try:
            return items(await self.api.many(KINDS["pods"], *where, label_selector=selector))
        except ToolError as error:
            missing.append(f"[its pods can't be read: {error}]")
            return []

    async def _told(self, kind: Kind, name: str, *where: str) -> str:
        """The events of an object; those of a node are in no namespace of ours."""
        if not where:
            about = {"field_selector": f"involvedObject.kind={kind.title.capitalize()},involvedObject.name={name}"}
            return events_text(await self.api.events("", **about), "", name, EVENTS_OF_A_DESCRIPTION)
        return events_text(await self.api.events(*where), where[0], name, EVENTS_OF_A_DESCRIPTION)

    async def events(self, arguments: Arguments) -> ToolOutput:
        namespace, name = arguments["namespace"], arguments.get("name")
        chosen = {"field_selector": "type=Warning"} if arguments["only_warnings"] else {}
        return ToolOutput(events_text(await self.api.events(namespace, **chosen), namespace, name))

    async def logs(self, arguments: Arguments) -> ToolOutput:
        pod, lines, previous = arguments["pod"], min(arguments["tail_lines"], MOST_LINES), arguments["previous"]
        chosen = {"container": arguments["container"]} if "container" in arguments else {}
        if previous:
            chosen["previous"] = True
        answer = await self.api.answer(
            "core",
            "read_namespaced_pod_log",
            pod,
            arguments["namespace"],
            tail_lines=lines,
            timestamps=True,
            **chosen,
        )
        return ToolOutput(logs_text(answer.text, pod, lines, " before its last restart" if previous else ""))

    async def history(self, arguments: Arguments) -> ToolOutput:
        deployment, sets = await self.api.rollouts(arguments["namespace"], arguments["deployment"])
        return ToolOutput(history_text(deployment, sets, self.now()))

    def _place(self, tool: str, arguments: Arguments) -> tuple[Kind, list[str]]:
        """The kind, and its namespace if it has one. Raises ToolError."""
        try:
            kind = kind_of(arguments["kind"])
        except ToolError as error:
            raise ToolError(f"{tool}: {error}") from error
        if kind.cluster_wide:
            closed = self.namespaces and arguments.get("name") not in (None, *self.namespaces)
            if closed and kind.plural == "namespaces":
                raise ToolError(f"{tool}: only {', '.join(sorted(self.namespaces))} are open to this bot.")
            return kind, []
        if "namespace" not in arguments:
            raise ToolError(f"{tool}: {kind.plural} need a namespace.")
        return kind, [arguments["namespace"]]

    def _is_open(self, one: Object) -> bool:
        return one.get("metadata", {}).get("name") in self.namespaces
