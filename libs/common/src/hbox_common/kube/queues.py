"""Volcano's Queue objects as queues of the model."""

from collections.abc import Mapping

from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    POOLS,
    Queue,
    QueueName,
    QueuePhase,
    Resources,
    amounts_in,
    capacity_units,
    is_exclusive,
    is_model,
    parse_quantity,
)
from hbox_common.model.annotations import (
    BUDGET,
    LENT_POOLS,
    LENT_TO,
    NAMESPACES,
    NODE_GROUP_LIMITS,
    NON_PREEMPTIBLE_CLASSES,
    POOL_AMOUNTS,
    PRIORITY_CLASSES,
    QUEUE_POLICY_ANNOTATIONS,
    parse_names,
    parse_pool_amounts,
)
from hbox_common.model.bounds import (
    ANNOTATION_BYTES,
    INT32_MAX,
    KEY_BYTES,
    is_name,
    is_plain,
    not_a_name,
    not_plain,
    oversized,
    sanitized,
)
from hbox_common.model.minruntime import check_run_time
from hbox_common.model.sickhardware import unknown_policy

from .objects import Queue as QueueObject
from .objects import QueueAffinity
from .times import epoch_s

#: Of one share of a queue, and of its lists of pools and namespaces: a state of a queue has to go into a message of 256 KiB.
QUEUE_AMOUNTS, QUEUE_NAMES_BYTES = 64, 32 * 1024
#: Groups of nodes that one queue names in all; each is the value of a label.
QUEUE_GROUPS, GROUP_BYTES = 256, 63


def queue_of(found: QueueObject, *, bound: bool = False) -> Queue:
    """The rules of one Queue. In a state other than Open or none (Volcano's Closed, Closing, Unknown) the queue takes no new work. Whether it is published as
    closing or closed depends on what it holds.

    `bound`: the queue is closed to namespaces that neither it nor a queue above it names (`HBOX_QUEUES`).

    Raises InvalidRequest if one of its shares contains an invalid or negative quantity, or if its rules exceed a message.
    """
    spec = found.spec
    return Queue(
        name=QueueName(found.metadata.name),
        phase=QueuePhase.OPEN if found.status.state in ("", "Open") else QueuePhase.CLOSED,
        capability=_amounts("capability", spec.capability),
        weight=_int32("spec.weight", spec.weight),
        priority=_int32("spec.priority", spec.priority),
        deserved=_amounts("deserved", spec.deserved),
        guarantee=_amounts("guarantee", spec.guarantee.resource),
        reclaimable=spec.reclaimable,
        parent=_parent(spec.parent),
        pools=_names(POOLS, found),
        pool_amounts=_pool_amounts(found),
        lent_pools=_lent_pools(found),
        lent_to=_names(LENT_TO, found),
        namespaces=_names(NAMESPACES, found),
        bound=bound,
        priority_classes=_names(PRIORITY_CLASSES, found),
        non_preemptible_classes=_names(NON_PREEMPTIBLE_CLASSES, found),
        budget_card_hours=_budget(found.metadata.annotations.get(BUDGET)),
        created_at=_seconds(found.metadata.creation_timestamp),
        annotations=_annotations(found),
        node_groups=_node_groups(found.spec.affinity),
        unknown_fields=tuple(filter(None, (*found.unknown_fields, unknown_policy(found.metadata.annotations)))),
    )


def closed(found: QueueObject, fault: str) -> Queue:
    """A queue whose rules cannot be read: nothing new is given to it until they can be, and nothing is taken from it."""
    return Queue(
        QueueName(found.metadata.name),
        QueuePhase.CLOSED,
        {},
        max(1, min(found.spec.weight, INT32_MAX)),
        max(-INT32_MAX, min(found.spec.priority, INT32_MAX)),
        reclaimable=False,
        parent=found.spec.parent if is_name(found.spec.parent) else "",
        fault=sanitized(fault),
        unknown_fields=found.unknown_fields,
    )


def _amounts(share: str, quantities: Mapping[str, str | float]) -> Resources:
    amounts: Resources = {}
    if len(quantities) > QUEUE_AMOUNTS:
        raise InvalidRequest(oversized(share, len(quantities), QUEUE_AMOUNTS))
    for name, quantity in quantities.items():
        if not is_plain(name, KEY_BYTES):
            raise InvalidRequest(not_plain(f"a name in {share}", name, KEY_BYTES))
        try:
            amounts[name] = capacity_units(name, quantity)
        except InvalidRequest as e:
            raise InvalidRequest(f"{share} of {name}: {e.message}", hint=e.hint) from e
        if amounts[name] < 0:
            raise InvalidRequest(f"{share} of {name}: {quantity} is negative")
        if is_model(name) and amounts[name] != parse_quantity(quantity):
            raise InvalidRequest(f"{share} of {name}: {quantity} is no whole number of cards")
    return amounts


def _names(annotation: str, found: QueueObject) -> tuple[str, ...]:
    text = found.metadata.annotations.get(annotation)
    if text is None:
        return ()
    if not is_plain(text, QUEUE_NAMES_BYTES):
        raise InvalidRequest(not_plain(f"annotation {annotation}", text, QUEUE_NAMES_BYTES))
    return parse_names(annotation, text)


def _pool_amounts(found: QueueObject) -> dict[str, Resources]:
    """By `capability`, `deserved` and `guarantee`: the amounts that the annotation names by pool."""
    text = found.metadata.annotations.get(POOL_AMOUNTS)
    if text is None:
        return {}
    if len(text) > QUEUE_NAMES_BYTES:
        raise InvalidRequest(oversized(f"annotation {POOL_AMOUNTS}", len(text), QUEUE_NAMES_BYTES))
    amounts: dict[str, Resources] = {}
    for pool, shares in parse_pool_amounts(text).items():
        if not is_plain(pool, GROUP_BYTES):
            raise InvalidRequest(not_plain(f"a pool in {POOL_AMOUNTS}", pool, GROUP_BYTES))
        for share, quantities in shares.items():
            found_there = amounts_in(pool, _amounts(f"{share} in pool {pool}", quantities))
            amounts.setdefault(share, {}).update(found_there)
    if (most := max(map(len, amounts.values()), default=0)) > QUEUE_AMOUNTS:
        raise InvalidRequest(oversized(f"annotation {POOL_AMOUNTS}", most, QUEUE_AMOUNTS))
    return amounts


def _lent_pools(found: QueueObject) -> tuple[str, ...]:
    pools = _names(LENT_POOLS, found)
    if shared := [pool for pool in pools if not is_exclusive(pool)]:
        raise InvalidRequest(
            f"annotation {LENT_POOLS} names {shared[0]}, which has no owner",
            hint="name pools that the queue owns; pooled is shared anyway",
        )
    return pools


def _annotations(found: QueueObject) -> dict[str, str]:
    """Those that plugins read. What they mean is the plugins' business: a policy without them does not care."""
    kept = {name: found.metadata.annotations[name] for name in QUEUE_POLICY_ANNOTATIONS if name in found.metadata.annotations}
    check_run_time(kept)
    for name, text in kept.items():
        if not is_plain(text, most := QUEUE_NAMES_BYTES if name == NODE_GROUP_LIMITS else ANNOTATION_BYTES):
            raise InvalidRequest(not_plain(f"annotation {name}", text, most))
    return kept


def _node_groups(affinity: QueueAffinity) -> dict[str, tuple[str, ...]]:
    rules = affinity.rules
    groups = [group for named in rules.values() for group in named]
    if len(groups) > QUEUE_GROUPS:
        raise InvalidRequest(oversized("node groups of spec.affinity", len(groups), QUEUE_GROUPS))
    for group in groups:
        if not is_plain(group, GROUP_BYTES):
            raise InvalidRequest(not_plain("a node group of spec.affinity", group, GROUP_BYTES))
    return rules


def _int32(what: str, number: int) -> int:
    if abs(number) > INT32_MAX:
        raise InvalidRequest(f"{what} is {number}", hint="write a number of 32 bits")
    return number


def _parent(name: str) -> str:
    if name and not is_name(name):
        raise InvalidRequest(not_a_name("spec.parent", name))
    return name


def _budget(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise InvalidRequest(
            f"{BUDGET} is {sanitized(text, 64)!r}, which is no number of card-hours", hint="write it like 1000"
        )
    return int(text)


def _seconds(timestamp: str | None) -> float:
    return epoch_s(timestamp) if timestamp else 0.0
