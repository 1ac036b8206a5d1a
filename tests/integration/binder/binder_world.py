"""A broker, an emulated API without kubelets, a binder to be started and stopped, and ears for what it says."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from hbox_binder.app import run
from hbox_binder.core import NodeCards
from hbox_binder.settings import BinderSettings
from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.events import (
    Bind,
    BindDecided,
    BindOutcome,
    Evict,
    EvictDecided,
    EvictKind,
    NodeObserved,
    NodeRests,
    NodeStateChanged,
    Outcome,
    OutcomesObserved,
)
from hbox_common.kube import NODES, PODS, KubeClient, Pod, read_pod
from hbox_common.model import (
    Card,
    CardSlice,
    ClaimId,
    DecisionId,
    Epoch,
    Generation,
    JobId,
    KindRest,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
    node_rest,
)
from hbox_common.runtime import Health
from hbox_sandbox.api.faults import Plan, Rule
from hbox_sandbox.api.server import ApiServer

from ... import forked
from ...waiting import until

NAMESPACE = "default"


@dataclass
class BinderWorld:
    nats: EmbeddedServer
    api: ApiServer
    client: KubeClient
    bus: Bus
    kubeconfig: Path
    outcomes: list[Outcome] = field(default_factory=list)
    nodes: list[NodeObserved] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        async def hear(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                if isinstance(delivery.event, OutcomesObserved):
                    self.outcomes += delivery.event.outcomes
                elif isinstance(delivery.event, NodeObserved):
                    self.nodes.append(delivery.event)

        await self.states("n1", "n2")
        ears = asyncio.create_task(self.bus.follow([OutcomesObserved, NodeObserved], hear, start=Start.ALL))
        yield self
        ears.cancel()
        with suppress(asyncio.CancelledError):
            await ears

    @asynccontextmanager
    async def binder(self, **settings: Any) -> AsyncIterator[Health]:
        """The service, in this process, ready."""
        health = Health("binder")
        config = BinderSettings(nats_url=self.nats.url, kubeconfig=str(self.kubeconfig), **({"patience_s": 1.0} | settings))
        service = asyncio.create_task(run(config, health))
        await until(lambda: health.ready or service.done())
        yield health
        service.cancel()
        with suppress(asyncio.CancelledError):
            await service

    @asynccontextmanager
    async def process(self) -> AsyncIterator[forked.Service]:
        """The service as a process of its own, to be killed."""
        env = {"HBOX_NATS_URL": self.nats.url, "HBOX_KUBECONFIG": str(self.kubeconfig), "HBOX_LOG_LEVEL": "error"}
        child = forked.service("hbox_binder", env=env)
        try:
            yield child
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()

    def faults(self, *rules: Rule) -> None:
        self.api.faults.install(Plan(rules=list(rules)))

    # --- the cluster

    async def states(self, *names: str, registered: Sequence[str] = (), cards: int = 8) -> None:
        """What topology-collector says of these nodes: cards of 80 GiB each."""
        for name in names:
            await self.state(a_state(name, registered=registered, cards=cards))

    async def state(self, node: NodeState) -> None:
        async with Bus.connect(self.nats.url, name="topology-collector", instance="test") as bus:
            await bus.publish(NodeStateChanged(node=node), node.name)

    async def rest(self, node: str, *kinds: KindRest) -> None:
        """Publishes a node's rest, as job-controller does."""
        async with Bus.connect(self.nats.url, name="job-controller", instance="test") as bus:
            await bus.publish(NodeRests(rest=node_rest(NodeName(node), kinds)), node)

    async def pod(self, name: str, *, spec: Mapping[str, Any] | None = None, **annotations: str) -> Pod:
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations, "labels": {"app": name}},
            "spec": {"schedulerName": "hbox", "containers": [{"name": "main", "image": "none"}], **(spec or {})},
        }
        await self.client.json("POST", PODS.path(NAMESPACE), body=manifest)
        return await self.seen(name)

    async def node(self, name: str) -> None:
        await self.client.json("POST", NODES.path(), body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    async def touch(self, name: str) -> None:
        """Another controller writes on the pod."""
        patch = {"metadata": {"labels": {"touched": "yes"}}}
        await self.client.json("PATCH", PODS.path(NAMESPACE, name), body=patch, content_type="application/merge-patch+json")

    async def seen(self, name: str) -> Pod:
        return await read_pod(self.client, namespace=NAMESPACE, name=name)

    async def delete(self, name: str) -> None:
        await self.client.json("DELETE", PODS.path(NAMESPACE, name), body={"gracePeriodSeconds": 0})

    # --- the ledger's part

    async def decide(self, *decisions: Bind | Evict, epoch: int = 1) -> None:
        binds = tuple(d for d in decisions if isinstance(d, Bind))
        evictions = tuple(d for d in decisions if isinstance(d, Evict))
        if evictions:
            await self.bus.publish(EvictDecided(epoch=Epoch(epoch), evictions=evictions), "0")
        if binds:
            await self.bus.publish(BindDecided(epoch=Epoch(epoch), binds=binds), "0")

    def said(self, decision: Bind | Evict) -> list[BindOutcome]:
        return [outcome.outcome for outcome in self.outcomes if outcome.decision == decision.id]

    async def settled(self, decision: Bind | Evict) -> Outcome:
        """The first outcome of the decision that is not UNKNOWN."""

        def final() -> list[Outcome]:
            return [o for o in self.outcomes if o.decision == decision.id and o.outcome is not BindOutcome.UNKNOWN]

        await until(final)
        return final()[0]


def a_state(name: str = "n1", *, registered: Sequence[str] = (), cards: int = 8) -> NodeState:
    own = tuple(Card(index=i, uuid=f"GPU-{i}", model="A100", memory_mib=81_920, shares=10, kind="NVIDIA") for i in range(cards))
    return NodeState(NodeName(name), name, Generation(1), True, cards=own, registered=tuple(registered))


def known_cards() -> NodeCards:
    """As a binder knows them that has read the state of n1."""
    cards = NodeCards()
    cards.see(a_state())
    return cards


def a_bind(pod: Pod, *, node: str = "n1", claim: str = "", generation: int = 1, deadline: float = 0.0) -> Bind:
    claim = claim or f"claim-{pod.metadata.name}"
    return Bind(
        id=DecisionId(f"{claim}-{generation}-bind"),
        claim=ClaimId(claim),
        generation=generation,
        plan=PlanId("plan"),
        job=JobId("job"),
        queue=QueueName("default"),
        namespace=NAMESPACE,
        pod=pod.metadata.name,
        pod_uid=PodUid(pod.metadata.uid),
        resource_version=pod.metadata.resource_version,
        node=NodeName(node),
        slices=(CardSlice(index=3, cores=50, memory_mib=4096),),
        deadline=deadline,
        traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
    )


def an_evict(pod: Pod, kind: EvictKind = EvictKind.EVICT, *, claim: str = "", generation: int = 2, taker: str = "") -> Evict:
    claim = claim or f"claim-{pod.metadata.name}"
    return Evict(
        id=DecisionId(f"{claim}-{generation}-{kind}"),
        kind=kind,
        claim=ClaimId(claim),
        generation=generation,
        job=JobId("job"),
        namespace=NAMESPACE,
        pod=pod.metadata.name,
        pod_uid=PodUid(pod.metadata.uid),
        reason="unwound",
        beneficiary=PlanId(taker),
    )
