"""One fabric from a source outside the cluster: read, checked, and published as domains of nodes.

The domains are published when they change (FabricChanged), problems of cables likewise (FabricGapsFound), and periodically the time of the source's last
confirmation (FabricSeen), so that readers know the data's age. A starting collector reads its published data back, so that names stay, and partial data from
the source is detected then as well.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s, processor_s, wall_s
from hbox_common.errors import HBoxError
from hbox_common.events import Event, FabricChanged, FabricGapsFound, FabricSeen
from hbox_common.insisting import insist
from hbox_common.model import FabricGap, HyperNode, NodeName
from hbox_common.pacing import backoff_s

from .. import metrics
from ..core.fabric.build import build
from ..core.fabric.domains import FABRIC, LEAF_GROUP, POD, SWITCHES, domains_of, with_nvlink
from ..core.fabric.graph import FAULTS, Graph, Pod, Root, Unit
from ..core.fabric.keeper import Keeper, diff
from ..core.fabric.names import host_of
from .fabricsfile import FabricSpec
from .sources import IbnetdiscoverSource, LldpSource, Source
from .ufm import UfmSource

log = logging.getLogger(__name__)

#: Minimum seconds between two FabricSeen messages without changes.
SEEN_EVERY_S = 5.0
#: After a reading that failed, doubling.
RETRY_S, RETRY_MAX_S = 1.0, 60.0
#: After a reading the next one waits for so many times what it cost of processors: a source that changes all the time has no more than half of one.
RESTS = 1.0
#: Of changes that one line each is logged for.
LOGGED_CHANGES = 20
MAX_GAPS = 5000
#: Characters of one of them, as names allow that are as long as a source may write them.
MAX_GAP_TEXT = 512


def source_of(spec: FabricSpec) -> Source:
    if spec.ufm is not None:
        return UfmSource(spec.ufm)
    if spec.ibnetdiscover is not None:
        return IbnetdiscoverSource(spec.ibnetdiscover)
    assert spec.lldp is not None
    return LldpSource(spec.lldp)


class MeasuredFabric:
    """`labels`: current labels of all nodes, by name. `on_published`: called with the domains after each publication."""

    def __init__(
        self,
        spec: FabricSpec,
        bus: Bus,
        labels: Callable[[], Mapping[str, Mapping[str, str]]],
        *,
        several: bool = False,
        on_published: Callable[[Sequence[HyperNode]], None] = lambda _: None,
    ) -> None:
        self._spec, self._bus, self._labels, self._on_published = spec, bus, labels, on_published
        self._prefix = f"{spec.name}-" if several else ""
        self._source = source_of(spec)
        self.keeper = Keeper()
        self._trouble = ""  #: why the source could not be read last
        self._wake = asyncio.Event()
        self._domains: tuple[HyperNode, ...] | None = None  #: published last
        self._gaps_of = -1  #: version of the gaps that were published last
        self._seen: tuple[int, str] = (-1, "")  #: version and trouble that were published last
        self._seen_at = -float("inf")
        self._problems: frozenset[str] = frozenset()

    @property
    def trouble(self) -> str:
        """Why what is known may be old; "" = it is not."""
        return self._trouble or self.keeper.held

    def touch(self) -> None:
        """Nodes may have changed."""
        self._wake.set()

    def republish(self) -> None:
        """Publish again: the stream was lost."""
        self._domains, self._gaps_of, self._seen = None, -1, (-1, "")
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. To be started when the nodes are known."""
        await self._read_back()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poll())
                group.create_task(self._publish_changes())
        finally:
            for each in (metrics.FABRIC_AGE, metrics.FABRIC_HOSTS, metrics.FABRIC_UNITS, metrics.FABRIC_HELD):
                with suppress(KeyError):
                    each.remove(self._spec.name)
            await self._source.close()

    # Reading.

    async def _poll(self) -> NoReturn:
        failures = 0
        while True:
            started, before = monotonic_s(), processor_s()
            try:
                await self._read()
                failures = 0
                self._trouble = ""
            except HBoxError as e:
                if self._trouble != str(e):
                    log.warning("fabric %s cannot be read, what was known stays: %s", self._spec.name, e)
                self._trouble = str(e)
                failures += 1
                metrics.FABRIC_FAILURES.labels(self._spec.name).inc()
            self._wake.set()
            wait = self._source.poll_s if not failures else backoff_s(failures - 1, base_s=RETRY_S, cap_s=RETRY_MAX_S)
            await asyncio.sleep(max(wait - (monotonic_s() - started), RESTS * (processor_s() - before), 0.05))

    async def _read(self) -> None:
        reading = await self._source.read()
        keeper, now = self.keeper, wall_s()
        at = now if reading.at is None else min(reading.at, now)  # a file's time is its writer's: none is younger than now
        keeper.record_events(now=at, failovers=reading.failovers, downs=reading.downs)
        if reading.snapshot is None:
            keeper.confirm(at)
            if keeper.held:
                self._source.forget()  # whether the next reading agrees is to be seen
            return
        before, was_held = keeper.graph, keeper.held
        started = monotonic_s()
        graph = await asyncio.to_thread(build, reading.snapshot, former=before, other_hcas=self._spec.other_hcas)
        metrics.FABRIC_BUILD.observe(monotonic_s() - started)
        changed = keeper.offer(graph, at)
        if keeper.held:
            self._source.forget()
            if keeper.held != was_held:
                log.warning("fabric %s: the data of its source is rejected as implausible: %s", self._spec.name, keeper.held)
        elif changed:
            self._log(before, graph)

    def _log(self, before: Graph | None, graph: Graph) -> None:
        changes = diff(before, graph) if before is not None and before.ports else []
        for change in changes[:LOGGED_CHANGES]:
            log.info("fabric %s: %s", self._spec.name, change.text)
        log.info(
            "fabric %s changed",
            self._spec.name,
            extra={"hosts": graph.hosts, "units": len(graph.units), "gaps": len(graph.findings), "changes": len(changes)},
        )

    # Publication.

    async def _publish_changes(self) -> NoReturn:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    SEEN_EVERY_S
                ):  # `wait_for` may lose a cancellation that comes together with what it waits for
                    await self._wake.wait()
            self._wake.clear()
            keeper = self.keeper
            if keeper.graph is None:
                await self._publish_seen()
                continue
            graph, version = keeper.graph, keeper.version
            labels = dict(self._labels())
            domains, problems = await asyncio.to_thread(self._domains_of, graph, labels)
            self._complain(problems)
            if domains != self._domains:
                await self._publish(FabricChanged(fabric=self._spec.name, hypernodes=domains, version=version))
                self._domains = domains
                self._on_published(domains)
            if version != self._gaps_of and graph.ports:
                await self._publish(self._gaps(graph, version, labels))
                self._gaps_of = version
            await self._publish_seen()
            self._count(graph)

    def _domains_of(
        self, graph: Graph, labels: Mapping[str, Mapping[str, str]]
    ) -> tuple[tuple[HyperNode, ...], tuple[str, ...]]:
        domains, problems = domains_of(graph, labels, prefix=self._prefix)
        return with_nvlink(domains, labels), problems

    def _gaps(self, graph: Graph, version: int, labels: Mapping[str, Mapping[str, str]]) -> FabricGapsFound:
        gaps = tuple(
            FabricGap(str(one.kind), str(one)[:MAX_GAP_TEXT], one.host, one.unit, one.switch, one.rails)
            for one in graph.findings[:MAX_GAPS]
        )
        nodes = {host_of(node): NodeName(node) for node in labels}
        degraded = {nodes[host]: rails for host, rails in graph.degraded.items() if host in nodes}
        return FabricGapsFound(fabric=self._spec.name, version=version, gaps=gaps, degraded=degraded)

    async def _publish_seen(self) -> None:
        state = (self.keeper.version, self.trouble)
        if state == self._seen and monotonic_s() - self._seen_at < SEEN_EVERY_S - 0.5:
            return
        await self._publish(
            FabricSeen(
                fabric=self._spec.name,
                version=self.keeper.version,
                seen_at=max(self.keeper.seen_at, 0.0),
                source=self._source.kind if self._spec.is_aging else "",
                held=self.trouble[:1000],
            )
        )
        self._seen, self._seen_at = state, monotonic_s()

    def _count(self, graph: Graph) -> None:
        name = self._spec.name
        metrics.FABRIC_AGE.labels(name).set(max(wall_s() - self.keeper.seen_at, 0.0))
        metrics.FABRIC_HOSTS.labels(name).set(graph.hosts)
        metrics.FABRIC_UNITS.labels(name).set(len(graph.units))
        metrics.FABRIC_HELD.labels(name).set(bool(self.trouble))
        for kind in FAULTS:
            metrics.FABRIC_GAPS.labels(name, str(kind)).set(sum(one.kind is kind for one in graph.findings))

    def _complain(self, problems: Sequence[str]) -> None:
        """Each once, while it is there."""
        for text in sorted(set(problems) - self._problems):
            log.warning("fabric %s: %s", self._spec.name, text)
        self._problems = frozenset(problems)

    async def _publish(self, event: Event) -> None:
        try:
            await insist(
                lambda: self._bus.publish(event, self._spec.name),
                on_unavailable=lambda e: log.warning("fabric %s is not published yet, retrying: %s", self._spec.name, e),
            )
        except HBoxError as e:
            log.error("fabric %s cannot be published: %s", self._spec.name, e)

    # Recovery of published data.

    async def _read_back(self) -> None:
        found: dict[type[Event], Event] = {}
        ready = asyncio.Event()

        async def receive(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                event = delivery.event
                if isinstance(event, FabricChanged | FabricSeen) and event.fabric == self._spec.name:
                    found[type(event)] = event

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(
                self._bus.follow([FabricChanged, FabricSeen], receive, start=Start.LAST_PER_SUBJECT, on_ready=ready.set)
            )
            await ready.wait()
            reading.cancel()
        changed, seen = found.get(FabricChanged), found.get(FabricSeen)
        if isinstance(changed, FabricChanged) and isinstance(seen, FabricSeen) and changed.hypernodes:
            graph = former_graph(changed.hypernodes, self._prefix)
            if graph.units:
                self.keeper.graph, self.keeper.version = graph, seen.version
                self.keeper.seen_at = min(seen.seen_at, wall_s())


def former_graph(hypernodes: Sequence[HyperNode], prefix: str = "") -> Graph:
    """As much of a graph as its domains say: names, switches and machines of units, pods and roots."""

    def plain(name: str) -> str:
        return name.removeprefix(prefix)

    def switches(one: HyperNode) -> tuple[str, ...]:
        return tuple(filter(None, one.labels.get(SWITCHES, "").split(",")))

    units = tuple(
        Unit(plain(one.name), switches(one), tuple(map(host_of, one.nodes)))
        for one in hypernodes
        if one.tier_name == LEAF_GROUP
    )
    names = {unit.name for unit in units}
    pods = tuple(
        Pod(plain(one.name), tuple(plain(child) for child in one.children if plain(child) in names), switches(one))
        for one in hypernodes
        if one.tier_name == POD
    )
    below = {pod.name for pod in pods}
    roots = tuple(
        Root(plain(one.name), tuple(plain(child) for child in one.children if plain(child) in below))
        for one in hypernodes
        if one.tier_name == FABRIC
    )
    return Graph({}, units, pods, roots, ())
