"""What is kept from session to session of those who run is what a look at all bookings would make of them, whatever happened between."""

from collections import Counter
from dataclasses import dataclass, field
from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    GangPart,
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
from hbox_common.model.annotations import CHECKPOINT_INTERVAL, WALLTIME
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.cluster import Booking, Bookings, Columns
from hbox_scheduler.core.cluster.bookings import Changed
from hbox_scheduler.core.cluster.entities import EVICTABLE, Status
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
#: What the ledger holds of them: bound or posted, and with every rule of evictions that a claim may carry.
claims = st.builds(
    lambda booking, state, preemptable, protected_until, min_member, pool, claimed_at: Booking.of(
        Claim(
            *(ClaimId(booking.pod), booking.pod, "d", booking.pod, booking.job, booking.plan, booking.queue, booking.priority),
            *(booking.node, booking.requests, booking.slices, state),
            created_at=7.0,
            claimed_at=claimed_at,
            preemptable=preemptable,
            protected_until=protected_until,
            min_member=min_member,
            pool=pool,
        ),
        None,
    ),
    bookings,
    st.sampled_from([ClaimState.PENDING, ClaimState.POSTED]),
    st.booleans(),
    st.sampled_from([0.0, 50.0]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from(["", "", "offline"]),
    st.sampled_from([10.0, 20.0]),
)
neighbours = st.builds(
    Neighbour,
    pods,
    st.just("d"),
    st.just({"app": "x"}),
    st.sampled_from([APART]),
    st.sampled_from([{}, {CHECKPOINT_INTERVAL: "5m"}, {WALLTIME: "1h"}]),
    st.sampled_from([None, 15.0]),
    part=st.sampled_from([None, None, GangPart(role="worker", min_task_member={"worker": 1})]),
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
    st.tuples(st.just("put"), claims),
    st.tuples(st.just("remove"), pods),
    st.tuples(st.just("drop node"), st.sampled_from(NODES)),
    st.tuples(st.just("put node"), st.sampled_from(NODES)),
    st.tuples(st.just("more resources than there is room for"), st.none()),
    st.tuples(st.just("introduce"), neighbours),
    st.tuples(st.just("group"), groups),
    st.tuples(st.just("let in"), st.sampled_from(list(JOBS))),
    st.tuples(st.just("gate"), st.booleans()),
    st.tuples(st.just("session"), st.builds(Ways, st.sets(st.sampled_from(list(JOBS))), st.sets(pods))),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("advance"), st.integers(1, 2)),
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
            case "advance", int() as limit:
                self.running.advance(limit)

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


def as_objects(gangs: RunningGangs) -> object:
    """What the table should have of each pod, by its gang and member."""
    return {
        member.uid: (
            (gang.id, gang.namespace, gang.queue, gang.priority, gang.min_member, gang.created_at, gang.offline),
            (member.row, member.task.requests, member.pool, len(member.slices), member.status in EVICTABLE, member.preemptable),
            (member.protected_until, member.started_at, dict(member.annotations), CHECKPOINT_INTERVAL in member.annotations),
            len(gang.members) == 1 and not gang.min_task_member and gang.min_resources is None,
        )
        for gang in gangs.gangs.values()
        for member in gang.members
    }


def as_table(gangs: RunningGangs) -> object:
    table = gangs.table
    found = {}
    for slot in table.slots().tolist():
        started, task = float(table.started_at[slot]), table.task_of(table.task.item(slot))
        found[table.uids[slot]] = (
            (
                *(
                    table.jobs[slot],
                    table.namespaces[slot],
                    table.queue_name(table.queue.item(slot)),
                    table.priority.item(slot),
                ),
                *(table.min_member.item(slot), table.created_at.item(slot), table.offline.item(slot)),
            ),
            (
                *(table.row.item(slot), task.requests, table.pool_names()[table.pool.item(slot)], table.cards.item(slot)),
                *(table.claimed.item(slot), table.preemptable.item(slot)),
            ),
            (
                *(table.protected_until.item(slot), None if isnan(started) else started),
                *(dict(table.annotations.get(slot, {})), table.checkpointed.item(slot)),
            ),
            table.lone.item(slot),
        )
    return found


def check_indices(gangs: RunningGangs) -> None:
    """The table's indices name the slots in use, each once, and its codes those that slots have."""
    table = gangs.table
    slots = table.slots().tolist()
    assert len(table) == len(slots)
    codes = [code for code, name in enumerate(table.queue_names()) if name is not None]
    assert sorted(slot for code in codes for slot in table.in_queue(code).tolist()) == slots
    assert all((table.queue[table.in_queue(code)] == code).all() and len(table.in_queue(code)) for code in codes)
    assert all(table.queue_code(table.queue_name(code)) == code for code in codes)
    rows = {table.row.item(slot) for slot in slots}
    assert sorted(slot for row in rows for slot in table.on_row(row)) == slots
    assert all(table.row.item(slot) == row for row in rows for slot in table.on_row(row))
    assert sorted(slot for job in gangs.jobs for slot in table.of(job)) == slots
    assert {table.task.item(slot) for slot in slots} == {code for code, task in enumerate(table.tasks()) if task is not None}
    for slot in slots:
        task = table.task_of(table.task.item(slot))
        assert {column: units for column, units in enumerate(table.amounts[table.task[slot]].tolist()) if units} == {
            column: units for column, units in task.amount if units
        }


@examples(400)
@given(st.lists(steps, min_size=12, max_size=40))
def test_the_table_of_running_pods_equals_their_objects(done: list[tuple[str, object]]) -> None:
    world = World()
    for what, subject in done:
        world.do(what, subject)
    gangs = world.running.current()
    check_indices(gangs)
    before = as_table(gangs)  # before the first access builds the gangs
    afresh = RunningJobs(world.columns, Bookings(world.columns), world.tasks, world.neighbours, world.groups)
    afresh._bookings._of.update(world.bookings.all())
    assert before == as_objects(afresh.current())
    assert as_table(gangs) == before


@examples(100)
@given(st.lists(steps, min_size=12, max_size=40))
def test_a_queue_whose_version_stays_has_the_same_pods(done: list[tuple[str, object]]) -> None:
    world = World()
    of, seen = world.running.current().table, dict[int, tuple[int, object]]()
    for what, subject in done:
        world.do(what, subject)
        table = world.running.current().table
        if table is not of:
            of, seen = table, {}
        for code, version in enumerate(table.versions):
            rows = {
                table.uids[slot]: (slot, *(table.row.item(slot), table.preemptable.item(slot))) for slot in table.in_queue(code)
            }
            before, pods_before = seen.get(code, (-1, None))
            assert version != before or rows == pods_before
            seen[code] = version, rows


def test_pods_are_counted_in_slices_and_none_is_left_out() -> None:
    world = World()
    for number in range(7):
        job = JobId(f"j{number % 2}")
        requests = {CPU: 100, PODS: 1}
        world.bookings.put(
            Booking(PodUid(f"q{number}"), job, JOBS[job][0], NODES[0], requests, (), PlanId("plan"), priority=JOBS[job][1])
        )
    assert [world.running.advance(3) for _ in range(3)] == [True, True, False]
    assert sum(count for _, count in world.running.current().by_kind()) == 7


def test_sums_are_as_long_as_the_columns_after_pods_brought_new_models() -> None:
    world = World()
    for number in range(2 * len(world.columns.allocatable)):
        pod = PodUid(f"q{number}")
        world.bookings.put(Booking(pod, JobId("j0"), QueueName("a"), NODES[0], {PODS: 1}, (), PlanId("plan")))
        booking = world.bookings.get(pod)
        assert booking is not None
        booking.models = {f"nvidia.com/gpu.M{number}": 1}
    assert len(world.running.current().requested) == len(world.columns.allocatable)


def test_a_reader_that_comes_late_begins_anew() -> None:
    changed = Changed()
    changed.note([PodUid("before")])
    assert changed.take() is None
    changed.note([PodUid("b"), PodUid("a"), PodUid("b")])
    assert changed.take() == ["b", "a"]
    changed.note(PodUid(str(i)) for i in range(Changed.MOST + 1))
    assert changed.take() is None
