"""A cycle examines a limited number of jobs, and the next one continues: what is decided is the same as in one cycle."""

from collections.abc import Callable

import pytest

from hbox_common.events import Plan
from hbox_common.model import JobId, NodeName, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

QUEUES = 12


def world(limit: int) -> Simulation:
    """Cards for half of the jobs: two for each queue, which may have no more."""
    queues = [Queue(QueueName(f"q{n}"), capability={GPU: 2}) for n in range(QUEUES)]
    simulation = Simulation(
        policy_of(PolicyName.BINPACK), limits=Limits(cycle_jobs=limit, session_jobs=4), queues=queues, conf=default_conf()
    )
    simulation.put_nodes([node(f"n{n}", cards=4) for n in range(6)])
    simulation.submit(
        [job(f"j{n:02}", cards=1, queue=f"q{n % QUEUES}", cpu_milli=1000 + n, created_at=float(n)) for n in range(4 * QUEUES)]
    )
    return simulation


def cycles(simulation: Simulation, between: Callable[[int], None] = lambda _: None) -> tuple[int, dict[JobId, NodeName]]:
    """Number of cycles until nothing is left to do, and the node of each job."""
    placed: dict[JobId, NodeName] = {}
    for number in range(200):
        out = simulation.step()
        placed.update((plan.job, _node(plan)) for plan in out.plans)
        between(number)
        if not out.more and not out.plans:
            return number + 1, placed
    raise AssertionError("the cycles do not end")


def _node(plan: Plan) -> NodeName:
    (placement,) = plan.placements
    return placement.node


def test_limited_cycles_place_the_same_jobs_as_one_cycle() -> None:
    few, at_once = cycles(world(1 << 30))
    many, in_parts = cycles(world(4))
    assert many > few
    assert in_parts == at_once
    assert len(at_once) == 2 * QUEUES


def test_limited_cycle_examines_no_more_sessions_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world(4)
    placer, examined = simulation.scheduler._placer, list[int]()
    place = placer.place

    def counting(*args: object, **kwargs: object) -> object:
        attempt = place(*args, **kwargs)  # type: ignore[arg-type]
        examined.append(0 if attempt is None else attempt.examined)
        return attempt

    monkeypatch.setattr(placer, "place", counting)
    out = simulation.step()
    assert out.more
    assert len(examined) == 1, "a session that reaches the limit is the last one of its cycle"
    assert examined[0] >= 4


def test_job_that_arrives_between_limited_cycles_is_placed_in_its_order() -> None:
    """It takes the second card of its queue, for which an older job of less priority waits."""
    simulation = world(4)

    def arrive(number: int) -> None:
        if not number:
            simulation.submit([job("urgent", cards=1, queue="q0", priority=9, created_at=50.0)])

    _, placed = cycles(simulation, arrive)
    assert "urgent" in placed
    assert "j12" not in placed


def test_jobs_removed_between_limited_cycles_are_not_placed() -> None:
    simulation = world(4)
    left = [JobId(f"j{n:02}") for n in range(20, 4 * QUEUES)]

    def remove(number: int) -> None:
        if not number:
            waiting = [one for one in left if simulation.scheduler.reports.entry(one) is not None]
            simulation.scheduler.on_withdrawn(waiting, [1 << 60] * len(waiting))

    _, placed = cycles(simulation, remove)
    states = simulation.scheduler.reports.jobs_by_state
    assert states[JobState.ACTIVE] == 0
    assert set(placed) <= {JobId(f"j{n:02}") for n in range(20)}
    assert len(placed) >= QUEUES
