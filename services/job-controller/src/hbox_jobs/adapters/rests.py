"""Publishes which kinds of pods nodes refuse (`core.refusals`), and reads at the start what was published before."""

import asyncio
import logging
from typing import NoReturn

from hbox_common.bus import Bus, Delivery
from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.events import NodeRests
from hbox_common.insisting import insist
from hbox_common.model import NodeRest

from .. import metrics
from ..core.refusals import Refusals, reason_of
from ..core.views import PodView

log = logging.getLogger(__name__)

#: Refusals that are long ago are let go so often.
FORGET_EVERY_S = 60.0
#: After the broker took no message.
AGAIN_S = 1.0


class RestTeller:
    """Takes pods in once `resume` has ended: what an earlier process counted is not counted again."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._refusals = Refusals()
        self._moved, self._resumed = asyncio.Event(), asyncio.Event()
        metrics.REFUSING.set_function(lambda: self._refusals.refusing(wall_s()))

    async def resume(self) -> None:
        """Read what was published last. Returns once the broker answered."""

        async def last() -> list[Delivery]:
            return [*await self._bus.last(NodeRests, [(None,)])]

        try:
            said = await insist(last, say=lambda e: log.warning("refusals of nodes are not known yet: %s", e))
        except InvalidRequest as e:
            log.warning("refusals of nodes cannot be read: %s", e)
        else:
            self._refusals.resume(one.event.rest for one in said if isinstance(one.event, NodeRests))
        self._resumed.set()

    async def resumed(self) -> None:
        """Wait for the end of `resume`."""
        await self._resumed.wait()

    def pod(self, old: PodView | None, new: PodView, wall: float, *, listed: bool) -> None:
        """A pod of ours was seen in this version."""
        if new.refusal and (old is None or not old.refusal) and not listed:
            metrics.REFUSED.labels(reason_of(new.refusal)).inc()
            log.warning(
                "node %s: its kubelet refused pod %s/%s: %s", new.node, new.namespace, new.name, new.refusal, extra={"node": new.node}
            )  # fmt: skip
        self._refusals.pod(old, new, wall, listed=listed)
        if self._refusals.changed:
            self._moved.set()

    def again(self) -> None:
        """Messages were lost: publish everything again."""
        self._refusals.again()
        self._moved.set()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            self._moved.clear()
            for rest in self._refusals.take():
                await self._publish(rest)
            try:
                async with asyncio.timeout(FORGET_EVERY_S):
                    await self._moved.wait()
            except TimeoutError:
                self._refusals.forget(wall_s())

    async def _publish(self, rest: NodeRest) -> None:
        try:
            await self._bus.publish(NodeRests(rest=rest), rest.node)
        except InvalidRequest as e:
            log.error("node %s: its refusals cannot be published: %s", rest.node, e, extra={"node": rest.node})
        except HBoxError as e:
            log.warning("node %s: its refusals are published later: %s", rest.node, e, extra={"node": rest.node})
            self._refusals.again([rest.node])
            self._moved.set()
            await asyncio.sleep(AGAIN_S)
