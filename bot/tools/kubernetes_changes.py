"""Restart, scale and roll back what runs pods: looked at first, shown as a diff, sent once, never tried again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from bot.tools import kubernetes_arguments as argument
from bot.tools import kubernetes_plans as plans
from bot.tools.changing import WriteTool
from bot.tools.kubernetes_api import Api
from bot.tools.kubernetes_objects import KINDS, Kind, items, kind_of
from bot.tools.kubernetes_plans import Plan
from bot.tools.shaping import Arguments, object_schema
from core.errors import ToolError
from core.ports import Tier, Tool, ToolOutput, ToolSpec

DEPLOYMENTS = KINDS["deployments"]
RESTARTED = ("deployments", "statefulsets", "daemonsets")
SCALED = ("deployments", "statefulsets")
MOST_REPLICAS = 20
TIMEOUT_S = 30.0
HIGHEST_REVISION = 2**31


def _kind(among: Collection[str]) -> dict[str, Any]:
    return {**argument.kind(tuple(among)), "default": "deployments"}


def _revision(description: str) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": 1, "maximum": HIGHEST_REVISION}


def _rollback(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_rollback",
        "Bring the pod template of an earlier revision of a deployment back (`kubectl rollout undo`). A person "
        "approves it first and sees the difference. Look at kubernetes_rollout_history before.",
        object_schema(
            ["namespace", "deployment", "from_revision"],
            namespace=argument.namespace(open_ones),
            deployment=argument.name("Name of the deployment"),
            from_revision=_revision("The revision that runs now: if another one runs by then, nothing is changed"),
            to_revision=_revision("The revision to go back to; without it the one before from_revision"),
        ),
        Tier.WRITE,
        timeout_s=TIMEOUT_S,
    )


def _restart(open_ones: Collection[str]) -> ToolSpec:
    return ToolSpec(
        "kubernetes_rollout_restart",
        "Replace every pod of a workload by a new one of the same template, as its strategy says (`kubectl rollout "
        "restart`). A person approves it first.",
        object_schema(
            ["namespace", "name", "from_revision"],
            namespace=argument.namespace(open_ones),
            kind=_kind(RESTARTED),
            name=argument.name("Name of the workload"),
            from_revision={
                "type": ["string", "integer"],
                "description": "The revision that runs now, as kubernetes_get lists it: if another one runs by then, "
                "nothing is changed",
                "minimum": 1,
                "minLength": 1,
                "maxLength": 253,
            },
        ),
        Tier.WRITE,
        timeout_s=TIMEOUT_S,
    )


def _scale(open_ones: Collection[str], most: int) -> ToolSpec:
    return ToolSpec(
        "kubernetes_scale",
        f"Change how many pods a workload has, up to {most}. A person approves it first. 0 stops everything that it "
        "serves.",
        object_schema(
            ["namespace", "name", "from_replicas", "replicas"],
            namespace=argument.namespace(open_ones),
            kind=_kind(SCALED),
            name=argument.name("Name of the workload"),
            from_replicas={
                "type": "integer",
                "description": "How many are wanted now: if it is another number by then, nothing is changed",
                "minimum": 0,
            },
            replicas={"type": "integer", "description": "How many are wanted", "minimum": 0, "maximum": most},
        ),
        Tier.WRITE,
        timeout_s=TIMEOUT_S,
    )


def change_tools(
    api: Api, now: Callable[[], float], namespaces: Collection[str] = (), most_replicas: int = MOST_REPLICAS
) -> list[Tool]:
    """The tools that change what runs. `now` gives seconds since the epoch."""
    changer = Changer(api, now)
    return [
        WriteTool(_rollback(namespaces), changer.roll_back, api.check, changer.show_rollback),
        WriteTool(_restart(namespaces), changer.restart, api.check, changer.show_restart),
        WriteTool(_scale(namespaces, most_replicas), changer.scale, api.check, changer.show_scale),
    ]


@dataclass(frozen=True, slots=True)
class Changer:
    """What the tools do. ToolError: nothing was changed. OutcomeUnknown: it was sent, and nobody knows."""

    api: Api
    now: Callable[[], float]

    async def show_rollback(self, arguments: Arguments) -> str:
        plan = await self._rollback(arguments)
        return await self._shown(DEPLOYMENTS, arguments["deployment"], arguments, plan)

    async def show_restart(self, arguments: Arguments) -> str:
        kind, name = _workload(arguments, RESTARTED)
        return await self._shown(kind, name, arguments, await self._restart(kind, name, arguments))

    async def show_scale(self, arguments: Arguments) -> str:
        kind, name = _workload(arguments, SCALED)
        return await self._shown(kind, name, arguments, await self._scale(kind, name, arguments))

    async def roll_back(self, arguments: Arguments) -> ToolOutput:
        namespace, name = arguments["namespace"], arguments["deployment"]
        return await self._change(DEPLOYMENTS, name, namespace, await self._rollback(arguments))

    async def restart(self, arguments: Arguments) -> ToolOutput:
        kind, name = _workload(arguments, RESTARTED)
        return await self._change(kind, name, arguments["namespace"], await self._restart(kind, name, arguments))

    async def scale(self, arguments: Arguments) -> ToolOutput:
        kind, name = _workload(arguments, SCALED)
        return await self._change(kind, name, arguments["namespace"], await self._scale(kind, name, arguments))

    async def _rollback(self, arguments: Arguments) -> Plan:
        deployment, sets = await self.api.rollouts(arguments["namespace"], arguments["deployment"])
        old, wanted = arguments["from_revision"], arguments.get("to_revision")
        return plans.rollback(DEPLOYMENTS, deployment, sets, old, wanted, self.now())

    async def _restart(self, kind: Kind, name: str, arguments: Arguments) -> Plan:
        one = await self.api.one(kind, name, arguments["namespace"])
        return plans.restart(kind, one, str(arguments["from_revision"]), self.now())

    async def _scale(self, kind: Kind, name: str, arguments: Arguments) -> Plan:
        namespace = arguments["namespace"]
        one = await self.api.one(kind, name, namespace)
        try:
            found = await self.api.many(KINDS["horizontalpodautoscalers"], namespace)
        except ToolError:
            found = None
        scalers = items(found) if found is not None else None
        return plans.scale(kind, one, arguments["from_replicas"], arguments["replicas"], scalers, self.now())

    async def _shown(self, kind: Kind, name: str, arguments: Arguments, plan: Plan) -> str:
        """What a person decides on. Nobody is asked about what the cluster would not let us do."""
        namespace = arguments["namespace"]
        if not await self.api.may_patch(kind, name, namespace):
            raise ToolError(
                f"The cluster does not let this bot change {kind.title} {namespace}/{name} (it may not patch "
                f"{kind.plural} there), so nobody was asked. A person must do it, or give it the right."
            )
        return plan.shown

    async def _change(self, kind: Kind, name: str, namespace: str, plan: Plan) -> ToolOutput:
        await self.api.patch(kind, name, namespace, plan.steps, plan.happened)
        return ToolOutput(
            f"{plan.done} The API server has taken it; pods follow in the next minutes. Check with "
            f"kubernetes_describe ({kind.plural}, {name}) that all of them are updated and ready, then look again at "
            "what was wrong before."
        )


def _workload(arguments: Arguments, among: tuple[str, ...]) -> tuple[Kind, str]:
    try:
        return kind_of(arguments["kind"], among), arguments["name"]
    except ToolError as error:
        raise ToolError(f"argument kind: {error}") from error
