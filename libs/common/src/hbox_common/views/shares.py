"""Explains a queue's share: for each level, from the queue to the root, the amounts deserved, used and borrowed, and those of its siblings.

The ledger's rule (`hbox_common.model.rights`): a queue below its share may reclaim, for its demand, what a sibling has beyond the sibling's share.
"""

from collections.abc import Sequence
from typing import Any

from hbox_common.model import Job, QueueName, QueueTree, named_models
from hbox_common.model.devices import VENDORS
from hbox_common.model.rights import Named, spare

from .fairshares import Memory, fair_shares
from .queues import Item, elsewhere, queue_item, waited_for


def share_of(
    tree: QueueTree, name: QueueName, jobs: Sequence[Job], resource: str, *, now: float, memory: Memory | None = None
) -> Item:
    """`levels` begin with the queue itself; `mayTake` of a sibling is what it lacks of its share and waits for, `mayGive` what the queue has to give. With
    `memory`, of cards, each has its `fair` share."""
    levels = [_level(tree, one, jobs, resource, now=now) for one in tree.path(name) if one in tree]
    if memory is not None and resource in VENDORS:
        fair = fair_shares(tree, jobs, memory)
        for level in levels:
            for one in (level, *level["siblings"]):
                one["fair"] = fair.get(one["name"])
    refusal = tree.refusal(name)
    headroom = tree.headroom(name, {resource: 1})
    own = levels[0]
    return {
        "name": name,
        "resource": resource,
        **{key: own[key] for key in ("used", "deserved", "byWeight", "guarantee", "borrowed", "idle", "waiting")},
        "limit": min((level["limit"] for level in levels if level["limit"] is not None), default=None),
        "room": 0 if refusal is not None else headroom.times,
        "wall": refusal.message if refusal is not None else headroom.message if headroom.times == 0 else "",
        "levels": levels,
        **(
            {"usageWeight": memory.weight, "halfLifeHours": memory.half_life_h, "cards": memory.cards}
            if memory is not None
            else {}
        ),
    }


def share_document(tree: QueueTree, name: QueueName, jobs: Sequence[Job], resource: str, *, now: float, memory: Memory) -> Item:
    """As `share_of`, for cards also by model if the queue or an ancestor names models, and for other pools."""
    path = [tree[one] for one in tree.path(name) if one in tree] if resource in VENDORS.cards else []
    named = sorted(
        {
            model
            for one in path
            for model in named_models(one.guarantee, one.deserved, one.capability)
            if model.startswith(f"{resource}.")
        }
    )
    share = share_of(tree, name, jobs, resource, now=now, memory=memory)
    share["models"] = [share_of(tree, name, jobs, model, now=now) for model in named]
    there = sorted(elsewhere(queue_item(tree, name, jobs, now=now), resource))
    share["pools"] = [share_of(tree, name, jobs, one, now=now) for one in there]
    return share


def _level(tree: QueueTree, name: QueueName, jobs: Sequence[Job], resource: str, *, now: float) -> Item:
    parent = tree[name].parent
    all_siblings = tree.children(QueueName(parent)) if parent in tree else tree.tops()
    siblings = [_figures(tree, one, jobs, resource, now=now) for one in all_siblings if one != name]
    own = _figures(tree, name, jobs, resource, now=now)
    asked = sum(sibling["mayTake"] for sibling in siblings)
    gives = spare(tree.rights(name), Named(tree.used(name)), resource) if tree[name].reclaimable else 0
    return {**own, "mayGive": min(asked, gives), "siblings": siblings}


def _figures(tree: QueueTree, name: QueueName, jobs: Sequence[Job], resource: str, *, now: float) -> dict[str, Any]:
    item = queue_item(tree, name, jobs, now=now)
    waiting = sum(waited_for(task, resource) for job in jobs if name in tree.path(job.queue) for task in job.tasks)
    idle = item["idle"].get(resource, 0)
    return {
        "name": name,
        "used": item["used"].get(resource, 0),
        "deserved": item["deserved"].get(resource),
        "byWeight": item["byWeight"].get(resource),
        "weight": item["weight"],
        "guarantee": item["guarantee"].get(resource, 0),
        "limit": item["capability"].get(resource),
        "borrowed": item["borrowed"].get(resource, 0),
        "idle": idle,
        "waiting": waiting,
        "mayTake": min(idle, waiting),
    }
