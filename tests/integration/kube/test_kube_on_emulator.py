"""The same code against the sandbox's API server, with the faults that a real one shows."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hbox_common.kube import (
    EVENTS,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    BindOutcome,
    BindResult,
    CordonOutcome,
    Delta,
    EventWriter,
    EvictOutcome,
    FenceOutcome,
    Informer,
    Involved,
    KubeClient,
    Lease,
    Pod,
    Queue,
    apply,
    bind,
    cordon,
    evict,
    fence,
    read_pod,
    uncordon,
    wait_established,
)
from hbox_sandbox.api import ApiServer

from ...waiting import until

HISTORY = 200  #: events that the server remembers


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(seed=1, history=HISTORY, bookmark_s=0.2) as running:
        yield running


@pytest.fixture
async def kube(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    config = server.kubeconfig(tmp_path / "kubeconfig")
    async with KubeClient.connect(str(config), user_agent="hbox-test/1", timeout_s=5.0) as client:
        await client.json("POST", NAMESPACES.path(), body={"metadata": {"name": "ml"}})
        yield client


def faults(server: ApiServer, *rules: dict[str, Any]) -> None:
    server.faults.load(json.dumps({"seed": 3, "rules": rules}).encode())


async def create(kube: KubeClient, name: str) -> Pod:
    body = {
        "metadata": {"name": name},
        "spec": {"schedulerName": "hbox", "containers": [{"name": "c", "image": "i"}]},
    }
    return (await kube.expected("POST", PODS.path("ml"), body=body)).decode(Pod)


async def bind_pod(kube: KubeClient, pod: Pod, *, node: str = "n1", claim: str = "c1", retry: bool = False) -> BindResult:
    meta = pod.metadata
    return await bind(
        kube,
        namespace="ml",
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        node=node,
        annotations={"hbox.io/claim": claim},
        may_retry=lambda _: retry,
    )


async def test_a_pod_is_seen_bound_and_evicted(kube: KubeClient) -> None:
    waiting = Informer(kube, PODS, Pod, field_selector="spec.schedulerName=hbox,spec.nodeName=")
    seen: list[tuple[str, str]] = []

    async def handle(deltas: Sequence[Delta[Pod]]) -> None:
        seen.extend((d.kind.value, d.new.metadata.name if d.new else "") for d in deltas)

    async with asyncio.TaskGroup() as tasks:
        informer = tasks.create_task(waiting.run(handle))
        await waiting.synced.wait()
        pod = await create(kube, "p")
        await until(lambda: seen == [("added", "p")])
        assert (await bind_pod(kube, pod)).outcome is BindOutcome.BOUND
        await until(lambda: seen == [("added", "p"), ("deleted", "")])
        bound = await read_pod(kube, namespace="ml", name="p")
        assert (bound.spec.node_name, bound.metadata.annotations) == ("n1", {"hbox.io/claim": "c1"})
        assert (await bind_pod(kube, pod)).outcome is BindOutcome.BOUND  # again: found to be ours
        assert (await bind_pod(kube, pod, claim="c2")).outcome is BindOutcome.CONFLICT
        evicted = await evict(kube, namespace="ml", name="p", uid=pod.metadata.uid, grace_s=0)
        assert evicted.outcome is EvictOutcome.ACCEPTED
        again = await evict(kube, namespace="ml", name="p", uid=pod.metadata.uid)
        assert again.outcome is EvictOutcome.GONE
        assert (await bind_pod(kube, pod)).outcome is BindOutcome.GONE
        informer.cancel()


async def test_a_namesake_is_neither_bound_nor_fenced_nor_evicted(kube: KubeClient) -> None:
    old = await create(kube, "p")
    await kube.json("DELETE", PODS.path("ml", "p"))
    new = await create(kube, "p")
    uid = old.metadata.uid
    assert (await bind_pod(kube, old, retry=True)).outcome is BindOutcome.GONE
    fenced = await fence(kube, namespace="ml", name="p", uid=uid, condition="hbox.io/claim-gen", value="1")
    assert fenced.outcome is FenceOutcome.GONE
    assert (await evict(kube, namespace="ml", name="p", uid=uid)).outcome is EvictOutcome.GONE
    assert await read_pod(kube, namespace="ml", name="p") == new


async def test_an_event_that_has_expired_is_made_anew_with_the_note_that_found_it_missing(kube: KubeClient) -> None:
    writer = EventWriter(kube, component="hbox", instance="one")
    pod = await create(kube, "p")
    about = Involved("v1", "Pod", "ml", "p", pod.metadata.uid)

    async def notes() -> list[tuple[str, int]]:
        listed = await kube.json("GET", EVENTS.path("ml"))
        return [(event["message"], event["count"]) for event in listed["items"]]

    for note in ("first", "second"):
        await writer.write(about, reason="Waits", message=note, warning=False)
    ((_, count),) = await notes()
    assert count == 2
    (event,) = (await kube.json("GET", EVENTS.path("ml")))["items"]
    await kube.json("DELETE", EVENTS.path("ml", event["metadata"]["name"]))
    await writer.write(about, reason="Waits", message="third", warning=False)
    assert await notes() == [("third", 1)]
    await writer.write(about, reason="Waits", message="fourth", warning=False)
    assert await notes() == [("fourth", 2)]


async def test_after_a_fence_no_older_binding_succeeds(kube: KubeClient) -> None:
    pod = await create(kube, "p")
    fenced = await fence(kube, namespace="ml", name="p", uid=pod.metadata.uid, condition="hbox.io/claim-gen", value="1")
    assert fenced.outcome is FenceOutcome.UNBOUND
    late = await bind_pod(kube, pod)
    assert late.outcome is BindOutcome.CONFLICT
    assert late.resource_version == fenced.resource_version
    assert (await bind_pod(kube, pod, retry=True)).outcome is BindOutcome.BOUND
    too_late = await fence(kube, namespace="ml", name="p", uid=pod.metadata.uid, condition="hbox.io/claim-gen", value="2")
    assert (too_late.outcome, too_late.node, too_late.claim) == (FenceOutcome.BOUND, "n1", "c1")


async def test_whatever_happens_to_bindings_their_outcomes_agree_with_the_cluster(kube: KubeClient, server: ApiServer) -> None:
    pods = [await create(kube, f"p{i}") for i in range(120)]
    faults(
        server,
        {"verb": "create", "resource": "pods/binding", "probability": 0.15, "applied_status": 504},
        {"verb": "create", "resource": "pods/binding", "probability": 0.15, "applied_reset": True},
        {"verb": "create", "resource": "pods/binding", "probability": 0.1, "status": 409},
        {"verb": "create", "resource": "pods/binding", "probability": 0.1, "status": 500},
        {"verb": "create", "resource": "pods/binding", "probability": 0.1, "status": 429, "retry_after_s": 1},
        {"verb": "get", "resource": "pods", "probability": 0.2, "status": 500},
    )
    async with asyncio.TaskGroup() as tasks:
        binding = [tasks.create_task(bind_pod(kube, pod, claim=pod.metadata.uid)) for pod in pods]
    faults(server)
    outcomes = [task.result().outcome for task in binding]
    assert {BindOutcome.BOUND, BindOutcome.UNKNOWN, BindOutcome.CONFLICT} == set(outcomes)
    for pod, outcome in zip(pods, outcomes, strict=True):
        bound = (await read_pod(kube, namespace="ml", name=pod.metadata.name)).spec.node_name == "n1"
        if outcome is not BindOutcome.UNKNOWN:
            assert bound == (outcome is BindOutcome.BOUND)
        else:
            assert (await bind_pod(kube, pod, claim=pod.metadata.uid)).outcome is BindOutcome.BOUND


class Follower:
    """A consumer that knows only the deltas, and checks that each fits what came before."""

    def __init__(self) -> None:
        self.told: dict[str, Pod] = {}

    async def handle(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            if delta.old is not None:
                assert self.told.pop(delta.old.metadata.uid) == delta.old
            if delta.new is not None:
                self.told[delta.new.metadata.uid] = delta.new


async def test_the_copy_equals_the_cluster_after_a_storm(kube: KubeClient, server: ApiServer, impatient: Random) -> None:
    pods = Informer(kube, PODS, Pod, page_size=7, rng=impatient)
    follower = Follower()
    faults(
        server,
        {"verb": "watch", "resource": "pods", "watch_end_s": 0.05, "watch_chunk": 97},
        {"verb": "watch", "resource": "pods", "every": 5, "watch_gone": "stream"},
        {"verb": "watch", "resource": "pods", "every": 7, "watch_gone": "http"},
        {"verb": "list", "resource": "pods", "every": 9, "reset": True},
    )
    rng, live, writes = Random(11), dict[str, Pod](), 0
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        informer = tasks.create_task(pods.run(follower.handle))
        while pods.relists < 3:
            writes += 1
            name = f"p{rng.randrange(40)}"
            if name in live and rng.random() < 0.5:
                await kube.json("DELETE", PODS.path("ml", name))
                del live[name]
            elif name in live:
                body = {"metadata": {"labels": {"i": str(writes)}}}
                answer = await kube.expected("PATCH", PODS.path("ml", name), body=body, content_type=MERGE_PATCH)
                live[name] = answer.decode(Pod)
            else:
                live[name] = await create(kube, name)
        want = {pod.metadata.uid: pod for pod in live.values()}
        await until(lambda: pods.store == want, timeout_s=30)
        informer.cancel()
    assert follower.told == want


async def test_a_copy_that_was_away_for_longer_than_the_server_remembers_is_made_anew(
    kube: KubeClient, impatient: Random
) -> None:
    pods = Informer(kube, PODS, Pod, rng=impatient)
    follower = Follower()

    async def follow_until(names: set[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            informer = tasks.create_task(pods.run(follower.handle))
            await until(lambda: {pod.metadata.name for pod in pods.store.values()} == names)
            informer.cancel()

    await create(kube, "first")
    await follow_until({"first"})
    await kube.json("DELETE", PODS.path("ml", "first"))
    await create(kube, "second")
    for i in range(HISTORY):
        await kube.json(
            "PATCH", PODS.path("ml", "second"), body={"metadata": {"labels": {"i": str(i)}}}, content_type=MERGE_PATCH
        )
    await follow_until({"second"})
    assert pods.relists == 1
    assert follower.told == pods.store


async def test_nodes_are_cordoned_by_their_owner_only(kube: KubeClient) -> None:
    await kube.json("POST", NODES.path(), body={"metadata": {"name": "n1"}})
    assert (await cordon(kube, node="n1", reason="xid-79", owner="health")).outcome is CordonOutcome.DONE
    assert (await cordon(kube, node="n1", reason="moving", owner="ops")).outcome is CordonOutcome.NOT_OURS
    assert (await uncordon(kube, node="n1", owner="ops")).outcome is CordonOutcome.NOT_OURS
    assert (await uncordon(kube, node="n1", owner="health")).outcome is CordonOutcome.DONE
    assert (await cordon(kube, node="n2", reason="r", owner="health")).outcome is CordonOutcome.GONE


async def test_a_definition_is_applied_and_its_kind_served(kube: KubeClient) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "queues", "singular": "queue", "kind": "Queue", "listKind": "QueueList"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.scheduling.volcano.sh"},
        "spec": {"group": "scheduling.volcano.sh", "scope": "Cluster", "names": names, "versions": [version]},
    }
    await apply(kube, crd, field_manager="hbox")
    await wait_established(kube, "queues.scheduling.volcano.sh")
    manifest = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "gold"},
        "spec": {"weight": 3, "capability": {"nvidia.com/gpu": 8}},
    }
    await apply(kube, manifest, field_manager="hbox")
    queue = (await kube.expected("GET", QUEUES.path(name="gold"))).decode(Queue)
    assert (queue.spec.weight, queue.spec.capability) == (3, {"nvidia.com/gpu": 8})


async def test_a_lease_goes_from_hand_to_hand(kube: KubeClient) -> None:
    async with Lease(kube, "ml", "ledger", "a", duration_s=2).hold() as first:
        assert first.held
    async with asyncio.timeout(1), Lease(kube, "ml", "ledger", "b", duration_s=2).hold() as second:
        assert second.token == first.token + 1
