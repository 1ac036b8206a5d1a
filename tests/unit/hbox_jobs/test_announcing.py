"""How long jobs are gathered before they are announced together."""

import asyncio
from typing import Any, cast

from hbox_jobs.adapters.announcer import Announcer
from hbox_jobs.core.jobs import Jobs

from .job_world import pod


def announcer(jobs: Jobs) -> Announcer:
    nobody = cast(Any, None)
    return Announcer(
        jobs, nobody, nobody, nobody, wake=asyncio.Event(), behind=asyncio.Event(), groups_delivered=str, unread=asyncio.Event()
    )


def pending(count: int) -> Jobs:
    jobs = Jobs()
    for number in range(count):
        jobs.pod(pod(f"p{number}"), 0.0)
    jobs.take(0.0, 1e9)
    return jobs


def test_a_job_alone_waits_for_no_other() -> None:
    assert announcer(Jobs()).window_s(1) <= 0.01


def test_pods_that_come_in_clumps_are_no_backlog_and_wait_no_longer() -> None:
    """At 50 pods a second a busy machine hands over 150 at once now and then; what comes behind them must not wait for the next clump."""
    few = announcer(pending(20))
    few.came(150)
    assert few.busy()
    assert few.window_s(5) <= 0.05


def test_jobs_are_gathered_for_longer_while_many_are_under_way() -> None:
    many = announcer(pending(100))
    assert many.window_s(60) <= 0.05, "they may wait for room: nothing says that the platform is busy"
    many.came(150)
    assert many.window_s(60) >= 0.2
