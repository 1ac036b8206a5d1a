"""scheduler-core on a real broker. Its peers, job-controller and quota-ledger, are spoken for by the test, message by message."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import wall_s
from hbox_common.events import (
    IMAGE_SHARDS,
    ClaimsChanged,
    HealthVerdict,
    JobsPending,
    JobsWithdrawn,
    NodeImagesChanged,
    NodesMeasured,
    shard_of,
)
from hbox_common.model import (
    DEFAULT_QUEUE,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Generation,
    HeldImage,
    Index,
    JobId,
    MissingPods,
    Neighbour,
    NodeName,
    NodeUsage,
    PlanId,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    Selector,
    Verdict,
)
from hbox_common.model.consolidation import Mode
from hbox_common.model.devices.nvidia import GPU
from hbox_common.runtime import Health
from hbox_scheduler.app import SchedulerService
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.simulate import job, node
from hbox_scheduler.settings import SchedulerSettings

from ... import forked
from ...scheduler_peers import Peers
from ...waiting import until


@asynccontextmanager
async def running(*services: object) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(service.run()) for service in services]  # type: ignore[attr-defined]
    try:
        yield
        assert not [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def peers(nats: EmbeddedServer) -> AsyncIterator[Peers]:
    async with Bus.connect(nats.url, name="peers", instance="peers") as bus:
        yield Peers(bus)


@pytest.fixture
async def service(nats: EmbeddedServer) -> AsyncIterator[SchedulerService]:
    settings = SchedulerSettings(nats_url=nats.url, resend_after_s=0.3)
    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus:
        yield SchedulerService(settings, Health("scheduler-core"), bus)


async def test_jobs_known_before_the_start_and_jobs_that_come_later_are_planned(
    peers: Peers, service: SchedulerService
) -> None:
    await peers.cluster([node("n1", cards=8), node("n2", cards=8)])
    peers.jobs = [job("before", cards=8)]
    async with running(peers, service):
        await until(lambda: "before-0" in peers.claims, "the job that was there is planned")
        await until(lambda: "before-0" in peers.scores, "the score of its node is published")
        assert re.fullmatch(r"n1: score \S+, runner-up n2 with \S+", peers.scores["before-0"])
        await peers.submit(job("later", pods=2, cards=4))
        await until(lambda: len(peers.claims) == 3, "the job that came is planned")
        assert {claim.node for claim in peers.claims.values() if claim.job == "later"} == {"n2"}
        await until(lambda: service.scheduler.reports.outstanding() == [], "all plans are answered")


async def test_placed_jobs_are_read_again_until_job_controller_has_computed_all(nats: EmbeddedServer, peers: Peers) -> None:
    """It has not, right after its start, and no message announces jobs without pods to place. Pending jobs need not wait for it."""
    await peers.cluster([node("n1", cards=8)])
    before, peers.computed, peers.placed = job("before", cards=4), False, [job("before", cards=4)]
    claim = Claim(
        id=ClaimId("c"), pod_uid=before.tasks[0].pods[0].uid, namespace=before.namespace, pod="before-0", job=before.id,
        plan=PlanId("p"), queue=before.queue, priority=0, node=NodeName("n1"), requests=before.tasks[0].requests,
        slices=tuple(CardSlice(i, 100, 80_000) for i in range(4)), state=ClaimState.POSTED,
    )  # fmt: skip
    peers.claims[claim.pod_uid] = claim
    settings = SchedulerSettings(nats_url=nats.url, defragmentation=Mode.ON)
    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus:
        service = SchedulerService(settings, Health("scheduler-core"), bus)
        async with running(peers, service):
            await peers.submit(job("waits", cards=2))
            await until(lambda: "waits-0" in peers.claims, "a pending job is planned before all are computed")

            def unknown() -> int:
                reports = service.scheduler.reports
                return reports.defragmentation(reports.preview_moves()).unknown_pods

            assert unknown() == 1
            peers.computed = True
            await until(lambda: unknown() == 0, "the requests of the placed pod are known")
            count = peers.readings
            await peers.submit(job("later", cards=1))
            await until(lambda: "later-0" in peers.claims, "a job that comes later is planned")
            assert peers.readings == count, "it does not ask again"


async def test_a_job_that_does_not_fit_is_told_why_and_starts_when_a_node_comes(
    peers: Peers, service: SchedulerService
) -> None:
    await peers.cluster([node("n1", cards=2)])
    async with running(peers, service):
        await until(lambda: service.scheduler.frozen is False, "the books are read")
        await peers.submit(job("big", cards=8))
        await until(lambda: peers.waiting, "a verdict is said")
        assert (
            peers.waiting["big"] == "0/1 nodes are available: 1 NodeInsufficientDevice; no node has room for it even when empty"
        )
        await peers.cluster([node("n2", cards=8)])
        await until(lambda: "big-0" in peers.claims, "the job is planned on the new node")


async def test_a_refused_plan_is_made_anew(peers: Peers, service: SchedulerService) -> None:
    await peers.cluster([node("n1", cards=2)])
    peers.refuse = {"a"}
    async with running(peers, service):
        await peers.submit(job("a", cards=2))
        await until(lambda: "a-0" in peers.claims, "the second plan is accepted")
    assert len({plan.id for plan in peers.proposed}) == 2


async def test_a_plan_that_nobody_answered_is_sent_again_under_its_id(peers: Peers, service: SchedulerService) -> None:
    await peers.cluster([node("n1", cards=2)])
    peers.answering = False
    async with running(peers, service):
        await peers.submit(job("a", cards=2))
        await until(lambda: len(peers.proposed) >= 1, "it is proposed")
        peers.answering = True
        await until(lambda: "a-0" in peers.claims, "it is accepted in the end")
        await until(lambda: service.scheduler.reports.outstanding() == [], "and that is known")
    assert len({plan.id for plan in peers.proposed}) == 1


async def test_a_ledger_that_starts_anew_gets_new_plans_for_what_it_does_not_know(
    peers: Peers, service: SchedulerService
) -> None:
    await peers.cluster([node("n1", cards=2)])
    peers.answering = False
    async with running(peers, service):
        await peers.submit(job("a", cards=2))
        await until(lambda: peers.proposed, "it is proposed to the old epoch")
        first = peers.proposed[0].id
        peers.epoch, peers.index, peers.answering = Epoch(2), Index(0), True
        await peers.submit(job("b", cards=8))
        await peers._bus.publish(ClaimsChanged(epoch=Epoch(2), previous=Index(0), index=Index(1), claims=()), "0")
        peers.index = Index(1)
        await until(lambda: "a-0" in peers.claims, "it is proposed to the new one")
        assert peers.claims["a-0"].plan != first


async def test_nothing_is_planned_while_the_books_are_frozen(peers: Peers, service: SchedulerService) -> None:
    await peers.cluster([node("n1", cards=2)])
    peers.frozen = True
    peers.jobs = [job("a", cards=2)]
    async with running(peers, service):
        await until(
            lambda: service.scheduler.reports.entry(JobId("a")) is not None and service.scheduler.epoch == 1,
            "everything is read",
        )
        assert peers.proposed == []
        peers.frozen = False
        await until(lambda: "a-0" in peers.claims, "planned as soon as they are open")


async def test_the_change_with_which_the_books_open_is_enough_to_go_on(
    peers: Peers, service: SchedulerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_scheduler.adapters.feeds.FROZEN_AGAIN_S", 600.0)
    await peers.cluster([node("n1", cards=2)])
    peers.frozen = True
    peers.jobs = [job("a", cards=2)]
    async with running(peers, service):
        await until(lambda: service.scheduler.epoch == 1, "the frozen books are read")
        peers.frozen = False
        await peers._bus.publish(ClaimsChanged(epoch=Epoch(1), previous=Index(0), index=Index(0), claims=()), "0")
        await until(lambda: "a-0" in peers.claims, "planned as soon as they are open")


def running_pod(number: int) -> Claim:
    return Claim(
        id=ClaimId(f"c-{number}"),
        pod_uid=PodUid(f"running-{number}"),
        namespace="default",
        pod=f"running-{number}",
        job=JobId(f"running-{number}"),
        plan=PlanId(f"p-{number}"),
        queue=DEFAULT_QUEUE,
        priority=0,
        node=NodeName("n1"),
        requests={"cpu": 100},
        slices=(),
        state=ClaimState.POSTED,
    )


async def test_all_claims_are_read_once_more_when_the_ledger_opens_however_many_changes_it_publishes_before(
    peers: Peers, service: SchedulerService
) -> None:
    await peers.cluster([node("n1", cards=2)])
    peers.frozen = True
    peers.jobs = [job("a", cards=1)]
    async with running(peers, service):
        await until(lambda: service.scheduler.epoch == 1, "the frozen claims are read")
        for number in range(20):
            await peers.record(running_pod(number))
            await asyncio.sleep(0.05)
        await until(lambda: service.scheduler.index == peers.index, "the changes are applied")
        assert peers.claim_readings == 1
        peers.frozen = False
        await until(lambda: "a-0" in peers.claims, "planned as soon as it is open")
        assert peers.claim_readings == 2


async def test_an_unhealthy_node_gets_nothing(peers: Peers, service: SchedulerService) -> None:
    await peers.cluster([node("n1", cards=2), node("n2", cards=2)])
    await peers._bus.publish(
        HealthVerdict(verdict=Verdict(NodeName("n1"), Generation(1), healthy=False, reason="xid 79")), "n1"
    )
    async with running(peers, service):
        await peers.submit(job("a", cards=2), job("b", cards=2))
        await until(lambda: "a-0" in peers.claims and "b" in peers.waiting, "one is placed, one waits")
        assert peers.claims["a-0"].node == "n2"


async def test_planning_goes_on_after_the_broker_was_killed(
    nats: EmbeddedServer, peers: Peers, service: SchedulerService
) -> None:
    await peers.cluster([node("n1", cards=4)])
    async with running(peers, service):
        await peers.submit(job("a", cards=2))
        await until(lambda: "a-0" in peers.claims, "planned before")
        await nats.kill()
        await nats.start()
        await peers.submit(job("b", cards=2))
        await until(lambda: "b-0" in peers.claims, "planned after")


async def test_a_burst_is_planned_whole(peers: Peers, service: SchedulerService) -> None:
    await peers.cluster([node(f"n{i}", cards=8, cpu=96) for i in range(20)])
    async with running(peers, service):
        await peers.submit(*(replace(job(f"j{i}", cards=1), created_at=float(i)) for i in range(160)))
        await until(lambda: len(peers.claims) == 160, "every card is given away")
    taken = [(claim.node, s.index) for claim in peers.claims.values() for s in claim.slices]
    assert len(set(taken)) == 160


async def test_a_policy_written_while_it_runs_is_followed_and_a_wrong_one_is_told_in_its_health(
    nats: EmbeddedServer, peers: Peers, tmp_path: Path
) -> None:
    """b holds what a deserves: nobody has to leave until the policy has an action that takes it back."""
    path, health = tmp_path / "volcano-scheduler.conf", Health("scheduler-core")
    path.write_text(DEFAULT_CONF.replace(", reclaim, preempt, gangreclaim, gangpreempt", ""))
    settings = SchedulerSettings(nats_url=nats.url, scheduler_conf=path)
    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus:
        service = SchedulerService(settings, health, bus)
        await peers.cluster([node("n1", cards=2)], [Queue(QueueName(name), deserved={GPU: 1}) for name in ("a", "b")])
        async with running(peers, service):
            await peers.submit(*(replace(job(f"b{i}", cards=1, queue="b"), created_at=float(i)) for i in range(2)))
            await until(lambda: len(peers.claims) == 2, "b has all")
            await peers.submit(replace(job("a", cards=1, queue="a"), created_at=9.0))
            await until(lambda: "a" in peers.waiting, "a waits")
            path.write_text('actions: "allocate, take"')
            await until(lambda: health.condition("policy").message, "the wrong policy is told")
            assert health.condition("policy").good
            assert f"{path}: line 1, column 10: unknown action 'take'" in health.condition("policy").message
            assert not any(plan.victims for plan in peers.proposed)
            path.write_text(DEFAULT_CONF)
            await until(lambda: any(plan.victims for plan in peers.proposed), "a takes its share back")
            await until(lambda: not health.condition("policy").message, "all is well")


async def test_nodes_that_are_busy_take_nobody_until_they_are_measured_again(
    nats: EmbeddedServer, peers: Peers, tmp_path: Path
) -> None:
    """By the policy's plugin `usage`: both nodes at first, then n1 alone."""
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(DEFAULT_CONF + "  - name: usage\n")
    settings = SchedulerSettings(nats_url=nats.url, scheduler_conf=path)

    async def measure(n2: float) -> None:
        usages = (NodeUsage(NodeName("n1"), 99.0, 5.0, wall_s()), NodeUsage(NodeName("n2"), n2, 5.0, wall_s()))
        await peers._bus.publish(NodesMeasured(usages=usages), "0")

    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus:
        service = SchedulerService(settings, Health("scheduler-core"), bus)
        await peers.cluster([node(name, cards=2) for name in ("n1", "n2")])
        await measure(n2=99.0)
        async with running(peers, service):
            await peers.submit(job("a", cards=1))
            await until(lambda: "2 NodeCpuLoadHigh" in peers.waiting.get("a", ""), "it is told why it waits")
            await measure(n2=20.0)
            await until(lambda: "a-0" in peers.claims, "it is placed")
            assert peers.claims["a-0"].node == "n2"


async def test_a_pod_goes_where_its_image_is(nats: EmbeddedServer, peers: Peers, tmp_path: Path) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    plugins = ", ".join(f"{{name: {name}}}" for name in ("priority", "gang", "predicates", "nodeorder"))
    path.write_text(f'actions: "allocate"\ntiers:\n- plugins: [{plugins}]\n')
    settings = SchedulerSettings(nats_url=nats.url, scheduler_conf=path)
    image, one = "nvcr.io/nvidia/pytorch:24.01", job("a", cards=1)
    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus:
        service = SchedulerService(settings, Health("scheduler-core"), bus)
        await peers.cluster([node(name, cards=2) for name in ("n1", "n2", "n3")])
        held = HeldImage((image,), 20 << 30, (NodeName("n3"),))
        await peers._bus.publish(NodeImagesChanged(images=(held,)), shard_of(image, IMAGE_SHARDS))
        async with running(peers, service):
            await peers.submit(replace(one, tasks=tuple(replace(task, images=(image,)) for task in one.tasks)))
            await until(lambda: "a-0" in peers.claims, "it is placed")
            assert peers.claims["a-0"].node == "n3"


async def test_a_web_service_that_the_policy_names_is_asked_for_pods_that_have_to_do_with_others(
    nats: EmbeddedServer, peers: Peers, tmp_path: Path
) -> None:
    """It refuses both nodes at first, and n1 for good."""
    refused = {"n1": "no licence", "n2": "no licence"}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"failedNodes": refused})

    app, path = web.Application(), tmp_path / "volcano-scheduler.conf"
    app.router.add_post("/filter", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    extender = f"  - {{name: extender, arguments: {{extender.urlPrefix: '{url}', extender.predicateVerb: filter}}}}\n"
    path.write_text(DEFAULT_CONF + extender)
    settings = SchedulerSettings(nats_url=nats.url, scheduler_conf=path)
    apart = PodConstraints(anti_affinity=(PodTerm("kubernetes.io/hostname", Selector()),))
    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus:
        service = SchedulerService(settings, Health("scheduler-core"), bus)
        await peers.cluster([node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")])
        async with running(peers, service):
            await until(lambda: service.scheduler.frozen is False, "the books are read")
            neighbour = Neighbour(PodUid("a-0"), "default", {}, apart)
            await peers._bus.publish(JobsPending(jobs=(job("a"),), neighbours=(neighbour,)), "0")
            await until(lambda: "no licence" in peers.waiting.get("a", ""), "its words are told")
            del refused["n2"]
            await until(lambda: "a-0" in peers.claims, "it is asked again")
            assert peers.claims["a-0"].node == "n2"
    await runner.cleanup()


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [("HBOX_POLICY", "spread", "HBOX_POLICY = 'spread'"), ("HBOX_NATS_URL", "http://x", "must begin with nats://")],
)
async def test_a_wrong_setting_is_one_clear_line(setting: str, value: str, says: str, tmp_path: Path) -> None:
    err = tmp_path / "err"
    err.touch()
    async with asyncio.timeout(30):
        assert await forked.service("hbox_scheduler", env={**os.environ, setting: value}, err=err).wait() == 2
    said = err.read_text()
    assert says in said
    assert "Traceback" not in said


async def test_a_job_that_another_shard_is_told_of_is_no_longer_ours(peers: Peers, service: SchedulerService) -> None:
    """As where job-controller knows of shards, and this scheduler was started before."""
    peers.frozen = True
    async with running(peers, service):
        await peers.cluster([node("a", cards=8)])
        ours, theirs = job("ours", cards=1), job("theirs", cards=1)
        await until(lambda: service.scheduler.columns.row_of)
        await peers.submit(ours, theirs)
        await until(lambda: service.scheduler.reports.entry(theirs.id) is not None)
        again = replace(theirs, revision=theirs.revision + 1)
        await peers._bus.publish(JobsPending(jobs=(again, job("never-ours", cards=1))), "lab")
        await until(lambda: service.scheduler.reports.entry(theirs.id) is None)
        assert service.scheduler.reports.entry(ours.id) is not None
        assert service.scheduler.reports.entry(JobId("never-ours")) is None


async def test_missing_pods_are_forgotten_when_job_controller_restarts(peers: Peers, service: SchedulerService) -> None:
    """It publishes no zero for a number that its predecessor published."""
    await peers.cluster([node("n1", cards=1)])
    async with running(peers, service):
        await peers.submit(replace(job("web", cards=1), succession="uid-web"))
        await until(lambda: "web-0" in peers.claims, "the pod is placed")
        await peers._bus.publish(JobsPending(jobs=(), missing=(MissingPods("uid-web", 1),)), "0")
        await peers._bus.publish(JobsWithdrawn(jobs=(JobId("web"),), revisions=(1,)), "0")
        await until(lambda: service.scheduler.reports.entry(JobId("web")) is None, "the job is withdrawn")
        await peers.end_pod("web-0")
        await until(
            lambda: len(service.scheduler.bookings) == 1 and PodUid("web-0") not in service.scheduler.bookings,
            "the place is reserved",
        )
        await peers.submit(job("old", cards=1))
        await until(lambda: service.scheduler.reports.entry(JobId("old")) is not None, "the job waits")
        await asyncio.sleep(0.5)
        assert "old-0" not in peers.claims
        await peers._bus.publish(JobsPending(jobs=(), anew=True), "0")
        await until(lambda: "old-0" in peers.claims, "the place is released")
