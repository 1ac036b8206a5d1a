"""Who is enqueued does not depend on whether those who run are kept from session to session or given anew."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import GroupPhase, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.running import RunningGangs
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.framework import Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of

from ..searching import examples
from ..unit.hbox_scheduler.small_world import NOW, SmallWorld

POLICIES = [
    'actions: "enqueue"\ntiers:\n- plugins: [{name: gang}, {name: overcommit, arguments: {overcommit-factor: 1.0}}]\n',
    'actions: "enqueue"\ntiers:\n- plugins: [{name: gang}, {name: capacity}]\n',
    'actions: "enqueue"\ntiers:\n- plugins: [{name: gang}, {name: proportion}]\n',
]


@dataclass(frozen=True)
class Runs:
    pods: int
    cards: int
    preemptable: bool
    minimum: dict[str, int] | None
    phase: GroupPhase
    queue: str


amounts = st.sampled_from([{GPU: 1}, {GPU: 3}, {GPU: 5}, {GPU: 8}, {GPU: 2, CPU: 3000}, {CPU: 5000}, {"example.com/other": 1}])
running = st.builds(
    Runs,
    pods=st.integers(1, 2),
    cards=st.integers(0, 4),
    preemptable=st.booleans(),
    minimum=st.none() | amounts,
    phase=st.sampled_from([phase for phase in GroupPhase if phase is not GroupPhase.PENDING]),
    queue=st.sampled_from("ab"),
)
waiting = st.tuples(st.sampled_from("ab"), amounts)


def let_in(policy: str, there: list[Runs], outside: list[tuple[str, dict[str, int]]], *, standing: bool) -> list[str]:
    queues = (
        QueueInfo(QueueName("a"), capability={GPU: 9, CPU: 9000}, guarantee={GPU: 2}),
        QueueInfo(QueueName("b"), weight=2),
    )
    world = SmallWorld(2, cards=8, queues=queues)
    world.columns.resource("example.com/other")
    kept = RunningGangs(world.columns)
    row = 0
    for number, runs in enumerate(there):
        gang = world.gang(
            f"r{number}", pods=runs.pods, cards=runs.cards, on=[row] * runs.pods, queue=runs.queue, preemptable=runs.preemptable
        )
        gang.phase, gang.min_resources = runs.phase, runs.minimum
        row = (row + 1) % 2
        for member in gang.members:
            member.preemptable = runs.preemptable
    if standing:
        for gang in world.gangs:
            kept.put(gang)
        world.gangs.clear()
    for number, (queue, minimum) in enumerate(outside):
        gang = world.gang(f"w{number}", queue=queue, age_s=float(number))
        gang.phase, gang.min_resources = GroupPhase.PENDING, minimum
    conf = parse_conf(policy, plugins=list(PLUGINS))
    cluster = Cluster(world.gangs, list(queues), running=kept)
    session = Session(columns=world.columns, cluster=cluster, conf=conf, tiers=plugins_of(conf), now=NOW)
    run_action("enqueue", session)
    return [gang.name for gang in world.gangs if gang.name.startswith("w") and gang.phase is GroupPhase.INQUEUE]


@examples(500)
@given(st.sampled_from(POLICIES), st.lists(running, min_size=1, max_size=3), st.lists(waiting, min_size=3, max_size=6))
def test_those_who_run_count_alike_whether_they_are_kept_or_given(
    policy: str, there: list[Runs], outside: list[tuple[str, dict[str, int]]]
) -> None:
    assert let_in(policy, there, outside, standing=True) == let_in(policy, there, outside, standing=False)
