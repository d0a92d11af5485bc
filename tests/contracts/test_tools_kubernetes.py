"""What the model reads when it asks Kubernetes, in the incident of the playground."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.playground.world import World
from bot.tools import kubernetes
from bot.tools.kubernetes_api import Api
from bot.tools.kubernetes_describe import describe_text
from bot.tools.kubernetes_diff import template_diff
from bot.tools.kubernetes_history import history_text
from bot.tools.kubernetes_objects import KINDS, items
from bot.tools.kubernetes_text import COLUMNS, events_text, object_text, objects_text
from core.errors import ToolError
from core.ports import Tool

FIXED = datetime(2026, 3, 14, 8, 30, tzinfo=UTC).timestamp()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(clock=lambda: FIXED) as running:
        yield running


@pytest.fixture
async def tools(world: World) -> AsyncIterator[dict[str, Tool]]:
    async with kubernetes.connect(world.kubernetes_url, world.token) as api:
        yield {tool.spec.name: tool for tool in kubernetes.tools(api, world.now)}


async def get(tools: dict[str, Tool], **arguments: str) -> str:
    return (await tools["kubernetes_get"].run(arguments)).text


async def test_pods_are_a_table_with_the_newest_first(tools: dict[str, Tool]) -> None:
    head, names, *rows = (await get(tools, kind="pods", namespace="shop")).splitlines()
    assert head == "9 pods in shop, newest first"
    assert names == "name | ready | status | restarts | age | node"
    assert [row.partition("-")[0] for row in rows] == ["gateway"] * 3 + ["catalog"] * 3 + ["checkout"] * 3
    assert rows[0].endswith(" | 1/1 | Running | 0 | 14m50s | web-3")


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("deployments", "gateway | 3/3 | 3 | 42 | images.shop.example/shop/gateway:1.18.4 | PLAT-2291: tighten"),
        ("replicasets", "gateway-"),
        ("services", "checkout | ClusterIP | 10.96.14.41 | 8080->8080 | app=checkout | 210d14h"),
        ("configmaps", "gateway-routes | routes-r39.yaml, routes-r41.yaml, routes-r42.yaml | 200d14h"),
        ("nodes", "web-3 | Ready | 4 | 16384000Ki | v1.34.2 | 240d14h"),
    ],
)
async def test_every_kind_has_a_table_of_its_own(tools: dict[str, Tool], kind: str, row: str) -> None:
    assert f"\n{row}" in await get(tools, kind=kind, namespace="shop")


async def test_one_object_is_yaml_with_its_texts_readable(tools: dict[str, Tool]) -> None:
    text = await get(tools, kind="configmaps", namespace="shop", name="gateway-routes")
    assert "  routes-r42.yaml: |\n    # shop/gateway routes, revision 42\n" in text
    assert "        timeout: 300ms\n" in text
    assert "uid" not in text and "resourceVersion" not in text


async def test_what_is_not_there_is_said(tools: dict[str, Tool]) -> None:
    assert await get(tools, kind="pods", namespace="nowhere") == "No pods in nowhere."
    with pytest.raises(ToolError, match=r'^Kubernetes answered 404: pods "nope" not found$'):
        await get(tools, kind="pods", namespace="shop", name="nope")


@pytest.mark.parametrize("kind", ["pod", "Pod", "po", " PODS "])
async def test_a_kind_is_understood_as_people_write_it(tools: dict[str, Tool], kind: str) -> None:
    assert (await get(tools, kind=kind, namespace="shop")).startswith("9 pods in shop")


async def test_an_unknown_kind_is_told_with_those_there_are(tools: dict[str, Tool]) -> None:
    with pytest.raises(ToolError, match=r"^kubernetes_get: 'cronjob' is no kind that it knows\. The kinds are: "):
        await get(tools, kind="cronjob", namespace="shop")


async def test_secrets_are_refused_in_plain_words(tools: dict[str, Tool], world: World) -> None:
    for tool in ("kubernetes_get", "kubernetes_describe"):
        for kind in ("secrets", "Secret"):
            with pytest.raises(ToolError, match=f"^{tool}: secrets are never read, whoever asks"):
                await tools[tool].run({"kind": kind, "namespace": "shop", "name": "checkout-db"})
    assert world.calls == []


async def test_secrets_are_no_kind_and_names_cannot_leave_their_place(tools: dict[str, Tool], world: World) -> None:
    wrong: list[dict[str, str]] = [
        {"kind": "secrets", "namespace": "shop"},
        {"kind": "secret", "namespace": "shop"},
        {"kind": "pods"},
        {"kind": "pods", "namespace": ".."},
        {"kind": "pods", "namespace": "shop/secrets"},
        {"kind": "pods", "namespace": "shop", "name": "../secrets"},
        {"kind": "pods", "namespace": "shop", "name": ""},
        {"kind": "pods", "namespace": "shop", "name": "?x"},
    ]
    for arguments in wrong:
        with pytest.raises(ToolError, match=r"^kubernetes_get: "):
            await get(tools, **arguments)
    assert world.calls == []


async def test_events_of_a_deployment_include_those_of_its_pods(tools: dict[str, Tool]) -> None:
    text = (await tools["kubernetes_events"].run({"namespace": "shop", "name": "gateway"})).text
    lines = text.splitlines()
    assert lines[0] == "22 events in shop about gateway, newest first"
    times = [line.split(" | ")[0] for line in lines[2:]]
    assert times == sorted(times, reverse=True)
    assert "ConfigMap/gateway-routes | Updated | ConfigMap gateway-routes updated by deploybot: PLAT-2291" in text
    assert "Deployment/gateway | ScalingReplicaSet | Scaled up replica set gateway-" in text
    assert "checkout" not in text


async def test_no_event_is_said_with_its_reason(tools: dict[str, Tool]) -> None:
    text = (await tools["kubernetes_events"].run({"namespace": "default"})).text
    assert text == "No events in default. The cluster forgets them after an hour or so."


async def test_the_rollout_history_says_what_each_revision_changed(tools: dict[str, Tool]) -> None:
    arguments = {"namespace": "shop", "deployment": "gateway"}
    text = (await tools["kubernetes_rollout_history"].run(arguments)).text
    assert text.startswith("deployment shop/gateway: revision 42 is current, 3/3 ready\nlast rollout: ReplicaSet")
    image = "images.shop.example/shop/gateway:1.18.4"
    assert f"\n42 | 2026-03-14T14:04:00Z | 16m | 3/3 | {image} | PLAT-2291: tighten upstream timeouts\n41 | " in text
    before, after = (f"--routes=/etc/gateway/routes-r{revision}.yaml" for revision in (41, 42))
    assert f"\n41 -> 42:\n  spec.containers.gateway.args.0: {before} -> {after}\n40 -> 41:\n" in text


async def test_the_rollout_history_of_nothing_is_a_tool_error(tools: dict[str, Tool]) -> None:
    with pytest.raises(ToolError, match=r'deployments\.apps "nope" not found'):
        await tools["kubernetes_rollout_history"].run({"namespace": "shop", "deployment": "nope"})


async def test_the_logs_of_a_pod_come_newest_first(tools: dict[str, Tool]) -> None:
    table = await get(tools, kind="pods", namespace="shop")
    pod = table.splitlines()[2].split(" | ")[0]
    head, *lines = (
        await tools["kubernetes_logs"].run({"namespace": "shop", "pod": pod, "tail_lines": 20})
    ).text.splitlines()
    assert head == f"20 lines of {pod}, newest first (the last 20; there may be more)"
    times = [line.split()[0] for line in lines]
    assert len(times) == 20 and times == sorted(times, reverse=True)
    with pytest.raises(ToolError, match=f"container sidecar is not valid for pod {pod}"):
        await tools["kubernetes_logs"].run({"namespace": "shop", "pod": pod, "container": "sidecar"})


async def test_more_lines_than_there_may_be_are_clamped_and_odd_numbers_refused(tools: dict[str, Tool]) -> None:
    pod = (await get(tools, kind="pods", namespace="shop")).splitlines()[2].split(" | ")[0]
    asked = {"namespace": "shop", "pod": pod}
    text = (await tools["kubernetes_logs"].run({**asked, "tail_lines": 1_000_000_000})).text
    assert 100 < int(text.split()[0]) <= 1_000 and f" lines of {pod}, newest first" in text.splitlines()[0]
    for wrong in ({"tail_lines": -1}, {"tail_lines": "20"}, {"previous": "false"}):
        with pytest.raises(ToolError, match=r"^kubernetes_logs: argument "):
            await tools["kubernetes_logs"].run({**asked, **wrong})


async def test_the_logs_before_a_restart_can_be_asked_for(tools: dict[str, Tool]) -> None:
    pod = (await get(tools, kind="pods", namespace="shop")).splitlines()[2].split(" | ")[0]
    with pytest.raises(ToolError, match=r'previous terminated container "gateway" in pod "gateway-.*" not found'):
        await tools["kubernetes_logs"].run({"namespace": "shop", "pod": pod, "previous": True})


async def test_only_warnings_leaves_out_what_is_normal(tools: dict[str, Tool]) -> None:
    text = (await tools["kubernetes_events"].run({"namespace": "shop", "only_warnings": True})).text
    rows = text.splitlines()[2:]
    assert rows and all(" | Warning | " in row for row in rows)


async def test_events_are_read_over_several_pages_and_what_is_left_is_said(world: World) -> None:
    async with kubernetes.connect(world.kubernetes_url, world.token) as cluster:
        at_once, paged, cut = [await Api(cluster, page).events("shop") for page in (500, 20, 5)]
    assert len(at_once["items"]) > 40 and at_once["items"] == paged["items"]
    assert "there are more" not in events_text(paged, "shop", None)
    assert len(cut["items"]) == 20
    assert events_text(cut, "shop", None).endswith("[the list was cut by the API: there are more]")


# --- describe ----------------------------------------------------------------------------------------------------


async def describe(tools: dict[str, Tool], **arguments: str) -> str:
    return (await tools["kubernetes_describe"].run(arguments)).text


async def test_a_deployment_is_described_with_its_pods_conditions_and_events(tools: dict[str, Tool]) -> None:
    text = await describe(tools, kind="deployment", namespace="shop", name="gateway")
    lines = text.splitlines()
    assert lines[0].startswith("deployment shop/gateway, ")
    assert "replicas: 3/3 ready, 3 updated, 3 available" in lines
    assert "revision: 42" in lines and "change cause: PLAT-2291: tighten upstream timeouts" in lines
    assert "strategy: RollingUpdate (maxSurge 1, maxUnavailable 0)" in lines
    assert "container gateway: images.shop.example/shop/gateway:1.18.4" in lines
    assert "  args: --routes=/etc/gateway/routes-r42.yaml" in lines
    assert "  limits: memory=1Gi" in lines and "volumes: routes (configMap gateway-routes)" in lines
    assert "Available | True | - | MinimumReplicasAvailable | -" in lines
    assert "pods (3, newest first)" in lines
    assert "22 events in shop about gateway, newest first" in lines
    assert "[7 more events not shown: give the name of an object]" in lines


async def test_a_pod_is_described_with_the_state_of_its_containers(tools: dict[str, Tool]) -> None:
    pod = (await get(tools, kind="pods", namespace="shop")).splitlines()[2].split(" | ")[0]
    text = await describe(tools, kind="pod", namespace="shop", name=pod)
    assert f"pod shop/{pod}, 14m50s old" in text
    assert "owned by: ReplicaSet/gateway-" in text
    assert "state of gateway: ready, running 14m43s ago, restarted 0 times" in text


async def test_a_node_is_described_without_a_namespace(tools: dict[str, Tool]) -> None:
    text = await describe(tools, kind="node", name="web-3")
    assert text.startswith("node web-3, 240d14h old") and "allocatable: cpu=3800m, memory=15360000Ki" in text
    assert text.endswith("No events about web-3. The cluster forgets them after an hour or so.")


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        ({"kind": "configmap", "namespace": "shop", "name": "gateway-routes"}, "keys: routes-r39.yaml ("),
        ({"kind": "service", "namespace": "shop", "name": "checkout"}, "selector: app=checkout"),
        ({"kind": "job", "namespace": "ops", "name": "nightly-backup-29341"}, "status: 1 active"),
        ({"kind": "sts", "namespace": "ops", "name": "deploybot"}, "GIT_TOKEN (from secret deploybot-git/token)"),
    ],
)
async def test_other_kinds_are_described_by_what_matters(
    tools: dict[str, Tool], arguments: dict[str, str], row: str
) -> None:
    assert row in await describe(tools, **arguments)


def test_values_of_the_environment_are_shown_nowhere() -> None:
    env = [{"name": "DB_PASSWORD", "value": "hunter2-and-more"}, {"name": "MODE", "value": "fast-lane"}]
    template = {"spec": {"containers": [{"name": "a", "env": env}], "initContainers": [{"name": "b", "env": env}]}}
    one = {
        "metadata": {"name": "x", "namespace": "shop", "uid": "u"},
        "spec": {"template": template, **template["spec"]},
    }
    sets: list[dict[str, Any]] = []
    for number, value in ((1, "hunter2-and-more"), (2, "another-word")):
        changed = json.loads(json.dumps(template).replace("hunter2-and-more", value))
        note = {"annotations": {"deployment.kubernetes.io/revision": str(number)}, "ownerReferences": [{"uid": "u"}]}
        sets.append({"metadata": note, "spec": {"template": changed}})
    texts = [object_text(one), history_text(one, sets, FIXED), describe_text(KINDS["pods"], one, [], FIXED)]
    texts.append(describe_text(KINDS["deployments"], one, [], FIXED))
    diff = template_diff(sets[0]["spec"]["template"], sets[1]["spec"]["template"], "1", "2")
    for text in (*texts, diff):
        assert "DB_PASSWORD" in text
        assert not any(value in text for value in ("hunter2", "another-word", "fast-lane"))
    assert "spec.containers.a.env.DB_PASSWORD.value: [redacted] -> [redacted]" in texts[1]
    assert "-      value: '[redacted]'\n+      value: '[redacted, another value]'\n" in diff


def test_a_crashed_container_is_described_with_what_ended_it() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-03-14T08:00:00Z"}}
    status = {
        "name": "a",
        "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": ended,
    }
    text = describe_text(KINDS["pods"], {"metadata": {}, "status": {"containerStatuses": [status]}}, [], FIXED)
    assert (
        "state of a: not ready, waiting (CrashLoopBackOff), restarted 7 times, "
        "before that terminated with exit code 137 (OOMKilled) 30m ago"
    ) in text


async def test_what_cannot_be_read_of_a_description_is_said_and_the_rest_is_told(
    tools: dict[str, Tool], world: World
) -> None:
    world.fail("kubernetes", 403, match="/events")
    world.fail("kubernetes", 403, match="/pods")
    text = await describe(tools, kind="deployment", namespace="shop", name="gateway")
    assert "revision: 42" in text
    assert "\n[its pods can't be read: Kubernetes answered 403: an HTML page" in text
    assert "\n[its events can't be read: Kubernetes answered 403: an HTML page" in text


# --- where it may look -------------------------------------------------------------------------------------------


async def test_only_open_namespaces_can_be_looked_at_and_changed(world: World) -> None:
    async with kubernetes.connect(world.kubernetes_url, world.token) as api:
        tools = {tool.spec.name: tool for tool in kubernetes.tools(api, world.now, namespaces=["shop"])}
        assert (await get(tools, kind="pods", namespace="shop")).startswith("9 pods")
        assert (await get(tools, kind="namespaces")).splitlines()[0] == "1 namespaces in the cluster, newest first"
        world.calls.clear()
        for name, arguments in (
            ("kubernetes_get", {"kind": "pods", "namespace": "ops"}),
            ("kubernetes_describe", {"kind": "namespace", "name": "ops"}),
            ("kubernetes_logs", {"namespace": "ops", "pod": "deploybot-0"}),
            ("kubernetes_rollout_restart", {"namespace": "ops", "name": "deploybot", "from_revision": "1"}),
        ):
            with pytest.raises(ToolError, match=r"not one of \['shop'\]|only shop are open"):
                await tools[name].run(arguments)
        assert world.calls == []


async def test_a_wrong_token_is_told_by_health_and_by_the_tools(world: World) -> None:
    async with kubernetes.connect(world.kubernetes_url, "wrong") as api:
        first, *_ = kubernetes.tools(api, world.now)
        assert await first.health() == "Kubernetes answered 401: Unauthorized"
        with pytest.raises(ToolError, match="answered 401: Unauthorized"):
            await first.run({"kind": "pods", "namespace": "shop"})


async def test_health_is_none_when_the_api_answers(tools: dict[str, Tool]) -> None:
    assert [await tool.health() for tool in tools.values()] == [None] * 8


def test_a_pod_that_crashes_says_so_in_its_row() -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"ready": False, "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"reason": "OOMKilled"}}}
        ],
    }  # fmt: skip
    text = objects_text("pods", "in shop", {"items": [{"metadata": {"name": "a"}, "status": status}]}, FIXED)
    assert text.endswith("a | 0/1 | CrashLoopBackOff | 7 (last: OOMKilled) | - | -")


def test_a_node_under_pressure_says_so_in_its_row() -> None:
    conditions = [{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"}]
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": {"conditions": conditions}}
    text = objects_text("nodes", "in the cluster", {"items": [node]}, FIXED)
    assert "\nn | NotReady,SchedulingDisabled,DiskPressure | " in text


def test_what_the_api_holds_back_is_said() -> None:
    found = {"metadata": {"continue": "x"}, "items": [{"metadata": {"name": f"p{n}"}} for n in range(70)]}
    text = objects_text("pods", "in shop", found, FIXED)
    assert "[10 more pods not shown: ask for one by name]" in text
    assert text.endswith("[the list was cut by the API: there are more]")


def test_an_applied_configuration_and_binary_data_are_not_repeated() -> None:
    note = "kubectl.kubernetes.io/last-applied-configuration"
    text = object_text({"metadata": {"annotations": {note: "{}", "a": "b"}}, "binaryData": {"k": "AAAA"}})
    assert "last-applied" not in text and "a: b" in text and "k: (3 bytes, not shown)" in text


KEYS = st.sampled_from(
    ["metadata", "spec", "status", "items", "containers", "conditions", "annotations", "labels", "name", "type",
     "data", "ports", "selector", "template", "containerStatuses", "state", "waiting", "reason", "ownerReferences",
     "uid", "involvedObject", "series", "count", "lastTimestamp", "restartCount", "binaryData", "matchLabels",
     "capacity", "deployment.kubernetes.io/revision", "creationTimestamp", "continue", "x"]
)  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("2026-03-14T14:04:00Z")
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25
)


@given(st.lists(st.dictionaries(KEYS, JSON, max_size=6), max_size=4), JSON)
def test_no_object_however_odd_raises(objects: list[dict[str, Any]], rest: Any) -> None:
    found = json.loads(json.dumps({"items": [*objects, rest], "metadata": rest}))
    for kind in COLUMNS:
        assert objects_text(kind, "here", found, FIXED)
    assert events_text(found, "shop", None) and events_text(found, "shop", "x")
    for one in items(found):
        assert object_text(one) and history_text(one, items(found), FIXED)
        assert template_diff(one, {}, "a", "b") or one == {}
        for kind in KINDS.values():
            assert describe_text(kind, one, items(found), FIXED)
