"""The endpoint `listing`: all jobs in one answer, as `hbox jobs` prints them, where they are few enough."""

import asyncio

import pytest

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import JobsAsked
from hbox_common.kube import Freshness
from hbox_jobs.adapters.announcer import pages
from hbox_jobs.api import MOST_LISTED, Api, ListingRequest
from hbox_jobs.core.jobs import MAX_ITEMS, Jobs

from .job_world import pod


def listed(count: int, *, synced: bool = True) -> list[str]:
    jobs = Jobs()
    for number in range(count):
        jobs.pod(pod(f"p{number}", created_at=float(count - number)), 0.0)
    for _ in range(count // MAX_ITEMS + 1):
        jobs.take(0.0, 1e9)
    asked = JobsAsked(asker="cli", jobs=True, pods=True)
    api = Api(jobs, lambda: synced, lambda: list(pages(asked, jobs, Freshness("1", 0.0), synced=True)))
    return [item["name"] for item in asyncio.run(api.listing(ListingRequest())).items]


def test_jobs_are_listed_oldest_first() -> None:
    assert listed(3) == ["ml/p2", "ml/p1", "ml/p0"]


def test_more_jobs_than_one_answer_takes_are_refused() -> None:
    assert len(listed(MOST_LISTED)) == MOST_LISTED
    with pytest.raises(InvalidRequest, match="more than 2000 jobs"):
        listed(MOST_LISTED + 1)


def test_nothing_is_listed_before_all_pods_are() -> None:
    with pytest.raises(Unavailable):
        listed(1, synced=False)
