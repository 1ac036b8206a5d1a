"""Receipts of evictions, which the broker keeps: the job that gets the place, the rule, and when the evicted pods may return."""

import asyncio
from collections.abc import Sequence

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.errors import Unavailable
from hbox_common.events import EvictionReceipt
from hbox_common.model.annotations import EVICTION_DEADLINE
from hbox_common.views.evictions import time_text

from .output import put
from .session import ASK_S

PODS_SHOWN = 8


async def receipts_of(bus: Bus) -> list[EvictionReceipt]:
    """All that are kept, oldest first. Raises Unavailable."""
    found: list[EvictionReceipt] = []
    read = asyncio.Event()

    async def take(deliveries: Sequence[Delivery]) -> None:
        found.extend(d.event for d in deliveries if isinstance(d.event, EvictionReceipt))

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(bus.follow([EvictionReceipt], take, start=Start.ALL, on_ready=read.set, writers_only=True))
        try:
            await asyncio.wait_for(read.wait(), ASK_S)
        except TimeoutError as e:
            raise Unavailable(f"the broker did not hand out the receipts within {ASK_S:g} s", hint="hbox check") from e
        reading.cancel()
    return found


def show(receipt: EvictionReceipt) -> None:
    names = [f"{receipt.namespace}/{one.pod}" for one in receipt.pods]
    more = f" and {len(names) - PODS_SHOWN} more" if len(names) > PODS_SHOWN else ""
    put(f"{time_text(receipt.at)}  {', '.join(names[:PODS_SHOWN])}{more}  queue {receipt.queue}  rule {receipt.rule}")
    put(f"  why:      {receipt.message}")
    if receipt.notice_s >= 0:
        put(
            f"  notice:   {receipt.notice_s} s at most from the eviction; the pod's annotation {EVICTION_DEADLINE} has the deadline"
        )
    put(f"  kept:     {receipt.pods_kept} pods of its job, with {receipt.cards_kept} cards")
    put(f"  returns:  {receipt.returns}")
