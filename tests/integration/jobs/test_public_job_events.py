"""Public events of jobs over a real broker: CloudEvents in JSON, complete and without new ids after kill -9, and on no subject of the old messages."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import nats
import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import JobPhaseChanged
from hbox_common.kube import MERGE_PATCH, PODS

from ...waiting import until
from .edge_world import Kube, listening, process

SCHEMAS = Path(__file__).parents[3] / "docs/reference/events"


@asynccontextmanager
async def collected(server: EmbeddedServer) -> AsyncIterator[list[dict[str, Any]]]:
    """All public events in the stream, as an external client reads them."""
    client = await nats.connect(server.url)
    found: list[dict[str, Any]] = []

    async def take(message: Any) -> None:
        assert message.headers["content-type"] == "application/cloudevents+json"
        event = json.loads(message.data)
        assert message.headers["Nats-Msg-Id"] == event["id"]
        found.append(event | {"_subject": message.subject})

    await client.jetstream().subscribe("hbox.v2.event.>", stream="HBOX_CLOUDEVENTS", cb=take, ordered_consumer=True)
    yield found
    await client.close()


async def stored(server: EmbeddedServer) -> list[dict[str, Any]]:
    """All public events that the stream has, each once: on a busy machine an ordered consumer may start again and deliver some twice."""
    client = await nats.connect(server.url)
    stream, context = "HBOX_CLOUDEVENTS", client.jetstream()
    last = (await context.stream_info(stream)).state.last_seq
    found = [json.loads((await context.get_msg(stream, number)).data or b"") for number in range(1, last + 1)]
    await client.close()
    return found


def of(events: list[dict[str, Any]], name: str) -> list[str]:
    return [event["type"].split(".")[3] for event in events if event["data"]["name"] == name]


async def runs(kube: Kube, name: str, phase: str = "Running") -> None:
    path = f"{PODS.path('default', name)}/status"
    await kube.client.json("PATCH", path, body={"status": {"phase": phase}}, content_type=MERGE_PATCH)


async def test_a_jobs_life_is_published_as_cloudevents_with_nodes_and_cards(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    await bus.ensure_streams()
    with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
        async with collected(nats) as events:
            made = await kube.pod("a", requests={"nvidia.com/gpu": "1"})
            await kube.bind("a", "n1", **{"hbox.io/claim": "c0", "hbox.io/cards": "gpu:GPU-1:100:0"})
            await until(lambda: of(events, "a") == ["placed"])
            await runs(kube, "a")
            await until(lambda: of(events, "a") == ["placed", "started"])
            await kube.delete_pod("a")
            await until(lambda: of(events, "a") == ["placed", "started", "finished"])
    uid = made["metadata"]["uid"]
    assert [event["id"] for event in events] == [f"{uid}.1.{what}" for what in ("placed", "started", "finished")]
    assert [event["_subject"] for event in events] == [
        f"hbox.v2.event.job.{what}.default.{uid}" for what in ("placed", "started", "finished")
    ]
    for event in events:
        assert event["specversion"] == "1.0"
        assert event["source"] == "/hbox/job-controller"
        assert event["subject"] == f"queues/default/jobs/{uid}"
        schema = json.loads((SCHEMAS / f"{event['type'].removeprefix('io.hbox.')}.json").read_text())
        assert schema["$id"] == event["dataschema"]
        jsonschema.validate(event["data"], schema)
        [place] = event["data"]["nodes"]
        assert (place["node"], place["cards"], place["card_count"]) == ("n1", ["gpu:GPU-1"], 1)
    assert events[2]["data"]["code"] == "deleted"


async def test_a_killed_publisher_omits_no_event_and_repeats_none_with_a_new_id(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    """Pods that are bound, run and end, while job-controller is killed again and again."""
    await bus.ensure_streams()
    names = [f"p{number}" for number in range(12)]
    async with collected(nats) as events, asyncio.TaskGroup() as group:

        async def live(name: str, delay_s: float) -> None:
            await kube.pod(name)
            await asyncio.sleep(delay_s)
            await kube.bind(name, "n1")
            await asyncio.sleep(delay_s)
            await runs(kube, name)
            await asyncio.sleep(delay_s)
            await runs(kube, name, "Succeeded")

        for number, name in enumerate(names):
            group.create_task(live(name, 0.4 + 0.15 * number))
        for killed_after in (1, 8, 16):
            with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
                await until(lambda after=killed_after: len(events) >= after, timeout_s=60)  # type: ignore[misc]
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await until(lambda: all("finished" in of(events, name) for name in names), timeout_s=60)
    kept = await stored(nats)
    for name in names:
        assert of(kept, name) == ["placed", "started", "finished"], name
    assert len({event["id"] for event in kept}) == len(kept)


@pytest.mark.parametrize("type_", [JobPhaseChanged])
async def test_consumers_of_the_old_messages_receive_no_public_event(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, type_: Any
) -> None:
    await bus.ensure_streams()
    with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
        async with collected(nats) as events, listening(bus, type_) as old:
            await kube.pod("a")
            await kube.bind("a", "n1")
            await until(lambda: of(events, "a") == ["placed"])
            await until(lambda: [one.phase for one in old if isinstance(one, JobPhaseChanged)][-1:] == ["bound"])
    assert {one.about.stream for one in old} == {"HBOX_EVENTS"}


async def test_a_job_that_was_deleted_while_no_publisher_ran_is_finished(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    await bus.ensure_streams()
    async with collected(nats) as events:
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            for name in ("stays", "ends", "pending"):
                await kube.pod(name)
            for name in ("stays", "ends"):
                await kube.bind(name, "n1")
            await until(lambda: all(of(events, name) == ["placed"] for name in ("stays", "ends")))
        await kube.delete_pod("ends")
        await kube.delete_pod("pending")
        for _ in range(2):
            with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
                await until(lambda: of(events, "ends") == ["placed", "finished"])
                await kube.pod("later")
                await kube.bind("later", "n1")
                await until(lambda: of(events, "later") == ["placed"])
                await kube.delete_pod("later")
                await until(lambda: of(events, "later") == ["placed", "finished"])
                events[:] = [event for event in events if event["data"]["name"] != "later"]
    assert of(events, "stays") == ["placed"]
    assert of(events, "ends") == ["placed", "finished"]
    finished = events[-1]["data"]
    assert (finished["name"], finished["code"], finished["nodes"][0]["node"]) == ("ends", "deleted", "n1")
