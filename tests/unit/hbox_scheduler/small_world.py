"""A cluster for the engine in few words: nodes with cards, queues, gangs that run or wait; `decide` runs a policy over it once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hbox_common.model import CardRequest, CardSlice, JobId, NodeName, NodeUsage, PodGroupTask, PodUid, QueueName, is_offline
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.facts import ClusterFacts, DisruptionBudget
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import GroupPhase, ResourceQuota
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.framework.webhooks import Ask, no_webhooks
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.cycles import CycleOptions, Report, simulate
from hbox_scheduler.core.simulate.simulation import node

NOW = 1_000_000.0


@dataclass
class SmallWorld:
    """Nodes `n0`, `n1`, ... with `cards` each."""

    nodes: int
    cards: int = 8
    queues: Sequence[QueueInfo] = (QueueInfo(QueueName("q")),)
    classes: Mapping[str, int] = field(default_factory=dict)
    columns: Columns = field(default_factory=Columns)
    gangs: list[Gang] = field(default_factory=list)
    budgets: list[DisruptionBudget] = field(default_factory=list)
    quotas: list[ResourceQuota] = field(default_factory=list)
    usage: list[NodeUsage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tasks = Tasks(self.columns)
        for number in range(self.nodes):
            self.columns.put_node(node(f"n{number}", cards=self.cards, cpu=128))
        self.columns.resource(GPU)

    def gang(
        self,
        name: str,
        *,
        pods: int = 1,
        cards: int | CardRequest = 1,
        on: Sequence[int] = (),
        min_member: int | None = None,
        priority: int = 0,
        priority_class: str = "",
        queue: str = "q",
        age_s: float = 0.0,
        ran_s: float | None = None,
        annotations: Mapping[str, str] | None = None,
        preemptable: bool = True,
        modest: bool = False,
    ) -> Gang:
        """`on`: the node of each pod that runs, for `ran_s` (its age where that is not said); none = all of them wait. `modest`: pods that ask for nothing."""
        gang = Gang(
            id=JobId(f"d/{name}"),
            namespace="d",
            name=name,
            queue=QueueName(queue),
            priority=priority,
            min_member=pods if min_member is None else min_member,
            created_at=NOW - age_s,
            phase=GroupPhase.RUNNING if on else GroupPhase.INQUEUE,
            annotations=annotations or {},
            preemptable=preemptable,
            priority_class=priority_class,
        )
        asked = (CardRequest(cards) if cards else None) if isinstance(cards, int) else cards
        requests = ({"pods": 1} if modest else {"cpu": 1000, "pods": 1}) | ({GPU: asked.count} if asked is not None else {})
        task = self._tasks.of(PodGroupTask("w", requests, (), asked), offline=is_offline(priority_class))
        request = np.zeros(len(self.columns.allocatable), dtype=np.int64)
        for column, units in task.amount:
            request[column] = 0 if modest else units
        for number in range(pods):
            member = Member(
                uid=PodUid(f"{name}-{number}"),
                namespace="d",
                name=f"{name}-{number}",
                gang=gang,
                role="",
                task=task,
                request=request,
                created_at=gang.created_at,
                priority=priority,
                annotations=annotations or {},
                preemptable=preemptable,
            )
            if number < len(on):
                row = self.columns.row_of[NodeName(f"n{on[number]}")]
                taken = {s.index for g in [*self.gangs, gang] for m in g.members if m.row == row for s in m.slices}
                free = [index for index in range(self.cards) if index not in taken][: asked.count if asked is not None else 0]
                member.row, member.status = row, Status.RUNNING
                member.slices = tuple(CardSlice(index, 100, 40_960) for index in free)
                member.started_at = NOW - (age_s if ran_s is None else ran_s)
            gang.members.append(member)
        self.gangs.append(gang)
        return gang

    def decide(
        self,
        conf: str,
        *,
        now: float = NOW,
        cycles: int = 1,
        requeue_evicted: bool = False,
        explain: bool = False,
        ask: Ask = no_webhooks,
    ) -> Report:
        cluster = Cluster(
            self.gangs,
            list(self.queues),
            facts=ClusterFacts(budgets=self.budgets, quotas=self.quotas, priority_classes=self.classes, usage=self.usage),
        )
        return simulate(
            self.columns,
            cluster,
            parse_conf(conf, plugins=list(PLUGINS)),
            CycleOptions(now=now, cycles=cycles, requeue_evicted=requeue_evicted, explain=explain),
            ask,
        )


def evicted(report: Report) -> list[str]:
    return sorted(eviction.member.name for eviction in report.evictions)


def bound(report: Report) -> dict[str, str]:
    return {binding.member.name: binding.node for binding in report.bindings}
