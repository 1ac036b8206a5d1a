"""Three departments on a running platform: walls hold at the department, idle shares are lent, and come back between departments and within one.

vision    deserved 6, limit 12    train deserved 3, serve deserved 3
speech    deserved 5              asr
robots    deserved 5              arm
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import EVENTS, MERGE_PATCH, NODES, PODGROUPS, PODS, QUEUES, KubeClient, apply
from hbox_common.kube.definitions import POD_GROUP, QUEUE, schema_of

from ..waiting import until as until_async
from .platform_world import Up, queue, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def departments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two nodes of eight cards; the tree is made by the commands."""
    state = tmp_path_factory.mktemp("tree") / "state"
    with up(state) as running:
        asyncio.run(_nodes(running))
        queue(running, "create", "vision", "--deserved", f"{GPU}=6", "--capability", f"{GPU}=12")
        for name, share in (("speech", 5), ("robots", 5)):
            queue(running, "create", name, "--deserved", f"{GPU}={share}")
        for name in ("train", "serve"):
            queue(running, "create", name, "--parent", "vision", "--deserved", f"{GPU}=3")
        queue(running, "create", "asr", "--parent", "speech")
        queue(running, "create", "arm", "--parent", "robots")
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name in ("n0", "n1"):
            await client.json("POST", NODES.path(), body=node(name))


@pytest.fixture
async def client(departments: Up) -> AsyncIterator[KubeClient]:
    """The cluster's nodes and queues as they were, and no pods: each test begins with an empty cluster, whichever were before it."""
    async with KubeClient.connect(str(departments.state / "kubeconfig"), user_agent="test") as client:
        await client.json("DELETE", PODS.path(SPACE), params={"gracePeriodSeconds": "0"})
        await asyncio.to_thread(until, lambda: not any(cards(departments).values()), timeout_s=30, what="an empty cluster")
        yield client


def cards(running: Up) -> dict[str, int]:
    """In whichever pool, by queue."""
    return {
        item["name"]: sum(units for name, units in item["used"].items() if name.partition("@")[0] == GPU)
        for item in running.json("queue", "ls")["items"]
        if item["name"] != "default"
    }


async def submit(client: KubeClient, name: str, count: int, *, first: int = 0) -> None:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(first, first + count):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "annotations": {"scheduling.volcano.sh/queue-name": name}},
            "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        await client.json("POST", PODS.path(SPACE), body=body)


def shares(running: Up, names: Iterable[str]) -> dict[str, int]:
    held = cards(running)
    return {name: held[name] for name in names}


async def come_to_have(running: Up, want: dict[str, int]) -> None:
    await asyncio.to_thread(until, lambda: shares(running, want) == want, timeout_s=60, what=str(want))


async def settles(running: Up, want: dict[str, int]) -> None:
    """The departments come to have this, and keep it."""
    await come_to_have(running, want)
    await asyncio.sleep(2.5)  # the scheduler looks for room every two seconds at least: nobody is taken from any more
    assert shares(running, want) == want


def why(running: Up, name: str) -> str:
    jobs: list[dict[str, Any]] = running.json("jobs", "-q", name, "--state-is", "waiting")["items"]
    return str(jobs[0]["reason"]) if jobs else ""


async def test_departments_lend_and_take_back(departments: Up, client: KubeClient) -> None:
    await submit(client, "train", 16)
    await settles(departments, {"vision": 12, "train": 12})
    assert f"queue vision, above queue train, may use 12 {GPU} now, 12 {GPU} are in use and 1 {GPU} more are asked for" in why(
        departments, "train"
    )

    await submit(client, "asr", 6)  # 4 cards are idle, the fifth is speech's own
    await settles(departments, {"vision": 11, "speech": 5})

    await submit(client, "arm", 5)
    await settles(departments, {"vision": 6, "speech": 5, "robots": 5})

    await submit(client, "serve", 4)  # within vision: three are its own
    await settles(departments, {"vision": 6, "train": 3, "serve": 3, "speech": 5, "robots": 5})

    audit = departments.json("audit")
    assert audit["faults"] == []


async def test_the_commands_tell_who_has_what_and_what_a_change_would_do(departments: Up, client: KubeClient) -> None:
    for name, count in (("train", 3), ("serve", 3), ("asr", 5)):
        await submit(client, name, count)
    await asyncio.to_thread(until, lambda: cards(departments)["speech"] == 5, timeout_s=30, what="speech's share")
    await submit(client, "arm", 5)
    await come_to_have(departments, {"vision": 6, "train": 3, "serve": 3, "speech": 5, "robots": 5})
    assert "├ serve" in queue(departments, "tree")
    share = departments.json("share", "train")
    assert (share["used"], share["deserved"], share["borrowed"]) == (3, 3, 0)
    change = departments.json("queue", "set", "speech", "--deserved", f"{GPU}=4", "--dry-run")
    [gives] = change["giveBack"]
    assert (gives["queue"], gives["units"], len(gives["claims"])) == ("speech", 1, 1)
    assert departments.json("queue", "show", "speech")["deserved"] == {GPU: 5}, "nothing was changed"
    refused = departments.hbox("queue", "set", "vision", "--parent", "train")
    assert refused.returncode == 5
    assert "its parents form a circle (vision -> train -> vision)" in refused.stderr


async def test_nodes_of_a_pool_are_for_the_queue_that_names_it(departments: Up, client: KubeClient) -> None:
    """A laboratory's own node, while many wait elsewhere."""
    await submit(client, "train", 12)
    await submit(client, "arm", 4)
    await come_to_have(departments, {"train": 12, "robots": 4})
    own = node("n2")
    own["metadata"]["labels"] = {**own["metadata"].get("labels", {}), "hbox.io/pool": "lab"}
    await client.json("POST", NODES.path(), body=own)
    queue(departments, "create", "lab", "--pools", "lab", "--namespaces", "elsewhere")
    await submit(client, "lab", 9)
    barred = "QueueNotForNamespace: queue lab is for namespace elsewhere, not for default"
    await asyncio.to_thread(until, lambda: why(departments, "lab").startswith(barred), timeout_s=20, what="the reason")
    queue(departments, "set", "lab", "--namespaces", "elsewhere,default")
    await asyncio.to_thread(until, lambda: cards(departments)["lab"] == 8, timeout_s=30, what="the laboratory on its node")
    nodes = {item["name"]: item for item in departments.json("nodes")["items"]}
    assert {name: (item["pool"], item["cards"]["free"]) for name, item in nodes.items()} == {
        "n0": ("pooled", 0), "n1": ("pooled", 0), "n2": ("lab", 0),
    }  # fmt: skip
    mismatch = "2 NodePoolMismatch"
    await asyncio.to_thread(until, lambda: mismatch in why(departments, "lab"), timeout_s=20, what="why the ninth waits")


async def test_where_queues_are_bound_one_that_nobody_bound_is_for_nobody(tmp_path: Path) -> None:
    with up(tmp_path / "state", env={"HBOX_QUEUES": "bound"}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "lab")
            await submit(client, "lab", 1)
            said = "QueueNotForNamespace: queue lab is bound to no namespace, so that default may not use it"
            await asyncio.to_thread(until, lambda: why(running, "lab").startswith(said), timeout_s=20, what="the reason")
            queue(running, "set", "lab", "--namespaces", "default")
            await asyncio.to_thread(until, lambda: cards(running)["lab"] == 1, timeout_s=30, what="its card")


async def test_a_department_that_is_closed_takes_nothing_and_one_that_is_drained_is_empty(
    departments: Up, client: KubeClient
) -> None:
    def state(name: str) -> str:
        return str(departments.json("queue", "show", name)["state"])

    await submit(client, "arm", 5)
    await come_to_have(departments, {"robots": 5})
    queue(departments, "close", "robots")
    await asyncio.to_thread(until, lambda: state("robots") == "Closing", timeout_s=15, what="Closing")
    await submit(client, "arm", 1, first=5)
    closed = "QueueClosed: queue robots, above queue arm, is closed and takes no new work"
    await asyncio.to_thread(until, lambda: why(departments, "arm") == closed, timeout_s=15, what="the reason")
    assert cards(departments)["robots"] == 5

    said = departments.hbox("queue", "drain", "robots")
    assert said.returncode == 5
    assert "5 pods of 5 jobs with 5 cards would be evicted" in said.stderr
    queue(departments, "drain", "robots", "--yes")
    await asyncio.to_thread(until, lambda: state("robots") == "Closed", timeout_s=15, what="Closed")

    queue(departments, "open", "robots")
    await asyncio.to_thread(until, lambda: cards(departments)["robots"] == 1, timeout_s=30, what="the pod that waited")


async def test_a_department_that_has_spent_its_budget_is_given_no_cards(departments: Up, client: KubeClient) -> None:
    await submit(client, "arm", 1)
    await come_to_have(departments, {"robots": 1})
    queue(departments, "set", "robots", "--budget", "0")
    await submit(client, "arm", 1, first=1)
    spent = "QueueBudgetSpent: queue robots has used "
    await asyncio.to_thread(until, lambda: why(departments, "arm").startswith(spent), timeout_s=15, what="the reason")
    [told] = [item for item in departments.json("usage", "--by", "department")["items"] if item["department"] == "robots"]
    assert (told["budget"]["cardHours"], told["cardHours"] > 0) == (0, True)

    said = departments.hbox("events").stdout
    assert "queue  robots  budget 100 %  queue robots has used " in said

    queue(departments, "set", "robots", "--budget", "none")
    await asyncio.to_thread(until, lambda: cards(departments)["robots"] == 2, timeout_s=30, what="the pod that waited")


async def test_kubectl_sees_of_queues_what_the_ledger_knows(departments: Up, client: KubeClient) -> None:
    for name, count in (("train", 4), ("serve", 3), ("arm", 2)):
        await submit(client, name, count)
    await come_to_have(departments, {"train": 4, "serve": 3, "robots": 2})
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "waits"},
        "spec": {"minMember": 2, "queue": "asr"},
    }
    await client.json("POST", PODGROUPS.path(SPACE), body=group)

    async def statuses() -> dict[str, dict[str, Any]]:
        listed = await client.json("GET", QUEUES.path())
        return {item["metadata"]["name"]: item["status"] for item in listed["items"]}

    async def agree() -> bool:
        shown, known = await statuses(), {item["name"]: item for item in departments.json("queue", "ls")["items"]}
        everybody = sum(item["used"].get(GPU, 0) for item in known.values() if item["parent"] not in known)
        known["root"] = {"state": "Open", "used": {GPU: everybody}}  # which lists leave out
        return all(
            status["state"] == known[name]["state"]
            and int(status.get("allocated", {}).get(GPU, 0)) == known[name]["used"].get(GPU, 0)
            for name, status in shown.items()
        )

    async with asyncio.timeout(30):
        while not (await agree() and (await statuses())["asr"].get("inqueue") == 1):  # noqa: ASYNC110  what others do sets no event of ours
            await asyncio.sleep(0.1)
    found = await statuses()
    # A count that is not there is 0, as in every status that a program in Go writes.
    assert {name: status.get("inqueue", 0) for name, status in found.items()} == dict.fromkeys(found, 0) | {"asr": 1}
    cards = {name: int(status.get("allocated", {}).get(GPU, 0)) for name, status in found.items()}
    assert cards["vision"] == cards["train"] + cards["serve"]


async def test_unknown_fields_that_the_definition_drops_are_named_by_the_manifest(departments: Up, client: KubeClient) -> None:
    """As `kubectl apply --validate=false` leaves them, with HBox's definition as with Volcano's."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1"}
    manifest = {"spec": {"minMembers": 3}}
    metadata = {"name": "dropped", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(manifest)}}
    made = await client.json("POST", PODGROUPS.path(SPACE), body={**kind, "kind": "PodGroup", "metadata": metadata, **manifest})
    assert "minMembers" not in made["spec"]

    async def noted() -> list[str]:
        events = (await client.json("GET", EVENTS.path()))["items"]
        return [
            one["message"] for one in events if (one["involvedObject"]["name"], one["reason"]) == ("dropped", "UnknownField")
        ]

    [said] = await until_async(noted, "an Event names the unknown field", timeout_s=30)
    assert said.startswith("spec.minMembers: unknown field, ignored; did you mean spec.minMember?")


async def test_unknown_fields_that_a_definition_of_others_keeps_are_named(departments: Up, client: KubeClient) -> None:
    for definition in (QUEUE, POD_GROUP):
        others: Any = deepcopy(definition)
        spec = schema_of(others)["properties"]["spec"]
        for part in (spec, spec["properties"].get("guarantee", {})):
            part["x-kubernetes-preserve-unknown-fields"] = True
        await apply(client, others, field_manager="others")
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "misspelt"}}
    misspelt = {"wieght": 3, "guarantee": {"cpu": "2"}}
    await client.json("POST", QUEUES.path(), body={**kind, "kind": "Queue", "spec": misspelt})
    await client.json("POST", PODGROUPS.path(SPACE), body={**kind, "kind": "PodGroup", "spec": {"minMembers": 3}})

    async def notes() -> dict[str, str]:
        events = (await client.json("GET", EVENTS.path()))["items"]
        return {one["reason"]: one["message"] for one in events if one["involvedObject"]["name"] == "misspelt"}

    async def noted() -> dict[str, str] | None:
        return found if {"QueueFaulty", "UnknownField"} <= (found := await notes()).keys() else None

    found = await until_async(noted, "Events name the unknown fields", timeout_s=30)
    weight = "spec.wieght: unknown field, ignored; did you mean spec.weight?"
    guarantee = "spec.guarantee.cpu: unknown field, ignored; did you mean spec.guarantee.resource.cpu?"
    assert (weight in found["QueueFaulty"], guarantee in found["QueueFaulty"]) == (True, True), found
    assert found["UnknownField"] == "spec.minMembers: unknown field, ignored; did you mean spec.minMember?"
    shown = departments.hbox("queue", "show", "misspelt").stdout
    assert (f"wrong: {weight}" in shown, f"wrong: {guarantee}" in shown) == (True, True), shown

    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    body = b'{"apiVersion":"scheduling.volcano.sh/v1beta1","kind":"PodGroup","metadata":{"name":"deep"},"spec":{"minMember":1,"deep":%s}}'
    await client.expected("POST", PODGROUPS.path(SPACE), body=body % deep)
    await client.json(
        "POST", PODGROUPS.path(SPACE), body={**kind, "kind": "PodGroup", "metadata": {"name": "after"}, "spec": {"a": 1}}
    )

    async def still_noted() -> bool:
        events = (await client.json("GET", EVENTS.path()))["items"]
        return any(one["involvedObject"]["name"] == "after" for one in events)

    await until_async(still_noted, "job-controller reads PodGroups after one with 3,000 levels", timeout_s=30)
    checked = {one["name"]: one for one in departments.json("check")["checks"]}
    assert checked["kubernetes"]["good"], checked

    corrected = {"spec": {"wieght": None, "weight": 3, "guarantee": None}}
    await client.json("PATCH", QUEUES.path(name="misspelt"), body=corrected, content_type=MERGE_PATCH)

    def sound() -> bool:
        return not departments.json("queue", "show", "misspelt")["faults"]

    await asyncio.to_thread(until, sound, timeout_s=30, what="no fault after the correction")
