"""ResourceQuotas of cards and their parts: the cards, card memory and compute that all pods of a namespace may hold together.

Kubernetes adds up the containers' requests: 2 cards with 2000 MiB of each count as 2000. Here they count as 4000, and a percentage or a whole card counts as
its size on the allocated card. The keys are HAMi's (sources: hami-quota): `limits.` with a vendor's resource for MiB or percent of compute, which Kubernetes
ignores, and `limits.` with the resource that counts its cards.

Both scheduler-core and quota-ledger use this module. A claim counts from its creation until its pod is known to be gone. All quotas of a namespace apply. If a
quota cannot be read or uses an unsupported feature, it allows no cards: otherwise an intended limit would not be enforced.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .devices import VENDORS, CardSlice
from .queuetree import Headroom
from .resources import Resources, add

#: Slices of one pod, with its namespace and its requests, which determine the cards' vendor.
Held = tuple[str, Mapping[str, int], Sequence[CardSlice]]


@dataclass(frozen=True, slots=True)
class CardQuota:
    """The part of one ResourceQuota that limits cards. `limits`: cards, percent of cards' compute, MiB, by resource; 0 allows none."""

    namespace: str
    name: str
    limits: Resources = field(default_factory=dict)
    fault: str = ""  #: why it cannot be kept as written


def charge(requests: Mapping[str, int], slices: Sequence[CardSlice], times: int = 1) -> Resources:
    """Amounts of these slices of one pod, `times` over. `requests`: the pod's; empty if it requests no vendor's cards.

    If a pod has cards of several vendors, each vendor is charged with all cores and memory: only the node's inventory distinguishes them, and no quota may be
    evaded.
    """
    vendors = [vendor for vendor in VENDORS if requests.get(vendor.cards)] if len(slices) > 1 else ()
    if len(vendors) < 2:
        vendor = VENDORS.of(requests)
        vendors = [vendor] if vendor is not None else []
    counted: Resources = {}
    for vendor in vendors:
        cards = len(slices) if len(vendors) == 1 else min(requests[vendor.cards], len(slices))
        counted[vendor.cards] = times * cards
        if vendor.cores:
            counted[vendor.cores] = times * sum(s.cores for s in slices)
        if vendor.memory:
            counted[vendor.memory] = times * sum(s.memory_mib for s in slices)
    return counted


def charge_all(requests: Mapping[str, int], pods: Iterable[Sequence[CardSlice]]) -> Resources:
    """Amounts of the slices of these pods, which have the same requests. Pods with equal placement share one object, which is evaluated once."""
    known: dict[int, tuple[Sequence[CardSlice], int]] = {}
    for slices in pods:
        known[id(slices)] = slices, known.get(id(slices), (slices, 0))[1] + 1
    counted = charge(requests, ())
    for slices, times in known.values():
        add(counted, charge(requests, slices, times))
    return counted


class CardQuotas:
    """The quotas by namespace, and what is held in namespaces that have any."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[CardQuota, ...]] = {}
        self._used: dict[str, Resources] = {}

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._of

    def __iter__(self) -> Iterator[CardQuota]:
        return (quota for quotas in self._of.values() for quota in quotas)

    def copy(self) -> "CardQuotas":
        """The same quotas, and what is held now."""
        fresh = CardQuotas()
        fresh._of, fresh._used = dict(self._of), {namespace: dict(used) for namespace, used in self._used.items()}
        return fresh

    def unused(self) -> "CardQuotas":
        """The same quotas, with nothing held."""
        fresh = CardQuotas()
        fresh._of = dict(self._of)
        return fresh

    def of(self, namespace: str) -> Sequence[CardQuota]:
        """The quotas of a namespace."""
        return self._of.get(namespace, ())

    def adopt(self, quotas: Iterable[CardQuota], held: Iterable[Held]) -> set[str]:
        """Take these for all that there are. `held`: of all namespaces, now. Returns the namespaces whose quotas are others than before."""
        fresh: dict[str, list[CardQuota]] = {}
        for quota in quotas:
            fresh.setdefault(quota.namespace, []).append(quota)
        found = {namespace: tuple(sorted(some, key=lambda quota: quota.name)) for namespace, some in sorted(fresh.items())}
        changed = {namespace for namespace in found.keys() | self._of.keys() if found.get(namespace) != self._of.get(namespace)}
        self._of = found
        if changed:
            self._used = self.counted(held)
        return changed

    def book(self, namespace: str, requests: Mapping[str, int], slices: Sequence[CardSlice], times: int = 1) -> None:
        """A pod of the namespace has these slices now (`times=1`), or no more (`times=-1`)."""
        if slices and namespace in self._of:
            add(self._used.setdefault(namespace, {}), charge(requests, slices), times)

    def book_all(self, namespace: str, requests: Mapping[str, int], pods: Iterable[Sequence[CardSlice]]) -> None:
        """As `book`, for many pods of a namespace that request the same."""
        if namespace in self._of:
            add(self._used.setdefault(namespace, {}), charge_all(requests, pods))

    def used(self, namespace: str) -> Mapping[str, int]:
        """What is held in a namespace with quotas."""
        return self._used.get(namespace, {})

    def left(self, namespace: str) -> Resources:
        """Remaining amounts of the limited resources; below 0 if usage exceeds the limit. 0 for a quota with a fault."""
        used, left = self.used(namespace), Resources()
        for quota in self._of.get(namespace, ()):
            limits = dict.fromkeys(VENDORS.limits.values(), 0) if quota.fault else quota.limits
            for name, units in limits.items():
                left[name] = min(left.get(name, units), 0 if quota.fault else units - used.get(name, 0))
        return left

    def headroom(self, namespace: str, each: Mapping[str, int], planned: Mapping[str, int] | None = None) -> Headroom:
        """How many times `each` (as returned by `charge`) still fits in addition to the present usage and `planned`."""
        times: int | None = None
        message = ""
        for quota in self._of.get(namespace, ()):
            which = f"ResourceQuota {quota.name} of namespace {namespace}"
            if quota.fault:
                return Headroom(0, f"{which} allows no cards: {quota.fault}")
            for name, limit in quota.limits.items():
                units = each.get(name, 0)
                if units <= 0:
                    continue
                has = self.used(namespace).get(name, 0) + (planned or {}).get(name, 0)
                fits = max(limit - has, 0) // units
                if times is None or fits < times:
                    times = fits
                    message = f"{which} allows {limit} of limits.{name}, {has} are in use and {units} more are asked for"
        return Headroom(times, message)

    def counted(self, held: Iterable[Held]) -> dict[str, Resources]:
        """What is held in namespaces with quotas, counted anew."""
        used: dict[str, Resources] = {}
        for namespace, requests, slices in held:
            if slices and namespace in self._of:
                add(used.setdefault(namespace, {}), charge(requests, slices))
        return used
