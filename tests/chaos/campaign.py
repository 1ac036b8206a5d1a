"""A campaign: faults one after the other on a platform under load, a verdict after each, and an audit at the end."""

import asyncio
import json
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

import msgpack
import nats
import nats.errors

from hbox_cli.audit.reading import audit_platform
from hbox_common.clock import monotonic_s
from hbox_common.errors import Unavailable
from hbox_common.events import Stream
from hbox_common.kube import KubeClient
from hbox_ledger.adapters.audit import prove

from ..broker import admin_bus, client_of
from .faults import Fault, Target
from .liars import LIAR
from .load import FULL, NAMESPACE, ROOMY, Load, make_nodes
from .machine import Machine
from .observer import Observer

#: Seconds after the end of a fault within which every pod that was pending then must be bound.
DECIDED_S = 60.0

#: Number of pending pods that a report names.
TOLD = 5

#: If a pod ends while no service watches, its claim stays until two comparisons of the ledger, 10 s apart, miss the pod.
AUDIT_PATIENCE_S = 30.0

#: Minimum seconds of observation after a kill; a restart takes less.
LOOK_AFTER_KILL_S = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """Effect of one fault, in seconds. `stall`: longest time with pending pods and no binding since its begin; `healed`: the same since its end."""

    fault: str
    lasted: float
    stall: float
    healed: float
    limit: float
    drained: float
    wait: float
    lost: tuple[str, ...]  #: pods without a node
    broken: tuple[str, ...]  #: violated guarantees: cards allocated twice, pods bound twice, partial gangs
    other: tuple[str, ...]

    @property
    def violations(self) -> tuple[str, ...]:
        return (*self.broken, *self.lost, *self.other)


@dataclass(slots=True)
class Report:
    lines: list[Line] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    submitted: int = 0
    deleted: int = 0
    bound: int = 0
    changes: int = 0

    def table(self) -> str:
        """One row per fault."""
        head = f"{'fault':58} {'lasted':>7} {'stall':>7} {'after heal':>10} {'limit':>6} {'drained':>8} {'longest wait':>12} {'bad':>4}"
        rows = [
            f"{x.fault[:58]:58} {x.lasted:7.1f} {x.stall:7.2f} {x.healed:10.2f} {x.limit:6.0f} {x.drained:8.2f} {x.wait:12.2f} {len(x.violations):4}"
            for x in self.lines
        ]
        return "\n".join([head, *rows, *self._verdict()])

    def summary(self) -> str:
        """One row per kind of fault: number, lost pods, double allocations, and time until bindings resumed."""
        groups: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            groups[re.sub(r" \d+ s\b", "", line.fault)].append(line)
        head = f"{'fault':34} {'times':>5} {'lost':>5} {'doubled':>7} {'other':>5} {'recovery p50':>12} {'max':>6} {'limit':>6} {'wait p50':>9} {'max':>6}"
        rows = [
            f"{name[:34]:34} {len(lines):5} {sum(len(x.lost) for x in lines):5} {sum(len(x.broken) for x in lines):7} "
            f"{sum(len(x.other) for x in lines):5} {median(x.healed for x in lines):12.2f} {max(x.healed for x in lines):6.2f} "
            f"{max(x.limit for x in lines):6.0f} {median(x.wait for x in lines):9.2f} {max(x.wait for x in lines):6.2f}"
            for name, lines in sorted(groups.items())
        ]
        return "\n".join([head, *rows, *self._verdict()])

    def _verdict(self) -> list[str]:
        seen = f"{self.submitted} pods submitted, {self.bound} bound, {self.deleted} deleted; {self.changes} changes of pods judged"
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        found = [f"violation: {text}" for text in self.violations] or ["no violation"]
        return [f"(seconds; load average {load})", seen, *found]


async def campaign(
    machine: Machine,
    faults: Sequence[Fault],
    *,
    seed: int,
    rate: float = 12.0,
    nodes: int = 150,
    full: bool = False,
    slack: float = 1.0,
    look_s: float = 2.0,
    audit_every: int = 0,
    say: Callable[[str], None] = print,
) -> Report:
    """Run the faults against the platform on `machine`, whose cluster is empty.

    `full`: users request more than the cluster has; a pod may wait, but not while its resources are idle. `slack`: factor on each fault's limit, for a
    machine with other load. `look_s`: minimum seconds of observation after a fault. `audit_every`: number of faults after which users pause and an audit
    compares ledger and cluster; 0: only at the end.
    """
    running = json.loads((machine.state / "platform.json").read_text())
    report = Report()
    async with KubeClient.connect(running["kubeconfig"], user_agent="chaos", timeout_s=30) as client:
        await make_nodes(client, nodes)
        observer = await Observer.begin(client)
        load = Load(client, observer, Random(seed), rate, nodes, FULL if full else ROOMY)
        target = Target(machine.state, client.base, load, running, machine)
        moments = Random(seed)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(observer.watch(client) if running["emulated"] else observer.watch_for_ever(client)),
                tasks.create_task(load.run()),
                tasks.create_task(_gangs(observer)),
            ]
            if full:
                await load.fill()
            load.running.set()
            await _warm(observer)
            for number, fault in enumerate(faults, 1):
                await asyncio.sleep(moments.uniform(0.1, 1.0))
                limit_s, least_s = fault.limit_s * slack, LOOK_AFTER_KILL_S if fault.instant else look_s
                line = await _suffer(fault, target, observer, running, limit_s=limit_s, look_s=least_s, full=full)
                report.lines.append(line)
                say(
                    f"{number}/{len(faults)} {fault.name}: work went on after {line.healed:.2f} s, longest wait {line.wait:.2f} s"
                )
                found = list(line.violations)
                if audit_every and number % audit_every == 0:
                    await load.pause()
                    await _drained(observer, monotonic_s(), full=full)
                    found += await _audit(client, running)
                    load.running.set()
                for text in found:
                    say(f"  violation: {text}")
                report.violations += found
            await load.pause()
            await _drained(observer, monotonic_s(), full=full)
            for task in background:
                task.cancel()
        report.violations += await _audit(client, running)
    report.violations += await _outbox_drains(running["database_url"])
    proof = await asyncio.to_thread(prove, running["database_url"])
    report.violations += [f"the ledger's history: {fault}" for fault in proof.faults]
    report.submitted, report.deleted = load.submitted, load.deleted
    report.bound, report.changes = len(observer.bindings), observer.changes
    return report


async def _suffer(
    fault: Fault, target: Target, observer: Observer, running: Mapping[str, Any], *, limit_s: float, look_s: float, full: bool
) -> Line:
    known = len(observer.violations)
    observer.during = lambda: fault.name
    began = monotonic_s()
    await fault.act(target)
    healed = began if fault.instant else monotonic_s()
    lost = await _drained(observer, monotonic_s(), full=full)
    drained = monotonic_s() - healed
    await asyncio.sleep(max(0.0, look_s - drained))
    lost += await _drained(observer, monotonic_s(), full=full)  # otherwise a stall that continues would be cut off here
    end = monotonic_s()
    stall, healed_stall = observer.longest_stall(began, end), observer.longest_stall(healed, end)
    observer.during = str
    other = await _dead_letters(running)
    if healed_stall > limit_s:
        other.append(f"no binding for {healed_stall:.1f} s after its end, allowed are {limit_s:g} s")
    return Line(
        fault.name,
        healed - began,
        stall,
        healed_stall,
        limit_s,
        drained,
        observer.longest_wait(began, end),
        tuple(f"{fault.name}: {text}" for text in lost),
        tuple(observer.violations[known:]),
        tuple(f"{fault.name}: {text}" for text in other),
    )


async def _warm(observer: Observer) -> None:
    """Wait until bindings are steady."""
    async with asyncio.timeout(30):
        while len(observer.bindings) < 30:  # noqa: ASYNC110  what is awaited is a count
            await asyncio.sleep(0.1)


async def _gangs(observer: Observer) -> None:
    while True:
        observer.look_at_gangs()
        await asyncio.sleep(1.0)


async def _drained(observer: Observer, moment: float, *, full: bool) -> list[str]:
    """Wait for all pods created before `moment`, on a full cluster only for those that fit. Return a text for each that has no node in time."""
    until = monotonic_s() + DECIDED_S
    late = observer.unserved if full else observer.waiting
    while (not observer.live or late(made_before=moment)) and monotonic_s() < until:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.05)
    waiting = late(made_before=moment)
    told = [
        f"pod {s.pod.name} waits for {monotonic_s() - s.made_at:.0f} s: {s.verdict or 'no verdict'}" for s in waiting[:TOLD]
    ]
    return [*told, *([f"and {len(waiting) - TOLD} more pods wait"] if len(waiting) > TOLD else [])]


async def _dead_letters(running: Mapping[str, Any]) -> list[str]:
    """Dead letters, except those of `liars`: the platform must be able to process its own messages. Retries while a broker starts."""
    until = monotonic_s() + DECIDED_S
    while True:
        try:
            return await _take_dead_letters(running)
        except (OSError, nats.errors.Error) as e:
            if monotonic_s() > until:
                return [f"dead letters cannot be read: {e}"]
            await asyncio.sleep(0.2)


async def _take_dead_letters(running: Mapping[str, Any]) -> list[str]:
    """Read and delete dead letters, so that each is reported once."""
    client = await client_of(running, max_reconnect_attempts=5, error_cb=_say_nothing)
    try:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(Stream.DEAD)).state
        found = []
        for sequence in range(state.first_seq or 1, state.last_seq + 1):
            letter = msgpack.unpackb((await jetstream.get_msg(Stream.DEAD, sequence)).data or b"")
            if not letter["message_id"].startswith(LIAR):
                found.append(f"dead letter of {letter['consumer']}: {letter['reason']}")
        if state.messages:
            await jetstream.purge_stream(Stream.DEAD)
        return found
    finally:
        await client.close()


async def _say_nothing(_: Exception) -> None:
    """Ignore errors of the connection: `connect` raises them too."""


async def _audit(client: KubeClient, running: Mapping[str, Any]) -> list[str]:
    """Run `hbox audit` in this process."""
    try:
        async with (
            asyncio.timeout(4 * AUDIT_PATIENCE_S),
            admin_bus(running) as bus,
        ):
            result, _ = await audit_platform(client, bus, patience_s=AUDIT_PATIENCE_S)
    except TimeoutError:
        return ["audit: no end"]
    except Unavailable as e:
        return [f"audit: {e}"]
    # Only `Load.forge` writes HBox's annotations on pods; all other notes are faults.
    written = [note for note in result.notes if f"pod {NAMESPACE}/forger-" not in note]
    return [f"audit: {fault}" for fault in (*result.faults, *written)]


async def _outbox_drains(database_url: str) -> list[str]:
    """Wait until the outbox of a ledger on SQLite is empty."""
    file = database_url.removeprefix("sqlite:///")

    def letters() -> int:
        books = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)
        try:
            return int(books.execute("select count(*) from outbox").fetchone()[0])
        finally:
            books.close()

    until = monotonic_s() + 15.0
    while left := await asyncio.to_thread(letters):
        if monotonic_s() > until:
            return [f"the ledger's outbox keeps {left} letters"]
        await asyncio.sleep(0.2)
    return []
