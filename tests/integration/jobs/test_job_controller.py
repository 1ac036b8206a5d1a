import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.clock import wall_s
from hbox_common.events import (
    BindOutcome,
    Event,
    JobPhaseChanged,
    JobsAsked,
    JobsPage,
    JobsPending,
    JobsWaiting,
    JobsWithdrawn,
    JobVerdict,
    Outcome,
    OutcomesObserved,
    PodScore,
    PodsObserved,
)
from hbox_common.kube import (
    EVENTS,
    MERGE_PATCH,
    NO_PROVISIONER,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODGROUPS,
    PODS,
    PRIORITYCLASSES,
)
from hbox_common.model import CardSlice, ClaimId, DecisionId, Epoch, Job, JobId, NodeName, PodPhase, PodUid
from hbox_jobs.adapters import announcer, paced
from hbox_jobs.app import run
from hbox_jobs.settings import JobControllerSettings

from ...waiting import until
from .edge_world import Kube, listening, process, running

WHY = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


@pytest.fixture
def settings(kubeconfig: Path, nats: EmbeddedServer) -> Any:
    return JobControllerSettings(kubeconfig=str(kubeconfig), nats_url=nats.url, condition_delay_s=0.1)


def latest(heard: Any) -> Any:
    """Jobs as a scheduler that reads everything knows them: of each the highest revision, withdrawn ones left out."""
    jobs: dict[str, Job] = {}
    revisions: dict[str, int] = {}
    for event in heard:
        if isinstance(event, JobsPending):
            for job in event.jobs:
                if job.revision > revisions.get(job.id, 0):
                    jobs[job.id], revisions[job.id] = job, job.revision
        elif isinstance(event, JobsWithdrawn):
            for job_id, revision in zip(event.jobs, event.revisions, strict=True):
                if revision > revisions.get(job_id, 0):
                    jobs.pop(job_id, None)
                    revisions[job_id] = revision
    return {job.name: job for job in jobs.values()}


def zones(job: Job) -> list[str]:
    """Of the volumes of its only task."""
    (task,) = job.tasks
    return [value for (term,) in task.volumes for match in term.expressions for value in match.values]


def facts(heard: Any) -> Any:
    return [(fact.name, fact.phase, fact.node) for event in heard if isinstance(event, PodsObserved) for fact in event.pods]


def classes(event: Event) -> dict[str, int]:
    return (event.priority_classes if isinstance(event, JobsPending) else None) or {}


async def selected(kube: Kube, claim: str, node: str) -> bool:
    """Whether the claim was told for which node to have its volume made."""
    found = await kube.client.json("GET", PERSISTENTVOLUMECLAIMS.path("default", claim))
    return bool(found["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node") == node)


def phases(heard: Any) -> list[str]:
    return [event.phase for event in heard]


def named(heard: Any) -> list[tuple[str, str]]:
    return [(event.name, event.phase) for event in heard]


async def test_a_gang_and_a_bare_pod_go_their_whole_way(kube: Kube, bus: Bus, settings: Any) -> None:
    async with running(run, settings), listening(bus, JobsPending, JobsWithdrawn, PodsObserved) as heard:
        group = await kube.podgroup("gang", 2)
        for name in ("gang-0", "gang-1"):
            await kube.pod(name, group="gang", requests={"nvidia.com/gpu": "8"})
        await kube.pod("alone")
        await until(lambda: latest(heard).keys() == {"gang", "alone"} and latest(heard)["gang"].members == 2)
        gang = latest(heard)["gang"]
        assert (gang.id, gang.queue, gang.min_member, gang.gang) == (group["metadata"]["uid"], "research", 2, True)
        assert [pod.name for pod in gang.tasks[0].pods] == ["gang-0", "gang-1"]
        assert gang.tasks[0].cards.count == 8

        await kube.bind("gang-0", "n1", **{"hbox.io/claim": "c0", "hbox.io/cards": "0:100:0,1:100:0"})
        await kube.bind("gang-1", "n2")
        await kube.bind("alone", "n1")
        await until(lambda: not latest(heard))
        assert {("gang-0", PodPhase.BOUND, "n1"), ("gang-1", PodPhase.BOUND, "n2"), ("alone", PodPhase.BOUND, "n1")} <= set(
            facts(heard)
        )
        fact = next(f for e in heard if isinstance(e, PodsObserved) for f in e.pods if f.name == "gang-0")
        assert (fact.claim, fact.slices, fact.ours) == ("c0", (CardSlice(0, 100, 0), CardSlice(1, 100, 0)), True)

        await kube.delete_pod("alone")
        await until(lambda: ("alone", PodPhase.GONE, "n1") in facts(heard))


async def test_a_pod_waits_for_its_claim_and_follows_its_volume(kube: Kube, bus: Bus, settings: Any) -> None:
    await kube.volume("early", zone="a")
    await kube.claim("there", volume="early")
    async with running(run, settings), listening(bus, JobsPending, JobsWithdrawn) as heard:
        await kube.pod("one", claims=["there"])
        await kube.pod("two", claims=["data"])
        await until(lambda: latest(heard).keys() == {"one", "two"})
        assert zones(latest(heard)["one"]) == ["a"]
        assert latest(heard)["two"].problem == 'VolumesNotReady: pod two: persistentvolumeclaim "data" not found'
        await kube.claim("data", volume="late")
        await until(lambda: "non-existent" in latest(heard)["two"].problem)
        await kube.volume("late", zone="b")
        await until(lambda: not latest(heard)["two"].problem)
        assert zones(latest(heard)["two"]) == ["b"]


async def test_pod_follows_the_available_volumes_of_a_class_without_provisioner(kube: Kube, bus: Bus, settings: Any) -> None:
    await kube.storage_class("local", NO_PROVISIONER)
    await kube.claim("data", storage_class="local")
    async with running(run, settings), listening(bus, JobsPending, JobsWithdrawn) as events:
        await kube.pod("one", claims=["data"])
        none = 'VolumesNotReady: pod one: no node has available persistent volumes of StorageClass local to bind persistentvolumeclaim "data"'
        await until(lambda: "one" in latest(events) and latest(events)["one"].problem == none)
        await kube.volume("there", zone="a", storage_class="local")
        await until(lambda: not latest(events)["one"].problem)
        assert zones(latest(events)["one"]) == ["a"]
        assert latest(events)["one"].tasks[0].pods[0].volume_claims == ("data",)
        reserved = {"spec": {"claimRef": {"namespace": "default", "name": "other"}}}
        await kube.client.json("PATCH", PERSISTENTVOLUMES.path(name="there"), body=reserved, content_type=MERGE_PATCH)
        await until(lambda: latest(events)["one"].problem == none)


async def test_a_claim_that_is_refused_the_node_of_its_pod_is_told_it_again(
    kube: Kube, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a right that is missing, or a webhook: its pod waits for it."""
    monkeypatch.setattr(paced, "REFUSED_S", 0.2)
    refusal = {"verb": "patch", "resource": "persistentvolumeclaims", "status": 403, "client": "hbox", "limit": 2}
    await kube.client.json("PUT", "/_sandbox/faults", body={"rules": [refusal]})
    await kube.storage_class("late")
    await kube.claim("data", storage_class="late")
    async with running(run, settings):
        await kube.pod("a", claims=["data"])
        await kube.bind("a", "n1")
        await until(lambda: selected(kube, "data", "n1"))


async def test_a_claim_whose_pod_got_its_node_while_nobody_looked_is_told_of_it(kube: Kube, settings: Any) -> None:
    await kube.storage_class("late")
    await kube.claim("data", storage_class="late")
    await kube.pod("a", claims=["data"])
    await kube.bind("a", "n1")  # and who was to tell the claim is killed
    async with running(run, settings):
        await until(lambda: selected(kube, "data", "n1"))


async def told_again(kube: Kube) -> Any:
    """The conditions of pod gang-0 that carry the second verdict."""
    pod = await kube.client.json("GET", PODS.path("default", "gang-0"))
    return [c for c in pod["status"].get("conditions", []) if c.get("message") == "again"]


async def test_a_verdict_reaches_pods_podgroups_and_events(kube: Kube, bus: Bus, settings: Any) -> None:
    async with running(run, settings), listening(bus, JobsPending, JobsWithdrawn) as heard:
        await kube.podgroup("gang", 1)
        await kube.pod("gang-0", group="gang")
        job = await until(lambda: (j := latest(heard).get("gang")) and j.members and j)
        await bus.publish(JobsWaiting(verdicts=(JobVerdict(job=job.id, message=WHY, nodes=3),)), "0")

        async def told() -> Any:
            pod = await kube.client.json("GET", PODS.path("default", "gang-0"))
            return [c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled" and c.get("message") == WHY]

        (condition,) = await until(told)
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")

        async def group_told() -> Any:
            status = (await kube.client.json("GET", PODGROUPS.path("default", "gang"))).get("status", {})
            return [c for c in status.get("conditions", []) if c["message"] == WHY] and status

        assert (await until(group_told))["phase"] == "Inqueue"

        async def event() -> Any:
            found = (await kube.client.json("GET", EVENTS.path("default")))["items"]
            return [e for e in found if e["reason"] == "FailedScheduling" and e["message"] == WHY]

        (noted,) = await until(event)
        assert noted["involvedObject"]["kind"] == "PodGroup"
        # The condition moved the pod's resourceVersion, which the next binding has to name.
        meta = (await kube.client.json("GET", PODS.path("default", "gang-0")))["metadata"]
        version = meta["resourceVersion"]
        await until(lambda: latest(heard)["gang"].tasks[0].pods[0].resource_version == version)

        score = PodScore(pod_uid=PodUid(meta["uid"]), node=NodeName("n1"), note="score 12, runner-up n2 with 7")
        await bus.publish(JobsWaiting(verdicts=(JobVerdict(job=job.id, message="again"),), scores=(score,)), "0")
        await until(lambda: told_again(kube))
        await kube.bind("gang-0", "n1")

        async def scheduled() -> Any:
            found = (await kube.client.json("GET", EVENTS.path("default")))["items"]
            return [e["message"] for e in found if e["reason"] == "Scheduled" and e["involvedObject"]["kind"] == "Pod"]

        assert await until(scheduled) == ["Successfully assigned default/gang-0 to n1: score 12, runner-up n2 with 7"]

        async def started() -> Any:
            status = (await kube.client.json("GET", PODGROUPS.path("default", "gang")))["status"]
            return status["phase"] == "Running" and {c["type"]: c["status"] for c in status["conditions"]}

        assert await until(started) == {"Unschedulable": "False", "Scheduled": "True"}


async def test_integrators_hear_the_phases_of_a_job_in_order(kube: Kube, bus: Bus, settings: Any) -> None:
    async with running(run, settings), listening(bus, JobPhaseChanged) as heard:
        await kube.pod("a")
        await until(lambda: phases(heard) == ["pending"])
        await kube.bind("a", "n1")
        await until(lambda: phases(heard) == ["pending", "bound"])
        await kube.delete_pod("a")
        await until(lambda: phases(heard) == ["pending", "bound", "deleted"])


async def test_a_restart_repeats_no_phase(kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer) -> None:
    async with listening(bus, JobPhaseChanged) as heard:
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            for name in ("stays", "waits", "goes-on", "runs"):
                await kube.pod(name)
            await kube.bind("runs", "n1")
            await until(
                lambda: (
                    {("stays", "pending"), ("waits", "pending"), ("goes-on", "pending"), ("runs", "bound")} <= {*named(heard)}
                )
            )
            waits = next(event for event in heard if isinstance(event, JobPhaseChanged) and event.name == "waits").job
            await bus.publish(JobsWaiting(verdicts=(JobVerdict(job=waits, message=WHY),)), "0")
            await until(lambda: "waiting" in phases(heard))
        said = len(heard)
        await kube.bind("goes-on", "n1")
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await bus.publish(JobsWaiting(verdicts=(JobVerdict(job=waits, message=WHY),)), "0")
            await kube.pod("new")
            await until(lambda: {("new", "pending"), ("goes-on", "bound")} <= {*named(heard[said:])})
            await kube.delete_pod("stays")
            await until(lambda: ("stays", "deleted") in named(heard[said:]))
        assert sorted(named(heard[said:])) == [("goes-on", "bound"), ("new", "pending"), ("stays", "deleted")]


async def test_after_the_clock_went_back_its_revisions_are_higher_all_the_same(kube: Kube, bus: Bus, settings: Any) -> None:
    future = 2**60
    await bus.publish(JobsWithdrawn(jobs=(JobId("gone"),), revisions=(future,)), "0")
    async with running(run, settings), listening(bus, JobsPending) as heard:
        await kube.pod("a")
        await until(lambda: "a" in latest(heard))
        assert latest(heard)["a"].revision > future


async def test_whatever_was_said_last_revisions_go_on_above_those_of_before_the_clock_went_back(
    kube: Kube, bus: Bus, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(bus, JobsPending, JobsWithdrawn) as heard:
        with monkeypatch.context() as hour_ahead:
            hour_ahead.setattr(announcer, "wall_s", lambda: wall_s() + 3600.0)
            async with running(run, settings):
                await kube.pod("a")
                await until(lambda: "a" in latest(heard))
                value = {"metadata": {"name": "high"}, "value": 7}
                await kube.client.json("POST", PRIORITYCLASSES.path(), body=value)
                await until(lambda: classes(heard[-1]).get("high") == 7)  # a message without jobs
        before = latest(heard)["a"].revision
        async with running(run, settings):
            await until(lambda: latest(heard)["a"].revision > before)
            await kube.delete_pod("a")
            await until(lambda: not latest(heard))


async def test_the_highest_revision_is_said_again_before_the_stream_forgets_it(
    kube: Kube, bus: Bus, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "REVISION_S", 1.0)
    async with running(run, settings), listening(bus, JobsPending) as heard:
        await kube.pod("a")
        highest = (await until(lambda: latest(heard).get("a"))).revision
        said = len(heard)
        await until(lambda: len(heard) >= said + 2)
        again = [event for event in heard[said:] if isinstance(event, JobsPending)]
        assert [(event.jobs, event.revision) for event in again] == [((), highest)] * len(again)
        assert len(again) <= 3, "once in a while"


async def test_whoever_asks_gets_all_jobs_and_pods_in_pages(kube: Kube, bus: Bus, settings: Any) -> None:
    await asyncio.gather(*(kube.pod(f"p{n}") for n in range(520)))
    await kube.bind("p0", "n1")
    async with running(run, settings):

        async def asked() -> Any:
            pages = await bus.ask(JobsAsked(asker="test", pods=True, verdicts=True), JobsPage)
            return sum(len(p.jobs) for p in pages) == 520 and pages

        pages = await until(asked)
        assert all(page.complete for page in pages)
        assert max(len(page.jobs) for page in pages) <= 500
        assert [fact.name for page in pages for fact in page.pods] == ["p0"]


async def test_killed_in_the_middle_it_says_everything_again_and_withdraws_what_is_gone(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    async with listening(bus, JobsPending, JobsWithdrawn, PodsObserved) as heard:
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await kube.pod("stays")
            await kube.pod("goes")
            await kube.pod("runs")
            await until(lambda: latest(heard).keys() == {"stays", "goes", "runs"})
        before = latest(heard)
        await kube.delete_pod("goes")
        await kube.bind("runs", "n1")
        await kube.pod("new")
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await until(lambda: "new" in latest(heard) and latest(heard)["stays"].revision > before["stays"].revision)
            await until(lambda: ("runs", PodPhase.BOUND, "n1") in facts(heard))
            # A scheduler that still has the deleted job says so sooner or later.
            await bus.publish(JobsWaiting(verdicts=(JobVerdict(job=before["goes"].id, message=WHY),)), "0")
            await until(lambda: "goes" not in latest(heard))


async def test_killed_in_the_middle_it_withdraws_what_is_there_and_has_nothing_left_to_place(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    async with listening(bus, JobsPending, JobsWithdrawn) as heard:
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            for name in ("restarts", "taken"):
                await kube.podgroup(name, 1)
                await kube.pod(f"{name}-0", group=name)
            await until(lambda: [job.members for job in latest(heard).values()] == [1, 1])
        before = latest(heard)
        await kube.delete_pod("restarts-0")  # its PodGroup stays, and its controller takes its time
        await kube.bind("taken-0", "n1")  # by somebody else
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await kube.pod("new")
            await until(lambda: "new" in latest(heard))
            # A scheduler that still has the pods says why they wait, or plans them.
            await bus.publish(JobsWaiting(verdicts=(JobVerdict(job=before["restarts"].id, message=WHY),)), "0")
            met = Outcome(
                decision=DecisionId("d"),
                claim=ClaimId("c"),
                generation=1,
                job=before["taken"].id,
                pod_uid=PodUid("p"),
                outcome=BindOutcome.CONFLICT,
                node=NodeName("n1"),
            )
            await bus.publish(OutcomesObserved(epoch=Epoch(1), outcomes=(met,)), "0")
            await until(lambda: latest(heard).keys() == {"new"})
            await kube.pod("restarts-1", group="restarts")
            await until(lambda: latest(heard).keys() == {"new", "restarts"})


async def test_what_happens_while_the_broker_is_down_is_said_when_it_is_back(
    kube: Kube, tmp_path: Path, kubeconfig: Path
) -> None:
    async with EmbeddedServer(tmp_path / "nats2") as server:
        settings = JobControllerSettings(kubeconfig=str(kubeconfig), nats_url=server.url)
        async with running(run, settings) as health:
            await kube.pod("before")
            await server.kill()
            await until(lambda: not health.ready)
            await kube.pod("during")
            await kube.pod("bound")
            await kube.bind("bound", "n1")
            async with (
                EmbeddedServer(tmp_path / "nats2", port=server.port) as again,
                Bus.connect(again.url, name="test", instance="test") as bus,
                listening(bus, JobsPending, JobsWithdrawn, PodsObserved) as heard,
            ):
                await until(lambda: latest(heard).keys() == {"before", "during"})
                await until(lambda: ("bound", PodPhase.BOUND, "n1") in facts(heard))


async def test_after_the_streams_were_wiped_everything_is_said_again(kube: Kube, tmp_path: Path, kubeconfig: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats3") as server:
        settings = JobControllerSettings(kubeconfig=str(kubeconfig), nats_url=server.url)
        async with running(run, settings):
            await kube.pod("waits")
            await kube.pod("bound")
            await kube.bind("bound", "n1")
            async with (
                Bus.connect(server.url, name="test", instance="test") as bus,
                listening(bus, JobsPending, JobsWithdrawn) as heard,
            ):
                await until(lambda: latest(heard).keys() == {"waits"})
            await server.kill()
            shutil.rmtree(tmp_path / "nats3")
            async with (
                EmbeddedServer(tmp_path / "nats3", port=server.port) as again,
                Bus.connect(again.url, name="test", instance="test") as bus,
                listening(bus, JobsPending, JobsWithdrawn, PodsObserved) as heard,
            ):
                await until(lambda: latest(heard).keys() == {"waits"})
                await until(lambda: ("bound", PodPhase.BOUND, "n1") in facts(heard))
