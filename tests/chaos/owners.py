"""Workloads of other controllers under faults: `python -m tests.chaos.owners --seconds 300 --seed 1`. Exit status 1: a guarantee was violated.

PyTorchJobs, JobSets, RayClusters and LeaderWorkerSets are created, scaled, restarted, deleted and created again under their names. Their owners and pods arrive
in random order, and together they ask for up to a half more cards than there are. Meanwhile services are killed by SIGKILL, and for the platform a kind of
owners is silent, forbidden, gone (410) or broken (500), or its definition is removed and installed again. An observer, which shares no code with the services,
reads the pods:

- while a part of a gang has nodes, the cards for the rest are idle, and this does not last for longer than PARTIAL_S; except gangs that came while the owners
  of their kind could not be read;
- no pod waits while the idle cards would be enough for every gang that waits, for longer than SETTLED_S;
- pods whose owner cannot be read get a reason within UNREADABLE_S, and start one by one;
- no owner is read more often than its pods, the restarts of job-controller and the faults explain.

After the last fault workloads are deleted until the others fit together; all of them run whole within SETTLED_S, and the audit is clean.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.request import Request, urlopen

from tests.e2e.platform_world import Up
from tests.owners import (
    RESOURCES,
    Json,
    Tree,
    install,
    job_set,
    leader_worker_set,
    patch,
    path,
    pod_spec,
    ray_cluster,
    training_job,
    uninstall,
    with_owners,
)
from tests.waiting import until

from hbox_common.clock import monotonic_s
from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound
from hbox_common.kube import NAMESPACES, NODES, PODS, KubeClient
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

SPACE = "team"
NODES_COUNT, CARDS_OF_NODE = 6, 8
CARDS = NODES_COUNT * CARDS_OF_NODE
#: Cards that workloads ask for, of those that there are.
DEMAND, SETTLED_DEMAND = 1.5, 0.75
KINDS = ("PyTorchJob", "JobSet", "RayCluster", "LeaderWorkerSet")
NAMES_OF_KIND = 6
FAULTS = ("kill", "silent", "forbidden", "gone", "broken", "removed")
KILLED = ("job-controller", "job-controller", "scheduler-core", "binder", "quota-ledger")
CLIENT = "hbox-job-controller"

#: Seconds: between two acts of users, and of a fault and of the pause after it.
ACT_S, HOLD_S, PAUSE_S = (0.1, 0.6), (2.0, 12.0), (2.0, 6.0)
LOOK_S = 0.25
PARTIAL_S = 15.0
SETTLED_S = 60.0
UNREADABLE_S = 2.0
#: After the end of a fault a kind is readable again: 5 s between two attempts, and the list.
READABLE_S = 15.0
#: Seconds until job-controller knows that a kind cannot be read: its watch ends, and it checks once a second.
NOTICED_S = 5.0
RESTARTED_S = 120.0
#: Reads of one owner that retries in one fault explain.
READS_OF_FAULT = 12
IMPOSSIBLE = 9  #: cards of one pod


@dataclass(slots=True)
class Pod:
    uid: str
    name: str
    node: str = ""
    leaving: bool = False
    reason: str = ""  #: of its condition PodScheduled=False


@dataclass(slots=True)
class Workload:
    """One incarnation of a name. `sizes`: of its form, as `tree_of` takes them."""

    kind: str
    name: str
    sizes: tuple[int, ...]
    made_at: float
    uids: dict[str, str] = field(default_factory=dict)  #: assigned uids by local ones
    pods: dict[str, str] = field(default_factory=dict)  #: uid by name
    deleted: bool = False
    disturbed: bool = False  #: scaled or restarted
    complete: bool = False  #: all of its objects exist
    exempt: bool = False  #: its owner could not be read at some time before it started
    started: set[str] = field(default_factory=set)  #: gangs that were whole once
    since: dict[str, float] = field(default_factory=dict)  #: by gang: since when a part has nodes
    rest: dict[str, int] = field(default_factory=dict)  #: by gang of which a part has nodes: pods without one

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def cards(self) -> int:
        return len(tree_of(self.kind, self.name, self.sizes).pods)

    def gang_of(self, pod: str) -> str:
        """A replica of a LeaderWorkerSet, else the workload."""
        return pod.removeprefix(f"{self.name}-").partition("-")[0] if self.kind == "LeaderWorkerSet" else ""


def tree_of(kind: str, name: str, sizes: tuple[int, ...]) -> Tree:
    match kind:
        case "PyTorchJob":
            return training_job(name, {"Master": 1, "Worker": sizes[0]})
        case "JobSet":
            return job_set(name, {"a": (1, sizes[0]), "b": (sizes[1], 1)})
        case "RayCluster":
            return ray_cluster(name, {"small": (sizes[0], sizes[0])})
        case _:
            return leader_worker_set(name, sizes[0], sizes[1])


def random_sizes(kind: str, of: random.Random) -> tuple[int, ...]:
    if kind in ("PyTorchJob", "RayCluster"):
        return (of.randint(1, 8),)
    return (of.randint(1, 3), of.randint(2, 4)) if kind == "LeaderWorkerSet" else (of.randint(1, 5), of.randint(1, 3))


class World:
    """The load, the faults and what is observed. One seed decides all choices; the order of events also depends on the machine."""

    def __init__(
        self, platform: Up, client: KubeClient, seed: int, slack: float, only: str, report: Callable[[str], None]
    ) -> None:
        self.platform, self.client, self.slack, self.only, self.report = platform, client, slack, only, report
        self.load_random, self.fault_random = random.Random(seed), random.Random(seed + 1)
        self.api_url = client.base
        self.workloads: dict[str, Workload] = {}
        self.seen: dict[str, Pod] = {}
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.unreadable: dict[str, float] = {}  #: kinds that cannot be read, and since when
        self.readable_at: dict[str, float] = {}  #: when this ended last
        self.fault = ""
        self.faults: Counter[str] = Counter()
        self.kills_at: list[float] = []  #: of job-controller
        self.reads: Counter[str] = Counter()
        self.incarnations: Counter[str] = Counter()
        self.pods_made: Counter[str] = Counter()
        self.longest_partial = self.longest_reason = 0.0
        self._roomy_since = monotonic_s()
        self._without_room: dict[
            tuple[str, float, str], int
        ] = {}  #: gangs with a part on nodes, at the last look without room for the rest
        self._stop = asyncio.Event()

    def violated(self, text: str) -> None:
        self.violations.append(f"{text} [{self.fault or 'no fault'}]")
        self.report(f"  violation: {self.violations[-1]}")

    # --- users

    async def users(self, group: asyncio.TaskGroup) -> None:
        while not self._stop.is_set():
            await self._act(group)
            await asyncio.sleep(self.load_random.uniform(*ACT_S))

    async def _act(self, group: asyncio.TaskGroup) -> None:
        of = self.load_random
        there = [each for each in self.workloads.values() if not each.deleted]
        demand = sum(each.cards for each in there)
        what = of.choices(("create", "delete", "again", "scale", "restart"), (8, 2, 1, 1, 1))[0]
        if demand > DEMAND * CARDS and what in ("create", "again"):
            what = "delete"
        elif demand < CARDS:
            what = "create"
        if what == "create" or not there:
            kind = of.choice(KINDS)
            free = [n for n in range(NAMES_OF_KIND) if f"{kind}/{kind.lower()[:3]}{n}" not in self.workloads]
            if free:
                name = f"{kind.lower()[:3]}{of.choice(free)}"
                group.create_task(self._create(kind, name, random_sizes(kind, of), of.getrandbits(32)))
            return
        one = of.choice(there)
        seed = of.getrandbits(32)
        if not one.complete:
            return
        self.counts[what] += 1
        if what == "delete":
            group.create_task(self._delete(one))
        elif what == "again":
            await self._delete(one)
            group.create_task(self._create(one.kind, one.name, random_sizes(one.kind, of), seed))
        elif what == "scale" and one.kind != "JobSet":
            group.create_task(self._scale(one, random_sizes(one.kind, of), seed))
        elif what == "restart":
            group.create_task(self._restart(one, seed))

    async def _create(self, kind: str, name: str, sizes: tuple[int, ...], seed: int) -> None:
        one = Workload(kind, name, sizes, monotonic_s())
        self.workloads[one.id] = one
        self.counts["workloads"] += 1
        self.incarnations[one.id] += 1
        await self._make(one, tree_of(kind, name, sizes).objects, seed)

    async def _make(self, one: Workload, objects: Sequence[Json], seed: int) -> None:
        """Create the objects in a random order in which each comes after its owner."""
        one.complete, of, left = False, random.Random(seed), list(objects)
        slow_s = of.choice((0.0, 0.0, 0.05, 0.3))
        while left and not one.deleted:
            ready = [
                each
                for each in left
                if all(reference["uid"] in one.uids for reference in each["metadata"].get("ownerReferences", ()))
            ]
            body = of.choice(ready)
            left.remove(body)
            if not await self._post(one, body):
                await self._delete(one)
                return
            if slow_s:
                await asyncio.sleep(of.uniform(0, slow_s))
        one.complete = True

    async def _post(self, one: Workload, body: Json) -> bool:
        """False: the kind is not served, or the name stays in use."""
        local = body["metadata"]["uid"]
        sent = with_owners(body, one.uids)
        del sent["metadata"]["uid"]
        if body["kind"] == "Pod":  # it counts from the moment at which it may be seen
            self.pods_made[one.id] += 1
        for _ in range(300):
            if one.deleted:
                return True
            try:
                made = await self.client.json("POST", path(body["kind"], SPACE), body=sent)
            except Conflict:  # its predecessor is terminating
                await asyncio.sleep(0.1)
                continue
            except (NotFound, InvalidRequest):
                return False
            one.uids[local] = made["metadata"]["uid"]
            if body["kind"] == "Pod":
                one.pods[body["metadata"]["name"]] = made["metadata"]["uid"]
            return True
        return False

    async def _delete(self, one: Workload) -> None:
        one.deleted = True
        if self.workloads.get(one.id) is one:
            del self.workloads[one.id]
        await self._remove(one.kind, one.name, one.uids.get(f"{one.kind}/{one.name}"))
        for name, uid in one.pods.items():
            await self._remove("Pod", name, uid)

    async def _remove(self, kind: str, name: str, uid: str | None) -> None:
        if uid is None:
            return
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self.client.json("DELETE", path(kind, SPACE, name), body=body, expect=(200, 202, 404))
        except (Conflict, NotFound, InvalidRequest):
            return

    async def _scale(self, one: Workload, sizes: tuple[int, ...], seed: int) -> None:
        if one.kind == "LeaderWorkerSet":
            sizes = (sizes[0], one.sizes[1])
        before, after = (tree_of(one.kind, one.name, each) for each in (one.sizes, sizes))
        one.complete, one.disturbed = False, True
        try:
            await patch(self.client, one.kind, SPACE, one.name, {"spec": after.top["spec"]})
        except HBoxError:
            return await self._delete(one)
        one.sizes = sizes
        one.since.clear()
        keep = {(each["kind"], each["metadata"]["name"]) for each in after.objects}
        for each in before.objects:
            if (key := (each["kind"], each["metadata"]["name"])) not in keep:
                await self._remove(*key, one.uids.pop(each["metadata"]["uid"], None))
                one.pods.pop(key[1], None)
        return await self._make(one, [each for each in after.objects if each["metadata"]["uid"] not in one.uids], seed)

    async def _restart(self, one: Workload, seed: int) -> None:
        """A pod fails and is replaced under its name. Of a LeaderWorkerSet a worker, since a replica follows its leader."""
        pods = [
            each
            for each in tree_of(one.kind, one.name, one.sizes).pods
            if one.kind != "LeaderWorkerSet" or each["metadata"]["name"].count("-") > 1
        ]
        body = random.Random(seed).choice(pods)
        name = body["metadata"]["name"]
        one.complete, one.disturbed = False, True
        await self._remove("Pod", name, one.pods.pop(name, None))
        await self._make(one, [body], seed)

    # --- the observer

    async def observe(self) -> NoReturn:
        while True:
            found = (await self.client.json("GET", PODS.path(SPACE)))["items"]
            self._look([_pod(each) for each in found if each.get("status", {}).get("phase") not in ("Succeeded", "Failed")])
            await asyncio.sleep(LOOK_S)

    def _look(self, pods: Sequence[Pod]) -> None:
        now = monotonic_s()
        self.seen = {each.uid: each for each in pods}
        for one in list(self.workloads.values()):
            self._look_at(one, now)
        idle = CARDS - sum(bool(each.node) for each in pods)
        self._judge_room(idle)
        waiting = self.waiting()
        if not waiting or idle < max(waiting.values()) or self.fault:
            self._roomy_since = now
        elif now - self._roomy_since > SETTLED_S * self.slack:
            self.violated(f"{idle} cards are idle for {now - self._roomy_since:.0f} s, and {dict(waiting)} wait")
            self._roomy_since = now

    def _judge_room(self, idle: int) -> None:
        """The cards for the rest of a gang are idle until it has them. A gang that lost pods before it was whole may have lost their cards, too."""
        parts = {
            (one.id, one.made_at, gang): rest
            for one in self.workloads.values()
            if not one.disturbed
            for gang, rest in one.rest.items()
        }
        without_room = parts if sum(parts.values()) > idle else {}
        for key in without_room.keys() & self._without_room.keys():
            self.violated(f"{key[0]} {key[2]}: {without_room[key]} pods wait, the others have nodes, and {idle} cards are idle")
            self.workloads[key[0]].started.add(key[2])
        self._without_room = without_room

    def waiting(self) -> Counter[str]:
        """Pods without a node, by workload; those that do not exist yet do not wait."""
        return Counter(
            one.id
            for one in self.workloads.values()
            for uid in one.pods.values()
            if (pod := self.seen.get(uid)) is not None and not pod.node and not pod.leaving
        )

    def _look_at(self, one: Workload, now: float) -> None:
        hidden = one.kind in self.unreadable or now < self.readable_at.get(one.kind, 0.0) + READABLE_S
        gangs: dict[str, list[Pod]] = defaultdict(list)
        for each in tree_of(one.kind, one.name, one.sizes).pods:
            name = each["metadata"]["name"]
            pod = self.seen.get(one.pods.get(name, ""))
            gangs[one.gang_of(name)].append(pod or Pod("", name))
        one.rest.clear()
        for gang, members in gangs.items():
            placed = sum(bool(pod.node) for pod in members)
            if placed == len(members):
                one.started.add(gang)
            if hidden and gang not in one.started:
                one.exempt = True
            if gang in one.started or one.exempt or not placed:
                one.since.pop(gang, None)
                continue
            one.rest[gang] = len(members) - placed
            lasts = now - one.since.setdefault(gang, now)
            self.longest_partial = max(self.longest_partial, lasts)
            if lasts > PARTIAL_S * self.slack:
                self.violated(f"{one.id} {gang}: {placed} of {len(members)} pods have nodes for {lasts:.0f} s")
                one.started.add(gang)

    # --- faults

    async def control(self, method: str, where: str, body: bytes = b"") -> bytes:
        def send() -> bytes:
            with urlopen(Request(f"{self.api_url}/_sandbox/{where}", data=body, method=method), timeout=10) as answer:
                return bytes(answer.read())

        return await asyncio.to_thread(send)

    async def plan(self, *rules: Json) -> None:
        """Put these faults of the API server in force, after the reads of owners so far are counted."""
        counted = json.loads(await self.control("GET", "faults")).get("names", {})
        for key, count in counted.items():
            self.reads[key] += count
        count_reads = [{"client": CLIENT, "verb": "get", "resource": RESOURCES[kind].plural, "by_name": True} for kind in KINDS]
        body = {"seed": self.fault_random.getrandbits(31), "rules": [*count_reads, *({"client": CLIENT} | r for r in rules)]}
        await self.control("PUT", "faults", json.dumps(body).encode())

    async def kill(self, service: str) -> None:
        pid = self.platform.pids()[service]
        if service == "job-controller":
            self.kills_at.append(monotonic_s())
            for kind in self.unreadable:  # it forgets the owners of the kind, so gangs that wait become single pods
                for one in self.workloads.values():
                    one.exempt |= one.kind == kind
        os.kill(pid, signal.SIGKILL)
        await until(lambda: self.platform.pids().get(service, pid) != pid, f"another {service}", timeout_s=RESTARTED_S)

    @asynccontextmanager
    async def unread(self, kind: str) -> AsyncIterator[None]:
        self.unreadable[kind] = monotonic_s()
        try:
            yield
        finally:
            del self.unreadable[kind]
            self.readable_at[kind] = monotonic_s()

    async def suffer(self) -> None:
        """One fault, one in four with a kill meanwhile."""
        of = self.fault_random
        kind, hold_s = of.choice(KINDS), of.uniform(*HOLD_S)
        what = of.choice([each for each in FAULTS if self.only in each])
        killed = of.choice(KILLED) if what == "kill" or of.random() < 0.25 else ""
        self.fault = f"{what} {kind if what != 'kill' else ''} {killed} {hold_s:.0f} s"
        self.faults[what] += 1
        self.report(f"{self.fault}")
        async with asyncio.TaskGroup() as group:
            if killed:
                self.faults[f"kill {killed}"] += 1
                group.create_task(self._kill_after(killed, 0.0 if what == "kill" else of.uniform(0.0, hold_s)))
            if what != "kill":
                await getattr(self, f"_{what}")(kind, hold_s)
        self.fault = ""

    async def _kill_after(self, service: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.kill(service)

    async def _silent(self, kind: str, hold_s: float) -> None:
        await self._api([{"verb": "watch", "watch_silent": True}], kind, hold_s, sever=False)

    async def _broken(self, kind: str, hold_s: float) -> None:
        await self._api([{"verb": verb, "probability": 0.7, "status": 500} for verb in ("get", "list", "watch")], kind, hold_s)

    async def _gone(self, kind: str, hold_s: float) -> None:
        rules = [{"verb": "watch", "probability": 0.5, "watch_gone": how} for how in ("http", "stream")]
        await self.control("POST", "compact")
        await self._api(rules, kind, hold_s)

    async def _forbidden(self, kind: str, hold_s: float) -> None:
        async with self.unread(kind):
            # The text of the authorizer: another 403 does not state that the permission is missing.
            text = f'{RESOURCES[kind].plural}.{RESOURCES[kind].group} is forbidden: User "hbox" cannot read it'
            rules = [{"verb": verb, "status": 403, "message": text} for verb in ("get", "list", "watch")]
            await self._api(rules, kind, max(hold_s, NOTICED_S), then=partial(self._probe, kind))

    async def _api(
        self, rules: Sequence[Json], kind: str, hold_s: float, *, sever: bool = True, then: Callable[[], Any] | None = None
    ) -> None:
        await self.plan(*({"resource": RESOURCES[kind].plural} | rule for rule in rules))
        try:
            if sever:
                await self.control("POST", f"sever?client={CLIENT}")
            await asyncio.sleep(hold_s)
            if then is not None:
                await then()
        finally:
            await self.plan()

    async def _removed(self, kind: str, hold_s: float) -> None:
        async with self.unread(kind):
            gone = [one for one in self.workloads.values() if one.kind == kind]
            await uninstall(self.client, kind)
            for one in gone:
                await self._delete(one)
            await asyncio.sleep(max(hold_s, NOTICED_S))
            await self._probe(kind)
            await install(self.client, kind)

    async def _probe(self, kind: str) -> None:
        """Pods of an owner that cannot be read: those that fit start, one by one, and the others get a reason."""
        owner = {"apiVersion": f"{RESOURCES[kind].group}/{RESOURCES[kind].version}", "kind": kind, "name": "probe"}
        reference = owner | {"uid": f"probe-{self.fault_random.getrandbits(32)}", "controller": True}
        name = f"probe-{kind.lower()}"
        meta = {"name": name, "ownerReferences": [reference]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(cards=IMPOSSIBLE)}
        where = PODS.path(SPACE, name)
        began = monotonic_s()
        await self.client.json("POST", PODS.path(SPACE), body=body)

        reason = ""

        async def explained() -> bool:
            nonlocal reason
            reason = _pod(await self.client.json("GET", where)).reason
            return "OwnerNotReadable" in reason

        try:
            await until(explained, f"the reason of a pod whose {kind} cannot be read", timeout_s=SETTLED_S)
        except (AssertionError, NotFound) as e:
            return self.violated(f"{e}: it has {reason or 'none'}")
        finally:
            await self.client.json("DELETE", where, body={"gracePeriodSeconds": 0}, expect=(200, 202, 404))
        took_s = monotonic_s() - began
        self.longest_reason = max(self.longest_reason, took_s)
        self.counts["probes"] += 1
        restarted = any(at > began - READABLE_S for at in self.kills_at)
        if took_s > UNREADABLE_S * self.slack and not restarted:
            self.violated(f"a pod whose {kind} cannot be read got its reason after {took_s:.1f} s")
        return None

    # --- the end

    async def settle(self) -> float:
        """Users leave; returns the seconds until all others run whole."""
        self._stop.set()
        while sum(each.cards for each in self.workloads.values()) > SETTLED_DEMAND * CARDS:
            await self._delete(next(iter(self.workloads.values())))
        began = monotonic_s()

        def whole() -> bool:
            return all(
                one.complete and all((pod := self.seen.get(uid)) is not None and bool(pod.node) for uid in one.pods.values())
                for one in self.workloads.values()
            )

        try:
            await until(whole, "all workloads whole", timeout_s=SETTLED_S * self.slack)
        except AssertionError as e:
            self.violated(
                f"{e}: {dict(self.waiting())} wait, {[one.id for one in self.workloads.values() if not one.complete]}"
            )
        return monotonic_s() - began

    async def judge_reads(self) -> None:
        await self.plan()
        faults = sum(self.faults.values())
        for kind in KINDS:
            for number in range(NAMES_OF_KIND):
                name = f"{kind.lower()[:3]}{number}"
                id_ = f"{kind}/{name}"
                reads = self.reads[f"{RESOURCES[kind].plural}/{name}"]
                most = self.pods_made[id_] + self.incarnations[id_] + len(self.kills_at) + READS_OF_FAULT * faults
                self.counts["reads"] += reads
                if reads > most:
                    self.violated(f"{id_} was read {reads} times; {most} are explained")


def _pod(raw: Json) -> Pod:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    reason = next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")
    meta = raw["metadata"]
    return Pod(meta["uid"], meta["name"], raw["spec"].get("nodeName", ""), "deletionTimestamp" in meta, reason)


async def campaign(
    folder: Path, seconds: float, seed: int, *, slack: float = 1.0, only: str = "", report: Callable[[str], None] = print
) -> World:
    """Faults for so many seconds; the returned world has the violations."""
    platform = await asyncio.to_thread(Up, folder / "state")
    try:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="chaos", timeout_s=30) as client:
            world = World(platform, client, seed, slack, only, report)
            await client.json("POST", NAMESPACES.path(), body={"metadata": {"name": SPACE}}, expect=(201, 409))
            for number in range(NODES_COUNT):
                box = TraceNode(
                    f"n{number}", cpu_milli=64_000, memory_mib=512 * 1024, cards=CARDS_OF_NODE, model="NVIDIA-H100-80GB-HBM3"
                )
                await client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))
            await install(client, *KINDS, "Job", "StatefulSet")
            await world.plan()
            async with asyncio.TaskGroup() as group:
                observing = group.create_task(world.observe())
                users = group.create_task(world.users(group))
                ends_at = monotonic_s() + seconds
                while monotonic_s() < ends_at:
                    await asyncio.sleep(world.fault_random.uniform(*PAUSE_S))
                    await world.suffer()
                await asyncio.sleep(PAUSE_S[0])
                world._stop.set()
                await users
                took_s = await world.settle()
                observing.cancel()
            await world.judge_reads()
            audit = await asyncio.to_thread(platform.json, "audit")
            world.violations += [f"audit: {fault}" for fault in audit["faults"]]
            report(
                f"{sum(world.faults.values())} faults {dict(world.faults)}; {dict(world.counts)}, pods {sum(world.pods_made.values())}; "
                f"longest part {world.longest_partial:.1f} s, reason of an unreadable owner after {world.longest_reason:.1f} s at most, "
                f"settled {took_s:.1f} s after the end"
            )
            return world
    finally:
        await asyncio.to_thread(platform.stop)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.owners", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="duration of the faults")
    parser.add_argument("--seed", type=int, default=1, help="seed of load and faults")
    parser.add_argument("--slack", type=float, default=1.0, help="factor on the limits, for a machine with other load")
    parser.add_argument("--only", default="", choices=("", *FAULTS), help="run only this fault")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="hbox-owners-"))
    world = asyncio.run(campaign(folder, options.seconds, options.seed, slack=options.slack, only=options.only))
    if world.violations:
        print(*world.violations, f"logs are in {folder / 'state' / 'logs'}", sep="\n")
        return 1
    shutil.rmtree(folder)
    print("no violation")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
