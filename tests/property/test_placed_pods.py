"""Placed pods as arrays, kept up to date by what changed, are those of the members of all gangs, whatever happened between two answers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardSlice, JobId, Neighbour, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.cluster import Booking, placedpods
from hbox_scheduler.core.cluster.entities import Gang, Member
from hbox_scheduler.core.cluster.placedpods import PlacedPods
from hbox_scheduler.core.simulate import node

from ..searching import examples
from .test_running_gang_properties import JOBS, NODES, World, pods, steps


class Cards(World):
    """Nodes may lose cards, which moves the others; pods may write walltimes, and are seen to run."""

    def do(self, what: str, subject: object) -> None:
        match what, subject:
            case "cards", (str() as name, int() as first) if NodeName(name) in self.columns.row_of:
                state = node(name, cards=8)
                self.columns.put_node(replace(state, cards=state.cards[first:]))
                self.bookings.rebuild(NodeName(name))
            case "walltime", (str() as pod, str() as text, int() as started):
                uid = PodUid(pod)
                self.neighbours[uid] = Neighbour(uid, "d", annotations={WALLTIME: text}, started_at=float(started) or None)
                self.running.mark_changed((uid,))
            case _:
                super().do(what, subject)


more_steps = st.one_of(
    steps,
    st.tuples(st.just("cards"), st.tuples(st.sampled_from(NODES), st.integers(0, 2))),
    st.tuples(st.just("walltime"), st.tuples(pods, st.sampled_from(["60s", "2h", "soon"]), st.integers(0, 3))),
)


def written(placed: PlacedPods) -> list[object]:
    """Pod by pod, without codes, but for those of gangs: pods of one gang are numbered alike."""
    ends = placed.cell_ends.tolist()
    gangs: dict[int, int] = {}
    return [
        (
            row,
            id(placed.tasks[task]),
            placed.pairs[whose],
            (placed.gangs[gang], gangs.setdefault(gang, len(gangs)), sorted(set(placed.gang_rows(gang).tolist()))),
            str((started, walltime_s)),
            cards,
            placed.cells[start:end].tolist(),
        )
        for row, task, whose, gang, started, walltime_s, cards, start, end in zip(
            placed.rows.tolist(),
            placed.task.tolist(),
            placed.whose.tolist(),
            placed.gang.tolist(),
            placed.started.tolist(),
            placed.walltime_s.tolist(),
            placed.cards.tolist(),
            [0, *ends][:-1],
            ends,
            strict=True,
        )
    ]


def members(gangs: Sequence[Gang]) -> list[Member]:
    return [member for gang in gangs for member in gang.members]


@examples(400)
@given(
    st.lists(st.tuples(more_steps, st.booleans()), min_size=8, max_size=40),
    st.sets(st.sampled_from(list(JOBS))),
    st.sampled_from([0, 1, 2048]),
)
def test_they_are_those_of_all_members(done: list[tuple[tuple[str, object], bool]], lent: set[JobId], backlog: int) -> None:
    """`backlog`: changes that are left for the answer; others are taken in before, a few at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placedpods, "_BACKLOG", backlog)
        _compare(done, lent)


def _compare(done: list[tuple[tuple[str, object], bool]], lent: set[JobId]) -> None:
    world = Cards()
    for (what, subject), looks in done:
        world.do(what, subject)
        world.running.advance(1)
        if looks:
            running = world.running.current()
            expected = PlacedPods.of(world.columns, members(list(running.gangs.values())))
            assert written(running.placed.current()) == written(expected)
    running = world.running.current()
    all_there = PlacedPods.of(world.columns, members(list(running.gangs.values())))
    others = world.running.lend(sorted(lent))  # and with those of a session, in their places among the others
    found = running.placed.current(members(others))
    assert written(found) == written(all_there)
    assert found.offline().tolist() == all_there.offline().tolist()
    for job in JOBS:
        assert found.of_job(JobId(f"{job} ")).tolist() == all_there.of_job(job).tolist()


def test_entries_of_cells_are_kept_over_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods come and go until entries of those that left are dropped."""
    monkeypatch.setattr(placedpods, "_CELLS", 4)
    world = Cards()
    for number in range(40):
        pod = number * number % 3
        slices = tuple(CardSlice(card, 100, 1000 + number) for card in range(1 + pod))
        world.do("put", booking(f"p{number % 4}", NODES[number % 2], slices))
        running = world.running.current()
        expected = PlacedPods.of(world.columns, members(list(running.gangs.values())))
        assert written(running.placed.current()) == written(expected)


def test_pods_of_lent_gangs_are_in_their_places_among_others() -> None:
    world = Cards()
    for number in range(4):
        world.do("put", booking(f"p{number}", NODES[0], (CardSlice(number, 100, 1000),)))
    running = world.running.current()
    expected = written(PlacedPods.of(world.columns, members(list(running.gangs.values()))))
    lent = world.running.lend([JobId("jp3"), JobId("jp1")])
    assert written(running.placed.current(members(lent))) == expected


def booking(pod: str, place: NodeName, slices: tuple[CardSlice, ...]) -> Booking:
    requests = {CPU: 100, PODS: 1, GPU: len(slices)}
    return Booking(PodUid(pod), JobId(f"j{pod}"), QueueName("a"), place, requests, slices, PlanId("plan"))
