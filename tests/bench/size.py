"""A cluster of 100,000 pods and 10,000 nodes: cost of the first lists in the services that read Kubernetes, longest hold of the ledger's lock during its
comparison with all pods, and whether a burst of 100,000 jobs fits the stream.

Run it as `python -m tests.bench size`; `HBOX_BENCH_SIZE=0.1` uses a tenth. The API server is generated (`many_objects`); services are separate processes.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import clock_gettime, perf_counter, pthread_getcpuclockid, thread_time, time
from urllib.request import Request, urlopen

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.errors import HBoxError
from hbox_common.events import JobsAsked, JobsPage, JobsPending, NodeStateChanged, Stream
from hbox_common.model import ClaimId, JobId, NodeName, PodFact, PodPhase, PodUid
from hbox_common.runtime import collect_seldom
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay

from .ledger import LEAVES, Nowhere, node_of, queues

SIZE = float(os.environ.get("HBOX_BENCH_SIZE", "1"))
PODS, NODES = int(100_000 * SIZE), int(10_000 * SIZE)
LONGEST_HOLD_MS = 100.0  #: limit: of the ledger's lock, in a comparison
PATIENCE_S = 600.0
LOOK_S = 0.2


@contextmanager
def api_server(folder: Path, *, nodes: int, pods: int) -> Iterator[tuple[Path, str]]:
    """(kubeconfig, address) of the made-up API server."""
    command = [sys.executable, "-m", "tests.bench.many_objects", "--nodes", str(nodes), "--pods", str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{process.stdout.readline().split()[1]}"
            named = {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}
            contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
            content = {"apiVersion": "v1", "kind": "Config", **named, "contexts": contexts, "current-context": "x"}
            (folder / "kubeconfig").write_text(json.dumps(content))
            yield folder / "kubeconfig", url
        finally:
            process.kill()


@contextmanager
def service(
    module: str, kubeconfig: Path, nats_url: str, log: Path, settings: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Its pid. `settings`: environment variables."""
    env = {**os.environ, "HBOX_KUBECONFIG": str(kubeconfig), "HBOX_NATS_URL": nats_url, **(settings or {})}
    with log.open("ab") as out, subprocess.Popen([sys.executable, "-m", module], env=env, stdout=out, stderr=out) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def memory_mib(pid: int) -> tuple[float, float]:
    """(now, at its peak)."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


@asynccontextmanager
async def world(*, pods: int) -> AsyncIterator[tuple[Path, str, Bus, str, Path]]:
    """kubeconfig, address of the API server, bus, its address, folder."""
    with (
        tempfile.TemporaryDirectory(prefix="hbox-bench-") as name,
        api_server(Path(name), nodes=NODES, pods=pods) as (config, url),
    ):
        folder = Path(name)
        async with EmbeddedServer(folder / "nats") as nats, Bus.connect(nats.url, name="bench", instance="bench") as bus:
            yield config, url, bus, nats.url, folder


async def first_list() -> None:
    """job-controller, from its start to the first complete answer, and topology-collector to the last node said."""
    async with world(pods=PODS) as (config, _, bus, nats_url, folder):
        begin = perf_counter()
        with service("hbox_jobs", config, nats_url, folder / "log") as pid:
            facts = await _complete(bus, begin, folder)
            took = perf_counter() - begin
            now, peak = memory_mib(pid)
            print(
                f"job-controller, first list of {PODS:,} pods: {took:.1f} s, {facts:,} told, peak {peak:.0f} MiB, {now:.0f} MiB after it"
            )
            blocks = Blocks()
            begin = perf_counter()
            await _complete(bus, begin, folder)
            blocks.end()
            print(
                f"who asks for all of them, as quota-ledger does: {perf_counter() - begin:.1f} s, loop blocked for {1000 * blocks.longest_s:.0f} ms"
            )
        seen: set[str] = set()

        async def hear(deliveries: Sequence[Delivery]) -> None:
            seen.update(d.event.node.name for d in deliveries if isinstance(d.event, NodeStateChanged))

        begin = perf_counter()
        async with _following(bus, [NodeStateChanged], hear):
            with service("hbox_topology", config, nats_url, folder / "log") as pid:
                await _until(lambda: len(seen) >= NODES, begin)
                now, peak = memory_mib(pid)
                took = perf_counter() - begin
                print(
                    f"topology-collector, first list of {NODES:,} nodes: {took:.1f} s, peak {peak:.0f} MiB, {now:.0f} MiB after it"
                )


async def burst() -> None:
    """As many jobs at once as there were pods: what the stream of jobs keeps of them, and what a reader beside it gets."""
    async with world(pods=0) as (config, url, bus, nats_url, folder):
        seen: set[str] = set()
        gaps = 0

        async def hear(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                assert isinstance(delivery.event, JobsPending)
                seen.update(job.id for job in delivery.event.jobs)

        async def gap() -> None:
            nonlocal gaps
            gaps += 1

        with service("hbox_jobs", config, nats_url, folder / "log") as pid:
            await _complete(bus, perf_counter(), folder)
            async with _following(bus, [JobsPending], hear, gap):
                before = memory_mib(pid)[0]
                begin = perf_counter()
                await asyncio.to_thread(lambda: urlopen(Request(f"{url}/burst?pods={PODS}", method="POST"), timeout=30).read())
                await _until(lambda: len(seen) >= PODS, begin)
                took = perf_counter() - begin
                now, peak = memory_mib(pid)
                info = await bus._connection.api(f"STREAM.INFO.{Stream.JOBS.value}")
                state, limit = info["state"], info["config"]["max_bytes"]
                print(
                    f"burst of {PODS:,} jobs: said within {took:.1f} s, job-controller {before:.0f} -> {now:.0f} MiB (peak {peak:.0f}); "
                    f"{Stream.JOBS.value}: {state['last_seq']:,} messages, {state['bytes'] / 2**20:.1f} of {limit / 2**20:.0f} MiB, "
                    f"first kept {state['first_seq']:,}; the reader has {len(seen):,} jobs and was told of {gaps} gaps"
                )


async def comparison() -> None:
    """The ledger's books of as many claims against as many pods: the first, which opens them, and one of every minute."""
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as folder:
        url = f"sqlite:///{folder}/ledger.db"
        async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
            relay = Relay(store, Nowhere())
            ledger = await Ledger.begin(store, relay, clock=time)
            for number in range(NODES):
                ledger.node(node_of(number))
            for queue in queues():
                await ledger.set_queues(queue)
            facts = [_fact(number) for number in range(PODS)]
            relaying = asyncio.create_task(relay.run())
            for what in ("first comparison, all of it news", "comparison of every minute"):
                hold = Hold(ledger)
                begin = perf_counter()
                await ledger.reconcile(facts, as_of=ledger.index)
                took = perf_counter() - begin
                hold.end()
                print(f"ledger, {what}: {PODS:,} pods in {took:.2f} s; {hold.summary()}")
            relaying.cancel()
            await asyncio.wait([relaying])


class Blocks:
    """Measures for how long the event loop does nothing else."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            before = perf_counter()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, perf_counter() - before - 0.001)

    def end(self) -> None:
        self._ticking.cancel()


class Hold:
    """Measures how long the ledger's lock is held at a time, by the clock and in processor time of its two threads, and how long its event loop does nothing
    else."""

    def __init__(self, ledger: Ledger) -> None:
        self._holds_s: list[float] = []
        self._busy_s: list[float] = []
        self._since, self._used, self._blocks = 0.0, 0.0, Blocks()
        lock, writer = ledger._lock, pthread_getcpuclockid(ledger._store._thread.ident or 0)
        acquire, release = lock.acquire, lock.release

        async def timed_acquire() -> bool:
            done = await acquire()
            self._since, self._used = perf_counter(), thread_time() + clock_gettime(writer)
            return done

        def timed_release() -> None:
            self._holds_s.append(perf_counter() - self._since)
            self._busy_s.append(thread_time() + clock_gettime(writer) - self._used)
            release()

        lock.acquire, lock.release = timed_acquire, timed_release  # type: ignore[assignment,method-assign]
        self._lock = lock

    def end(self) -> None:
        self._blocks.end()
        del self._lock.acquire, self._lock.release

    def summary(self) -> str:
        """The longest hold, with the limit beside it."""
        held = sorted(1000 * hold_s for hold_s in self._holds_s)
        return (
            f"lock held for {held[-1]:.0f} ms at a time (limit {LONGEST_HOLD_MS:.0f}; p50 {held[len(held) // 2]:.0f}, p99 "
            f"{held[len(held) * 99 // 100]:.0f}, {sum(one > LONGEST_HOLD_MS for one in held)} of {len(held)} above it), "
            f"{1000 * max(self._busy_s):.0f} ms of processor at most, {sum(self._busy_s):.1f} s in all; loop blocked for {1000 * self._blocks.longest_s:.0f} ms"
        )


def _fact(number: int) -> PodFact:
    uid = PodUid(f"00000000-0000-4000-8000-{number:012d}")
    return PodFact(
        uid=uid, namespace="research", name=f"train-{number}", phase=PodPhase.RUNNING, node=NodeName(f"n{number % NODES}"), job=JobId(uid),
        queue=LEAVES[number % len(LEAVES)], priority=0, requests={"cpu": 8000, "memory": 65_536, "pods": 1}, cards=0, slices=(),
        claim=ClaimId(f"{number:032x}"), ours=True, resource_version="1",
    )  # fmt: skip


@asynccontextmanager
async def _following(bus: Bus, types: list[type], hear: object, on_gap: object = None) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bus.follow(types, hear, start=Start.ALL, on_gap=on_gap))  # type: ignore[arg-type]
        yield
        task.cancel()


async def _complete(bus: Bus, begin: float, folder: Path) -> int:
    """Waits for the first answer that is complete; how many pods with a node it has."""
    while perf_counter() - begin < PATIENCE_S:
        try:
            pages = await bus.ask(JobsAsked(asker="bench", jobs=False, pods=True), JobsPage, timeout_s=60)
        except HBoxError:
            pages = []
        if pages and all(page.complete for page in pages):
            return sum(len(page.pods) for page in pages)
        await asyncio.sleep(LOOK_S)
    raise SystemExit("job-controller never answered with all pods: " + (folder / "log").read_text()[-2000:])


async def _until(condition: Callable[[], bool], begin: float) -> None:
    while not condition():
        if perf_counter() - begin > PATIENCE_S:
            raise SystemExit("it never came about")
        await asyncio.sleep(LOOK_S)


def main() -> None:
    collect_seldom()  # as services do
    for part in (first_list, burst, comparison):
        asyncio.run(part())
