"""The node-agent process: reads one kubelet's answers and publishes its device allocations.

It stores nothing: it reads its node's last message back from the stream at the start, after each connection to the broker, and periodically, and publishes
differences: the stream closes a deleted node, which may be created again while its agent runs. If it is killed, it publishes differences on its next start.
"""

import asyncio
import logging
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, processor_s, wall_s
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged
from hbox_common.health.report import NODE, Check
from hbox_common.model import NodeDevices, NodeName, NodeNuma, NodeNvml
from hbox_common.model.bounds import VALUE_BYTES, is_name, sanitized
from hbox_common.model.nodenuma import MAX_PROBLEMS, redirecting
from hbox_common.runtime import Health, connected

from . import metrics
from .adapters.eventprocess import EventProcess
from .adapters.exporter import Exporter
from .adapters.host import read_machine, read_ports
from .adapters.kernellog import KernelRecords
from .adapters.kubelet import Kubelet, Stamp
from .adapters.nvml import Answer, Nvml, NvmlFile
from .adapters.readers import (
    DcgmReader,
    EventsReader,
    Inventory,
    KernelLogReader,
    NvmlReader,
    NvmlSource,
    PortsReader,
    UnitsReader,
)
from .core import Publication, nvml_of
from .core.nvmlevents import Pairing
from .core.reports import Observation
from .health import HealthWatch, boot_id_of
from .settings import AgentSettings, ReaderMode, ReaderRule

log = logging.getLogger(__name__)

#: Seconds between two checks for added or removed nodes of an emulated cluster, and for /readyz.
LOOK_S = 1.0
#: Seconds between two readings of /sys. After a reading with problems the next poll repeats it, and each further one after twice the time: a starting kubelet
#: or driver is read soon, and a machine without NUMA nodes costs little.
MACHINE_S = 300.0
#: Ports of RDMA adapters, which go down and come back, so often.
PORTS_S = 15.0
#: Seconds between two looks at the kernel log, at units and modules, and at the link to the kubelet.
LOG_S, EMULATED_LOG_S, UNITS_S, LINKS_S = 0.25, 0.5, 15.0, 5.0
#: Between two looks at the process that waits for NVML's events; an event is read at once.
EVENTS_S = 0.5
#: DCGM's exporter collects its values every 30 s.
DCGM_S = 30.0
#: Seconds after which a call of a reader of health counts as hanging; NVML has `nvml_timeout_s` in addition.
DEADLINE_S = 10.0
#: Seconds between two looks at the boot id of an emulated node.
BOOT_S = 1.0
#: Below the host's root; of an emulated node, the file has what `nvml_reader` would print.
KERNEL_LOG, EMULATED_NVML = Path("dev/kmsg"), Path("nvml.jsonl")
#: Below the host's root; an emulated node without cards of this driver lacks it.
KERNEL_MODULES = Path("proc/modules")
#: Below the folder of an emulated kubelet: the node has no agent at present.
NO_AGENT = "no-agent"
#: Seconds after which a reader counts as hanging and is reported: a faulty device may block every reader of its files.
HANGS_S = 30.0
STARTING_S = 0.05
#: After a question to the kubelet the next one waits for so many times what it cost of processors: an answer without end costs a node no more than a
#: quarter of one, and a kubelet that hangs, which costs nothing, is asked again at once.
RESTS = 3.0
#: What the stream has last is read back so often.
READ_BACK_S = 60.0
#: For the broker to answer what it has last.
LAST_S = 5.0


async def run(settings: AgentSettings, health: Health) -> None:
    """The service, until cancelled. Raises InvalidRequest where no node is named."""
    if settings.kubelets is None and not is_name(settings.node_name):
        raise InvalidRequest("HBOX_NODE_NAME names no node", hint="set it to spec.nodeName of the pod, as the chart does")
    # An agent may create no streams; the services do.
    async with connected(settings, ensure=False) as bus:
        await NodeAgent(settings, health, bus).run()


class NodeAgent:
    """One task for each node: one, but in an emulated cluster."""

    def __init__(self, settings: AgentSettings, health: Health, bus: Bus) -> None:
        self._settings, self._health, self._bus = settings, health, bus
        self._watches: dict[NodeName, NodeWatch] = {}
        self._tasks: dict[NodeName, asyncio.Task[NoReturn]] = {}

    async def run(self) -> NoReturn:
        on_bus, on_kubelet = self._health.condition("bus"), self._health.condition("kubelet")
        async with asyncio.TaskGroup() as group:
            while True:
                self._keep(group, self._roots())
                if self._bus.connected:
                    on_bus.ok()
                else:
                    on_bus.bad("NATS cannot be reached")
                troubles = [watch.trouble for watch in self._watches.values() if watch.trouble]
                if troubles:
                    on_kubelet.bad(troubles[0])
                else:
                    on_kubelet.ok()
                metrics.NODES.set(len(self._watches))
                metrics.UNREAD.set(sum(len(watch.problems) for watch in self._watches.values()))
                metrics.SILENT.set(sum(watch.publication.silent for watch in self._watches.values()))
                await asyncio.sleep(LOOK_S if self._health.ready else STARTING_S)

    def _roots(self) -> dict[NodeName, Path]:
        """The kubelets' folders by node."""
        if self._settings.kubelets is None:
            return {NodeName(self._settings.node_name): self._settings.kubelet_root}
        try:
            paths = [path for path in self._settings.kubelets.iterdir() if is_name(path.name)]
            return {NodeName(path.name): path for path in paths if not (path / NO_AGENT).exists()}
        except OSError:
            return {}

    def _keep(self, group: asyncio.TaskGroup, roots: dict[NodeName, Path]) -> None:
        for node in self._watches.keys() - roots.keys():
            self._tasks.pop(node).cancel()
            del self._watches[node]
        for node in roots.keys() - self._watches.keys():
            host = self._settings.host_root if self._settings.kubelets is None else roots[node] / "host"
            watch = NodeWatch(node, roots[node], host, self._settings, self._bus)
            self._watches[node], self._tasks[node] = watch, group.create_task(watch.run())


class NodeWatch:
    """One node. `trouble`: why its kubelet's last answer is missing; "" where it is there. `problems`: what of its files cannot be read."""

    def __init__(self, node: NodeName, root: Path, host: Path, settings: AgentSettings, bus: Bus) -> None:
        self._root, self._host = root, host
        self._numa: NodeNuma | None = None
        self._nvml: NodeNvml | None = None
        self._inventory = Inventory()
        self._health: HealthWatch | None = None
        self._published_numa: tuple[object, ...] = ()
        self._looked_at = -MACHINE_S
        self._machine_s = MACHINE_S
        self._ports: dict[str, str] = {}
        self._ports_at = -PORTS_S
        self._node, self._settings, self._bus = node, settings, bus
        self._kubelet = Kubelet(node, root)
        self.publication = Publication(node)
        self.trouble = "the kubelet was not asked yet"
        self._stamp: Stamp = ()
        self._managers: Stamp = ()
        self._asked_at = -settings.resync_s
        self._rests_until = 0.0
        self._unpublished = ""
        self._problems: dict[str, tuple[str, ...]] = {}
        self._connection = 0
        self._read_back_at = 0.0

    async def run(self) -> NoReturn:
        """Loops of their own: NVML, and files of a device that hangs, may take minutes or never come back, and nothing waits for them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_machine())
            group.create_task(self._watch_health())
            await self._watch()

    async def _watch_machine(self) -> NoReturn:
        while True:
            reading = asyncio.create_task(self._look_at_machine())
            done, _ = await asyncio.wait([reading], timeout=HANGS_S)
            if not done:
                self._note("hanging", (f"/sys: a file has not been read for {HANGS_S:g} s; the last reading remains in use",))
            await reading
            self._note("hanging", ())
            await asyncio.sleep(self._settings.poll_s)

    async def _watch_health(self) -> NoReturn:
        """An emulated node boots again while its agent runs."""
        while True:
            boot_id = boot_id_of(self._host)
            watching = asyncio.create_task(self._watch_boot(boot_id))
            try:
                while self._settings.kubelets is None or boot_id_of(self._host) == boot_id:
                    await asyncio.wait([watching], timeout=BOOT_S)
                    if watching.done():
                        watching.result()
            finally:
                watching.cancel()

    async def _watch_boot(self, boot_id: str) -> NoReturn:
        settings, emulated = self._settings, self._settings.kubelets is not None
        watch = self._health = HealthWatch(self._node, boot_id, self._bus)
        await watch.resume()
        on = {Check.PORTS, Check.UNITS, Check.LINKS} if not emulated else {Check.PORTS}
        if emulated and (self._host / KERNEL_MODULES).is_file():
            on.add(Check.UNITS)
        nvml: NvmlSource = Nvml(library=settings.nvml_library, timeout_s=settings.nvml_timeout_s)
        if emulated:
            nvml = NvmlFile(self._host / EMULATED_NVML)
        if settings.nvml or emulated:
            on.add(Check.NVML)
            self._inventory.cards_known = False
        if settings.kernel_log or emulated:
            on.add(Check.KERNEL_LOG)
        log_rule = self._rule(Check.KERNEL_LOG, on, EMULATED_LOG_S if emulated else LOG_S)
        pairing = Pairing(log=log_rule.mode is ReaderMode.ON)
        if settings.nvml_events and not emulated:
            on.add(Check.NVML_EVENTS)
        events_due = asyncio.Event()
        events_rule = self._rule(Check.NVML_EVENTS, on, EVENTS_S)
        process = EventProcess(library=settings.nvml_library, start_s=settings.nvml_timeout_s, on_line=events_due.set)
        read_nvml = watch.add(
            Check.NVML,
            NvmlReader(
                nvml, self._inventory, cards=watch.reports.cards, on_answer=self._on_nvml, is_released=lambda: process.released
            ),
            self._rule(Check.NVML, on, settings.nvml_poll_s),
        )
        events = EventsReader(process, pairing, on_change=read_nvml.due.set)
        watch.add(Check.NVML_EVENTS, events, events_rule, due=events_due)
        records = KernelRecords(self._host / KERNEL_LOG, emulated=emulated)
        log_reader = KernelLogReader(
            records,
            self._inventory,
            seq=watch.reports.log_seq,
            on_gap=read_nvml.due.set,
            on_records=lambda found: pairing.lines(found, monotonic_s()),
        )
        watch.add(Check.KERNEL_LOG, log_reader, log_rule)
        watch.add(Check.PORTS, PortsReader(self._host, self._inventory), self._rule(Check.PORTS, on, PORTS_S))
        if settings.dcgm_url and not emulated:
            on.add(Check.DCGM)
        without_xids = ReaderMode.ON not in (log_rule.mode, events_rule.mode)
        dcgm = DcgmReader(Exporter(settings.dcgm_url), self._inventory, cards=watch.reports.cards, xids=without_xids)
        watch.add(Check.DCGM, dcgm, self._rule(Check.DCGM, on, DCGM_S))
        watch.add(Check.UNITS, UnitsReader(self._host, self._inventory), self._rule(Check.UNITS, on, UNITS_S))
        watch.add(Check.LINKS, self, self._rule(Check.LINKS, on, LINKS_S))
        try:
            await watch.run()
        finally:
            await events.close()

    def _rule(self, check: Check, on: Set[Check], every_s: float) -> ReaderRule:
        rule = self._settings.readers.get(check, ReaderRule()) if check in on else ReaderRule(mode=ReaderMode.OFF)
        deadline_s = self._settings.nvml_timeout_s + DEADLINE_S if check is Check.NVML else DEADLINE_S
        return rule.filled(every_s=every_s, deadline_s=deadline_s)

    async def read(self) -> Sequence[Observation]:
        """The link to the kubelet, as a reader of health."""
        silent = self.publication.silent
        value = {"state": "silent" if silent else "answers"}
        return [Observation(Check.LINKS, NODE, "kubelet", value, self.trouble if silent else "")]

    def _on_nvml(self, answer: Answer) -> None:
        if self._settings.kubelets is not None:
            return  # the devices of emulated nodes are those of their objects
        before, self._nvml = self._nvml, nvml_of(answer.lines, self._nvml or NodeNvml(), problem=answer.problem)
        if self._nvml.problem and (before is None or before.problem != self._nvml.problem):
            log.warning("%s: NVML does not answer: %s", self._node, self._nvml.problem, extra={"node": self._node})
        elif before is not None and before.problem and not self._nvml.problem:
            log.info("%s: NVML answers", self._node, extra={"node": self._node})
        metrics.NVML.labels("failed" if self._nvml.problem else "answered").inc()

    async def _watch(self) -> NoReturn:
        while True:
            await self._look()
            await self._publish()
            await asyncio.sleep(self._settings.poll_s)

    async def _look(self) -> None:
        stamp = self._kubelet.stamp()
        if not self.trouble and stamp == self._stamp and monotonic_s() - self._asked_at < self._settings.resync_s:
            return
        if monotonic_s() < self._rests_until:
            return
        before = processor_s()
        try:
            found = await self._kubelet.ask()
        except HBoxError as e:
            if not self.trouble or str(e) != self.trouble:
                log.warning("%s: the kubelet does not report its allocations: %s", self._node, e, extra={"node": self._node})
            self.trouble = str(e)
            self.publication.failed(str(e), now=wall_s())
            return
        finally:
            self._rests_until = monotonic_s() + min(self._settings.resync_s, RESTS * (processor_s() - before))
        if self.trouble:
            log.info("%s: the kubelet answers", self._node, extra={"node": self._node})
        self.trouble, self._stamp, self._asked_at = "", stamp, monotonic_s()
        self.publication.answered(found)
        self._note("checkpoints", found.problems)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(problem for own in self._problems.values() for problem in own)

    def _note(self, of: str, problems: tuple[str, ...]) -> None:
        """What cannot be read is logged once, for as long as it is so."""
        before, self._problems[of] = self._problems.get(of, ()), problems
        for problem in set(problems) - set(before):
            log.warning("%s: %s", self._node, problem, extra={"node": self._node})

    async def _look_at_machine(self) -> None:
        """Now and then, and after the kubelet wrote the state of a manager: its rules may be others."""
        if monotonic_s() - self._ports_at >= PORTS_S:
            ports, self._ports_at = await asyncio.to_thread(read_ports, self._host), monotonic_s()
            if ports != self._ports:
                self._ports, self._looked_at = ports, -MACHINE_S
        managers = self._kubelet.stamp()[2:]
        if monotonic_s() - self._looked_at < self._machine_s and managers == self._managers:
            return
        self._looked_at, self._managers = monotonic_s(), managers
        config = self._settings.kubelet_config if self._settings.kubelets is None else None
        found = await asyncio.to_thread(
            read_machine, self._node, host=self._host, kubelet=self._root, config=config, at=wall_s()
        )
        if found.rules is None and self._numa is not None:
            found = replace(found, rules=self._numa.rules)  # a kubelet uses the configuration that it read at its start
        self._note("machine", found.problems)
        retry_s = 2 * self._machine_s if self._numa is not None and self._numa.problems else self._settings.poll_s
        self._machine_s = min(retry_s, MACHINE_S) if found.problems else MACHINE_S
        self._numa = found
        self._inventory.devices, self._inventory.redirecting = found.devices, redirecting(found)

    async def _publish(self) -> None:
        if not self._bus.connected:
            return
        connection = self._bus.connections
        lost = self._connection != connection  # a broker that was away may have lost what it had
        if lost or monotonic_s() - self._read_back_at >= READ_BACK_S:
            stored = self.publication.published = await self._stored()
            self._read_back_at = monotonic_s()
            if lost or stored is None or stored.gone:
                self._published_numa = ()
        due = self.publication.due(now=wall_s())
        try:
            if due is not None:
                await self._bus.publish(NodeDevicesChanged(devices=due), self._node)
                self.publication.published = due
                metrics.MESSAGES.inc()
            numa = None if self._numa is None else replace(self._numa, nvml=self._nvml, problems=self._unread(self._numa))
            if numa is not None and numa.content != self._published_numa:
                await self._bus.publish(NodeNumaChanged(numa=numa), self._node)
                self._published_numa = numa.content
                metrics.MESSAGES.inc()
            self._connection, self._unpublished = connection, ""
        except HBoxError as e:
            if str(e) != self._unpublished:
                log.warning(
                    "%s: the kubelet's allocations are not published yet: %s", self._node, e, extra={"node": self._node}
                )
            self._unpublished = str(e)

    def _unread(self, numa: NodeNuma) -> tuple[str, ...]:
        """What of the machine and of its health cannot be read, such as for want of a right."""
        readers = {} if self._health is None else self._health.unread
        found = (sanitized(f"{check.value}: {why}", VALUE_BYTES) for check, why in readers.items() if why)
        return (*numa.problems, *found)[:MAX_PROBLEMS]

    async def _stored(self) -> NodeDevices | None:
        """The node's last message in the stream; None if unknown: then it is published again."""
        try:
            last = await self._bus.last_one(NodeDevicesChanged, self._node, timeout_s=LAST_S)
        except HBoxError as e:
            log.info("%s: the last published message could not be read: %s", self._node, e)
            return None
        return last.event.devices if last is not None and isinstance(last.event, NodeDevicesChanged) else None
