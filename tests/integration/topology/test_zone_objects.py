"""NUMA nodes as NodeResourceTopology and Numatopology objects tell them, once the cluster knows these kinds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import Event, NodeZonesChanged
from hbox_common.kube import CRDS, EVENTS, KubeClient, wait_established
from hbox_common.kube.zones import NODE_RESOURCE_TOPOLOGIES, NUMATOPOLOGIES
from hbox_common.model import NodeZones
from hbox_common.telemetry.metrics import REGISTRY
from hbox_topology.adapters import problems, zoneobjects
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, listening, running


def definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def topology(name: str, *available: object, policy: str = "restricted") -> dict[str, Any]:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [
            {
                "name": f"node-{i}",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": cpus}],
            }
            for i, cpus in enumerate(available)
        ],
    }


NUMATOPOLOGY = {
    "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
    "kind": "Numatopology",
    "metadata": {"name": "n2"},
    "spec": {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"},
        "numares": {"cpu": {"allocatable": "1-3", "capacity": 4}},
        "cpuDetail": {str(cpu): {"numa": cpu // 2} for cpu in range(4)},
    },
}


@asynccontextmanager
async def world(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, *nodes: str
) -> AsyncIterator[tuple[KubeClient, TopologySettings, list[Event]]]:
    """With these nodes and both definitions; what is said of zones."""
    monkeypatch.setattr(zoneobjects, "LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(problems, "EVENT_EVERY_S", 0.05)
    for name in nodes:
        await kube.node(name)
    for resource, kind in ((NODE_RESOURCE_TOPOLOGIES, "NodeResourceTopology"), (NUMATOPOLOGIES, "Numatopology")):
        body = definition(resource.group, resource.version, kind, resource.plural)
        await kube.client.json("POST", CRDS.path(), body=body)
        await wait_established(kube.client, body["metadata"]["name"])
    async with listening(bus, NodeZonesChanged) as heard:
        yield kube.client, TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url), heard


async def put(client: KubeClient, body: dict[str, Any]) -> None:
    """In place of the one that is there."""
    path = NODE_RESOURCE_TOPOLOGIES.path(name=body["metadata"]["name"])
    body["metadata"]["resourceVersion"] = (await client.json("GET", path))["metadata"]["resourceVersion"]
    await client.json("PUT", path, body=body)


async def events(client: KubeClient) -> dict[str, str]:
    items = (await client.json("GET", EVENTS.path("default")))["items"]
    return {one["involvedObject"]["name"]: one["message"] for one in items if one["reason"] == "NodeZonesProblem"}


def hostile(name: str, **fields: Any) -> dict[str, Any]:
    return topology(name, "8", "8") | fields


HOSTILE = {
    "an amount that is none": {"zones": topology("", "many")["zones"]},
    "a number for the zones": {"zones": 7},
    "zones of another shape": {"zones": [{"name": "node-0", "resources": {"cpu": "8"}}]},
    "zones without numbers": {"zones": [{"name": "left", "type": "Node"}, {"name": "right", "type": "Node"}]},
    "two zones of one number": {"zones": [{"name": "node-0", "type": "Node"}, {"name": "socket-0", "type": "Node"}]},
    "attributes of another shape": {"attributes": {"topologyManagerPolicy": "restricted"}},
    "zones without end": {"zones": [{"name": f"node-{i}", "type": "Core"} for i in range(1000)]},
    "more than is read": {
        "zones": [{"name": "node-0", "type": "Node", "resources": [{"name": f"x/{i}"} for i in range(20_000)]}]
    },
}


async def test_objects_that_cannot_be_read_leave_what_they_said_and_whoever_wrote_them_is_told(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {f"n{i}": fields for i, fields in enumerate(HOSTILE.values())}
    good = {name: [5, 2] for name in of}
    async with world(kube, bus, kubeconfig, nats, monkeypatch, *of) as (client, settings, heard):
        async with running(run, settings):
            for name in of:
                await client.json("POST", NODE_RESOURCE_TOPOLOGIES.path(), body=topology(name, "5", "2"))
            await until(lambda: free(heard) == good)
            for name, fields in of.items():
                await put(client, hostile(name, **fields))
            await until(lambda: all(problem(heard, name) for name in of), "the problems are said")
            assert free(heard) == good

            async def have_events() -> bool:
                return (await events(client)).keys() == of.keys()

            await until(have_events, "an Event of each")
            assert metric("hbox_topology_zone_object_problems") == len(of)
        async with running(run, settings):  # another process: what its predecessor said stands
            for name, fields in of.items():
                await put(client, hostile(name, **fields, metadata={"name": name, "labels": {"again": "yes"}}))
            await put(client, topology("n0", "1", "1"))
            await until(lambda: free(heard) == good | {"n0": [1, 1]} and not problem(heard, "n0"), "it can be read again")
            assert all(problem(heard, name) for name in of if name != "n0")
            for name in of:
                await client.json("DELETE", NODE_RESOURCE_TOPOLOGIES.path(name=name))
            await until(lambda: free(heard) == {})
            assert metric("hbox_topology_zone_object_problems") == 0


async def test_objects_of_nodes_that_are_not_there_say_nothing_until_these_come(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoneobjects, "MOST_STRANGERS", 3)
    async with world(kube, bus, kubeconfig, nats, monkeypatch, "n1") as (client, settings, heard), running(run, settings):
        for name in ("a0", "a1", "a2", "n2", "a3", "n1"):
            await client.json("POST", NODE_RESOURCE_TOPOLOGIES.path(), body=topology(name, "5", "2"))
        await until(lambda: free(heard) == {"n1": [5, 2]})
        await kube.node("n2")
        await until(lambda: free(heard) == {"n1": [5, 2], "n2": [5, 2]}, "its object was there before it")
        await kube.delete_node("n2")
        await until(lambda: free(heard) == {"n1": [5, 2]})
        await kube.node("n2")
        await until(lambda: free(heard) == {"n1": [5, 2], "n2": [5, 2]}, "a node that is made again")
        await kube.node("a0")
        await asyncio.sleep(1.0)
        assert free(heard).keys() == {"n1", "n2"}, "of too many the first one was forgotten"


async def test_an_object_that_goes_while_nobody_watches_is_taken_back_at_the_next_start(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(kube, bus, kubeconfig, nats, monkeypatch, "n1", "n2") as (client, settings, heard):
        async with running(run, settings):
            for name in ("n1", "n2"):
                await client.json("POST", NODE_RESOURCE_TOPOLOGIES.path(), body=topology(name, "5", "2"))
            await until(lambda: free(heard) == {"n1": [5, 2], "n2": [5, 2]})
        await client.json("DELETE", NODE_RESOURCE_TOPOLOGIES.path(name="n1"))
        async with running(run, settings):
            await until(lambda: free(heard) == {"n2": [5, 2]})


async def test_zones_are_said_as_objects_come_change_and_go(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoneobjects, "LOOK_AGAIN_S", 0.05)
    settings = TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url)
    async with (
        KubeClient.connect(str(kubeconfig), user_agent="test") as client,
        running(run, settings) as health,
        listening(bus, NodeZonesChanged) as heard,
    ):
        for name in ("n1", "n2", "n3"):
            await kube.node(name)
        await until(lambda: health.ready)
        for resource, kind in ((NODE_RESOURCE_TOPOLOGIES, "NodeResourceTopology"), (NUMATOPOLOGIES, "Numatopology")):
            body = definition(resource.group, resource.version, kind, resource.plural)
            await client.json("POST", CRDS.path(), body=body)
            await wait_established(client, body["metadata"]["name"])
        await client.json("POST", NODE_RESOURCE_TOPOLOGIES.path(), body=topology("n1", "5", "2"))
        await client.json("POST", NODE_RESOURCE_TOPOLOGIES.path(), body=topology("n3", "many"))
        await client.json("POST", NUMATOPOLOGIES.path(), body=NUMATOPOLOGY)
        await until(lambda: free(heard) == {"n1": [5, 2], "n2": [1, 2]})
        one = await client.json("GET", NODE_RESOURCE_TOPOLOGIES.path(name="n1"))
        body = topology("n1", "3", "2")
        body["metadata"]["resourceVersion"] = one["metadata"]["resourceVersion"]
        await client.json("PUT", NODE_RESOURCE_TOPOLOGIES.path(name="n1"), body=body)
        await until(lambda: free(heard) == {"n1": [3, 2], "n2": [1, 2]})
        await client.json("DELETE", NUMATOPOLOGIES.path(name="n2"))
        await until(lambda: free(heard) == {"n1": [3, 2]})


def problem(heard: Sequence[Event], node: str) -> str:
    return next((e.zones.problem for e in reversed(heard) if isinstance(e, NodeZonesChanged) and e.zones.node == node), "")


def metric(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def free(heard: Sequence[Event]) -> dict[str, list[int]]:
    """CPUs of each zone, by node, as of the last word on it."""
    last: dict[str, NodeZones] = {}
    for event in heard:
        assert isinstance(event, NodeZonesChanged)
        last[event.zones.node] = event.zones
    return {name: [zone.free["cpu"] for zone in zones.zones] for name, zones in sorted(last.items()) if zones.counts}
