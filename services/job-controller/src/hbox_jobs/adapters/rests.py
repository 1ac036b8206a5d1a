"""Publishes the rests of nodes whose kubelets refuse pods (`core.refusals`). At the start it reads back what the previous process published."""

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

#: Seconds between two runs of the expiry of old refusals.
EXPIRE_EVERY_S = 60.0
#: Seconds before the retry of a publication that the broker did not accept.
RETRY_S = 1.0


class RestPublisher:
    """Call `pod` only after `resume` has ended: else refusals that an earlier process counted would count twice."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._refusals = Refusals()
        self._changed, self._resumed = asyncio.Event(), asyncio.Event()
        metrics.REFUSING.set_function(lambda: self._refusals.refusing(wall_s()))

    async def resume(self) -> None:
        """Read the rests that were published last; retries until the broker answers."""

        async def last() -> list[Delivery]:
            return [*await self._bus.last(NodeRests, [(None,)])]

        published = await insist(
            last, on_unavailable=lambda e: log.warning("published rests of nodes could not be read yet: %s", e)
        )
        self._refusals.resume(one.event.rest for one in published if isinstance(one.event, NodeRests))
        self._resumed.set()

    async def resumed(self) -> None:
        """Wait for the end of `resume`."""
        await self._resumed.wait()

    def pod(self, old: PodView | None, new: PodView, wall: float, *, listed: bool) -> None:
        """A new version of one of HBox's pods was observed. `listed`: by the first list after the start."""
        if new.refusal and (old is None or not old.refusal) and not listed:
            metrics.REFUSED.labels(reason_of(new.refusal)).inc()
            log.warning(
                "node %s: its kubelet refused pod %s/%s: %s", new.node, new.namespace, new.name, new.refusal, extra={"node": new.node}
            )  # fmt: skip
        self._refusals.pod(old, new, wall, listed=listed)
        if self._refusals.changed:
            self._changed.set()

    def republish(self) -> None:
        """Publish all rests again, after the stream lost messages."""
        self._refusals.mark_changed()
        self._changed.set()

    async def run(self) -> NoReturn:
        """Publish changed rests until cancelled."""
        while True:
            self._changed.clear()
            for rest in self._refusals.take():
                await self._publish(rest)
            try:
                async with asyncio.timeout(EXPIRE_EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                self._refusals.expire(wall_s())

    async def _publish(self, rest: NodeRest) -> None:
        try:
            await self._bus.publish(NodeRests(rest=rest), rest.node)
        except InvalidRequest as e:
            log.error("node %s: its rests cannot be published: %s", rest.node, e, extra={"node": rest.node})
        except HBoxError as e:
            log.warning("node %s: the publication of its rests is retried: %s", rest.node, e, extra={"node": rest.node})
            self._refusals.mark_changed([rest.node])
            self._changed.set()
            await asyncio.sleep(RETRY_S)
