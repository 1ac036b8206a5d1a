"""Small fabrics in few words: leaves with nodes of so many cores, gangs of pods that ask for cores, and where they went."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hbox_common.model import (
    NO_CONSTRAINTS,
    HyperNode,
    JobId,
    Match,
    MatchOperator,
    NodeName,
    PodConstraints,
    PodGroupTask,
    PodTerm,
    PodUid,
    QueueName,
    Selector,
    SubGangPolicy,
    TopologyMode,
    TopologyWish,
)
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.fabrics import Fabrics
from hbox_scheduler.core.cluster.facts import ClusterFacts, DisruptionBudget
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.cycles import CycleOptions, Report, simulate

CONF = """
actions: "{actions}"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: network-topology-aware
"""


def hard(tier: int | None = None, name: str = "") -> TopologyWish:
    return TopologyWish(TopologyMode.HARD, tier, name)


def apart(gang: str) -> PodConstraints:
    """No two of them on one node."""
    picks = Selector((Match("gang", MatchOperator.IN, (gang,)),))
    return PodConstraints(anti_affinity=(PodTerm(HOSTNAME, picks),))


HOSTNAME = "kubernetes.io/hostname"
SOFT = TopologyWish(TopologyMode.SOFT)


class Fabric:
    """`leaves`: leaf -> node -> cores. `above`: further HyperNodes by name, their children; a tier above the highest of them. `loose`: nodes
    outside of the fabric."""

    def __init__(
        self,
        leaves: Mapping[str, Mapping[str, int]],
        *,
        above: Mapping[str, Sequence[str]] | None = None,
        loose: Mapping[str, int] | None = None,
    ) -> None:
        self.columns = Columns()
        self.tasks = Tasks(self.columns)
        self.gangs: list[Gang] = []
        self.hypernodes = [HyperNode(leaf, 1, "leaf", nodes=tuple(map(NodeName, nodes))) for leaf, nodes in leaves.items()]
        tiers = dict.fromkeys(leaves, 1)
        for name, children in (above or {}).items():
            tiers[name] = 1 + max(tiers[child] for child in children)
            self.hypernodes.append(HyperNode(name, tiers[name], f"tier-{tiers[name]}", children=tuple(children)))
        self.leaf_of = {node: leaf for leaf, nodes in leaves.items() for node in nodes}
        for nodes in (*leaves.values(), loose or {}):
            for name, cores in nodes.items():
                self.columns.put_node(node(name, cpu=cores, labels={HOSTNAME: name}))

    def gang(
        self,
        name: str,
        pods: int,
        *,
        wish: TopologyWish | None = None,
        cores: int | Sequence[int] = 1,
        least: int | None = None,
        on: Sequence[str] = (),
        priority: int = 0,
        policies: Sequence[SubGangPolicy] = (),
        labels: Sequence[Mapping[str, str]] = (),
        annotations: Mapping[str, str] | None = None,
        constraints: PodConstraints = NO_CONSTRAINTS,
    ) -> Gang:
        """`on`: nodes of the first members, which run already. `cores` and `labels`: of each member, or the same for all."""
        gang = Gang(
            id=JobId(f"ns/{name}"),
            namespace="ns",
            name=name,
            queue=QueueName("q"),
            priority=priority,
            min_member=pods if least is None else least,
            created_at=float(len(self.gangs)),
            topology=wish,
            sub_gang_policies=tuple(policies),
            annotations=annotations or {},
        )
        for i in range(pods):
            milli = 1000 * (cores if isinstance(cores, int) else cores[i])
            task = self.tasks.of(PodGroupTask("w", {"cpu": milli, "pods": 1}, ()))
            request = np.zeros(len(self.columns.allocatable), dtype=np.int64)
            request[self.columns.resource("cpu")] = milli
            member = Member(
                uid=PodUid(f"{name}-{i:03}"),
                namespace="ns",
                name=f"{name}-{i:03}",
                gang=gang,
                role="",
                task=task,
                request=request,
                created_at=0.0,
                labels=labels[i] if labels else {"gang": name},
                constraints=constraints,
            )
            if i < len(on):
                member.status, member.row = Status.RUNNING, self.columns.row_of[NodeName(on[i])]
            gang.members.append(member)
        self.gangs.append(gang)
        return gang

    def run(
        self,
        *,
        actions: str = "allocate",
        conf: str = CONF,
        cycles: int = 1,
        explain: bool = False,
        queues: Sequence[QueueInfo] = (QueueInfo(QueueName("q")),),
        budgets: Sequence[DisruptionBudget] = (),
        old: Mapping[str, str] | None = None,
        degraded: Mapping[str, int] | None = None,
    ) -> Report:
        fabrics = Fabrics(old=old or {}, degraded={NodeName(node): rails for node, rails in (degraded or {}).items()})
        facts = ClusterFacts(hypernodes=self.hypernodes, fabrics=fabrics, budgets=budgets)
        cluster = Cluster(self.gangs, list(queues), facts=facts)
        policy = parse_conf(conf.format(actions=actions), plugins=list(PLUGINS))
        return simulate(self.columns, cluster, policy, CycleOptions(cycles=cycles, explain=explain))

    def leaves_used(self, nodes: Mapping[str, int]) -> set[str]:
        return {self.leaf_of.get(node, node) for node in nodes}


def placed(report: Report, gang: Gang) -> Counter[str]:
    """Bound members by node."""
    return Counter(bound.node for bound in report.bindings if bound.member.gang is gang)
