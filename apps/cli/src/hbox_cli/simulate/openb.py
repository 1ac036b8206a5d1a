"""The traces of FGD's authors (Alibaba 2023, `openb_*`) as the scheduler's core takes them, and the order in which their pods come."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model import Card, CardRequest, Generation, NodeName, NodeState, PodGroupTask
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import CPU, MEMORY, MIB, PODS
from hbox_sandbox.trace import Trace, TraceNode, TracePod, read_alibaba2023

#: Default folders of the files, after $HBOX_TRACES.
FOLDERS = ("traces/alibaba2023", "../shared/traces/alibaba2023")

NODES = "openb_node_list_gpu_node"
PODS_PREFIX = "openb_pod_list_"

#: Of a card's memory, any size that a hundred divides: shares are percents.
CARD_MIB = 10_000
SHARES = 100
PODS_PER_NODE = 10_000  #: the protocol knows no limit


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`specs`: the distinct requests of a trace; `pods`: the index of each pod's request, pods sorted by name."""

    nodes: tuple[NodeState, ...]
    specs: tuple[PodGroupTask, ...]
    milli: tuple[int, ...]  #: of cards, by spec
    pods: tuple[int, ...]
    capacity_milli: int

    def order(self, seed: int, *, percent: int) -> list[int]:
        """Specs in the order in which their pods come (sources: fgd-protocol): shuffled, then copies of pods drawn at random
        appended while what is asked for stays within `percent` of the cards, or pods drawn at random removed until it does.

        The published seeds belong to another generator: orders differ, means are to be compared.
        """
        chance = random.Random(seed)
        order = list(self.pods)
        chance.shuffle(order)
        most = percent * self.capacity_milli // 100
        asked = sum(self.milli[which] for which in order)
        while asked > most:
            asked -= self.milli[order.pop(chance.randrange(len(order)))]
        if not asked:
            return order
        while asked + self.milli[which := chance.choice(self.pods)] <= most:
            order.append(which)
            asked += self.milli[which]
        return order


def folder_of(given: Path | None) -> Path:
    """The folder with the node list. Raises NotFound with the folders that were searched and a hint."""
    tried = [given] if given is not None else [Path(p) for p in (os.environ.get("HBOX_TRACES", ""), *FOLDERS) if p]
    for folder in (below for top in tried for below in (top, top / "alibaba2023")):
        if any((folder / f"{NODES}{end}").is_file() for end in (".csv.gz", ".csv")):
            return folder
    raise NotFound(
        f"no {NODES}.csv or .csv.gz in {' or '.join(str(path) for path in tried)}",
        hint="fetch cluster-trace-gpu-v2023/csv of github.com/alibaba/clusterdata, and name its folder with --data or HBOX_TRACES",
    )


def traces_in(folder: Path) -> list[str]:
    names = {path.name.removesuffix(".gz") for path in folder.glob(f"{PODS_PREFIX}*.csv*")}
    return sorted(name.removeprefix(PODS_PREFIX).removesuffix(".csv") for name in names if name.endswith(".csv"))


def read(folder: Path, trace: str) -> Arrivals:
    """Raises NotFound for a trace that is not there, InvalidRequest for files that are wrong."""
    pods = _file(folder, f"{PODS_PREFIX}{trace}")
    if pods is None:
        raise NotFound(f"{folder} has no trace {trace}", hint=f"there are {', '.join(traces_in(folder)) or 'none'}")
    nodes = _file(folder, NODES)
    assert nodes is not None, "folder_of looked for it"
    return arrivals_of(read_alibaba2023(pods, nodes))


def arrivals_of(trace: Trace) -> Arrivals:
    if not trace.capacity_milli or not trace.demand_milli:
        raise InvalidRequest(f"{trace.name}: there are no cards, or no pod requests any", hint="the protocol is about cards")
    kinds: dict[tuple[object, ...], int] = {}
    specs: list[PodGroupTask] = []
    milli: list[int] = []
    which: list[int] = []
    for pod in sorted(trace.pods, key=lambda pod: pod.name):
        key = (pod.cpu_milli, pod.memory_mib, pod.cards, pod.card_milli, pod.models)
        if key not in kinds:
            kinds[key] = len(specs)
            specs.append(spec_of(pod))
            milli.append(pod.milli)
        which.append(kinds[key])
    return Arrivals(
        tuple(node_of(node) for node in trace.nodes), tuple(specs), tuple(milli), tuple(which), trace.capacity_milli
    )


def node_of(node: TraceNode) -> NodeState:
    allocatable = {CPU: node.cpu_milli, MEMORY: node.memory_mib * MIB, PODS: PODS_PER_NODE}
    if node.cards:
        allocatable[VENDORS.default.cards] = SHARES * node.cards
    return NodeState(
        name=NodeName(node.name),
        uid=node.name,
        generation=Generation(1),
        ready=True,
        allocatable=allocatable,
        cards=tuple(Card(i, f"{node.name}-{i}", node.model, CARD_MIB, SHARES) for i in range(node.cards)),
    )


def spec_of(pod: TracePod) -> PodGroupTask:
    """Shares in whole percents, rounded up."""
    requests = {CPU: pod.cpu_milli, MEMORY: pod.memory_mib * MIB, PODS: 1}
    if not pod.cards:
        return PodGroupTask(name="pod", requests=requests, pods=())
    percent = -(-pod.card_milli // 10)
    requests[VENDORS.default.cards] = pod.cards
    cards = CardRequest(pod.cards, cores=percent, memory_percent=percent, models=pod.models)
    return PodGroupTask(name="pod", requests=requests, pods=(), cards=cards)


def _file(folder: Path, stem: str) -> Path | None:
    return next((path for end in (".csv.gz", ".csv") if (path := folder / f"{stem}{end}").is_file()), None)


def chosen(folder: Path, wanted: Sequence[str]) -> list[str]:
    """The traces asked for, each once. Raises NotFound for one that is not there."""
    there = traces_in(folder)
    for name in wanted:
        if name not in there:
            raise NotFound(f"{folder} has no trace {name}", hint=f"there are {', '.join(there) or 'none'}")
    return list(dict.fromkeys(wanted))
