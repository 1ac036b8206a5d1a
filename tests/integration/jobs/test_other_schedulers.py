"""job-controller under names of other schedulers: whose pods are its own, and whom it does not stand beside."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import InvalidRequest
from hbox_common.events import JobsPending
from hbox_common.kube import LEASES, MERGE_PATCH, NAMESPACES, PODS
from hbox_common.runtime import Health
from hbox_jobs.adapters import rivals
from hbox_jobs.app import run
from hbox_jobs.settings import JobControllerSettings

from ...waiting import until
from .edge_world import Kube, listening, running

SYSTEM = "volcano-system"
LABELS = {"app": "volcano-scheduler"}


@pytest.fixture
def settings(kubeconfig: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(rivals, "LOOK_S", 0.1)
    monkeypatch.setattr(rivals, "START_LOOK_S", 0.1)
    return JobControllerSettings(
        kubeconfig=str(kubeconfig), nats_url=nats.url, condition_delay_s=0.1, scheduler_names="hbox,volcano"
    )


async def namespace(kube: Kube, name: str) -> None:
    await kube.client.json("POST", NAMESPACES.path(), body={"metadata": {"name": name}})


async def scheduler_pod(kube: Kube, where: str) -> None:
    spec = {"containers": [{"name": "main", "image": "vc"}], "nodeName": "n0"}
    await kube.client.json("POST", PODS.path(where), body={"metadata": {"name": "vs-1", "labels": LABELS}, "spec": spec})
    status = {"status": {"phase": "Running"}}
    await kube.client.json("PATCH", PODS.path(where, "vs-1", "status"), body=status, content_type=MERGE_PATCH)


def lease(age_s: float = 0.0, lasts_s: int = 2) -> dict[str, Any]:
    renewed = datetime.now(UTC) - timedelta(seconds=age_s)
    return {
        "metadata": {"name": "volcano"},
        "spec": {
            "holderIdentity": "vs-1",
            "leaseDurationSeconds": lasts_s,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


async def refused(settings: Any) -> InvalidRequest:
    async with asyncio.timeout(20):
        with pytest.raises(InvalidRequest) as found:
            await run(settings, Health("test"))
    return found.value


async def of_scheduler(kube: Kube, name: str, scheduler: str) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox"}]},
    }
    await kube.client.json("POST", PODS.path("default"), body=body)


async def test_pods_of_all_its_names_are_its_own(kube: Kube, bus: Bus, settings: Any) -> None:
    for name in ("hbox", "volcano", "stranger"):
        await of_scheduler(kube, name, name)
    async with running(run, settings), listening(bus, JobsPending) as heard:
        await until(lambda: sum(len(e.jobs) for e in heard if isinstance(e, JobsPending)) >= 2)
        await asyncio.sleep(0.3)
        assert {job.name for e in heard if isinstance(e, JobsPending) for job in e.jobs} == {"hbox", "volcano"}


async def test_it_does_not_start_beside_a_pod_of_volcanos_scheduler(kube: Kube, bus: Bus, settings: Any) -> None:
    await namespace(kube, SYSTEM)
    await scheduler_pod(kube, SYSTEM)
    said = await refused(settings)
    assert said.message == (
        "HBOX_SCHEDULER_NAMES has volcano, and Volcano's scheduler is alive: its pod volcano-system/vs-1 runs"
    )
    assert said.hint == "kubectl -n volcano-system scale deployment volcano-scheduler --replicas=0, or leave volcano out"
    await kube.client.json("DELETE", PODS.path(SYSTEM, "vs-1"), body={"gracePeriodSeconds": 0})
    async with running(run, settings):
        pass


async def test_a_tenants_pod_with_its_labels_stops_nobody(kube: Kube, bus: Bus, settings: Any) -> None:
    await scheduler_pod(kube, "default")
    async with running(run, settings):
        pass


async def test_its_own_name_alone_asks_about_nobody(kube: Kube, bus: Bus, settings: Any) -> None:
    await namespace(kube, SYSTEM)
    await scheduler_pod(kube, SYSTEM)
    async with running(run, settings.model_copy(update={"scheduler_names": "hbox"})):
        pass


async def test_it_does_not_start_while_the_lease_is_renewed_and_does_once_it_ran_out(
    kube: Kube, bus: Bus, settings: Any
) -> None:
    await namespace(kube, SYSTEM)
    await kube.client.json("POST", LEASES.path(SYSTEM), body=lease())

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.3)
            await kube.client.json("PATCH", LEASES.path(SYSTEM, "volcano"), body=lease(), content_type=MERGE_PATCH)

    renewing = asyncio.ensure_future(renew())
    assert "the lease volcano-system/volcano is renewed" in (await refused(settings)).message
    renewing.cancel()
    async with running(run, settings):  # which waited until it had run out
        pass


async def test_one_that_comes_later_is_told(kube: Kube, bus: Bus, settings: Any) -> None:
    await namespace(kube, SYSTEM)
    async with running(run, settings) as health:
        await scheduler_pod(kube, SYSTEM)
        alone = health.condition("alone")
        await until(lambda: not alone.good)
        assert alone.message.startswith(
            "Volcano's scheduler places pods of volcano too: its pod volcano-system/vs-1 runs; kubectl"
        )
        await kube.client.json("DELETE", PODS.path(SYSTEM, "vs-1"), body={"gracePeriodSeconds": 0})
        await until(lambda: health.ready)


async def test_pods_that_somebody_else_binds_are_told(
    kube: Kube, bus: Bus, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(run, settings), listening(bus, JobsPending) as heard:
        for name in ("mine", "theirs"):
            await kube.pod(name)
        await until(lambda: sum(len(e.jobs) for e in heard if isinstance(e, JobsPending)) >= 2)
        await kube.bind("mine", "n1", **{"hbox.io/claim": "c1"})
        await kube.bind("theirs", "n2")

        def told() -> list[str]:
            return [r.getMessage() for r in caplog.records if "another scheduler binds" in r.getMessage()]

        (said,) = await until(told)
        assert "1 so far, the last default/theirs to n2" in said
