"""The quota-ledger as it runs: its own process-like task on a real broker and the emulated API, with the other services played by the test."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.events import (
    BindDecided,
    BindOutcome,
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Event,
    JobsAsked,
    JobsPage,
    NodeStateChanged,
    Outcome,
    OutcomesObserved,
    Plan,
    PlanAnswer,
    PlansAnswered,
    PlansProposed,
    PodsObserved,
    QueueStateChanged,
)
from hbox_common.kube import QUEUES, KubeClient, apply, wait_established
from hbox_common.model import Card, Epoch, Generation, Index, NodeName, NodeState, PodFact, PodPhase, SchedulerId
from hbox_common.runtime import Health
from hbox_ledger.app import run
from hbox_ledger.settings import LedgerSettings

from .conftest import Kit

E = TypeVar("E", bound=Event)

DEADLINE_S = 20.0

QUEUE_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Cluster",
        "names": {"plural": "queues", "singular": "queue", "kind": "Queue", "listKind": "QueueList"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not what():  # noqa: ASYNC110  what others do sets no event of ours
            await asyncio.sleep(0.02)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[str]:
    path = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hbox_sandbox", "--port", "0", "--kubeconfig-out", str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S):
        assert process.stdout is not None
        while not re.match(rb"ready", await process.stdout.readline()):
            assert process.returncode is None
    async with KubeClient.connect(str(path), user_agent="test") as kube:
        await apply(kube, QUEUE_DEFINITION, field_manager="test")
        await wait_established(kube, "queues.scheduling.volcano.sh")
    yield str(path)
    process.terminate()
    await process.wait()


@asynccontextmanager
async def running(settings: LedgerSettings) -> AsyncIterator[Health]:
    health = Health("quota-ledger")
    task = asyncio.create_task(run(settings, health))
    try:
        yield health
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass
class Others:
    """The rest of the platform: remembers what the ledger says, and answers for job-controller."""

    bus: Bus
    pods: list[PodFact] = field(default_factory=list)
    said: list[Event] = field(default_factory=list)

    async def listen(self, deliveries: Sequence[Delivery]) -> None:
        self.said += [d.event for d in deliveries]

    async def jobs(self, _: Event) -> AsyncIterator[Event]:
        yield JobsPage(complete=True, pods=tuple(self.pods))

    def all(self, kind: type[E]) -> list[E]:
        return [e for e in self.said if isinstance(e, kind)]

    def answers(self) -> dict[str, PlanAnswer]:
        return {a.plan: a for e in self.all(PlansAnswered) for a in e.answers}

    async def claims(self) -> list[ClaimsPage]:
        return await self.bus.ask(ClaimsAsked(asker="test"), ClaimsPage)

    async def open_epoch(self) -> Epoch:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with suppress(Exception):
                    [page] = await self.claims()
                    if not page.frozen:
                        return page.epoch
                await asyncio.sleep(0.05)

    async def propose(self, epoch: Epoch, *plans: Plan, wait: bool = True) -> None:
        message = PlansProposed(scheduler=SchedulerId("s"), epoch=epoch, seen=Index(0), plans=plans)
        await self.bus.publish(message, "s")
        if wait:
            await until(lambda: all(p.id in self.answers() for p in plans))


@asynccontextmanager
async def others(broker: EmbeddedServer) -> AsyncIterator[Others]:
    async with Bus.connect(broker.url, name="test", instance="test") as bus:
        world = Others(bus)
        cards = tuple(Card(i, f"n0-{i}", "A100", 40_960, shares=4) for i in range(4))
        room = {"cpu": 64_000, "pods": 100, "nvidia.com/gpu": 16}
        node = NodeState(NodeName("n0"), "n0", Generation(1), ready=True, allocatable=room, cards=cards)
        await bus.publish(NodeStateChanged(node=node), "n0")
        followed: list[list[type[Event]]] = [[PlansAnswered, ClaimsChanged], [BindDecided], [QueueStateChanged]]
        tasks = [asyncio.create_task(bus.follow(types, world.listen, start=Start.ALL)) for types in followed]
        tasks.append(asyncio.create_task(bus.serve(JobsAsked, world.jobs)))
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.fixture
def settings(tmp_path: Path, broker: EmbeddedServer, kubeconfig: str) -> LedgerSettings:
    return LedgerSettings(
        nats_url=broker.url,
        kubeconfig=kubeconfig,
        database_url=f"sqlite:///{tmp_path}/ledger.db",
        instance="l1",
        reconcile_s=1.0,
    )


async def test_a_pod_goes_from_plan_to_bound_to_gone(kit: Kit, broker: EmbeddedServer, settings: LedgerSettings) -> None:
    async with others(broker) as world, running(settings) as health:
        epoch = await world.open_epoch()
        await until(lambda: health.ready)
        await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
        await until(lambda: world.all(BindDecided))
        [bind] = world.all(BindDecided)[0].binds
        bound = Outcome(
            decision=bind.id, claim=bind.claim, generation=1, job=bind.job, pod_uid="pod", outcome=BindOutcome.BOUND, node="n0"
        )
        world.pods.append(kit.fact("pod", "n0", claim=bind.claim))
        for _ in range(2):
            await world.bus.publish(OutcomesObserved(epoch=epoch, outcomes=(bound,)), "0")
        await until(lambda: [c.state for e in world.all(ClaimsChanged) for c in e.claims] == ["pending", "posted"])
        await until(lambda: any(e.used.get("nvidia.com/gpu") == 1 for e in world.all(QueueStateChanged)))
        world.pods.clear()
        await world.bus.publish(PodsObserved(pods=(kit.fact("pod", "n0", PodPhase.GONE),)), "0")
        await until(lambda: [c.state for e in world.all(ClaimsChanged) for c in e.claims][-1] == "void")
        feed = world.all(ClaimsChanged)
        assert all(later.previous == earlier.index for earlier, later in pairwise(feed))
        await until(lambda: not world.all(QueueStateChanged)[-1].used)


async def test_a_ledger_that_is_restarted_goes_on_in_a_new_epoch_with_the_same_claims(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world:
        async with running(settings):
            first = await world.open_epoch()
            await world.propose(first, kit.plan("p", ("pod", "n0", ())))
            await until(lambda: world.all(BindDecided))
        async with running(settings):
            second = await world.open_epoch()
            assert second > first
            [page] = await world.claims()
            assert [c.pod for c in page.claims] == ["pod"]
            await until(lambda: len(world.all(BindDecided)) == 2)
            before, after = world.all(BindDecided)
            assert (before.binds, after.epoch) == (after.binds, second)
            await world.propose(first, kit.plan("old", ("other", "n0", ())))
            assert world.answers()["old"].reason == "StaleEpoch"
            await world.propose(second, kit.plan("p", ("pod", "n0", ())))
            assert world.answers()["p"].committed
            [page] = await world.claims()
            assert len(page.claims) == 1


async def test_pods_that_run_already_are_accounted_for_before_the_books_open(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world:
        world.pods.append(kit.fact("found", "n0", slices=(kit.whole(0),)))
        async with running(settings):
            epoch = await world.open_epoch()
            [page] = await world.claims()
            assert [(c.pod, c.state) for c in page.claims] == [("found", "posted")]
            await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0),))))
            assert world.answers()["p"].reason == "CardTaken"


async def test_when_another_job_controller_speaks_pods_that_ended_between_the_two_are_found_missing(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_ledger.app.SUSPECTS_S", 0.1)
    async with others(broker) as world:
        world.pods.append(kit.fact("ends", "n0", slices=(kit.whole(0),)))
        async with running(settings.model_copy(update={"reconcile_s": 600.0})):
            await world.open_epoch()
            world.pods.clear()
            other = kit.fact("stays", "n0", slices=(kit.whole(1),))
            world.pods.append(other)
            await world.bus.publish(PodsObserved(pods=(other,)), "0")
            await until(lambda: any(c.pod == "ends" and c.state == "void" for e in world.all(ClaimsChanged) for c in e.claims))
            [page] = await world.claims()
            assert [c.pod for c in page.claims] == ["stays"]


async def test_queues_come_from_kubernetes_and_their_rules_hold(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings), KubeClient.connect(settings.kubeconfig, user_agent="test") as kube:
        epoch = await world.open_epoch()
        small = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "small"}}
        await kube.json(
            "POST", QUEUES.path(), body={**small, "spec": {"capability": {"nvidia.com/gpu": "1"}}}, expect=(200, 201)
        )
        await until(lambda: any(e.queue.name == "small" for e in world.all(QueueStateChanged)))
        in_small = [
            kit.plan(f"p{i}", (f"pod{i}", "n0", (kit.whole(i),))).model_copy(update={"queue": "small"}) for i in range(3)
        ]
        await world.propose(epoch, *in_small[:2])
        assert [world.answers()[f"p{i}"].reason for i in range(2)] == [None, "QueueCapabilityExceeded"]
        await kube.json("DELETE", QUEUES.path(name="small"), expect=(200, 202))
        await until(lambda: any(e.gone and e.queue.name == "small" for e in world.all(QueueStateChanged)))
        await world.propose(epoch, in_small[2])
        assert world.answers()["p2"].reason == "QueueNotFound"


async def test_the_broker_may_be_killed_between_plan_and_answer(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings
) -> None:
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        await world.propose(epoch, *(kit.plan(f"p{i}", (f"pod{i}", "n0", ())) for i in range(20)), wait=False)
        await broker.kill()
        await broker.start()
        await until(lambda: len(world.answers()) == 20)
        [page] = await world.claims()
        assert sorted(c.pod for c in page.claims) == sorted(f"pod{i}" for i in range(20))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"HBOX_DATABASE_URL": "sqlite:////nowhere/x.db"}, "does not exist"),
        ({"HBOX_DATABASE_URL": "oracle"}, "cannot be read"),
        ({"HBOX_RECONCILE_S": "-1"}, "HBOX_RECONCILE_S"),
    ],
)
async def test_a_wrong_setting_ends_the_process_with_one_clear_line(change: dict[str, str], said: str, kubeconfig: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hbox_ledger",
        env={"HBOX_LOG_FORMAT": "text", "HBOX_LOG_LEVEL": "error", "HBOX_KUBECONFIG": kubeconfig, **change},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert process.returncode == 2
    [line] = err.decode().strip().splitlines()
    assert said in line
