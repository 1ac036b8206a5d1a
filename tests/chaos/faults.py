"""The faults, and a seeded order of them.

A fault is on from `begin` to its end, then healed: a killed process is healed at once, since nobody but the platform mends it. `limit_s` is how long
bindings may then be absent.
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

#: Name -> module whose `python -m` it is.
MODULES = {
    "topology-collector": "hbox_topology",
    "job-controller": "hbox_jobs",
    "quota-ledger": "hbox_ledger",
    "scheduler-core": "hbox_scheduler",
    "binder": "hbox_binder",
    "health-monitor": "hbox_health",
}
SERVICES = tuple(MODULES)
#: Processes whose restart everybody has to wait for; brokers of a cluster have a number behind the name.
HUBS = (BROKER, "etcd", "kube-apiserver")

KILL_LIMIT_S = 3.0
HEAL_LIMIT_S = 10.0

#: Brokers that were all gone choose leaders anew, of themselves and of each stream.
CLUSTER_LIMIT_S = 30.0

#: Pods at once around a kill, and the time that takes: what dies then has work in its hands.
BURST, BURST_S = 40, 0.4

#: A clock is off by so much, at most: as one that took the time zone for its own.
JUMP_S = 3600.0

#: Pods with forged claims: as many as would take all cards of a campaign's cluster.
FORGERS = 200

#: Kinds of nasty objects at once; pods that grow; nodes that shrink, of a campaign's forty.
NASTY, RESIZED, SHRUNK = 12, 20, 8

#: Of what users submitted last so much ends at once, but for the very last few: those may not be bound yet.
ENDED, SPARED = 6, 4

#: An emulated cluster cannot be killed, since it lives in its process' memory; it is away for so long instead.
AWAY_S = 2.0

#: The supervisor pauses for so long, at most, before it starts one again that keeps dying.
START_S = 15.0

#: Only the platform meets the faults of the API; users and observer are spared.
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
#: Faults after which nobody sees the pods for a while, and that show only where they last longer than a view may be old; some last for minutes.
BLIND = ("pods-refused", "pods-silent", "all-silent", "one-stale")
BLIND_S, LONG_BLIND_S, LONG_SHARE = 20.0, 300.0, 0.1
EYES = "job-controller"  #: whose view of pods is old after that long a pause
#: Until a view is proven again, plans are accepted and bindings go on.
SIGHT_LIMIT_S = 20.0
JOINING, MEDDLED = 2, 10
#: Those that open watches have to meet too.
BREAKS_WATCHES = ("watches-end", "watches-stall", "410", "away", "pods-refused", "one-stale")


@dataclass(frozen=True, slots=True)
class Target:
    """The platform that suffers."""

    state: Path
    api_url: str
    load: Load
    running: Mapping[str, Any]  #: platform.json
    machine: Machine

    def env(self, service: str) -> dict[str, str]:
        """Settings of one of its services."""
        named = {f"HBOX_{name.upper()}": self.running[name] for name in ("nats_url", "kubeconfig", "database_url", "policy")}
        return named | {"HBOX_NATS_SEED": str(seed_of(self.running, service))}

    async def pid(self, name: str) -> int:
        """Of the running process; one that an earlier fault killed is waited for."""
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
        """Pid of a process that has lived for so long that its keeper starts it again without a pause."""
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
    """`act` returns when the fault is healed; `instant`: nobody but the platform has to heal it, so that time counts from its begin."""

    name: str
    limit_s: float
    act: Callable[[Target], Coroutine[None, None, None]]
    instant: bool = False


def kill(*names: str, burst: int = 0, after_s: float = 0.0) -> Fault:
    """kill -9; with `burst`, so long after the first of so many pods, so that it hits work under way."""

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
    """kill -9 of the ledger at the moment at which a burst reaches its database's log."""

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
    """SIGSTOP, then SIGCONT: who was away comes back and believes that nothing happened."""

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
    """A second instance takes over while the first is stopped; then the first goes on as a zombie, beside it for a moment."""

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
    """A broker loses its disk: all streams and consumers, where it is alone."""

    async def act(target: Target) -> None:
        pid = await target.pid(broker)
        os.kill(pid, signal.SIGSTOP)  # it must not write to the folder while that goes
        try:
            shutil.rmtree(_store(target, broker))
        finally:
            os.kill(pid, signal.SIGKILL)

    return Fault(f"wipe {broker}", HEAL_LIMIT_S, act)


def roll_back(broker: str, hold_s: float) -> Fault:
    """A broker of a cluster gets the disk of some seconds ago, as from a backup."""

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
    """The API server misbehaves towards the platform."""

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
    """Nodes join, others bind pods, and users make new ones under the names of old ones, while nobody of the platform sees it."""

    async def act(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(api(kind, hold_s, seed).act(target))
            await asyncio.sleep(hold_s / 2)
            await target.load.join(JOINING)
            await target.load.meddle(MEDDLED)

    return Fault(f"meddling while api {kind} {hold_s:.0f} s", SIGHT_LIMIT_S, act)


def disk_full(name: str, hold_s: float) -> Fault:
    """Nothing can be written to the disk of the broker or of the ledger's database."""

    async def act(target: Target) -> None:
        disk = target.machine.disks[name]
        await asyncio.to_thread(disk.fill)
        try:
            await asyncio.sleep(hold_s)
        finally:
            disk.free()

    return Fault(f"disk full {name} {hold_s:.0f} s", HEAL_LIMIT_S, act)


def clock_jump(jump_s: float, hold_s: float, *, then_kill: str = "", only: str = "") -> Fault:
    """The wall clock of all processes, or of `only` one, is set, and set back after a while; `then_kill` dies when it is right again.

    The broker's clock stays as it is, so that the two differ.
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
    """Pods that are bound while the clock is ahead end when it is right again, and nobody watches: what they held is missed by lists of pods alone."""

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
    """Tenants write all cards and others' claims on pods whose nodes they name themselves; a ledger that starts meanwhile meets them too."""

    async def act(target: Target) -> None:
        pid = await target.well("quota-ledger")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(target.load.forge(FORGERS, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"forged claims {hold_s:.0f} s", HEAL_LIMIT_S, act)


def forbidden(hold_s: float) -> Fault:
    """A budget forbids evictions for a while, in which whoever tells of it, or is told so, starts anew."""

    async def act(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(target.load.guard(hold_s))
            for name in ("binder", "job-controller"):
                await asyncio.sleep(hold_s / 3)
                os.kill(await target.pid(name), signal.SIGKILL)

    return Fault(f"evictions forbidden {hold_s:.0f} s", HEAL_LIMIT_S, act)


def nasty(name: str, hold_s: float) -> Fault:
    """Tenants make objects that stopped scheduling for all once, and `name` is killed while they are there: nobody else notices, not even meanwhile."""

    async def act(target: Target) -> None:
        pid = await target.well(name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(put_nasty(target.load, NASTY, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"nasty objects, kill {name} {hold_s:.0f} s", HEAL_LIMIT_S, act, instant=True)


def resized(hold_s: float) -> Fault:
    """Pods grow where they run, and nodes are over-booked by that; who starts meanwhile has to count them as they are."""

    async def act(target: Target) -> None:
        pid = await target.well("job-controller")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(resize(target.load, RESIZED, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"pods resized {hold_s:.0f} s", HEAL_LIMIT_S, act)


def shrunk(hold_s: float) -> Fault:
    """Nodes in use shrink, and grow back; nothing new is given there meanwhile, also by who starts then."""

    async def act(target: Target) -> None:
        pid = await target.well("topology-collector")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(shrink(target.load, SHRUNK, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"nodes shrunk {hold_s:.0f} s", HEAL_LIMIT_S, act)


def lies(hold_s: float) -> Fault:
    """Somebody says garbage and lies on all subjects, for as long; a ledger that starts meanwhile reads them too. Work goes on."""

    async def act(target: Target) -> None:
        pid = await target.well("quota-ledger")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lie(target.running, hold_s))
            await asyncio.sleep(hold_s / 2)
            os.kill(pid, signal.SIGKILL)

    return Fault(f"lies {hold_s:.0f} s", HEAL_LIMIT_S, act, instant=True)


def both(first: Fault, second: Fault, after_s: float) -> Fault:
    """The second begins while the first is on."""

    async def act(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.act(target))
            await asyncio.sleep(after_s)
            await second.act(target)

    return Fault(f"{first.name} + {second.name}", HEAL_LIMIT_S, act)


def of_brokers(rng: Random, names: Sequence[str], *, hold_s: tuple[float, float]) -> list[Fault]:
    """Of a cluster of brokers: one of each kind."""
    faults = [kill(rng.choice(names)), kill(*names), wipe(rng.choice(names))]
    faults += [pause(rng.choice(names), rng.uniform(*hold_s)), roll_back(rng.choice(names), rng.uniform(*hold_s))]
    return faults


def every_kind(
    rng: Random, machine: Machine, *, hold_s: tuple[float, float], emulated: bool, brokers: Sequence[str] = (BROKER,)
) -> list[Fault]:
    """One of each kind that `machine` can have, in a random order; those that last do so for between `hold_s`. `brokers`: the names of those that run."""

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
    if emulated:  # on a real API server only the kubelet's own word counts, and kwok says nothing of it
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
    """Every process, so many times, in an order that stays the same: nobody is killed again before it lived for a while."""
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
    """What a cluster of brokers has to bear, in an order that stays the same: each killed so many times, all at once a quarter as often, and one each that
    loses its disk and that gets an old one back. The latter two are not in one row, since the brokers that are whole then have to be more than those that
    are not, and not first or last, so that what they did is lived with."""
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
    """`count` faults: every kind as often as any other, one in five of them together with a kill."""
    rng = Random(seed)
    faults: list[Fault] = []
    while len(faults) < count:
        for fault in every_kind(rng, machine, hold_s=hold_s, emulated=emulated, brokers=brokers):
            if fault.name.startswith(("pause", "rival", "api")) and rng.random() < 0.2:
                faults.append(both(fault, kill(rng.choice((*SERVICES, *brokers))), rng.uniform(1.0, 4.0)))
            else:
                faults.append(fault)
    return faults[:count]
