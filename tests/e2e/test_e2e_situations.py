"""What the platform explains of pending jobs: outcome, code and facts of the explanation, on 16 nodes with 8 cards of the model H100."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hbox_common.kube import EVENTS, HYPERNODES, MERGE_PATCH, NODES, PODGROUPS, PODS, KubeClient
from hbox_common.model.explanation import Explanation, Fact
from hbox_common.reasons import blocked

from ..waiting import until
from .explained_jobs import GPU, SPACE, explained, gang, pod
from .platform_world import Up, emptied, placed, up

pytestmark = pytest.mark.e2e

NODES_OF = [f"node-{number:04}" for number in range(1, 17)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("situations") / "state", "--nodes", "16x8") as running:
        yield running


@pytest.fixture
async def client(platform: Up, client: KubeClient) -> AsyncIterator[KubeClient]:
    yield client
    await emptied(platform, client, SPACE)


async def explained_by(platform: Up, name: str, code: str) -> Explanation:
    """The explanation of the job, once it has this code."""
    return await explained(platform, name, code, lambda explanation: explanation.code == code)


@dataclass(frozen=True)
class Situation:
    """A pending job, alone on the platform. `gang`: pods and cards of each, else a pod with these limits."""

    outcome: str
    code: str
    facts: Mapping[str, Fact]
    limits: Mapping[str, str] = field(default_factory=dict)
    gang: tuple[int, int] = (0, 0)
    spec: Mapping[str, Any] = field(default_factory=dict)


HARD = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
SITUATIONS = {
    "gang-too-large": Situation("change", "GangTooLarge", {"pods": 20, "most": 16}, gang=(20, 8)),
    "pod-too-wide": Situation("change", "NodeInsufficientDevice", {"cards": 9, "largest": 8}, {GPU: "9"}),
    "model-misspelt": Situation(
        "change",
        "CardTypeMismatch",
        {"model": "H1OO", "nearest": "H100"},
        {GPU: "1"},
        spec={"annotations": {"nvidia.com/use-gputype": "H1OO"}},
    ),
    "too-many-cpus": Situation("change", "ResourceTooLarge", {"resource": "cpu", "need": 500}, {GPU: "1", "cpu": "500"}),
    "too-much-card-memory": Situation(
        "change", "CardMemoryTooLarge", {"need_mib": 200_000}, {GPU: "1", "nvidia.com/gpumem": "200000"}
    ),
    "too-many-cpus-without-cards": Situation(
        "change", "ResourceTooLarge", {"resource": "cpu", "need": 500, "largest": 112, "lent": 28}, {"cpu": "500"}
    ),
    "no-such-profile": Situation(
        "change", "ResourceAbsent", {"resource": "nvidia.com/mig-1g.10gb"}, {"nvidia.com/mig-1g.10gb": "1"}
    ),
    "no-such-zone": Situation(
        "change", "NodeSelectorMismatch", {"key": "zone", "value": "moon"}, {GPU: "1"}, spec={"nodeSelector": {"zone": "moon"}}
    ),
    "no-such-queue": Situation(
        "change",
        "QueueNotFound",
        {"queue": "defualt", "nearest": "default"},
        {GPU: "1"},
        spec={"annotations": {"scheduling.volcano.sh/queue-name": "defualt"}},
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
async def test_job_that_no_wait_helps_gets_a_verdict_of_change_with_facts(platform: Up, client: KubeClient, name: str) -> None:
    situation = SITUATIONS[name]
    if situation.gang[0]:
        await gang(client, name, *situation.gang, **situation.spec)
    else:
        await client.json("POST", PODS.path(SPACE), body=pod(name, situation.limits, **situation.spec))
    found = await explained_by(platform, name, situation.code)
    assert found.outcome == situation.outcome
    assert {fact: found.facts.get(fact) for fact in situation.facts} == situation.facts
    check(found)
    await same_everywhere(platform, client, name, found)


async def test_gang_whose_pods_keep_apart_on_too_few_nodes_gets_a_smaller_gang_that_starts(
    platform: Up, client: KubeClient
) -> None:
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "apart", "namespace": SPACE},
    }
    await client.json("POST", PODGROUPS.path(SPACE), body={**body, "spec": {"minMember": 17}})
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(17):
        member = pod(f"apart-{number}", {GPU: "1"}, annotations={"scheduling.k8s.io/group-name": "apart"}, affinity=apart)
        member["metadata"]["labels"] = {"app": "apart"}
        await client.json("POST", PODS.path(SPACE), body=member)
    found = await explained_by(platform, "apart", "GangKeepsApart")
    assert (found.outcome, found.need, found.have) == ("change", {"pods": 17}, {"pods": 16})
    check(found)
    await same_everywhere(platform, client, "apart", found)
    smaller = {"spec": {"minMember": 16}}
    await client.json("PATCH", PODGROUPS.path(SPACE, "apart"), body=smaller, content_type=MERGE_PATCH)
    await all_placed(client, "apart", 16)


async def test_pod_waits_while_all_cards_are_in_use(platform: Up, client: KubeClient) -> None:
    await gang(client, "runs", 16, 8)
    await all_placed(client, "runs", 16)
    await client.json("POST", PODS.path(SPACE), body=pod("one", {GPU: "1"}))
    found = await explained_by(platform, "one", "CardsInUse")
    assert (found.outcome, found.owner, found.facts["total"]) == ("wait", "system", 128)
    assert found.facts["queues"] == ["default (128)"]
    assert found.nodes.first == {"CardsInUse": 16}
    check(found)
    await same_everywhere(platform, client, "one", found)


async def test_gang_that_lacks_a_node_out_of_service_is_escalated_with_names(platform: Up, client: KubeClient) -> None:
    await client.json("PATCH", NODES.path("", NODES_OF[0]), body={"spec": {"unschedulable": True}}, content_type=MERGE_PATCH)
    condition = [{"type": "XidError", "status": "True", "reason": "Xid79", "message": "fell off the bus"}]
    before = await client.json("GET", NODES.path("", NODES_OF[1]))
    faulty = {"status": {"conditions": [*before["status"]["conditions"], *condition]}}
    await client.json("PATCH", f"{NODES.path('', NODES_OF[1])}/status", body=faulty, content_type=MERGE_PATCH)
    silent = await client.json("GET", NODES.path("", NODES_OF[2]))
    others = [one for one in silent["status"]["conditions"] if one["type"] != "Ready"]
    not_ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "kubelet stopped"}
    body = {"status": {"conditions": [*others, not_ready]}}
    await client.json("PATCH", f"{NODES.path('', NODES_OF[2])}/status", body=body, content_type=MERGE_PATCH)
    await gang(client, "wide", 14, 8)
    found = await explained_by(platform, "wide", "NodesOutOfService")
    assert (found.outcome, found.owner, found.facts["short"]) == ("escalate", "operator", 1)
    names = found.facts["nodes"]
    assert isinstance(names, Sequence)
    assert [name.split()[0] for name in names] == NODES_OF[:3]
    assert names[2].endswith("(not ready)")
    check(found)
    await same_everywhere(platform, client, "wide", found)
    await client.json("PATCH", NODES.path("", NODES_OF[0]), body={"spec": {"unschedulable": False}}, content_type=MERGE_PATCH)
    await all_placed(client, "wide", 14)


async def test_gang_in_a_domain_that_is_too_small_gets_the_size_of_the_largest_domain(platform: Up, client: KubeClient) -> None:
    leaves = [hypernode(f"leaf-{leaf}", 1, "Node", NODES_OF[4 * leaf : 4 * leaf + 4]) for leaf in range(4)]
    for one in (*leaves, hypernode("spine", 2, "HyperNode", [leaf["metadata"]["name"] for leaf in leaves])):
        await client.json("POST", HYPERNODES.path(), body=one)
    await gang(client, "near", 8, 8, **HARD)
    found = await explained_by(platform, "near", "TopologyTooSmall")
    assert (found.outcome, found.facts["tier"], found.facts["pods"], found.facts["room"]) == ("change", 1, 8, 4)
    check(found)
    await same_everywhere(platform, client, "near", found)


def hypernode(name: str, tier: int, kind: str, members: Sequence[str]) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {
            "tier": tier,
            "members": [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members],
        },
    }


async def all_placed(client: KubeClient, name: str, pods: int) -> None:
    async def there() -> bool:
        return len(await placed(client, SPACE, f"{name}-")) == pods

    await until(there, f"{name} placed", timeout_s=60)


def check(found: Explanation) -> None:
    """What holds for every explanation."""
    assert sum(found.nodes.first.values()) + found.nodes.fitting == found.nodes.total
    assert all(need > found.have[unit] for unit, need in found.need.items())
    assert found.stages[-1].code == found.code


async def same_everywhere(platform: Up, client: KubeClient, name: str, found: Explanation) -> None:
    """The command, the condition and the Event have the same outcome and code; card memory is named only if a slice is requested."""
    done = await asyncio.to_thread(platform.hbox, "why", name)
    assert done.returncode == 0, done.stderr
    assert f"  VERDICT   {found.outcome} · {found.code} · " in done.stdout, done.stdout
    assert f"  BLOCKED   {blocked(found)}" in done.stdout, done.stdout
    assert found.code == "CardMemoryTooLarge" or "CardInsufficientMemory" not in done.stdout, done.stdout
    head = f"{found.outcome}: {found.code}: "
    listed = (await client.json("GET", PODS.path(SPACE)))["items"]
    pod_name = next(one["metadata"]["name"] for one in listed if one["metadata"]["name"] in (name, f"{name}-0"))

    async def written() -> bool:
        conditions = (await client.json("GET", PODS.path(SPACE, pod_name)))["status"].get("conditions", ())
        events = (await client.json("GET", EVENTS.path(SPACE)))["items"]
        about = [one for one in events if one["involvedObject"]["name"] == pod_name and one["reason"] == "FailedScheduling"]
        condition = next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")
        # An Event with another code may precede, from before the scheduler knew all objects of this test.
        return condition.startswith(head) and any(one["message"].startswith(head) for one in about)

    # A change of the code has its Event a minute later.
    await until(written, f"condition and Event of {pod_name} start with {head}", timeout_s=130)
