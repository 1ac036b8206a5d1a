"""The fabric that HyperNodes describe: watched, resolved against the existing nodes, and published whole, since the tree changes rarely.

If the definition of HyperNodes is not installed, there is no fabric; the collector checks again at intervals.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from hbox_common import kube
from hbox_common.bus import Bus
from hbox_common.errors import InvalidRequest
from hbox_common.events import FabricChanged
from hbox_common.insisting import insist
from hbox_common.kube import HYPERNODES, Delta, Informer, KubeClient
from hbox_common.kube.eventwriter import MAX_NOTE
from hbox_common.kube.fabric import Wrong, resolve
from hbox_common.model import HyperNode

from .. import metrics
from .definitions import until_defined
from .export import EXPORTED
from .problems import Problems

log = logging.getLogger(__name__)

#: Seconds in which changes are collected into one message.
WINDOW_S = 0.5
LOOK_AGAIN_S = 15.0
REASON = "HyperNodeProblem"
#: Lines in the log at a time.
LOGGED = 20


class HyperNodeFabric:
    """`name`: of the fabric on the bus. `labels`: those of all nodes, by name, as of now."""

    trouble = ""

    def __init__(self, name: str, client: KubeClient, bus: Bus, labels: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        self._name, self._client, self._bus, self._labels = name, client, bus, labels
        self._watched = Informer(client, HYPERNODES, kube.HyperNode)
        self._known = False  #: the HyperNodes were listed, or there is no such kind
        self._last: tuple[HyperNode, ...] | None = None
        self._complaints: frozenset[str] = frozenset()
        self._problems = Problems(client, HYPERNODES, "HyperNode", reason=REASON)
        self._wake = asyncio.Event()

    def touch(self) -> None:
        """Nodes or HyperNodes may have changed."""
        self._wake.set()

    def republish(self) -> None:
        """Publish again: the stream was lost."""
        self._last = None
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. To be started when the nodes are known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._publish_changes())
            group.create_task(self._problems.run())

    async def _watch(self) -> None:
        await until_defined(self._client, HYPERNODES, "HyperNode", look_again_s=LOOK_AGAIN_S, absent=self._absent)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watched.run(self._on_hypernodes))
            await self._watched.synced.wait()
            self._known = True
            self._wake.set()

    def _absent(self) -> None:
        self._known = True
        self._wake.set()

    async def _on_hypernodes(self, _: Sequence[Delta[kube.HyperNode]]) -> None:
        self._wake.set()

    async def _publish_changes(self) -> NoReturn:
        while True:
            await self._wake.wait()
            await asyncio.sleep(WINDOW_S)
            self._wake.clear()
            if not self._known:
                continue
            hypernodes = await self._resolved()
            if hypernodes != self._last:
                await self._publish(hypernodes)
                self._last = hypernodes
                metrics.HYPERNODES.set(len(hypernodes))

    async def _resolved(self) -> tuple[HyperNode, ...]:
        """The domains, in order of their names. Patterns over thousands of nodes take seconds: in a thread."""
        theirs = (one for one in self._watched.store.values() if EXPORTED not in one.metadata.labels)
        objects = sorted(theirs, key=lambda one: one.metadata.name)
        resolved = await asyncio.to_thread(resolve, objects, dict(self._labels()))
        self._complain([(objects[wrong.place], wrong) for wrong in resolved.wrong])
        return tuple(resolved.hypernodes)

    def _complain(self, found: Sequence[tuple[kube.HyperNode, Wrong]]) -> None:
        """Report each problem once while it lasts: in the log, and as an Event of its HyperNode."""
        metrics.HYPERNODE_PROBLEMS.set(len(found))
        texts: dict[str, tuple[str, str]] = {}
        lines = set()
        for one, wrong in found:
            name, text = one.metadata.name, f"{wrong.field} {wrong.message}: left out; {wrong.hint}"
            lines.add(f"HyperNode {name}: {text}")
            _, before = texts.get(name, ("", ""))
            if len(before) < MAX_NOTE:
                texts[name] = one.metadata.uid, f"{before}; {text}" if before else text
        for line in sorted(lines - self._complaints)[:LOGGED]:
            log.warning(line)
        self._complaints = frozenset(lines)
        self._problems.keep(texts)
        for name, (uid, text) in texts.items():
            self._problems.put(name, uid, text)

    async def _publish(self, hypernodes: tuple[HyperNode, ...]) -> None:
        try:
            await insist(
                lambda: self._bus.publish(FabricChanged(fabric=self._name, hypernodes=hypernodes), self._name),
                on_unavailable=lambda e: log.warning("the fabric is not published yet, retrying: %s", e),
            )
        except InvalidRequest as e:
            log.error("the fabric cannot be published: %s", e)
