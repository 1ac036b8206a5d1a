"""The current epoch, confirmed by the ledger.

A decision names its epoch, and a decision with a higher epoch makes all others stale: a single forged message could make the binder ignore the ledger. So the
binder accepts a new epoch only if the ledger confirms that it is in that epoch or a later one; the ledger answers from its database. New epochs are rare (one
per start of the ledger), and a request takes a millisecond.

While no ledger answers, a new epoch at most AHEAD_S ahead of the clock is accepted, so that decisions of a crashed ledger are carried out; the binder asks the
ledger again at the first decision of another epoch, including an older one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import EpochAsked, EpochSaid
from hbox_common.model import Epoch

from .. import metrics

log = logging.getLogger(__name__)

#: Epochs come from the ledger's clock. One that is further ahead is a wrong clock, or a lie: then the ledger has to say so itself.
AHEAD_S = 86_400.0
ASK_S = 2.0
#: Between two questions, however many decisions of foreign epochs come.
EVERY_S = 0.2


class Epochs:
    """`ask`: the ledger's epoch; raises Unavailable."""

    def __init__(
        self, ask: Callable[[], Awaitable[Epoch]], *, wall: Callable[[], float] = wall_s, every_s: float = EVERY_S
    ) -> None:
        self._ask, self._wall, self._every_s = ask, wall, every_s
        self.current = Epoch(0)
        self._sure = False  #: confirmed by the ledger
        self._asked_at = -every_s
        self._lock = asyncio.Lock()

    async def check(self, epoch: Epoch) -> Epoch:
        """The current epoch, on receipt of a decision of `epoch`: decisions of older epochs are stale.

        Raises InvalidRequest if the ledger has not reached `epoch`, Unavailable if that cannot be determined now.
        """
        if epoch == self.current or (epoch < self.current and self._sure):
            return self.current
        async with self._lock:
            if epoch == self.current or (epoch < self.current and self._sure):
                return self.current
            return await self._judged(epoch)

    async def _judged(self, epoch: Epoch) -> Epoch:
        await asyncio.sleep(self._asked_at + self._every_s - monotonic_s())
        self._asked_at = monotonic_s()
        try:
            published = await self._ask()
        except Unavailable as e:
            if epoch < self.current:
                return self.current
            if epoch > self._wall() + AHEAD_S:
                raise Unavailable(f"whether the ledger is in epoch {epoch} cannot be asked: {e.message}") from e
            log.warning("a decision of epoch %d is believed, since no ledger answers: %s", epoch, e)
            self.current, self._sure = epoch, False
            return epoch
        self.current, self._sure = published, True
        if epoch > published:
            metrics.FALSE_EPOCHS.inc()
            raise InvalidRequest(f"a decision has epoch {epoch}; the ledger's epoch is {published}")
        return published


def asking(bus: Bus, asker: str) -> Callable[[], Awaitable[Epoch]]:
    """The request to the current ledger."""

    async def ask() -> Epoch:
        pages = await bus.ask(EpochAsked(asker=asker), EpochSaid, timeout_s=ASK_S)
        if not pages:
            raise Unavailable("the ledger gave no answer")
        return pages[-1].epoch

    return ask
