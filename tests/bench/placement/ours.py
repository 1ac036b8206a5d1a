"""HBox's side: the scheduler's core under its own policy, with a ledger that judges each plan, as in `hbox simulate`."""

from dataclasses import replace

import numpy as np

from hbox_common.model import HyperNode, NodeName, PodUid
from hbox_common.model.annotations import NETWORK_TOPOLOGY
from hbox_scheduler.core.cluster.arrays import Ints
from hbox_scheduler.core.policy import PolicyName
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.policy import policy_of
from hbox_scheduler.core.simulate import Simulation, job, node

from .workload import CARDS, Fabric, Work


class Ours:
    """`word`: what gangs of several pods say of the topology."""

    def __init__(self, fabric: Fabric, word: str = "bestEffort") -> None:
        self._word, self._fabric = word, fabric
        self._simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
        names = [NodeName(f"node-{row:05}") for row in range(fabric.nodes)]
        self._simulation.put_nodes(node(name, cards=CARDS, cpu=192, memory_mib=1 << 21) for name in names)
        self._row = {name: row for row, name in enumerate(names)}
        units = [
            HyperNode(f"unit-{one:03}", 1, "leafgroup", tuple(names[row] for row in np.flatnonzero(fabric.unit == one)))
            for one in range(fabric.units)
        ]
        pods = [
            HyperNode(f"pod-{one:02}", 2, "pod", (), tuple(units[u].name for u in np.unique(fabric.unit[fabric.pod == one])))
            for one in range(int(fabric.pod[-1]) + 1)
        ]
        top = HyperNode("fabric", 3, "fabric", (), tuple(pod.name for pod in pods))
        self._simulation.scheduler.on_fabric((*units, *pods, top), "compute")
        self._running: dict[str, list[PodUid]] = {}

    def place(self, work: Work) -> Ints | None:
        """`[N]`: pods that each node took; None: the job was refused, and is gone."""
        asked = job(work.name, pods=work.pods, cards=work.cards, cpu_milli=8000 * work.cards)
        if work.pods > 1 and self._word:
            asked = replace(asked, annotations={NETWORK_TOPOLOGY: self._word})
        simulation = self._simulation
        simulation.submit([asked])
        simulation.run()
        pods = [pod.uid for task in asked.tasks for pod in task.pods]
        if pods[0] not in simulation.claims:
            simulation.scheduler.on_withdrawn([asked.id], [1 << 60])
            return None
        self._running[work.name] = [*pods]
        counts = np.zeros(self._fabric.nodes, dtype=np.int64)
        for pod in pods:
            counts[self._row[simulation.claims[pod].node]] += 1
        return counts

    def end(self, work: Work) -> None:
        if (pods := self._running.pop(work.name, None)) is not None:
            self._simulation.finish(pods)
