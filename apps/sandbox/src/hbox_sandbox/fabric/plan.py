"""A fabric by its numbers: units of hosts with a leaf for each rail, pods of units with spines, cores over pods."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hbox_common.model.fabric import HostLink, Snapshot, Switch, Trunk

#: Cards of a DGX H100 that go to the compute fabric; the others are for storage and management.
HCAS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """`rails` 1 is a fat tree without rails: one leaf a unit, with one card of each host. `uplinks`: cables from a leaf to each spine of its rail."""

    pods: int = 1
    units: int = 2  #: of a pod
    hosts: Sequence[int] = (4,)  #: per unit; the last number applies to all further units
    rails: int = 8
    spines: int = 4  #: of a pod, each of which has all rails; with `planes`, of a rail
    planes: bool = False  #: each rail has spines of its own
    uplinks: int = 1
    cores: int = 0
    speed: str = "NDR"
    host_name: str = "node-{:04}"
    hcas: Sequence[str] = field(default=HCAS)

    def snapshot(self) -> Snapshot:
        return _Making(self).made()

    @property
    def sizes(self) -> list[int]:
        """Hosts of each unit."""
        count = self.pods * self.units
        given = list(self.hosts)[:count]
        return given + [self.hosts[-1]] * (count - len(given))

    def truth(self) -> list[frozenset[str]]:
        """Hosts of each unit."""
        out, first = [], 0
        for size in self.sizes:
            out.append(frozenset(self.host_name.format(n) for n in range(first, first + size)))
            first += size
        return out


def lingjun(*, pods: int = 2, segments: int = 2, hosts: int = 16) -> FabricPlan:
    """Alibaba's three tiers as its label documents have them: hosts below one pair of switches (ASW), segments (PSW), a pod (DSW)."""
    return FabricPlan(
        pods=pods, units=segments, hosts=(hosts,), rails=1, spines=4, uplinks=2, cores=4, host_name="lingjun-{:04}"
    )


def disturbed(snapshot: Snapshot, dice: random.Random, *, down: float = 0.0, swapped: float = 0.0) -> Snapshot:
    """With so large a share of host links missing, and of the others cabled to each other's switch port."""
    kept = [link for link in snapshot.hosts if dice.random() >= down]
    places = dice.sample(range(len(kept)), 2 * round(len(kept) * swapped / 2))
    for one, other in zip(places[::2], places[1::2], strict=True):
        a, b = kept[one], kept[other]
        kept[one] = replace(a, switch=b.switch, switch_port=b.switch_port)
        kept[other] = replace(b, switch=a.switch, switch_port=a.switch_port)
    return replace(snapshot, hosts=tuple(kept))


class _Making:
    def __init__(self, plan: FabricPlan) -> None:
        self._plan = plan
        self._switches: dict[str, Switch] = {}
        self._hosts: list[HostLink] = []
        self._trunks: list[Trunk] = []
        self._used: dict[str, int] = {}

    def made(self) -> Snapshot:
        plan = self._plan
        cores = [self._switch(f"core-{n:02}") for n in range(1, plan.cores + 1)]
        first, sizes = 0, iter(plan.sizes)
        for pod in range(1, plan.pods + 1):
            planes = plan.rails if plan.planes else 1
            spines = [
                [self._switch(f"spine-p{pod}-{plane * plan.spines + n + 1:03}") for n in range(plan.spines)]
                for plane in range(planes)
            ]
            for core in cores:
                for spine in (spine for plane in spines for spine in plane):
                    self._trunk(spine, core)
            for unit in range(1, plan.units + 1):
                size = next(sizes)
                hosts = [plan.host_name.format(n) for n in range(first, first + size)]
                self._unit(f"leaf-p{pod}u{unit:02}", first, hosts, spines)
                first += size
        return Snapshot(self._switches, tuple(self._hosts), tuple(self._trunks))

    def _unit(self, name: str, first: int, hosts: Sequence[str], spines: Sequence[Sequence[str]]) -> None:
        plan = self._plan
        for rail in range(plan.rails):
            leaf = self._switch(f"{name}-r{rail + 1}")
            for number, host in enumerate(hosts, first):
                card = f"{0xA088C20300000000 + number * 64 + rail:016x}"
                self._hosts.append(HostLink(card, 1, host, plan.hcas[rail], leaf, self._port(leaf), plan.speed, 4))
            for spine in spines[rail % len(spines)]:
                for _ in range(plan.uplinks):
                    self._trunk(leaf, spine)

    def _switch(self, name: str) -> str:
        guid = f"{0xFC6A1C0300000000 + len(self._switches) * 64:016x}"
        self._switches[guid] = Switch(guid, name, "MQM9700", guid)
        return guid

    def _port(self, guid: str) -> int:
        self._used[guid] = port = self._used.get(guid, 0) + 1
        return port

    def _trunk(self, one: str, other: str) -> None:
        a, b = sorted((one, other))
        self._trunks.append(Trunk(a, self._port(a), b, self._port(b), self._plan.speed, 4))
