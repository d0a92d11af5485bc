"""Changes of what runs in the cluster: what a person is shown, what happens, and what never happens by surprise."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.playground.world import World
from bot.tools import kubernetes
from bot.tools.kubernetes_api import Cluster
from bot.tools.kubernetes_objects import KINDS, Object
from bot.tools.kubernetes_plans import restart, rollback, scale
from core.errors import OutcomeUnknown, ToolError
from core.ports import ChangeTool, Tier
from tests.support.processes import until
from tests.support.world import FIXED, FIXTURES, Clock

clock, world, session, prometheus, values, loki, lines, kubernetes_api = FIXTURES

GATEWAY = "/apis/apps/v1/namespaces/shop/deployments/gateway"
BACK = {"namespace": "shop", "deployment": "gateway", "from_revision": 42}
AGAIN = {"namespace": "shop", "name": "gateway", "from_revision": "42"}
MORE = {"namespace": "shop", "name": "catalog", "from_replicas": 3, "replicas": 5}
Tools = dict[str, ChangeTool]


class Meddled(Cluster):
    """A cluster in which something happens right before a patch is sent, or to its answer."""

    def __init__(self, world: World, before: Callable[[], Any] = lambda: None, lost: bool = False) -> None:
        super().__init__(lambda module: module.by_address(world.kubernetes_url, world.token, None, True))
        self._before, self._lost = before, lost

    async def call(self, group: str, method: str, *where: str, **given: Any) -> aiohttp.ClientResponse:
        if not method.startswith("patch"):
            return await super().call(group, method, *where, **given)
        self._before()
        response = await super().call(group, method, *where, **given)
        if self._lost:
            response.close()
            raise aiohttp.ServerDisconnectedError
        return response


def changes(cluster: Cluster, world: World, most_replicas: int = 20) -> Tools:
    found = kubernetes.tools(cluster, world.now, most_replicas=most_replicas)
    return {tool.spec.name: tool for tool in found if isinstance(tool, ChangeTool)}


@pytest.fixture
async def tools(world: World) -> AsyncIterator[Tools]:
    async with kubernetes.connect(world.kubernetes_url, world.token) as cluster:
        yield changes(cluster, world)


@pytest.fixture
def patches(world: World) -> Callable[[], int]:
    return lambda: sum(call.method == "PATCH" for call in world.calls)


async def test_what_changes_the_cluster_needs_an_approval_and_can_be_previewed(tools: Tools) -> None:
    assert {name: tool.spec.tier for name, tool in tools.items()} == {
        "kubernetes_rollback": Tier.WRITE,
        "kubernetes_rollout_restart": Tier.WRITE,
        "kubernetes_scale": Tier.WRITE,
    }
    assert [await tool.health() for tool in tools.values()] == [None] * 3


# --- rollback ----------------------------------------------------------------------------------------------------


async def test_a_rollback_is_shown_as_the_difference_of_the_pod_templates(
    tools: Tools, patches: Callable[[], int]
) -> None:
    shown = await tools["kubernetes_rollback"].preview(BACK)
    assert shown == (
        "Roll back deployment shop/gateway: revision 42 → the template of revision 41, as a new revision\n"
        "42: PLAT-2291: tighten upstream timeouts, first used 16m ago\n"
        "41: PLAT-2267: route /catalog/v2, first used 6d4h ago\n"
        "pods are replaced by RollingUpdate (maxSurge 1, maxUnavailable 0)\n"
        "Only the pod template goes back: config maps, secrets and databases that it uses stay as they are.\n"
        "--- shop/gateway revision 42\n"
        "+++ shop/gateway revision 41\n"
        "@@ -21,5 +21,5 @@\n"
        "       periodSeconds: 10\n"
        "     args:\n"
        "-    - --routes=/etc/gateway/routes-r42.yaml\n"
        "+    - --routes=/etc/gateway/routes-r41.yaml\n"
        "     volumeMounts:\n"
        "     - name: routes"
    )
    assert patches() == 0


async def test_a_rollback_ends_the_incident_and_says_what_to_check(
    tools: Tools, clock: Clock, values: Callable[..., Any], kubernetes_api: Callable[..., Any]
) -> None:
    found = await tools["kubernetes_rollback"].run(BACK)
    done = "deployment shop/gateway: rolled back from revision 42 to the template of revision 41."
    assert found.text.startswith(f"{done} The API server has taken it; ")
    assert "Check with kubernetes_describe (deployments, gateway)" in found.text
    _, deployment = await kubernetes_api(GATEWAY)
    notes = deployment["metadata"]["annotations"]
    assert notes["deployment.kubernetes.io/revision"] == "43"
    assert notes["kubernetes.io/change-cause"] == "rollback to revision 41 (PLAT-2267: route /catalog/v2)"
    clock.t += 600
    assert await values('ALERTS{alertname="CheckoutHigh5xx"}', "alertname") == {}


async def test_a_rollback_can_name_its_revision(tools: Tools, kubernetes_api: Callable[..., Any]) -> None:
    shown = await tools["kubernetes_rollback"].preview({**BACK, "to_revision": 39})
    assert (
        "-    image: images.shop.example/shop/gateway:1.18.4\n+    image: images.shop.example/shop/gateway:1.18.2\n"
        in (re.sub(r"^([-+]) +", r"\1    ", shown, flags=re.MULTILINE))
    )
    await tools["kubernetes_rollback"].run({**BACK, "to_revision": 39})
    _, deployment = await kubernetes_api(GATEWAY)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":1.18.2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"deployment": "nope"}, 'deployments.apps "nope" not found'),
        ({"namespace": "ops"}, 'deployments.apps "gateway" not found'),
        ({"to_revision": 7}, "has no revision 7. The cluster keeps these: 42, 41, 40, 39."),
        ({"to_revision": 42}, "is at revision 42 already: nothing to roll back."),
        ({"from_revision": 41}, "runs revision 42 now, not 41, so nothing was changed."),
        ({"from_revision": "42"}, "argument from_revision: '42' is not of type 'integer'"),
        ({"to_revision": -1}, "argument to_revision: -1 is less than the minimum of 1"),
        ({"to_revision": True}, "argument to_revision: True is not of type 'integer'"),
        ({"namespace": "../../secrets"}, "argument namespace: '../../secrets' does not match"),
        ({"dry_run": "true"}, "'dry_run' was unexpected"),
    ],
)
async def test_an_impossible_rollback_is_refused_in_preview_and_run(
    tools: Tools, patches: Callable[[], int], arguments: dict[str, Any], words: str
) -> None:
    for method in (tools["kubernetes_rollback"].preview, tools["kubernetes_rollback"].run):
        with pytest.raises(ToolError, match=re.escape(words)):
            await method({**BACK, **arguments})
    assert patches() == 0


async def test_what_was_approved_is_not_applied_to_a_later_rollout(
    tools: Tools, world: World, clock: Clock, patches: Callable[[], int]
) -> None:
    await tools["kubernetes_rollback"].preview(BACK)
    world.roll_back("gateway", 40)
    clock.t += 60
    with pytest.raises(ToolError, match=r"runs revision 43 now, not 42, so nothing was changed\. Look again"):
        await tools["kubernetes_rollback"].run(BACK)
    assert patches() == 0


@pytest.mark.parametrize(
    ("name", "arguments"), [("kubernetes_rollback", BACK), ("kubernetes_rollout_restart", AGAIN)]
)
async def test_a_rollout_in_the_very_moment_of_the_change_wins(
    world: World, kubernetes_api: Callable[..., Any], name: str, arguments: dict[str, Any]
) -> None:
    async with Meddled(world, before=lambda: world.roll_back("gateway", 40)) as cluster:
        with pytest.raises(ToolError, match="in this very moment, so nothing was changed by this call"):
            await changes(cluster, world)[name].run(arguments)
    assert len(world.incident.rollouts["gateway"]) == 5
    _, deployment = await kubernetes_api(GATEWAY)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "--routes=/etc/gateway/routes-r39.yaml"
    ]


async def test_another_scale_in_the_very_moment_of_the_change_wins(world: World) -> None:
    async with Meddled(world, before=lambda: world.incident.scale("catalog", 9, world.now())) as cluster:
        with pytest.raises(ToolError, match="was changed by somebody else in this very moment"):
            await changes(cluster, world)["kubernetes_scale"].run(MORE)
    assert world.incident.replicas("catalog", world.now()) == 9


# --- restart -----------------------------------------------------------------------------------------------------


async def test_a_restart_is_shown_with_what_it_replaces_and_how(tools: Tools) -> None:
    shown = await tools["kubernetes_rollout_restart"].preview(AGAIN)
    assert shown.splitlines()[:3] == [
        "Restart deployment shop/gateway: every pod is replaced by a new one of the same template (revision 42, "
        "images.shop.example/shop/gateway:1.18.4)",
        "ready now: 3/3",
        "pods are replaced by RollingUpdate (maxSurge 1, maxUnavailable 0)",
    ]
    assert "\n+    kubectl.kubernetes.io/restartedAt: '(that moment)'\n" in shown


@pytest.mark.parametrize("revision", ["42", 42])
async def test_a_restart_replaces_the_pods(
    tools: Tools, clock: Clock, kubernetes_api: Callable[..., Any], revision: str | int
) -> None:
    found = await tools["kubernetes_rollout_restart"].run({**AGAIN, "from_revision": revision})
    assert found.text.startswith("deployment shop/gateway: restart begun, every pod is being replaced.")
    clock.t += 60
    _, pods = await kubernetes_api("/api/v1/namespaces/shop/pods", labelSelector="app=gateway")
    assert [pod["metadata"]["creationTimestamp"] > "2026-03-14T14:19" for pod in pods["items"]] == [True] * 3


async def test_a_stateful_set_is_restarted_by_its_own_revision(
    tools: Tools, world: World, clock: Clock, kubernetes_api: Callable[..., Any]
) -> None:
    async with kubernetes.connect(world.kubernetes_url, world.token) as cluster:
        listed = await kubernetes.tools(cluster, world.now)[0].run({"kind": "statefulsets", "namespace": "ops"})
    name, ready, _, revision, *_ = listed.text.splitlines()[2].split(" | ")
    assert (name, ready) == ("deploybot", "1/1")
    asked = {"namespace": "ops", "kind": "statefulset", "name": name, "from_revision": revision}
    await tools["kubernetes_rollout_restart"].run(asked)
    with pytest.raises(ToolError, match=f"runs revision deploybot-.* now, not {revision}, so nothing was changed"):
        await tools["kubernetes_rollout_restart"].run(asked)
    assert len(world.incident.restarts) == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("kubernetes_rollout_restart", {**AGAIN, "kind": "pods"}, "argument kind: 'pods' is no kind that it knows"),
        ("kubernetes_rollout_restart", {**AGAIN, "kind": "secret"}, "argument kind: secrets are never read"),
        ("kubernetes_rollout_restart", {**AGAIN, "from_revision": ""}, "argument from_revision"),
        ("kubernetes_rollout_restart", {**AGAIN, "name": "nope"}, 'deployments.apps "nope" not found'),
        ("kubernetes_scale", {**MORE, "kind": "daemonsets"}, "argument kind: 'daemonsets' is no kind that it knows"),
        ("kubernetes_scale", {**MORE, "from_replicas": 2}, "is scaled to 3 now, not to 2, so nothing was changed"),
        ("kubernetes_scale", {**MORE, "replicas": 3}, "is scaled to 3 already: nothing to change."),
        ("kubernetes_scale", {**MORE, "replicas": 21}, "argument replicas: 21 is greater than the maximum of 20"),
        ("kubernetes_scale", {**MORE, "replicas": -1}, "argument replicas: -1 is less than the minimum of 0"),
        ("kubernetes_scale", {**MORE, "replicas": 4.5}, "argument replicas: 4.5 is not of type 'integer'"),
        ("kubernetes_scale", {**MORE, "replicas": "5"}, "argument replicas: '5' is not of type 'integer'"),
    ],
)
async def test_an_impossible_change_is_refused_in_preview_and_run(
    tools: Tools, patches: Callable[[], int], tool: str, arguments: dict[str, Any], words: str
) -> None:
    for method in (tools[tool].preview, tools[tool].run):
        with pytest.raises(ToolError, match=re.escape(words)):
            await method(arguments)
    assert patches() == 0


# --- scale -------------------------------------------------------------------------------------------------------


async def test_a_scale_is_shown_as_before_and_after(tools: Tools, patches: Callable[[], int]) -> None:
    assert await tools["kubernetes_scale"].preview(MORE) == (
        "Scale deployment shop/catalog: replicas 3 → 5\nready now: 3/3, images.shop.example/shop/catalog:3.10.0"
    )
    assert patches() == 0


async def test_fewer_replicas_say_how_many_pods_stop_and_none_says_it_loudly(tools: Tools) -> None:
    fewer = await tools["kubernetes_scale"].preview({**MORE, "replicas": 1})
    assert "\n2 of its pods are stopped.\n" in fewer
    none = await tools["kubernetes_scale"].preview({**MORE, "replicas": 0})
    assert none.splitlines()[1] == ("SCALE TO ZERO: no pod of shop/catalog is left, everything that it serves stops.")


async def test_a_scale_changes_the_number_of_pods(
    tools: Tools, clock: Clock, kubernetes_api: Callable[..., Any]
) -> None:
    found = await tools["kubernetes_scale"].run(MORE)
    assert found.text.startswith("deployment shop/catalog: scaled from 3 to 5 replicas.")
    clock.t += 60
    _, pods = await kubernetes_api("/api/v1/namespaces/shop/pods", labelSelector="app=catalog")
    assert len(pods["items"]) == 5


async def test_the_most_replicas_are_the_operators_to_say(world: World) -> None:
    async with kubernetes.connect(world.kubernetes_url, world.token) as cluster:
        tool = changes(cluster, world, most_replicas=4)["kubernetes_scale"]
        with pytest.raises(ToolError, match="5 is greater than the maximum of 4"):
            await tool.run(MORE)


# --- rights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("kubernetes_rollback", BACK), ("kubernetes_rollout_restart", AGAIN), ("kubernetes_scale", MORE)],
)
async def test_nobody_is_asked_about_what_the_cluster_would_not_let_us_do(
    world: World, tools: Tools, name: str, arguments: dict[str, Any]
) -> None:
    world.may_change = False
    with pytest.raises(ToolError, match=r"does not let this bot change deployment shop/\w+ \(it may not patch"):
        await tools[name].preview(arguments)
    with pytest.raises(ToolError, match=r"answered 403: .* cannot patch .*\. Nothing was changed"):
        await tools[name].run(arguments)
    assert len(world.incident.rollouts["gateway"]) == 4 and world.incident.replicas("catalog", world.now()) == 3


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_a_cluster_that_does_not_tell_rights_is_believed(world: World, tools: Tools, status: int) -> None:
    world.fail("kubernetes", status, match="selfsubjectaccessreviews")
    assert (await tools["kubernetes_scale"].preview(MORE)).startswith("Scale deployment shop/catalog")


# --- when the end is not seen ------------------------------------------------------------------------------------


async def test_a_change_whose_answer_was_lost_is_looked_for_before_it_is_called_unknown(
    world: World, patches: Callable[[], int]
) -> None:
    async with Meddled(world, lost=True) as cluster:
        found = await changes(cluster, world)["kubernetes_rollback"].run(BACK)
    assert "rolled back from revision 42" in found.text
    assert patches() == 1 and len(world.incident.rollouts["gateway"]) == 5


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_a_failure_on_the_way_is_an_unknown_outcome_and_is_not_tried_again(
    world: World, tools: Tools, patches: Callable[[], int], status: int
) -> None:
    world.fail("kubernetes", status, match="fieldManager")
    words = "may have been done or may still happen: check deployment shop/catalog first"
    with pytest.raises(OutcomeUnknown, match=words):
        await tools["kubernetes_scale"].run(MORE)
    assert patches() == 1


async def test_what_the_cluster_refuses_changed_nothing(
    world: World, tools: Tools, patches: Callable[[], int]
) -> None:
    world.fail("kubernetes", 403, match="fieldManager")
    with pytest.raises(ToolError, match=r"^Kubernetes answered 403: .*\. Nothing was changed\.$"):
        await tools["kubernetes_scale"].run(MORE)
    assert patches() == 1


async def test_a_cluster_that_is_not_there_changed_nothing(unused_tcp_port: int) -> None:
    async with kubernetes.connect(f"http://127.0.0.1:{unused_tcp_port}") as cluster:
        tools = {tool.spec.name: tool for tool in kubernetes.tools(cluster, lambda: FIXED)}
        with pytest.raises(ToolError, match="Kubernetes could not be reached"):
            await tools["kubernetes_scale"].run(MORE)


async def test_a_change_that_is_cancelled_while_it_waits_ends_at_once(world: World, tools: Tools) -> None:
    world.slow("kubernetes", 600, match="fieldManager")
    running = asyncio.ensure_future(tools["kubernetes_scale"].run(MORE))
    await until(lambda: any(call.method == "PATCH" for call in world.calls))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.incident.replicas("catalog", world.now()) == 3


# --- plans, from objects alone -----------------------------------------------------------------------------------


def workload(**spec: Any) -> Object:
    notes = {"deployment.kubernetes.io/revision": "7", "deprecated.daemonset.template.generation": "7"}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x:1"}]}}
    metadata = {"name": "x", "namespace": "shop", "uid": "u", "annotations": notes, "generation": 3}
    return {"metadata": metadata, "spec": {"template": template, **spec}, "status": {"observedGeneration": 3}}


DEPLOYMENT, DAEMONS = KINDS["deployments"], KINDS["daemonsets"]


def test_a_daemon_set_is_restarted_by_the_generation_of_its_template() -> None:
    plan = restart(DAEMONS, workload(), "7", FIXED)
    assert plan.steps[-1] == {
        "op": "add",
        "path": "/spec/template/metadata/annotations",
        "value": {"kubectl.kubernetes.io/restartedAt": "2026-03-14T08:30:00Z"},
    }
    assert [step["op"] for step in plan.steps] == ["test", "test", "add"]


def test_notes_of_the_template_survive_a_restart() -> None:
    one = workload()
    one["spec"]["template"]["metadata"]["annotations"] = {"team": "shop"}
    noted = restart(DEPLOYMENT, one, "7", FIXED).steps[-1]["value"]
    assert noted == {"team": "shop", "kubectl.kubernetes.io/restartedAt": "2026-03-14T08:30:00Z"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"paused": True}, "is paused, so a changed template would not be rolled out"),
        ({"updateStrategy": {"type": "OnDelete"}}, "nothing would happen"),
        ({"replicas": 0}, "is scaled to 0: there is no pod to restart"),
    ],
)
def test_a_restart_that_would_do_nothing_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        restart(DEPLOYMENT, workload(**spec), "7", FIXED)


def test_a_change_that_the_controller_has_not_seen_is_waited_for() -> None:
    one = workload()
    one["metadata"]["generation"] = 4
    with pytest.raises(ToolError, match="its controller has not seen it yet"):
        restart(DEPLOYMENT, one, "7", FIXED)
    with pytest.raises(ToolError, match="its controller has not seen it yet"):
        rollback(DEPLOYMENT, one, [], 7, None, FIXED)


def test_the_first_revision_has_nothing_before_it() -> None:
    with pytest.raises(ToolError, match="has no revision before 7, so there is nothing to roll back to"):
        rollback(DEPLOYMENT, workload(), [], 7, None, FIXED)


def test_who_may_undo_a_change_is_said() -> None:
    one = workload(strategy={"type": "Recreate"})
    one["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = "shop:apps/Deployment:shop/x"
    shown = restart(DEPLOYMENT, one, "7", FIXED).shown
    assert "\nRecreate: all its pods stop before the first new one starts.\n" in shown
    assert "\nArgo CD keeps it as it is written elsewhere and may undo this: change it there too.\n" in shown
    target = {"scaleTargetRef": {"kind": "Deployment", "name": "x"}, "minReplicas": 2, "maxReplicas": 9}
    others = {"scaleTargetRef": {"kind": "Deployment", "name": "y"}, "maxReplicas": 9}
    scalers = [{"metadata": {"name": name}, "spec": spec} for name, spec in (("mine", target), ("other", others))]
    shown = scale(DEPLOYMENT, workload(replicas=3), 3, 4, scalers, FIXED).shown
    assert "The autoscaler mine manages it (2-9) and may change it back." in shown and "other" not in shown
    unknown = scale(DEPLOYMENT, workload(replicas=3), 3, 4, None, FIXED).shown
    assert "Whether an autoscaler manages it could not be read." in unknown


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("7"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "template", "annotations", "labels", "replicas", "containers", "env",
                 "name", "value", "deployment.kubernetes.io/revision", "ownerReferences", "uid", "strategy", "type"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ODD), st.lists(ODD, max_size=3))
def test_no_object_however_odd_makes_a_plan_fail_with_more_than_a_tool_error(one: Object, others: list[Any]) -> None:
    sets = [other for other in others if isinstance(other, dict)]
    for plan in (
        lambda: rollback(DEPLOYMENT, one, sets, 7, None, FIXED),
        lambda: restart(DAEMONS, one, "7", FIXED),
        lambda: scale(DEPLOYMENT, one, 1, 2, sets, FIXED),
    ):
        try:
            made = plan()
        except ToolError as error:
            assert str(error)
        else:
            assert made.shown and made.happened(one) in (True, False) and json.dumps(made.steps)


def test_a_password_in_the_arguments_of_a_container_is_not_shown() -> None:
    one, uid = workload(), {"ownerReferences": [{"uid": "u"}]}
    older = workload()
    older["metadata"] |= uid
    older["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "6"}
    older["spec"]["template"]["spec"]["containers"][0]["args"] = ["--db=postgres://app:Hunter2secret@db/shop"]
    shown = rollback(DEPLOYMENT, one, [older], 7, None, FIXED).shown
    assert "+    - --db=postgres://app:[redacted]@db/shop" in shown and "Hunter2" not in shown
