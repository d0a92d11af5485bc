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
from bot.tools.kubernetes_text import COLUMNS, events_text, history_text, items, object_text, objects_text
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


async def test_a_wrong_token_is_told_by_health_and_by_the_tools(world: World) -> None:
    async with kubernetes.connect(world.kubernetes_url, "wrong") as api:
        first, *_ = kubernetes.tools(api, world.now)
        assert await first.health() == "Kubernetes answered 401: Unauthorized"
        with pytest.raises(ToolError, match="answered 401: Unauthorized"):
            await first.run({"kind": "pods", "namespace": "shop"})


async def test_health_is_none_when_the_api_answers(tools: dict[str, Tool]) -> None:
    assert [await tool.health() for tool in tools.values()] == [None] * 4


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
