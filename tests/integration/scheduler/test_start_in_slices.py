"""scheduler-core starts beside 50,000 claims: it processes them while they arrive, and answers other messages in between."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer
from hbox_common.events import ClaimsAsked, ClaimsChanged, ClaimsPage, Event, JobsAsked, JobsPage
from hbox_common.loops import new_event_loop
from hbox_common.model import CardSlice, Claim, ClaimId, ClaimState, Epoch, Index, JobId, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, MIB, PODS
from hbox_common.runtime import Health, LoopTurns
from hbox_scheduler.app import SchedulerService
from hbox_scheduler.core.simulate import job, node
from hbox_scheduler.settings import SchedulerSettings

from ...scheduler_peers import Peers
from ...waiting import until

NODES, CARDS, PAGE, JOBS = 6_250, 8, 1_000, 5_000
#: Processor seconds of one turn, several times what a quiet machine needs for a slice. All claims together take three times as long.
LONGEST_S = 0.4


class Paging(Peers):
    """Answers in pages of the size that the ledger has."""

    async def _list_claims(self, _: ClaimsAsked) -> AsyncIterator[Event]:
        claims = tuple(self.claims.values())
        for first in range(0, len(claims), PAGE):
            part = claims[first : first + PAGE]
            yield ClaimsPage(epoch=self.epoch, index=self.index, frozen=self.frozen, claims=part)

    async def _list_jobs(self, _: JobsAsked) -> AsyncIterator[Event]:
        for first in range(0, len(self.jobs), PAGE):
            yield JobsPage(complete=True, computed=True, jobs=tuple(self.jobs[first : first + PAGE]))


def claims() -> list[Claim]:
    requests = {CPU: 4000, MEMORY: 16_384 * MIB, GPU: 1, PODS: 1}
    return [
        Claim(
            id=ClaimId(f"c-{number}"),
            pod_uid=PodUid(f"uid-{number}"),
            namespace="default",
            pod=f"pod-{number}",
            job=JobId(f"running-{number}"),
            plan=PlanId(f"plan-{number}"),
            queue=QueueName("default"),
            priority=0,
            node=NodeName(f"node-{number // CARDS}"),
            requests=requests,
            slices=(CardSlice(number % CARDS, 100, 40_960),),
            state=ClaimState.POSTED,
        )
        for number in range(NODES * CARDS)
    ]


@contextmanager
def peers_on_a_thread(url: str) -> Iterator[None]:
    """Their processor time is not that of the loop under test."""
    begun, loop = threading.Event(), new_event_loop()

    async def work() -> None:
        async with Bus.connect(url, name="peers", instance="peers") as bus:
            peers = Paging(bus)
            peers.claims = {claim.pod_uid: claim for claim in claims()}
            peers.jobs = [job(f"waiting-{number}", cards=CARDS, created_at=float(number)) for number in range(JOBS)]
            serving = asyncio.ensure_future(peers.run())
            await peers.cluster([node(f"node-{number}", cards=CARDS) for number in range(0, NODES, 100)])
            begun.set()
            await serving

    task = loop.create_task(work())

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(120.0)
    yield
    loop.call_soon_threadsafe(task.cancel)
    thread.join(20.0)


@pytest.fixture
def frozen() -> Iterator[None]:
    """The objects of earlier tests are not those of a service: the collector leaves them out."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
async def test_no_turn_of_a_start_beside_many_claims_is_long(nats: EmbeddedServer) -> None:
    with peers_on_a_thread(nats.url):
        async with (
            Bus.connect(nats.url, name="scheduler-core", instance="one") as bus,
            LoopTurns("scheduler-core", limit_s=0.1) as turns,
        ):
            service = SchedulerService(SchedulerSettings(nats_url=nats.url, instance="one"), Health("scheduler-core"), bus)
            running = asyncio.ensure_future(service._feeds.run())
            try:
                await until(lambda: running.done() or service._feeds.ready, timeout_s=120.0)
                assert not running.done()
                assert len(service.scheduler.bookings) == NODES * CARDS
                assert service.scheduler.reports.entry(JobId(f"waiting-{JOBS - 1}")) is not None
                assert turns.longest_processor_s < LONGEST_S
                # Again, as after lost messages: the answer is complete before its claims are processed.
                turns.longest_processor_s = 0.0
                service._feeds._ask_claims.set()
                await until(lambda: service._feeds._booking, timeout_s=60.0)
                assert not service._feeds.ready, "nothing is planned on a part of the claims"
                await until(lambda: service._feeds.ready, timeout_s=60.0)
                assert turns.longest_processor_s < LONGEST_S
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def test_a_change_that_arrives_while_a_snapshot_is_booked_is_applied_after_it(nats: EmbeddedServer) -> None:
    async with Bus.connect(nats.url, name="scheduler-core", instance="one") as bus:
        service = SchedulerService(SchedulerSettings(nats_url=nats.url, instance="one"), Health("scheduler-core"), bus)
        feeds, scheduler = service._feeds, service.scheduler
        known, ends = claims()[:2]
        scheduler.on_claims_snapshot(epoch=Epoch(1), index=Index(5), frozen=False, claims=(), now=0.0)
        page = ClaimsPage(epoch=Epoch(1), index=Index(10), frozen=False, claims=(known, ends))
        booked: list[Claim] = []
        await feeds._book_claims(booked, 0, page)
        # The snapshot contains the first change, in which the claim was not posted yet, and not the second one.
        for index, claim in (
            (Index(6), replace(known, state=ClaimState.PENDING)),
            (Index(11), replace(ends, state=ClaimState.VOID)),
        ):
            change = ClaimsChanged(epoch=Epoch(1), previous=Index(index - 1), index=index, claims=(claim,))
            await feeds._on_ledger([delivery(change)])
        booking = scheduler.bookings.get(known.pod_uid)
        assert booking is not None
        assert booking.held is booked[0]
        assert scheduler.reports.is_claimed(ends.pod_uid)
        feeds._take_claims([page], booked, 0)
        assert (scheduler.index, scheduler.reports.is_claimed(known.pod_uid)) == (11, True)
        assert not scheduler.reports.is_claimed(ends.pod_uid)


def delivery(event: Event) -> Delivery:
    return Delivery(event=event, message_id="", subject="", sequence=1, deliveries=1, traceparent="", stored_at=0.0, source="")
