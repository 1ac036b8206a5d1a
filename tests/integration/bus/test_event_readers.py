"""Readers of public events on a closed broker, by nats-server itself: a durable consumer of each of the reader's queues, and of no other queue."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, EmbeddedServer
from hbox_common.bus.micro import inbox_of
from hbox_common.bus.users import ADMIN, ALL_QUEUES, consumer_of, events_of, read_only, users
from hbox_common.events import JobPlaced, JobPlacement, NodeDrain, NodeDrained
from hbox_common.model import JobId, NodeName, QueueName

READERS = {"grafana": ["ml", "team.a"], "slurm": ["batch"], "ops": [ALL_QUEUES]}
STREAM = "HBOX_CLOUDEVENTS"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    others = {name: read_only(name, queues) for name, queues in READERS.items()}
    keys = keep(tmp_path / "users", (*users(), *others))
    async with EmbeddedServer(tmp_path / "nats", keys=keys, readers=others) as running:
        access = Access(seed=tmp_path / "users" / f"{ADMIN}.nk")
        async with Bus.connect(running.url, name=ADMIN, instance="1", access=access) as bus:
            for queue in ("ml", "team.a", "batch"):
                data = JobPlacement(job=JobId(f"j-{queue}"), namespace="n", name="train", queue=QueueName(queue), attempt=1)
                event = JobPlaced.of(data, at=1.0, id=f"j-{queue}.1.placed")
                await bus.publish(event, *event.keys)
            drained = NodeDrained.of(NodeDrain(node=NodeName("n1"), uid="u"), at=1.0, id="ledger-1-1")
            await bus.publish(drained, *drained.keys)
            yield running


@asynccontextmanager
async def client_of(server: EmbeddedServer, folder: Path, name: str) -> AsyncIterator[Client]:
    seed = str(folder / "users" / f"{name}.nk")

    async def ignore(_: Exception) -> None: ...

    client = await nats.connect(server.url, nkeys_seed=seed, inbox_prefix=inbox_of(name).encode(), error_cb=ignore)
    yield client
    await client.close()


async def create(client: Client, name: str, filter_: str | None, *, subject_filter: str | None = None, **config: Any) -> str:
    """Sends the request as clients do; returns the answer's error, "refused" by the broker, or nothing."""
    subject = f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}" + (f".{filter_}" if subject_filter is None and filter_ else "")
    subject += f".{subject_filter}" if subject_filter else ""
    wanted = {"name": name, "durable_name": name, "ack_policy": "explicit", "deliver_policy": "all", **config}
    wanted |= {"filter_subject": filter_} if filter_ else {}
    request = json.dumps({"stream_name": STREAM, "config": wanted, "action": ""}).encode()
    try:
        answer = json.loads((await client.request(subject, request, timeout=0.3)).data)
    except (TimeoutError, nats.errors.TimeoutError):
        return "refused"
    return str(answer.get("error", {}).get("description", ""))


async def read(client: Client, consumer: str) -> list[str]:
    subscription = await client.jetstream().pull_subscribe_bind(consumer, STREAM)
    found = []
    try:
        while True:
            for message in await subscription.fetch(10, timeout=0.3):
                found.append(json.loads(message.data)["id"])
                await message.ack_sync()
    except (TimeoutError, nats.errors.TimeoutError):
        return found


@pytest.mark.parametrize("queue", ["ml", "team.a"])
async def test_a_reader_creates_a_durable_consumer_of_its_queue_and_resumes_it(
    server: EmbeddedServer, tmp_path: Path, queue: str
) -> None:
    name = consumer_of("grafana", queue)
    config = ConsumerConfig(name=name, durable_name=name, filter_subject=events_of(queue), ack_policy=AckPolicy.EXPLICIT)
    async with client_of(server, tmp_path, "grafana") as client:
        await client.jetstream().add_consumer(STREAM, config)
        assert await read(client, name) == [f"j-{queue}.1.placed"]
    async with client_of(server, tmp_path, "grafana") as client:
        await client.jetstream().add_consumer(STREAM, config)
        assert await read(client, name) == [], "a restarted consumer continues after its last acknowledgement"


async def test_a_reader_of_all_queues_reads_nodes_too(server: EmbeddedServer, tmp_path: Path) -> None:
    async with client_of(server, tmp_path, "ops") as client:
        assert not await create(client, "ops", "hbox.v2.event.>")
        assert await read(client, "ops") == ["j-ml.1.placed", "j-team.a.1.placed", "j-batch.1.placed", "ledger-1-1"]


async def test_a_reader_gets_no_consumer_of_another_queue_by_any_filter_or_name(server: EmbeddedServer, tmp_path: Path) -> None:
    own, ml, other = consumer_of("grafana", "ml"), events_of("ml"), events_of("batch")
    async with client_of(server, tmp_path, "grafana") as client:
        for name, filter_ in ((own, other), (own, "hbox.v2.event.>"), (own, ">"), (own, None), ("mine", ml),
                              (consumer_of("slurm", "batch"), ml), (consumer_of("grafana", "team.a"), ml)):  # fmt: skip
            assert await create(client, name, filter_) == "refused", (name, filter_)
        assert "did not match" in await create(client, own, other, subject_filter=ml)
        assert await create(client, own, None, subject_filter=ml)
        assert await create(client, own, None, subject_filter=ml, filter_subjects=[other])
        assert await create(client, own, None, subject_filter=ml, filter_subjects=[ml, other])
        assert not await create(client, own, ml)
        for request in (f"$JS.API.STREAM.INFO.{STREAM}", f"$JS.API.DIRECT.GET.{STREAM}", f"$JS.API.STREAM.MSG.GET.{STREAM}",
                        f"$JS.API.CONSUMER.INFO.{STREAM}.{consumer_of('slurm', 'batch')}", f"$JS.API.CONSUMER.NAMES.{STREAM}",
                        f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer_of('slurm', 'batch')}"):  # fmt: skip
            with pytest.raises((TimeoutError, nats.errors.TimeoutError)):
                await client.request(request, b"{}", timeout=0.2)


def test_names_of_consumers_of_different_readers_differ() -> None:
    names = [consumer_of("a", "b-c"), consumer_of("a-b", "c"), consumer_of("a-b-c"), consumer_of("a", "b_c"), consumer_of("a")]
    assert len(set(names)) == len(names)
