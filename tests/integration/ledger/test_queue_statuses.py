"""What `kubectl get queue` shows is what the ledger knows: written behind it, only what changed, and without a fight."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.errors import Unavailable
from hbox_common.events import BindDecided, GroupCounts, PodGroupsCounted, PodsObserved
from hbox_common.kube import EVENTS, MERGE_PATCH, QUEUES, Informer, KubeClient, patch_status
from hbox_common.kube import Queue as QueueObject
from hbox_common.model import PodPhase, QueueName
from hbox_ledger import metrics
from hbox_ledger.adapters import statuses as module
from hbox_ledger.adapters.statuses import StatusWriter
from hbox_ledger.settings import LedgerSettings

from ...waiting import until
from .conftest import Kit
from .ledger_world import DEADLINE_S, others, running

RESEARCH = QueueName("research")


@pytest.fixture
async def kube(kubeconfig: str) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(kubeconfig, user_agent="test") as client:
        yield client


async def make(kube: KubeClient, name: str, **spec: Any) -> None:
    kind = {"apiVersion": f"{QUEUES.group}/{QUEUES.version}", "kind": "Queue"}
    await kube.json("POST", QUEUES.path(), body={**kind, "metadata": {"name": name}, "spec": {"weight": 1, **spec}})


async def found(kube: KubeClient, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = await kube.json("GET", QUEUES.path(name=name))
    return answer


async def comes_to_say(kube: KubeClient, name: str, **wanted: Any) -> dict[str, Any]:
    """The object, once its status has these values."""
    status: dict[str, Any] = {}
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                queue = await found(kube, name)
                status = queue.get("status", {})
                if all(status.get(field) == value for field, value in wanted.items()):
                    return queue
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{name} says {status}, not {wanted}") from None


async def test_a_queue_says_what_it_uses_and_how_many_groups_it_has_and_goes_on_after_a_restart(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, kube: KubeClient
) -> None:
    await make(kube, "default")
    async with others(broker) as world:
        async with running(settings):
            epoch = await world.open_epoch()
            counts = {QueueName("default"): GroupCounts(inqueue=2, running=1)}
            await world.bus.publish(PodGroupsCounted(queues=counts), "0")
            await world.propose(epoch, kit.plan("p", ("pod", "n0", (kit.whole(0), kit.whole(1)))))
            allocated = {"cpu": "1", "pods": "1", "nvidia.com/gpu": "2"}
            await comes_to_say(kube, "default", state="Open", allocated=allocated, inqueue=2, running=1, pending=0, completed=0)
        await patch_status(kube, QUEUES, namespace=None, name="default", status={"allocated": {"cpu": "77"}, "running": 5})
        async with running(settings):
            queue = await comes_to_say(kube, "default", state="Open", allocated=allocated, inqueue=2, running=1)
            await world.open_epoch()
            await asyncio.sleep(2 * module.WINDOW_S)  # several comparisons, each of which tells all queues
            again = await found(kube, "default")
            assert again["metadata"]["resourceVersion"] == queue["metadata"]["resourceVersion"], "true, and written again"


async def test_a_queue_that_is_closed_is_closing_until_it_is_empty(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, kube: KubeClient
) -> None:
    await make(kube, "default")
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        await world.propose(epoch, kit.plan("p", ("pod", "n0", ())))
        await comes_to_say(kube, "default", state="Open", allocated={"cpu": "1", "pods": "1"})
        await patch_status(kube, QUEUES, namespace=None, name="default", status={"state": "Closing"})
        assert [e.binds[0].pod for e in world.all(BindDecided)] == ["pod"]
        await world.bus.publish(PodsObserved(pods=(kit.fact("pod", "n0", PodPhase.GONE),)), "0")
        await comes_to_say(kube, "default", state="Closed", allocated={})
        await patch_status(kube, QUEUES, namespace=None, name="default", status={"state": "Open"})
        await asyncio.sleep(2 * module.WINDOW_S)
        await comes_to_say(kube, "default", state="Open")


async def test_queue_in_use_that_others_set_to_closed_stays_closed(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, kube: KubeClient
) -> None:
    await make(kube, "default")
    async with others(broker) as world, running(settings):
        epoch = await world.open_epoch()
        await world.propose(epoch, kit.plan("p", ("pod", "n0", ())))
        await comes_to_say(kube, "default", state="Open", allocated={"cpu": "1", "pods": "1"})
        states: list[str] = []
        informer = Informer(kube, QUEUES, QueueObject)

        async def record(deltas: Any) -> None:
            states.extend(delta.new.status.state for delta in deltas if delta.new is not None)

        watch = asyncio.create_task(informer.run(record))
        await informer.synced.wait()
        await patch_status(kube, QUEUES, namespace=None, name="default", status={"state": "Closed"})
        for inqueue in (1, 2):  # each count makes the ledger write the whole status
            await world.bus.publish(PodGroupsCounted(queues={QueueName("default"): GroupCounts(inqueue=inqueue)}), "0")
            await comes_to_say(kube, "default", state="Closed", allocated={"cpu": "1", "pods": "1"}, inqueue=inqueue)
        await world.bus.publish(PodsObserved(pods=(kit.fact("pod", "n0", PodPhase.GONE),)), "0")
        await comes_to_say(kube, "default", state="Closed", allocated={})
        watch.cancel()
        assert set(states) == {"Open", "Closed"}


async def test_what_is_wrong_with_a_queue_is_an_event_and_no_state(
    broker: EmbeddedServer, settings: LedgerSettings, kube: KubeClient
) -> None:
    await make(kube, "lost", parent="nowhere")
    async with others(broker) as world, running(settings):
        await world.open_epoch()
        queue = await comes_to_say(kube, "lost", state="Open")

        async def told(reason: str) -> tuple[str, str] | None:
            listed = await kube.json("GET", EVENTS.path("default"))
            mine = [event for event in listed["items"] if event["involvedObject"]["uid"] == queue["metadata"]["uid"]]
            return {event["reason"]: (event["type"], event["message"]) for event in mine}.get(reason)

        kind, message = await until(lambda: told("QueueFaulty"), "the fault", timeout_s=DEADLINE_S)
        assert (kind, message) == ("Warning", "its parent nowhere does not exist; it takes nothing until that is mended")
        body = {"spec": {"parent": ""}}
        await kube.json("PATCH", QUEUES.path(name="lost"), body=body, content_type=MERGE_PATCH)
        await until(lambda: told("QueueSound"), "the fault's end", timeout_s=DEADLINE_S)
        assert (await found(kube, "lost"))["status"]["state"] == "Open"


@asynccontextmanager
async def writing(kube: KubeClient, *, per_s: float = 100.0, window_s: float = 0.02) -> AsyncIterator[StatusWriter]:
    """A writer alone, told of queues by the API."""
    writer = StatusWriter(kube, instance="l1", per_s=per_s, window_s=window_s)
    informer = Informer(kube, QUEUES, QueueObject)

    async def seen(deltas: Any) -> None:
        for delta in deltas:
            if delta.new is None:
                writer.gone(QueueName(delta.old.metadata.name))
            else:
                writer.seen(delta.new)

    tasks = [asyncio.create_task(informer.run(seen)), asyncio.create_task(writer.run())]
    try:
        await informer.synced.wait()
        yield writer
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_who_fights_for_a_status_has_it_more_and_more_of_the_time(kube: KubeClient) -> None:
    """Volcano's scheduler beside us: each of our writes is answered with another."""
    await make(kube, "research")
    ours = 0
    async with writing(kube) as writer:
        writer.update(RESEARCH, {"pods": 3}, faults="", stopped="")
        await comes_to_say(kube, "research", allocated={"pods": "3"})
        async with asyncio.timeout(30):
            with suppress(TimeoutError):
                async with asyncio.timeout(8):
                    while True:
                        if (await found(kube, "research"))["status"]["allocated"] == {"pods": "3"}:
                            ours += 1
                            theirs = {"allocated": {"pods": "9"}}
                            await patch_status(kube, QUEUES, namespace=None, name="research", status=theirs)
                        await asyncio.sleep(0.01)
    assert 2 <= ours <= 4, "after 2, 4, 8 s"


@pytest.mark.parametrize("lost", [False, True], ids=["late", "lost"])
async def test_its_own_write_is_not_taken_for_somebody_elses_where_the_watch_is_faster_than_the_answer(
    kube: KubeClient, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Each answer comes when the watch has long brought the version, or never."""
    await make(kube, "research")
    patch = patch_status

    async def late(*args: Any, **named: Any) -> Any:
        answer = await patch(*args, **named)
        await asyncio.sleep(0.15)
        if lost:
            raise Unavailable("no answer within 10 s", outcome_unknown=True, retry_after_s=0.01)
        return answer

    monkeypatch.setattr(module, "patch_status", late)
    contests = metrics.STATUSES.labels("contested")._value.get()
    async with writing(kube) as writer:
        for pods in range(1, 9):
            writer.update(RESEARCH, {"pods": pods}, faults="", stopped="")
            async with asyncio.timeout(1.5):
                await comes_to_say(kube, "research", allocated={"pods": str(pods)})
            await asyncio.sleep(0.3)
        assert metrics.STATUSES.labels("contested")._value.get() == contests
        theirs = {"allocated": {"pods": "77"}}  # while somebody else is told from us as ever
        await patch(kube, QUEUES, namespace=None, name="research", status=theirs)
        await until(lambda: metrics.STATUSES.labels("contested")._value.get() == contests + 1, "the contest")


async def test_who_closes_a_queue_and_leaves_out_its_zeros_is_no_rival(kube: KubeClient) -> None:
    """Volcano's tools close a queue by a PUT of the whole status, without every count that is 0."""
    await make(kube, "research")
    contests = metrics.STATUSES.labels("contested")._value.get()
    async with writing(kube) as writer:
        writer.update(RESEARCH, {"pods": 1}, faults="", stopped="")
        writer.counted("0", {RESEARCH: GroupCounts(running=1)})
        queue = await comes_to_say(kube, "research", allocated={"pods": "1"}, running=1, pending=0)
        await asyncio.sleep(0.3)
        queue = await found(kube, "research")
        queue["status"] = {"state": "Closed"} | {
            name: value for name, value in queue["status"].items() if value and name != "state"
        }
        put = await kube.json("PUT", f"{QUEUES.path(name='research')}/status", body=queue)
        assert "pending" not in put["status"]
        await asyncio.sleep(0.3)
        await comes_to_say(kube, "research", state="Closed", running=1)
        assert metrics.STATUSES.labels("contested")._value.get() == contests
        writer.counted("0", {RESEARCH: GroupCounts(pending=2)})
        async with asyncio.timeout(1.0):  # not less often than before
            await comes_to_say(kube, "research", pending=2, running=0)


async def test_who_writes_while_a_write_of_ours_is_under_way_is_noticed(
    kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(kube, "research")
    patch = patch_status
    theirs = {"allocated": {"pods": "77"}}

    async def beaten(*args: Any, **named: Any) -> Any:
        answer = await patch(*args, **named)
        if named["status"].get("allocated") == {"pods": "2"}:
            await patch(kube, QUEUES, namespace=None, name="research", status=theirs)
            await asyncio.sleep(0.3)
        return answer

    monkeypatch.setattr(module, "patch_status", beaten)
    contests = metrics.STATUSES.labels("contested")._value.get()
    async with writing(kube) as writer:
        writer.update(RESEARCH, {"pods": 1}, faults="", stopped="")
        await comes_to_say(kube, "research", allocated={"pods": "1"})
        await asyncio.sleep(0.3)
        writer.update(RESEARCH, {"pods": 2}, faults="", stopped="")
        await until(lambda: metrics.STATUSES.labels("contested")._value.get() == contests + 1, "the contest")


async def test_a_state_is_only_written_on_the_version_that_it_was_worked_out_from(
    kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(kube, "research")
    await patch_status(kube, QUEUES, namespace=None, name="research", status={"state": "Closing"})
    held = asyncio.Event()
    patch = patch_status

    async def late(*args: Any, **named: Any) -> Any:
        if named["status"].get("state") == "Closed":
            opened = {"state": "Open"}
            if not held.is_set():
                held.set()
                await patch(kube, QUEUES, namespace=None, name="research", status=opened)
        return await patch(*args, **named)

    monkeypatch.setattr(module, "patch_status", late)
    async with writing(kube) as writer:
        writer.update(RESEARCH, {}, faults="", stopped="")
        async with asyncio.timeout(DEADLINE_S):
            await held.wait()
        await asyncio.sleep(0.5)
        assert (await found(kube, "research"))["status"]["state"] == "Open"


async def test_many_queues_are_written_at_the_rate_that_was_allowed(kube: KubeClient) -> None:
    names = [QueueName(f"q{number}") for number in range(30)]
    for name in names:
        await make(kube, name)
    async with writing(kube, per_s=20.0) as writer:
        began = asyncio.get_running_loop().time()
        for name in names:
            writer.update(name, {"pods": 1}, faults="", stopped="")
        for name in names:
            await comes_to_say(kube, name, allocated={"pods": "1"})
        assert asyncio.get_running_loop().time() - began >= 29 / 20
