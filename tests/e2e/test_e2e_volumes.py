"""Pods and the claims on volumes that they use, through the whole platform."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hbox_common.errors import Conflict
from hbox_common.kube import (
    BIND_COMPLETED,
    EVENTS,
    MERGE_PATCH,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODGROUPS,
    PODS,
    SELECTED_NODE,
    STORAGECLASSES,
    KubeClient,
)

from .. import waiting
from .platform_world import Up, placed, up
from .test_e2e_elastic_gangs import SPACE
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e


ZONE = "topology.kubernetes.io/zone"


def using(name: str, claim: str, *, group: str = "") -> dict[str, Any]:
    made = pod(name, group)
    made["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    return made


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """With a StorageClass whose volumes are made when the pod has a node. There is no provisioner: the tests act as one."""
    with up(tmp_path_factory.mktemp("volumes") / "state") as running:
        yield running


async def storage_class(client: KubeClient) -> None:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "local.csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    with suppress(Conflict):
        await client.json("POST", STORAGECLASSES.path(), body=body)


async def waiting_claim(client: KubeClient, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await client.json("POST", PERSISTENTVOLUMECLAIMS.path(SPACE), body=body)


async def selected(client: KubeClient, name: str) -> str:
    claim = await client.json("GET", PERSISTENTVOLUMECLAIMS.path(SPACE, name))
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))


async def reject(client: KubeClient, name: str) -> None:
    """What a provisioner does that cannot make the volume for the node."""
    body = {"metadata": {"annotations": {SELECTED_NODE: None}}}
    await client.json("PATCH", PERSISTENTVOLUMECLAIMS.path(SPACE, name), body=body, content_type=MERGE_PATCH)


async def provide(client: KubeClient, name: str, key: str, value: str) -> None:
    """What a provisioner and the volume controller do for a volume that nodes with this label reach."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": SPACE, "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": spec}
    await client.json("POST", PERSISTENTVOLUMES.path(), body=body)
    bound = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": f"pv-{name}"}}
    await client.json("PATCH", PERSISTENTVOLUMECLAIMS.path(SPACE, name), body=bound, content_type=MERGE_PATCH)


def _contains(text: Callable[[], Awaitable[str]], part: str) -> Callable[[], Awaitable[bool]]:
    async def so() -> bool:
        return part in await text()

    return so


async def test_pod_is_bound_after_its_volume_and_on_another_node_if_the_provisioner_rejects_the_first(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name in ("v1", "v2"):
            await client.json("POST", NODES.path(), body=node(name))
        await storage_class(client)
        await waiting_claim(client, "rejected")
        await client.json("POST", PODS.path(SPACE), body=using("pod", "rejected"))

        async def has_node() -> str:
            return await selected(client, "rejected")

        first = await waiting.until(has_node, "the claim has a node", timeout_s=60)
        assert await placed(client, SPACE, "pod") == {}, "it is not bound before its volume"

        async def why() -> str:
            return platform.hbox("why", f"{SPACE}/pod").stdout

        waits = f'persistentvolumeclaim "rejected" waits for its volume on node {first}'
        await waiting.until(_contains(why, waits), "the reason names the claim and the node")
        assert "WAITING" in await why()
        audited = platform.json("audit", "--patience", "5")
        assert audited["faults"] == [], "a pod that waits for its volume"
        assert f"waits for persistentvolumeclaim {SPACE}/rejected" in str(audited["notes"])
        await reject(client, "rejected")

        async def another() -> bool:
            return await selected(client, "rejected") not in ("", first)

        await waiting.until(another, "the claim has another node", timeout_s=30)
        second = await selected(client, "rejected")
        events = (await client.json("GET", EVENTS.path(SPACE)))["items"]
        assert any(e["reason"] == "VolumeNodeRejected" and first in e["message"] for e in events)
        await provide(client, "rejected", "kubernetes.io/hostname", second)

        async def bound() -> bool:
            return await placed(client, SPACE, "pod") == {"pod": second}

        await waiting.until(bound, "the pod is bound where its volume is", timeout_s=30)
        await client.json("DELETE", PODS.path(SPACE, "pod"), body={"gracePeriodSeconds": 0})
    assert platform.json("audit")["faults"] == []


async def test_gang_that_shares_a_waiting_claim_is_bound_in_one_zone(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name, zone in (("a1", "a"), ("b1", "b"), ("b2", "b")):
            made = node(name)
            made["metadata"]["labels"] |= {ZONE: zone, "zoned": "yes"}
            await client.json("POST", NODES.path(), body=made)
        await storage_class(client)
        await waiting_claim(client, "shared")
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}}
        await client.json("POST", PODGROUPS.path(SPACE), body={**group, "spec": {"minMember": 2}})
        for name in ("gang-0", "gang-1"):
            made = using(name, "shared", group="gang")
            made["spec"]["nodeSelector"] = {"zoned": "yes"}
            made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
            await client.json("POST", PODS.path(SPACE), body=made)

        async def has_node() -> str:
            return await selected(client, "shared")

        first = await waiting.until(has_node, "the claim has a node", timeout_s=60)
        assert await placed(client, SPACE, "gang-") == {}, "none is bound before the volume"
        zone = first[0]
        await provide(client, "shared", ZONE, zone)

        async def bound() -> bool:
            return sorted((await placed(client, SPACE, "gang-")).values()) == ["b1", "b2"]

        await waiting.until(bound, "both are bound in the zone that has room for both", timeout_s=30)
        for name in ("gang-0", "gang-1"):
            await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0})
    assert platform.json("audit")["faults"] == []


async def test_second_pod_of_a_read_write_once_pod_claim_waits_without_a_card_until_the_first_is_gone(tmp_path: Path) -> None:
    mode = ["ReadWriteOncePod"]
    volume = {
        "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": mode, "claimRef": {"namespace": SPACE, "name": "data"}},
    }
    claim = {
        "metadata": {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv", "accessModes": mode, "resources": {"requests": {"storage": "1Gi"}}},
    }
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            path = PERSISTENTVOLUMES.path()
            await client.json("POST", path, body={"apiVersion": "v1", "kind": "PersistentVolume", **volume})
            path = PERSISTENTVOLUMECLAIMS.path(SPACE)
            await client.json("POST", path, body={"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim})
            for name in ("first", "second"):
                await client.json("POST", PODS.path(SPACE), body=using(name, "data"))

            async def reason() -> str:
                conditions = (await client.json("GET", PODS.path(SPACE, "second")))["status"].get("conditions") or []
                return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")

            async def says_why() -> bool:
                return "ReadWriteOncePod" in await reason() and set(await placed(client, SPACE)) == {"first"}

            await waiting.until(says_why, "the first runs, the second waits with the reason", timeout_s=60)
            await client.json("DELETE", PODS.path(SPACE, "first"), body={"gracePeriodSeconds": 0})

            async def second() -> bool:
                return set(await placed(client, SPACE)) == {"second"}

            await waiting.until(second, "the second has its place", timeout_s=30)
        assert running.json("audit")["faults"] == []
