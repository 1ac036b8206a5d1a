"""Work behind the hot path: taken from a queue of the core as fast as a token bucket allows, some of it at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError, Unavailable
from hbox_common.kube import NamespaceTerminating
from hbox_common.pacing import TokenBucket

from .. import metrics

W = TypeVar("W")

log = logging.getLogger(__name__)

#: Requests in flight, of each kind.
AT_ONCE = 8

#: Every write takes as much of the API server as a binding (sources: pipeline-prototype), so in a burst the bindings go first.
BUSY_SHARE = 0.03
PATIENCE_S = 20.0

#: What is there within so long of a wake is looked at together: each pod that comes, or is bound, wakes all kinds of work, and most have none.
GATHER_S = 0.02

#: After so long a write that was refused is tried again, where others wait for it.
REFUSED_S = 15.0


async def paced(
    kind: str,
    *,
    take: Callable[[float, int], list[W]],
    next_due: Callable[[], float | None],
    write: Callable[[W], Awaitable[None]],
    again: Callable[[W, float], None],
    wake: asyncio.Event,
    rate_per_s: float,
    busy: Callable[[], bool] = lambda: False,
    insist: bool = False,
) -> None:
    """Do what `take(now, limit)` gives, until cancelled. `wake` is set when `next_due` may have moved forward.

    While `busy()`, it goes at BUSY_SHARE of the rate, for PATIENCE_S at most: what is due for longer is done at the full rate.
    A write that raises Unavailable is put back with `again(write, due)`. A write that raises NamespaceTerminating is dropped. A write that raises another
    HBoxError is logged and dropped; with `insist` it is put back for REFUSED_S, since rights may be granted and webhooks repaired.
    """
    full = TokenBucket(rate_per_s=rate_per_s, burst=AT_ONCE)
    slow = TokenBucket(rate_per_s=BUSY_SHARE * rate_per_s, burst=AT_ONCE)

    async def do(work: W) -> None:
        result = "done"
        try:
            await write(work)
        except Unavailable as e:
            result = "again"
            again(work, monotonic_s() + (e.retry_after_s or 1.0))
        except NamespaceTerminating as e:  # the object is deleted with its namespace
            result = "given up"
            log.debug("%s: %s", kind, e)
        except HBoxError as e:
            result = "refused" if insist else "given up"
            if insist:
                again(work, monotonic_s() + REFUSED_S)
            log.warning("%s: %s", kind, e)
        metrics.WRITES.labels(kind, result).inc()

    while True:
        now = monotonic_s()
        bucket = slow if busy() and now - (next_due() or now) < PATIENCE_S else full
        if (limit := bucket.available(now)) == 0:
            await asyncio.sleep(bucket.wait_s(now))
            continue
        works = take(now, limit)
        bucket.spend(len(works))
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(do(work))
        if works:
            continue
        wake.clear()
        due = next_due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - monotonic_s())):
                await wake.wait()
        except TimeoutError:
            continue  # something is due
        await asyncio.sleep(GATHER_S)
