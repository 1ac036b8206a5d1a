"""Expected ends and earliest starts by arrays are those that counting one running pod after the other gives, bit by bit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, CardSlice, HyperNode, JobId, NodeName, PodGroupTask, PodUid, QueueName
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.arrays import Bools
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.placedpods import PlacedPods
from hbox_scheduler.core.cluster.runtimes import RunTimes
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.cluster.walltimes import walltime_in
from hbox_scheduler.core.plugins.starts import Departures, Need, Start, Within, earliest
from hbox_scheduler.core.plugins.walltimes import Ends
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.topology.tree import tree_of

from ..searching import examples
from . import starts_by_objects as reference

NOW = 1_000_000.0
CARDS = 4
QUEUES = MappingProxyType({
    QueueName("a"): QueueInfo(QueueName("a")),
    QueueName("b"): QueueInfo(QueueName("b"), annotations={WALLTIME: "300s"}),
})  # fmt: skip


@dataclass(frozen=True)
class Pod:
    """`share`: percent of its only card, 0 = whole cards."""

    row: int
    cards: int
    share: int
    cpu: int
    started: float | None
    status: Status


@dataclass(frozen=True)
class World:
    """`jobs`: queue, namespace, walltime, pods. `learned`: queue, namespace, seconds, of pods that ended. `needs`: cards, cores and number of pods."""

    nodes: int
    jobs: tuple[tuple[str, str, str, tuple[Pod, ...]], ...]
    learned: tuple[tuple[str, str, int, int], ...]
    needs: tuple[tuple[int, int, int], ...]
    before: tuple[int, ...]
    domains: tuple[int, ...]
    closed: tuple[int, ...]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = draw(st.integers(1, 6))
    row = st.integers(0, nodes - 1)
    started = st.one_of(st.none(), st.sampled_from([NOW - s for s in (-5.0, 0.0, 10.0, 30.0, 90.0, 100.5, 400.0, 5000.0)]))
    status = st.sampled_from([Status.RUNNING, Status.RUNNING, Status.RUNNING, Status.BOUND, Status.ALLOCATED, Status.RELEASING])
    pod = st.builds(Pod, row, st.integers(0, 2), st.sampled_from([0, 0, 30, 50]), st.integers(0, 4), started, status)
    queue, space = st.sampled_from(["a", "b", "gone"]), st.sampled_from(["x", "y"])
    walltime = st.sampled_from(["", "", "nonsense", "20s", "101s", "2h", "5000h"])
    pods = st.lists(pod, min_size=1, max_size=4).map(tuple)
    learned = st.tuples(queue, space, st.integers(1, 500), st.integers(1, 20))
    return World(
        nodes,
        tuple(draw(st.lists(st.tuples(queue, space, walltime, pods), min_size=1, max_size=12))),
        tuple(draw(st.lists(learned, max_size=4))),
        tuple(draw(st.lists(st.tuples(st.integers(0, CARDS), st.integers(1, 8), st.integers(1, 6)), min_size=1, max_size=3))),
        tuple(draw(st.lists(row, max_size=3))),
        tuple(draw(st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes))) if draw(st.booleans()) else (),
        tuple(draw(st.lists(row, max_size=1))),
    )


def placed(world: World) -> tuple[Columns, Tasks, list[Gang]]:
    columns = Columns()
    tasks = Tasks(columns)
    for i in range(world.nodes):
        columns.put_node(node(f"n{i}", cards=CARDS, cpu=16))
    free = {(row, card): 100 for row in range(world.nodes) for card in range(CARDS)}
    gangs: list[Gang] = []
    for number, (queue, space, walltime, pods) in enumerate(world.jobs):
        notes = {WALLTIME: walltime} if walltime else {}
        gang = Gang(
            JobId(f"j{number}"), space, f"j{number}", QueueName(queue), 0, 1, 0.0, annotations=notes if number % 2 else {}
        )
        for i, pod in enumerate(pods):
            cards = [card for card in range(CARDS) if free[pod.row, card] >= (pod.share or 100)]
            cards = cards[: min(pod.cards, 1) if pod.share else pod.cards]
            part = pod.share or 100
            for card in cards:
                free[pod.row, card] -= part
            slices = tuple(CardSlice(card, part, 409 * part) for card in cards)
            task = tasks.of(PodGroupTask("w", {"cpu": 1000 * pod.cpu, "pods": 1} | ({GPU: len(cards)} if cards else {}), ()))
            member = Member(
                PodUid(f"u{7 * number % 5}-{number}-{i}"), space, f"p{i}", gang, "", task, np.zeros(0, dtype=np.int64), 0.0
            )
            member.annotations = {} if number % 2 else notes
            member.row, member.slices, member.status, member.started_at = pod.row, slices, pod.status, pod.started
            columns.book(pod.row, task.requests, slices)
            if pod.status is Status.RELEASING:
                columns.depart(pod.row, task.requests, slices)
            gang.members.append(member)
        gangs.append(gang)
    return columns, tasks, gangs


def learned(world: World) -> RunTimes:
    known = RunTimes()
    for queue, space, seconds, times in world.learned:
        for i in range(times):
            known.ended(QueueName(queue), space, float(seconds + 7 * i), None)
    return known


def running(gangs: Sequence[Gang]) -> list[tuple[Member, float | None]]:
    """With their own walltimes."""
    runs = (Status.RUNNING, Status.BOUND, Status.ALLOCATED)
    return [(member, walltime_in(member.annotations, gang.annotations)) for gang in gangs for member in gang.of(*runs)]


def with_queues(members: Sequence[tuple[Member, float | None]]) -> list[tuple[Member, float | None]]:
    """With the walltimes that their queues write where they have none."""
    return [
        (one, written if written is not None or one.gang.queue != "b" else 300.0)  # the annotation of the queue
        for one, written in members
    ]


@examples(200)
@given(worlds())
def test_expected_ends_are_those_of_one_pod_after_the_other(world: World) -> None:
    columns, _, gangs = placed(world)
    known, members = learned(world), running(gangs)
    pods = PlacedPods.of(columns, [one for one, _ in members])
    ordered = sorted(with_queues(members), key=lambda one: (one[0].row, one[0].uid))
    ends = Ends(pods, QUEUES, known, NOW)
    assert ends.expected().tolist() == [reference.end_of(one, written, known, NOW) for one, written in ordered]
    assert ends.likely().tolist() == [reference.likely_end_of(one, written, known, NOW) for one, written in ordered]
    over = reference.overruns(ordered, NOW)
    assert ends.overruns() == {whose: factor for whose, factor in over.items() if factor > 1}


def _needs(world: World, tasks: Tasks) -> list[Need]:
    allowed: Bools = np.ones(world.nodes, dtype=np.bool_)
    allowed[list(world.closed)] = False
    found = []
    for cards, cpu, count in world.needs:
        requests = {"cpu": 1000 * cpu, "pods": 1} | ({GPU: cards} if cards else {})
        found.append(
            Need(tasks.of(PodGroupTask("w", requests, (), CardRequest(cards) if cards else None)), count, allowed.copy())
        )
    return found


def _within(world: World, columns: Columns) -> Within | None:
    if not world.domains:
        return None
    names = {d: tuple(NodeName(f"n{i}") for i, domain in enumerate(world.domains) if domain == d) for d in (0, 1)}
    leaves = [HyperNode(f"s{d}", 1, "leaf", nodes=nodes) for d, nodes in names.items() if nodes]
    tree = tree_of(leaves, columns.row_of, columns.size)
    return Within(tree, np.array([tree.index[leaf.name] for leaf in leaves], dtype=np.int64))


@examples(400)
@given(worlds())
def test_the_earliest_start_is_that_of_counting_anew_at_each_step(world: World) -> None:
    columns, tasks, gangs = placed(world)
    known, members = learned(world), running(gangs)
    ends = {id(one): reference.end_of(one, written, known, NOW) for one, written in with_queues(members)}
    pods = PlacedPods.of(columns, [one for one, _ in members])
    by_row = sorted((one for one, _ in members), key=lambda one: (one.row, one.uid))
    needs, within = _needs(world, tasks), _within(world, columns)
    before: Bools | None = np.zeros(world.nodes, dtype=np.bool_) if world.before else None
    if before is not None:
        before[list(world.before)] = True
    for without in (None, gangs[0]):  # whether all leave, or the first gang stays
        leaving = [one for one in by_row if one.gang is not without]
        then = reference.Departures(columns, [(ends[id(one)], one) for one in leaving])
        staying = None if without is None else pods.of_job(JobId(f"{without.id} "))
        now = Departures(columns, pods, np.array([ends[id(one)] for one in by_row]), staying)
        for some in (needs, needs[:1], needs):  # the same departures serve several gangs
            old = reference.earliest(then, some, NOW, before, within)
            new = earliest(now, some, NOW, before, within)
            assert (old is None) == (new is None)
            if old is not None and new is not None:
                assert (old.at, old.rows.tolist()) == (new.at, new.rows.tolist())
                _same_queues(then, now, new)


def _same_queues(then: reference.Departures, now: Departures, start: Start) -> None:
    here = [one for end, one in then.members if start.rows[one.row] and (end <= start.at or start.at == inf)]
    pods = Counter(one.gang.queue for one in here)
    cards: Counter[QueueName] = Counter()
    for one in here:
        cards[one.gang.queue] += len(one.slices)
    found = now.by_queue(start.rows, start.at)
    assert list(found.items()) == [(queue, (count, cards[queue])) for queue, count in pods.items()]
