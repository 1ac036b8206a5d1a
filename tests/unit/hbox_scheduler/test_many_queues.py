"""A pod costs as much beside thousands of queues, namespaces or shapes that wait as beside ten: what is done is counted, not timed."""

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from types import FrameType
from typing import Any

import pytest

from hbox_common.model import DEFAULT_QUEUE, Job, PodUid, Queue, QueueName
from hbox_common.runtime import LongLived
from hbox_scheduler.app import between_cycles, calm_collector
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.queueing import unschedulable
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

CARDS = "nvidia.com/gpu"
FEW, MANY = 40, 400
#: How much more many may cost than few, which are a tenth.
TIMES = 1.5


def queue_of(i: int, *, deserved: int = 1) -> Queue:
    return Queue(QueueName(f"q{i}"), deserved={CARDS: deserved})


def in_its_queue(i: int) -> Job:
    return replace(job(f"flood-{i}", cards=9, queue=f"q{i}", created_at=float(i)), namespace="flood")


def in_its_namespace(i: int) -> Job:
    return replace(job(f"flood-{i}", cards=9, cpu_milli=1000 + i, created_at=float(i)), namespace=f"space-{i}")


def of_its_shape(i: int) -> Job:
    return replace(job(f"flood-{i}", cards=9, cpu_milli=1000 + i, created_at=float(i)), namespace="flood")


def world() -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(DEFAULT_QUEUE)], conf=default_conf())
    made.put_nodes(node(f"n{i}", cards=8) for i in range(4))
    return made


def settled(simulation: Simulation) -> None:
    for _ in range(20):
        simulation.now += 2.0
        simulation.run()


def operations(act: Callable[[], object]) -> int:
    """How many of Python's instructions it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(None)
    return count


def cost_of_a_pod(flood: Callable[[int], Job], count: int) -> int:
    """Of one that comes, has its place, and goes, while so many others wait."""
    simulation = world()
    for i in range(count):
        simulation.scheduler.on_queue(queue_of(i))
    simulation.submit([flood(i) for i in range(count)])
    settled(simulation)
    costs = []
    for i in range(3):
        one = f"other-{i}"

        def whole_life(one: str = one) -> None:
            simulation.submit([replace(job(one, cards=1, created_at=1e6), namespace="other")])
            simulation.run()
            assert PodUid(f"{one}-0") in simulation.claims
            simulation.scheduler.on_queue(Queue(DEFAULT_QUEUE))  # as the ledger tells it anew, since what it uses changed
            simulation.finish([PodUid(f"{one}-0")])
            simulation.run()

        settled(simulation)
        costs.append(operations(whole_life))
    return min(costs)


@pytest.mark.parametrize("flood", [in_its_queue, in_its_namespace, of_its_shape])
def test_a_pod_costs_as_much_beside_many_that_wait_as_beside_few(
    flood: Callable[[int], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reviews of headlines are off: their cost depends on time, not on pods."""
    monkeypatch.setattr(unschedulable, "REVIEW_S", inf)
    few, many = cost_of_a_pod(flood, FEW), cost_of_a_pod(flood, MANY)
    assert many < TIMES * few


def test_a_queue_that_is_told_anew_as_it_was_changes_no_rule() -> None:
    simulation = world()
    tree = simulation.scheduler.queues.all()
    simulation.scheduler.on_queue(queue_of(1))
    before = tree.version
    simulation.scheduler.on_queue(queue_of(1))
    assert tree.version == before
    simulation.scheduler.on_queue(queue_of(1, deserved=2))
    assert tree.version > before


def test_the_rules_of_a_queue_change_in_which_more_shapes_of_one_namespace_wait_than_are_looked_at_in_a_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unschedulable, "SCANNED", 128)
    simulation = world()
    simulation.scheduler.on_queue(queue_of(1))
    count = unschedulable.SCANNED + 10
    simulation.submit([replace(of_its_shape(i), queue=QueueName("q1")) for i in range(count)])
    settled(simulation)
    simulation.submit([replace(job("other", cards=1, created_at=1e6), namespace="other")])
    simulation.run()
    simulation.finish([PodUid("other-0")])
    simulation.scheduler.on_queue(queue_of(1, deserved=2))
    simulation.run()
    assert len(simulation.verdicts) == count


@pytest.fixture
def thawed() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.collect()


@pytest.mark.usefixtures("thawed")
def test_the_collector_walks_what_came_of_late_however_many_jobs_wait() -> None:
    simulation, memory = world(), LongLived()
    calm_collector()
    walked = []
    for first in range(0, 2000, 50):
        simulation.submit([of_its_shape(i) for i in range(first, first + 50)])
        simulation.step()
        between_cycles(simulation.scheduler, memory)
        walked.append(len(gc.get_objects(0)) + len(gc.get_objects(1)) + len(gc.get_objects(2)))
    assert max(walked[10:]) < 2 * max(walked[:10])
