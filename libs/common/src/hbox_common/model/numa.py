"""Mirror of the kubelet's topology manager: its hints and their merge, so that a scheduler does not place pods where the kubelet rejects them.

Theory of operation (pkg/kubelet/cm: topologymanager, cpumanager, devicemanager of Kubernetes 1.34; sources: topology-manager). A hint is a set of NUMA
nodes, here the bits of an int. Each aligned resource has a hint for every set whose *free* amount covers the request; it is preferred if the set is as narrow
as the narrowest whose *total* covers it. The hints of all resources are merged by AND of every combination, preferred only if all are preferred and equal.

    none              every pod
    best-effort       every pod, on the merged set
    restricted        if the merged set is preferred: one set is a narrowest one for every resource
    single-numa-node  the same, with sets of one node

Go walks all combinations, 255^resources of them on eight nodes. Here the possible results of the ANDs are folded resource by resource, and the best of them is
selected by the order of Go's pairwise `compare`.

Init containers are admitted one by one and keep CPUs and devices for the pod's lifetime; later containers reuse these, and are aligned to sets that contain
all of their NUMA nodes. Under scope `pod` there is a single ask: the maximum of the containers' sum and the largest init container.

CPU manager options (pkg/kubelet/cm/cpumanager/policy_static.go): under `full-pcpus-only` fractions of cores are rejected, and CPUs of partly reserved cores
are not allocated. Under `align-by-socket` every set that spans as few sockets as the narrowest sets need is preferred, and CPUs come from all NUMA nodes of its
sockets. `distribute-cpus-across-numa`, `distribute-cpus-across-cores` and `prefer-align-cpus-by-uncorecache` change which CPUs of a set are allocated, but no
hint; `strict-cpu-reservation` changes the CPUs of pods without exclusive CPUs.

Memory and huge pages (static memory manager, pkg/kubelet/cm/memorymanager/policy_static.go; BestEffort, which exists on Windows only, behaves the same) have
one list of hints for all kinds, by the memory available to containers. A set of several nodes becomes a group: until its last block is released, none of its
nodes allocates alone or in another group. If no set has enough, there is no hint at all, so that the topology manager admits the pod, also under `none`, and
the allocation fails afterwards (UnexpectedAdmissionError). Init containers keep their memory for the pod's lifetime; later containers reuse it, from the same
set.

Differences: among several NUMA nodes CPUs are packed as in Go with whole sockets, NUMA nodes and cores (`_packed`), without single threads, caches and the
`distribute` options, and devices come from the lower nodes; if more is available than allocated, `Admission.split` marks the choice as the kubelet's. The
surplus of init containers over later ones stays allocated to the pod, but no kubelet reports it: zones count it as free after the kubelet's next report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from itertools import pairwise
from typing import TypeAlias

from .resources import MEMORY, MIB

#: Nodes beyond which the kubelet's topology manager does not start, but for its option max-allowable-numa-nodes; masks grow by powers of two.
MAX_NODES = 8


class NumaPolicy(StrEnum):
    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


class NumaScope(StrEnum):
    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node. Amounts in base units of each aligned resource: whole CPUs under `cpu`, devices, bytes of memory and huge pages; of these `total` is what
    containers may have. `assigned`: blocks of memory that are from there; `group`: the bits of the nodes that give memory with it, 0 where it gives alone."""

    id: int
    total: Mapping[str, int] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    assigned: int = 0
    group: int = 0


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A node as seen by its topology manager. `aligned`: resources with hints: cpu under the static CPU manager, memory under the static memory manager,
    devices whose plugins report their NUMA nodes."""

    policy: NumaPolicy = NumaPolicy.NONE
    scope: NumaScope = NumaScope.CONTAINER
    zones: tuple[Zone, ...] = ()
    aligned: frozenset[str] = frozenset()
    threads_per_core: int = 1
    full_pcpus_only: bool = False
    cut_cpus: int = 0  #: that containers may have, of cores that are reserved in part
    align_by_socket: bool = False
    sockets: tuple[int, ...] = ()  #: of each zone in order, -1 if it has no CPUs; () = unknown
    prefer_closest: bool = False
    distances: tuple[tuple[int, ...], ...] = ()  #: as the zones stand; () = not known


@dataclass(frozen=True, slots=True)
class Hint:
    mask: int | None  #: bits by position of zones; None: anywhere
    preferred: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """`masks`: of each container, or of the pod, the set of zones that it is aligned to; `node` with what it takes taken; `reason` as the kubelet calls it.
    `split`: something comes from several zones that have more than is taken, so that how much from which is the kubelet's choice."""

    admitted: bool
    reason: str = ""
    message: str = ""
    masks: tuple[int, ...] = ()
    node: NumaNode | None = None
    split: bool = False


#: What one container asks for, by resource in order.
ContainerAsk: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PodAsk:
    """A pod's requests for aligned resources: cpu in thousandths, all others in units. `init`: its init containers that end before the others run; sidecars are
    in `containers`."""

    containers: tuple[ContainerAsk, ...]
    init: tuple[ContainerAsk, ...] = ()
    guaranteed: bool = False


CPU = "cpu"
#: What is aligned for Guaranteed pods alone.
_GUARANTEED_ONLY = ("cpu", "memory", "hugepages-")

AFFINITY_ERROR, SMT_ERROR, ADMISSION_ERROR = "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"


def is_memory(resource: str) -> bool:
    """Whether the memory manager gives it out: memory, and huge pages of each size."""
    return resource == MEMORY or resource.startswith("hugepages-")


#: Memory of one pod's init containers that later containers can reuse, by set of nodes and kind.
_Reusable: TypeAlias = dict[tuple[int, str], int]

#: The same of CPUs and devices: by resource how much of each zone.
_Kept: TypeAlias = dict[str, tuple[int, ...]]


def admit(
    node: NumaNode, containers: Sequence[Mapping[str, int]], *, guaranteed: bool, init: Sequence[Mapping[str, int]] = ()
) -> Admission:
    """The kubelet's decision on a pod. containers: requests of app containers and sidecars in order; init: of containers that end before these. CPUs are in
    thousandths, as in `Resources`; fractional CPUs are not aligned."""
    asks = [_aligned(node, one, guaranteed=guaranteed) for one in containers]
    before = [_aligned(node, one, guaranteed=guaranteed) for one in init]
    for ask in (*before, *asks):
        if node.full_pcpus_only and ask.get(CPU, 0) % max(1, node.threads_per_core):
            return Admission(
                False,
                SMT_ERROR,
                f"{ask[CPU]} CPUs are no multiple of the {node.threads_per_core} threads of a core (full-pcpus-only)",
            )
    every = [*before, *asks]
    aligns = node.policy is not NumaPolicy.NONE
    if not aligns and not node.full_pcpus_only and not any(is_memory(name) for ask in every for name in ask):
        return Admission(True, node=node)
    reusable: _Reusable = {}
    kept: _Kept = {}
    cores = _cores(node)
    hint = Hint(None, preferred=False)
    masks: list[int] = []
    split = False
    if aligns and node.scope is NumaScope.POD:
        together = _sum(asks, before)
        found = _merged(node, together, {}, {})
        if isinstance(found, str):
            return Admission(False, AFFINITY_ERROR, found)
        hint = found
        masks, split = [_mask(node, hint)], _chooses(node, together, _mask(node, hint))
        node = _taken(node, together, masks[0], {}, init=False)
    for place, ask in enumerate(every):
        if aligns and node.scope is NumaScope.CONTAINER:
            found = _merged(node, ask, reusable, kept)
            if isinstance(found, str):
                return Admission(False, AFFINITY_ERROR, found, tuple(masks))
            hint = found
        if node.full_pcpus_only and (short := cores.take(ask.get(CPU, 0), init=place < len(before))):
            return Admission(False, SMT_ERROR, short, tuple(masks))
        taken = _memory_taken(node, ask, hint, reusable, init=place < len(before))
        if isinstance(taken, str):
            return Admission(False, ADMISSION_ERROR, taken, tuple(masks))
        node = taken
        if aligns and node.scope is NumaScope.CONTAINER:
            mask, init_one = _mask(node, hint), place < len(before)
            if not init_one:
                masks.append(mask)
            split |= _chooses(node, ask, mask)
            node = _taken(node, ask, mask, kept, init=init_one)
    return Admission(True, masks=tuple(masks), node=node, split=split)


@dataclass(slots=True)
class _Cores:
    """CPUs of whole cores that remain for a pod under full-pcpus-only, container by container. CPUs kept by init containers are not included, although later
    containers reuse them: the kubelet counts the same way."""

    left: int
    kept: int = 0

    def take(self, cpus: int, *, init: bool) -> str:
        """Of one container. Why it has not so many; "" where it has."""
        if cpus > self.left:
            return f"{cpus} CPUs of whole cores are not free: {self.left} are, without what init containers keep"
        again = min(cpus, self.kept)
        self.left -= cpus - again
        self.kept += cpus - again if init else -again
        return ""


def _cores(node: NumaNode) -> _Cores:
    return _Cores(sum(max(0, zone.free.get(CPU, 0)) for zone in node.zones) - node.cut_cpus)


def _merged(node: NumaNode, ask: Mapping[str, int], reusable: _Reusable, kept: _Kept) -> Hint | str:
    """The merged hint for all resources, or the topology manager's reason for rejecting the pod."""
    asked = {resource: amount for resource, amount in ask.items() if amount}
    hints = {
        resource: hints_of(node, resource, amount, kept.get(resource, ()))
        for resource, amount in asked.items()
        if not is_memory(resource)
    }
    if kinds := {resource: amount for resource, amount in asked.items() if is_memory(resource)}:
        of_memory = memory_hints(node, kinds, reusable) or [Hint(None, preferred=True)]
        hints |= dict.fromkeys(kinds, of_memory)
    best = merge(node, list(hints.values()))
    if not best.preferred and node.policy is not NumaPolicy.BEST_EFFORT:
        return _why(node, ask, hints)
    if node.policy is NumaPolicy.SINGLE and best.mask == _all(node):
        return Hint(None, best.preferred)
    return best


def _mask(node: NumaNode, hint: Hint) -> int:
    return hint.mask if hint.mask is not None else _all(node)


def memory_hints(node: NumaNode, asked: Mapping[str, int], reusable: Mapping[tuple[int, str], int]) -> list[Hint]:
    """Of memory and huge pages together, in bytes by kind; the same for each kind. Empty: no set of zones gives so much. reusable: by set and kind, what the
    pod has there already."""
    has = {kind: _sums([zone.total.get(kind, 0) for zone in node.zones]) for kind in asked}
    free = {kind: _sums([zone.free.get(kind, 0) for zone in node.zones]) for kind in asked}
    large = [mask for mask in range(1, _all(node) + 1) if all(has[kind][mask] >= size for kind, size in asked.items())]
    least = min(map(_width, large), default=len(node.zones))
    return [
        Hint(mask, _width(mask) == least)
        for mask in large
        if _may_give(node, mask)
        and all(free[kind][mask] + reusable.get((mask, kind), 0) >= size for kind, size in asked.items())
    ]


def _may_give(node: NumaNode, mask: int) -> bool:
    """Whether groups of zones let these give memory together, or the one alone."""
    own = [zone for i, zone in enumerate(node.zones) if mask >> i & 1]
    if len(own) == 1:
        return not own[0].group
    return all(not zone.assigned or zone.group == mask for zone in own)


def _memory_taken(node: NumaNode, ask: Mapping[str, int], hint: Hint, reusable: _Reusable, *, init: bool) -> NumaNode | str:
    """The node with the container's memory taken, or why the memory manager fails. `reusable` is kept in step."""
    asked = {kind: size for kind, size in ask.items() if is_memory(kind)}
    if not asked:
        return node
    mask, preferred = hint.mask, hint.preferred
    if mask is None:
        best = _best_of_memory(memory_hints(node, asked, reusable))
        if best is None:
            return "no NUMA nodes with enough memory are there"
        if preferred and not best.preferred:
            return "its memory would be spread over more NUMA nodes than it needs"
        mask, preferred = _mask(node, best), best.preferred
    own = [zone for i, zone in enumerate(node.zones) if mask >> i & 1]
    if any(sum(zone.free.get(kind, 0) for zone in own) < size for kind, size in asked.items()):
        wider = [one for one in memory_hints(node, asked, reusable) if one.mask is not None and one.mask & mask == mask]
        best = _best_of_memory(wider)
        if best is None:
            return "no NUMA nodes with enough memory are there around those of its CPUs and devices"
        if preferred and not best.preferred:
            return "its memory would be spread over more NUMA nodes than it needs"
        mask = _mask(node, best)
    own = [zone for i, zone in enumerate(node.zones) if mask >> i & 1]
    if len(own) > 1 and not _may_give(node, mask):
        return "its NUMA nodes give memory alone, or in another group"
    zones = list(node.zones)
    left = {kind: max(0, size - reusable.get((mask, kind), 0)) for kind, size in asked.items()}
    for i, zone in enumerate(node.zones):
        if mask >> i & 1:
            free = dict(zone.free)
            for kind in asked:
                part = min(left[kind], max(0, free.get(kind, 0)))
                free[kind] = free.get(kind, 0) - part
                left[kind] -= part
            zones[i] = replace(zone, free=free, assigned=zone.assigned + len(asked), group=mask if len(own) > 1 else 0)
    for kind, size in asked.items():
        kept = reusable.get((mask, kind), 0)
        reusable[mask, kind] = max(kept, size) if init else max(0, kept - size)
    return replace(node, zones=tuple(zones))


def _best_of_memory(hints: Sequence[Hint]) -> Hint | None:
    found = [(not one.preferred, _width(one.mask), one.mask, one) for one in hints if one.mask is not None]
    return min(found, key=lambda one: one[:3])[3] if found else None


def memory_freed(zones: Sequence[Zone], blocks: Iterable[tuple[str, int, int]]) -> list[Zone]:
    """The zones when these blocks are gone: of each the kind, the bytes, and the bits of the zones that it is from."""
    found = list(zones)
    for kind, size, mask in blocks:
        left = size
        for i, zone in enumerate(found):
            if mask >> i & 1:
                part = max(0, min(left, zone.total.get(kind, 0) - zone.free.get(kind, 0)))
                left -= part
                assigned = max(0, zone.assigned - 1)
                free = {**zone.free, kind: zone.free.get(kind, 0) + part}
                found[i] = replace(zone, free=free, assigned=assigned, group=zone.group if assigned else 0)
    return found


def _chooses(node: NumaNode, ask: Mapping[str, int], mask: int) -> bool:
    for resource, amount in ask.items():
        if is_memory(resource):
            continue
        first, left = _giving(node, resource, mask), amount
        for places in (first, [i for i in range(len(node.zones)) if i not in first]):
            free = [have for i in places if (have := node.zones[i].free.get(resource, 0)) > 0]
            if left > 0 and len(free) > 1 and sum(free) > left:
                return True
            left -= sum(free)
    return False


def _giving(node: NumaNode, resource: str, mask: int) -> list[int]:
    """The places of the zones that give first where a container is aligned to these."""
    own = [i for i in range(len(node.zones)) if mask >> i & 1]
    if resource != CPU or not (node.align_by_socket and node.sockets):
        return own
    sockets = {node.sockets[i] for i in own} - {-1}
    return [i for i, socket in enumerate(node.sockets) if socket in sockets]


def hints_of(node: NumaNode, resource: str, amount: int, kept: Sequence[int] = ()) -> list[Hint]:
    """In the order of their masks. Empty: no set of zones has so much free. kept: what init containers of the pod have left to it, by zone: a set that lacks
    one of these zones is none."""
    own = [place for place, zone in enumerate(node.zones) if resource != CPU or zone.total.get(CPU, 0)]
    inside, held = _bits(own), _bits(place for place, units in enumerate(kept) if units)
    total = _sums([zone.total.get(resource, 0) for zone in node.zones])
    free = _sums(
        [zone.free.get(resource, 0) + units for zone, units in zip(node.zones, kept or [0] * len(node.zones), strict=True)]
    )
    least = min((_width(mask) for mask, have in enumerate(total) if mask & inside and have >= amount), default=len(own))
    sockets = _sockets_for(node, least) if resource == CPU else 0
    return [
        Hint(mask, _width(mask) == least or (sockets > 0 and len(_spanned(node, mask)) == sockets))
        for mask, have in enumerate(free)
        if mask and have >= amount and mask & inside == mask and mask & held == held
    ]


def _sockets_for(node: NumaNode, zones: int) -> int:
    """Minimum number of sockets for this number of zones if CPUs are aligned by socket; else 0."""
    known = [socket for socket in node.sockets if socket >= 0]
    if not node.align_by_socket or not known:
        return 0
    each = len(known) // len(set(known))
    return -(-zones // each)


def _spanned(node: NumaNode, mask: int) -> set[int]:
    return {socket for place, socket in enumerate(node.sockets) if mask >> place & 1} - {-1}


def _bits(places: Iterable[int]) -> int:
    return sum(1 << place for place in places)


def merge(node: NumaNode, hints: Sequence[Sequence[Hint]]) -> Hint:
    """The hint that the kubelet acts on. `hints`: of each resource; without any resource every zone, preferred."""
    everything = _all(node)
    if node.policy is NumaPolicy.SINGLE:
        hints = [[h for h in one if h.preferred and (h.mask is None or _width(h.mask) == 1)] for one in hints]
        if not all(hints):
            return Hint(everything, preferred=False)
    else:
        hints = [one or [Hint(None, preferred=False)] for one in hints]
    bound = [one for one in hints if any(h.mask is not None for h in one)]
    good = reduce(set.intersection, [{h.mask for h in one if h.preferred} for one in bound]) if bound else {everything}
    impossible = any(not any(h.preferred for h in one) for one in hints)
    if good and not impossible:
        return Hint(min((mask for mask in good if mask is not None), key=lambda mask: _narrow(node, mask)), preferred=True)
    reached = {everything}
    for one in hints:
        masks = {h.mask for h in one if h.mask is not None} or {everything}
        reached = {left & right for left in reached for right in masks}
    reached.discard(0)
    if not reached:
        return Hint(everything, preferred=False)
    wanted = max((min(_width(h.mask) for h in one if h.mask is not None) for one in bound), default=0)
    return Hint(min(reached, key=lambda mask: _unpreferred(node, mask, wanted)), preferred=False)


def _narrow(node: NumaNode, mask: int) -> tuple[float, ...]:
    """The order of sets that are preferred alike: the narrower, then the nearer where that is asked for, then the lower."""
    near = average_distance(node, mask) if node.prefer_closest and node.distances else 0.0
    return _width(mask), near, mask


def _unpreferred(node: NumaNode, mask: int, wanted: int) -> tuple[float, ...]:
    """Order of sets that are not preferred: as wide as `wanted`; else the widest of the narrower ones; else the narrowest of the wider ones."""
    width, near, value = _narrow(node, mask)
    if width == wanted:
        return 0, 0, near, value
    return (1, -width, near, value) if width < wanted else (2, width, near, value)


def average_distance(node: NumaNode, mask: int) -> float:
    """Mean over all ordered pairs of its zones, each with itself too."""
    own = [i for i in range(len(node.zones)) if mask >> i & 1]
    return sum(node.distances[a][b] for a in own for b in own) / (len(own) ** 2)


def _aligned(node: NumaNode, asked: Mapping[str, int], *, guaranteed: bool) -> dict[str, int]:
    """What of it has hints, in base units of zones."""
    found: dict[str, int] = {}
    for resource, amount in asked.items():
        if resource not in node.aligned or amount <= 0 or (not guaranteed and resource.startswith(_GUARANTEED_ONLY)):
            continue
        if resource != CPU:
            found[resource] = amount
        elif amount % 1000 == 0:
            found[resource] = amount // 1000
    return found


def _sum(asks: Iterable[Mapping[str, int]], alone: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """`asks` together, or one of `alone` where that is more, by resource."""
    total: dict[str, int] = {}
    for ask in asks:
        for resource, amount in ask.items():
            total[resource] = total.get(resource, 0) + amount
    for ask in alone:
        for resource, amount in ask.items():
            total[resource] = max(total.get(resource, 0), amount)
    return total


def _sums(amounts: Sequence[int]) -> list[int]:
    """By mask, what its zones have together."""
    found = [0]
    for amount in amounts:
        found += [have + amount for have in found]
    return found


def _all(node: NumaNode) -> int:
    return (1 << len(node.zones)) - 1


def _width(mask: int) -> int:
    return mask.bit_count()


def _taken(node: NumaNode, ask: Mapping[str, int], mask: int, kept: _Kept, *, init: bool) -> NumaNode:
    """Allocate all but memory: first from the reusable amounts of init containers, then from the preferred zones, then from the others. Updates `kept`."""
    free = [dict(zone.free) for zone in node.zones]
    for resource, amount in ask.items():
        if is_memory(resource):
            continue
        left = list(kept.get(resource, (0,) * len(free)))
        first = _giving(node, resource, mask)
        still = amount
        for places in (first, [i for i in range(len(free)) if i not in first]):
            for i in places:
                part = min(still, left[i])
                left[i] -= 0 if init else part
                still -= part
            has = {i: max(0, free[i].get(resource, 0)) for i in places}
            for i, part in _packed(node, has, still).items() if resource == CPU else _in_order(has, still).items():
                if not part:  # a zone without any need not name the resource
                    continue
                free[i][resource] -= part
                left[i] += part if init else 0
                still -= part
        kept[resource] = tuple(left)
    return replace(node, zones=tuple(replace(zone, free=own) for zone, own in zip(node.zones, free, strict=True)))


def _in_order(has: Mapping[int, int], amount: int) -> dict[int, int]:
    """The amount that each place contributes, in order."""
    found = {}
    for place, units in has.items():
        found[place] = min(amount, units)
        amount -= found[place]
    return found


def _packed(node: NumaNode, has: Mapping[int, int], amount: int) -> dict[int, int]:
    """CPUs that the zones at these places give (`takeByTopologyNUMAPacked`): sockets and zones that are free whole where so many are wanted, then of the
    socket, and in it of the zone, that has least left."""
    left, found = dict(has), dict.fromkeys(has, 0)

    def socket(place: int) -> int:
        return node.sockets[place] if node.sockets else 0

    def take(places: Iterable[int]) -> None:
        nonlocal amount
        for place in places:
            part = min(amount, left[place])
            left[place] -= part
            found[place] += part
            amount -= part

    def size(places: Iterable[int]) -> int:
        return sum(node.zones[place].total.get(CPU, 0) for place in places)

    def whole(places: Sequence[int]) -> bool:
        return 0 < size(places) <= amount and all(left[place] == node.zones[place].total.get(CPU, 0) for place in places)

    by_socket: dict[int, list[int]] = {}
    for place in left:
        by_socket.setdefault(socket(place), []).append(place)
    for number in sorted(by_socket, key=lambda one: (sum(left[i] for i in by_socket[one]), one)):
        every = [i for i, own in enumerate(node.sockets) if own == number]
        if every == sorted(by_socket[number]) and whole(every):
            take(every)

    def order(place: int) -> tuple[int, int, int, int]:
        return sum(left[i] for i in by_socket[socket(place)]), socket(place), left[place], node.zones[place].id

    for place in sorted(left, key=order):
        if whole([place]):
            take([place])
    take(sorted((place for place in left if left[place]), key=order))
    return found


def _why(node: NumaNode, ask: Mapping[str, int], hints: Mapping[str, Sequence[Hint]]) -> str:
    """In words: the resource that has no set, or those that need sets of different widths."""
    for resource, own in hints.items():
        if not own:
            return f"no NUMA nodes have {_amount_text(resource, ask[resource])} free together"
    for resource, own in hints.items():
        if not any(h.preferred for h in own):
            widths = min(_width(h.mask) for h in own if h.mask is not None)
            return f"{_amount_text(resource, ask[resource])} would be spread over {widths} NUMA nodes, and fewer would do were they free"
    bound = {r: [h.mask for h in own if h.preferred and h.mask is not None] for r, own in hints.items()}
    widths_of = {r: min(map(_width, masks)) for r, masks in bound.items() if masks}
    if node.policy is NumaPolicy.SINGLE and (wide := [r for r, width in widths_of.items() if width > 1]):
        return f"{_amount_text(wide[0], ask[wide[0]])} are more than one NUMA node has"
    if any(a != b for a, b in pairwise(widths_of.values())):
        needs = ", ".join(f"{_amount_text(r, ask[r])} need {width}" for r, width in sorted(widths_of.items()))
        return f"what is asked for needs NUMA nodes of different number: {needs}"
    return f"no NUMA node has {', '.join(_amount_text(r, amount) for r, amount in sorted(ask.items()))} free together"


def _amount_text(resource: str, amount: int) -> str:
    return f"{amount // MIB} MiB of {resource}" if is_memory(resource) else f"{amount} {resource}"
