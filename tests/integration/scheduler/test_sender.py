"""What the scheduler says stands for the moment at which it was decided."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.events import GivenUp, PlansProposed
from hbox_common.model import DEFAULT_QUEUE, Epoch, Index, PlanId, Queue, SchedulerId
from hbox_scheduler.adapters.sender import Sender
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate import job, node

from ...waiting import until


async def test_plans_of_one_epoch_are_not_sent_as_those_of_the_next(tmp_path: Path) -> None:
    """The scheduler hears of the next epoch while they are on their way, and knows nothing of these plans any more: the ledger has to refuse them."""
    scheduler = Scheduler(id=SchedulerId("s"), policy=policy_of(PolicyName.BINPACK))
    scheduler.on_queue(Queue(DEFAULT_QUEUE))
    scheduler.on_node(node("n0", cards=4))
    scheduler.on_claims_snapshot(epoch=Epoch(1), index=Index(3), frozen=False, claims=(), now=0.0)
    scheduler.on_jobs([job(f"j{n}", cards=1) for n in range(3)])
    out = scheduler.cycle(1.0)
    assert len(out.plans) == 3
    out.given_up.append(GivenUp(plan=PlanId("gone")))
    heard: list[PlansProposed] = []

    async def listen(deliveries: Sequence[Delivery]) -> None:
        heard.extend(d.event for d in deliveries if isinstance(d.event, PlansProposed))

    async with (
        EmbeddedServer(tmp_path / "nats") as server,
        Bus.connect(server.url, name="test", instance="test") as bus,
        asyncio.TaskGroup() as tasks,
    ):
        following = tasks.create_task(bus.follow([PlansProposed], listen, start=Start.ALL))
        sending = tasks.create_task(Sender(scheduler, bus, placements_a_message=1).send(out))
        await asyncio.sleep(0)
        scheduler.on_claims_snapshot(epoch=Epoch(2), index=Index(0), frozen=False, claims=(), now=2.0)
        await sending
        await until(lambda: len(heard) == 4)
        following.cancel()
    assert {(said.epoch, said.seen) for said in heard} == {(1, 3)}
