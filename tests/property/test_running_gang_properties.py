"""What is kept from session to session of those who run is what a look at all bookings would make of them, whatever happened between."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    CardSlice,
    GroupPhase,
    GroupState,
    JobId,
    Neighbour,
    NodeName,
    PlanId,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    QueueTree,
    Selector,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.cluster import Booking, Bookings, Columns
from hbox_scheduler.core.cluster.bookings import Changed
from hbox_scheduler.core.cluster.entities import Status
from hbox_scheduler.core.cluster.facts import RecentUse
from hbox_scheduler.core.cluster.population import Population
from hbox_scheduler.core.cluster.running import RunningGangs
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.placement.queueinfos import QueueInfos
from hbox_scheduler.core.placement.running import RunningJobs
from hbox_scheduler.core.queueing.groups import Groups
from hbox_scheduler.core.simulate import node

from ..searching import examples

PODS_THERE = [PodUid(f"p{i}") for i in range(4)]
#: Each with its queue and priority.
JOBS = {
    JobId("j0"): (QueueName("a"), 0),
    JobId("j1"): (QueueName("b"), 1),
    JobId("j2"): (QueueName(""), 0),
    JobId("j3"): (QueueName("a"), 1),
}
NODES = [NodeName(f"n{i}") for i in range(3)]
APART = PodConstraints(anti_affinity=(PodTerm("zone", Selector()),))


@dataclass(frozen=True)
class Ways:
    """What a session does with those who run."""

    lent: set[JobId]
    leaving: set[PodUid]


pods = st.sampled_from(PODS_THERE)
bookings = st.builds(
    lambda pod, job, place, cpu, cards: Booking(
        pod=pod,
        job=job,
        queue=JOBS[job][0],
        node=place,
        requests={CPU: cpu, PODS: 1} | ({GPU: cards} if cards else {}),
        slices=tuple(CardSlice(i, 100, 1000) for i in range(cards)),
        plan=PlanId("plan"),
        priority=JOBS[job][1],
    ),
    pods,
    st.sampled_from(list(JOBS)),
    st.sampled_from(NODES),
    st.sampled_from([100, 200]),
    st.integers(0, 2),
)
#: Minimums less than, as much as and more than members hold, of what they ask for and of what nobody has.
groups = st.builds(
    lambda job, amounts, phase, revision, gone: GroupState(
        id=job,
        namespace="d",
        name=job,
        queue=JOBS[job][0],
        priority=0,
        min_member=1,
        created_at=0.0,
        min_resources=amounts,
        revision=revision,
        phase=phase,
        gone=gone,
    ),
    st.sampled_from(list(JOBS)),
    st.dictionaries(st.sampled_from([CPU, GPU, "example.com/other"]), st.sampled_from([1, 2, 150, 400]), min_size=1),
    st.sampled_from(GroupPhase),
    st.integers(1, 4),
    st.sampled_from([False, False, True]),
)
steps = st.one_of(
    st.tuples(st.sampled_from(["put", "put", "record"]), bookings),
    st.tuples(st.just("remove"), pods),
    st.tuples(st.just("drop node"), st.sampled_from(NODES)),
    st.tuples(st.just("put node"), st.sampled_from(NODES)),
    st.tuples(st.just("more resources than there is room for"), st.none()),
    st.tuples(st.just("introduce"), st.builds(Neighbour, pods, st.just("d"), st.just({"app": "x"}), st.sampled_from([APART]))),
    st.tuples(st.just("group"), groups),
    st.tuples(st.just("let in"), st.sampled_from(list(JOBS))),
    st.tuples(st.just("gate"), st.booleans()),
    st.tuples(st.just("session"), st.builds(Ways, st.sets(st.sampled_from(list(JOBS))), st.sets(pods))),
    st.tuples(st.just("look"), st.none()),
)


@dataclass
class World:
    columns: Columns = field(default_factory=Columns)
    neighbours: dict[PodUid, Neighbour] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tasks = Tasks(self.columns)
        self.groups = Groups(self.columns)
        self.bookings = Bookings(self.columns)
        self.running = RunningJobs(self.columns, self.bookings, self.tasks, self.neighbours, self.groups)
        for name in NODES[:2]:
            self.columns.put_node(node(name, cards=8))
        self.running.current()

    def do(self, what: str, subject: object) -> None:
        match what, subject:
            case "put", Booking() as booking:
                self.bookings.put(booking)
            case "record", Booking() as booking if booking.pod not in self.bookings and booking.node in self.columns.row_of:
                self.bookings.record([booking])
                self.columns.book(self.columns.row_of[booking.node], booking.requests, booking.slices)
            case "remove", str() as pod:
                self.bookings.remove(PodUid(pod))
            case "drop node", str() as name:
                self.columns.drop_node(NodeName(name))
                self.bookings.moved(NodeName(name))
            case "put node", str() as name if NodeName(name) not in self.columns.row_of:
                self.columns.put_node(node(name, cards=8))
                self.bookings.rebuild(NodeName(name))
            case "more resources than there is room for", None:
                for number in range(len(self.columns.allocatable)):
                    self.columns.resource(f"example.com/{number}")
            case "introduce", Neighbour() as neighbour:
                self.neighbours[neighbour.uid] = neighbour
                self.running.mark_changed((neighbour.uid,))
            case "group", GroupState() as group:
                self.groups.update(group, 0)
            case "let in", str() as job if JobId(job) in self.groups:
                self.groups.admit(JobId(job))
            case "gate", bool() as gated:
                self.groups.enqueues = gated
            case "session", Ways() as ways:
                self.session(ways)
            case "look", None:
                self.running.current()

    def session(self, ways: "Ways") -> None:
        """What a session may do: some gangs are its own, and members of others leave in it."""
        gangs = self.running.current()
        for gang in self.running.lend(sorted(ways.lent)):
            for member in gang.members:
                member.status, member.labels, member.preemptable = Status.BOUND, {"joined": "yes"}, False
        for gang in gangs.gangs.values():
            for member in gang.members:
                if member.uid in ways.leaving:
                    before, member.status = member.status, Status.RELEASING
                    gang.moved(member, before)
                    self.running.mark_changed((member.uid,))


def seen(gangs: RunningGangs) -> object:
    """All that a session reads of it."""
    by_id = {
        gang.id: (
            gang.queue,
            gang.priority,
            (gang.phase, gang.min_resources, gang.counts_minimum),
            {
                member.uid: (
                    *(member.status, member.row, member.slices, member.preemptable, dict(member.labels), member.constraints),
                    *(member.request.tolist(), member.sub_gang is gang.sub_gangs[0], member.gang is gang),
                )
                for member in gang.members
            },
            (gang.ready, gang.holding, gang.count(Status.RUNNING, Status.ALLOCATED)),
        )
        for gang in gangs.gangs.values()
    }
    alike = sorted(
        (k.queue, k.preemptable, k.counts_minimum, k.models, k.request.tolist(), count) for k, count in gangs.by_kind()
    )
    population = Population.beginning_with(
        lambda: gangs.population, gangs.population.columns, {}, constrained=gangs.constrained
    )
    everybody = population.of((), "d").tolist() if gangs.population.columns.size else []
    wishes = sorted((h.term.topology_key, h.counts.tolist()) for h in population.term_counts("anti_affinity"))
    return by_id, alike, gangs.requested.tolist(), everybody, wishes, gangs.minimums, gangs.unmet


@examples(400)
@given(st.lists(steps, min_size=12, max_size=40))
def test_what_is_kept_is_what_a_rebuild_makes(done: list[tuple[str, object]]) -> None:
    world = World()
    for what, subject in done:
        world.do(what, subject)
    afresh = RunningJobs(world.columns, Bookings(world.columns), world.tasks, world.neighbours, world.groups)
    afresh._bookings._of.update(world.bookings.all())
    kept = world.running.current()
    assert seen(kept) == seen(afresh.current())
    assert kept.queues == Counter(kind.queue for kind, _ in kept.by_kind())


@examples(200)
@given(st.lists(steps, min_size=8, max_size=40))
def test_queues_of_running_gangs_without_an_object_are_known_to_sessions(done: list[tuple[str, object]]) -> None:
    world, infos, tree = World(), QueueInfos(), QueueTree({})
    tree[QueueName("b")] = Queue(QueueName("b"))
    for number, (what, subject) in enumerate(done):
        world.do(what, subject)
        if number % 4 == 0:
            tree[QueueName("a" if number % 8 else "c")] = Queue(QueueName("a" if number % 8 else "c"))
        elif number % 4 == 2:
            tree.pop(QueueName("a"), None)
        running = world.running.current()
        roster = infos.of(tree, set(), running, RecentUse())
        assert roster.queues.keys() == tree.keys() | {kind.queue for kind, _ in running.by_kind()}


def test_a_reader_that_comes_late_begins_anew() -> None:
    changed = Changed()
    changed.note([PodUid("before")])
    assert changed.take() is None
    changed.note([PodUid("b"), PodUid("a"), PodUid("b")])
    assert changed.take() == ["b", "a"]
    changed.note(PodUid(str(i)) for i in range(Changed.MOST + 1))
    assert changed.take() is None
