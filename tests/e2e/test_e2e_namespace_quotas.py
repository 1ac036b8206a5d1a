"""ResourceQuotas through all services: two cards of 2,000 MiB are 4,000, and a percentage goes where it is paid for.

small    two cards of 2,000 MiB
large    two cards of 16,000 MiB
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, RESOURCEQUOTAS, KubeClient

from .platform_world import Up, placed, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

GPU, MEM, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("quotas") / "state") as running:
        asyncio.run(_furnish(running))
        yield running


async def _furnish(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name, size in (("small", 2000), ("large", 16_000)):
            body = node(name)
            cards = [
                {
                    "id": f"GPU-{name}-{i}",
                    "index": i,
                    "count": 10,
                    "devmem": size,
                    "devcore": 100,
                    "type": "NVIDIA-X",
                    "health": True,
                }
                for i in range(2)
            ]
            body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(cards)}
            for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
                amounts[GPU] = "20"
            await client.json("POST", NODES.path(), body=body)
        for space in ("team-a", "team-b"):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
            await client.json("POST", "/api/v1/namespaces", body=namespace)


async def limit(client: KubeClient, space: str, memory: int | str, verb: str = "POST") -> None:
    quota = {"metadata": {"name": "cards"}, "spec": {"hard": {f"limits.{MEM}": str(memory)}}}
    if verb == "POST":
        await client.json("POST", RESOURCEQUOTAS.path(space), body={"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    else:
        await client.json("PATCH", RESOURCEQUOTAS.path(space, "cards"), body=quota, content_type="application/merge-patch+json")


async def submit(client: KubeClient, space: str, name: str, **limits: int) -> None:
    words = {"cards": GPU, "memory": MEM, "percent": PERCENT}
    asked = {words[word]: str(units) for word, units in limits.items()}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "hbox",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": asked}}],
        },
    }
    await client.json("POST", PODS.path(space), body=body)


async def comes(client: KubeClient, space: str, want: set[str]) -> dict[str, str]:
    async with asyncio.timeout(30):
        while (found := await placed(client, space)).keys() != want:  # noqa: ASYNC110  what others do sets no event of ours
            await asyncio.sleep(0.1)
    return found


def why(running: Up, space: str) -> dict[str, str]:
    jobs: list[dict[str, Any]] = running.json("jobs", "--state-is", "waiting")["items"]
    return {name: str(job["reason"]) for job in jobs for there, _, name in [job["name"].partition("/")] if there == space}


async def reason_with(running: Up, space: str, name: str, part: str) -> str:
    """The waiting job's reason, once it contains `part`."""

    def reason() -> str:
        found = why(running, space).get(name, "")
        return found if part in found else ""

    return str(
        await asyncio.to_thread(until, reason, timeout_s=20, what=f"reason of {name} with {part}: {why(running, space)}")
    )


async def test_of_two_pods_with_two_cards_of_2000_mib_one_runs_and_the_other_after_it(platform: Up, client: KubeClient) -> None:
    await limit(client, "team-a", 4000)
    await known(platform, "team-a")
    await submit(client, "team-a", "first", cards=2, memory=2000)
    await comes(client, "team-a", {"first"})
    await submit(client, "team-a", "second", cards=2, memory=2000)
    expected = (
        "0/2 nodes are available: 2 ResourceQuotaNotFit; ResourceQuota cards of namespace team-a allows 4000 of limits.nvidia.com/gpumem, "
        "4000 are in use and 4000 more are asked for"
    )
    await reason_with(platform, "team-a", "second", expected)
    assert (await placed(client, "team-a")).keys() == {"first"}

    [item] = platform.json("quota", "ls", "-n", "team-a")["items"]
    assert (item["name"], item["resource"], item["used"], item["limit"], item["waitingJobs"]) == (
        "team-a/cards",
        MEM,
        4000,
        4000,
        1,
    )

    await client.json("DELETE", PODS.path("team-a", "first"))
    await comes(client, "team-a", {"second"})


async def test_what_holds_survives_the_death_of_ledger_and_scheduler(platform: Up, client: KubeClient) -> None:
    """The second of before runs. Both are killed while a third waits, and know the same afterwards."""
    await submit(client, "team-a", "third", cards=1, memory=2000)
    await reason_with(platform, "team-a", "third", "ResourceQuota cards of namespace team-a")
    for name in ("quota-ledger", "scheduler-core"):
        os.kill(platform.pids()[name], signal.SIGKILL)
    await submit(client, "team-a", "plain")
    await submit(client, "team-b", "free", cards=1, memory=1000)
    await comes(client, "team-b", {"free"})
    await reason_with(platform, "team-a", "third", "4000 are in use and 2000 more are asked for")
    assert (await comes(client, "team-a", {"second", "plain"})).keys() == {"second", "plain"}
    change = platform.json("quota", "set", "team-a", "--gpumem", "3000", "--dry-run")
    assert (change["over"], change["waitingJobs"]) == ({MEM: 1000}, 1)
    raised = platform.hbox("quota", "set", "team-a", "--gpumem", "6000")
    assert raised.returncode == 0, raised.stderr
    assert "nvidia.com/gpumem: 4000 -> 6000, 4000 in use" in raised.stderr
    await comes(client, "team-a", {"second", "plain", "third"})
    audit = platform.json("audit")
    assert audit["faults"] == []


async def test_a_percentage_goes_to_the_card_that_the_quota_pays_for(platform: Up, client: KubeClient) -> None:
    """A quarter of a card: 500 MiB on the small ones, 4,000 on the large."""
    for space, names in (("team-a", ("second", "third")), ("team-b", ("free",))):
        for name in names:
            await client.json("DELETE", PODS.path(space, name))
    await comes(client, "team-b", set())
    made = platform.hbox("quota", "set", "team-b", "--gpumem", "2500")
    assert "made quota team-b/cards" in made.stderr
    nowhere = platform.hbox("quota", "set", "no-such-namespace", "--gpu", "1")
    assert nowhere.returncode == 3, nowhere.stderr
    await known(platform, "team-b")
    parts = [f"part-{number}" for number in range(3)]
    for name in parts:
        await submit(client, "team-b", name, cards=1, percent=25)
    places = await comes(client, "team-b", set(parts))
    assert set(places.values()) == {"small"}
    await submit(client, "team-b", "dear", cards=1, percent=100)
    reason = await reason_with(platform, "team-b", "dear", "1 CardsInUse, 1 ResourceQuotaNotFit")
    assert "allows 2500 of limits.nvidia.com/gpumem, 1500 are in use and 2000 more are asked for" in reason
    table = platform.hbox("quota", "ls")
    assert table.returncode == 0
    assert "team-b     cards  nvidia.com/gpumem" in table.stdout


async def test_reasons_of_waiting_jobs_state_the_fault_of_an_unreadable_quota(platform: Up, client: KubeClient) -> None:
    await limit(client, "team-b", "4Gi", "PATCH")
    fault = "limits.nvidia.com/gpumem is 4Gi; write a plain number"
    await reason_with(platform, "team-b", "dear", fault)
    [item] = platform.json("quota", "ls", "-n", "team-b")["items"]
    assert fault in item["fault"]
    await client.json("DELETE", RESOURCEQUOTAS.path("team-b", "cards"))
    await comes(client, "team-b", {"part-0", "part-1", "part-2", "dear"})
    assert platform.json("quota", "ls", "-n", "team-b")["items"] == []


async def known(running: Up, space: str) -> None:
    """The ledger has heard of the namespace's quota."""
    await asyncio.to_thread(
        until, lambda: running.json("quota", "ls", "-n", space)["items"], timeout_s=20, what=f"the quota of {space}"
    )
