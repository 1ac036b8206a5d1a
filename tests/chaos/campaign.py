"""A campaign: the platform under load, fault after fault, each judged when it is healed, and an audit at the end."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgpack
import nats

from hbox_common.clock import monotonic_s
from hbox_common.events import Stream
from hbox_common.kube import KubeClient

from .faults import Fault, Target
from .load import Load, make_nodes
from .observer import Observer

#: After a fault is healed, every pod that waited then has to be bound within so long.
DECIDED_S = 60.0

#: A pod that ended while nobody watched is missed by two comparisons of the ledger, 10 s apart; its claim is there until then.
AUDIT_PATIENCE_S = "30"

#: Bindings are looked at for so long after a fault is healed, at least.
LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Line:
    """What one fault did. In seconds; `gap`: longest time without a binding from its begin on, `healed_gap`: the part after its end."""

    fault: str
    lasted: float
    gap: float
    healed_gap: float
    limit: float
    drained: float
    wait: float
    violations: tuple[str, ...]


@dataclass(slots=True)
class Report:
    lines: list[Line] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    submitted: int = 0
    deleted: int = 0
    bound: int = 0
    changes: int = 0

    def table(self) -> str:
        head = f"{'fault':58} {'lasted':>7} {'no binding':>10} {'after heal':>10} {'limit':>6} {'drained':>8} {'longest wait':>12} {'bad':>4}"
        rows = [
            f"{x.fault[:58]:58} {x.lasted:7.1f} {x.gap:10.2f} {x.healed_gap:10.2f} {x.limit:6.0f} {x.drained:8.2f} {x.wait:12.2f} {len(x.violations):4}"
            for x in self.lines
        ]
        seen = f"{self.submitted} pods submitted, {self.bound} bound, {self.deleted} deleted; {self.changes} changes of pods judged"
        found = [f"violation: {text}" for text in self.violations] or ["no violation"]
        return "\n".join([head, *rows, "(seconds)", seen, *found])


async def campaign(
    state: Path,
    faults: Sequence[Fault],
    *,
    seed: int,
    rate: float = 12.0,
    nodes: int = 150,
    slack: float = 1.0,
    say: Callable[[str], None] = print,
) -> Report:
    """Runs the faults against the platform that runs in `state`, on an emulated cluster that is empty.

    `slack`: by how much bindings may stay away longer than a fault's limit, for a machine that does other things too.
    """
    running = json.loads((state / "platform.json").read_text())
    report = Report()
    async with KubeClient.connect(running["kubeconfig"], user_agent="chaos", timeout_s=30) as client:
        await make_nodes(client, nodes)
        observer = await Observer.begin(client)
        load = Load(client, observer, Random(seed), rate, nodes)
        env = {f"HBOX_{name.upper()}": running[name] for name in ("nats_url", "kubeconfig", "database_url", "policy")}
        target = Target(state, client.base, load, env)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(observer.watch(client)),
                tasks.create_task(load.run()),
                tasks.create_task(_gangs(observer)),
            ]
            load.running.set()
            await _warm(observer)
            for number, fault in enumerate(faults, 1):
                line = await _suffer(fault, target, observer, running["nats_url"], limit_s=fault.limit_s * slack)
                report.lines.append(line)
                say(
                    f"{number}/{len(faults)} {fault.name}: no binding for {line.gap:.2f} s, {line.healed_gap:.2f} s after its end"
                )
                for text in line.violations:
                    say(f"  violation: {text}")
            load.running.clear()
            await _drained(observer, monotonic_s())
            for task in background:
                task.cancel()
    report.violations = [text for line in report.lines for text in line.violations]
    report.violations += await _audit(state)
    report.violations += await _outbox_drains(state)
    report.submitted, report.deleted = load.submitted, load.deleted
    report.bound, report.changes = len(observer.bindings), observer.changes
    return report


async def _suffer(fault: Fault, target: Target, observer: Observer, nats_url: str, *, limit_s: float) -> Line:
    known = len(observer.violations)
    observer.during = lambda: fault.name
    rng = Random(fault.name)
    await asyncio.sleep(rng.uniform(0.2, 1.5))
    began = monotonic_s()
    await fault.act(target)
    healed = monotonic_s()
    left = await _drained(observer, healed)
    drained = monotonic_s() - healed
    await asyncio.sleep(max(0.0, LOOK_S - drained))
    left += await _drained(observer, monotonic_s())  # or a gap that goes on would be cut off here
    end = monotonic_s()
    gap, healed_gap = observer.longest_gap(began, end), observer.longest_gap(healed, end)
    observer.during = str
    violations = observer.violations[known:]
    if healed_gap > limit_s:
        violations.append(f"{fault.name}: no binding for {healed_gap:.1f} s after its end, allowed are {limit_s:g} s")
    violations += [f"{fault.name}: {text}" for text in (*left, *await _dead_letters(nats_url))]
    return Line(
        fault.name,
        healed - began,
        gap,
        healed_gap,
        limit_s,
        drained,
        observer.longest_wait(began, end),
        tuple(violations),
    )


async def _warm(observer: Observer) -> None:
    """Returns when the stream of bindings is steady."""
    async with asyncio.timeout(30):
        while len(observer.bindings) < 30:  # noqa: ASYNC110  what is awaited is a count
            await asyncio.sleep(0.1)


async def _gangs(observer: Observer) -> None:
    while True:
        observer.look_at_gangs()
        await asyncio.sleep(1.0)


async def _drained(observer: Observer, moment: float) -> list[str]:
    """Waits for all pods of before `moment`; those that still have no node, in words."""
    until = monotonic_s() + DECIDED_S
    while (waiting := observer.waiting(made_before=moment)) and monotonic_s() < until:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.05)
    return [f"pod {s.pod.name} waits for {monotonic_s() - s.made_at:.0f} s: {s.verdict or 'no verdict'}" for s in waiting]


async def _dead_letters(nats_url: str) -> list[str]:
    """Nothing that the platform itself says may be unreadable or unacceptable to it. Read letters are removed, so that each is told once."""
    client = await nats.connect(nats_url, max_reconnect_attempts=5)
    try:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(Stream.DEAD)).state
        found = []
        for sequence in range(state.first_seq or 1, state.last_seq + 1):
            letter = msgpack.unpackb((await jetstream.get_msg(Stream.DEAD, sequence)).data or b"")
            found.append(f"dead letter of {letter['consumer']}: {letter['reason']}")
        if found:
            await jetstream.purge_stream(Stream.DEAD)
        return found
    finally:
        await client.close()


async def _audit(state: Path) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hbox_cli",
        "--state",
        str(state),
        "audit",
        "--patience",
        AUDIT_PATIENCE_S,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        said, _ = await process.communicate()
    return [] if process.returncode == 0 else [f"hbox audit: {line}" for line in said.decode().splitlines()]


async def _outbox_drains(state: Path) -> list[str]:
    def letters() -> int:
        books = sqlite3.connect(f"file:{state / 'ledger.db'}?mode=ro", uri=True, timeout=5)
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
