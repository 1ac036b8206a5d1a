"""Several schedulers on a running platform: by pools, and by queues.

By pools there are six nodes of eight cards: n0 to n2 of `pooled`, lab-0 to lab-2 of `lab`, which the queue vision owns. By queues all are of `pooled`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from urllib.request import urlopen

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .. import waiting
from .platform_world import Up, placed, queue, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
BY_POOL = "main=*;lab=lab"


async def client_of(running: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        yield client


async def nodes(running: Up, **pools: str) -> None:
    """By name with _ for -: the pool, empty for `pooled`."""
    async for client in client_of(running):
        for name, pool in pools.items():
            body = node(name.replace("_", "-"))
            body["metadata"]["labels"] |= {"hbox.io/pool": pool} if pool else {}
            await client.json("POST", NODES.path(), body=body)


async def submit(client: KubeClient, name: str, count: int, *, of: str = "", selector: str = "") -> None:
    """Pods of one card each, of the queue of that name."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(count):
        spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "annotations": {"scheduling.volcano.sh/queue-name": of or name}},
            "spec": spec | ({"nodeSelector": {"hbox.io/pool": selector}} if selector else {}),
        }
        await client.json("POST", PODS.path(SPACE), body=body)


async def remove_all(client: KubeClient) -> None:
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


def metric(running: Up, process: str, name: str, **labels: str) -> float:
    """The sum of that metric of a process."""
    health = json.loads((running.state / "platform.json").read_text())["health"]
    with urlopen(f"{health[process]}/metrics") as answer:
        text = answer.read().decode()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{| )", line)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(each in line for each in wanted))


@pytest.fixture(scope="module")
def by_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("shards") / "state", "--shards", BY_POOL) as running:
        asyncio.run(nodes(running, n0="", n1="", n2="", lab_0="lab", lab_1="lab", lab_2="lab"))
        queue(running, "create", "vision", "--pools", "lab,pooled")
        queue(running, "create", "speech")
        yield running


@pytest.fixture
async def client(by_pool: Up) -> AsyncIterator[KubeClient]:
    async for one in client_of(by_pool):
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
    assert by_pool.json("audit", "--ledger")["faults"] == []
    await remove_all(client)
