"""Fair shares of 1,000 queues with usage histories: the work of `capacity` and `proportion` at the begin of a session, and the division alone."""

import statistics
import time
from collections.abc import Callable
from random import Random

from hbox_common.model import CardRequest, JobId, PodGroupTask, PodUid, QueueName
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.fairshare import ShareDemand, divide, remembering
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.app import calm_collector
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import GroupPhase, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate import node

from .scheduler import report

QUEUES, NODES, CARDS = 1000, 1250, 8
BUDGET_MS = 10

POLICY = """
actions: "allocate"
tiers:
- plugins: [{{name: predicates}}, {{name: {plugin}, enableHierarchy: {tree}, arguments: {{usageWeight: 1}}}}]
"""


def queues(*, over_quota: bool, tree: bool) -> list[QueueInfo]:
    """Ten departments with a hundred projects each, or 1,000 in a row."""
    chance = Random(7)
    above = [QueueInfo(QueueName(f"d{number}"), recent_cards=900.0) for number in range(10)] if tree else []
    return above + [
        QueueInfo(
            QueueName(f"q{number}"),
            weight=chance.choice((1, 1, 2, 4)),
            parent=QueueName(f"d{number % 10}") if tree else None,
            deserved={GPU: chance.randrange(8)},
            annotations={OVER_QUOTA_WEIGHT: str(chance.choice((1, 2)))} if over_quota else {},
            recent_cards=20 * chance.random(),
        )
        for number in range(QUEUES)
    ]


def opened(plugin: str, *, over_quota: bool = False, tree: bool = False) -> float:
    """Milliseconds of `open`, median; a job of some cards waits in every queue."""
    columns, chance = Columns(), Random(7)
    for number in range(NODES):
        columns.put_node(node(f"node-{number:05}", cards=CARDS, cpu=96))
    tasks, named = Tasks(columns), queues(over_quota=over_quota, tree=tree)
    gangs = [_gang(columns, tasks, number, chance.randrange(1, 40)) for number in range(QUEUES)]
    conf = parse_conf(POLICY.format(plugin=plugin, tree=str(tree).lower()), plugins=list(PLUGINS))
    tiers = plugins_of(conf)
    session = Session(columns=columns, cluster=Cluster(gangs, named), conf=conf, tiers=tiers)
    [found] = [one for tier in tiers for one in tier if one.name == plugin]
    return _median(lambda: found.open(session))


def _gang(columns: Columns, tasks: Tasks, number: int, pods: int) -> Gang:
    task = tasks.of(PodGroupTask("w", {CPU: 1000, PODS: 1, GPU: 1}, (), CardRequest(1)))
    gang = Gang(JobId(f"d/g{number}"), "d", f"g{number}", QueueName(f"q{number}"), 0, pods, float(number), GroupPhase.INQUEUE)
    request = columns.allocatable[:, 0] * 0
    for column, units in task.amount:
        request[column] = units
    for member in range(pods):
        name = f"g{number}-{member}"
        gang.members.append(
            Member(uid=PodUid(name), namespace="d", name=name, gang=gang, role="", task=task, request=request, created_at=0.0)
        )
    return gang


def divided() -> float:
    """Milliseconds for one resource."""
    chance = Random(7)
    claims = [
        ShareDemand(chance.randrange(8), chance.randrange(40), chance.choice((1.0, 2.0)), chance.randrange(2))
        for _ in range(QUEUES)
    ]
    used = [chance.random() / QUEUES for _ in claims]
    return _median(lambda: divide(NODES * CARDS, remembering(claims, used, 1.0)))


def _median(what: Callable[[], object]) -> float:
    times = []
    for _ in range(15):
        began = time.perf_counter()
        what()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def main() -> None:
    calm_collector()
    report("fair shares of 1,000 queues: the division of the cards, with history", divided(), "ms", BUDGET_MS, least=False)
    for text, took in (
        ("proportion, all resources and books of queues", opened("proportion")),
        ("capacity, a tree", opened("capacity", tree=True)),
        ("capacity, a tree with over-quota weights", opened("capacity", over_quota=True, tree=True)),
    ):
        print(f"{'  a session begins: ' + text:66} {took:>10,.1f} ms")


if __name__ == "__main__":
    main()
