"""Proposed changes through the platform: each one, made by its own command, binds the job within 10 s, and one unit less does not."""

import json
import shlex
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hbox_common.kube import HYPERNODES, MERGE_PATCH, NODES, PODGROUPS, PODS, KubeClient
from hbox_common.model.explanation import Change, ChangeKind, Explanation

from .. import waiting
from .explained_jobs import GPU, SPACE, explained, gang, pod
from .platform_world import SLOWER, Up, emptied, placed, up

pytestmark = pytest.mark.e2e

#: Within which a job binds once a change is made.
BOUND_S = 10.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("changes") / "state", "--nodes", "8x8:NVIDIA-H100") as running:
        yield running


@pytest.fixture
async def client(platform: Up, client: KubeClient) -> AsyncIterator[KubeClient]:
    yield client
    await emptied(platform, client, SPACE)


async def proposing(running: Up, name: str, *kinds: ChangeKind) -> Explanation:
    """The explanation of the job, once it proposes a change of these kinds."""
    what = f"an explanation with {', '.join(kinds)}"
    return await explained(running, name, what, lambda explanation: {*kinds} <= {one.kind for one in explanation.changes})


def proposed(explanation: Explanation, kind: ChangeKind) -> Change:
    return next(one for one in explanation.changes if one.kind is kind)


async def run(running: Up, client: KubeClient, command: str) -> None:
    """A proposed command, as its owner types it."""
    arguments = shlex.split(command)
    if arguments[0] == "hbox":
        done = running.hbox(*arguments[1:])
        assert done.returncode == 0, done.stderr
    elif arguments[:2] == ["kubectl", "uncordon"]:
        for name in arguments[2:]:
            body = {"spec": {"unschedulable": False}}
            await client.json("PATCH", NODES.path(name=name), body=body, content_type=MERGE_PATCH)
    else:
        namespace, name, body = arguments[2], arguments[5], json.loads(arguments[arguments.index("-p") + 1])
        assert [*arguments[:2], *arguments[3:5]] == ["kubectl", "-n", "patch", "podgroup"]
        await client.json("PATCH", PODGROUPS.path(namespace, name), body=body, content_type=MERGE_PATCH)


async def binds(client: KubeClient, prefix: str, pods: int) -> None:
    began = time.monotonic()

    async def there() -> bool:
        return len(await placed(client, SPACE, prefix)) >= pods

    await waiting.until(there, f"{prefix} has {pods} places", timeout_s=BOUND_S * SLOWER)
    assert time.monotonic() - began <= BOUND_S * SLOWER


async def stays(running: Up, client: KubeClient, name: str, kind: ChangeKind) -> None:
    """The job is explained again after a change of one unit less, and still waits."""
    assert (await proposing(running, name, kind)).changes
    assert not await placed(client, SPACE, f"{name}-")


async def test_gang_with_fewer_pods_starts_and_with_one_more_waits(platform: Up, client: KubeClient) -> None:
    await gang(client, "large", 10)
    change = proposed(await proposing(platform, "large", ChangeKind.PODS), ChangeKind.PODS)
    assert change.facts == {"pods": 8, "of": 10}
    await run(platform, client, change.command.replace('"minMember":8', '"minMember":9'))
    await stays(platform, client, "large", ChangeKind.PODS)
    await run(platform, client, change.command)
    await binds(client, "large-", 8)


async def test_pod_with_fewer_cards_starts_and_misspelled_model_too(platform: Up, client: KubeClient) -> None:
    await client.json("POST", PODS.path(SPACE), body=pod("wide", {GPU: "9"}))
    assert proposed(await proposing(platform, "wide", ChangeKind.CARDS), ChangeKind.CARDS).facts == {"cards": 8, "of": 9}
    await client.json("POST", PODS.path(SPACE), body=pod("narrow", {GPU: "8"}))
    await binds(client, "narrow", 1)
    typo = {"nvidia.com/use-gputype": "H1OO"}
    await client.json("POST", PODS.path(SPACE), body=pod("typo", {GPU: "1"}, annotations=typo))
    change = proposed(await proposing(platform, "typo", ChangeKind.MODEL), ChangeKind.MODEL)
    assert (change.facts["model"], change.facts["nodes"]) == ("NVIDIA-H100", 8)
    right = {"nvidia.com/use-gputype": str(change.facts["model"])}
    await client.json("POST", PODS.path(SPACE), body=pod("right", {GPU: "1"}, annotations=right))
    await binds(client, "right", 1)


async def test_cordoned_node_is_named_and_its_return_starts_the_gang(platform: Up, client: KubeClient) -> None:
    names = sorted(one["metadata"]["name"] for one in (await client.json("GET", NODES.path()))["items"])
    for name in names[:2]:
        body = {"spec": {"unschedulable": True}}
        await client.json("PATCH", NODES.path(name=name), body=body, content_type=MERGE_PATCH)
    await gang(client, "all", 7)
    change = proposed(await proposing(platform, "all", ChangeKind.NODES), ChangeKind.NODES)
    assert change.facts == {"count": 1, "among": 2, "nodes": names[:2], "states": ["cordoned", "cordoned"]}
    await run(platform, client, change.command)
    await binds(client, "all-", 7)
    await run(platform, client, f"kubectl uncordon {names[1]}")


async def test_limit_of_a_queue_is_raised_by_what_the_gang_lacks(platform: Up, client: KubeClient) -> None:
    assert platform.hbox("queue", "create", "team", "--capability", f"{GPU}=20").returncode == 0
    await gang(client, "over", 3, queue="team")
    change = proposed(await proposing(platform, "over", ChangeKind.LIMIT), ChangeKind.LIMIT)
    assert change.command == f"hbox queue set team --capability {GPU}=24"
    await run(platform, client, change.command.replace("=24", "=23"))
    await stays(platform, client, "over", ChangeKind.LIMIT)
    await run(platform, client, change.command)
    await binds(client, "over-", 3)


async def test_gang_moves_to_another_queue_that_its_namespace_may_use(platform: Up, client: KubeClient) -> None:
    assert platform.hbox("queue", "create", "small", "--capability", f"{GPU}=8").returncode == 0
    assert platform.hbox("queue", "create", "foreign", "--namespaces", "others").returncode == 0
    await gang(client, "moved", 2, queue="small")
    change = proposed(await proposing(platform, "moved", ChangeKind.QUEUE), ChangeKind.QUEUE)
    assert change.facts["queue"] != "foreign"
    await run(platform, client, change.command)
    await binds(client, "moved-", 2)


async def test_gang_that_no_leaf_holds_starts_at_the_next_tier(platform: Up, client: KubeClient) -> None:
    names = sorted(one["metadata"]["name"] for one in (await client.json("GET", NODES.path()))["items"])
    for number, part in enumerate((names[:4], names[4:])):
        members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in part]
        await hypernode(client, f"leaf-{number}", 1, members)
    leaves = [{"type": "HyperNode", "selector": {"exactMatch": {"name": f"leaf-{number}"}}} for number in range(2)]
    await hypernode(client, "spine", 2, leaves)
    await gang(client, "near", 6, networkTopology={"mode": "hard", "highestTierAllowed": 1})
    changes: list[Change] = []
    deadline = time.monotonic() + 60
    while len(changes) < 2 and time.monotonic() < deadline:  # a busy machine ends a search before all changes are proven
        changes = [one for one in (await proposing(platform, "near", ChangeKind.TIER)).changes if one.kind is ChangeKind.TIER]
    assert [one.facts for one in changes] == [{"mode": "hard", "tier": 2, "of": 1}, {"mode": "soft", "tier": 0, "of": 0}]
    await run(platform, client, changes[0].command)
    await binds(client, "near-", 6)


async def hypernode(client: KubeClient, name: str, tier: int, members: list[dict[str, Any]]) -> None:
    body = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}}
    await client.json("POST", HYPERNODES.path(), body={**body, "spec": {"tier": tier, "members": members}})
