"""All fabrics of the configuration file, each as a task of its own; restarted when the file changes."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn, Protocol

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.errors import HBoxError
from hbox_common.events import FabricChanged, FabricGapsFound, FabricSeen
from hbox_common.insisting import insist
from hbox_common.kube import KubeClient
from hbox_common.model import HyperNode

from .export import HyperNodeExport
from .fabricsfile import Fabrics, FabricSpec
from .hypernodes import HyperNodeFabric
from .labelled import LabelledFabric
from .measured import MeasuredFabric

log = logging.getLogger(__name__)


class _Fabric(Protocol):
    @property
    def trouble(self) -> str: ...

    def touch(self) -> None: ...

    def republish(self) -> None: ...

    async def run(self) -> None: ...


def _discard(_: Sequence[HyperNode]) -> None:
    """Discard the domains."""


class FabricSources:
    """`labels`: those of all nodes, by name, as of now."""

    def __init__(
        self, wanted: Fabrics, client: KubeClient, bus: Bus, labels: Callable[[], Mapping[str, Mapping[str, str]]]
    ) -> None:
        self._wanted, self._client, self._bus, self._labels = wanted, client, bus, labels
        self._running: dict[str, _Fabric] = {}
        self._changed = asyncio.Event()
        self._export: HyperNodeExport | None = None

    def follow(self, wanted: Fabrics) -> None:
        """Apply a new version of the file."""
        self._wanted = wanted
        self._changed.set()

    def touch(self) -> None:
        """Nodes may have changed."""
        for fabric in self._running.values():
            fabric.touch()

    def republish(self) -> None:
        """Publish again: the stream was lost."""
        for fabric in self._running.values():
            fabric.republish()

    @property
    def trouble(self) -> str:
        """What may be old, and why."""
        return "; ".join(f"fabric {name}: {fabric.trouble}" for name, fabric in self._running.items() if fabric.trouble)

    async def run(self) -> NoReturn:
        """Until cancelled. To be started when the nodes are known."""
        while True:
            self._changed.clear()
            wanted = self._wanted
            await self._empty_others({one.name for one in wanted.fabrics})
            self._export = HyperNodeExport(self._client, wanted.measured) if wanted.export else None
            self._running = {one.name: self._made(one, wanted) for one in wanted.fabrics}
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(fabric.run()) for fabric in self._running.values()]
                if self._export is not None:
                    tasks.append(group.create_task(self._export.run()))
                await self._changed.wait()
                for task in tasks:
                    task.cancel()

    def _made(self, spec: FabricSpec, wanted: Fabrics) -> _Fabric:
        if spec.hyper_nodes:
            return HyperNodeFabric(spec.name, self._client, self._bus, self._labels)
        if spec.labels:
            return LabelledFabric(spec, self._bus, self._labels)
        on_published = partial(self._export.put, spec.name) if self._export is not None else _discard
        return MeasuredFabric(spec, self._bus, self._labels, several=wanted.several, on_published=on_published)

    async def _empty_others(self, names: set[str]) -> None:
        """Publish fabrics that the file no longer names as empty."""
        gone: dict[str, None] = {}
        ready = asyncio.Event()

        async def receive(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                event = delivery.event
                if isinstance(event, FabricChanged) and event.fabric not in names and event.hypernodes:
                    gone[event.fabric] = None

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(
                self._bus.follow([FabricChanged], receive, start=Start.LAST_PER_SUBJECT, on_ready=ready.set)
            )
            await ready.wait()
            reading.cancel()
        for name in gone:
            await self._publish_empty(name)

    async def _publish_empty(self, name: str) -> None:
        for event in (
            FabricChanged(fabric=name, hypernodes=()),
            FabricGapsFound(fabric=name, version=0, gaps=()),
            FabricSeen(fabric=name, version=0, seen_at=0.0),
        ):
            try:
                await insist(
                    lambda event=event: self._bus.publish(event, name),  # type: ignore[misc]
                    on_unavailable=lambda e: log.warning("the removal of fabric %s is not published yet: %s", name, e),
                )
            except HBoxError as e:
                log.error("the removal of fabric %s cannot be published: %s", name, e)
