"""/metrics/cards: the allocated amounts of each card, and the pods that hold them."""

from dataclasses import replace

from hbox_common.model import NodeName, QueueName, QueueTree
from hbox_ledger.cardmetrics import cards_page

from .conftest import World


def label(_: QueueTree, queue: QueueName) -> str:
    return queue


async def shown(world: World, *, pods: bool) -> str:
    return b"".join([part async for part in cards_page(lambda: world.state, pods=pods, label=label)]).decode()


async def test_pod_names_are_in_card_metrics_only_with_the_setting(world: World) -> None:
    world.commits(world.plan("secret-gang", ("secret-pod", "a", [world.card(0)])))
    plain = await shown(world, pods=False)
    assert 'hbox_card_shares_allocated{node="a"' in plain
    assert "namespace=" not in plain
    assert "secret-" not in plain
    assert 'pod="secret-pod"' in await shown(world, pods=True)


async def test_part_of_a_card_that_a_replica_is_has_a_metric(world: World) -> None:
    node = world.state.nodes[NodeName("a")]
    cards = tuple(replace(card, shares=1) for card in node.cards)
    replicas = {"nvidia.com/gpu.replicas": "4"}
    world.state.know(
        node.name, replace(node, labels=replicas, allocatable={**node.allocatable, "nvidia.com/gpu": 8}, cards=cards)
    )
    lines = [line for line in (await shown(world, pods=False)).splitlines() if line.startswith("hbox_card_part_ratio{")]
    assert {line.rpartition(" ")[2] for line in lines if 'node="a"' in line} == {"0.25"}
    assert {line.rpartition(" ")[2] for line in lines if 'node="a"' not in line} <= {"1"}


async def test_cards_have_the_parts_that_pods_of_each_queue_hold(world: World) -> None:
    world.commits(world.plan("one", ("p0", "a", [world.card(0, cores=30, memory=8_000)]), queue="default"))
    world.commits(world.plan("two", ("p1", "a", [world.card(0, cores=20, memory=8_000)]), ("p2", "a", [world.card(1)])))
    lines = [line for line in (await shown(world, pods=False)).splitlines() if line.startswith("hbox_card_queue_ratio{")]
    assert [(line.split('card="')[1][0], float(line.rpartition(" ")[2])) for line in lines] == [("0", 0.5), ("1", 1.0)]
    assert all('queue="default"' in line for line in lines)
