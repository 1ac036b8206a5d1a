"""What the streams remember of the ledgers before this one: where they stood, and which binds may be under way."""

import logging

from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest
from hbox_common.events import BindDecided, EvictDecided, QueueStateChanged
from hbox_common.model import DEFAULT_QUEUE, Index

from ..core.arbitrate import MAX_DEADLINE_S
from ..core.recovery import BEGINNING, UNDER_WAY_S, Position, StreamHistory
from ..messages import SHARD

log = logging.getLogger(__name__)


#: Seconds. An epoch further ahead of the clock and of the database is invalid: beginning above it would leave no epochs.
AHEAD_S = 366 * 86_400


async def read_streams(bus: Bus, position: Position, *, now: float) -> StreamHistory:
    """`position`: the database's. Binds are only read if the streams have newer messages than that. Messages that cannot be read, or have an impossible epoch,
    are
    skipped. Raises Unavailable.
    """
    most = max(position.epoch, int(now)) + AHEAD_S
    positions, read = [BEGINNING], True
    for type_, key in ((BindDecided, SHARD), (EvictDecided, SHARD), (QueueStateChanged, DEFAULT_QUEUE)):
        try:
            delivery = await bus.last_in_stream(type_, key)
        except InvalidRequest as e:
            log.error("the last published messages cannot be read: checking all recent decisions: %s", e)
            read = False
            continue
        event = None if delivery is None else delivery.event
        if isinstance(event, EvictDecided):
            positions.append(Position(event.epoch, Index(0)))
        elif isinstance(event, (BindDecided, QueueStateChanged)):
            positions.append(Position(event.epoch, event.index))
    for false in [one for one in positions if one.epoch > most]:
        log.error(
            "the streams contain epoch %d, which no ledger can have reached: checking all recent decisions",
            false.epoch,
        )
        positions.remove(false)
        read = False
    if read and max(positions) <= position:
        return StreamHistory(max(positions))
    found = await bus.since(BindDecided, (SHARD,), now - MAX_DEADLINE_S - UNDER_WAY_S)
    decided = [d.event for d in found if isinstance(d.event, BindDecided) and d.event.epoch <= most]
    decided.sort(key=lambda event: (event.epoch, event.index))  # several are published at once
    positions += [Position(event.epoch, event.index) for event in decided]
    return StreamHistory(max(positions), tuple(bind for event in decided for bind in event.binds))
