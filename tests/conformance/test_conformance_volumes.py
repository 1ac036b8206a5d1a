"""Claims, volumes, storage classes and host ports, as far as a scheduler reads them."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator

import pytest

from .kube_world import Json, Raw, a_pod

_numbers = itertools.count(1)

VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture
def claims(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


@pytest.fixture
async def name(raw: Raw) -> AsyncIterator[str]:
    """Of a cluster-wide object of the test's own, deleted afterwards."""
    name = f"conformance-{os.getpid()}-{next(_numbers)}"
    yield name
    for path in (VOLUMES, CLASSES):
        await raw.delete(f"{path}/{name}")


def a_claim(name: str, **spec: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }


def a_volume(name: str) -> Json:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


async def test_a_claim_is_pending_until_a_controller_binds_it(raw: Raw, claims: str) -> None:
    claim = await raw.made(claims, a_claim("data", storageClassName="slow") | {"status": {"phase": "Bound"}})
    assert claim["status"] == {"phase": "Pending"}
    assert claim["spec"]["volumeMode"] == "Filesystem"
    assert claim["spec"]["storageClassName"] == "slow"
    assert "generation" not in claim["metadata"]
    status, bound = await raw.patch(f"{claims}/data/status", {"status": {"phase": "Bound"}})
    assert (status, bound["status"]["phase"]) == (200, "Bound")
    status, named = await raw.patch(f"{claims}/data", {"spec": {"volumeName": "v"}})
    assert (status, named["spec"]["volumeName"], named["status"]["phase"]) == (200, "v", "Bound")


async def test_a_volume_keeps_where_it_can_be_reached_from(raw: Raw, name: str) -> None:
    volume = await raw.made(VOLUMES, a_volume(name))
    assert volume["status"]["phase"] == "Pending"
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["nodeAffinity"] == a_volume(name)["spec"]["nodeAffinity"]


async def test_a_class_binds_at_once_unless_it_says_otherwise(raw: Raw, name: str) -> None:
    made = await raw.made(CLASSES, {"metadata": {"name": name}, "provisioner": "example.org/none"})
    assert (made["volumeBindingMode"], made["reclaimPolicy"]) == ("Immediate", "Delete")
    status, gone = await raw.delete(f"{CLASSES}/{name}")
    assert (status, gone["kind"]) == (200, "StorageClass")
    late = {"metadata": {"name": name}, "provisioner": "example.org/none", "volumeBindingMode": "WaitForFirstConsumer"}
    assert (await raw.made(CLASSES, late))["volumeBindingMode"] == "WaitForFirstConsumer"


async def test_volumes_are_watched_like_everything_else(raw: Raw, claims: str) -> None:
    _, listed = await raw.get(claims)
    await raw.made(claims, a_claim("data"))
    (event,) = await raw.watch(claims, until=bool, resourceVersion=listed["metadata"]["resourceVersion"])
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "PersistentVolumeClaim")


async def test_ports_of_a_pod_on_its_nodes_network_are_ports_of_the_node(raw: Raw, pods: str) -> None:
    ports = [{"containerPort": 9400}, {"containerPort": 53, "protocol": "UDP"}]
    on_host = a_pod("a", hostNetwork=True, containers=[{"name": "main", "image": "busybox", "ports": ports}])
    made = await raw.made(pods, on_host)
    assert made["spec"]["containers"][0]["ports"] == [
        {"containerPort": 9400, "hostPort": 9400, "protocol": "TCP"},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
    ]
    inside = a_pod("b", containers=[{"name": "main", "image": "busybox", "ports": ports}])
    assert all("hostPort" not in port for port in (await raw.made(pods, inside))["spec"]["containers"][0]["ports"])
