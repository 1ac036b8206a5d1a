"""Claims of classes without a provisioner: the binder reserves a volume that the node reaches; the test is the volume controller."""

from collections.abc import Mapping
from typing import Any

from hbox_common.events import BindOutcome
from hbox_common.kube import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    MERGE_PATCH,
    NO_PROVISIONER,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    STORAGECLASSES,
)
from hbox_sandbox.api.faults import Rule

from ...waiting import until
from .binder_world import NAMESPACE, BinderWorld
from .test_volumes import ZONE, bind_with_claims, create_claim, create_node, patch_claim, selected


async def create_class(world: BinderWorld) -> None:
    """Of the claims, and the node n1 in zone a."""
    body = {"metadata": {"name": "late"}, "provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
    await world.client.json("POST", STORAGECLASSES.path(), body=body)
    await create_node(world, "n1", "a")


async def create_volume(world: BinderWorld, name: str, *, zone: str = "a", size: str = "1Gi", **spec: Any) -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    filled = {
        "storageClassName": "late",
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": filled | spec}
    await world.client.json("POST", PERSISTENTVOLUMES.path(), body=body)
    path = f"{PERSISTENTVOLUMES.path(name=name)}/status"
    await world.client.json("PATCH", path, body={"status": {"phase": "Available"}}, content_type=MERGE_PATCH)


async def reference(world: BinderWorld, volume: str) -> Mapping[str, Any]:
    found = await world.client.json("GET", PERSISTENTVOLUMES.path(name=volume))
    reserved: Mapping[str, Any] = found["spec"].get("claimRef") or {}
    assert ("pv.kubernetes.io/bound-by-controller" in (found["metadata"].get("annotations") or {})) is bool(reserved)
    return reserved


async def until_reserved(world: BinderWorld, volume: str, claim: str = "data") -> None:
    """Wait until the volume is reserved for the claim; then bind both as the controller does."""

    async def so() -> bool:
        return bool(await reference(world, volume))

    await until(so, f"volume {volume} is reserved")
    uid = (await world.client.json("GET", PERSISTENTVOLUMECLAIMS.path(NAMESPACE, claim)))["metadata"]["uid"]
    assert await reference(world, volume) == {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim, "uid": uid,
    }  # fmt: skip


async def bound(world: BinderWorld, volume: str, claim: str = "data") -> None:
    await patch_claim(world, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume}}, claim)


async def test_smallest_volume_that_the_node_reaches_is_reserved_and_the_pod_bound_after_it(world: BinderWorld) -> None:
    await create_class(world)
    await create_claim(world)
    for name, size, zone in (("large", "3Gi", "a"), ("fits", "2Gi", "a"), ("small", "1Mi", "a"), ("away", "1Gi", "b")):
        await create_volume(world, name, size=size, zone=zone)
    bind = await bind_with_claims(world)
    async with world.binder():
        await world.decide(bind)
        await until_reserved(world, "fits")
        await until(lambda: BindOutcome.UNKNOWN in world.said(bind))
        assert (await world.seen("p")).spec.node_name == ""
        assert [bool(await reference(world, name)) for name in ("large", "small", "away")] == [False, False, False]
        await bound(world, "fits")
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        assert await selected(world) == "", "no provisioner is asked"


async def test_node_without_a_volume_left_ends_the_bind_and_reserves_none(world: BinderWorld) -> None:
    await create_class(world)
    for name in ("data", "more"):
        await create_claim(world, name)
    await create_volume(world, "one")
    bind = await bind_with_claims(world, "p", "data", "more")
    async with world.binder():
        await world.decide(bind)
        outcome = await world.settled(bind)
        assert outcome.outcome is BindOutcome.REJECTED
        assert outcome.message == "node n1: no available persistent volume of StorageClass late fits persistentvolumeclaim more"
        assert await reference(world, "one") == {}
        assert (await world.seen("p")).spec.node_name == ""


async def test_claims_of_one_pod_get_a_volume_each(world: BinderWorld) -> None:
    await create_class(world)
    for name in ("data", "more"):
        await create_claim(world, name)
    for name in ("one", "two"):
        await create_volume(world, name)
    bind = await bind_with_claims(world, "p", "data", "more")
    async with world.binder():
        await world.decide(bind)
        await until_reserved(world, "one", "data")
        await until_reserved(world, "two", "more")
        await bound(world, "one", "data")
        await bound(world, "two", "more")
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND


async def test_volumes_are_listed_once_while_the_volume_controller_works(world: BinderWorld) -> None:
    await create_class(world)
    await create_claim(world)
    await create_volume(world, "one")
    bind = await bind_with_claims(world)
    world.faults(Rule(verb="list", resource="persistentvolumes"), Rule(verb="get", resource="persistentvolumeclaims"))
    async with world.binder():
        await world.decide(bind)
        await until(lambda: world.api.faults.fired[1] >= 4, "the binder reads the claim again")
        assert world.api.faults.fired[0] == 1
        await bound(world, "one")
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND


async def test_bind_that_is_given_up_leaves_the_reservation_and_the_next_finds_it(world: BinderWorld) -> None:
    await create_class(world)
    await create_claim(world)
    await create_volume(world, "fits", size="2Gi")
    bind = await bind_with_claims(world)
    async with world.binder(volume_timeout_s=0.5):
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.REJECTED
    await until_reserved(world, "fits")
    await create_volume(world, "smaller")
    again = await bind_with_claims(world, "q")
    async with world.binder():
        await world.decide(again)
        await until(lambda: BindOutcome.UNKNOWN in world.said(again))
        assert await reference(world, "smaller") == {}
        await bound(world, "fits")
        assert (await world.settled(again)).outcome is BindOutcome.BOUND


async def test_volume_that_another_reserves_meanwhile_is_left_to_it(world: BinderWorld) -> None:
    await create_class(world)
    await create_claim(world)
    await create_volume(world, "one")
    bind = await bind_with_claims(world)
    world.faults(Rule(verb="patch", resource="persistentvolumes", latency_s=1.0, limit=1))
    async with world.binder():
        await world.decide(bind)
        await until(lambda: world.api.faults.fired == [1], "the binder reserves the volume")
        body = {
            "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"claimRef": {"namespace": NAMESPACE, "name": "other"}},
        }
        await world.client.json("PATCH", PERSISTENTVOLUMES.path(name="one"), body=body, content_type=MERGE_PATCH)
        assert (await world.settled(bind)).outcome is BindOutcome.REJECTED
        assert (await reference(world, "one"))["name"] == "other"


async def test_volume_that_is_reserved_elsewhere_ends_the_bind(world: BinderWorld) -> None:
    await create_class(world)
    await create_claim(world)
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": "data"}
    await create_volume(world, "away", zone="b", claimRef=claim)
    await create_volume(world, "here")
    bind = await bind_with_claims(world)
    async with world.binder():
        await world.decide(bind)
        outcome = await world.settled(bind)
        assert outcome.outcome is BindOutcome.REJECTED
        assert outcome.message == "node n1: volume away of persistentvolumeclaim data cannot be reached"
        assert await reference(world, "here") == {}
