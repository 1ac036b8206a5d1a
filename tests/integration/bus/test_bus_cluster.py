"""Three brokers that keep each stream together: one at a time they are killed, lose their disk, or fall back; all at once they are killed too."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer, Routes, Start
from hbox_common.bus.errors import StreamApiError
from hbox_common.bus.metrics import REPLICA_BEHIND
from hbox_common.errors import Unavailable
from hbox_common.events import JobsWithdrawn, QueueRefused, Stream
from hbox_common.ports import reserved

from ...certificates import OPENSSL, as_secret, make_certificates
from ...waiting import until
from .bus_world import Reader, job, lasting, running

SERVERS = 3
WRITERS = 4
#: Between two messages of a writer while the servers find together again; before and in a fault there is no pause.
CALM_S = 0.1

#: For three to find a leader again on a busy machine; an election takes 4 to 9 s of it.
SOON_S = 60.0


class Cluster(list[EmbeddedServer]):
    routes: Sequence[str] = ()

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self)

    async def start(self, *servers: EmbeddedServer) -> None:
        await asyncio.gather(*(server.start() for server in servers))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        routes = [f"127.0.0.1:{port}" for port in stack.enter_context(reserved(SERVERS))]
        # Each other they know by certificates too, where some can be made.
        tls = as_secret(make_certificates(tmp_path), tmp_path / "tls") if OPENSSL else None
        servers = Cluster(
            EmbeddedServer(tmp_path / f"nats-{n}", routes=Routes(listen, routes, "s3cret", tls))
            for n, listen in enumerate(routes)
        )
        servers.routes = routes
        await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        yield servers


@pytest.fixture
async def clustered(cluster: Cluster) -> AsyncIterator[Bus]:
    async with Bus.connect(cluster.url, name="test", instance="1", replicas=SERVERS) as bus:
        yield bus


async def current(bus: Bus) -> bool:
    """Whether each of them has all of each stream: before that nobody should take another away."""
    try:
        found = [(await bus._connection.api(f"STREAM.INFO.{stream.value}"))["cluster"] for stream in Stream]
    except (Unavailable, StreamApiError):
        return False
    return all(one.get("leader") and all(replica["current"] for replica in one["replicas"]) for one in found)


async def kill_one(cluster: Cluster, rng: random.Random) -> None:
    server = rng.choice(cluster)
    await server.kill()
    await asyncio.sleep(rng.uniform(0.0, 0.5))
    await server.start()


async def wipe_one(cluster: Cluster, rng: random.Random) -> None:
    server = rng.choice(cluster)
    await server.kill()
    shutil.rmtree(server.store)
    await server.start()


async def roll_one_back(cluster: Cluster, rng: random.Random) -> None:
    server, old = rng.choice(cluster), cluster[0].folder.parent / "old"
    shutil.rmtree(old, ignore_errors=True)
    await server.kill()
    shutil.copytree(server.store, old)
    await server.start()
    await asyncio.sleep(2.0)
    await server.kill()
    shutil.rmtree(server.store)
    shutil.copytree(old, server.store)
    await server.start()


async def kill_all(cluster: Cluster, rng: random.Random) -> None:
    await asyncio.gather(*(server.kill() for server in cluster))
    await asyncio.sleep(rng.uniform(0.0, 0.5))
    await cluster.start(*cluster)


async def test_nothing_that_was_stored_is_lost_or_doubled(cluster: Cluster, clustered: Bus) -> None:
    """Whatever becomes of one of them, and if all die at once."""
    bus, rng = clustered, random.Random(7)
    for stream in Stream:
        info = await bus._connection.api(f"STREAM.INFO.{stream.value}")
        assert len(info["cluster"]["replicas"]) == SERVERS - 1
    consumed, followed, late = Reader(), Reader(), Reader()
    sent: list[str] = []
    gaps: list[str] = []
    stop = asyncio.Event()
    pause_s = 0.0

    async def gap() -> None:
        gaps.append("gap")

    async def write(writer: int) -> None:
        while not stop.is_set():
            name = f"{writer}/{len(sent)}"
            sent.append(name)
            await bus.publish(lasting(name), "q", timeout_s=SOON_S)
            await asyncio.sleep(pause_s)

    consume = bus.consume("reader", [QueueRefused], consumed, ack_wait_s=1.0)
    async with running(consume, bus.follow([QueueRefused], followed, start=Start.ALL, on_gap=gap)):
        async with asyncio.TaskGroup() as writers:
            for writer in range(WRITERS):
                writers.create_task(write(writer))
            for fault in (kill_one, wipe_one, kill_one, roll_one_back, kill_all):
                pause_s, before = 0.0, len(followed.names)
                await until(lambda before=before: len(followed.names) > before + 50, timeout_s=SOON_S)  # type: ignore[misc]
                await fault(cluster, rng)
                pause_s = CALM_S
                await until(lambda: current(bus), timeout_s=SOON_S)
            before = len(followed.names)
            await until(lambda: len(followed.names) > before + 50, timeout_s=SOON_S)
            stop.set()
        await until(lambda: len(followed.names) >= len(sent), timeout_s=SOON_S)
        await until(lambda: set(consumed.names) >= set(sent), timeout_s=SOON_S)
    async with running(bus.follow([QueueRefused], late, start=Start.ALL)):
        await until(lambda: len(late.names) >= len(sent), timeout_s=SOON_S)
    assert sorted(late.names) == sorted(sent), "each is stored once"
    assert len(consumed.names) == len(sent), "this process handles nothing twice"
    assert gaps or sorted(followed.names) == sorted(sent), "each once, unless it was told to begin anew"


async def test_who_follows_a_stream_in_memory_hears_that_it_is_gone_when_all_three_were_killed(
    cluster: Cluster, clustered: Bus
) -> None:
    """Nothing of it is on a disk. With one killed it goes on."""
    gaps: list[str] = []
    followed = Reader()

    async def gap() -> None:
        gaps.append("gap")

    async with running(clustered.follow([JobsWithdrawn], followed, start=Start.ALL, on_gap=gap)):
        await clustered.publish(job("first"), "0", timeout_s=SOON_S)
        await until(lambda: "first" in followed.names)
        await kill_one(cluster, random.Random(1))
        await clustered.publish(job("second"), "0", timeout_s=SOON_S)
        await until(lambda: followed.names == ["first", "second"], timeout_s=SOON_S)
        assert not gaps
        await kill_all(cluster, random.Random(1))
        await clustered.publish(job("third"), "0", timeout_s=SOON_S)
        await until(lambda: "third" in followed.names, timeout_s=SOON_S)
        assert gaps


async def test_metrics_name_the_broker_that_is_missing_until_it_is_back(cluster: Cluster, clustered: Bus) -> None:
    def behind() -> dict[str, float]:
        found = [sample for family in REPLICA_BEHIND.collect() for sample in family.samples]
        return {s.labels["broker"]: s.value for s in found if s.labels["stream"] == Stream.EVENTS.value}

    async def nothing(_: object) -> None: ...

    async with running(clustered.follow([QueueRefused], nothing, start=Start.NEW)):
        names = {server._name for server in cluster}
        await until(lambda: behind() == dict.fromkeys(names, 0.0), timeout_s=SOON_S)
        await cluster[1].kill()
        await until(lambda: behind() == {name: float(name == cluster[1]._name) for name in names}, timeout_s=SOON_S)
        await cluster[1].start()
        await until(lambda: behind() == dict.fromkeys(names, 0.0), timeout_s=SOON_S)


async def test_a_stranger_is_no_server_of_it(cluster: Cluster, clustered: Bus, tmp_path: Path) -> None:
    """Not without the password; nor with fewer than a majority is anything stored."""
    with reserved(1) as [port]:
        tls = tmp_path / "tls"
        routes = Routes(f"127.0.0.1:{port}", cluster.routes, password="guessed", tls=tls if tls.exists() else None)
        stranger = EmbeddedServer(tmp_path / "stranger", routes=routes)
        async with stranger:
            await asyncio.sleep(2.0)
            log = (tmp_path / "stranger" / "nats-server.log").read_text()
            assert "Authorization Violation" in log or "authentication error" in log.lower()
    for server in cluster[1:]:
        await server.kill()
    with pytest.raises(Unavailable):
        await clustered.publish(lasting("alone"), "q", timeout_s=3.0)
    await cluster.start(*cluster[1:])
    await clustered.publish(lasting("together"), "q", timeout_s=SOON_S)
