"""What holds of jobs as Volcano's controllers make them, by Volcano's default policy: on the emulated API server and on a real one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from hbox_common.kube import MERGE_PATCH, PODGROUPS, PODS, KubeClient

from ..waiting import until

SPACE = "default"

#: Volcano's own default, but that nothing is let in above what there is.
POLICY = """\
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins:
  - {name: overcommit, arguments: {overcommit-factor: 1.0}}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""

CORES = 4
GATE = "example.com/wait"


def node(name: str, labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    size = {"cpu": str(CORES), "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def group(client: KubeClient, name: str, *, members: int, cores: int = 0) -> None:
    spec: dict[str, Any] = {"minMember": members, "queue": "default"}
    if cores:
        spec["minResources"] = {"cpu": str(cores), "pods": str(members)}
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    await client.json("POST", PODGROUPS.path(SPACE), body=body)


async def pods(client: KubeClient, name: str, count: int, *, cores: int = 0, scheduler: str = "hbox", **more: Any) -> None:
    """Members of the PodGroup of that name, with a finalizer."""
    resources = {"requests": {"cpu": str(cores)}} if cores else {}
    for number in range(count):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "annotations": {"scheduling.k8s.io/group-name": name},
                "finalizers": ["example.com/stays"],
            },
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "pause", "resources": resources}],
                **more,
            },
        }
        await client.json("POST", PODS.path(SPACE), body=body)


async def remove(client: KubeClient, *names: str) -> None:
    """PodGroups with all of their pods, at once."""
    listed = await client.json("GET", PODS.path(SPACE))
    for pod in (one["metadata"]["name"] for one in listed["items"]):
        if pod.rpartition("-")[0] in names:
            await end(client, pod)
    for name in names:
        await client.json("DELETE", PODGROUPS.path(SPACE, name))


async def end(client: KubeClient, pod: str) -> None:
    await client.json("PATCH", PODS.path(SPACE, pod), body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    await client.request("DELETE", PODS.path(SPACE, pod), params={"gracePeriodSeconds": "0"})  # it may be gone by now


async def phase(client: KubeClient, name: str) -> str:
    found = await client.json("GET", PODGROUPS.path(SPACE, name))
    return str(found.get("status", {}).get("phase", ""))


async def reaches(client: KubeClient, name: str, wanted: str) -> None:
    async def there() -> bool:
        return await phase(client, name) == wanted

    await until(there, f"PodGroup {name} {wanted}", timeout_s=30.0)


async def nodes_of(client: KubeClient, name: str) -> list[str]:
    listed = await client.json("GET", PODS.path(SPACE))
    own = [pod for pod in listed["items"] if pod["metadata"]["name"].rpartition("-")[0] == name]
    return [pod["spec"]["nodeName"] for pod in own if pod["spec"].get("nodeName")]


async def why(client: KubeClient, name: str) -> str:
    """The PodGroup's condition that says why it waits."""
    found = await client.json("GET", PODGROUPS.path(SPACE, name))
    said = [one for one in found.get("status", {}).get("conditions", []) if one["type"] == "Unschedulable"]
    return str(said[0]["message"]) if said and said[0]["status"] == "True" else ""


async def events(client: KubeClient, name: str) -> list[str]:
    """What Events say of the PodGroup, as `reason: message`."""
    listed = await client.json("GET", f"/api/v1/namespaces/{SPACE}/events")
    about = [one for one in listed["items"] if one["involvedObject"]["name"] == name]
    return [f"{one['reason']}: {one['message']}" for one in about]


# The scenarios. Each is given a cluster of one node with CORES cores and leaves it as it was.


async def pods_that_ask_for_nothing_run_on_a_full_cluster(client: KubeClient) -> None:
    await group(client, "full", members=CORES, cores=CORES)
    await pods(client, "full", CORES, cores=1)
    await reaches(client, "full", "Running")
    await group(client, "nothing", members=3)
    await pods(client, "nothing", 3)
    await reaches(client, "nothing", "Running")
    assert len(await nodes_of(client, "nothing")) == 3
    await remove(client, "full", "nothing")


async def a_gang_with_scheduling_gates_keeps_nobody_out_and_runs_once_they_are_gone(client: KubeClient) -> None:
    await group(client, "gated", members=2, cores=CORES)
    await pods(client, "gated", 2, cores=CORES // 2, schedulingGates=[{"name": GATE}])
    await reaches(client, "gated", "Inqueue")
    await group(client, "plain", members=CORES, cores=CORES)
    await pods(client, "plain", CORES, cores=1)
    await reaches(client, "plain", "Running")

    async def told() -> bool:
        return bool(await events(client, "gated"))

    await until(told, "an Event on the PodGroup whose pods have gates", timeout_s=30.0)
    counts = "2 pods have scheduling gates, and the gang lacks 2 of the 2 that it needs; they wait until the gates are removed"
    said = f"wait: SchedulingGated: pods have scheduling gates: {counts}"
    assert await events(client, "gated") == [f"FailedScheduling: {said}"]
    assert await why(client, "gated") == said
    await remove(client, "plain")
    for number in range(2):
        path = PODS.path(SPACE, f"gated-{number}")
        await client.json("PATCH", path, body={"spec": {"schedulingGates": None}}, content_type=MERGE_PATCH)
    await reaches(client, "gated", "Running")
    await remove(client, "gated")


async def a_gang_that_waits_for_the_gate_of_volcanos_scheduler_is_told_that_nobody_opens_it(client: KubeClient) -> None:
    await group(client, "admitted", members=1, cores=1)
    await pods(client, "admitted", 1, cores=1, schedulingGates=[{"name": "scheduling.volcano.sh/queue-allocation-gate"}])

    async def explained() -> bool:
        return (await why(client, "admitted")).startswith("change: QueueGateNotRemoved: ")

    await until(explained, "the PodGroup says why its pod waits", timeout_s=30.0)
    said = "no controller removes scheduling.volcano.sh/queue-allocation-gate while HBox schedules: create the pods without that annotation"
    assert (await why(client, "admitted")).endswith(said)
    await remove(client, "admitted")


async def a_gang_stays_running_while_a_member_takes_its_time_to_end(client: KubeClient) -> None:
    for name, members in (("alone", 1), ("pair", 2)):
        await group(client, name, members=members)
        await pods(client, name, members, cores=1)
        await reaches(client, name, "Running")
        await client.json("DELETE", PODS.path(SPACE, f"{name}-0"))
    for _ in range(30):
        assert (await phase(client, "alone"), await phase(client, "pair")) == ("Running", "Running")
        assert not await why(client, "alone")
        assert not await why(client, "pair")
        await asyncio.sleep(0.1)
    await end(client, "pair-0")
    await reaches(client, "pair", "Unknown")
    await remove(client, "alone", "pair")


async def what_another_scheduler_places_is_promised_nothing(client: KubeClient) -> None:
    """The PodGroup is let in, and then its pods turn out to be another's: what it asked for is free again."""
    await group(client, "theirs", members=CORES, cores=CORES)
    await reaches(client, "theirs", "Inqueue")
    await group(client, "ours", members=CORES, cores=CORES)
    await pods(client, "ours", CORES, cores=1)
    await asyncio.sleep(1.0)
    assert await phase(client, "ours") == "Pending"
    await pods(client, "theirs", CORES, cores=1, scheduler="another")
    await reaches(client, "ours", "Running")
    assert await phase(client, "theirs") == "Inqueue"
    await remove(client, "ours", "theirs")


SCENARIOS: list[Callable[[KubeClient], Awaitable[None]]] = [
    pods_that_ask_for_nothing_run_on_a_full_cluster,
    a_gang_with_scheduling_gates_keeps_nobody_out_and_runs_once_they_are_gone,
    a_gang_that_waits_for_the_gate_of_volcanos_scheduler_is_told_that_nobody_opens_it,
    what_another_scheduler_places_is_promised_nothing,
]

#: Where pods do not end before they are gone: the emulator's kubelets have them end at once.
LINGERING = [a_gang_stays_running_while_a_member_takes_its_time_to_end]
