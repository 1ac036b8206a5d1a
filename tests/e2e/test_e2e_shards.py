"""Several schedulers on a running platform: by pools, and by queues.

By pools there are six nodes of eight cards: n0 to n2 of `pooled`, lab-0 to lab-2 of `lab`, which the queue vision owns. By queues all are of `pooled`.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.model import Job, JobId, QueueName
from hbox_common.model.shards import Shards

from .. import waiting
from .platform_world import Up, placed, queue, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
BY_POOL = "main=*;lab=lab"


@asynccontextmanager
async def client_of(running: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        yield client


async def nodes(running: Up, **pools: str) -> None:
    """By name with _ for -: the pool, empty for `pooled`."""
    async with client_of(running) as client:
        for name, pool in pools.items():
            body = node(name.replace("_", "-"))
            body["metadata"]["labels"] |= {"hbox.io/pool": pool} if pool else {}
            await client.json("POST", NODES.path(), body=body)


async def submit(
    client: KubeClient, name: str, count: int, *, selector: str = "", pause_s: float = 0.0, first: int = 0
) -> None:
    """Pods of one card each, of the queue of that name, numbered from `first` on."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(first, first + count):
        spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "annotations": {"scheduling.volcano.sh/queue-name": name}},
            "spec": spec | ({"nodeSelector": {"hbox.io/pool": selector}} if selector else {}),
        }
        await client.json("POST", PODS.path(SPACE), body=body)
        await asyncio.sleep(pause_s)


async def remove_all(client: KubeClient, running: Up) -> None:
    """No pod is left, and the books never had a fault."""
    assert running.json("audit", "--ledger")["faults"] == []
    assert running.json("audit")["faults"] == []
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        await client.json("DELETE", PODS.path(SPACE, pod["metadata"]["name"]))

    async def none() -> bool:
        return not (await client.json("GET", PODS.path(SPACE)))["items"]

    await waiting.until(none, "no pods")


async def come_to_be(client: KubeClient, prefix: str, count: int, *, within_s: float = 40.0) -> set[str]:
    """So many pods of that name have nodes. Returns these."""
    found: dict[str, str] = {}

    async def there() -> bool:
        nonlocal found
        found = await placed(client, SPACE, prefix)
        return len(found) == count

    await waiting.until(there, f"{count} of {prefix}", timeout_s=within_s)
    return set(found.values())


def health(running: Up, process: str) -> str:
    found: str = json.loads((running.state / "platform.json").read_text())["health"][process]
    return found


def ready(running: Up, process: str) -> str:
    """What it says of its readiness."""
    with urlopen(f"{health(running, process)}/readyz") as answer:
        text: str = answer.read().decode()
        return text


def metric(running: Up, process: str, name: str, **labels: str) -> float:
    """The sum of that metric of a process."""
    with urlopen(f"{health(running, process)}/metrics") as answer:
        text = answer.read().decode()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{| )", line)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(each in line for each in wanted))


@pytest.fixture(scope="module")
def by_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("shards") / "state", "--shards", BY_POOL) as running:
        asyncio.run(nodes(running, n0="pooled", n1="pooled", n2="pooled", lab_0="lab", lab_1="lab", lab_2="lab"))
        queue(running, "create", "vision", "--pools", "lab,pooled")
        queue(running, "create", "speech")
        queue(running, "create", "movers")
        until(lambda: _nodes_known(running) == [3, 3], timeout_s=20, what="each scheduler knows its nodes")
        yield running


def _nodes_known(running: Up) -> list[float]:
    return [metric(running, f"scheduler-core-{shard}", "hbox_scheduler_nodes") for shard in ("main", "lab")]


@pytest.fixture
async def client(by_pool: Up) -> AsyncIterator[KubeClient]:
    async with client_of(by_pool) as one:
        yield one


async def test_each_pool_has_a_scheduler_of_its_own(by_pool: Up, client: KubeClient) -> None:
    await submit(client, "speech", 8)
    await submit(client, "vision", 8)
    assert await come_to_be(client, "speech", 8) <= {"n0", "n1", "n2"}
    assert await come_to_be(client, "vision", 8) <= {"lab-0", "lab-1", "lab-2"}
    for shard, others in {"main": "lab", "lab": "main"}.items():
        process = f"scheduler-core-{shard}"
        assert metric(by_pool, process, "hbox_scheduler_nodes") == 3
        assert metric(by_pool, process, "hbox_scheduler_placements_total") == 8
        assert metric(by_pool, process, "hbox_scheduler_shard", shard=shard) == 1
        assert metric(by_pool, process, "hbox_scheduler_shard", shard=others) == 0
    await remove_all(client, by_pool)


async def test_pods_that_name_a_pool_go_to_the_shard_that_has_it(by_pool: Up, client: KubeClient) -> None:
    await submit(client, "vision", 30, selector="pooled")  # more than there is: six wait
    assert await come_to_be(client, "vision", 24) == {"n0", "n1", "n2"}
    said = by_pool.hbox("why", "vision-29" if "vision-29" not in await placed(client, SPACE) else "vision-0")
    assert "shard main" in said.stdout, said
    await remove_all(client, by_pool)


async def test_a_job_whose_queue_gets_other_pools_goes_to_the_other_shard(by_pool: Up, client: KubeClient) -> None:
    await submit(client, "speech", 24)
    await come_to_be(client, "speech", 24)
    await submit(client, "movers", 3)

    def waits(shard: str) -> bool:
        found = [job for job in by_pool.json("jobs")["items"] if job["queue"] == "movers"]
        return len(found) == 3 and all(job.get("shard") == shard for job in found)

    await waiting.until(lambda: waits("main"), "they are of shard main")
    queue(by_pool, "set", "movers", "--pools", "lab")
    assert await come_to_be(client, "movers", 3) <= {"lab-0", "lab-1", "lab-2"}
    await waiting.until(lambda: waits("lab"), "they are of shard lab")
    await remove_all(client, by_pool)


async def test_a_shard_without_scheduler_waits_and_says_so_while_the_other_goes_on(by_pool: Up, client: KubeClient) -> None:
    hung = by_pool.pids()["scheduler-core-lab"]
    os.kill(hung, signal.SIGSTOP)
    try:
        await submit(client, "vision", 6)
        await submit(client, "speech", 12)
        assert await come_to_be(client, "speech", 12) <= {"n0", "n1", "n2"}
        assert await placed(client, SPACE, "vision") == {}

        def told() -> bool:
            said = by_pool.hbox("why", "vision-0").stdout
            return "shard lab has no scheduler" in said and "shard lab" in said.splitlines()[0]

        await waiting.until(told, "hbox why says that nobody places it", timeout_s=60)
        await waiting.until(
            lambda: "shard lab has no scheduler" in ready(by_pool, "job-controller"), "its condition says so too"
        )
        assert metric(by_pool, "job-controller", "hbox_jobs_waiting_by_shard", shard="lab") == 6
        assert metric(by_pool, "job-controller", "hbox_jobs_shard_silent_seconds", shard="lab") > 30
    finally:
        os.kill(hung, signal.SIGCONT)
    assert await come_to_be(client, "vision", 6) <= {"lab-0", "lab-1", "lab-2"}
    await waiting.until(lambda: "no scheduler" not in ready(by_pool, "job-controller"), "it is heard of")
    await remove_all(client, by_pool)


async def test_a_scheduler_that_is_killed_in_a_burst_loses_nothing_and_holds_nobody_up(by_pool: Up, client: KubeClient) -> None:
    async def bursts(name: str) -> None:
        await submit(client, name, 24)

    tasks = [asyncio.create_task(bursts("vision")), asyncio.create_task(bursts("speech"))]
    for _ in range(3):
        await asyncio.sleep(0.3)
        with suppress(ProcessLookupError):  # it has not been started again yet
            os.kill(by_pool.pids()["scheduler-core-lab"], signal.SIGKILL)
    await asyncio.gather(*tasks)
    await come_to_be(client, "speech", 24)
    await come_to_be(client, "vision", 24)
    await remove_all(client, by_pool)


@pytest.fixture(scope="module")
def by_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("queues") / "state", "--shards", "2") as running:
        asyncio.run(nodes(running, n0="", n1="", n2="", n3=""))
        yield running


async def test_by_queue_two_schedulers_fill_the_same_nodes_and_give_nothing_twice(by_queue: Up) -> None:
    queues = {"alpha": "0", "blue": "0", "beta": "1", "red": "1"}
    for name, shard in queues.items():
        assert Shards.parse("2").of(job_of(name)) == shard
        queue(by_queue, "create", name)
    async with client_of(by_queue) as client:
        await asyncio.gather(*(submit(client, name, 8) for name in queues))
        for name in queues:
            await come_to_be(client, name, 8)
        placements = [metric(by_queue, f"scheduler-core-{shard}", "hbox_scheduler_placements_total") for shard in "01"]
        assert all(count >= 16 for count in placements), placements
        assert metric(by_queue, "scheduler-core-0", "hbox_scheduler_nodes") == 4
        await remove_all(client, by_queue)


async def test_by_queue_a_queue_takes_back_what_it_deserves_from_one_of_another_shard(by_queue: Up) -> None:
    queue(by_queue, "create", "owner", "--deserved", f"{GPU}=16")
    queue(by_queue, "create", "lender")
    assert (Shards.parse("2").of(job_of("owner")), Shards.parse("2").of(job_of("lender"))) == ("0", "1")
    async with client_of(by_queue) as client:
        await submit(client, "lender", 32)
        await come_to_be(client, "lender", 32)
        await submit(client, "owner", 16)
        await come_to_be(client, "owner", 16)
        await come_to_be(client, "lender", 16)
        await asyncio.sleep(2.5)
        assert len(await placed(client, SPACE, "owner")) == len(await placed(client, SPACE, "lender")) == 16
        await remove_all(client, by_queue)


async def test_the_number_of_shards_changes_under_load(tmp_path: Path) -> None:
    """One scheduler becomes two, and one again, by settings and new processes, while pods come all the time."""
    settings = tmp_path / "hbox.yaml"
    settings.write_text("{}")
    with up(tmp_path / "state", env={"HBOX_CONFIG": str(settings)}) as running:
        await asyncio.to_thread(lambda: asyncio.run(nodes(running, n0="", n1="", n2="", n3="", n4="", n5="")))
        for name in ("alpha", "beta"):
            queue(running, "create", name)
        async with client_of(running) as client:
            load = [
                asyncio.create_task(submit(client, name, count, pause_s=0.25)) for name, count in (("alpha", 24), ("beta", 20))
            ]
            await come_to_be(client, "alpha", 2)
            settings.write_text('{job-controller: {shards: "2"}, scheduler-core: {shards: "2", shard: "0"}}')
            again(running, "job-controller", "scheduler-core")
            environment = json.loads((running.state / "settings.json").read_text())["scheduler-core"]
            environment |= {"HBOX_SHARDS": "2", "HBOX_SHARD": "1", "HBOX_HEALTH_PORT": "0", "HBOX_CONFIG": ""}
            second = scheduler(environment, tmp_path / "second.log")
            try:
                await submit(client, "beta", 4, first=20)
                await waiting.until(lambda: placed(client, SPACE, "beta-23"), "the other scheduler places", timeout_s=60)
            finally:
                second.kill()
                second.wait()
            settings.write_text("{}")
            again(running, "job-controller", "scheduler-core")
            await asyncio.gather(*load)
            await come_to_be(client, "alpha", 24, within_s=60)
            await come_to_be(client, "beta", 24, within_s=60)
            assert running.json("audit", "--ledger")["faults"] == []
            assert running.json("audit")["faults"] == []


def scheduler(environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A process of our own beside those of the platform."""
    with log.open("wb") as out:
        return subprocess.Popen([sys.executable, "-m", "hbox_scheduler"], env=os.environ | dict(environment), stderr=out)


def again(running: Up, *services: str) -> None:
    for name in services:
        os.kill(running.pids()[name], signal.SIGKILL)


def job_of(name: str) -> Job:
    """A job of that queue."""
    ids = {"id": JobId("j"), "namespace": "n", "name": "j", "queue": QueueName(name)}
    return Job(**ids, priority=0, min_member=1, members=1, bound=0, created_at=0.0, revision=1, tasks=())  # type: ignore[arg-type]
