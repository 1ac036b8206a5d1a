"""Queues, priorities, and the other objects that rules are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hbox_common import kube
from hbox_common.errors import InvalidRequest
from hbox_common.model import POOLS, CardQuota, ClassQuota, Queue, QueueName, QueuePhase, QueueTree, Resources, amounts_in
from hbox_common.model.annotations import (
    LENT_POOLS,
    LENT_TO,
    NAMESPACES,
    NON_PREEMPTIBLE_CLASSES,
    POOL_AMOUNTS,
    PRIORITY_CLASSES,
    RECENT_CARDS,
    parse_names,
    parse_pool_amounts,
)
from hbox_common.model.minruntime import check_run_time
from hbox_ledger.adapters.quotas import card_quota, class_quota
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.facts import DisruptionBudget
from hbox_scheduler.core.framework import ResourceQuota

from . import kinds
from .amounts import capacities, quota
from .documents import Document
from .times import seconds

_MAX_WEIGHT = 65535

#: Kubernetes makes them itself; a file may leave them out.
SYSTEM_CLASSES = {
    name: kube.PriorityClass(metadata=kube.Metadata(name=name, uid=name), value=value)
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}


def queue_of(document: Document) -> QueueInfo:
    """A queue. Raises InvalidRequest."""
    queue = document.read(kube.Queue, namespaced=False)
    spec = queue.spec
    if not 0 <= spec.weight <= _MAX_WEIGHT:
        raise document.wrong("spec.weight", f"is {spec.weight}", hint=f"write 1 to {_MAX_WEIGHT}")
    return QueueInfo(
        name=QueueName(queue.metadata.name),
        weight=spec.weight,
        priority=spec.priority,
        parent=QueueName(spec.parent) if spec.parent else None,
        capability=capacities(document, "spec.capability", spec.capability),
        deserved=capacities(document, "spec.deserved", spec.deserved),
        guarantee=capacities(document, "spec.guarantee.resource", spec.guarantee.resource),
        reclaimable=spec.reclaimable,
        phase=QueuePhase.OPEN if queue.status.state in ("", QueuePhase.OPEN) else QueuePhase.CLOSED,
        created_at=seconds(document, queue.metadata.creation_timestamp),
        annotations=queue.metadata.annotations,
        recent_cards=_recent(document, queue.metadata.annotations.get(RECENT_CARDS)),
        node_groups=spec.affinity.rules,
    )


def remembered(queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """With the history of all below each."""
    parents = {queue.name: queue.parent for queue in queues}
    sums = dict.fromkeys(parents, 0.0)
    for queue in queues:
        seen: dict[QueueName, None] = {}
        above: QueueName | None = queue.name if queue.recent_cards else None
        while above in parents and above not in seen:
            seen[above] = None
            sums[above] += queue.recent_cards
            above = parents[above]
    return [replace(queue, recent_cards=sums[queue.name]) for queue in queues] if any(sums.values()) else list(queues)


def in_pools(queues: Sequence[QueueInfo], rights: QueueTree) -> list[QueueInfo]:
    """With their amounts by pool, and the pools that they may use."""
    return [
        replace(
            queue,
            capability=(amounts := rights.amounts(queue.name)).capability,
            deserved=amounts.deserved,
            guarantee=amounts.guarantee,
            pools=rights.pools(queue.name),
        )
        for queue in queues
    ]


def rights_of(documents: Sequence[Document], *, bound: bool = False) -> QueueTree:
    """The queue tree with rights: namespaces, node pools, amounts and protected times of each queue. bound: as `Queue.bound`, for all queues. Raises
    InvalidRequest."""
    tree = QueueTree({})
    for document in documents:
        queue = document.read(kube.Queue, namespaced=False)
        name = QueueName(queue.metadata.name)
        try:
            check_run_time(queue.metadata.annotations)
        except InvalidRequest as e:
            raise InvalidRequest(f"{document.where}: metadata.annotations: {e.message}", hint=e.hint) from e
        tree[name] = Queue(
            name,
            annotations=dict(queue.metadata.annotations),
            parent=queue.spec.parent,
            capability=capacities(document, "spec.capability", queue.spec.capability),
            deserved=capacities(document, "spec.deserved", queue.spec.deserved),
            guarantee=capacities(document, "spec.guarantee.resource", queue.spec.guarantee.resource),
            reclaimable=queue.spec.reclaimable,
            pools=_names(document, POOLS, queue.metadata.annotations),
            pool_amounts=_pool_amounts(document, queue.metadata.annotations.get(POOL_AMOUNTS)),
            lent_pools=_names(document, LENT_POOLS, queue.metadata.annotations),
            lent_to=_names(document, LENT_TO, queue.metadata.annotations),
            namespaces=_names(document, NAMESPACES, queue.metadata.annotations),
            bound=bound,
            priority_classes=_names(document, PRIORITY_CLASSES, queue.metadata.annotations),
            non_preemptible_classes=_names(document, NON_PREEMPTIBLE_CLASSES, queue.metadata.annotations),
        )
    return tree


def _pool_amounts(document: Document, text: str | None) -> dict[str, Resources]:
    where = f"metadata.annotations[{POOL_AMOUNTS}]"
    try:
        written = parse_pool_amounts(text) if text is not None else {}
    except InvalidRequest as e:
        raise document.wrong(where, e.message, hint=e.hint) from e
    amounts: dict[str, Resources] = {}
    for pool, shares in written.items():
        for share, quantities in shares.items():
            there = capacities(document, f"{where}: {share} in pool {pool}", quantities)
            amounts.setdefault(share, {}).update(amounts_in(pool, there))
    return amounts


def _names(document: Document, annotation: str, annotations: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return parse_names(annotation, annotations[annotation]) if annotation in annotations else ()
    except InvalidRequest as e:
        raise InvalidRequest(f"{document.where}: metadata.annotations: {e.message}", hint=e.hint) from e


def _recent(document: Document, text: str | None) -> float:
    try:
        cards = float(text or 0)
    except ValueError:
        cards = -1.0
    if not 0 <= cards < 1e9:
        raise document.wrong(
            f"metadata.annotations[{RECENT_CARDS}]", f"is {text!r}", hint="write how many cards it used on average, like 12.5"
        )
    return cards


def class_of(document: Document) -> kube.PriorityClass:
    """A PriorityClass. Raises InvalidRequest."""
    return document.read(kube.PriorityClass, namespaced=False)


def namespace_of(document: Document) -> tuple[str, Mapping[str, str]]:
    """A namespace's name and labels. Raises InvalidRequest."""
    meta = document.read(kube.Namespace, namespaced=False).metadata
    return meta.name, meta.labels


def budget_of(document: Document) -> DisruptionBudget:
    """A PodDisruptionBudget. As in Kubernetes it allows no disruption until its controller has set a number. Raises InvalidRequest."""
    budget = document.read(kinds.PodDisruptionBudget, namespaced=True)
    if budget.spec.selector.match_expressions:
        raise document.wrong("spec.selector.matchExpressions", "is not supported yet", hint="write it with matchLabels")
    return DisruptionBudget(
        namespace=budget.metadata.namespace,
        name=budget.metadata.name,
        selector=budget.spec.selector.match_labels,
        allowed=max(0, budget.status.disruptions_allowed),
    )


def card_quota_of(document: Document) -> CardQuota | None:
    """The limits of cards in a ResourceQuota, as quota-ledger reads them. Raises InvalidRequest."""
    return card_quota(document.read(kube.ResourceQuota, namespaced=True))


def class_quota_of(document: Document) -> ClassQuota | None:
    """The limits by PriorityClass in a ResourceQuota, as quota-ledger reads them. Raises InvalidRequest."""
    return class_quota(document.read(kube.ResourceQuota, namespaced=True))


def quota_of(document: Document) -> ResourceQuota:
    """A ResourceQuota. What its controller enforces (status.hard) counts before what is written. Raises InvalidRequest."""
    found = document.read(kube.ResourceQuota, namespaced=True)
    return ResourceQuota(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        hard=quota(document, "spec.hard", found.status.hard or found.spec.hard, down=True),
        used=quota(document, "status.used", found.status.used, down=False),
    )
