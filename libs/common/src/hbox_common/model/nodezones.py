"""A node's NUMA nodes (zones) as its kubelet allocates them: the capacity and free amounts of each, and which pod has which part.

There are two kinds of sources. node-agent reports each pod (`by_pod`): the kubelet's allocations are in `pods` and are subtracted from `free`. Objects of the
cluster (NodeResourceTopology, Volcano's Numatopology) contain only sums, with delay: readers keep their own books in addition to `free`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .devices import VENDORS
from .hostports import is_host_port
from .ids import NodeName
from .job import PodGroupTask
from .nodedevices import DeviceIds, NodeDevices, ZoneMemory, parse_cpu_list
from .nodenuma import NodeNuma
from .numa import CPU, MAX_NODES, ContainerAsk, NumaNode, NumaPolicy, NumaScope, PodAsk, Zone, is_memory
from .resources import EPHEMERAL, PODS, Resources

#: Limits of one node, so that it fits into one message.
MAX_PODS, MAX_RESOURCES = 512, 32

#: Of kubelets, that give out memory by NUMA nodes. Windows' has the rules of the other one, and no say in where memory comes from.
_MEMORY_MANAGERS = ("Static", "BestEffort")

#: Of one resource in one zone: more than any node has, so that sums stay far from overflowing anything.
MAX_UNITS = 2**48


@dataclass(frozen=True, slots=True)
class ZoneAmounts:
    """One NUMA node. Whole CPUs under `cpu`, devices by resource. `total`: capacity including reserved CPUs, which determines the kubelet's narrowest sets;
    `most`: capacity for exclusive use by containers; `free`: the part not allocated exclusively. Memory and huge pages in bytes, under the static memory
    manager: `assigned` blocks are allocated from this zone, together with the zones `group` (ids; empty: alone)."""

    id: int
    total: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    assigned: int = 0
    group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory or huge pages of one container, in bytes, from one zone or a group of them (ids)."""

    kind: str
    size: int
    zones: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodZones:
    """Exclusive resources of a pod. `given`: amounts as in ZoneAmounts except memory, for each zone in order. `uid` "": unknown."""

    namespace: str
    pod: str
    uid: str
    given: tuple[dict[str, int], ...]
    blocks: tuple[MemoryBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeZones:
    """`aligned`: the resources that its topology manager looks at. `policy` none, or no zones: it aligns nothing that is known."""

    node: NodeName
    at: float  #: seconds since the epoch
    policy: NumaPolicy = NumaPolicy.NONE
    scope: NumaScope = NumaScope.CONTAINER
    zones: tuple[ZoneAmounts, ...] = ()
    aligned: tuple[str, ...] = ()
    threads_per_core: int = 1
    full_pcpus_only: bool = False
    prefer_closest: bool = False
    distances: tuple[tuple[int, ...], ...] = ()
    pods: tuple[PodZones, ...] = ()
    by_pod: bool = False
    source: str = ""  #: node-agent, NodeResourceTopology, Numatopology
    problem: str = ""  #: why its zones are not known though its kubelet aligns, in words
    gone: bool = False
    cut_cpus: int = 0  #: of cores that are reserved in part
    align_by_socket: bool = False
    sockets: tuple[int, ...] = ()  #: of each zone, in order; () = unknown

    @property
    def content(self) -> tuple[object, ...]:
        """All fields but the time."""
        options = (
            self.threads_per_core,
            self.full_pcpus_only,
            self.cut_cpus,
            self.align_by_socket,
            self.sockets,
            self.prefer_closest,
        )
        rules = self.policy, self.scope, self.aligned, options
        return rules, self.distances, self.zones, self.pods, self.by_pod, self.source, self.problem, self.gone

    @property
    def counts(self) -> bool:
        """Whether anything follows from it."""
        return (self.policy is not NumaPolicy.NONE or self.refuses) and 0 < len(self.zones) <= MAX_NODES and not self.gone

    @property
    def refuses(self) -> bool:
        """Whether its kubelet fails pods that it cannot align, that its memory manager has no place for, or that ask for parts of cores."""
        aligns = self.policy in (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE) or any(map(is_memory, self.aligned))
        return aligns or (self.full_pcpus_only and CPU in self.aligned)

    def bits(self, ids: Iterable[int]) -> int:
        """Of zones by their ids, the set as the mirror of the kubelet has it; ids that are not there are left out."""
        place_of = {zone.id: place for place, zone in enumerate(self.zones)}
        return sum(1 << place for place in {place_of[id_] for id_ in ids if id_ in place_of})

    def numa_node(self) -> NumaNode:
        """As the mirror of the kubelet takes it, with what is free."""
        return NumaNode(
            self.policy,
            self.scope,
            tuple(Zone(zone.id, zone.total, zone.free, zone.assigned, self.bits(zone.group)) for zone in self.zones),
            frozenset(self.aligned),
            threads_per_core=self.threads_per_core,
            full_pcpus_only=self.full_pcpus_only,
            cut_cpus=self.cut_cpus,
            align_by_socket=self.align_by_socket,
            sockets=self.sockets,
            prefer_closest=self.prefer_closest,
            distances=self.distances,
        )


def vacant(zones: NodeZones) -> NodeZones:
    """The same node without pods; for sources that do not report single pods."""
    empty = tuple(ZoneAmounts(zone.id, zone.total, zone.most, zone.most) for zone in zones.zones)
    return replace(zones, zones=empty, pods=(), by_pod=False)


def zones_by_kubelet(numa: NodeNuma, devices: NodeDevices) -> NodeZones:
    """Zones according to node-agent: the hardware and the allocations. If its report is incomplete, a NodeZones with the policy and a `problem`."""
    node, at, rules = numa.node, devices.at, numa.rules
    policy = _policy(rules.topology_manager if rules is not None else "")
    memory = {one.zone: one for one in devices.memory} if rules is not None and rules.memory_manager in _MEMORY_MANAGERS else {}
    static = rules is not None and rules.cpu_manager == "static"
    threads = max(1, numa.threads_per_core)
    whole_cores = rules is not None and static and threads > 1 and rules.has("full-pcpus-only")
    if rules is None or (policy is NumaPolicy.NONE and not memory and not whole_cores):
        return NodeZones(node, at, source="node-agent")
    scope = NumaScope.POD if rules.topology_scope == NumaScope.POD else NumaScope.CONTAINER
    if problem := _problem(numa, devices):
        return NodeZones(node, at, policy, scope, source="node-agent", problem=problem)
    cpus = {cpu: place for place, zone in enumerate(numa.zones) for cpu in parse_cpu_list(zone.cpus)}
    place_of = {zone.id: place for place, zone in enumerate(numa.zones)}
    given: dict[tuple[str, str], tuple[str, list[dict[str, int]]]] = {}
    blocks: dict[tuple[str, str], list[MemoryBlock]] = {}
    for one in devices.holds:
        uid, amounts = given.get((one.namespace, one.pod), ("", [{} for _ in numa.zones]))
        _count(amounts, one.devices, place_of)
        for cpu in parse_cpu_list(one.cpus):
            _add(amounts, cpus.get(cpu), CPU)
        given[one.namespace, one.pod] = one.uid or uid, amounts
        if memory:
            kept = (MemoryBlock(part.kind, min(part.size_bytes, MAX_UNITS), part.numa) for part in one.memory)
            blocks.setdefault((one.namespace, one.pod), []).extend(kept)
    total: list[dict[str, int]] = [{} for _ in numa.zones]
    for place in cpus.values():
        _add(total, place, CPU)
    most: list[dict[str, int]] = [{} for _ in numa.zones]
    _count(most, devices.allocatable, place_of)
    for zone, own in zip(total, most, strict=True):
        zone.update(own)
    for cpu in parse_cpu_list(devices.cpus):
        _add(most, cpus.get(cpu), CPU)
    free = [dict(own) for own in most]
    for _, amounts in given.values():
        for zone, own in zip(free, amounts, strict=True):
            for resource, units in own.items():
                zone[resource] = max(0, zone.get(resource, 0) - units)
    for place, numa_zone in enumerate(numa.zones):
        if (has := memory.get(numa_zone.id)) is not None:
            total[place] |= has.most
            most[place] |= has.most
            free[place] |= has.free
    sockets = tuple(zone.socket for zone in numa.zones)
    aligns = policy is not NumaPolicy.NONE
    aligned = _placed(devices.allocatable, place_of) if aligns else set()
    aligned |= {CPU} if static and (aligns or whole_cores) else set()
    aligned |= {kind for has in memory.values() for kind in has.most}
    return NodeZones(
        node,
        at,
        policy,
        scope,
        zones=tuple(
            ZoneAmounts(zone.id, total[place], most[place], free[place], *_memory_use(memory.get(zone.id)))
            for place, zone in enumerate(numa.zones)
        ),
        aligned=tuple(sorted(aligned)),
        threads_per_core=threads,
        full_pcpus_only=whole_cores,
        cut_cpus=len(set(parse_cpu_list(numa.cut_cpus)) & set(parse_cpu_list(devices.cpus))),
        align_by_socket=static and rules.has("align-by-socket"),
        sockets=sockets if all(zone.socket >= 0 or not zone.cpus for zone in numa.zones) else (),
        prefer_closest=rules.prefers("prefer-closest-numa-nodes"),
        distances=tuple(zone.distances for zone in numa.zones) if all(zone.distances for zone in numa.zones) else (),
        pods=tuple(
            PodZones(namespace, pod, uid, tuple(amounts), tuple(blocks.get((namespace, pod), ())))
            for (namespace, pod), (uid, amounts) in sorted(given.items())
            if any(amounts) or (namespace, pod) in blocks
        ),
        by_pod=True,
        source="node-agent",
    )


def _memory_use(has: ZoneMemory | None) -> tuple[int, tuple[int, ...]]:
    if has is None:
        return 0, ()
    return has.assigned, has.cells if len(has.cells) > 1 else ()


def _problem(numa: NodeNuma, devices: NodeDevices) -> str:
    """Why the zones cannot be determined."""
    if not numa.zones:
        return "its NUMA nodes are not known"
    if len(numa.zones) > MAX_NODES:
        return f"{len(numa.zones)} NUMA nodes are more than the {MAX_NODES} that a topology manager takes"
    if numa.rules is not None and numa.rules.cpu_manager == "static" and not devices.cpus:
        return "its kubelet does not say which CPUs containers may have"
    if devices.left_out:
        return f"{devices.left_out} containers or devices are beyond what a message holds"
    if len({zone.id for zone in numa.zones}) < len(numa.zones):
        return "two of its NUMA nodes have one number"
    try:
        for text in (devices.cpus, numa.cut_cpus, *(zone.cpus for zone in numa.zones), *(one.cpus for one in devices.holds)):
            parse_cpu_list(text)
    except ValueError as e:
        return str(e)
    return ""


def _policy(text: str) -> NumaPolicy:
    """Kubernetes' default where nothing, or nothing known, is written."""
    return NumaPolicy(text) if text in tuple(NumaPolicy) else NumaPolicy.NONE


def _placed(parts: Iterable[DeviceIds], place_of: Mapping[int, int]) -> set[str]:
    """Resources all of whose devices are each on one of these NUMA nodes or on none; the others cannot be counted by zone."""
    placed = {part.resource for part in parts if part.numa}
    astray = {part.resource for part in parts if len(part.numa) > 1 or any(id_ not in place_of for id_ in part.numa)}
    return set(sorted(placed - astray)[:MAX_RESOURCES])


def _count(amounts: list[dict[str, int]], parts: Iterable[DeviceIds], place_of: Mapping[int, int]) -> None:
    for part in parts:
        if len(part.numa) == 1:
            _add(amounts, place_of.get(part.numa[0]), part.resource, len(part.ids))


def _add(amounts: list[dict[str, int]], place: int | None, resource: str, units: int = 1) -> None:
    if place is not None:
        amounts[place][resource] = amounts[place].get(resource, 0) + units


_NO_DEVICES = frozenset({CPU, EPHEMERAL, PODS})


def aligned_part(ask: PodAsk, aligned: frozenset[str]) -> PodAsk | None:
    """What a kubelet that aligns these resources sees of the request; None: nothing."""
    containers, init = (_seen(some, aligned) for some in (ask.containers, ask.init))
    return PodAsk(containers, init, ask.guaranteed) if containers or init else None


def _seen(containers: Iterable[ContainerAsk], aligned: frozenset[str]) -> tuple[ContainerAsk, ...]:
    found = (tuple((name, units) for name, units in one if name in aligned) for one in containers)
    return tuple(one for one in found if one)


def ask_of(task: PodGroupTask) -> PodAsk | None:
    """What kubelets align of such a pod; None: nothing, whatever the kubelet's rules."""
    containers = _asks(task.containers or (task.requests,), guaranteed=task.guaranteed)
    init = _asks(task.init_containers, guaranteed=task.guaranteed)
    return PodAsk(containers, init, task.guaranteed) if containers or init else None


def guessed_ask(requests: Resources) -> PodAsk | None:
    """The ask of a pod known only by its sums: treated as one Guaranteed container, the most demanding case. Without memory: most pods have some, and the
    kubelet does not report it for pods that are not Guaranteed."""
    containers = _asks(({name: units for name, units in requests.items() if not is_memory(name)},), guaranteed=True)
    return PodAsk(containers, (), guaranteed=True) if containers else None


def _asks(containers: Iterable[Mapping[str, int]], *, guaranteed: bool) -> tuple[tuple[tuple[str, int], ...], ...]:
    found = []
    for one in containers:
        own = tuple(
            (name, units)
            for name, units in sorted(one.items())
            if units > 0
            and name not in VENDORS.no_amounts
            and not is_host_port(name)
            and (
                (guaranteed and (name == CPU and units % 1000 == 0))
                or (guaranteed and is_memory(name))
                or not (name in _NO_DEVICES or is_memory(name))
            )
        )
        if own:
            found.append(own)
    return tuple(found)
