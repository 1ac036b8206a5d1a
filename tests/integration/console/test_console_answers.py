"""What other services compute, public events, and streams of changes, by the client's rights."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from hbox_common.bus import Bus, Endpoint
from hbox_common.clock import wall_s
from hbox_common.events import (
    CloudEvent,
    Event,
    EvictedPod,
    EvictionReceipt,
    EvictionRule,
    JobEnd,
    JobEnding,
    JobFinished,
    JobPlaced,
    JobPlacement,
    JobRejected,
    JobRejection,
    JobsWaiting,
    JobVerdict,
    NodeDrain,
    NodeDrained,
    NodePlace,
    QueueReclaimed,
    Reclaim,
    Usage,
    UsageAsked,
    UsagePage,
    WaitsAttributed,
)
from hbox_common.events.explain import ExplainAnswer, ExplainRequest
from hbox_common.model import CardId, JobId, JobWait, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.explanation import Change, ChangeKind, Explanation, Outcome, Owner
from hbox_console.api import EventList, Evictions, ExplanationDocument, UsageList

from ...console_objects import a_claim, a_job, a_node
from ...waiting import until
from .conftest import World


@pytest.fixture
async def tenants(world: World) -> World:
    world.jobs = [a_job("ns-a", "alpha", queue="mine"), a_job("ns-b", "sekrit", queue="theirs", waiting=0, bound=0)]
    world.claims = [a_claim(world.jobs[1], node="n1")]
    await world.node(a_node("n1"))
    await world.two_tenants(used=2)
    return world


@asynccontextmanager
async def scheduler(world: World) -> AsyncIterator[list[ExplainRequest]]:
    """Explains every job by a queue that only operators may see."""
    asked: list[ExplainRequest] = []

    async def explain(request: ExplainRequest) -> ExplainAnswer:
        asked.append(request)
        changes = (
            Change(ChangeKind.PODS, Owner.USER, {"pods": 1}, "hbox set"),
            Change(ChangeKind.QUEUE, Owner.USER, {"queue": "theirs"}, "use queue theirs"),
        )
        found = Explanation(
            job=request.job, name="ns-a/alpha", queue=QueueName("mine"), outcome=Outcome.WAIT, code="CardsInUse", owner=Owner.SYSTEM,
            at=wall_s(), revision=1, facts={"queues": ("theirs", "mine"), "total": 8}, changes=changes,
        )  # fmt: skip
        return ExplainAnswer(explanation=found)

    async with world.scheduler(Endpoint("explain", "why", ExplainRequest, ExplainAnswer, explain)):
        yield asked


async def test_an_explanation_names_no_queue_of_others(tenants: World) -> None:
    async with tenants.running() as world, scheduler(world) as asked:
        status, found, _ = await world.ask("/api/v1/jobs/ns-a/alpha/explanation")
        assert status == 200, found
        ExplanationDocument.model_validate(found)
        item = found["explanation"]
        assert (item["code"], item["facts"]["queues"]) == ("CardsInUse", ["(another queue)", "mine"])
        assert [change["kind"] for change in item["changes"]] == ["pods"], "the other one it may not make"
        assert "theirs" not in json.dumps(found)
        await world.ask("/api/v1/jobs/ns-a/alpha/explanation", user="root:system:masters")
        assert len(asked) == 1, "one answer serves all who ask within seconds"
        assert (await world.ask("/api/v1/jobs/ns-b/sekrit/explanation"))[0] == 403


async def test_an_explanation_needs_a_scheduler(tenants: World) -> None:
    async with tenants.running() as world:
        status, body, _ = await world.ask("/api/v1/jobs/ns-a/alpha/explanation")
        assert (status, body["code"]) == (503, "unavailable")


async def test_a_share_has_siblings_without_names(tenants: World) -> None:
    async with tenants.running() as world:
        status, found, _ = await world.ask("/api/v1/share?queue=mine")
        assert status == 200, found
        assert (found["kind"], found["name"], found["used"]) == ("QueueShare", "mine", 2)
        assert "(another queue)" in [one["name"] for one in found["levels"][0]["siblings"]]
        assert "theirs" not in json.dumps(found)
        assert (await world.ask("/api/v1/share?queue=theirs"))[0] == 403
        assert (await world.ask("/api/v1/share"))[0] == 400


async def test_usage_of_others_is_one_sum(tenants: World) -> None:
    async def answer(asked: UsageAsked) -> AsyncIterator[Event]:
        rows = [("mine", "ns-a", 3_600_000), ("theirs", "ns-b", 7_200_000), ("more", "ns-c", 3_600_000)]
        yield UsagePage(
            usage=tuple(
                Usage(queue=QueueName(queue), user=user if "user" in asked.by else "", own=own, borrowed=0, idle=0)
                for queue, user, own in rows
            )
        )

    ledger = asyncio.create_task(tenants.bus.serve(UsageAsked, answer))
    async with tenants.running() as world:
        _, found, _ = await world.ask("/api/v1/usage")
        UsageList.model_validate(found)
        assert {item["name"]: item["cardHours"] for item in found["items"]} == {"others": 3.0, "mine": 1.0}
        _, found, _ = await world.ask("/api/v1/usage?by=user")
        assert {item["name"]: item["cardHours"] for item in found["items"]} == {"others": 3.0, "ns-a": 1.0}
        assert (await world.ask("/api/v1/usage?since=tomorrow"))[0] == 400
    ledger.cancel()


async def _publish(world: World, service: str, event: Event, *keys: str) -> None:
    async with Bus.connect(world.nats.url, name=service, instance="test") as bus:
        await bus.publish(event, *keys)


def _placed(namespace: str, name: str, queue: str) -> JobPlaced:
    data = JobPlacement(
        job=JobId(f"id-{namespace}-{name}"), namespace=namespace, name=name, queue=QueueName(queue), attempt=1,
        nodes=(NodePlace(node=NodeName("n1"), pods=1, cards=(CardId("gpu:1"),), card_count=1),), node_count=1, pod_count=1, card_count=1,
    )  # fmt: skip
    return JobPlaced.of(data, at=5.0, id=f"placed/{name}")


async def test_events_are_those_of_the_clients_jobs_and_queues(tenants: World) -> None:
    mine, theirs = _placed("ns-a", "alpha", "mine"), _placed("ns-b", "sekrit", "theirs")
    rejected = JobRejected.of(
        JobRejection(
            job=JobId("id-ns-a-alpha"), namespace="ns-a", name="alpha", queue=QueueName("mine"), code="Invalid",
            message="ns-b/sekrit has it",
        ), at=6.0, id="rejected",
    )  # fmt: skip
    reclaims = [
        QueueReclaimed.of(
            Reclaim(queue=QueueName(queue), job=JobId("gone"), namespace="ns-z", name="gone", plan=PlanId("p")),
            at=7.0,
            id=queue,
        )
        for queue in ("mine", "theirs")
    ]
    drained = NodeDrained.of(NodeDrain(node=NodeName("n1"), uid="u", cordoned_by="root"), at=8.0, id="drained")
    published: list[tuple[str, CloudEvent]] = [("job-controller", one) for one in (mine, theirs, rejected)]
    published += [("quota-ledger", one) for one in (*reclaims, drained)]
    async with tenants.running() as world:
        for service, event in published:
            await _publish(world, service, event, *event.keys)
        assert world.console is not None
        history = world.console.history
        await until(lambda: len(history.events) == 6)
        _, found, _ = await world.ask("/api/v1/events")
        EventList.model_validate(found)
        placed, refused, reclaimed = found["items"]
        assert placed == mine.attributes()
        assert refused["data"]["message"] == "(another job) has it"
        assert (refused["type"], refused["data"]["name"]) == ("io.hbox.job.rejected.v1", "alpha")
        assert (reclaimed["type"], reclaimed["data"]["queue"]) == ("io.hbox.queue.reclaimed.v1", "mine")
        assert (reclaimed["data"]["namespace"], reclaimed["data"]["name"]) == ("(another namespace)", "(another job)")
        assert not {word for word in ("sekrit", "theirs", "ns-b", "ns-z") if word in json.dumps(found)}
        cursor = found["metadata"]["continue"]
        assert (await world.ask(f"/api/v1/events?continue={cursor}"))[1]["items"] == []
        _, first, _ = await world.ask("/api/v1/events?limit=1")
        _, rest, _ = await world.ask(f"/api/v1/events?continue={first['metadata']['continue']}")
        assert first["items"] + rest["items"] == found["items"]
        _, every, _ = await world.ask("/api/v1/events", user="root:system:masters")
        assert every["items"] == [event.attributes() for _, event in published]


async def test_code_of_an_event_stays_if_a_pod_of_others_has_its_name(tenants: World) -> None:
    """A client that reads events by their schema rejects another code."""
    tenants.jobs.append(a_job("ns-b", "succeeded", queue="theirs"))
    data = JobEnding(
        job=JobId("id-ns-a-alpha"), namespace="ns-a", name="alpha", queue=QueueName("mine"), attempt=1, code=JobEnd.SUCCEEDED
    )
    finished = JobFinished.of(data, at=5.0, id="finished")
    async with tenants.running() as world:
        await _publish(world, "job-controller", finished, *finished.keys)
        assert world.console is not None
        history = world.console.history
        await until(lambda: len(history.events) == 1)
        _, found, _ = await world.ask("/api/v1/events")
        assert found["items"] == [finished.attributes()]


async def test_receipts_of_evictions_name_nobody_else(tenants: World) -> None:
    async with tenants.running() as world:
        receipt = EvictionReceipt(
            job=JobId("id-ns-a-alpha"), namespace="ns-a", queue=QueueName("mine"), rule=EvictionRule.RECLAIM,
            pods=(EvictedPod(pod="alpha-0", pod_uid=PodUid("u"), node=NodeName("n1")),), for_job=JobId("id-gone"),
            for_namespace="ns-z", for_name="gone", for_queue=QueueName("theirs"), pods_kept=0, cards_kept=0,
            message="ns-z/gone of queue theirs takes its place", returns="when cards are free", at=6.0,
        )  # fmt: skip
        await _publish(world, "quota-ledger", receipt, receipt.queue, receipt.job)
        assert world.console is not None
        history = world.console.history
        await until(lambda: len(history.receipts) == 1)
        _, receipts, _ = await world.ask("/api/v1/evictions")
        Evictions.model_validate(receipts)
        assert receipts["items"][0]["message"] == "(another job) of queue (another queue) takes its place"
        assert receipts["items"][0]["for"]["name"] == "(another job)"
        assert not {word for word in ("theirs", "ns-z") if word in json.dumps(receipts)}


async def test_explanation_has_the_waiting_of_the_job_by_code(tenants: World) -> None:
    wait = JobWait(tenants.jobs[0].id, seconds={"CardsInUse": 480.0})
    await _publish(tenants, "job-controller", WaitsAttributed(waits=(wait,)), "0")
    async with tenants.running() as world, scheduler(world):
        _, found, _ = await world.ask("/api/v1/jobs/ns-a/alpha/explanation")
        assert found["explanation"]["attribution"] == {"CardsInUse": 480.0}


async def _lines(stream: aiohttp.ClientResponse, count: int) -> list[tuple[str, str, dict[str, object]]]:
    """Events: id, kind, data."""
    found: list[tuple[str, str, dict[str, object]]] = []
    fields: dict[str, str] = {}
    async with asyncio.timeout(10):
        async for raw in stream.content:
            line = raw.decode().rstrip("\n")
            if line:
                key, _, value = line.partition(": ")
                fields[key] = value
            elif "data" in fields:
                found.append((fields["id"], fields["event"], json.loads(fields["data"])))
                fields = {}
                if len(found) == count:
                    break
    return found


async def test_a_stream_has_changes_of_visible_objects_and_resumes(tenants: World) -> None:
    async with tenants.running() as world:
        header = {"Authorization": "Bearer sandbox:anna"}
        url = f"{world.url}/api/v1/watch"

        async def verdict(message: str) -> None:
            verdicts = tuple(JobVerdict(job=job.id, message=message) for job in world.jobs)
            await world.bus.publish(JobsWaiting(verdicts=verdicts), "0")

        async with world.session.get(url, headers=header) as stream:
            await verdict("one")
            [(id_, kind, data)] = await _lines(stream, 1)
            assert (kind, data["name"], data["object"]["reason"]) == ("Job", "ns-a/alpha", "one")  # type: ignore[index]
        await verdict("two")
        assert world.console is not None
        model = world.console.model
        await until(lambda: model.job_item(world.jobs[0].id, now=0.0)["reason"] == "two")
        async with world.session.get(url, headers={**header, "Last-Event-ID": id_}) as stream:
            [(_, _, data)] = await _lines(stream, 1)
            assert data["object"]["reason"] == "two"  # type: ignore[index]
        async with world.session.get(url, headers={**header, "Last-Event-ID": "other.7"}) as stream:
            [(_, kind, _)] = await _lines(stream, 1)
            assert kind == "reset"
        assert (await world.ask("/api/v1/watch?kind=Pod"))[0] == 400


async def test_streams_are_limited(tenants: World) -> None:
    header = {"Authorization": "Bearer sandbox:anna"}
    async with tenants.running(watches=1) as world, world.session.get(f"{world.url}/api/v1/watch", headers=header) as stream:
        assert stream.status == 200
        assert (await world.ask("/api/v1/watch"))[0] == 503
