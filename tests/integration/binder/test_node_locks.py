"""The lock of a node in allocation, on a real broker and an API with faults: binder killed at every step, plugins that die, pods that go."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from hbox_binder import worker
from hbox_binder.adapters import nodelocks
from hbox_binder.core.stalelocks import UNBOUND_S
from hbox_common.clock import wall_s
from hbox_common.events import Bind, BindOutcome, EvictKind
from hbox_common.kube import MERGE_PATCH, NODES, Pod
from hbox_common.model import CardSlice, Generation, KindRest, RequestKind
from hbox_common.model.devices import VENDORS, NodeReport, format_lock
from hbox_sandbox.api.faults import Rule
from hbox_sandbox.kubelet import Kubelets

from ...waiting import until
from .binder_world import NAMESPACE, BinderWorld, a_bind, a_state, an_evict

LOCK, PHASE, TO_ALLOCATE = "hami.io/mutex.lock", "hami.io/bind-phase", "hami.io/vgpu-devices-to-allocate"
REGISTER = ":".join(f"GPU-{i},10,81920,100,NVIDIA-A100,0,true" for i in range(8)) + ":"
DIVIDED = {
    "id": "GPU-0", "index": 0, "count": 7, "devmem": 40960, "devcore": 100, "type": "NVIDIA-A100-SXM4-40GB", "mode": "mig", "health": True,
    "migProfiles": [{"name": "1g.5gb", "memoryMB": 5120, "core": 14, "placements": [{"start": i, "size": 1} for i in range(7)]}],
}  # fmt: skip
ASKS = {"containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}


async def nodes(world: BinderWorld, *names: str) -> None:
    for name in names:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": REGISTER}},
        }
        await world.client.json("POST", NODES.path(), body=body)
    await world.states(*names, registered=("NVIDIA",))


@asynccontextmanager
async def kubelets(world: BinderWorld) -> AsyncIterator[Kubelets]:
    """With the device plugins of their nodes."""
    own = Kubelets(world.api.cluster, start_s=0.01)
    task = asyncio.create_task(own.run())
    yield own
    task.cancel()


async def a_pod(world: BinderWorld, name: str) -> Pod:
    return await world.pod(name, spec=ASKS)


def on(pod: Pod, card: int = 0, node: str = "n1") -> Bind:
    return replace(a_bind(pod, node=node), slices=(CardSlice(card, 30, 3000),))


async def lock(world: BinderWorld, node: str = "n1") -> str:
    found = await world.client.json("GET", NODES.path(name=node))
    return str((found["metadata"].get("annotations") or {}).get(LOCK, ""))


async def set_lock(world: BinderWorld, value: str | None, node: str = "n1") -> None:
    body = {"metadata": {"annotations": {LOCK: value}}}
    await world.client.json("PATCH", NODES.path(name=node), body=body, content_type=MERGE_PATCH)


async def unlocked(world: BinderWorld, node: str = "n1", timeout_s: float = 20.0) -> None:
    async def free() -> bool:
        return not await lock(world, node)

    await until(free, f"{node} without a lock", timeout_s=timeout_s)


async def runs(world: BinderWorld, *names: str, timeout_s: float = 30.0) -> None:
    async def so() -> bool:
        return all([(await world.seen(name)).status.phase == "Running" for name in names])

    await until(so, f"{names} run", timeout_s=timeout_s)


async def test_the_binding_tells_the_plugin_which_cards_and_the_node_is_locked_for_it(world: BinderWorld) -> None:
    await nodes(world, "n1")
    bind = on(await a_pod(world, "a"), card=3)
    async with world.binder():
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        pod = await world.seen("a")
        assert pod.metadata.annotations[TO_ALLOCATE] == "GPU-3,NVIDIA,3000,30:;"
        assert (pod.metadata.annotations[PHASE], pod.metadata.labels["hami.io/vgpu-node"]) == ("allocating", "n1")
        assert (await lock(world)).endswith(f",{NAMESPACE},a")


async def test_pods_of_one_node_take_turns_and_another_node_does_not_wait(world: BinderWorld) -> None:
    await nodes(world, "n1", "n2")
    pods = [await a_pod(world, name) for name in ("a", "b", "c")]
    first, second, elsewhere = on(pods[0]), on(pods[1], card=1), on(pods[2], node="n2")
    async with world.binder(patience_s=30):
        await world.decide(first, second, elsewhere)
        for bind in (first, elsewhere):
            assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        assert world.said(second) == []
        await set_lock(world, None)
        assert (await world.settled(second)).outcome is BindOutcome.BOUND


async def test_plugins_hand_over_what_a_burst_of_binds_says(world: BinderWorld) -> None:
    await nodes(world, "n1", "n2")
    pods = await asyncio.gather(*(a_pod(world, f"p{i}") for i in range(32)))
    binds = [on(pod, card=i % 8, node=f"n{1 + i // 16}") for i, pod in enumerate(pods)]
    async with kubelets(world), world.binder():
        await world.decide(*binds)
        await runs(world, *(f"p{i}" for i in range(32)))
        await unlocked(world)
        await unlocked(world, "n2")


#: What is slow when binder is killed: the step after it has not happened then, all before it have.
STEPS = {
    "before the lock": Rule(verb="patch", resource="nodes", latency_s=30.0),
    "after the lock": Rule(verb="create", resource="pods/binding", latency_s=30.0),
    "after the binding": Rule(verb="patch", resource="pods/status", latency_s=30.0),
}


@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_any_step_it_leaves_no_lock_and_nobody_waiting(world: BinderWorld, step: str) -> None:
    await nodes(world, "n1")
    first, second = on(await a_pod(world, "a")), on(await a_pod(world, "b"), card=1)
    world.faults(replace_client(STEPS[step]))
    async with kubelets(world):
        async with world.process() as binder:
            await world.decide(first, second)
            await until(lambda: world.api.faults.fired[0] >= 1, timeout_s=30)
            binder.kill()
        world.faults()
        async with world.binder():
            for bind in (first, second):
                assert (await world.settled(bind)).outcome is BindOutcome.BOUND
            await runs(world, "a", "b")
            await unlocked(world)


def replace_client(rule: Rule) -> Rule:
    """For the binder alone."""
    rule.client = "hbox-binder"
    return rule


async def test_killed_after_the_lock_its_pod_comes_before_one_whose_decision_is_heard_first(world: BinderWorld) -> None:
    """The decision of the pod that has the lock was not acknowledged: the broker hands it over again a second and a half later."""
    await nodes(world, "n1")
    first, second = on(await a_pod(world, "a")), on(await a_pod(world, "b"), card=1)
    world.faults(replace_client(Rule(verb="create", resource="pods/binding", latency_s=30.0)))
    async with kubelets(world):
        async with world.process() as binder:
            await world.decide(first)
            await until(lambda: world.api.faults.fired == [1], timeout_s=30)
            binder.kill()
        world.faults()
        await world.decide(second)
        async with world.binder():
            await until(lambda: BindOutcome.UNKNOWN in world.said(second) or BindOutcome.BOUND in world.said(second))
            await runs(world, "a", "b", timeout_s=20)
            await unlocked(world)


@pytest.mark.parametrize("takes_labels", [False, True])
async def test_the_label_is_written_where_the_api_server_leaves_it_out_of_the_binding(
    world: BinderWorld, *, takes_labels: bool
) -> None:
    world.api.cluster.pod_topology_labels = takes_labels
    await nodes(world, "n1")
    pods = [await a_pod(world, f"p{i}") for i in range(6)]
    binds = [on(pod, card=i) for i, pod in enumerate(pods)]
    world.faults(replace_client(Rule(verb="patch", resource="pods/status", latency_s=0.3)))
    async with kubelets(world), world.binder():
        await world.decide(*binds)
        for bind in binds:
            assert (await world.settled(bind)).outcome is BindOutcome.BOUND
            assert (await world.seen(bind.pod)).metadata.labels["hami.io/vgpu-node"] == "n1", "no outcome before it is there"
    assert world.api.faults.fired == [0 if takes_labels else 6]


@pytest.mark.parametrize("takes_labels", [False, True])
async def test_nobody_writes_on_a_bound_pod_before_hamis_plugin_has_made_its_instance(
    world: BinderWorld, *, takes_labels: bool
) -> None:
    """It writes the instance's id on the version of the pod that it read before it made the instance, and fails the pod where that is another by now."""
    world.api.cluster.pod_topology_labels = takes_labels
    await nodes(world, "n1")
    register = {"hami.io/node-nvidia-register": json.dumps([DIVIDED])}
    cards = tuple(
        replace(card, kind="NVIDIA") for card in VENDORS.kind("NVIDIA").register(NodeReport("n1", annotations=register))
    )
    await world.state(replace(a_state(registered=("NVIDIA",)), cards=cards, generation=Generation(2)))
    pod = await a_pod(world, "a")
    bind = replace(a_bind(pod), slices=(CardSlice(0, 14, 5120, "1g.5gb@6"),))
    world.faults(replace_client(Rule(verb="patch", resource="pods/status", latency_s=0.5)))
    async with world.binder():
        await world.decide(bind)

        async def bound() -> bool:
            return bool((await world.seen("a")).spec.node_name)

        await until(bound, "a bound")
        first = await world.seen("a")
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        await asyncio.sleep(1.0)
    last = await world.seen("a")
    assert json.loads(last.metadata.annotations["hami.io/vgpu-mig-allocations"])[0]["placement"] == {"start": 6, "size": 1}
    assert last.metadata.labels["hami.io/vgpu-node"] == "n1"
    assert last.metadata.resource_version == first.metadata.resource_version


async def test_a_burst_that_goes_well_asks_little_of_the_api_server(
    world: BinderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodelocks, "_SAMPLES_PER_S", 1.0)
    monkeypatch.setattr(worker, "STARTED_S", -60.0)  # as one that began long ago
    await nodes(world, "n1")
    pods = await asyncio.gather(*(a_pod(world, f"p{i}") for i in range(24)))
    names = ("patch", "nodes"), ("create", "pods/binding"), ("get", "pods"), ("get", "nodes")
    world.faults(*(replace_client(Rule(verb=verb, resource=resource)) for verb, resource in names))
    async with kubelets(world), world.binder():
        await world.decide(*(on(pod, card=i % 8) for i, pod in enumerate(pods)))
        await runs(world, *(f"p{i}" for i in range(24)))
        await unlocked(world)
    locks, bindings, reads, of_nodes = world.api.faults.fired
    assert (locks, bindings) == (24, 24)
    assert 1 <= reads < 20, "a sample is read"
    assert of_nodes < 12, "the watch tells; only a lock that stands for half a second is looked into"


async def test_killed_after_the_lock_of_a_pod_that_is_revoked_it_leaves_no_lock(world: BinderWorld) -> None:
    await nodes(world, "n1")
    pod = await a_pod(world, "a")
    bind = on(pod)
    world.faults(Rule(verb="create", resource="pods/binding", latency_s=30.0))
    async with world.process() as binder:
        await world.decide(bind)
        await until(lambda: world.api.faults.fired == [1], timeout_s=30)
        binder.kill()
    world.faults()
    assert (await lock(world)).endswith(",a")
    async with world.binder():
        await world.decide(an_evict(pod, EvictKind.REVOKE))
        assert (await world.settled(an_evict(pod, EvictKind.REVOKE))).outcome is BindOutcome.REVOKED
        await unlocked(world, timeout_s=5.0)


async def test_a_pod_deleted_in_allocation_frees_its_node(world: BinderWorld) -> None:
    await nodes(world, "n1")
    first, second = on(await a_pod(world, "a")), on(await a_pod(world, "b"), card=1)
    async with world.binder():
        await world.decide(first)
        assert (await world.settled(first)).outcome is BindOutcome.BOUND
        await world.decide(second)
        # As long as it may, and the pauses between two looks would have grown to many seconds.
        await asyncio.sleep(4.0)
        assert (await lock(world)).endswith(",a"), "the pod is there, and its plugin may yet hand its cards over"
        await world.delete("a")
        began = time.monotonic()
        assert (await world.settled(second)).outcome is BindOutcome.BOUND
        assert time.monotonic() - began < 2.0, "by evidence, not by age"


async def test_a_lock_for_a_pod_whose_namesake_came_after_it_goes_at_once(world: BinderWorld) -> None:
    """Its name alone says that it is waited for: a StatefulSet makes its pods anew by the same name."""
    await nodes(world, "n1")
    first, second = on(await a_pod(world, "a")), on(await a_pod(world, "b"), card=1)
    async with world.binder():
        await world.decide(first)
        assert (await world.settled(first)).outcome is BindOutcome.BOUND
        await world.decide(second)
        await world.delete("a")
        await a_pod(world, "a")
        began = time.monotonic()
        assert (await world.settled(second)).outcome is BindOutcome.BOUND
        assert time.monotonic() - began < UNBOUND_S / 2


@pytest.mark.parametrize("ends", ["by its time", "by an admitted pod"])
async def test_lock_of_a_resting_node_is_not_taken(world: BinderWorld, ends: str) -> None:
    await nodes(world, "n1")
    until_s = 3.0 if ends == "by its time" else 50.0
    rest = KindRest(RequestKind.CARDS, 2, wall_s() + until_s, wall_s(), "ml/p", "UnexpectedAdmissionError: no cards")
    await world.rest("n1", rest)
    bind = on(await a_pod(world, "a"))
    began = time.monotonic()
    async with world.binder():
        await world.decide(bind)
        await asyncio.sleep(1.0)
        assert not await lock(world)
        if ends == "by an admitted pod":
            await world.rest("n1")
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
    assert 1.0 < time.monotonic() - began < 30.0


@pytest.mark.parametrize("told", ["again by the broker", "by the ledger, once more"])
async def test_a_bind_that_comes_again_to_the_next_binder_locks_nothing(world: BinderWorld, told: str) -> None:
    await nodes(world, "n1")
    bind = on(await a_pod(world, "a"))
    world.faults(replace_client(Rule(verb="patch", resource="pods/status", latency_s=30.0)))
    async with kubelets(world):
        async with world.process() as binder:
            await world.decide(bind)
            await runs(world, "a")
            await unlocked(world)
            await until(lambda: world.api.faults.fired == [1], timeout_s=30)
            binder.kill()
        taken = Rule(verb="patch", resource="nodes")
        world.faults(replace_client(taken))
        if told.startswith("by the ledger"):
            await world.decide(bind)
        async with world.binder():
            assert (await world.settled(bind)).outcome is BindOutcome.BOUND
            assert (await world.seen("a")).metadata.labels["hami.io/vgpu-node"] == "n1"
        assert world.api.faults.fired == [0]


async def test_locks_are_those_of_the_plugins_that_it_was_told_of(world: BinderWorld) -> None:
    """Not those that were built in when the module was read: a service is told by `device_config`, later."""
    built_in, lock_name = tuple(VENDORS), "vendor.example/lock"
    VENDORS.adopt([replace(vendor, node_lock=lock_name) if vendor.kind == "NVIDIA" else vendor for vendor in built_in])
    try:
        await nodes(world, "n1")
        first, second = on(await a_pod(world, "a")), on(await a_pod(world, "b"), card=1)
        async with world.binder():
            await world.decide(first, second)
            for bind in (first, second):
                assert (await world.settled(bind)).outcome is BindOutcome.BOUND
                found = await world.client.json("GET", NODES.path(name="n1"))
                assert found["metadata"]["annotations"][lock_name].endswith(f",{bind.pod}")
                await world.delete(bind.pod)  # whose lock goes with it
    finally:
        VENDORS.adopt(built_in)


@pytest.mark.parametrize("value", ["2026-01-01T00:00:00Z,default,nobody", "2026-01-01T00:00:00Z", "garbage,default,nobody"])
async def test_a_lock_that_nobody_needs_is_taken_over(world: BinderWorld, value: str) -> None:
    await nodes(world, "n1")
    await set_lock(world, value)
    bind = on(await a_pod(world, "a"))
    async with world.binder():
        await world.decide(bind)
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND
        assert (await lock(world)).endswith(f",{NAMESPACE},a")


async def test_a_lock_of_a_pod_that_another_scheduler_binds_is_respected(world: BinderWorld) -> None:
    await nodes(world, "n1")
    other = await a_pod(world, "other")
    await set_lock(world, format_lock(NAMESPACE, "other", time.time()))
    bind = on(await a_pod(world, "a"))
    async with world.binder():
        await world.decide(bind)
        await until(lambda: world.said(bind) == [BindOutcome.UNKNOWN])
        assert (await world.seen("a")).spec.node_name == ""
        await world.delete(other.metadata.name)
        assert (await world.settled(bind)).outcome is BindOutcome.BOUND


async def test_a_pod_whose_allocation_is_wrong_fails_and_the_next_has_its_turn(world: BinderWorld) -> None:
    await nodes(world, "n1")
    two_of_one = replace(on(await a_pod(world, "a")), slices=(CardSlice(0, 30, 3000), CardSlice(1, 30, 3000)))
    second = on(await a_pod(world, "b"), card=2)
    async with kubelets(world), world.binder():
        await world.decide(two_of_one, second)
        await runs(world, "b")
        failed = await world.seen("a")
        assert (failed.status.phase, failed.status.reason) == ("Failed", "UnexpectedAdmissionError")
        assert "device number not matched" in failed.status.message
        assert failed.metadata.annotations[PHASE] == "failed"
        await unlocked(world)
