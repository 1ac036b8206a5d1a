"""What the streams remember of the ledgers before this one: where they stood, and which binds may be under way."""

from hbox_common.bus import Bus
from hbox_common.events import BindDecided, EvictDecided, QueueStateChanged
from hbox_common.model import DEFAULT_QUEUE, Index

from ..core.arbitrate import MAX_DEADLINE_S
from ..core.recovery import BEGINNING, UNDER_WAY_S, Heard, Standing
from ..messages import SHARD


async def hear(bus: Bus, standing: Standing, *, now: float) -> Heard:
    """`standing` is the database's: where nothing was said beyond it, binds are not asked for. Raises Unavailable, InvalidRequest."""
    said = [BEGINNING]
    for type_, key in ((BindDecided, SHARD), (EvictDecided, SHARD), (QueueStateChanged, DEFAULT_QUEUE)):
        for delivery in await bus.last(type_, [(key,)]):
            event = delivery.event
            if isinstance(event, EvictDecided):
                said.append(Standing(event.epoch, Index(0)))
            elif isinstance(event, (BindDecided, QueueStateChanged)):
                said.append(Standing(event.epoch, event.index))
    if max(said) <= standing:
        return Heard(max(said))
    found = await bus.since(BindDecided, (SHARD,), now - MAX_DEADLINE_S - UNDER_WAY_S)
    decided = [d.event for d in found if isinstance(d.event, BindDecided)]
    decided.sort(key=lambda event: (event.epoch, event.index))  # several are published at once
    return Heard(max(said), tuple(bind for event in decided for bind in event.binds))
