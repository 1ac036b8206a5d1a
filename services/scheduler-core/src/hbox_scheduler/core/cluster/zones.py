"""Zones of NUMA nodes: what a node's kubelet has allocated in each zone by its own report, and the pods on their way to the node.

Theory of operation. `hbox_common.model.numa.admit` predicts a kubelet's decision from the free amounts of each zone. Such states are few; they are cached, with
the result of each request. A row has the kubelet's report of free amounts, the pods that the report counts, and the requests of the pods that are booked here
but not yet counted (`waiting`). The bookings decide to which of the two a pod belongs.

- The order in which a kubelet admits pods is unknown. If the kubelet rejects pods that it cannot align, its node accepts a pod only if it would be admitted,
  together with all waiting pods, in every order; equal pods have one order. If there are too many orders, the pod waits for the kubelet's report.
- If a pod has left, more is free than reported. The kubelet could allocate that, and the pods behind would then find less elsewhere: the next pod waits for the
  report as well.
- If a pod's resources come from several zones that have more than enough, the kubelet's division is unknown (`Admission.split`): nothing is planned after it
  until the next report.
- If a source reports only sums, and late (NodeResourceTopology, Numatopology), every booking stays among the waiting ones, in the order of the first of each
  kind. The lower of two estimates counts, zone by zone: the amount for containers less all bookings, and the reported free amount less the bookings since the
  last report but one.

Rows without facts, and those whose kubelets align nothing, have no entry and cost nothing.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from itertools import count
from typing import Self, TypeAlias, TypeVar

from hbox_common.model import NodeZones
from hbox_common.model.nodezones import aligned_part
from hbox_common.model.numa import CPU, Admission, NumaNode, NumaPolicy, PodAsk, Zone, admit, is_memory, memory_freed
from hbox_common.model.resources import MIB

#: Maximum number of pods of one kind counted on a node: alone, and with pods of other kinds.
_DEEP, _MIXED = 256, 8

#: Maximum number of sets of admitted pods that a search over all orders visits.
_ORDERS = 128

#: Maximum number of cached results, of all rows together.
_MOST = 65_536

#: Amounts that each zone of a node keeps, by resource, in the order of the zones; in units of zones.
Kept: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]

_K = TypeVar("_K")

#: A pod's request, and the pod as "namespace/name". With a count: 1 = it leaves, below 0 = it is nominated.
Departure: TypeAlias = tuple[PodAsk | None, str]
_NO_DEPARTURES: Counter[Departure] = Counter()

#: Number of waiting pods of each kind.
Kinds: TypeAlias = tuple[tuple[PodAsk, int], ...]


class Seen(Enum):
    """Moments: `NOW`; `LATER`, after all leaving pods have left and all nominated pods have arrived; `BOTH`, what is free now and not nominated; `EMPTY`,
    without pods."""

    NOW = auto()
    LATER = auto()
    BOTH = auto()
    EMPTY = auto()


@dataclass(slots=True, eq=False)
class ZoneState:
    """Free amounts in the zones of a node, and the resulting decisions about pods. Equal states share one object, by `number`."""

    node: NumaNode
    number: int
    split: bool  #: it depends on a choice of the kubelet's
    steps: dict[PodAsk, "Step"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The kubelet's decision about a pod, and the state after it; if it rejects the pod, the state as if it had admitted it."""

    found: Admission
    after: ZoneState
    zones: int  #: number of zones from which the pod gets something


@dataclass(slots=True)
class _Row:
    facts: NodeZones
    start: ZoneState  #: as the kubelet reports
    vacant: ZoneState
    waiting: dict[PodAsk, int] = field(default_factory=dict)
    fresh: dict[PodAsk, int] = field(default_factory=dict)  #: of these, if only sums are reported: since the last report
    young: dict[PodAsk, int] = field(default_factory=dict)  #: between the last two reports: maybe not in the last one
    parted: bool = False  #: a pod that the kubelet counted has left since
    prospects: dict[Seen, tuple[ZoneState, Kinds]] = field(default_factory=dict)  #: computed since the last change

    def aligned_part(self, ask: PodAsk) -> PodAsk | None:
        """The part of the request that the node's kubelet aligns; None: nothing."""
        return _aligned_part(ask, self.start.node.aligned)

    def copy(self) -> "_Row":
        own = dict(self.waiting), dict(self.fresh), dict(self.young)
        return replace(self, waiting=own[0], fresh=own[1], young=own[2], prospects={})


class ZoneBooks:
    """By row. A view (`seen_as`) shares the rows and is read-only."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._leaving: dict[int, Counter[Departure]] = {}
        self._states: dict[object, ZoneState] = {}
        self._rooms: dict[tuple[int, Kinds, PodAsk], int] = {}
        self._rooms_above_kept: dict[tuple[int, PodAsk, Kept], int | None] = {}
        self._keys: dict[tuple[int, int, Kinds, bool], int] = {}
        self._numbers = count()  #: of states and keys: never reused, even after a cache was cleared
        self._seen = Seen.NOW
        self.strict: set[int] = set()  #: rows whose kubelets reject pods

    def __bool__(self) -> bool:
        return bool(self._rows)

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    @property
    def rows(self) -> Collection[int]:
        return self._rows.keys()

    # Reports.

    def describe(self, row: int, facts: NodeZones) -> bool:
        """Take the kubelet's report; no pod is booked on the row at that time. Returns whether the row has zones to consider, before or now."""
        before = self._rows.pop(row, None)
        self.strict.discard(row)
        if not facts.counts:
            return before is not None
        node = facts.numa_node()
        zones = zip(node.zones, facts.zones, strict=True)
        vacant = replace(node, zones=tuple(replace(own, free=zone.most, assigned=0, group=0) for own, zone in zones))
        own = self._rows[row] = _Row(facts, self._state(node), self._state(vacant))
        if before is not None and not before.facts.by_pod and not facts.by_pod:
            own.young = before.fresh
        if facts.refuses:
            self.strict.add(row)
        return True

    def drop(self, row: int) -> None:
        self._rows.pop(row, None)
        self._leaving.pop(row, None)
        self.strict.discard(row)

    def clear(self, row: int) -> None:
        """Remove all bookings of the row."""
        if (own := self._rows.get(row)) is not None:
            for some in (own.waiting, own.fresh, own.young, own.prospects):
                some.clear()
        self._leaving.pop(row, None)

    def has_seen(self, row: int, namespace: str, pod: str, uid: str) -> bool:
        """True if the kubelet has counted the pod."""
        own = self._rows.get(row)
        if own is None:
            return False
        return any(one.pod == pod and one.namespace == namespace and one.uid in ("", uid) for one in own.facts.pods)

    # Bookings.

    def book(self, row: int, ask: PodAsk, times: int = 1, *, anew: bool = True) -> None:
        """Add so many pods on their way to the row (`times` > 0), or remove them. anew: they were not on their way before."""
        own = self._rows.get(row)
        aligned = own.aligned_part(ask) if own is not None else None
        if own is None or aligned is None:
            return
        ask = aligned
        own.prospects.clear()
        _count(own.waiting, ask, times)
        if times > 0 and anew:
            _count(own.fresh, ask, times)
        elif times < 0:  # the oldest of them first
            for some in (own.young, own.fresh):
                beyond = own.young.get(ask, 0) + own.fresh.get(ask, 0) - max(0, own.waiting.get(ask, 0))
                _count(some, ask, -min(max(0, beyond), some.get(ask, 0)))

    def part(self, row: int) -> None:
        """A pod that the kubelet counted has left: what is free now is unknown until the next report."""
        if (own := self._rows.get(row)) is not None:
            own.parted = True

    def settle(self) -> None:
        """The reports include all booked pods."""
        for own in self._rows.values():
            own.fresh.clear()
            own.young.clear()
            own.prospects.clear()

    def depart(self, row: int, ask: PodAsk | None, pod: str, times: int = 1) -> None:
        """A pod will leave (`times` = 1), or is nominated to what will be free (-1)."""
        leaving = self._leaving.setdefault(row, Counter())
        _count(leaving, (ask, pod), times)
        if not leaving:
            del self._leaving[row]
        if (own := self._rows.get(row)) is not None:
            own.prospects.clear()

    # Views.

    def seen_as(self, seen: Seen) -> Self:
        if not self._rows:
            return self
        view = copy(self)
        view._seen = seen
        return view

    def copy(self) -> Self:
        """A copy whose bookings do not affect the original."""
        if not self._rows:
            return self
        view = copy(self)
        view._rows = {row: own.copy() for row, own in self._rows.items()}
        return view

    def only(self, row: int) -> Self:
        """This row, as row 0."""
        if not self._rows:
            return self
        view = copy(self)
        view._rows = {0: self._rows[row].copy()} if row in self._rows else {}
        view._leaving = {0: self._leaving[row]} if row in self._leaving else {}
        view.strict = {0} if row in self.strict else set()
        return view

    # Answers.

    def number(self, row: int) -> int:
        """Equal for rows with equal answers."""
        own = self._rows[row]
        start, kinds = self._prospect(row, own)
        key = start.number, own.vacant.number, kinds, own.parted
        found = self._keys.get(key)
        if found is None:
            if len(self._keys) >= _MOST:
                self._keys.clear()
            found = self._keys[key] = next(self._numbers)
        return found

    def room(self, row: int, ask: PodAsk) -> int:
        """How many such pods the kubelet of a strict row will admit in addition to the waiting ones, `_DEEP` at most."""
        own = self._rows[row]
        if (aligned := own.aligned_part(ask)) is None:
            return _DEEP
        ask = aligned
        if own.parted and self._seen is Seen.NOW and self._step(own.start, ask).zones:
            return 0
        start, kinds = self._prospect(row, own)
        key = start.number, kinds, ask
        found = self._rooms.get(key)
        if found is None:
            if len(self._rooms) >= _MOST:
                self._rooms.clear()
            found = self._rooms[key] = self._room(start, kinds, ask)
        return found

    def zones(self, row: int) -> tuple[tuple[Zone, ...], tuple[Zone, ...]]:
        """The row's zones after all waiting pods were admitted, and without pods."""
        own = self._rows[row]
        return self._reached(row, own).node.zones, own.vacant.node.zones

    def room_above_kept(self, row: int, ask: PodAsk, kept: Kept) -> int | None:
        """How many such pods the kubelet would align, `_DEEP` at most, before one of them uses something that a zone keeps; None: the kubelet rejects the next
        pod or aligns nothing of it. Waiting pods are admitted in the order of their kinds: kept amounts do not bind the kubelet."""
        own = self._rows[row]
        if (aligned := own.aligned_part(ask)) is None:
            return None
        ask, state = aligned, self._reached(row, own)
        key = state.number, ask, kept
        if key not in self._rooms_above_kept:
            if len(self._rooms_above_kept) >= _MOST:
                self._rooms_above_kept.clear()
            self._rooms_above_kept[key] = self._room_above_kept(state, ask, kept)
        return self._rooms_above_kept[key]

    def scattered(self, row: int, ask: PodAsk) -> float:
        """Number of zones that the pod would use beyond the minimum, as a part of all zones: 0 to 1."""
        own = self._rows[row]
        if (aligned := own.aligned_part(ask)) is None:
            return 0.0
        ask = aligned
        here = self._step(self._reached(row, own), ask)
        least = self._step(own.vacant, ask).zones
        return max(0, here.zones - least) / len(own.facts.zones)

    def same_zones(self, row: int, ask: PodAsk, most: int) -> int:
        """How many such pods in a row, `most` at most and one at least, would get the same zones."""
        own = self._rows[row]
        if (aligned := own.aligned_part(ask)) is None:
            return most
        ask, state = aligned, self._reached(row, own)
        first = self._step(state, ask)
        step, found = first, 1
        while found < most:
            step = self._step(step.after, ask)
            if not step.found.admitted or (step.found.masks, step.zones) != (first.found.masks, first.zones):
                break
            found += 1
        return found

    def zones_of(self, row: int, ask: PodAsk) -> frozenset[int]:
        """The NUMA nodes to which the kubelet would align the pod; none if it aligns nothing of it."""
        own = self._rows[row]
        if (aligned := own.aligned_part(ask)) is None:
            return frozenset()
        step = self._step(self._reached(row, own), aligned)
        bits = 0
        for mask in step.found.masks:
            bits |= mask
        return (
            frozenset(zone.id for place, zone in enumerate(own.facts.zones) if bits >> place & 1) if step.zones else frozenset()
        )

    def refusal(self, row: int, ask: PodAsk) -> tuple[str, str]:
        """Why the kubelet would reject the pod: its own reason, and the free amounts of each zone."""
        own = self._rows[row]
        reached = self._reached(row, own)
        if (aligned := own.aligned_part(ask)) is None:
            return "", ""
        ask = aligned
        found = self._step(reached, ask).found
        if found.admitted:
            return "", "pods start and end there, and node-agent has not yet published what is free on its NUMA nodes"
        asked = dict[str, int]()
        for container in ask.containers:
            for name, units in container:
                asked[name] = asked.get(name, 0) + (
                    units // 1000 if name == CPU else units // MIB if is_memory(name) else units
                )
        zones = "; ".join(
            f"zone {zone.id}: "
            + ", ".join(f"{_free(zone, name)} {_named(name)} free of {asked[name]} asked" for name in asked)
            + _shared(zone, reached.node.zones)
            for zone in reached.node.zones
        )
        return found.reason, f"{zones} ({own.facts.policy}: {found.message})"

    # Computation.

    def _prospect(self, row: int, own: _Row) -> tuple[ZoneState, Kinds]:
        """The state to start from, and the pods that wait."""
        known = own.prospects.get(self._seen)
        if known is None:
            known = own.prospects[self._seen] = self._worked_out(row, own)
        return known

    def _worked_out(self, row: int, own: _Row) -> tuple[ZoneState, Kinds]:
        if self._seen is Seen.EMPTY:
            return own.vacant, ()
        waiting = dict(own.waiting)
        gone: list[str] = []
        for (asked, pod), times in self._leaving.get(row, _NO_DEPARTURES).items():
            ask = own.aligned_part(asked) if asked is not None else None
            if times < 0 and ask is not None and self._seen is not Seen.NOW:
                _count(waiting, ask, -times)
            elif times > 0 and self._seen is Seen.LATER:
                gone.append(pod)
                if ask is not None and not self._is_seen(own, pod) and waiting.get(ask, 0):
                    _count(waiting, ask, -min(times, waiting[ask]))
        kinds = tuple((ask, pods) for ask, pods in waiting.items() if pods > 0)
        if own.facts.by_pod:
            return self._without(own, gone), kinds
        state = own.vacant
        for ask, pods in kinds:
            for _ in range(pods):
                state = self._step(state, ask).after
        if self._seen is Seen.LATER:
            return state, ()
        reported = own.start
        for some in (own.fresh, own.young):
            for ask, pods in some.items():
                for _ in range(pods):
                    reported = self._step(reported, ask).after
        reported_zones = reported.node.zones
        zones = tuple(
            replace(zone, free={name: min(units, other.free.get(name, 0)) for name, units in zone.free.items()})
            for zone, other in zip(state.node.zones, reported_zones, strict=True)
        )
        return self._state(replace(state.node, zones=zones)), ()

    @staticmethod
    def _is_seen(own: _Row, pod: str) -> bool:
        return any(f"{one.namespace}/{one.pod}" == pod for one in own.facts.pods)

    def _without(self, own: _Row, gone: Sequence[str]) -> ZoneState:
        """The kubelet's report without these pods."""
        left = [one for one in own.facts.pods if f"{one.namespace}/{one.pod}" in gone] if gone else []
        if not left:
            return own.start
        freed = [_freed(zone, [one.given[place] for one in left]) for place, zone in enumerate(own.start.node.zones)]
        blocks = ((block.kind, block.size, own.facts.bits(block.zones)) for one in left for block in one.blocks)
        zones = tuple(memory_freed(freed, blocks))
        return self._state(replace(own.start.node, zones=zones))

    def _reached(self, row: int, own: _Row) -> ZoneState:
        """The state after all waiting pods were admitted, in the order of their kinds."""
        state, kinds = self._prospect(row, own)
        for ask, pods in kinds:
            for _ in range(pods):
                state = self._step(state, ask).after
        return state

    def _room(self, start: ZoneState, kinds: Kinds, ask: PodAsk) -> int:
        if not kinds or (len(kinds) == 1 and kinds[0][0] == ask):
            waits = kinds[0][1] if kinds else 0
            state, through = start, 0
            while through < waits + _DEEP and (step := self._sure(state, ask)) is not None:
                state, through = step.after, through + 1
            return max(0, through - waits)
        asks, counts = [kind for kind, _ in kinds], [pods for _, pods in kinds]
        if ask not in asks:
            asks.append(ask)
            counts.append(0)
        mine, room = asks.index(ask), 0
        while room < _MIXED:
            counts[mine] += 1
            if not self._in_every_order(start, asks, tuple(counts)):
                break
            room += 1
        return room

    def _room_above_kept(self, state: ZoneState, ask: PodAsk, kept: Kept) -> int | None:
        for room in range(_DEEP):
            step = self._step(state, ask)
            if not step.found.admitted or not step.zones:
                return None
            if _takes(state, step, ask, kept):
                return room
            state = step.after
        return _DEEP

    def _in_every_order(self, start: ZoneState, asks: Sequence[PodAsk], counts: tuple[int, ...]) -> bool:
        """True if all of these pods are admitted in every order. Visits sets of admitted pods, one pod more each time."""
        orders = 1
        for pods in counts:
            orders *= pods + 1
        if orders > _ORDERS:
            return False
        reached = {((0,) * len(asks), start)}
        for _ in range(sum(counts)):
            after: set[tuple[tuple[int, ...], ZoneState]] = set()
            for through, state in reached:
                for place, ask in enumerate(asks):
                    if through[place] == counts[place]:
                        continue
                    step = self._sure(state, ask)
                    if step is None:
                        return False
                    after.add(((*through[:place], through[place] + 1, *through[place + 1 :]), step.after))
            reached = after
        return True

    def _sure(self, state: ZoneState, ask: PodAsk) -> Step | None:
        """The kubelet's decision, if it certainly admits the pod."""
        step = self._step(state, ask)
        return None if not step.found.admitted or (state.split and step.zones) else step

    def _step(self, state: ZoneState, ask: PodAsk) -> Step:
        step = state.steps.get(ask)
        if step is not None:
            return step
        found = _admitted(state.node, ask)
        forced = (
            found
            if found.admitted
            else _admitted(
                replace(
                    state.node,
                    policy=NumaPolicy.BEST_EFFORT,
                    full_pcpus_only=False,
                    aligned=frozenset(name for name in state.node.aligned if not is_memory(name)),
                ),
                ask,
            )
        )
        assert forced.node is not None
        zones = sum(one.free != other.free for one, other in zip(state.node.zones, forced.node.zones, strict=True))
        after = self._state(
            replace(state.node, zones=forced.node.zones),
            split=state.split or found.split,
        )
        step = state.steps[ask] = Step(found, after, zones)
        return step

    def _state(self, node: NumaNode, *, split: bool = False) -> ZoneState:
        key = (
            node.policy, node.scope, node.aligned, node.threads_per_core, node.full_pcpus_only, node.cut_cpus, node.align_by_socket, node.sockets,
            node.prefer_closest, node.distances, split,
            tuple((zone.id, tuple(sorted(zone.total.items())), tuple(sorted(zone.free.items())), zone.assigned, zone.group) for zone in node.zones),
        )  # fmt: skip
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= _MOST:
                for state in self._states.values():
                    state.steps.clear()  # rows refer to some of them, which keep all alive
                self._states.clear()
                self._rooms.clear()
            found = self._states[key] = ZoneState(node, next(self._numbers), split)
        return found


def _admitted(node: NumaNode, ask: PodAsk) -> Admission:
    return admit(node, [*map(dict, ask.containers)], guaranteed=ask.guaranteed, init=[*map(dict, ask.init)])


def _takes(state: ZoneState, step: Step, ask: PodAsk, kept: Kept) -> bool:
    """True if a zone would then have less than it keeps, and less than now. If the kubelet chooses how much comes from which of several zones, each of them is
    assumed to give as much as it can."""
    bits = 0
    if step.found.split or state.split:
        for mask in step.found.masks:
            bits |= mask
    for resource, amounts in kept:
        asked = sum(units for container in ask.containers for name, units in container if name == resource)
        most = asked // 1000 if resource == CPU else asked
        for place, (keeps, zone, after) in enumerate(zip(amounts, state.node.zones, step.after.node.zones, strict=True)):
            before, left = zone.free.get(resource, 0), after.free.get(resource, 0)
            if bits >> place & 1:
                left = min(left, before - most)
            if max(0, left) < min(keeps, max(0, before)):
                return True
    return False


def _freed(zone: Zone, given: Sequence[dict[str, int]]) -> Zone:
    free = dict(zone.free)
    for own in given:
        for name, units in own.items():
            free[name] = free.get(name, 0) + units
    return replace(zone, free=free)


def _count(counts: dict[_K, int], key: _K, times: int) -> None:
    left = counts.get(key, 0) + times
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


@lru_cache(maxsize=65_536)
def _aligned_part(ask: PodAsk, aligned: frozenset[str]) -> PodAsk | None:
    return aligned_part(ask, aligned)


def _free(zone: Zone, resource: str) -> int:
    units = max(0, zone.free.get(resource, 0))
    return units // MIB if is_memory(resource) else units


def _named(resource: str) -> str:
    if resource == CPU:
        return "cpus"
    return f"MiB of {resource}" if is_memory(resource) else resource


def _shared(zone: Zone, zones: Sequence[Zone]) -> str:
    """The zones with which it allocates memory jointly."""
    others = [str(other.id) for place, other in enumerate(zones) if zone.group >> place & 1 and other is not zone]
    return f", memory with zone {' and '.join(others)} alone" if others else ""
