"""Laws of the engine's decisions about queues and victims, for every small cluster."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, CardSlice, JobId, PodGroupTask, PodUid, QueueName
from hbox_common.model.annotations import OVER_QUOTA_WEIGHT
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.fairshare import ShareDemand, divide
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import EVICTABLE, HOLDING, Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import GroupPhase, Session
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.preemption.evictablepods import EvictablePods
from hbox_scheduler.core.preemption.victims import Search
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.cycles import CycleOptions, Report, simulate

from ..searching import examples

ACTIONS = "enqueue, allocate, backfill, reclaim, preempt"
CARDS = 4
COLUMNS = (
    "used", "leaving", "card_cores_used", "card_memory_used", "card_pods", "card_cores_leaving", "card_memory_leaving", "card_pods_leaving",
)  # fmt: skip
QUEUES = ("qa", "qb")


def conf_of(share: str, *, hierarchy: bool = False, actions: str = ACTIONS) -> Conf:
    flag = ", enableHierarchy: true" if hierarchy else ""
    return parse_conf(
        f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: {share}{flag}}}, {{name: nodeorder}}]
""",
        plugins=list(PLUGINS),
    )


@dataclass
class World:
    columns: Columns
    cluster: Cluster

    @property
    def members(self) -> Iterator[Member]:
        return (member for gang in self.cluster.gangs for member in gang.members)

    def book(self) -> None:
        for member in self.members:
            if member.row >= 0:
                self.columns.book(member.row, member.task.requests, member.slices)


@st.composite
def worlds(draw: st.DrawFn, *, walls: bool = True) -> World:
    """Nodes with up to four cards, queues with amounts of cards, gangs that run until there is hardly any room left, and some that wait. walls: some
    queues have a capability, or a guarantee, which is a wall to others."""
    columns = Columns()
    columns.resource(GPU)
    free: list[list[int]] = []
    for number in range(draw(st.integers(1, 3))):
        cards = draw(st.integers(1, CARDS))
        columns.put_node(node(f"n{number}", cards=cards, cpu=100))
        free.append(list(range(cards)))
    weighted = draw(st.booleans())
    queues = [_queue(draw, name, walls=walls, weighted=weighted) for name in QUEUES]
    tasks = Tasks(columns)
    gangs: list[Gang] = []
    running = draw(st.integers(1, 6))
    for number in range(running + draw(st.integers(1, 3))):
        runs = number < running
        pods, cards = draw(st.integers(1, 3)), draw(st.sampled_from((0, 1, 1, 1, 2, 2, 3)))
        gang = Gang(
            id=JobId(f"d/g{number}"),
            namespace="d",
            name=f"g{number}",
            queue=draw(st.sampled_from(queues)).name,
            priority=draw(st.integers(0, 1 if runs else 3)),
            min_member=draw(st.integers(0 if runs else 1, pods)),
            created_at=float(draw(st.integers(0, 3))),
            phase=GroupPhase.RUNNING if runs else GroupPhase.INQUEUE,
        )
        preemptable = draw(st.integers(0, 4)) > 0
        requests = {CPU: 1000, PODS: 1} | ({GPU: cards} if cards else {})
        task = tasks.of(PodGroupTask("w", requests, (), CardRequest(cards) if cards else None))
        request = np.zeros(len(columns.allocatable), dtype=np.int64)
        for column, units in task.amount:
            request[column] = units
        request[columns.resource(PODS)] = 0
        for pod in range(pods):
            name = f"g{number}-{pod}"
            member = Member(PodUid(name), "d", name, gang, "", task, request, gang.created_at, gang.priority)
            member.preemptable = preemptable
            rows = [row for row, left in enumerate(free) if len(left) >= cards]
            if runs and rows:
                member.row, member.status = draw(st.sampled_from(rows)), Status.RUNNING
                taken = [free[member.row].pop() for _ in range(cards)]
                member.slices = tuple(CardSlice(index, 100, 40_960) for index in taken)
            gang.members.append(member)
        gangs.append(gang)
    return World(columns, Cluster(gangs, queues))


def _queue(draw: st.DrawFn, name: str, *, walls: bool, weighted: bool) -> QueueInfo:
    amount = st.integers(0, 6)
    queue = QueueInfo(QueueName(name), weight=draw(st.integers(1, 3)), priority=draw(st.integers(0, 1)))
    queue.deserved = {GPU: draw(amount)}
    if walls:
        queue.guarantee = {GPU: draw(st.integers(0, 2))}
        if draw(st.booleans()):
            queue.capability = {GPU: draw(st.integers(2, 6))}
    queue.reclaimable = draw(st.integers(0, 5)) > 0
    if weighted:
        queue.annotations = {OVER_QUOTA_WEIGHT: str(draw(st.integers(0, 3)))}
    return queue


CONFS = {
    "capacity": conf_of("capacity"),
    "proportion": conf_of("proportion"),
    "tree": conf_of("capacity", hierarchy=True),
    "taking first": conf_of("capacity", actions="enqueue, preempt, reclaim, allocate, backfill"),
}
every_conf = pytest.mark.parametrize("policy", sorted(CONFS))
CONFS["moving"] = conf_of("capacity", actions="enqueue, allocate, consolidate, reclaim, preempt")
every_conf_and_moves = pytest.mark.parametrize("policy", sorted(CONFS))


def run(world: World, policy: str) -> Report:
    return simulate(world.columns, world.cluster, CONFS[policy], CycleOptions())


def held(gang: Gang) -> int:
    return sum(member.status in HOLDING for member in gang.members)


@every_conf_and_moves
@examples(30, dear=True)
@given(world=worlds())
def test_no_node_and_no_card_is_given_away_twice(policy: str, world: World) -> None:
    run(world, policy)
    columns = world.columns
    for row in range(columns.size):
        here = [member for member in world.members if member.row == row]
        now = [member for member in here if member.status in HOLDING or member.status is Status.RELEASING]
        later = [member for member in here if member.status in HOLDING or member.status is Status.PIPELINED]
        for members in (now, later):
            asked: Counter[int] = Counter()
            for member in members:
                for column, units in member.task.amount:
                    asked[column] += units
            assert all(units <= columns.allocatable[column, row] for column, units in asked.items())
            cards = [one.index for member in members for one in member.slices]
            assert len(cards) == len(set(cards))


@every_conf_and_moves
@examples(30, dear=True)
@given(world=worlds())
def test_gangs_start_whole_and_are_never_left_in_pieces(policy: str, world: World) -> None:
    before = {gang.id: held(gang) for gang in world.cluster.gangs}
    report = run(world, policy)
    bound = {binding.member.gang.id for binding in report.bindings}
    lost = {eviction.member.gang.id for eviction in report.evictions}
    for gang in world.cluster.gangs:
        here = sum(member.status in HOLDING and member.row >= 0 for member in gang.members)
        if gang.id in bound:
            assert gang.ready >= gang.min_member
        if gang.id in lost and before[gang.id] >= gang.min_member:
            left = sum(member.status is Status.RUNNING for member in gang.members)
            promised = sum(member.status is Status.PIPELINED for member in gang.members)
            assert left == 0 or here + promised >= gang.min_member


@every_conf_and_moves
@examples(40, dear=True)
@given(world=worlds())
def test_nobody_leaves_but_for_a_gang_that_then_has_all_it_needs(policy: str, world: World) -> None:
    report = run(world, policy)
    gangs = {gang.id: gang for gang in world.cluster.gangs}
    for eviction in report.evictions:
        preemptor = gangs[JobId(eviction.preemptor)]
        assert any(member.status is Status.PIPELINED for member in preemptor.members)
        assert preemptor.ready + preemptor.waiting >= preemptor.min_member


@every_conf
@examples(40, dear=True)
@given(world=worlds(walls=False))
def test_whoever_could_have_stayed_has_stayed(policy: str, world: World) -> None:
    """Where nothing but nodes stands in the way, and one gang takes: no single one of the evicted fits back beside those who come. (Of several gangs
    one may take what makes an earlier one's victim needless; that one's places are promised by then.)"""
    report = run(world, policy)
    if policy == "proportion" or len({eviction.preemptor for eviction in report.evictions}) > 1:
        return  # proportion's deserved amounts are walls
    future = world.columns.future()
    bundles = Counter(eviction.member.gang.id for eviction in report.evictions)
    for eviction in report.evictions:
        member = eviction.member
        if bundles[member.gang.id] > 1 or not member.task.cards:
            continue
        free = world.columns.allocatable[:, member.row] - future.used[:, member.row]
        assert any(free[column] < units for column, units in member.task.amount)


@every_conf
@examples(40, dear=True)
@given(world=worlds())
def test_a_gang_is_preempted_for_a_more_important_one_of_its_queue_alone(policy: str, world: World) -> None:
    report = run(world, policy)
    gangs = {gang.id: gang for gang in world.cluster.gangs}
    for eviction in report.evictions:
        victim, preemptor = eviction.member.gang, gangs[JobId(eviction.preemptor)]
        assert eviction.member.preemptable
        if eviction.reason == "Preempted":
            assert victim.queue == preemptor.queue
            assert victim.priority < preemptor.priority
        else:
            assert victim.queue != preemptor.queue
            assert next(queue for queue in world.cluster.queues if queue.name == victim.queue).reclaimable


@every_conf
@examples(40, dear=True)
@given(world=worlds())
def test_reclaim_leaves_every_queue_its_guarantee(policy: str, world: World) -> None:
    """With what it was promised: places that others leave are as good as its own. (The ledger judges evictions by claims alone.)"""
    report = run(world, policy)
    reclaimed = {eviction.member.gang.queue for eviction in report.evictions if eviction.reason == "Reclaimed"}
    cards: dict[QueueName, int] = defaultdict(int)
    own = {id(eviction.member) for eviction in report.evictions if eviction.reason == "Preempted"}
    for member in world.members:
        if member.status in HOLDING or member.status is Status.PIPELINED or id(member) in own:
            cards[member.gang.queue] += member.task.requests.get(GPU, 0)
    for queue in world.cluster.queues:
        if queue.name in reclaimed:
            assert cards[queue.name] >= queue.guarantee.get(GPU, 0)


@every_conf
@examples(30, dear=True)
@given(world=worlds())
def test_what_was_just_given_is_not_taken_back(policy: str, world: World) -> None:
    world.book()
    session = Session(columns=world.columns, cluster=world.cluster, conf=CONFS[policy], tiers=plugins_of(CONFS[policy]))
    run_action("reclaim", session)
    taken = len(session.outcome.evictions)
    gone = {id(eviction.member) for eviction in session.outcome.evictions}
    run_action("reclaim", session)
    again = session.outcome.evictions[taken:]
    assert not gone & {id(eviction.member) for eviction in again}


@examples(60, dear=True)
@given(world=worlds(), data=st.data())
def test_a_search_that_is_discarded_leaves_no_trace(world: World, data: st.DataObject) -> None:
    world.book()
    conf = CONFS[data.draw(st.sampled_from(sorted(CONFS)))]
    session = Session(columns=world.columns, cluster=world.cluster, conf=conf, tiers=plugins_of(conf))
    state = _state(session, world)
    claimants = [gang for gang in session.gangs if any(member.status is Status.PENDING for member in gang.members)]
    if not claimants:
        return
    gang = data.draw(st.sampled_from(claimants))
    evictable = EvictablePods(session)
    legal = session.reclaimable if data.draw(st.booleans()) else session.preemptable
    statement = session.statement()
    eligible = evictable.in_place.copy()
    eligible[evictable.positions(gang)] = False
    before = evictable.in_place.copy()
    search = Search(session, statement, gang, evictable, eligible=eligible, legal=legal, reason="Tried")
    for member in gang.members:
        if member.status is Status.PENDING:
            search.serve(member)
    search.discard()
    assert _state(session, world) == state
    assert (evictable.in_place == before).all()


def _state(session: Session, world: World) -> object:
    columns = {field: getattr(world.columns, field).tobytes() for field in COLUMNS}
    members = [(member.name, member.status, member.row, member.slices) for member in world.members]
    counts = [(gang.id, gang.ready, gang.waiting, gang.holding) for gang in world.cluster.gangs]
    keys = [session.queue_key(queue) for queue in world.cluster.queues], [session.gang_key(gang) for gang in session.gangs]
    return columns, members, counts, keys


@examples(30, dear=True)
@given(world=worlds())
def test_what_a_gang_counts_as_it_goes_is_what_its_members_are(world: World) -> None:
    run(world, "capacity")
    for gang in world.cluster.gangs:
        counted = gang.ready, gang.waiting, gang.holding, gang.count(*EVICTABLE)
        gang.tally()
        assert counted == (gang.ready, gang.waiting, gang.holding, gang.count(*EVICTABLE))


claims = st.lists(
    st.builds(ShareDemand, st.integers(0, 20), st.integers(0, 40), st.integers(0, 5).map(float), st.integers(0, 2)), max_size=6
)


@given(amount=st.integers(0, 60), of=claims)
def test_what_is_divided_is_wanted_and_all_of_it_goes_to_whoever_wants_more(amount: int, of: list[ShareDemand]) -> None:
    given_ = divide(amount, of)
    owed = [min(claim.deserved, claim.wanted) for claim in of]
    assert all(low <= got <= max(low, claim.wanted) for low, got, claim in zip(owed, given_, of, strict=True))
    assert sum(given_) <= max(amount, sum(owed))
    hungry = any(got < claim.wanted and claim.weight > 0 for got, claim in zip(given_, of, strict=True))
    assert not hungry or sum(given_) >= amount
