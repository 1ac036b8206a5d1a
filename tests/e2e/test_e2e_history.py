"""Two queues of equal weight on a running platform; one had the cluster to itself for hours. By a policy that remembers, the next cards that are free go to the
other; the hours were lived by the real ledger on a clock of our own, before the platform starts on its database. `hbox simulate cycle`, told of them, says the
same.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.model import CardSlice, PodPhase, Queue, QueueName
from hbox_common.model.annotations import RECENT_CARDS

from ..integration.ledger.conftest import fact, plan, started
from .platform_world import Up, saved, simulate_cycle, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"

POLICY = """
actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: capacity, arguments: {usageWeight: 1}}
  - {name: binpack}
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A node of eight cards, for two queues."""
    folder = tmp_path_factory.mktemp("history")
    database = f"sqlite:///{folder / 'kept.db'}"  # in the state folder each start is a new world
    asyncio.run(_hours(database))
    (folder / "policy.yaml").write_text(POLICY)
    with up(
        folder / "state",
        "--database",
        database,
        env={"HBOX_SCHEDULER_CONF": str(folder / "policy.yaml"), "HBOX_RECONCILE_S": "1"},
    ) as running:
        asyncio.run(_node(running))
        for name in ("greedy", "modest"):
            assert running.hbox("queue", "create", name).returncode == 0
        yield running


async def _hours(database: str) -> None:
    """Nine hours in which the queue `greedy` holds eight cards, and one in which nobody has any."""
    async with started(database, now=time.time() - 10 * 3600) as before:
        await before.open()
        await before.ledger.set_queues(Queue(QueueName("greedy")))
        whole = [(f"old-{n}-{i}", n, (CardSlice(i, 100, 40_960),)) for n in ("n0", "n1") for i in range(4)]
        await before.propose(plan("old", *whole).model_copy(update={"queue": "greedy"}))
        before.clock[0] += 9 * 3600
        for number, holding in enumerate(list(before.ledger.state.live.values())):
            claim = holding.claim
            await before.see(f"end-{number}", fact(claim.pod, claim.node, PodPhase.SUCCEEDED, claim=claim.id))
        assert not before.ledger.state.live
        await before.ledger.meter()


async def _node(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("n0"))


def cards(running: Up) -> dict[str, int]:
    return {item["name"]: item["used"].get(GPU, 0) for item in running.json("queue", "ls")["items"]}


async def submit(client: KubeClient, queue: str, name: str, count: int) -> None:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(count):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "annotations": {"scheduling.volcano.sh/queue-name": queue}},
            "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        await client.json("POST", PODS.path(SPACE), body=body)


async def wait(what: Any, text: str) -> None:
    await asyncio.to_thread(until, what, timeout_s=40, what=text)


async def test_who_had_it_all_waits_until_the_other_has_caught_up(platform: Up, client: KubeClient, tmp_path: Path) -> None:
    await submit(client, "greedy", "first", 8)
    await wait(lambda: cards(platform)["greedy"] == 8, "greedy has the cluster")
    await submit(client, "greedy", "more", 6)  # older than those of the other, and as important
    await submit(client, "modest", "late", 6)
    await asyncio.sleep(1)
    assert cards(platform)["greedy"] == 8, "nobody is evicted for the sake of history"

    def history(name: str) -> float:
        return float(platform.json("queue", "show", name)["fair"]["recentCards"])

    assert history("greedy") > 5
    assert history("modest") == 0
    os.kill(platform.pids()["quota-ledger"], signal.SIGKILL)
    await wait(lambda: platform.hbox("queue", "ls").returncode == 0, "the next ledger")
    assert history("greedy") > 5, "a restart forgets nothing"

    share = platform.json("share", "greedy")
    [own] = share["levels"]
    assert (share["usageWeight"], share["cards"], own["fair"]["part"]) == (1.0, 8, 0.5)
    assert own["fair"]["counts"] < 0.4
    assert own["fair"]["share"] < own["fair"]["shareWithoutHistory"]
    said = platform.hbox("share", "greedy").stdout
    assert "of 8 cards on average (half-life 168 h)" in said
    assert "it is served after others" in said

    ending = [f"first-{number}" for number in range(6)]
    there = [one for one in await saved(client) if one["metadata"]["name"] not in ending]
    for one in there:
        if one["kind"] == "Queue" and one["metadata"]["name"] in ("greedy", "modest"):
            one["metadata"].setdefault("annotations", {})[RECENT_CARDS] = str(history(one["metadata"]["name"]))
    found = simulate_cycle(tmp_path, there, policy=POLICY)["bindings"]
    assert sorted(one["pod"] for one in found) == [f"{SPACE}/late-{number}" for number in range(6)]
    for name in ending:
        await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0})
    await wait(lambda: cards(platform)["modest"] == 6, f"the free cards for modest, found {cards(platform)}")
    assert cards(platform)["greedy"] == 2, "what greedy still runs"

    assert platform.json("audit")["faults"] == []
