"""Laws that hold for every cluster and every sequence of events."""

from dataclasses import replace
from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    DEFAULT_QUEUE,
    CardRequest,
    CardSlice,
    Generation,
    HostPort,
    Index,
    Job,
    Match,
    MatchOperator,
    NodeAllocation,
    NodeName,
    NodeState,
    NodeTerm,
    Queue,
    Taint,
    TaintEffect,
    Verdict,
    port_amounts,
    validate_claim,
)
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.devices import free_percent, pick
from hbox_scheduler.core.explain.reasons import tally
from hbox_scheduler.core.framework.rowstates import RowStates
from hbox_scheduler.core.framework.views import View
from hbox_scheduler.core.plugins import Shape, expected_fragment
from hbox_scheduler.core.plugins.fgd import Fgd, Mix
from hbox_scheduler.core.plugins.idlecards import NODE_LABELS
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.scheduler import Scheduler
from hbox_scheduler.core.simulate import Simulation, job, node
from hbox_scheduler.core.simulate.uniform import place_uniform

from ..searching import examples

ARRAYS = (
    "alive", "ready", "schedulable", "healthy", "allocatable", "used", "card_index", "card_memory", "card_shares", "card_model", "card_ok",
    "card_cores_used", "card_memory_used", "card_pods",
)  # fmt: skip


@st.composite
def nodes(draw: st.DrawFn, name: str = "n0") -> NodeState:
    drawn = node(
        name,
        cards=draw(st.integers(0, 4)),
        model=draw(st.sampled_from(["A100", "V100"])),
        card_mib=draw(st.sampled_from([0, 16_160, 40_960])),
        shares=draw(st.sampled_from([1, 2, 10])),
        cpu=draw(st.integers(1, 16)),
        ready=draw(st.integers(0, 9)) > 0,
        unschedulable=draw(st.integers(0, 9)) == 0,
        labels={"zone": draw(st.sampled_from("ab"))},
    )
    cards = tuple(replace(card, healthy=draw(st.integers(0, 9)) > 0) for card in drawn.cards)
    taints = (Taint("gpu", "", TaintEffect.NO_SCHEDULE),) if draw(st.integers(0, 9)) == 0 else ()
    return replace(drawn, cards=cards, taints=taints)


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeState]:
    return [draw(nodes(f"n{i}")) for i in range(draw(st.integers(1, 6)))]


@st.composite
def card_requests(draw: st.DrawFn) -> CardRequest:
    return CardRequest(
        draw(st.integers(1, 3)),
        cores=draw(st.sampled_from([0, 10, 30, 50, 70, 100])),
        memory_mib=draw(st.sampled_from([0, 0, 3000, 9000])),
        memory_percent=draw(st.sampled_from([10, 30, 33, 70, 100])),
        models=draw(st.sampled_from([(), (), ("A100",), ("H100",)])),
    )


@st.composite
def jobs(draw: st.DrawFn, name: str = "j0") -> Job:
    pods = draw(st.integers(1, 5))
    drawn = job(
        name,
        pods=pods,
        min_member=draw(st.integers(1, pods)),
        cpu_milli=draw(st.sampled_from([100, 1000, 3000])),
        cards=draw(st.one_of(st.just(0), card_requests())),
        priority=draw(st.integers(0, 2)),
        node_selector=draw(st.sampled_from([{}, {}, {"zone": "a"}])),
    )
    task = drawn.tasks[0]
    ports = draw(
        st.sampled_from([(), (), (HostPort(80),), (HostPort(80, address="10.0.0.1"),), (HostPort(443), HostPort(80, "UDP"))])
    )
    volumes = draw(st.sampled_from([(), (), (), ((NodeTerm((Match("zone", MatchOperator.IN, ("b",)),)),),)]))
    return replace(drawn, tasks=(replace(task, requests=task.requests | port_amounts(ports), volumes=volumes),))


@st.composite
def batches(draw: st.DrawFn) -> list[Job]:
    return [draw(jobs(f"j{i}")) for i in range(draw(st.integers(1, 10)))]


policies = st.sampled_from(list(PolicyName))
queues = st.sampled_from(
    [
        Queue(DEFAULT_QUEUE),
        Queue(DEFAULT_QUEUE, capability={"cpu": 7000}),
        Queue(DEFAULT_QUEUE, capability={"nvidia.com/gpu": 3}),
    ]
)


def cells(scheduler: Scheduler) -> dict[str, bytes]:
    ports = repr(sorted((name, sorted(rows.items())) for name, rows in scheduler.columns.ports.used.items()))
    return {name: getattr(scheduler.columns, name).tobytes() for name in ARRAYS} | {"ports": ports.encode()}


def rebuilt(simulation: Simulation, states: list[NodeState], verdicts: list[Verdict]) -> Simulation:
    """A scheduler that starts now, and reads everything whole."""
    fresh = Simulation(policy_of(PolicyName.BINPACK))
    fresh.put_nodes(states)
    for verdict in verdicts:
        fresh.put_verdict(verdict)
    fresh.scheduler.on_claims_snapshot(epoch=1, index=Index(99), frozen=False, claims=simulation.claims.values(), now=0.0)  # type: ignore[arg-type]
    return fresh


@given(clusters(), batches(), policies, queues, st.data())
@examples(450, dear=True)
def test_no_plan_overbooks_no_gang_is_partial_and_queues_are_kept(
    cluster: list[NodeState], batch: list[Job], policy: PolicyName, queue: Queue, data: st.DataObject
) -> None:
    """The simulation's ledger raises where `validate_claim` refuses a placement, a gang is short, or a pod is placed twice."""
    simulation = Simulation(policy_of(policy), queues=[queue])
    simulation.put_nodes(cluster)
    simulation.submit(batch)
    simulation.run()
    for _ in range(3):
        if simulation.claims:
            ended = data.draw(st.sampled_from(sorted(simulation.claims)))
            simulation.finish([ended])
        bad = data.draw(st.sampled_from(cluster))
        simulation.put_verdict(Verdict(bad.name, Generation(2), healthy=data.draw(st.booleans()), bad_cards=(0,)))
        simulation.run()
        used = simulation.scheduler.bookings.queue_used.get(DEFAULT_QUEUE, {})
        assert all(used.get(name, 0) <= limit for name, limit in queue.capability.items())
        assert all(simulation.scheduler.reports.is_claimed(uid) for uid in simulation.scheduler.reports.placed_on())


@given(clusters(), batches(), st.data())
@examples(100, dear=True)
def test_a_view_kept_change_by_change_equals_one_read_whole(
    cluster: list[NodeState], batch: list[Job], data: st.DataObject
) -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK))
    simulation.put_nodes(cluster)
    simulation.submit(batch)
    simulation.run()
    states = {state.name: state for state in cluster}
    verdicts: dict[NodeName, Verdict] = {}
    for generation in range(2, 6):
        name = data.draw(st.sampled_from(sorted(states)))
        changed = replace(data.draw(nodes(name)), generation=Generation(generation))
        states[name] = changed
        if data.draw(st.booleans()):  # it goes and comes back
            simulation.put_nodes([replace(changed, gone=True)])
        simulation.put_nodes([changed])
        verdicts[name] = Verdict(name, Generation(generation), healthy=data.draw(st.booleans()), bad_cards=(1,))
        simulation.put_verdict(verdicts[name])
        if simulation.claims:
            simulation.finish([data.draw(st.sampled_from(sorted(simulation.claims)))])
    fresh = rebuilt(simulation, list(states.values()), list(verdicts.values()))
    ours, theirs = simulation.scheduler.columns, fresh.scheduler.columns
    for name in states:
        a, b = ours.row_of[name], theirs.row_of[name]
        for array in ARRAYS:
            left, right = getattr(ours, array), getattr(theirs, array)
            if array in ("allocatable", "used"):
                for resource in ("cpu", "memory", "pods", "nvidia.com/gpu"):
                    assert left[ours.resource(resource), a] == right[theirs.resource(resource), b], (array, resource)
            elif array == "card_model":
                names = [c.model_names for c in (ours, theirs)]
                assert [names[0][c] for c in left[a]] == [names[1][c] for c in right[b]]
            else:
                assert np.array_equal(left[a], right[b]), array
    task = Tasks(ours).of(batch[0].tasks[0])
    incremental = simulation.scheduler.views.of(simulation.scheduler.tasks.of(batch[0].tasks[0]))
    anew = View(ours, simulation.scheduler.policy, task, RowStates(ours))
    anew.refresh(simulation.scheduler.policy.version)
    assert np.array_equal(incremental.capacity, anew.capacity)
    assert np.array_equal(incremental.rank, anew.rank)


def loaded(cluster: list[NodeState], batch: list[Job], policy: PolicyName = PolicyName.BINPACK) -> Simulation:
    simulation = Simulation(policy_of(policy))
    simulation.put_nodes(cluster)
    simulation.submit(batch)
    simulation.run()
    return simulation


@given(clusters(), batches(), jobs("late"), policies)
@examples(100, dear=True)
def test_rolling_back_restores_every_cell(cluster: list[NodeState], batch: list[Job], late: Job, policy: PolicyName) -> None:
    simulation = loaded(cluster, batch, policy)
    scheduler = simulation.scheduler
    task = scheduler.tasks.of(late.tasks[0])
    before = cells(scheduler)
    booked = [one for _ in range(2) for one in place_uniform(scheduler.columns, scheduler.views, scheduler.policy, task, 3)]
    for one in reversed(booked):
        scheduler.columns.apply(one, -1)
    assert cells(scheduler) == before


@given(clusters(), batches(), jobs("late"))
@examples(100, dear=True)
def test_a_refused_plan_leaves_every_cell_as_it_was(cluster: list[NodeState], batch: list[Job], late: Job) -> None:
    simulation = loaded(cluster, batch)
    scheduler = simulation.scheduler
    scheduler.on_jobs([late])
    scheduler.tasks.of(late.tasks[0])
    before = cells(scheduler)
    plans = scheduler.cycle(0.0).plans
    for plan in plans:
        scheduler.refuse(plan, "no", now=0.0)
    assert cells(scheduler) == before


@given(clusters(), batches(), jobs("late"))
@examples(200, dear=True)
def test_the_reasons_sum_to_the_nodes_and_name_exactly_those_where_nothing_fits(
    cluster: list[NodeState], batch: list[Job], late: Job
) -> None:
    scheduler = loaded(cluster, batch).scheduler
    task = scheduler.tasks.of(late.tasks[0])
    columns, policy, every = scheduler.columns, scheduler.policy, slice(0, scheduler.columns.size)
    failures = chain(
        *(mask.shape_failures(columns, every, task) for mask in policy.masks),
        *(fit.failures(columns, every, task) for fit in policy.fits),
        *([(keeper.label, keeper.shape_room(columns, every, task) <= 0)] for keeper in policy.rooms if keeper.limits(task)),
    )
    reasons = tally(failures, np.flatnonzero(columns.alive[: columns.size]).astype(np.int64), columns.size)
    view = scheduler.views.of(task)
    assert sum(reasons.counts.values()) + reasons.fitting == reasons.nodes == len(cluster)
    assert reasons.fitting == np.count_nonzero(view.capacity)


def books_of(simulation: Simulation, name: NodeName) -> NodeAllocation:
    books = NodeAllocation()
    for claim in simulation.claims.values():
        if claim.node == name:
            books.book(claim.requests, claim.slices)
    return books


@given(clusters(), batches(), jobs("late"))
@examples(200, dear=True)
def test_the_columns_and_the_ledgers_rule_agree_on_what_fits(cluster: list[NodeState], batch: list[Job], late: Job) -> None:
    """A node has room exactly where some choice of cards passes `validate_claim`, but for what is the pod's own wish and what is kept for idle cards."""
    late = replace(late, tasks=(replace(late.tasks[0], node_selector={}, volumes=()),))
    if late.tasks[0].cards is not None:
        late = replace(late, tasks=(replace(late.tasks[0], cards=replace(late.tasks[0].cards, models=())),))
    cluster = [
        replace(state, taints=(), labels={**state.labels, **dict.fromkeys(NODE_LABELS.values(), "0")}) for state in cluster
    ]
    simulation = loaded(cluster, batch)
    scheduler = simulation.scheduler
    spec = late.tasks[0]
    view = scheduler.views.of(scheduler.tasks.of(spec))
    for state in cluster:
        books = books_of(simulation, state.name)
        fits = validate_claim(state, None, books, spec.requests, ()) is None
        if spec.cards is not None:
            good = 0
            for card in state.cards:
                if card.memory_mib == 0 and not spec.cards.whole:
                    continue  # a card of unknown size is only given whole: stricter than the ledger
                piece = CardSlice(
                    card.index, 100 if spec.cards.whole else spec.cards.cores, spec.cards.memory_on(card.memory_mib)
                )
                good += validate_claim(state, None, books, {}, (piece,)) is None
            fits = fits and good >= spec.cards.count
        assert (view.capacity[scheduler.columns.row_of[state.name]] > 0) == fits, state


# FGD against its definition, shape by shape and card by card.


def fragment_by_definition(cpu: int, free: list[int], model: str, shapes: dict[Shape, float]) -> float:
    total = sum(shapes.values())
    idle = sum(free)
    out = 0.0
    for shape, weight in shapes.items():
        runs = (
            shape.cards > 0
            and cpu >= shape.cpu_milli
            and (not shape.models or model in shape.models)
            and sum(r >= shape.percent for r in free) >= shape.cards
        )
        out += weight / total * (sum(r for r in free if r < shape.percent) if runs else idle)
    return out / 100


shapes = st.builds(
    Shape,
    cpu_milli=st.sampled_from([100, 1000, 4000, 9000]),
    cards=st.integers(0, 3),
    percent=st.sampled_from([10, 30, 50, 100]),
    models=st.sampled_from([(), ("A100",), ("V100", "T4")]),
)
mixes = st.dictionaries(shapes, st.integers(1, 9).map(float), min_size=1, max_size=8).filter(lambda m: any(s.cards for s in m))


@given(
    mixes,
    st.lists(
        st.tuples(
            st.integers(0, 12_000), st.lists(st.integers(0, 100), min_size=3, max_size=3), st.sampled_from(["A100", "V100"])
        ),
        min_size=1,
        max_size=5,
    ),
)
@examples(200, dear=True)
def test_the_expected_fragment_is_the_mean_over_the_mix_by_definition(
    mix: dict[Shape, float], drawn: list[tuple[int, list[int], str]]
) -> None:
    ours = expected_fragment(
        free_cpu_milli=[cpu for cpu, _, _ in drawn],
        free_percent=[free for _, free, _ in drawn],
        models=[model for _, _, model in drawn],
        mix=mix,
    )
    assert np.allclose(ours, [fragment_by_definition(cpu, free, model, mix) for cpu, free, model in drawn])


@given(clusters(), batches(), jobs("late"), mixes)
@examples(100, dear=True)
def test_the_fgd_score_is_the_fall_of_the_expected_fragment(
    cluster: list[NodeState], batch: list[Job], late: Job, mix: dict[Shape, float]
) -> None:
    simulation = loaded(
        [replace(state, cards=tuple(replace(c, memory_mib=40_960) for c in state.cards)) for state in cluster], batch
    )
    scheduler = simulation.scheduler
    columns = scheduler.columns
    task = scheduler.tasks.of(late.tasks[0])
    if task.cards is not None and task.cards.count > 1 and not task.cards.whole:
        return  # for shares of several cards the score is an estimate of which ones they will be
    fgd = Fgd(Mix(mix))
    score = fgd.score(columns, slice(0, columns.size), task)
    assert score is not None
    for row in np.flatnonzero(scheduler.views.of(task).capacity):
        here = np.array([row])
        keys = (
            fgd.card_keys(columns, here, task)
            if task.cards is not None and task.cards.count == 1 and not task.cards.whole
            else None
        )
        before = node_fragment(columns, int(row), mix)
        one_pod = pick(columns, here, np.array([1]), task, keys)
        columns.apply(one_pod)
        after = node_fragment(columns, int(row), mix)
        columns.apply(one_pod, -1)
        assert np.isclose(score[row], before - after, atol=0.021 * columns.card_index.shape[1])  # percents are whole numbers


def node_fragment(columns: Columns, row: int, mix: dict[Shape, float]) -> float:
    cpu = int(columns.allocatable[columns.resource("cpu"), row] - columns.used[columns.resource("cpu"), row])
    return fragment_by_definition(
        cpu, free_percent(columns, np.array([row]))[0].tolist(), columns.model_names[int(columns.card_model[row, 0])], mix
    )
