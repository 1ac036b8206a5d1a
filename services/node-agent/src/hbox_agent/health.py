"""Reads the health of one node, and publishes it: one task for each reader, one for the reports. A reader that hangs delays no other."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.errors import HBoxError, Unavailable
from hbox_common.events import HealthReport
from hbox_common.health.report import NODE, Check
from hbox_common.model import NodeName

from . import metrics
from .adapters.host import bytes_of
from .adapters.readers import EventsReader, KernelLogReader, Reader
from .core.reports import Observation, Reports
from .settings import ReaderMode, ReaderRule

log = logging.getLogger(__name__)

#: Facts of one moment are published together.
GATHER_S = 0.1
#: Between two attempts to publish, and to read the last report.
RETRY_S = 1.0
#: Windows of repeated events end so often without a further event.
IDLE_S = 5.0
#: Seconds between two publications of all states: the stream keeps reports for a day, and a restarted agent continues after the last one.
RESTATED_S = 6 * 3600.0

#: Seconds without a report after which one without facts is published: health-monitor treats an agent as silent after several of them.
HEARTBEAT_S = 10.0
#: For the broker to store a heartbeat; a later one replaces it.
HEARTBEAT_TIMEOUT_S = 5.0

_BOOT_ID = Path("proc/sys/kernel/random/boot_id")


def boot_id_of(host: Path) -> str:
    """ "" if it cannot be read: then all reports count as of one boot."""
    return (bytes_of(host / _BOOT_ID, 64) or b"").decode(errors="replace").strip()


@dataclass(slots=True)
class Schedule:
    """When a reader is called; `due`: set to call it at once."""

    check: Check
    rule: ReaderRule
    due: asyncio.Event


class HealthWatch:
    """One node. Call `resume` once, then `add` readers, then `run`."""

    def __init__(self, node: NodeName, boot_id: str, bus: Bus) -> None:
        self._node, self._boot_id, self._bus = node, boot_id, bus
        self._agent = new_id()
        self.reports = Reports(node, boot_id, self._agent)
        self._changed = asyncio.Event()
        self.unread: dict[Check, str] = {}  #: why a reader reads nothing
        self._readers: list[tuple[Schedule, Reader]] = []

    async def resume(self) -> None:
        """Continue after the last report of this boot. If the broker has none, the numbers begin at the milliseconds since the boot, above those of earlier
        reports, since their reader ignores numbers that it knows. Waits for the broker."""
        self.reports = Reports(self._node, self._boot_id, self._agent, seq=int(monotonic_s() * 1000))
        while True:
            try:
                found = await self._bus.last_one(HealthReport, self._node)
                break
            except Unavailable as e:
                log.info("%s: the last report on health could not be read: %s", self._node, e)
            except HBoxError as e:
                log.warning("%s: the last report on health is not readable: %s", self._node, e)
                return
            await asyncio.sleep(RETRY_S)
        last = found.event if found is not None else None
        if isinstance(last, HealthReport) and last.boot_id == self._boot_id:
            self.reports = Reports(
                self._node, self._boot_id, self._agent, seq=last.last_seq, log_seq=last.log_seq, cards=last.cards
            )

    def add(self, check: Check, reader: Reader, rule: ReaderRule, *, due: asyncio.Event | None = None) -> Schedule:
        schedule = Schedule(check, rule, due or asyncio.Event())
        if rule.mode is not ReaderMode.OFF:
            self._readers.append((schedule, reader))
        if rule.mode is ReaderMode.REPORT_ONLY:
            self.reports.report_only = (*self.reports.report_only, check.value)
        return schedule

    def observe(self, observed: Sequence[Observation]) -> None:
        self.reports.add(observed, now=wall_s())
        if observed:
            self._changed.set()

    async def run(self) -> NoReturn:
        self.observe([Observation(Check.AGENT, NODE, "started", {"agent": self._agent})])
        async with asyncio.TaskGroup() as group:
            for schedule, reader in self._readers:
                group.create_task(self._read(schedule, reader))
            await self._publish()

    async def _read(self, schedule: Schedule, reader: Reader) -> NoReturn:
        check, rule = schedule.check, schedule.rule
        problem = ""
        while True:
            schedule.due.clear()
            observed: Sequence[Observation] = ()
            why = ""
            try:
                observed = await self._answer(check, reader, rule.deadline_s)
                why = reader.problem if isinstance(reader, EventsReader) else ""
            except (HBoxError, OSError) as e:
                why = str(e)
            if why != problem:
                log.log(
                    logging.WARNING if why else logging.INFO, "%s: reader %s: %s", self._node, check.value, why or "it answers"
                )
                self.observe(
                    [Observation(Check.AGENT, NODE, f"unread:{check.value}", {"reader": check.value, "why": why}, why)]
                )
                problem = self.unread[check] = why
            metrics.FACTS.labels(check.value).inc(len(observed))
            self.observe(observed)
            if isinstance(reader, KernelLogReader):
                self.reports.log_seq = reader.seq  # now that its facts are in the reports
            try:
                async with asyncio.timeout(rule.every_s):
                    await schedule.due.wait()
            except TimeoutError:
                pass

    async def _answer(self, check: Check, reader: Reader, deadline_s: float) -> Sequence[Observation]:
        """A call that does not return by its deadline is a fact; no second call is made meanwhile."""
        reading = asyncio.ensure_future(reader.read())
        try:
            done, _ = await asyncio.wait([reading], timeout=deadline_s)
            if not done:
                metrics.HANGS.labels(check.value).inc()
                self._hangs(check, wall_s() - deadline_s, f"no answer within {deadline_s:g} s")
                await asyncio.wait([reading])
                self._hangs(check, 0.0, "")
            return reading.result()
        finally:
            reading.cancel()

    def _hangs(self, check: Check, since: float, text: str) -> None:
        value = {"reader": check.value, "since": round(since, 1)}
        self.observe([Observation(Check.AGENT, NODE, f"hangs:{check.value}", value, text)])

    async def _publish(self) -> NoReturn:
        problem, restated_at, published_at = "", monotonic_s(), monotonic_s()
        while True:
            if monotonic_s() - restated_at >= RESTATED_S:
                self.reports.restate()
                restated_at = monotonic_s()
            try:
                async with asyncio.timeout(min(IDLE_S, max(0.0, published_at + HEARTBEAT_S - monotonic_s()))):
                    await self._changed.wait()
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass
            self._changed.clear()
            while (report := self.reports.due(now=wall_s())) is not None:
                try:
                    await self._bus.publish(report, self._node)
                    self.reports.published()
                    metrics.REPORTS.inc()
                    problem, published_at = "", monotonic_s()
                except HBoxError as e:
                    if str(e) != problem:
                        log.warning("%s: the report on health is not published yet: %s", self._node, e)
                    problem = str(e)
                    await asyncio.sleep(RETRY_S)
            if monotonic_s() - published_at >= HEARTBEAT_S:
                published_at = monotonic_s()
                try:
                    await self._bus.publish(self.reports.heartbeat(), self._node, timeout_s=HEARTBEAT_TIMEOUT_S)
                except HBoxError as e:
                    log.info("%s: a heartbeat was not published: %s", self._node, e)
