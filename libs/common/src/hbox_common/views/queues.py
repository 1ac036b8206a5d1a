"""Queues for the output. Pure."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hbox_common.model import (
    DEFAULT_QUEUE,
    PUBLIC,
    ROOT_QUEUE,
    Job,
    PodGroupTask,
    Queue,
    QueueName,
    QueueTree,
    Resources,
    by_pool,
    faults,
    is_host_port,
    is_model,
    model_of,
    named_models,
    names_model,
)
from hbox_common.model.cardparts import in_cards
from hbox_common.model.devices import VENDORS
from hbox_common.model.rights import Named, excess, lacking

Item = dict[str, Any]


def tree_of(queues: Iterable[Queue], used: Mapping[str, Resources]) -> QueueTree:
    """The default queue is there in any case."""
    tree = QueueTree({QueueName(name): amounts for name, amounts in used.items()})
    tree.update({queue.name: queue for queue in queues})
    tree.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
    return tree


def queue_items(tree: QueueTree, jobs: Iterable[Job], *, now: float) -> list[Item]:
    """One item a queue, by name, without the root, which is there for Volcano's controllers. `now`: seconds since the epoch."""
    known = list(jobs)
    return [queue_item(tree, name, known, now=now) for name in sorted(tree) if name != ROOT_QUEUE]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Jobs of a queue, or of all queues below it, that have pods without a node. `oldest`: when the first was created, in seconds since the epoch."""

    jobs: int = 0
    cards: int = 0
    oldest: float = math.inf

    def __add__(self, other: "Waiting") -> "Waiting":
        return Waiting(self.jobs + other.jobs, self.cards + other.cards, min(self.oldest, other.oldest))


def waiting_of(jobs: Iterable[Job]) -> Waiting:
    """Of all of these jobs."""
    found = [job for job in jobs if any(task.pods for task in job.tasks)]
    oldest = min((job.created_at for job in found), default=math.inf)
    return Waiting(len(found), VENDORS.asked(asked_of(found)), oldest)


def queue_item(
    tree: QueueTree, name: QueueName, jobs: Iterable[Job], *, now: float, models: Container[str] | None = None
) -> Item:
    """Use counts the queue and all below it; `borrowed` and `idle` are of what it names a share of. `models`: the card models of the cluster, as resources;
    None = not known."""
    return item_of(tree, name, waiting_of(job for job in jobs if name in tree.path(job.queue)), now=now, models=models)


def item_of(tree: QueueTree, name: QueueName, waiting: Waiting, *, now: float, models: Container[str] | None = None) -> Item:
    """As `queue_item`; `waiting`: of the queue and all below it."""
    queue = tree[name]
    used = {resource: units for resource, units in tree.used(name).items() if units and not is_host_port(resource)}
    rights = tree.rights(name)
    due = rights.entitlement
    return {
        "name": name,
        "parent": queue.parent,
        "depth": len(tree.path(name)) - 1,
        "state": queue.phase.value,
        "weight": queue.weight,
        "priority": queue.priority,
        "reclaimable": queue.reclaimable,
        "guarantee": rights.guarantee,
        "deserved": due,
        "byWeight": dict(tree.shares.get(name, {})),
        "capability": tree.amounts(name).capability,
        "used": in_cards(used),
        "borrowed": {resource: units for resource in due if (units := excess(rights, Named(used), resource))},
        "idle": {resource: units for resource in due if (units := lacking(rights, Named(used), resource))},
        "pools": [PUBLIC, *tree.pools(name)],
        "home": tree.home(name),
        "borrowsFrom": list(tree.lent(name)),
        "lentPools": [pool for pool in queue.lent_pools if tree.owns(name, pool)],
        "lentTo": list(queue.lent_to),
        "namespaces": list(queue.namespaces),
        "bound": queue.bound,
        "priorityClasses": list(queue.priority_classes),
        "nonPreemptibleClasses": list(queue.non_preemptible_classes),
        "pendingJobs": waiting.jobs,
        "pendingCards": waiting.cards,
        "oldestPendingSeconds": round(now - waiting.oldest, 1) if waiting.jobs else 0.0,
        "faults": list(faults(tree, name, models)),
    }


def elsewhere(item: Mapping[str, Any], resource: str) -> list[str]:
    """The names of this resource in other pools than `pooled`, of what the queue uses or has an amount of."""
    named = {*item["used"], *(name for amount in ("guarantee", "deserved", "capability") for name in item[amount])}
    return sorted(name for name in named if by_pool(name)[0] == resource and by_pool(name)[1])


def asked_of(jobs: Iterable[Job]) -> Resources:
    """What the pods without a node ask for."""
    asked: Resources = {}
    for job in jobs:
        for task in job.tasks:
            for resource, units in task.requests.items():
                asked[resource] = asked.get(resource, 0) + units * len(task.pods)
    return asked


def waited_for(task: PodGroupTask, resource: str) -> int:
    """The pending amount of a resource in a task; of a card model, only if each model name of the task matches that model."""
    if not is_model(resource):
        return task.requests.get(resource, 0) * len(task.pods)
    vendor = VENDORS.of(task.requests)
    if task.cards is None or vendor is None:
        return 0
    named = VENDORS.owner(resource) == vendor.cards and all(names_model(name, model_of(resource)) for name in task.cards.models)
    return task.cards.count * len(task.pods) if task.cards.models and named else 0


def models_named(item: Mapping[str, Any]) -> list[str]:
    """The card models that the amounts of a queue name, as resources."""
    return sorted(named_models(item["guarantee"], item["deserved"], item["capability"]))


def tree_rows(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each queue with its name behind a drawn branch, parents before children; last those that hang below no root."""
    by_name = {item["name"]: item for item in items}
    children: dict[str, list[str]] = {}
    for name, item in sorted(by_name.items()):
        parent = item["parent"] if item["parent"] in by_name else ""
        children.setdefault(parent, []).append(name)
    seen: set[str] = set()

    def below(name: str, indent: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        own = [child for child in children.get(name, ()) if child not in seen]
        for position, child in enumerate(own):
            last = position == len(own) - 1
            seen.add(child)
            yield f"{indent}{'└ ' if last else '├ '}{child}", by_name[child]
            yield from below(child, indent + ("  " if last else "│ "))

    for top in children.get("", ()):
        seen.add(top)
        yield top, by_name[top]
        yield from below(top, "")
    for name in sorted(by_name.keys() - seen):
        yield name, by_name[name]
