"""Errors of scheduler-core's own, on a real broker: whom they are about is put in quarantine and told, and everybody else is scheduled.

The errors are planted in the core, since none is known that could be met."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.model import Job
from hbox_common.runtime import Health
from hbox_scheduler import app, metrics
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.actions.batches import Batches
from hbox_scheduler.core.queueing.jobs import Entry
from hbox_scheduler.core.simulate import job, node
from hbox_scheduler.settings import SchedulerSettings

from ...scheduler_peers import Peers
from ...waiting import until
from .test_scheduler_service import running

#: For the scheduler to begin anew some times, on a busy machine too.
BEGINNINGS_S = 90.0


def at_job(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Entry], None]) -> None:
    """`fails` is called whenever a job's pods that wait are looked up."""
    real = Entry.update_pending

    def update_pending(self: Entry, *args: Any) -> Any:
        fails(self)
        return real(self, *args)

    monkeypatch.setattr(Entry, "update_pending", update_pending)


def of(name: str, namespace: str = "default", created_at: float = 0.0) -> Job:
    return replace(job(name, cards=1, created_at=created_at), namespace=namespace)


@dataclass
class Service:
    """As its process runs it, over all that it begins anew."""

    url: str
    health: Health

    def run(self) -> Coroutine[None, None, None]:
        return app.run(SchedulerSettings(nats_url=self.url), self.health)


def scheduling(nats: EmbeddedServer, peers: Peers, health: Health) -> AbstractAsyncContextManager[None]:
    return running(peers, Service(nats.url, health))


@pytest.fixture
async def peers(nats: EmbeddedServer) -> AsyncIterator[Peers]:
    async with Bus.connect(nats.url, name="peers", instance="peers") as bus:
        yield Peers(bus)


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """A scheduler that begins anew thaws what the collector need not walk; of these tests' process that is all other tests."""
    yield
    gc.freeze()


@pytest.fixture
def health() -> Health:
    return Health("scheduler-core")


async def test_a_job_at_which_it_fails_is_told_so_and_the_others_are_placed(
    nats: EmbeddedServer, peers: Peers, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(entry: Entry) -> None:
        if entry.job.id == "bad":
            raise KeyError("no such card")

    at_job(monkeypatch, fails)
    await peers.cluster([node("n1", cards=8)])
    peers.jobs = [of("bad"), of("good", created_at=1.0)]
    async with scheduling(nats, peers, health):
        await until(lambda: "good-0" in peers.claims, "the other job is placed")
        await until(lambda: "bad" in peers.waiting, "the job is told")
        assert "in quarantine: the scheduler fails at it (KeyError at test_scheduler_faults.py:" in peers.waiting["bad"]
        assert "tried again at " in peers.waiting["bad"]
        assert "jobs: 1; the log has the errors" in str(health.report())
        assert "bad" not in str(health.report()), "the page needs no credentials"
        await peers.submit(of("later", created_at=2.0))
        await until(lambda: "later-0" in peers.claims, "those that come later are placed")
        assert "bad-0" not in peers.claims


async def test_what_has_no_end_is_ended(
    nats: EmbeddedServer, peers: Peers, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(entry: Entry) -> None:
        while entry.job.id == "endless":
            pass

    at_job(monkeypatch, fails)
    monkeypatch.setattr(app, "CYCLE_S", 0.5)
    await peers.cluster([node("n1", cards=8)])
    peers.jobs = [of("endless"), of("good", created_at=1.0)]
    async with scheduling(nats, peers, health):
        await until(lambda: "good-0" in peers.claims, "the other job is placed")
        await until(lambda: "endless" in peers.waiting, "the job is told")
        assert "more than 0.5 s of processor time at test_scheduler_faults.py:" in peers.waiting["endless"]


async def test_a_job_comes_back_when_its_time_is_over(
    nats: EmbeddedServer, peers: Peers, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def fails(entry: Entry) -> None:
        if entry.job.id == "bad" and not failed:
            failed.append(entry.job.id)
            raise KeyError("once")

    at_job(monkeypatch, fails)
    monkeypatch.setattr("hbox_scheduler.faults.quarantine.FIRST_S", 1.0)
    await peers.cluster([node("n1", cards=8)])
    peers.jobs = [of("bad")]
    async with scheduling(nats, peers, health):
        await until(lambda: "bad-0" in peers.claims, "it is placed in the end")
        assert failed
        assert "in quarantine" in peers.waiting["bad"]
        assert "quarantine" not in str(health.report())


@pytest.mark.parametrize("namespaces", [1, 4])
async def test_a_node_over_which_several_jobs_fail_is_left_out(
    nats: EmbeddedServer, peers: Peers, health: Health, monkeypatch: pytest.MonkeyPatch, namespaces: int
) -> None:
    real = Batches._on_one_row

    def on_one_row(self: Batches, member: Any, row: int, count: int) -> Any:
        if self._session.node(row) == "bad":
            raise IndexError("a zone without cards")
        return real(self, member, row, count)

    monkeypatch.setattr(Batches, "_on_one_row", on_one_row)
    # The node with fewer cards is filled first: every job is tried there.
    await peers.cluster([node("bad", cards=4), node("good", cards=8)])
    peers.jobs = [of(f"j{i}", f"team-{i % namespaces}", created_at=float(i)) for i in range(4)]
    async with scheduling(nats, peers, health):
        await until(lambda: len(peers.claims) == 4, "all jobs are placed", timeout_s=BEGINNINGS_S)
        assert {claim.node for claim in peers.claims.values()} == {"good"}
        assert "nodes: bad;" in str(health.report())
        assert "jobs" not in health.remarks["quarantine"]()
        assert metrics.QUARANTINED.labels("node")._value.get() == 1


async def test_a_namespace_whose_jobs_fail_one_after_the_other_is_put_in_quarantine_whole(
    nats: EmbeddedServer,
    peers: Peers,
    health: Health,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def fails(entry: Entry) -> None:
        if entry.job.namespace == "bad":
            begun.append(entry.job.id)
            raise KeyError(entry.job.id)

    at_job(monkeypatch, fails)
    monkeypatch.setattr(app.log, "disabled", True)  # pytest keeps what is logged, with the frames of tracebacks
    await peers.cluster([node("n1", cards=8)])
    peers.jobs = [*(of(f"bad{i}", "bad", created_at=float(i)) for i in range(20)), of("good", created_at=99.0)]
    async with scheduling(nats, peers, health):
        await until(lambda: "good-0" in peers.claims, "the other namespace's job is placed", timeout_s=BEGINNINGS_S)
        await until(lambda: len(peers.waiting) == 20, "all of them are told")
        assert len(set(begun)) <= 5
        assert "in quarantine with its namespace" in peers.waiting["bad19"]
        gc.unfreeze()
        gc.collect()
        assert len([one for one in gc.get_objects() if isinstance(one, Scheduler)]) == 1  # those before it are freed


async def test_an_error_that_is_about_nobody_ends_the_process(
    nats: EmbeddedServer, peers: Peers, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of nobody")

    monkeypatch.setattr("hbox_scheduler.core.scheduler.Scheduler.cycle", broken)
    await peers.cluster([node("n1", cards=8)])
    speaking = asyncio.ensure_future(peers.run())
    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(app.run(SchedulerSettings(nats_url=nats.url), health), 20.0)
    assert caught.group_contains(ZeroDivisionError)
    speaking.cancel()
    await asyncio.gather(speaking, return_exceptions=True)
