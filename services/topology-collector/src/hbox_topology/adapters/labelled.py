"""A fabric that labels of nodes describe: those of clouds, or hand-made ones."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest
from hbox_common.events import FabricChanged
from hbox_common.insisting import insist
from hbox_common.model import HyperNode

from ..core.fabric.domains import domains_of_labels, with_nvlink
from .fabricsfile import FabricSpec

log = logging.getLogger(__name__)

#: Seconds in which changes are collected into one message.
WINDOW_S = 0.5


class LabelledFabric:
    """`labels`: those of all nodes, by name, as of now."""

    trouble = ""

    def __init__(self, spec: FabricSpec, bus: Bus, labels: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        self._spec, self._bus, self._labels = spec, bus, labels
        self._last: tuple[HyperNode, ...] | None = None
        self._wake = asyncio.Event()
        self._wake.set()

    def touch(self) -> None:
        """Nodes may have changed."""
        self._wake.set()

    def republish(self) -> None:
        """Publish again: the stream was lost."""
        self._last = None
        self._wake.set()

    async def run(self) -> NoReturn:
        """Until cancelled. To be started when the nodes are known."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(WINDOW_S)
            self._wake.clear()
            labels = dict(self._labels())
            domains = await asyncio.to_thread(self._domains_of, labels)
            if domains != self._last:
                await self._publish(domains)
                self._last = domains

    def _domains_of(self, labels: Mapping[str, Mapping[str, str]]) -> tuple[HyperNode, ...]:
        return with_nvlink(domains_of_labels(labels, self._spec.labels), labels)

    async def _publish(self, domains: tuple[HyperNode, ...]) -> None:
        name = self._spec.name
        try:
            await insist(
                lambda: self._bus.publish(FabricChanged(fabric=name, hypernodes=domains), name),
                on_unavailable=lambda e: log.warning("fabric %s is not published yet, retrying: %s", name, e),
            )
        except InvalidRequest as e:
            log.error("fabric %s cannot be published: %s", name, e)
