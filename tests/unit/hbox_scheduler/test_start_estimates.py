"""Start estimates: projections by the ends of running pods, and intervals with measured coverage."""

import math
import random
from dataclasses import replace

import pytest

from hbox_common.events.explain import ExplainRequest
from hbox_common.model import JobId, Neighbour, PodUid, Queue, QueueName
from hbox_common.model.annotations import WALLTIME
from hbox_scheduler.core.explain.startestimates import LEAST, MOST, StartEstimates
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate import Simulation, job, node
from hbox_scheduler.explainanswer import explain_answer

WALL = 1e9


def world(*queues: str) -> Simulation:
    """One node of 8 cards."""
    found = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName(name)) for name in queues or ("default",)])
    found.wall_ahead = WALL
    found.put_nodes([node("n0", cards=8)])
    return found


def submit(world: Simulation, name: str, cards: int, *, walltime: str = "", queue: str = "default") -> None:
    if walltime:
        world.scheduler.on_neighbours([Neighbour(PodUid(f"{name}-0"), "default", annotations={WALLTIME: walltime})])
    world.submit([replace(job(name, cards=cards, queue=queue, created_at=world.now + WALL))])
    world.run()


def projected(world: Simulation, name: str) -> tuple[float, str] | None:
    start_times = world.scheduler.start_times
    entry = world.scheduler.reports.entry(JobId(name))
    assert entry is not None
    found = start_times._projections([entry], world.now + WALL).get(JobId(name))
    return None if found is None else (found.wait_s, found.driver)


def test_a_job_is_projected_to_start_when_a_walltime_is_half_over() -> None:
    w = world("research", "default")
    submit(w, "runs", 8, walltime="2h", queue="research")
    w.now = 600.0
    submit(w, "waits", 4)
    found = projected(w, "waits")
    assert found is not None
    assert found[0] == pytest.approx(3300.0)
    assert found[1] == "jobs of queue research end on 8 cards"


def test_a_driver_names_no_job_of_another_tenant() -> None:
    w = world("research", "default")
    submit(w, "secret", 8, walltime="2h", queue="research")
    submit(w, "waits", 4)
    found = projected(w, "waits")
    assert found is not None
    assert "secret" not in found[1]


def test_jobs_ahead_delay_a_projection() -> None:
    w = world()
    submit(w, "short", 4, walltime="1h")
    submit(w, "long", 4, walltime="4h")
    submit(w, "first", 4)
    submit(w, "second", 4)
    first, second = projected(w, "first"), projected(w, "second")
    assert first is not None
    assert second is not None
    assert [first[0], second[0]] == pytest.approx([1800.0, 7200.0])


def test_a_job_behind_pods_of_unknown_end_has_no_projection() -> None:
    w = world()
    submit(w, "runs", 8)
    submit(w, "waits", 4)
    assert projected(w, "waits") is None


def test_an_estimate_is_given_once_its_coverage_is_measured() -> None:
    w = world()
    start_times, chance = w.scheduler.start_times, random.Random(3)
    given = []
    for number in range(LEAST + 15):
        submit(w, f"r{number}", 8, walltime="10m")
        submit(w, f"w{number}", 8)
        start_times.sample(w.now + WALL)
        given.append(start_times.estimate(JobId(f"w{number}"), w.now + WALL))
        w.now += chance.uniform(100.0, 600.0)
        w.finish([PodUid(f"r{number}-0")])
        w.run()
        start_times.sample(w.now + WALL)
        w.finish([PodUid(f"w{number}-0")])
        w.run()
    assert given[0] is None
    last = given[-1]
    assert last is not None
    assert 100.0 < last.p50_s < last.p90_s < 2000.0
    assert last.driver == "jobs of queue default end on 8 cards"
    submit(w, "runs", 8, walltime="10m")
    submit(w, "waits", 8)
    request = ExplainRequest(job=JobId("waits"), changes=False)
    answer = explain_answer(w.scheduler.reports, start_times, request, wall=w.now + WALL, clock=lambda: 0.0)
    assert answer.explanation is not None
    assert answer.explanation.start == start_times.estimate(JobId("waits"), w.now + WALL) is not None
    covered, outcomes = start_times.coverage()
    assert covered / outcomes >= 0.8


def test_a_job_that_does_not_wait_has_no_estimate() -> None:
    w = world()
    submit(w, "runs", 8)
    assert w.scheduler.start_times.estimate(JobId("runs"), w.now + WALL) is None
    assert w.scheduler.start_times.estimate(JobId("gone"), w.now + WALL) is None


def outcomes(
    estimates: StartEstimates, count: int, factor: float, spread: float, *, seed: int = 1, drift: float = 0.0
) -> list[bool | None]:
    """Jobs that start after a projection of 100 s times a log-normal factor: whether before the 90th percentile; None = withheld. `drift`: of the factor's
    logarithm with each job."""
    chance, now, found = random.Random(seed), 0.0, list[bool | None]()
    for number in range(count):
        given = estimates.interval(100.0, now)
        estimates.record(JobId(str(number)), 100.0, now)
        waits = 100.0 * factor * math.exp(chance.gauss(drift * number, spread))
        now += waits
        estimates.pass_time(now)
        estimates.started(JobId(str(number)), now)
        found.append(None if given is None else waits <= given[1])
    return found


@pytest.mark.parametrize(("factor", "spread"), [(1.0, 0.5), (3.0, 1.0), (0.1, 1.0)])
def test_nine_of_ten_jobs_start_before_the_90th_percentile(factor: float, spread: float) -> None:
    given = [one for one in outcomes(StartEstimates(), 1000, factor, spread) if one is not None]
    assert len(given) > 900
    assert 0.85 <= sum(given) / len(given) <= 0.95


def test_coverage_holds_while_waits_become_longer() -> None:
    given = [one for one in outcomes(StartEstimates(), 600, 1.0, 0.3, drift=0.005)[100:] if one is not None]
    assert len(given) > 400
    assert 0.85 <= sum(given) / len(given) <= 0.95


def test_estimates_are_withheld_while_jobs_start_late() -> None:
    estimates = StartEstimates()
    assert outcomes(estimates, LEAST, 1.0, 0.1) == [None] * LEAST, "too few outcomes"
    outcomes(estimates, 200, 1.0, 0.1)
    assert estimates.interval(100.0, 0.0) is not None
    for number in range(40):
        estimates.record(JobId(f"late-{number}"), 100.0, 0.0)
    estimates.pass_time(1e6)
    assert estimates.interval(100.0, 1e6) is None, "late before any of them starts"
    covered, known = estimates.coverage()
    assert covered < 0.8 * known


def test_an_interval_without_information_is_withheld() -> None:
    estimates = StartEstimates()
    outcomes(estimates, 400, 1.0, 6.0)
    given = estimates.interval(100.0, 0.0)
    assert given is None or given[1] <= MOST * 100.0
    assert all(one is None or one[1] <= MOST * base for base in (1.0, 1e4) for one in [estimates.interval(base, 0.0)])


def test_a_deleted_job_has_no_outcome() -> None:
    estimates = StartEstimates()
    estimates.record(JobId("a"), 100.0, 0.0)
    estimates.gone(JobId("a"))
    estimates.pass_time(1e6)
    assert estimates.coverage() == (0, 0)
