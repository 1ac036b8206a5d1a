"""Through all services: HyperNodes of the API decide where gangs go that say what they want of the fabric."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import HYPERNODES, NODES, PODGROUPS, PODS, KubeClient

from ..waiting import until
from .platform_world import Up, emptied, placed, simulate_cycle, up
from .test_e2e_shares_and_neighbours import SPACE, create, pod
from .traced_jobs import node

pytestmark = pytest.mark.e2e

#: Four nodes of eight cards under each leaf, a spine above.
LEAVES = {"leaf-0": ["n0", "n1", "n2", "n3"], "leaf-1": ["n4", "n5", "n6", "n7"]}


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state = tmp_path_factory.mktemp("fabric") / "state"
    with up(state) as running:
        asyncio.run(_furnish(state / "kubeconfig"))
        yield running


async def _furnish(kubeconfig: Path) -> None:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        for name in (name for names in LEAVES.values() for name in names):
            await client.json("POST", NODES.path(), body=node(name))
        for leaf, names in LEAVES.items():
            pattern = f"^n[{names[0][1:]}-{names[-1][1:]}]$"
            await client.json("POST", HYPERNODES.path(), body=hypernode(leaf, 1, {"regexMatch": {"pattern": pattern}}))
        await client.json(
            "POST", HYPERNODES.path(), body=hypernode("spine", 2, *({"exactMatch": {"name": leaf}} for leaf in LEAVES))
        )


def hypernode(name: str, tier: int, *selectors: dict[str, Any]) -> dict[str, Any]:
    below = "Node" if tier == 1 else "HyperNode"
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": [{"type": below, "selector": selector} for selector in selectors]},
    }


@pytest.fixture
async def client(fabric: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(fabric.state / "kubeconfig"), user_agent="test") as client:
        yield client
        await emptied(fabric, client, SPACE)


async def gang(
    client: KubeClient, name: str, *, members: int, cards: int = 8, at_least: int | None = None, **spec: Any
) -> None:
    """A PodGroup with its pods."""
    await client.json(
        "POST",
        PODGROUPS.path(SPACE),
        body={
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"minMember": members if at_least is None else at_least, **spec},
        },
    )
    await create(client, *(member(name, number, cards=cards) for number in range(members)))


def member(name: str, number: int, *, cards: int = 8, **labels: str) -> dict[str, Any]:
    one = pod(f"{name}-{number}", cards=cards)
    one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name
    one["metadata"]["labels"] |= labels
    return one


async def leaves_of(client: KubeClient, prefix: str, members: int) -> list[str]:
    """The leaf of each member, sorted, once all have a node."""

    async def all_there() -> bool:
        return len(await placed(client, SPACE, f"{prefix}-")) == members

    await until(all_there, f"{prefix} whole", timeout_s=60)
    of = {name: leaf for leaf, names in LEAVES.items() for name in names}
    return sorted(of[name] for name in (await placed(client, SPACE, f"{prefix}-")).values())


HARD: dict[str, Any] = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


async def test_a_hard_gang_is_in_one_leaf_and_one_that_fits_into_none_waits_and_says_why(client: KubeClient) -> None:
    await gang(client, "near", members=3, **HARD)
    [leaf] = set(await leaves_of(client, "near", 3))
    await gang(client, "big", members=5, **HARD)

    async def reason_given() -> bool:
        listed = await client.json("GET", PODS.path(SPACE))
        waiting = [p for p in listed["items"] if p["metadata"]["name"].startswith("big-")]
        messages = [c.get("message", "") for p in waiting for c in p.get("status", {}).get("conditions", ())]
        return len(waiting) == 5 and any("tier 1" in message for message in messages)

    await until(reason_given, "why it waits", timeout_s=60)
    assert not await placed(client, SPACE, "big-")
    await gang(client, "other", members=4, **HARD)
    assert set(await leaves_of(client, "other", 4)) == set(LEAVES) - {leaf}


async def test_members_that_come_later_join_the_leaf_of_those_that_run(client: KubeClient) -> None:
    await gang(client, "grows", members=2, **HARD)
    before = await leaves_of(client, "grows", 2)
    await create(client, member("grows", 2), member("grows", 3))
    assert set(await leaves_of(client, "grows", 4)) == set(before)
    await create(client, member("grows", 4))
    await asyncio.sleep(2.0)  # that it stays out: its leaf is full, the other empty
    assert len(await placed(client, SPACE, "grows-")) == 4


async def test_a_soft_gang_takes_the_fewest_leaves_that_hold_it(client: KubeClient) -> None:
    await gang(client, "takes", members=1, cards=8, **HARD)
    [taken] = await leaves_of(client, "takes", 1)
    await gang(client, "soft", members=4, networkTopology={"mode": "soft"})
    assert set(await leaves_of(client, "soft", 4)) == set(LEAVES) - {taken}


async def test_each_sub_group_is_in_a_leaf_of_its_own_domain(client: KubeClient) -> None:
    policy = {
        "name": "stage",
        "matchLabelKeys": ["stage"],
        "subGroupSize": 3,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    await client.json(
        "POST",
        PODGROUPS.path(SPACE),
        body={
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "stages", "namespace": SPACE},
            "spec": {"minMember": 6, "subGroupPolicy": [policy]},
        },
    )
    await create(client, *(member("stages", number, stage=str(number % 2)) for number in range(6)))
    await leaves_of(client, "stages", 6)
    where = await placed(client, SPACE, "stages-")
    of = {name: leaf for leaf, names in LEAVES.items() for name in names}
    stages = [{of[where[f"stages-{number}"]] for number in range(6) if number % 2 == stage} for stage in (0, 1)]
    assert [len(leaves) for leaves in stages] == [1, 1], stages


INDEX = "batch.kubernetes.io/job-completion-index"


def of_ranks() -> list[dict[str, Any]]:
    """Sixteen pods that fill the cluster. They come in an order that says nothing, and neither do their names: the index of their controller does."""
    return [member("ranks", number, cards=4, **{INDEX: str(5 * number % 16)}) for number in range(16)]


def along(pods: list[dict[str, Any]], where: Mapping[str, str]) -> list[str]:
    """The nodes in the order of ranks."""
    return [where[one["metadata"]["name"]] for one in sorted(pods, key=lambda one: int(one["metadata"]["labels"][INDEX]))]


async def test_ranks_walk_the_fabric_leaf_by_leaf(client: KubeClient) -> None:
    await gang(client, "ranks", members=0, at_least=16)
    await create(client, *of_ranks())

    async def whole() -> bool:
        return len(await placed(client, SPACE, "ranks-")) == 16

    await until(whole, "the gang", timeout_s=60)
    assert along(of_ranks(), await placed(client, SPACE, "ranks-")) == sorted(
        2 * [name for names in LEAVES.values() for name in names]
    )
    for one in (await client.json("GET", PODS.path(SPACE)))["items"]:
        assert one["metadata"]["annotations"]["hbox.io/rank"] == one["metadata"]["labels"][INDEX]


def test_ranks_walk_the_fabric_in_simulate_cycle_too(tmp_path: Path) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "ranks", "namespace": SPACE},
        "spec": {"minMember": 16},
    }
    fabric = [hypernode(leaf, 1, *({"exactMatch": {"name": name}} for name in names)) for leaf, names in LEAVES.items()]
    pods = [one | {"metadata": one["metadata"] | {"namespace": SPACE}} for one in of_ranks()]
    nodes = [node(name) for names in LEAVES.values() for name in names]
    said = simulate_cycle(tmp_path, [*nodes, *fabric, group, *pods])
    where = {one["pod"].partition("/")[2]: one["node"] for one in said["bindings"]}
    assert along(pods, where) == sorted(2 * [name for names in LEAVES.values() for name in names])


async def test_the_fabric_may_change_while_a_gang_waits(client: KubeClient) -> None:
    await gang(client, "wide", members=8, **HARD)
    await asyncio.sleep(1.0)
    assert not await placed(client, SPACE, "wide-")
    await client.json(
        "PATCH",
        HYPERNODES.path(name="leaf-0"),
        body={"spec": {"members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "^n"}}}]}},
        content_type="application/merge-patch+json",
    )

    async def whole() -> bool:
        return len(await placed(client, SPACE, "wide-")) == 8

    await until(whole, "the gang in the larger leaf", timeout_s=60)
