"""NUMA nodes as NodeResourceTopology and Numatopology objects tell them, once the cluster knows these kinds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import Event, NodeZonesChanged
from hbox_common.kube import CRDS, KubeClient, wait_established
from hbox_common.kube.zones import NODE_RESOURCE_TOPOLOGIES, NUMATOPOLOGIES
from hbox_common.model import NodeZones
from hbox_topology.adapters import zoneobjects
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, listening, running


def definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
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


def free(heard: Sequence[Event]) -> dict[str, list[int]]:
    """CPUs of each zone, by node, as of the last word on it."""
    last: dict[str, NodeZones] = {}
    for event in heard:
        assert isinstance(event, NodeZonesChanged)
        last[event.zones.node] = event.zones
    return {name: [zone.free["cpu"] for zone in zones.zones] for name, zones in sorted(last.items()) if zones.counts}
