"""What the quotas of a namespace still pay for of cards, and which cards exceed them.

A request in MiB counts the same on every card; a percentage, or a whole card, counts what it comes to on the card that is chosen. So a pod may be
kept from large cards and not from small ones: its task is then bounded to what each of its cards may count. Pods that have to start together share
what is left evenly: while each takes no more than its part, those after it have no less, and where any choice of cards can be paid, there is always
one that is not above the mean.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hbox_common.model import VENDORS, CardQuotas, CardRequest, Resources
from hbox_common.model.devices import ALL_CORES, PodDevices

from ..cluster import Columns
from ..cluster.task import Task, kept_with_task
from ..devices import Bounded, bounded_request

#: No quota covers any card.
NOTHING = -1


class NamespaceQuota:
    """Over the quotas, and the cards of all nodes as they are described now."""

    def __init__(self, columns: Columns, quotas: CardQuotas) -> None:
        self.quotas = quotas
        self._columns = columns
        self._described = -1
        self._sizes: dict[tuple[str, ...], tuple[int, ...]] = {}

    def remaining(self, namespace: str) -> Resources:
        """What is left now of what is limited: to be handed in below, and to `charge` from, while an attempt is made."""
        return self.quotas.left(namespace)

    def within_quota(self, task: Task, left: Mapping[str, int], *, together: int = 1) -> tuple[Task, int]:
        """The task kept from cards that exceed what is left, and for how many such pods the left pays, whichever of these cards they take: `together` at
        least, or
        none at all."""
        request = task.cards
        if request is None:
            return task, together
        if request.devices is not None:
            return _within(task, tuple(sorted((name, max(units, 0) // together) for name, units in left.items()))), together
        each, memory = _fixed(task.requests, request)
        pods = min((max(left[name], 0) // units for name, units in each.items() if units and name in left), default=_MANY)
        if memory in left and memory not in each:
            needs = self._needs(request)
            share = left[memory] // (request.count * together)
            largest = bisect_right(needs, share) - 1
            if largest < 0:
                return bounded(task, NOTHING), 0
            need = needs[largest]
            if need:
                pods = min(pods, left[memory] // (request.count * need))
            task = bounded(task, need)
        return (task, pods) if pods >= together else (bounded(task, NOTHING), 0)

    def limit_message(self, namespace: str, task: Task, left: Mapping[str, int] | None = None, *, together: int = 1) -> str:
        """Which quota keeps such pods from a card: from any, or else from the next larger one than it pays for."""
        request = task.cards
        if request is None:
            return ""
        now = self.remaining(namespace)
        left = now if left is None else left
        if request.devices is not None:
            return self.quotas.headroom(namespace, {name: units * together for name, units in self.least(task).items()}).message
        each, memory = _fixed(task.requests, request)
        if memory and memory not in each:
            kept, _ = self.within_quota(task, left, together=together)
            most = kept.cards.most_mib if isinstance(kept.cards, Bounded) else NOTHING
            needs = self._needs(request)
            each |= {memory: request.count * next((need for need in needs if need > most), max(needs, default=0))}
        asked = {name: units * together for name, units in each.items()}
        return self.quotas.headroom(namespace, asked, {name: units - left[name] for name, units in now.items()}).message

    def least(self, task: Task) -> Resources:
        """What one such pod counts on the smallest cards that there are: of memory first."""
        request = task.cards
        if request is None:
            return {}
        if request.devices is not None:
            return _least(request.devices, min(self._needs(_ANY), default=0))
        each, memory = _fixed(task.requests, request)
        return {memory: request.count * min(self._needs(request), default=0), **each} if memory else each

    def _needs(self, request: CardRequest) -> tuple[int, ...]:
        """The request's memory on each existing size of card, in MiB, ascending; without cards of unknown size, for which it is unknown."""
        columns = self._columns
        if self._described != columns.described.end:
            self._described = columns.described.end
            self._sizes.clear()
        sizes = self._sizes.get(request.models)
        if sizes is None:
            there = (columns.card_index >= 0) & columns.alive[:, None]
            if request.models:
                there &= columns.models_allowed(request.models)[columns.card_model]
            sizes = self._sizes[request.models] = tuple(
                np.unique(columns.card_memory[there & (columns.card_memory > 0)]).tolist()
            )
        return tuple(sorted({request.memory_on(size) for size in sizes}))


@kept_with_task
def bounded(task: Task, most_mib: int) -> Task:
    """The task, on cards of which each slice counts so much at most."""
    assert task.cards is not None
    return replace(task, cards=replace(bounded_request(task.cards), most_mib=most_mib))


@kept_with_task
def _within(task: Task, left: tuple[tuple[str, int], ...]) -> Task:
    """The task, which may count so much of each resource at most: for one that asks container by container."""
    assert task.cards is not None
    return replace(task, cards=replace(bounded_request(task.cards), left=left))


def _least(devices: PodDevices, card_mib: int) -> Resources:
    """What a pod's containers count together at one time, on cards of this size: of memory that it names, and of cards (sources: hami-quota)."""
    lasting: Resources = {}
    most: Resources = {}
    for container in range(devices.containers):
        now = dict(lasting)
        for ask in devices.of(container):
            vendor = VENDORS.kind(ask.kind)
            for name, units in ((vendor.cards, 1), (vendor.cores, ask.cores), (vendor.memory, ask.memory_on(card_mib))):
                if name:
                    now[name] = now.get(name, 0) + ask.count * units
        most = {name: max(units, most.get(name, 0)) for name, units in now.items()} | {
            n: u for n, u in most.items() if n not in now
        }
        if not devices.ends_early(container):
            lasting = now
    return most


_MANY = 1 << 30
_ANY = CardRequest(1)


def _fixed(requests: Resources, request: CardRequest) -> tuple[Resources, str]:
    """What one pod counts whatever its cards, without memory where that depends on them; and the resource that counts memory, empty where there is none."""
    vendor = VENDORS.of(requests)
    if vendor is None:
        return {}, ""
    each = {vendor.cards: request.count}
    if vendor.cores:
        each[vendor.cores] = request.count * (ALL_CORES if request.whole else request.cores)
    if vendor.memory and request.memory_mib and not request.whole:
        each[vendor.memory] = request.count * request.memory_mib
    return each, vendor.memory
