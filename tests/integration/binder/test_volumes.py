"""Claims that wait for their first consumer are bound before their pod: a real broker, an emulated API, and the test as the provisioner."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import Bind, BindOutcome
from hbox_common.kube import BIND_COMPLETED, MERGE_PATCH, NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, SELECTED_NODE

from ...waiting import until
from .binder_world import NAMESPACE, BinderWorld, a_bind

ZONE = "topology.kubernetes.io/zone"


async def bind_with_claims(world: BinderWorld, pod: str = "p", *claims: str, node: str = "n1", deadline: float = 0.0) -> Bind:
    return replace(a_bind(await world.pod(pod), node=node, deadline=deadline), volume_claims=claims or ("data",))


async def create_claim(world: BinderWorld, name: str = "data") -> None:
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await world.client.json("POST", PERSISTENTVOLUMECLAIMS.path(NAMESPACE), body=body)


async def patch_claim(world: BinderWorld, body: Mapping[str, Any], name: str = "data") -> None:
    await world.client.json("PATCH", PERSISTENTVOLUMECLAIMS.path(NAMESPACE, name), body=body, content_type=MERGE_PATCH)


async def selected(world: BinderWorld, name: str = "data") -> str:
    claim = await world.client.json("GET", PERSISTENTVOLUMECLAIMS.path(NAMESPACE, name))
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))


async def until_selected(world: BinderWorld, name: str = "data", node: str = "n1") -> None:
    async def so() -> bool:
        return await selected(world, name) == node

    await until(so, f"claim {name} has node {node}")


async def provide(world: BinderWorld, name: str = "data", *, zone: str = "") -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zone else {}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **affinity}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": spec}
    await world.client.json("POST", PERSISTENTVOLUMES.path(), body=body)
    await patch_claim(world, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": f"pv-{name}"}}, name)


async def create_node(world: BinderWorld, name: str, zone: str) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone}}}
    await world.client.json("POST", NODES.path(), body=body)


async def test_pod_is_bound_when_its_volumes_are(world: BinderWorld) -> None:
    for name in ("data", "scratch"):
        await create_claim(world, name)
    bind = await bind_with_claims(world, "p", "data", "scratch")
    async with world.binder():
        await world.decide(bind)
        for name in ("data", "scratch"):
            await until_selected(world, name)
        await provide(world, "data")
        await until(lambda: BindOutcome.UNKNOWN in world.said(bind))
        assert (await world.seen("p")).spec.node_name == ""
        await provide(world, "scratch")
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        assert (await world.seen("p")).spec.node_name == "n1"


async def test_node_that_the_provisioner_rejects_ends_the_bind(world: BinderWorld) -> None:
    await create_claim(world)
    bind = await bind_with_claims(world)
    async with world.binder():
        await world.decide(bind)
        await until_selected(world)
        await patch_claim(world, {"metadata": {"annotations": {SELECTED_NODE: None}}})
        outcome = await world.settled(bind)
        assert outcome.outcome is BindOutcome.REJECTED
        assert outcome.message == "node n1: the provisioner of persistentvolumeclaim data rejected the node"
        assert (await world.seen("p")).spec.node_name == ""


async def test_other_claims_of_a_pod_lose_the_node_that_one_provisioner_rejected(world: BinderWorld) -> None:
    """Otherwise they keep the pod on that node."""
    for name in ("data", "scratch"):
        await create_claim(world, name)
    bind = await bind_with_claims(world, "p", "data", "scratch")
    async with world.binder():
        await world.decide(bind)
        for name in ("data", "scratch"):
            await until_selected(world, name)
        await patch_claim(world, {"metadata": {"annotations": {SELECTED_NODE: None}}})
        assert (await world.settled(bind)).outcome is BindOutcome.REJECTED
        assert await selected(world, "scratch") == ""


async def test_provisioner_that_does_not_answer_loses_the_node_after_the_timeout(world: BinderWorld) -> None:
    await create_claim(world)
    bind = await bind_with_claims(world)
    async with world.binder(volume_timeout_s=0.5):
        await world.decide(bind)
        outcome = await world.settled(bind)
        assert (outcome.outcome, await selected(world)) == (BindOutcome.REJECTED, "")


@pytest.mark.parametrize(("zone", "outcome"), [("a", BindOutcome.BOUND), ("b", BindOutcome.REJECTED)])
async def test_volume_made_for_the_node_of_another_pod_is_used_where_it_is_reached(
    world: BinderWorld, zone: str, outcome: BindOutcome
) -> None:
    await create_node(world, "n1", "a")
    await create_claim(world)
    await patch_claim(world, {"metadata": {"annotations": {SELECTED_NODE: "n2"}}})
    bind = await bind_with_claims(world)
    async with world.binder():
        await world.decide(bind)
        await until(lambda: BindOutcome.UNKNOWN in world.said(bind))
        assert await selected(world) == "n2"
        await provide(world, zone=zone)
        assert (await world.settled(bind)).outcome is outcome


async def test_binder_killed_while_it_waits_for_a_volume_goes_on_with_the_same_node(world: BinderWorld) -> None:
    await create_claim(world)
    bind = await bind_with_claims(world)
    async with world.process() as binder:
        await world.decide(bind)
        await until_selected(world)
        binder.kill()
        await binder.wait()
    await provide(world)
    async with world.binder():
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND


async def test_claim_that_is_gone_ends_the_bind(world: BinderWorld) -> None:
    bind = await bind_with_claims(world)
    async with world.binder():
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.REJECTED
