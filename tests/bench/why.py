"""Explanations of 100,000 waiting jobs on 10,000 cards in use: time of `why` on the bus and over HTTP, pages of jobs, and the age of headlines.

Run it as `python -m tests.bench why`; `HBOX_BENCH_SIZE=0.1` uses a tenth. scheduler-core and the console are the real processes on a real broker; this process
takes the part of job-controller and quota-ledger (`scheduler_peers`). While explanations are requested, ENDS_PER_S pods end each second and the scheduler
starts jobs on their cards.

Headlines: all nodes become unschedulable, which changes what every job waits for, apart from jobs for which cards are being reclaimed. The age of a headline is
the time from then until the headline NodesOutOfService is published; the console shows it at once.
"""

import asyncio
import json
import math
import os
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, time
from typing import Any

import aiohttp

from hbox_common.bus import Bus, Delivery, EmbeddedServer
from hbox_common.events import ClaimsChanged, Event, JobsAsked, JobsPage, JobsWaiting, Plan
from hbox_common.events.explain import ExplainAnswer, ExplainRequest, endpoint_of
from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Index,
    Job,
    JobId,
    NodeName,
    PlanId,
    PodFact,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
)
from hbox_common.ports import free_port
from hbox_common.runtime import collect_seldom
from hbox_scheduler.core.explain.outcomes import CARDS_RECLAIMED, NODES_OUT_OF_SERVICE
from hbox_scheduler.core.simulate import job, node

from ..scheduler_peers import Peers
from ..waiting import until
from .platform import cpu_s, rss_mib
from .scale import emulator
from .scheduler import report
from .size import SIZE, service

NODES, CARDS, QUEUES = int(1250 * SIZE), 8, 50
WAITING = int(100_000 * SIZE)
CARD = "nvidia.com/gpu"
ASKED = 400
PAGES = 200
ENDS_PER_S = 5.0
WHY_MS, PAGE_MS = 300.0, 300.0
HEADLINE_S, HEADLINE_SHARE = 60.0, 0.99
PATIENCE_S = 900.0
AT_ONCE = 500
#: Cards and pods of the shapes that wait; cpu differs by 4 more.
SHAPES = ((1, 1), (1, 1), (1, 1), (2, 1), (4, 1), (8, 1), (8, 1), (8, 8), (8, 32), (1, 16))
ADMIN = {"Authorization": "Bearer sandbox:bench:system:masters"}


class World(Peers):
    """Also what runs, for the console, and when each job's headline was published last."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.running: list[PodFact] = []
        self.headlines: dict[JobId, tuple[str, float]] = {}
        self._changing = asyncio.Lock()  #: each change of claims is published before the next one is made

    async def _list_jobs(self, asked: JobsAsked) -> AsyncIterator[Event]:
        async for page in super()._list_jobs(asked):
            yield page
        if asked.pods:
            yield JobsPage(complete=True, pods=tuple(self.running))

    async def _on_waiting(self, deliveries: Sequence[Delivery]) -> None:
        now = perf_counter()
        for delivery in deliveries:
            assert isinstance(delivery.event, JobsWaiting)
            self.headlines.update((one.job, (one.code, now)) for one in delivery.event.verdicts)

    async def end(self, pod: PodUid) -> None:
        """The pod ends: its claim is void."""
        async with self._changing:
            previous, self.index = self.index, Index(self.index + 1)
            void = replace(self.claims.pop(pod), state=ClaimState.VOID)
            await self._bus.publish(ClaimsChanged(epoch=self.epoch, previous=previous, index=self.index, claims=(void,)), "0")

    async def _answer(self, scheduler: str, plan: Plan) -> None:
        async with self._changing:
            await super()._answer(scheduler, plan)


def name_of(number: int) -> str:
    return f"team-{number % QUEUES}"


def waiting_jobs(now: float) -> list[Job]:
    made = []
    for number in range(WAITING):
        cards, pods = SHAPES[number // QUEUES % len(SHAPES)]
        one = job(
            f"train-{number:06}",
            pods=pods,
            cards=cards,
            cpu_milli=1000 * (1 + number // 7 % 4),
            queue=name_of(number),
            created_at=now - WAITING + number,
        )
        made.append(replace(one, namespace=name_of(number)))
    return made


def running_pods() -> tuple[list[Claim], list[PodFact]]:
    """One pod on each card."""
    claims, facts = [], []
    for number in range(NODES * CARDS):
        at, queue, uid = NodeName(f"node-{number // CARDS:05}"), QueueName(name_of(number)), PodUid(f"running-{number}")
        requests = {"cpu": 4000, "memory": 1 << 30, "pods": 1, CARD: 1}
        slices = (CardSlice(number % CARDS, 100, 81_559),)
        claims.append(
            Claim(ClaimId(uid), uid, queue, uid, JobId(uid), PlanId(""), queue, 0, at, requests, slices, ClaimState.POSTED)
        )
        facts.append(PodFact(uid, queue, uid, PodPhase.RUNNING, at, JobId(uid), queue, 0, requests, cards=1, slices=slices))
    return claims, facts


@asynccontextmanager
async def platform(folder: Path) -> AsyncIterator[tuple[World, Bus, dict[str, int], str]]:
    """The world, a client's bus, process ids by service, and the console's address."""
    port = free_port()
    environment = {"HBOX_LISTEN_PORT": str(port)}
    async with EmbeddedServer(folder / "nats") as nats, Bus.connect(nats.url, name="bench", instance="bench") as bus:
        world = World(bus)
        claims, world.running = running_pods()
        world.claims = {claim.pod_uid: claim for claim in claims}
        deserved = {CARD: NODES * CARDS // QUEUES}
        nodes = [node(f"node-{i:05}", cards=CARDS, model="H100", memory_mib=1 << 20, cpu=128) for i in range(NODES)]
        await world.cluster(nodes, [Queue(QueueName(name_of(i)), deserved=deserved) for i in range(QUEUES)])
        async with asyncio.TaskGroup() as group:
            peers = group.create_task(world.run())
            with (
                emulator(folder) as kubeconfig,
                service("hbox_scheduler", kubeconfig, nats.url, folder / "scheduler.log") as scheduler,
                service("hbox_console", kubeconfig, nats.url, folder / "console.log", environment) as console,
            ):
                yield world, bus, {"scheduler-core": scheduler, "console": console}, f"http://127.0.0.1:{port}/api/v1"
            peers.cancel()


async def measure(folder: Path) -> None:
    async with platform(folder) as (world, bus, pids, url), aiohttp.ClientSession(headers=ADMIN) as session:
        await until_served(session, f"{url}/queues/{name_of(0)}")
        jobs, began = waiting_jobs(time()), perf_counter()
        for start in range(0, WAITING, AT_ONCE):
            await world.submit(*jobs[start : start + AT_ONCE])
        await until(lambda: len(world.headlines) >= WAITING, timeout_s=PATIENCE_S)
        print(
            f"all {WAITING:,} jobs have their first headline {perf_counter() - began:.0f} s after the first came; "
            f"scheduler-core {cpu_s(pids['scheduler-core']):.0f} s of processor time"
        )
        await until_served(session, f"{url}/jobs/{jobs[-1].namespace}/{jobs[-1].name}")
        print(f"console: {WAITING:,} jobs served; {cpu_s(pids['console']):.0f} s of processor time")
        chosen = random.Random(36)
        load = asyncio.create_task(ends(world, chosen))
        waiting = chosen.sample(world.jobs, 2 * ASKED)

        async def on_bus(one: Job) -> bool:
            answer = await bus.call(
                "scheduler-core", endpoint_of("explain", ""), ExplainRequest(job=one.id), ExplainAnswer, timeout_s=60
            )
            return answer.explanation is not None

        async def over_http(one: Job) -> bool:
            found = await fetched(session, f"{url}/jobs/{one.namespace}/{one.name}/explanation")
            return found["explanation"] is not None

        show("why on the bus", await timed(on_bus, waiting[:ASKED]), WHY_MS)
        show("GET .../explanation", await timed(over_http, waiting[ASKED : 2 * ASKED]), WHY_MS)
        show("GET /jobs?limit=100, one page after the other", await pages(session, f"{url}/jobs?limit=100"), PAGE_MS)
        show("GET /jobs?limit=500&namespace=...", await pages(session, f"{url}/jobs?limit=500&namespace=team-7"), PAGE_MS)
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load
        print(", ".join(f"{name} {rss_mib(pid):.0f} MiB" for name, pid in pids.items()))
        await headlines(world)


async def headlines(world: World) -> None:
    placed = {claim.job for claim in world.claims.values()}
    reclaimed = {id_ for id_, (code, _) in world.headlines.items() if code == CARDS_RECLAIMED}  # victims do not leave here
    left = {one.id for one in world.jobs} - placed - reclaimed
    began = perf_counter()
    nodes = [
        node(f"node-{i:05}", cards=CARDS, model="H100", memory_mib=1 << 20, cpu=128, generation=2, unschedulable=True)
        for i in range(NODES)
    ]
    await world.cluster(nodes, ())

    ages = [math.inf]
    while ages[-1] == math.inf and perf_counter() < began + 2 * HEADLINE_S:
        await asyncio.sleep(1.0)
        known = (world.headlines[id_] for id_ in left)
        ages = sorted(at - began if code == NODES_OUT_OF_SERVICE else math.inf for code, at in known)
    in_time = sum(age <= HEADLINE_S for age in ages) / len(ages)
    p50, p99 = (ages[math.ceil(share * len(ages)) - 1] for share in (0.5, 0.99))
    print(
        f"headlines of {len(ages):,} jobs after all nodes were cordoned: p50 {p50:.1f} s, p99 {p99:.1f} s, all {ages[-1]:.1f} s"
    )
    report(f"headlines at most {HEADLINE_S:.0f} s old", 100 * in_time, "%", 100 * HEADLINE_SHARE, least=True)


async def ends(world: World, chosen: random.Random) -> None:
    """Pods end; until cancelled."""
    while True:
        await world.end(PodUid(chosen.choice(list(world.claims))))
        await asyncio.sleep(1 / ENDS_PER_S)


async def timed(ask: Callable[[Job], Awaitable[bool]], jobs: Sequence[Job]) -> list[float]:
    """Milliseconds of each question about a job that waits, in ascending order."""
    took = []
    for one in jobs:
        began = perf_counter()
        if await ask(one):
            took.append(1000 * (perf_counter() - began))
    return sorted(took)


async def pages(session: aiohttp.ClientSession, url: str) -> list[float]:
    took, cursor = list[float](), ""
    while len(took) < PAGES:
        began = perf_counter()
        found = await fetched(session, f"{url}&continue={cursor}" if cursor else url)
        took.append(1000 * (perf_counter() - began))
        cursor = found["metadata"]["continue"]
    return sorted(took)


async def fetched(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        text = await answer.text()
        if answer.status != 200:
            raise SystemExit(f"{url}: {answer.status} {text[:300]}")
        return json.loads(text)


async def until_served(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)


def show(what: str, took: Sequence[float], limit: float) -> None:
    def at(share: float) -> float:
        return took[max(0, math.ceil(share * len(took)) - 1)]

    report(f"{what}, {len(took)} times: p99", at(0.99), "ms", limit, least=False)
    print(f"{'':4}p50 {at(0.5):.0f}, p90 {at(0.9):.0f}, longest {took[-1]:.0f} ms")


def main() -> None:
    collect_seldom()  # as services do
    print(
        f"{NODES:,} nodes, {NODES * CARDS:,} cards in use, {WAITING:,} jobs wait; this machine had a load of {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        asyncio.run(measure(Path(scratch)))
