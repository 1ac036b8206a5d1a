"""The preview of moves is searched job by job, between which the cluster changes; nodes from which victims cannot move are excluded without a trial."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hbox_common.model import JobId, NodeName, PodUid
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.preemption import victims
from hbox_scheduler.core.preemption.victims import MAX_FAILED_MOVES, MemberClass, Search
from hbox_scheduler.core.reports import MovesPreview, Proposal
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .test_defragmentation import policy, spread


def whole(preview: MovesPreview, now: float) -> list[Proposal]:
    while preview.advance(now):
        pass
    return preview.proposals


def waiting(simulation: Simulation, count: int = 3) -> None:
    """Jobs that need all of a node, each different from the others."""
    more = [job(f"wide-{n}", cards=8, cpu_milli=1000 + n, created_at=simulation.now + n) for n in range(count)]
    simulation.submit(more)
    simulation.scheduler.cycle(simulation.now, simulation.now)


def targets(proposals: list[Proposal]) -> list[tuple[str, int]]:
    return [(one.job.id, len(one.found.moves)) for one in proposals]


def test_preview_finds_moves_for_each_job_on_its_own() -> None:
    simulation = spread("mode: preview")
    waiting(simulation)
    found = whole(simulation.scheduler.reports.preview_moves(), simulation.now)
    assert targets(found) == [("wide-0", 2), ("wide-1", 2), ("wide-2", 2)]


def test_one_of_equal_jobs_stands_for_the_others_in_a_preview() -> None:
    simulation = spread("mode: preview")
    simulation.submit([job(f"wide-{n}", cards=8, created_at=simulation.now + n) for n in range(3)])
    simulation.scheduler.cycle(simulation.now, simulation.now)
    assert targets(whole(simulation.scheduler.reports.preview_moves(), simulation.now)) == [("wide-0", 2)]


def test_job_that_leaves_during_a_preview_has_no_proposal() -> None:
    simulation = spread("mode: preview")
    waiting(simulation)
    preview = simulation.scheduler.reports.preview_moves()
    assert preview.advance(simulation.now)
    simulation.scheduler.on_withdrawn([JobId("wide-1")], [1 << 60])
    assert targets(whole(preview, simulation.now)) == [("wide-0", 2), ("wide-2", 2)]


def test_pods_that_end_and_start_during_a_preview_count_for_the_jobs_after_that() -> None:
    simulation = spread("mode: preview")
    waiting(simulation)
    reports = simulation.scheduler.reports
    preview = reports.preview_moves()
    assert preview.advance(simulation.now)
    simulation.finish([PodUid("s00-0")])  # one pod left on its node
    simulation.submit([job("late", cards=5, created_at=0.0)])
    simulation.run()
    later = whole(preview, simulation.now)
    assert targets(later)[1:] == targets(whole(reports.preview_moves(), simulation.now))[1:]
    assert targets(later)[1:] == [("wide-1", 1), ("wide-2", 1)]


def test_node_that_leaves_during_a_preview_is_no_target() -> None:
    simulation = spread("mode: preview")
    waiting(simulation, 2)
    preview = simulation.scheduler.reports.preview_moves()
    assert preview.advance(simulation.now)
    simulation.put_nodes([replace(node("n0", cards=8, cpu=64, generation=2), gone=True)])
    found = whole(preview, simulation.now)
    nodes = [{move.node, move.to} for one in found[1:] for move in one.found.moves]
    assert nodes
    assert all(NodeName("n0") not in some for some in nodes)


def crowded(rng: Random) -> Simulation:
    """Nodes with pods of several sizes, some of which have no place elsewhere, and jobs of one node that wait."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(policy("mode: preview"), plugins=list(PLUGINS)))
    simulation.put_nodes(node(f"n{i}", cards=8, cpu=16) for i in range(8))
    sizes = [(cards, 1000 * cpu) for cards, cpu in ((1, 1), (2, 3), (3, 1), (5, 2), (1, 5))]
    jobs = [
        job(f"p{n}", cards=cards, cpu_milli=cpu, created_at=float(n)) for n, (cards, cpu) in enumerate(rng.choices(sizes, k=40))
    ]
    simulation.submit(jobs)
    simulation.run()
    ended = [uid for uid in simulation.claims if rng.random() < 0.3]
    simulation.finish(ended)
    simulation.scheduler.on_withdrawn([one.id for one in jobs], [1 << 60] * len(jobs))
    simulation.now += 600.0
    for n in range(4):
        cards, cpu = rng.choice([(8, 4000), (6, 9000), (4, 14_000), (7, 1000)])
        simulation.submit([job(f"wide-{n}", cards=cards, cpu_milli=cpu, created_at=simulation.now + n)])
    simulation.scheduler.cycle(simulation.now, simulation.now)
    return simulation


@pytest.mark.parametrize("seed", range(20))
def test_excluded_nodes_are_those_from_which_no_trial_succeeds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = crowded(Random(seed))
    monkeypatch.setattr(victims, "MAX_FAILED_MOVES", 1 << 30)
    found = whole(simulation.scheduler.reports.preview_moves(), simulation.now)

    def every_node(search: Search, _: MemberClass) -> np.ndarray:
        return np.ones(search._session.columns.size, dtype=np.bool_)

    monkeypatch.setattr(Search, "_leavable", every_node)
    assert whole(simulation.scheduler.reports.preview_moves(), simulation.now) == found


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes that are tried from now on."""
    tried: list[int] = []
    search = Search._try

    def trial(self: Search, member: object, kind: MemberClass, row: int) -> bool:
        tried.append(row)
        return search(self, member, kind, row)  # type: ignore[arg-type]

    monkeypatch.setattr(Search, "_try", trial)
    return tried


def full(count: int) -> Simulation:
    """One pod of 5 and one of 2 cards on each node."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=parse_conf(policy("mode: preview"), plugins=list(PLUGINS)))
    for i in range(count):
        simulation.put_nodes([node(f"n{i:03}", cards=8, cpu=64)])
        simulation.submit([job(f"a{i}", cards=5, created_at=float(i)), job(f"b{i}", cards=2, created_at=float(i))])
        simulation.run()
    return simulation


def test_nodes_whose_pods_have_no_place_elsewhere_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = full(40)
    waiting(simulation, 1)
    tried = counted(monkeypatch)
    assert whole(simulation.scheduler.reports.preview_moves(), simulation.now) == []
    assert tried == []


def test_search_for_moves_gives_up_after_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod of 2 cards has places elsewhere one by one, on nodes that a filter excludes."""
    simulation = full(2 * MAX_FAILED_MOVES)
    simulation.put_nodes(replace(node(f"x{i}", cards=8, cpu=64), unschedulable=True) for i in range(8))
    waiting(simulation, 1)
    tried = counted(monkeypatch)
    assert whole(simulation.scheduler.reports.preview_moves(), simulation.now) == []
    assert len(tried) == MAX_FAILED_MOVES


def test_pods_with_unknown_requests_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = spread("mode: preview")
    for booking in simulation.scheduler.bookings.all().values():
        booking.task = None
    simulation.scheduler.bookings.changed.begin()
    waiting(simulation, 1)
    tried = counted(monkeypatch)
    assert whole(simulation.scheduler.reports.preview_moves(), simulation.now) == []
    assert tried == []
