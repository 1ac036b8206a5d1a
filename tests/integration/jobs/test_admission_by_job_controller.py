"""What job-controller makes of PodGroups that the scheduler admits, on a real broker and the emulated API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import Event, JobsAdmitted, JobsAsked, JobsPage, JobsPending, PolicyFollowed
from hbox_common.kube import PODGROUPS
from hbox_common.model import GroupPhase, GroupState, JobId, SchedulerId
from hbox_jobs.app import run
from hbox_jobs.settings import JobControllerSettings

from ...waiting import until
from .edge_world import Kube, listening, process, running

GATED = PolicyFollowed(actions=("enqueue", "allocate"), plugins=("gang",), by_conf=True)
OPEN = PolicyFollowed(actions=("allocate",), plugins=("gang",), by_conf=True)
OWN = PolicyFollowed(actions=("enqueue", "allocate"), plugins=("gang",), by_conf=False)
MINIMUM = {"minResources": {"nvidia.com/gpu": "2"}}
ONE, NEXT = SchedulerId("one"), SchedulerId("next")


@pytest.fixture
def settings(kubeconfig: Path, nats: EmbeddedServer) -> Any:
    return JobControllerSettings(kubeconfig=str(kubeconfig), nats_url=nats.url, condition_delay_s=0.1)


def told(heard: list[Event]) -> dict[str, GroupState]:
    """PodGroups as a scheduler knows them that heard everything."""
    groups: dict[str, GroupState] = {}
    for event in heard:
        assert isinstance(event, JobsPending)
        for group in event.groups:
            if group.id not in groups or groups[group.id].revision < group.revision:
                groups[group.id] = group
    return {group.name: group for group in groups.values() if not group.gone}


async def phases(kube: Kube) -> dict[str, str]:
    listed = await kube.client.json("GET", PODGROUPS.path("default"))
    return {one["metadata"]["name"]: one.get("status", {}).get("phase", "") for one in listed["items"]}


async def reach(kube: Kube, **wanted: str) -> None:
    async def reached() -> bool:
        return await phases(kube) == wanted

    await until(reached, what=f"{wanted}")


async def admit(bus: Bus, scheduler: SchedulerId, *jobs: JobId) -> None:
    await bus.publish(JobsAdmitted(scheduler=scheduler, jobs=jobs), "0")


async def test_the_word_is_written_once_and_no_other_scheduler_has_one(kube: Kube, bus: Bus, settings: Any) -> None:
    await bus.publish(GATED, "0")
    async with running(run, settings), listening(bus, JobsPending) as heard:
        await kube.podgroup("a", 1, **MINIMUM)
        await kube.podgroup("b", 1, **MINIMUM)
        await kube.podgroup("free", 1)
        await reach(kube, a="Pending", b="Pending", free="Inqueue")
        a, b = (told(heard)[name] for name in "ab")
        assert (a.min_resources, a.phase, a.admitted) == ({"nvidia.com/gpu": 2}, GroupPhase.PENDING, False)
        await admit(bus, ONE, JobId("nobody"), a.id)
        await reach(kube, a="Inqueue", b="Pending", free="Inqueue")
        await until(lambda: told(heard)["a"].phase is GroupPhase.INQUEUE)
        pages = await bus.ask(JobsAsked(asker="next", gatekeeper=NEXT), JobsPage)
        assert {group.name: group.phase for page in pages for group in page.groups} == {
            "a": GroupPhase.INQUEUE, "b": GroupPhase.PENDING,
        }  # fmt: skip
        before = told(heard)["a"].revision
        await admit(bus, ONE, b.id)  # on its way while the next one asked
        await admit(bus, NEXT, a.id, a.id)  # of whom it did not hear in time
        await asyncio.sleep(0.5)
        assert await phases(kube) == {"a": "Inqueue", "b": "Pending", "free": "Inqueue"}
        assert told(heard)["a"].revision == before
        await admit(bus, NEXT, b.id)
        await reach(kube, a="Inqueue", b="Inqueue", free="Inqueue")


@pytest.mark.parametrize("policy", [OPEN, OWN], ids=["without enqueue", "HBox's own"])
async def test_without_enqueue_everybody_is_inqueue_as_soon_as_that_is_known(
    kube: Kube, bus: Bus, settings: Any, policy: PolicyFollowed
) -> None:
    async with running(run, settings):
        await kube.podgroup("early", 1, **MINIMUM)
        await reach(kube, early="Pending")
        await bus.publish(policy, "0")
        await reach(kube, early="Inqueue")
        await kube.podgroup("late", 1, **MINIMUM)
        await reach(kube, early="Inqueue", late="Inqueue")


async def test_killed_it_tells_anew_and_what_was_written_stands(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    await bus.publish(GATED, "0")
    for name in ("in", "out", "gone"):
        await kube.podgroup(name, 1, **MINIMUM)
    async with listening(bus, JobsPending) as heard:
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await until(lambda: told(heard).keys() == {"in", "out", "gone"})
            before = told(heard)
            await admit(bus, ONE, before["in"].id)
            await reach(kube, **{"in": "Inqueue", "out": "Pending", "gone": "Pending"})
        await kube.client.json("DELETE", PODGROUPS.path("default", "gone"))
        await admit(bus, ONE, before["out"].id)  # heard by nobody
        with process("hbox_jobs", kubeconfig=kubeconfig, nats_url=nats.url):
            await until(lambda: all(told(heard)[name].revision > before[name].revision for name in ("in", "out")))
            assert {name: told(heard)[name].phase for name in ("in", "out")} == {
                "in": GroupPhase.INQUEUE, "out": GroupPhase.PENDING,
            }  # fmt: skip
            assert sum(isinstance(event, JobsPending) and event.anew for event in heard) == 2
            pages = await bus.ask(JobsAsked(asker="one", gatekeeper=ONE), JobsPage)
            assert {group.name for page in pages for group in page.groups} == {"in", "out"}
            await admit(bus, ONE, before["out"].id)
            await reach(kube, **{"in": "Inqueue", "out": "Inqueue"})
