"""Jobs and queues read from Kubernetes objects alone, where no service of HBox answers. Pure.

The items have the fields of the services' answers. What objects do not state is left at its default: nodes by reason, cards, and positions in a queue.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.model import DEFAULT_QUEUE, Queue, QueueName, QueuePhase, Resources
from hbox_common.model.annotations import GROUP_NAME, QUEUE_NAME
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import capacity_units, request_units
from hbox_common.views.queues import queue_items, tree_of

from .source import Item

Object = Mapping[str, Any]


def job_items(groups: Iterable[Object], pods: Iterable[Object], *, schedulers: Sequence[str], now: float) -> list[Item]:
    """PodGroups with their pods, and single pods of these schedulers, oldest first. `now`: seconds since the epoch."""
    by_group: dict[tuple[str, str], list[Object]] = defaultdict(list)
    single: list[Object] = []
    for pod in pods:
        metadata, spec = _part(pod, "metadata"), _part(pod, "spec")
        if _part(pod, "status").get("phase") in ("Succeeded", "Failed"):
            continue
        group = _part(metadata, "annotations").get(GROUP_NAME) or _part(metadata, "labels").get(GROUP_NAME)
        if group:
            by_group[str(metadata.get("namespace")), str(group)].append(pod)
        elif spec.get("schedulerName") in schedulers:
            single.append(pod)
    items = []
    for group in groups:
        metadata = _part(group, "metadata")
        own = by_group.get((str(metadata.get("namespace")), str(metadata.get("name"))), [])
        if own or _part(group, "status").get("phase") == "Pending":
            items.append(_item(group, own, now=now))
    items += [_item(pod, [pod], now=now) for pod in single]
    return sorted(items, key=lambda item: (-item["ageSeconds"], item["name"]))


def _item(owner: Object, pods: Sequence[Object], *, now: float) -> Item:
    """`owner`: the PodGroup, or the single pod."""
    metadata, spec, status = (_part(owner, name) for name in ("metadata", "spec", "status"))
    placed = {_name(pod): str(_part(pod, "spec")["nodeName"]) for pod in pods if _part(pod, "spec").get("nodeName")}
    waiting = sorted(_name(pod) for pod in pods if _name(pod) not in placed)
    needed = _int(spec.get("minMember"), 1)
    first = _part(pods[0], "metadata") if pods else {}
    named = spec.get("queue") or _part(first, "annotations").get(QUEUE_NAME) or _part(first, "labels").get(QUEUE_NAME)
    reason = "" if not waiting and pods else _reason(status, pods)
    cards = sum(_cards(pod) for pod in pods)
    if not pods:
        cards = VENDORS.asked(_amounts(_part(spec, "minResources"), request_units))
    return {
        "name": f"{metadata.get('namespace')}/{metadata.get('name')}",
        "id": str(metadata.get("uid", "")),
        "queue": str(named or DEFAULT_QUEUE),
        "priority": max((_int(_part(pod, "spec").get("priority"), 0) for pod in pods), default=0),
        "state": _state(pods, len(placed), needed, reason),
        "pods": {"bound": len(placed), "members": len(pods), "min": needed},
        "placed": placed,
        "waiting": waiting,
        "cards": cards,
        "ageSeconds": round(max(0.0, now - _seconds(metadata.get("creationTimestamp"), now)), 1),
        "reason": reason,
    }


def _state(pods: Sequence[Object], bound: int, needed: int, reason: str) -> str:
    if bound < max(1, min(needed, len(pods)) if pods else 1):
        return "WAITING" if reason else "PENDING"
    if bound < len(pods):
        return "GROWING"
    return "RUNNING" if all(_part(pod, "status").get("phase") == "Running" for pod in pods) else "BOUND"


def _reason(status: Object, pods: Sequence[Object]) -> str:
    """Of the PodGroup's condition, else of the first pod that has one."""
    for condition in _conditions(status):
        if condition.get("type") == "Unschedulable" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or "")
    for pod in pods:
        for condition in _conditions(_part(pod, "status")):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and condition.get("message"):
                return str(condition["message"])
    return ""


def queues_of(objects: Iterable[Object], *, now: float) -> list[Item]:
    """Items of Queue objects, by name. Pools, rights and faults are the ledger's and are left out."""
    found = list(objects)
    queues, used, counts = [], dict[str, Resources](), dict[str, Object]()
    for one in found:
        name, spec, status = _name(one), _part(one, "spec"), _part(one, "status")
        counts[name], used[name] = status, _amounts(_part(status, "allocated"), capacity_units)
        queues.append(
            Queue(
                QueueName(name),
                phase=QueuePhase.OPEN if status.get("state") in (None, "", "Open") else QueuePhase.CLOSED,
                capability=_amounts(_part(spec, "capability"), capacity_units),
                deserved=_amounts(_part(spec, "deserved"), capacity_units),
                guarantee=_amounts(_part(_part(spec, "guarantee"), "resource"), capacity_units),
                weight=_int(spec.get("weight"), 1),
                priority=_int(spec.get("priority"), 0),
                reclaimable=spec.get("reclaimable") is not False,
                parent=str(spec.get("parent") or ""),
            )
        )
    items = queue_items(tree_of(queues, _own(queues, used)), (), now=now)
    for item in items:
        status = counts.get(item["name"], {})
        item["pendingJobs"] = _int(status.get("pending"), 0) + _int(status.get("inqueue"), 0)
    return items


def _own(queues: Sequence[Queue], used: Mapping[str, Resources]) -> dict[str, Resources]:
    """A status counts the queues below it too; a tree is made of what each queue uses itself."""
    own = {name: dict(amounts) for name, amounts in used.items()}
    for queue in queues:
        above = own.get(queue.parent)
        if above is not None:
            for resource, units in used[queue.name].items():
                above[resource] = max(0, above.get(resource, 0) - units)
    return own


def _cards(pod: Object) -> int:
    spec = _part(pod, "spec")
    requested = []
    for container in spec.get("containers") or ():
        resources = _part(container, "resources")
        requested.append(VENDORS.asked(_amounts({**_part(resources, "requests"), **_part(resources, "limits")}, request_units)))
    return sum(requested)


def _amounts(found: Object, units: Any) -> Resources:
    amounts: Resources = {}
    for name, written in found.items():
        with suppress(InvalidRequest):
            amounts[str(name)] = units(str(name), written)
    return amounts


def _conditions(status: Object) -> list[Object]:
    return [one for one in status.get("conditions") or () if isinstance(one, Mapping)]


def _part(found: Object, name: str) -> Object:
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def _name(found: Object) -> str:
    return str(_part(found, "metadata").get("name", ""))


def _int(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _seconds(text: object, default: float) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return default
