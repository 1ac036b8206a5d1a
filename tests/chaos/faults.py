"""The faults, and seeded schedules of them.

A fault lasts until `act` returns. A kill ends at once, because only the platform repairs it. `limit_s` is the longest time without a binding after the end.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import Request, urlopen

from hbox_cli.platform.brokers import BROKER
from hbox_cli.platform.supervisor import CLUSTER, WELL_S
from hbox_common.kube import OLD_S

from ..broker import seed_of
from .liars import lie
from .load import Load
from .machine import Machine
from .tenants import put_nasty, resize, shrink

#: Service -> its module, run by `python -m`.
MODULES = {
    "topology-collector": "hbox_topology",
    "job-controller": "hbox_jobs",
    "quota-ledger": "hbox_ledger",
    "scheduler-core": "hbox_scheduler",
    "binder": "hbox_binder",
    "health-monitor": "hbox_health",
}
SERVICES = tuple(MODULES)
#: Processes on whose restart every service depends; brokers of a cluster have a number after the name.
HUBS = (BROKER, "etcd", "kube-apiserver")

KILL_LIMIT_S = 3.0
HEAL_LIMIT_S = 10.0

#: After all brokers were down, they elect leaders of the cluster and of each stream.
CLUSTER_LIMIT_S = 30.0

#: Pods submitted at once around a kill, and the seconds that this takes, so that the process dies with work in progress.
BURST, BURST_S = 40, 0.4

#: Largest error of a clock, in seconds: that of a wrong time zone.
JUMP_S = 3600.0

#: Pods with forged claims, enough for all cards of a campaign's cluster.
FORGERS = 200

#: Numbers of: kinds of nasty objects at once, pods that grow, nodes that shrink (of a campaign's 40).
NASTY, RESIZED, SHRUNK = 12, 20, 8

#: Number of the latest units that users delete at once, and of the very latest that they keep because these may not be bound yet.
ENDED, SPARED = 6, 4

#: Seconds for which the emulated API server is unreachable. It cannot be killed, because the cluster is in its memory.
AWAY_S = 2.0

#: Longest pause of the supervisor before it restarts a process that keeps ending.
START_S = 15.0

#: Prefix of the user agents that API faults affect: the platform's, not the users' or the observer's.
PLATFORM = "hbox-"

API: Mapping[str, list[dict[str, Any]]] = {
    "slow": [{"latency_s": 2.0}],
    "429": [{"probability": 0.5, "status": 429, "retry_after_s": 1}],
    "409": [{"verb": verb, "probability": 0.5, "status": 409} for verb in ("create", "update", "patch", "delete")],
    "5xx": [{"probability": 0.3, "status": 500}, {"probability": 0.2, "status": 503}],
    "applied-504": [{"verb": "create", "resource": "pods/binding", "probability": 0.5, "applied_status": 504}],
    "applied-reset": [{"verb": "create", "resource": "pods/binding", "probability": 0.5, "applied_reset": True}],
    "watches-end": [{"verb": "watch", "watch_end_s": 1.0}],
    "watches-stall": [{"verb": "watch", "watch_stall_s": 5.0}],
    "410": [
        {"verb": "watch", "probability": 0.5, "watch_gone": "http"},
        {"verb": "watch", "probability": 0.3, "watch_gone": "stream"},
    ],
    "away": [{"reset": True}],
    "pods-refused": [{"verb": verb, "resource": "pods", "status": 503} for verb in ("list", "watch")],
    "pods-silent": [{"verb": "watch", "resource": "pods", "watch_silent": True}],
    "all-silent": [{"verb": "watch", "watch_silent": True}],
    "one-stale": [{"verb": verb, "probability": 0.5, "stale": True} for verb in ("list", "watch")],
}
#: Faults that hide pods from every service. They have an effect only if they last longer than the allowed age of a view; some last for minutes.
BLIND = ("pods-refused", "pods-silent", "all-silent", "one-stale")
BLIND_S, LONG_BLIND_S, LONG_SHARE = 20.0, 300.0, 0.1
EYES = "job-controller"  #: the service whose view of pods is stale after such a pause
#: Longest time until views are verified, plans are accepted and bindings resume.
SIGHT_LIMIT_S = 20.0
JOINING, MEDDLED = 2, 10
#: Faults that must also affect open watches.
BREAKS_WATCHES = ("watches-end", "watches-stall", "410", "away", "pods-refused", "one-stale")


@dataclass(frozen=True, slots=True)
class Target:
    """The platform under test."""

    state: Path
    api_url: str
    load: Load
    running: Mapping[str, Any]  #: platform.json
    machine: Machine

    def env(self, service: str) -> dict[str, str]:
        """Environment of a service."""
        named = {f"HBOX_{name.upper()}": self.running[name] for name in ("nats_url", "kubeconfig", "database_url", "policy")}
        return named | {"HBOX_NATS_SEED": str(seed_of(self.running, service))}

    async def pid(self, name: str) -> int:
        """Process id of a running process; waits for the restart if an earlier fault killed it."""
        async with asyncio.timeout(START_S):
            while True:
                pid = int(json.loads((self.state / "pids.json").read_text())[name])
                try:
                    os.kill(pid, 0)
                except ProcessLookupError:
                    await asyncio.sleep(0.05)
                else:
                    return pid

    async def well(self, name: str) -> int:
        """Process id, once the process has run long enough for the supervisor to restart it without a pause."""
        while (age_s := _age_s(pid := await self.pid(name))) < WELL_S:  # noqa: ASYNC110  it may be killed meanwhile
            await asyncio.sleep(WELL_S - age_s)
        return pid

    async def control(self, method: str, path: str, body: bytes = b"") -> None:
        def send() -> None:
            with urlopen(Request(f"{self.api_url}/_sandbox/{path}", data=body, method=method), timeout=10):
                pass

        await asyncio.to_thread(send)


def _age_s(pid: int) -> float:
    started = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started


@dataclass(frozen=True, slots=True)
class Fault:
    """`act` returns at the end of the fault. `instant`: only the platform repairs it, so its time counts from the begin."""

    name: str
    limit_s: float
    act: Callable[[Target], Coroutine[None, None, None]]
    instant: bool = False


def kill(*names: str, burst: int = 0, after_s: float = 0.0) -> Fault:
    """kill -9. With `burst`: `after_s` seconds after the first of `burst` pods, so that the process dies with work in progress."""

    async def act(target: Target) -> None:
        pids = [await target.well(name) for name in names]
        async with asyncio.TaskGroup() as tasks:
            if burst:
                tasks.create_task(target.load.burst(burst))
                await asyncio.sleep(after_s)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

    hubs = [name for name in names if name.startswith(HUBS)]
    several = len([name for name in hubs if name.startswith(f"{BROKER}-")]) > 1
    limit_s = CLUSTER_LIMIT_S if several else HEAL_LIMIT_S if hubs else KILL_LIMIT_S
    return Fault("kill " + " ".join(names), limit_s, act, instant=True)


def kill_in_commit() -> Fault:
    """kill -9 of the ledger when a burst reaches its database's log."""

    async def act(target: Target) -> None:
        log = target.state / "ledger.db-wal"
        pid = await target.well("quota-ledger")

        def written() -> tuple[int, int]:
            try:
                stat = log.stat()
            except FileNotFoundError:
                return 0, 0
            return stat.st_size, stat.st_mtime_ns

        def strike() -> None:
            before = written()
            for _ in range(20_000):
                if written() != before:
                    os.kill(pid, signal.SIGKILL)
                    return

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(target.load.burst(100))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(strike)

    return Fault("kill quota-ledger in commit", KILL_LIMIT_S, act, instant=True)


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):  # another fault killed it while it was stopped
        os.kill(pid, signal.SIGCONT)


def pause(name: str, hold_s: float) -> Fault:
    """SIGSTOP, then SIGCONT: the process continues with stale state."""

    async def act(target: Target) -> None:
        pid = await target.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(hold_s)
        finally:
            _go_on(pid)

    limit_s = HEAL_LIMIT_S if name.startswith(HUBS) else KILL_LIMIT_S
    if name == EYES and hold_s > OLD_S - KILL_LIMIT_S:
        limit_s = SIGHT_LIMIT_S
    return Fault(f"pause {name} {hold_s:.0f} s", limit_s, act)


def rival(name: str, hold_s: float) -> Fault:
    """A second instance takes over while the first is stopped; then the first continues, and both run for a moment."""

    async def act(target: Target) -> None:
        pid = await target.pid(name)
        with (target.state / "logs" / f"rival-{name}.log").open("ab") as log:
            os.kill(pid, signal.SIGSTOP)
            try:
                other = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", MODULES[name], env=os.environ | target.env(name), stdout=log, stderr=log
                )
                await asyncio.sleep(hold_s)
            finally:
                _go_on(pid)
        await asyncio.sleep(2.0)
        if other.returncode is None:
            other.terminate()
        async with asyncio.timeout(START_S):
            await other.wait()

    return Fault(f"rival {name} {hold_s:.0f} s", HEAL_LIMIT_S, act)


def _store(target: Target, broker: str) -> Path:
    return target.state / f"nats{broker.removeprefix(BROKER)}" / "store"


def wipe(broker: str = BROKER) -> Fault:
    """A broker loses its disk. A single broker loses all streams and consumers."""

    async def act(target: Target) -> None:
        pid = await target.pid(broker)
        os.kill(pid, signal.SIGSTOP)  # it must not write to the folder during the deletion
        try:
            shutil.rmtree(_store(target, broker))
        finally:
            os.kill(pid, signal.SIGKILL)

    return Fault(f"wipe {broker}", HEAL_LIMIT_S, act)


def roll_back(broker: str, hold_s: float) -> Fault:
    """A broker of a cluster gets its disk of some seconds ago, as from a backup."""

    async def act(target: Target) -> None:
        store, old = _store(target, broker), target.state / "old-store"
        pid = await target.pid(broker)
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.to_thread(shutil.copytree, store, old)
        finally:
            _go_on(pid)
        await asyncio.sleep(hold_s)
        pid = await target.pid(broker)
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.to_thread(shutil.rmtree, store)
            old.rename(store)
        finally:
            os.kill(pid, signal.SIGKILL)

    return Fault(f"roll back {broker} {hold_s:.0f} s", HEAL_LIMIT_S, act)


def api(kind: str, hold_s: float, seed: int) -> Fault:
    """The API server answers the platform wrongly, slowly or not at all."""

    async def act(target: Target) -> None:
        rules = [{"client": PLATFORM, **rule} for rule in API[kind]]
        await target.control("PUT", "faults", json.dumps({"seed": seed, "rules": rules}).encode())
        try:
            if kind == "410":
                await target.control("POST", "compact")
            if kind in BREAKS_WATCHES:
                await target.control("POST", f"sever?client={PLATFORM}")
            await asyncio.sleep(hold_s)
        finally:
            await target.control("PUT", "faults", b"{}")

    return Fault(f"api {kind} {hold_s:.0f} s", SIGHT_LIMIT_S if kind in BLIND else HEAL_LIMIT_S, act)


def while_blind(kind: str, hold_s: float, seed: int) -> Fault:
    """While the platform does not see pods: nodes join, other programs bind pods, and users recreate pods under the same names."""

    async def act(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(api(kind, hold_s, seed).act(target))
            await asyncio.sleep(hold_s / 2)
            await target.load.join(JOINING)
            await target.load.meddle(MEDDLED)

    return Fault(f"meddling while api {kind} {hold_s:.0f} s", SIGHT_LIMIT_S, act)


def disk_full(name: str, hold_s: float) -> Fault:
    """The disk of the broker or of the ledger's database is full."""

    async def act(target: Target) -> None:
        disk = target.machine.disks[name]
        await asyncio.to_thread(disk.fill)
        try:
            await asyncio.sleep(hold_s)
        finally:
            disk.free()

    return Fault(f"disk full {name} {hold_s:.0f} s", HEAL_LIMIT_S, act)


def clock_jump(jump_s: float, hold_s: float, *, then_kill: str = "", only: str = "") -> Fault:
    """Shift the wall clock of all processes, or of `only`, for a while; then correct it and kill `then_kill`.

    The broker's clock is not shifted, so that the clocks differ.
    """

    async def act(target: Target) -> None:
        assert target.machine.clock is not None
        target.machine.clock.set(jump_s, pid=await target.pid(only) if only else 0)
        try:
            await asyncio.sleep(hold_s)
        finally:
            target.machine.clock.set(0)
        if then_kill:
            await kill(then_kill).act(target)

    name = f"clock {jump_s:+.0f} s {only or 'of all'} {hold_s:.0f} s"
    return Fault(f"{name}, then kill {then_kill}" if then_kill else name, HEAL_LIMIT_S, act)


def unwatched_ends(hold_s: float) -> Fault:
    """Pods bound while the clock is ahead end after its correction, while no service watches: only lists of pods reveal that their claims are void."""

    async def act(target: Target) -> None:
        assert target.machine.clock is not None
        pid = await target.well("job-controller")
        target.machine.clock.set(JUMP_S)
        try:
            await asyncio.sleep(hold_s)
        finally:
            target.machine.clock.set(0)
        os.kill(pid, signal.SIGKILL)
        await target.load.end_youngest(ENDED, spare=SPARED)

    return Fault(f"clock {JUMP_S:+.0f} s of all {hold_s:.0f} s, then ends unwatched", HEAL_LIMIT_S, act)


def forgers(hold_s: float) -> Fault:
    """Tenants create pods with a node, and write all cards and foreign claims on them; the ledger restarts meanwhile."""

    async def act(target: Target) -> None:
        pid = await target.well("quota-ledger")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(target.load.forge(FORGERS, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"forged claims {hold_s:.0f} s", HEAL_LIMIT_S, act)


def forbidden(hold_s: float) -> Fault:
    """A disruption budget forbids evictions for a while; the services that report and process the refusals restart meanwhile."""

    async def act(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(target.load.guard(hold_s))
            for name in ("binder", "job-controller"):
                await asyncio.sleep(hold_s / 3)
                os.kill(await target.pid(name), signal.SIGKILL)

    return Fault(f"evictions forbidden {hold_s:.0f} s", HEAL_LIMIT_S, act)


def nasty(name: str, hold_s: float) -> Fault:
    """Tenants create objects that once stopped scheduling for all, and `name` is killed meanwhile. Bindings of others must not pause."""

    async def act(target: Target) -> None:
        pid = await target.well(name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(put_nasty(target.load, NASTY, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"nasty objects, kill {name} {hold_s:.0f} s", HEAL_LIMIT_S, act, instant=True)


def resized(hold_s: float) -> Fault:
    """Running pods grow in place, which over-books nodes; job-controller restarts meanwhile and must count them at their new size."""

    async def act(target: Target) -> None:
        pid = await target.well("job-controller")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(resize(target.load, RESIZED, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"pods resized {hold_s:.0f} s", HEAL_LIMIT_S, act)


def shrunk(hold_s: float) -> Fault:
    """Nodes in use shrink, and grow back. They must get no new pods meanwhile, also after a restart of topology-collector."""

    async def act(target: Target) -> None:
        pid = await target.well("topology-collector")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(shrink(target.load, SHRUNK, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"nodes shrunk {hold_s:.0f} s", HEAL_LIMIT_S, act)


def lies(hold_s: float) -> Fault:
    """A client publishes garbage and false messages on all subjects; the ledger restarts meanwhile and reads them. Bindings must continue."""

    async def act(target: Target) -> None:
        pid = await target.well("quota-ledger")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lie(target.running, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"lies {hold_s:.0f} s", HEAL_LIMIT_S, act, instant=True)


def both(first: Fault, second: Fault, after_s: float) -> Fault:
    """The second fault begins during the first."""

    async def act(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.act(target))
            await asyncio.sleep(after_s)
            await second.act(target)

    return Fault(f"{first.name} + {second.name}", HEAL_LIMIT_S, act)


def of_brokers(rng: Random, names: Sequence[str], *, hold_s: tuple[float, float]) -> list[Fault]:
    """One fault of each kind on a cluster of brokers."""
    faults = [kill(rng.choice(names)), kill(*names), wipe(rng.choice(names))]
    faults += [pause(rng.choice(names), rng.uniform(*hold_s)), roll_back(rng.choice(names), rng.uniform(*hold_s))]
    return faults


def every_kind(
    rng: Random, machine: Machine, *, hold_s: tuple[float, float], emulated: bool, brokers: Sequence[str] = (BROKER,)
) -> list[Fault]:
    """One fault of each kind that `machine` supports, in random order. `hold_s`: shortest and longest duration; `brokers`: names of the running brokers."""

    def hold() -> float:
        return rng.uniform(*hold_s)

    faults = [kill(name) for name in SERVICES]
    faults += [kill(*SERVICES), kill("quota-ledger", *brokers), kill_in_commit()]
    faults += [pause(name, hold()) for name in SERVICES]
    faults += [kill(BROKER), wipe(), pause(BROKER, hold())] if len(brokers) == 1 else of_brokers(rng, brokers, hold_s=hold_s)
    faults += [rival(name, hold()) for name in SERVICES]
    if emulated:
        faults += [api(kind, hold(), rng.getrandbits(31)) for kind in API if kind not in BLIND]
        longest_s = LONG_BLIND_S if rng.random() < LONG_SHARE else 2 * BLIND_S
        faults += [api(kind, rng.uniform(BLIND_S, 2 * BLIND_S), rng.getrandbits(31)) for kind in BLIND]
        faults.append(while_blind(rng.choice(BLIND), longest_s, rng.getrandbits(31)))
        faults.append(api("away", 2 * hold_s[1], 0))
    faults += [forgers(hold()), forbidden(hold()), nasty(rng.choice(SERVICES), hold()), shrunk(hold()), lies(hold())]
    if emulated:  # a real API server takes the allocated size from the kubelet alone, and kwok does not report it
        faults.append(resized(hold()))
    faults += [disk_full(name, hold()) for name in machine.disks]
    if machine.clock is not None:
        jump_s = rng.choice((-JUMP_S, JUMP_S))
        faults += [
            clock_jump(JUMP_S, hold()),
            clock_jump(-JUMP_S, hold()),
            clock_jump(JUMP_S, hold(), then_kill=rng.choice(SERVICES)),
            unwatched_ends(hold()),
            clock_jump(jump_s, hold(), only=rng.choice(SERVICES)),
        ]
    rng.shuffle(faults)
    return faults


def kills(rounds: int, seed: int, names: Iterable[str]) -> list[Fault]:
    """Kill every process `rounds` times, in the same order each round, so that each process runs for a while between two kills."""
    rng = Random(seed)
    emulated = CLUSTER in names
    names = [name for name in names if name != CLUSTER]
    rng.shuffle(names)
    faults: list[Fault] = []
    for _ in range(rounds):
        faults += [kill(name, burst=BURST, after_s=rng.uniform(0.0, BURST_S)) for name in names]
        if emulated:
            faults.append(api("away", AWAY_S, seed))
    return faults


def of_a_cluster(rounds: int, seed: int, brokers: Sequence[str], *, hold_s: tuple[float, float]) -> list[Fault]:
    """Faults of a cluster of brokers, in a seeded order: each broker killed `rounds` times, all at once a quarter as often, one lost disk and one old disk.

    The last two are not adjacent, because intact brokers must be the majority, and neither first nor last, so that faults follow them.
    """
    rng = Random(seed)
    faults = [kill(name, burst=BURST, after_s=rng.uniform(0.0, BURST_S)) for name in brokers for _ in range(rounds)]
    faults += [kill(*brokers, burst=BURST, after_s=rng.uniform(0.0, BURST_S)) for _ in range(max(1, rounds // 4))]
    rng.shuffle(faults)
    third = len(faults) // 3
    faults.insert(2 * third, roll_back(rng.choice(brokers), rng.uniform(*hold_s)))
    faults.insert(third, wipe(rng.choice(brokers)))
    return faults


def schedule(
    count: int,
    seed: int,
    machine: Machine,
    *,
    hold_s: tuple[float, float] = (5.0, 30.0),
    emulated: bool = True,
    brokers: Sequence[str] = (BROKER,),
) -> list[Fault]:
    """`count` faults, equally many of each kind; one in five of those that last coincides with a kill."""
    rng = Random(seed)
    faults: list[Fault] = []
    while len(faults) < count:
        for fault in every_kind(rng, machine, hold_s=hold_s, emulated=emulated, brokers=brokers):
            if fault.name.startswith(("pause", "rival", "api")) and rng.random() < 0.2:
                faults.append(both(fault, kill(rng.choice((*SERVICES, *brokers))), rng.uniform(1.0, 4.0)))
            else:
                faults.append(fault)
    return faults[:count]
