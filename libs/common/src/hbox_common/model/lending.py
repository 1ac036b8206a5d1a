"""Lending of unused guarantees, limited so that they can be reclaimed (S4).

A guarantee that its queue does not use is lent. The queue must get it back on demand, so it is lent only to work that can be evicted. *Non-preemptible* work
cannot be evicted: claims that may not be preempted, claims of queues that are not reclaimable, and pods of other schedulers.

    owed         the queues' guarantees beyond what they hold non-preemptibly themselves; for a parent at least the sum over its children
    available    capacity of schedulable nodes that is not held non-preemptibly: free, or held by work that can be evicted

Non-preemptible work is admitted if `owed <= available` holds afterwards, or if it does not increase `owed - available`: within its own guarantee a queue may
always start work. A failed node, a larger guarantee or a discovered pod can violate the inequality; until it holds again, no more non-preemptible work beyond
its queue's guarantee is admitted.

Amounts are by pool (`pools`): a guarantee in one pool must be covered by nodes of that pool. A card and a share of a card both count as one, as in all amounts
of queues.

While no queue has a guarantee, nothing is counted. After a change of rules everything is recounted at the next query.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from .cardmodels import is_model, model_resource
from .devices import VENDORS
from .ids import NodeName, QueueName
from .node import NodeState, Verdict
from .offline import OFFLINE
from .pools import by_pool, in_pool, pool_of, pools_named
from .queuetree import Headroom, QueueTree
from .resources import PODS, Resources, add
from .rights import CARDS_BY_NAME, Named, may_be_protected, reclaimable


class Held(NamedTuple):
    """What one pod holds of a node, cards also by model, as it counts against its queue (`Claim.amounts`)."""

    queue: QueueName
    node: NodeName
    requests: Resources
    preemptable: bool


@dataclass(slots=True)
class _Sums:
    """Of one queue with all below it."""

    guarantee: Resources
    non_preemptible: Resources = field(default_factory=dict)
    below: Resources = field(default_factory=dict)  #: owed to the queues right below it, together

    def owed(self, name: str, *, non_preemptible: int = 0, below: int = 0) -> int:
        """With so much more that is non-preemptible, and so much more owed below."""
        return max(
            self.guarantee.get(name, 0) - self.non_preemptible.get(name, 0) - non_preemptible, self.below.get(name, 0) + below
        )


class Lending:
    """`held`: all claims; `nodes`: for every node the result of `usable`."""

    def __init__(
        self,
        queues: QueueTree,
        held: Callable[[], Iterable[Held]],
        nodes: Callable[[], Iterable[tuple[NodeState, Verdict | None]]],
    ) -> None:
        self.eased = False  #: there may be more for non-preemptible work than before; the reader sets it back
        self._queues, self._held, self._nodes = queues, held, nodes
        self._rules = -1  #: the version of the tree that is counted by
        self._names: frozenset[str] = frozenset()
        self._sums: dict[QueueName, _Sums] = {}
        self._resources: frozenset[str] = frozenset()  #: of the names, in whichever pool
        self._usable: dict[NodeName, Resources] = {}
        self._non_preemptible_on: dict[NodeName, Resources] = {}  #: by resource, as whatever it counts
        self._available: Resources = {}
        self._owed: Resources = {}

    def unlent(self, nodes: Callable[[], Iterable[tuple[NodeState, Verdict | None]]]) -> "Lending":
        """The same rules with nothing held. nodes: as of the constructor."""
        return Lending(self._queues, tuple, nodes)

    def is_non_preemptible(self, queue: QueueName, *, preemptable: bool) -> bool:
        """Whether a pod of this queue can never be evicted for another queue."""
        return not reclaimable(self._queues.get(queue), preemptable=preemptable)

    @property
    def guaranteed(self) -> frozenset[str]:
        """The resources of which anybody is guaranteed any."""
        self._fresh()
        return self._names

    def node(self, state: NodeState, verdict: Verdict | None) -> None:
        """Record the present state of a node."""
        self.eased = True
        if not self.counting:
            return
        self._of_node(state.name, -1)
        self._usable.pop(state.name, None)
        self._find(state, verdict)

    def book(self, held: Held, times: int = 1) -> None:
        """A pod got what it holds, or (-1) holds it no more."""
        if not self.counting or not self.is_non_preemptible(held.queue, preemptable=held.preemptable):
            return
        there: Resources = {}
        for name, units in held.requests.items():
            resource, pool = by_pool(name)
            if resource in self._resources and pool != OFFLINE:  # offline work can always be evicted
                there[resource] = there.get(resource, 0) + units * times
        if not there:
            return
        self.eased |= times < 0
        self._of_node(held.node, -1)
        add(self._non_preemptible_on.setdefault(held.node, {}), there)
        self._of_node(held.node, 1)
        amounts = {name: units * times for name, units in held.requests.items() if name in self._names}
        if not amounts:
            return
        for owed in self._after(held.queue, amounts):
            add(self._owed, owed)
        below: Resources = {}
        for sums in self._path(held.queue):
            before = {name: sums.owed(name) for name in amounts}
            add(sums.non_preemptible, amounts)
            add(sums.below, below)
            below = {name: sums.owed(name) - units for name, units in before.items()}

    def recount(self) -> None:
        """`held` changed other than by `book`: recount at the next query."""
        self._rules = -1

    @contextmanager
    def uneased(self) -> Iterator[None]:
        """Bookings in this block are tentative: they free nothing for waiting jobs."""
        eased = self.eased
        try:
            yield
        finally:
            self.eased = eased

    @contextmanager
    def assuming(self, others: Collection[Held], *, leaving: Collection[Held] = ()) -> Iterator[None]:
        """As if the pods `others` were placed and the pods `leaving` evicted."""
        changes = [*((held, 1) for held in others), *((held, -1) for held in leaving)]
        if changes:
            self._fresh()
        with self.uneased():
            for held, times in changes:
                self.book(held, times)
            try:
                yield
            finally:
                for held, times in changes:
                    self.book(held, -times)

    def headroom(self, queue: QueueName, each: Mapping[str, int]) -> Headroom:
        """How many times non-preemptible work of the queue that requests `each`, by the names of its pools, may still start (None = no limit), and the reason
        for the limit."""
        self._fresh()
        asked = {name: units for name, units in each.items() if units > 0 and name in self._names}
        times: int | None = None
        message = ""
        for name, units in asked.items():
            owed, has = self._owed.get(name, 0), self._available.get(name, 0)
            fits = self._times(queue, name, units, max(has - owed, 0), owed)
            if times is None or fits < times:
                times = fits
                message = (
                    f"{owed} of {name} are guaranteed to queues that do not hold them, {max(has, 0)} are free or could be taken back for them; "
                    f"{units} more, from which queue {queue} gives nothing back, would leave too few"
                )
        return Headroom(times, message)

    def _times(self, queue: QueueName, name: str, units: int, slack: int, owed: int) -> int:
        """The largest number of times for which the requested amount, less the resulting decrease of `owed`, is within `slack`."""

        def within(times: int) -> bool:
            relief = -sum(change[name] for change in self._after(queue, {name: units * times}))
            return units * times - relief <= slack

        low, high = 0, (slack + owed) // units + 1
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if within(middle) else (low, middle)
        return low

    def _after(self, queue: QueueName, amounts: Mapping[str, int]) -> list[Resources]:
        """Increase of each queue's own debt on the path, beyond the debt below it, if the queue's non-preemptible usage grows by `amounts`."""
        changes: list[Resources] = []
        below = dict.fromkeys(amounts, 0)
        for sums in self._path(queue):
            change: Resources = {}
            for resource, units in amounts.items():
                before, after = sums.owed(resource), sums.owed(resource, non_preemptible=units, below=below[resource])
                change[resource] = after - before - below[resource]
                below[resource] = after - before
            changes.append(change)
        return changes

    def _path(self, queue: QueueName) -> list[_Sums]:
        found = []
        for name in self._queues.path(queue):
            if name not in self._sums:
                self._sums[name] = _Sums({})
            found.append(self._sums[name])
        return found

    def _of_node(self, name: NodeName, times: int) -> None:
        """Add, or subtract, a node's capacity that is not held non-preemptibly."""
        if (has := self._usable.get(name)) is None:
            return
        non_preemptible = self._non_preemptible_on.get(name, {})
        add(self._available, {n: max(units - non_preemptible.get(by_pool(n)[0], 0), 0) for n, units in has.items()}, times)

    def _find(self, state: NodeState, verdict: Verdict | None) -> None:
        """Enter a node that was not there."""
        found = usable(state, verdict, self._resources)
        if found is None:
            return
        pool, has = found
        self._usable[state.name] = {
            name: units for resource, units in has.items() if (name := in_pool(resource, pool)) in self._names
        }
        self._of_node(state.name, 1)

    # How it is counted.

    def validate(self) -> None:
        """Raises AssertionError where a sum is not what counting gives."""
        if not self.counting:
            return
        other = Lending(self._queues, self._held, self._nodes)
        other._fresh()
        for mine, counted in ((self._available, other._available), (self._owed, other._owed)):
            assert _solid(mine) == _solid(counted)

    @property
    def counting(self) -> bool:
        """Whether there are sums that have to be kept in step."""
        return bool(self._names) and self._rules == self._queues.version

    def _fresh(self) -> None:
        if self._rules == self._queues.version:
            return
        self._rules = self._queues.version
        guarantees = (self._queues.amounts(queue).guarantee for queue in self._queues)
        self._names = frozenset(name for guarantee in guarantees for name, units in guarantee.items() if units > 0)
        self._resources = frozenset(by_pool(name)[0] for name in self._names)
        self._sums, self._usable, self._non_preemptible_on, self._available, self._owed = {}, {}, {}, {}, {}
        if not self._names:
            return
        for top in self._queues.tops():
            self._owe(top, set())
        for state, verdict in self._nodes():
            self._find(state, verdict)
        for held in self._held():
            self.book(held)

    def _owe(self, name: QueueName, seen: set[QueueName]) -> Resources:
        """Enter what the queue and all below it are owed while nothing is non-preemptible. Queues in a circle are owed nothing."""
        if name in seen:
            return {}
        seen.add(name)
        guarantee = self._queues.amounts(name).guarantee
        below: Resources = {}
        for child in self._queues.children(name):
            add(below, self._owe(child, seen))
        sums = self._sums[name] = _Sums(guarantee, below=below)
        owed = {resource: sums.owed(resource) for resource in self._names}
        add(self._owed, {resource: units - below.get(resource, 0) for resource, units in owed.items()})
        return owed


def usable(state: NodeState, verdict: Verdict | None, names: Iterable[str]) -> tuple[str, Resources] | None:
    """The pool of the node, and what of these resources may be given away there at all; None where nothing may."""
    if state.gone or not state.ready or state.unschedulable or (verdict is not None and not verdict.healthy):
        return None
    has = {name: state.allocatable.get(name, 0) for name in names}
    if not state.cards:
        return pool_of(state.labels), has
    sound = [card.model for card in state.cards if card.healthy and not (verdict is not None and verdict.marks_unhealthy(card))]
    vendor = VENDORS.of(state.allocatable)
    for name in has:
        if vendor is not None and name == vendor.cards:
            has[name] = len(sound)
        elif vendor is not None and is_model(name):
            has[name] = sum(model_resource(vendor.cards, model) == name for model in sound)
    return pool_of(state.labels), has


def sound_capacity(state: NodeState, verdict: Verdict | None) -> Resources:
    """The allocatable amounts of a node, without the units of cards that may not be used."""
    capacity, vendor = dict(state.allocatable), VENDORS.of(state.allocatable)
    if vendor is not None and state.cards and verdict is not None and (verdict.cards or verdict.bad_cards):
        sound = sum(not verdict.marks_unhealthy(card) for card in state.cards)
        capacity[vendor.cards] = capacity[vendor.cards] * sound // len(state.cards)
    return capacity


def _solid(amounts: Resources) -> Resources:
    return {name: units for name, units in amounts.items() if units}


def may_stay(
    queues: QueueTree, lending: Lending, protected: Callable[[QueueName], Resources], queue: QueueName, asked: Resources
) -> bool:
    """Whether work of a non-preemptible class may be protected (ADR 33): pool by pool within the entitlement of its queue and all ancestors in addition to
    their `protected` work, and if enough remains for the guarantees of other queues. asked: the amounts by the names of its pools."""
    path = [(queues.ruled(name), Named(protected(name))) for name in queues.path(queue)]
    for pool in pools_named(asked):  # what it deserves in one pool protects nothing in another
        counted = {name: units for name, units in asked.items() if (of := by_pool(name))[1] == pool and of[0] != PODS}
        if not may_be_protected(path, counted, CARDS_BY_NAME):
            return False
    return lending.headroom(queue, asked).times != 0
