"""Whom the scheduler admits, on a real broker; the test is its job-controller."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer
from hbox_common.events import Event, JobsAdmitted, JobsAsked, JobsPage, JobsPending
from hbox_common.model import DEFAULT_QUEUE, GroupPhase, GroupState, JobId
from hbox_common.model.devices.nvidia import GPU
from hbox_common.runtime import Health
from hbox_scheduler.app import SchedulerService
from hbox_scheduler.core.simulate import job, node
from hbox_scheduler.settings import SchedulerSettings

from ...scheduler_peers import Peers
from ...waiting import until
from .test_scheduler_service import running

POLICY = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: overcommit, arguments: {overcommit-factor: 1.0}}]
"""


class Gatekeepers(Peers):
    """With PodGroups. `deaf`: the word is heard, and not acted upon."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.groups: dict[JobId, GroupState] = {}
        self.heard: list[tuple[str, JobId]] = []  #: who let whom in
        self.asked: list[str] = []
        self.deaf = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._bus.follow([JobsAdmitted], self._on_admitted))

    async def tell(self, *groups: GroupState) -> None:
        self.groups.update((group.id, group) for group in groups)
        await self._bus.publish(JobsPending(jobs=(), groups=groups), "0")

    async def _list_jobs(self, asked: JobsAsked) -> AsyncIterator[Event]:
        self.asked.append(asked.gatekeeper)
        yield JobsPage(complete=True, jobs=tuple(self.jobs))
        yield JobsPage(complete=True, groups=tuple(group for group in self.groups.values() if not group.gone))

    async def _on_admitted(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            event = delivery.event
            assert isinstance(event, JobsAdmitted)
            for one in event.jobs:
                self.heard.append((event.scheduler, one))
                if not self.deaf:
                    known = self.groups[one]
                    await self.tell(replace(known, phase=GroupPhase.INQUEUE, admitted=True, revision=known.revision + 1))

    @property
    def inside(self) -> set[str]:
        return {name for _, name in self.heard}


@pytest.fixture
async def keepers(nats: EmbeddedServer) -> AsyncIterator[Gatekeepers]:
    async with Bus.connect(nats.url, name="peers", instance="peers") as bus:
        yield Gatekeepers(bus)


@pytest.fixture
def settings(tmp_path: Path, nats: EmbeddedServer) -> SchedulerSettings:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(POLICY)
    return SchedulerSettings(nats_url=nats.url, scheduler_conf=path, resend_after_s=0.3)


def service(settings: SchedulerSettings, bus: Bus) -> SchedulerService:
    return SchedulerService(settings, Health("scheduler-core"), bus)


def group(name: str, cards: int, created_at: float = 0.0) -> GroupState:
    return GroupState(JobId(name), "default", name, DEFAULT_QUEUE, 0, 1, created_at, {GPU: cards}, 1)


async def test_pods_are_placed_when_the_phase_is_told_and_room_is_given_once(
    nats: EmbeddedServer, keepers: Gatekeepers, settings: SchedulerSettings
) -> None:
    await keepers.cluster([node("n1", cards=8)])
    async with Bus.connect(nats.url, name="scheduler-core", instance="s") as bus, running(keepers, service(settings, bus)):
        keepers.deaf = True
        await keepers.tell(group("a", 6), group("b", 6, 1.0))
        await keepers.submit(job("a", cards=6), job("b", cards=6))
        await until(lambda: "a" in keepers.inside, "a is let in")
        await until(lambda: len(keepers.heard) > 2, "that is said again")
        assert len(keepers.asked) > 1, "and all jobs are asked for: another scheduler may be listened to"
        assert set(keepers.asked) == {scheduler for scheduler, _ in keepers.heard}
        assert not keepers.claims
        await until(lambda: "b" in keepers.waiting, "b is told why it waits")
        keepers.deaf = False
        await until(lambda: "a-0" in keepers.claims, "a is placed")
        said = len(keepers.heard)
        await asyncio.sleep(1.0)
        assert len(keepers.heard) == said
        assert keepers.inside == {"a"}


async def test_a_successor_knows_whom_its_predecessor_let_in_and_who_went_while_nobody_told(
    nats: EmbeddedServer, keepers: Gatekeepers, settings: SchedulerSettings
) -> None:
    await keepers.cluster([node("n1", cards=8)])
    async with running(keepers):
        async with Bus.connect(nats.url, name="scheduler-core", instance="s1") as bus, running(service(settings, bus)):
            await keepers.tell(group("a", 6))
            await until(lambda: "a" in keepers.inside, "a is let in")
        await keepers.tell(group("b", 6))
        async with Bus.connect(nats.url, name="scheduler-core", instance="s2") as bus, running(service(settings, bus)):
            await until(lambda: "b" in keepers.waiting, "b is told why it waits")
            await asyncio.sleep(0.5)
            assert keepers.inside == {"a"}
            del keepers.groups[JobId("a")]  # deleted while job-controller was down: its successor knows nothing of it
            await bus.publish(JobsPending(jobs=(), anew=True), "0")
            await until(lambda: "b" in keepers.inside, "b has a's room")
