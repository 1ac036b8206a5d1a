"""Offline work beside online work through all services, by HBox's own policy and by one without an action that evicts; `hbox simulate cycle` takes the same.
tests/real/test_real_shares.py has the story on a real control plane.

batch       may use 2 cards, which says nothing of its offline work; takes back nothing and gives nothing back
borrower    no amounts
owner       deserves 2
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, PRIORITYCLASSES, QUEUES, KubeClient

from .. import waiting
from .platform_world import Up, own_policy, simulate_cycle, until, up
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SPACE, GPU = "default", "nvidia.com/gpu"

#: Nobody has to leave by it.
PLACES_ALONE = """\
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: predicates}, {name: capacity}, {name: binpack}]
"""

QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
RULES: list[dict[str, Any]] = [
    {**QUEUE, "metadata": {"name": "batch"}, "spec": {"reclaimable": False, "capability": {GPU: "2"}}},
    {**QUEUE, "metadata": {"name": "borrower"}, "spec": {}},
    {**QUEUE, "metadata": {"name": "owner"}, "spec": {"deserved": {GPU: "2"}}},
    {**QUEUE, "metadata": {"name": "listed", "annotations": {"hbox.io/priority-classes": "high"}}, "spec": {}},
]
CLASSES = {"high": 300, "medium": 200, "low": -100, "offline": -200}


def pod(name: str, of: str, level: str = "") -> dict[str, Any]:
    """Its owner wants a day to end, and to be taken from by nobody."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    notes = {"scheduling.volcano.sh/queue-name": of, "volcano.sh/preemptable": "false", "hbox.io/min-run-time": "9h"}
    spec: dict[str, Any] = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 86_400, "containers": [container]}
    if level:
        spec |= {"priorityClassName": level, "priority": CLASSES[level]}
    metadata = {"name": name, "namespace": SPACE, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def several(word: str, count: int, of: str, level: str = "") -> list[dict[str, Any]]:
    return [pod(f"{word}-{number}", of, level) for number in range(count)]


async def create(client: KubeClient, pods: list[dict[str, Any]]) -> None:
    for one in pods:
        body = {
            **one,
            "spec": {key: value for key, value in one["spec"].items() if key != "priority"},
        }  # that the API server writes
        await client.json("POST", PODS.path(SPACE), body=body)


async def held(client: KubeClient) -> Counter[str]:
    """Pods with a node that are not leaving, by the first word of their names."""
    pods = (await client.json("GET", PODS.path(SPACE)))["items"]
    return Counter(
        one["metadata"]["name"].split("-")[0]
        for one in pods
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    )


def simulated(folder: Path, running: list[dict[str, Any]], waits: list[dict[str, Any]], policy: str) -> dict[str, int]:
    """Whom `hbox simulate cycle` evicts, by the first word of their names."""
    placed = [{**one, "spec": {**one["spec"], "nodeName": "n0"}, "status": {"phase": "Running"}} for one in running]
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in CLASSES.items()
    ]
    items = [node("n0"), *RULES, *classes, *placed, *waits]
    found = simulate_cycle(folder, items, policy=policy or own_policy())
    return dict(Counter(one["pod"].partition("/")[2].split("-")[0] for one in found["evictions"]))


def said(running: Up, of: str) -> str:
    return " ".join(job["reason"] for job in running.json("jobs", "-q", of, "--state-is", "waiting")["items"])


@pytest.mark.parametrize("policy", ["", PLACES_ALONE], ids=["own", "places alone"])
async def test_offline_work_has_what_is_idle_and_leaves_first_for_anybody(tmp_path: Path, policy: str) -> None:
    (tmp_path / "volcano-scheduler.conf").write_text(policy)
    env = {"HBOX_NOTICE_S": "2"} | ({"HBOX_SCHEDULER_CONF": str(tmp_path / "volcano-scheduler.conf")} if policy else {})
    with up(tmp_path / "state", "--levels", env=env) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await story(client, running, tmp_path, policy)


async def story(client: KubeClient, running: Up, folder: Path, policy: str = "") -> None:
    listed = (await client.json("GET", PRIORITYCLASSES.path()))["items"]
    assert {one["metadata"]["name"]: one["value"] for one in listed}["offline"] < 0
    await client.json("POST", NODES.path(), body=node("n0"))
    for rule in RULES:
        await client.json("POST", QUEUES.path(), body=rule)
    until(lambda: running.hbox("queue", "show", "listed").returncode == 0, timeout_s=20, what="the queues")

    async def come_to_be(**expected: int) -> None:
        async def so() -> bool:
            return await held(client) == expected

        await waiting.until(so, str(expected), timeout_s=60)

    spot = several("spot", 8, "batch", "offline")
    await create(client, [*spot, *several("stranger", 1, "listed", "offline")])
    await come_to_be(spot=8)  # its queue may use 2
    until(lambda: "QueueNotForPriorityClass" in said(running, "listed"), timeout_s=20, what="why the stranger waits")

    low = several("low", 3, "borrower", "low")
    assert simulated(folder, spot, low, policy) == {"spot": 3}
    await create(client, low)
    await come_to_be(spot=5, low=3)  # who borrows takes from nobody else

    mine = several("mine", 2, "owner")
    assert simulated(folder, [*spot[3:], *low], mine, policy) == {"spot": 2}
    await create(client, mine)
    await come_to_be(spot=3, low=3, mine=2)  # the borrower's would have gone

    more = several("more", 3, "batch")
    assert simulated(folder, [*spot[5:], *low, *mine], more, policy) == {"spot": 2}
    await create(client, more)
    await come_to_be(spot=1, low=3, mine=2, more=2)  # the limit of their queue holds for them

    gone = {one["metadata"]["name"] for one in spot} - {
        one["metadata"]["name"] for one in (await client.json("GET", PODS.path(SPACE)))["items"]
    }
    [receipt] = running.json("why", "--evicted", min(gone))["receipts"]
    assert "offline jobs are evicted first" in receipt["message"]
    assert receipt["returns"] == "when the resources that it requests are idle"
    assert receipt["noticeSeconds"] == 2
    assert f"{GPU}@~offline" in running.hbox("-o", "json", "queue", "show", "batch").stdout

    await client.json("DELETE", f"{PODS.path(SPACE)}/low-0", body={"gracePeriodSeconds": 0})
    await create(client, several("later", 2, "batch", "offline"))
    await come_to_be(spot=1, later=1, low=2, mine=2, more=2)
    assert running.json("audit")["faults"] == []
    assert running.json("audit", "--ledger")["faults"] == []
