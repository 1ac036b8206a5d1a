"""Reads cluster and ledger at one moment, as far as two systems have one: the ledger before and after the cluster, until it did not move."""

import asyncio
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from hbox_common.bus import Bus
from hbox_common.bus.agreement import AGREEMENT
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.events import ClaimsAsked, ClaimsPage
from hbox_common.kube import NODES, PERSISTENTVOLUMECLAIMS, PODGROUPS, PODS, KubeClient, Resource
from hbox_common.model import SCHEDULER_NAME, Claim, ClaimState

from .checks import Audit, audit, waits_for_volumes
from .cluster import AuditGang, AuditNode, AuditPod, is_bound, read_gang, read_node, read_pod
from .published import read_published

#: Objects of one list page.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Cluster:
    nodes: list[AuditNode]
    pods: list[AuditPod]
    gangs: list[AuditGang]
    unbound: frozenset[str] = frozenset()  #: PersistentVolumeClaims without a volume, as namespace/name


async def read_cluster(
    client: KubeClient, schedulers: Container[str] = (SCHEDULER_NAME,), pending: Container[str] = ()
) -> Cluster:
    """All nodes, pods and PodGroups, read from the API server itself (not from its caches). `schedulers`: the names that make a pod ours. `pending`: uids of
    pods; if one of them has volumes, PersistentVolumeClaims are read, too."""
    pods = [read_pod(raw, schedulers) for raw in await list_all(client, PODS)]
    nodes = [read_node(raw) for raw in await list_all(client, NODES)]
    try:
        gangs = [read_gang(raw) for raw in await list_all(client, PODGROUPS)]
    except NotFound:
        gangs = []
    volumes = any(pod.volume_claims and pod.uid in pending for pod in pods)
    claims = await list_all(client, PERSISTENTVOLUMECLAIMS) if volumes else []
    unbound = (raw["metadata"] for raw in claims if not is_bound(raw))
    return Cluster(nodes, pods, gangs, frozenset(f"{meta['namespace']}/{meta['name']}" for meta in unbound))


async def list_all(client: KubeClient, resource: Resource) -> list[dict[str, Any]]:
    """Every object of a kind, in all namespaces."""
    items: list[dict[str, Any]] = []
    params = {"limit": str(PAGE)}
    while True:
        page = await client.json("GET", resource.path(), params=params, timeout_s=30)
        items += page.get("items") or []
        more = page["metadata"].get("continue")
        if not more:
            return items
        params = {"limit": str(PAGE), "continue": more}


async def read_claims(bus: Bus) -> tuple[tuple[int, int], list[Claim]]:
    """The ledger's live claims, and the (epoch, index) that they are as new as."""
    pages = await bus.ask(ClaimsAsked(asker="audit"), ClaimsPage, timeout_s=20)
    if services := AGREEMENT.differing():
        raise InvalidRequest(
            f"device settings of this command differ from those of {', '.join(services)}: the audit would misread cards",
            hint="set HBOX_CARD_RESOURCES and HBOX_DEVICE_CONFIG to the values of the services, and audit again",
        )
    return (pages[0].epoch, pages[0].index), [claim for page in pages for claim in page.claims]


async def audit_platform(
    client: KubeClient, bus: Bus, *, patience_s: float = 15.0, schedulers: Container[str] = (SCHEDULER_NAME,)
) -> tuple[Audit, Cluster]:
    """The audit of a platform at rest.

    While the ledger moves, has pending claims whose pods wait for no volume, or disagrees with the cluster, it is read again, for `patience_s` at most:
    evidence is on its way for that long after the last binding. What is wrong then stays wrong.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience_s
    while True:
        before, claims_before = await read_claims(bus)
        pending = {claim.pod_uid for claim in claims_before if claim.state is ClaimState.PENDING}
        cluster = await read_cluster(client, schedulers, pending)
        published = await read_published(bus, {claim.node for claim in claims_before if claim.slices})
        after, claims = await read_claims(bus)
        result = audit(cluster.nodes, cluster.pods, cluster.gangs, claims, published, unbound=cluster.unbound)
        waiting = waits_for_volumes(cluster.pods, claims, cluster.unbound)
        at_rest = before == after and all(claim.state is ClaimState.POSTED or claim.id in waiting for claim in claims)
        if (at_rest and not result.faults) or loop.time() > until:
            return result, cluster
        await asyncio.sleep(0.5)
