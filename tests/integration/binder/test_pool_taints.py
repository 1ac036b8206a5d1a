"""The taint of exclusive pools: put, put back, changed, removed; others' taints stay."""

import asyncio
from typing import Any

from hbox_common.bus import Bus
from hbox_common.events import NodeStateChanged
from hbox_common.kube import NODES
from hbox_common.model import Generation, NodeName, NodeState, Taint, TaintEffect
from hbox_common.model.pools import POOL

from ...waiting import until
from .binder_world import BinderWorld

MERGE = "application/merge-patch+json"
FOREIGN = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


async def taints(world: BinderWorld, node: str = "n1") -> list[dict[str, Any]]:
    found = await world.client.json("GET", NODES.path(name=node))
    return list(found.get("spec", {}).get("taints") or [])


async def write(world: BinderWorld, *rest: dict[str, Any]) -> None:
    await world.client.json("PATCH", NODES.path(name="n1"), body={"spec": {"taints": list(rest) or None}}, content_type=MERGE)


class Collector:
    """What topology-collector says of n1."""

    def __init__(self, world: BinderWorld) -> None:
        self.world, self.generation = world, 0

    async def say(self, pool: str = "") -> None:
        self.generation += 1
        there = tuple(Taint(one["key"], one.get("value", ""), TaintEffect(one["effect"])) for one in await taints(self.world))
        labels = {POOL: pool} if pool else {}
        state = NodeState(NodeName("n1"), "uid", Generation(self.generation), ready=True, labels=labels, taints=there)
        async with Bus.connect(self.world.nats.url, name="topology-collector", instance="test") as bus:
            await bus.publish(NodeStateChanged(node=state), "n1", message_id=f"n1.{self.generation}")


def of_pool(pool: str) -> dict[str, str]:
    return {"key": POOL, "value": pool, "effect": "NoSchedule"}


async def come_to_be(world: BinderWorld, *want: dict[str, Any]) -> None:
    async def so() -> bool:
        return await taints(world) == list(want)

    await until(so, f"{want}")


async def test_it_is_put_kept_changed_and_removed_with_the_pool_and_others_stay(world: BinderWorld) -> None:
    await world.node("n1")
    await write(world, FOREIGN)
    told = Collector(world)
    async with world.binder():
        await told.say("lab")
        await come_to_be(world, FOREIGN, of_pool("lab"))
        await write(world, FOREIGN)  # somebody takes it away
        await told.say("lab")
        await come_to_be(world, FOREIGN, of_pool("lab"))
        await told.say("vision")
        await come_to_be(world, FOREIGN, of_pool("vision"))
        await told.say("public")
        await come_to_be(world, FOREIGN)
    await told.say("lab")
    async with world.binder():  # it starts with what was said last
        await come_to_be(world, FOREIGN, of_pool("lab"))
    async with world.binder(pool_taints=False):
        await told.say("lab")
        await come_to_be(world, FOREIGN)


async def test_a_node_of_no_owner_is_left_alone(world: BinderWorld) -> None:
    await world.node("n1")
    told = Collector(world)
    async with world.binder():
        await told.say()
        await told.say("public")
        await asyncio.sleep(0.3)
        assert await taints(world) == []
