"""A trace: the machines, and the pods in the order in which they come."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TraceNode:
    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str  #: of its cards; empty where it has none


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod. `card_milli` is asked of each of its `cards`; 1000 is a whole card."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int = 0
    card_milli: int = 0
    models: tuple[str, ...] = ()  #: allowed; empty = any
    gang: str = ""  #: pods of one gang start together or not at all

    @property
    def milli(self) -> int:
        """Of all its cards together."""
        return self.cards * self.card_milli


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def capacity_milli(self) -> int:
        """Thousandths of a card that the nodes have."""
        return 1000 * sum(node.cards for node in self.nodes)

    @property
    def demand_milli(self) -> int:
        return sum(pod.milli for pod in self.pods)

    def shuffled(self, seed: int) -> "Trace":
        """The pods in a random order, as FGD's protocol has it (sources: fgd-protocol); gangs stay together."""
        units = _units(self.pods)
        random.Random(seed).shuffle(units)
        return replace(self, pods=tuple(pod for unit in units for pod in unit))

    def limited(self, *, pods: int | None = None, nodes: int | None = None) -> "Trace":
        """The first so many pods, without a gang cut in two, and so many nodes, spread over the list so that the mix of machines stays."""
        chosen: list[TracePod] = []
        for unit in _units(self.pods):
            if pods is not None and len(chosen) + len(unit) > pods:
                break
            chosen += unit
        machines = self.nodes
        if nodes is not None and 0 < nodes < len(machines):
            machines = tuple(machines[i * len(machines) // nodes] for i in range(nodes))
        return replace(self, pods=tuple(chosen), nodes=machines)


def _units(pods: Iterable[TracePod]) -> list[list[TracePod]]:
    units: dict[str, list[TracePod]] = {}
    for pod in pods:
        units.setdefault(f"gang/{pod.gang}" if pod.gang else f"pod/{pod.name}", []).append(pod)
    return list(units.values())
