"""2,000 PyTorchJobs of four one-card pods, and the same pods in PodGroups, on the emulated API: time until all are bound, and what gangs by owner cost.

Run it as `python -m tests.bench owners`; `HBOX_BENCH_SIZE=0.1` uses a tenth, `HBOX_BENCH_ROUNDS` several rounds [1], `HBOX_BENCH_ORDERS=mixed` single orders
(separated by commas), `HBOX_BENCH_OWNER_KIB=1000` owners of that size. Each measurement has a platform of its own with exactly as many cards as pods.

Orders, as job-controller receives them. An API server assigns uids, so an owner is always created before its pods, and only the watch of its kind can be late:
  owners first   all owners, then all pods
  pods first     likewise, but an API server with an outdated cache serves lists and watches of the kind, so that each owner has to be read; in PodGroups: all
                 pods, then all PodGroups
  mixed          all objects in a random order, each owner before its own pods; half of the time the watch of the kind is up to 1.5 s late

Reads of the kind (GET, LIST, WATCH) are counted by the API server. A gang is partial if the ledger decided to bind some of its pods without the others.
"""

import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from hbox_common.bus import Delivery, Start
from hbox_common.clock import monotonic_s
from hbox_common.events import BindDecided
from hbox_common.kube import PODGROUPS

from .. import owners
from ..broker import admin_bus
from .load import NAMESPACE, Load, in_parallel
from .platform import HBOX, cpu_s, peak_mib

SIZE = float(os.environ.get("HBOX_BENCH_SIZE", "1"))
ROUNDS = int(os.environ.get("HBOX_BENCH_ROUNDS", "1"))
OWNER_KIB = int(os.environ.get("HBOX_BENCH_OWNER_KIB", "0"))
JOBS = 2000
ROLES = {"Master": 1, "Worker": 3}
MEMBERS = sum(ROLES.values())
CARDS = 8  #: of each node
RATIO, READS, MEMORY_MIB = 1.2, 1.0, 300.0  #: limits
#: Owners of which reads are counted one by one: each is a rule that the API server compares with every request.
SAMPLED = 50
GROUP_NAME = "scheduling.k8s.io/group-name"
#: (number of a job, number of one of its pods or OWNER). PODS: all of them.
Step = tuple[int, int]
OWNER, PODS = -1, -2
SERVICES = ("job-controller", "scheduler-core", "quota-ledger", "binder")


#: Small values, of which a decoder makes the most.
PADDING = [{"name": "A", "value": "b"} for _ in range(OWNER_KIB * 1024 // 24)]


class Order(StrEnum):
    OWNERS_FIRST = "owners first"
    PODS_FIRST = "pods first"
    MIXED = "mixed"


#: The watch of the kind by order.
DISTURBED: dict[Order, list[dict[str, Any]]] = {
    Order.OWNERS_FIRST: [],
    Order.PODS_FIRST: [{"verb": verb, "resource": "pytorchjobs", "stale": True} for verb in ("list", "watch")],
    Order.MIXED: [{"verb": "watch", "resource": "pytorchjobs", "watch_stall_s": 1.5, "watch_end_s": 3.0}],
}


@dataclass(slots=True)
class Figures:
    """Of one measurement."""

    bound_s: float  #: from the first creation until all pods had nodes
    reads: dict[str, int]  #: of the kind, by verb
    most_gets: int  #: of one sampled owner
    peak_mib: float  #: of job-controller
    partial: int
    pods: int  #: of gangs that were bound
    cpu_ms: dict[str, float]  #: a pod, by service

    @property
    def all_reads(self) -> int:
        return sum(self.reads.values())


@dataclass(slots=True)
class Decisions:
    """Gangs by name, and in how many pods each decision of the ledger about them had."""

    pods: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    async def hear(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, BindDecided)
            for name, count in Counter(gang_of(bind.pod) for bind in delivery.event.binds).items():
                self.pods[name].append(count)

    @property
    def partial(self) -> int:
        return sum(counts[0] < MEMBERS for counts in self.pods.values())


def gang_of(pod: str) -> str:
    """The name of the job of a pod such as train-7-worker-1."""
    return pod.rsplit("-", 2)[0]


def nodes_of(jobs: int) -> int:
    """Nodes with exactly as many cards as the jobs have pods, without kubelets."""
    return -(-jobs * MEMBERS // CARDS)


def jobs_of(prefix: str, count: int) -> list[owners.Tree]:
    of = owners.template(cpu="1")
    return [owners.training_job(f"{prefix}-{i}", ROLES, of=of) for i in range(count)]


async def by_owner(load: Load, trees: Sequence[owners.Tree], order: Order) -> None:
    """Create PyTorchJobs and, as their operator does, their pods."""
    path = owners.path("PyTorchJob", NAMESPACE)
    made = [asyncio.get_running_loop().create_future() for _ in trees]

    async def owner(i: int) -> None:
        body = {**trees[i].top, "metadata": {k: v for k, v in trees[i].top["metadata"].items() if k != "uid"}}
        if OWNER_KIB:
            body["spec"] = {**body["spec"], "padding": PADDING}
        made[i].set_result((await load.client.json("POST", path, body=body, timeout_s=60))["metadata"]["uid"])

    async def pod(i: int, at: int) -> None:
        body = trees[i].pods[at]
        body["metadata"].pop("uid", None)
        body["metadata"]["ownerReferences"][0]["uid"] = await made[i]
        await load.create(body)

    async def step(i: int, at: int) -> None:
        await (owner(i) if at == OWNER else pod(i, at))

    steps = mixed(len(trees), owners_first=True) if order is Order.MIXED else in_order(len(trees), [OWNER, PODS])
    await in_parallel(lambda n: step(*steps[n]), range(len(steps)))


async def by_group(load: Load, trees: Sequence[owners.Tree], order: Order) -> None:
    """Create the same pods in PodGroups."""

    async def group(i: int) -> None:
        name = trees[i].top["metadata"]["name"]
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
        await load.client.json("POST", PODGROUPS.path(NAMESPACE), body={**body, "spec": {"minMember": MEMBERS}}, timeout_s=60)

    async def pod(i: int, at: int) -> None:
        body = trees[i].pods[at]
        meta = body["metadata"]
        meta.pop("uid", None)
        meta.pop("ownerReferences", None)
        meta["annotations"] = {GROUP_NAME: trees[i].top["metadata"]["name"]}
        await load.create(body)

    async def step(i: int, at: int) -> None:
        await (group(i) if at == OWNER else pod(i, at))

    match order:
        case Order.OWNERS_FIRST:
            steps = in_order(len(trees), [OWNER, PODS])
        case Order.PODS_FIRST:
            steps = in_order(len(trees), [PODS, OWNER])
        case Order.MIXED:
            steps = mixed(len(trees))
    await in_parallel(lambda n: step(*steps[n]), range(len(steps)))


def in_order(jobs: int, parts: Sequence[int]) -> list[Step]:
    """All owners, and all pods, one part after the other."""
    ats = {OWNER: [OWNER], PODS: list(range(MEMBERS))}
    return [(i, at) for part in parts for i in range(jobs) for at in ats[part]]


def mixed(jobs: int, *, owners_first: bool = False) -> list[Step]:
    """In a random order, the same each time. `owners_first`: each owner before its own pods."""
    steps = [(i, at) for i in range(jobs) for at in (OWNER, *range(MEMBERS))]
    random.Random(38).shuffle(steps)
    if owners_first:
        first: dict[int, int] = {}
        for n, (i, at) in enumerate(steps):
            first.setdefault(i, n)
            if at == OWNER:
                steps[n], steps[first[i]] = steps[first[i]], steps[n]
    return steps


def measure(order: Order, *, owned: bool, jobs: int) -> Figures:
    """One platform, from its start to its end."""
    state = Path(tempfile.mkdtemp(prefix="hbox-bench-"))
    command = [str(HBOX), "up", "--state", str(state)]
    with (
        (state / "up.err").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as up,
    ):
        try:
            assert up.stdout is not None
            if not any(line.startswith("ready") for line in up.stdout):
                raise SystemExit(f"hbox up did not get ready: {(state / 'up.err').read_text()[-500:]}")
            return asyncio.run(_measure(state, order, owned=owned, jobs=jobs))
        finally:
            up.terminate()
            up.wait(60)
            shutil.rmtree(state, ignore_errors=True)


async def _measure(state: Path, order: Order, *, owned: bool, jobs: int) -> Figures:
    running = json.loads((state / "platform.json").read_text())
    pids: dict[str, int] = json.loads((state / "pids.json").read_text())
    decisions, ready = Decisions(), asyncio.Event()
    async with admin_bus(running) as bus, Load.connect(state / "kubeconfig") as load, asyncio.TaskGroup() as group:
        following = group.create_task(bus.follow([BindDecided], decisions.hear, start=Start.ALL, on_ready=ready.set))
        await ready.wait()
        await owners.install(load.client, "PyTorchJob")
        await load.nodes(nodes_of(jobs), cards=CARDS)
        await load.burst(1, scheduler="hbox", cards=0)  # the first one pays for connections and caches
        decisions.pods.clear()
        trees = jobs_of(load.begin(), jobs)
        names = [tree.top["metadata"]["name"] for tree in trees][:: max(1, jobs // SAMPLED)]
        counted = [{"verb": verb, "resource": "pytorchjobs"} for verb in ("get", "list", "watch")]
        counted += [{"verb": "get", "resource": "pytorchjobs", "name": name} for name in names]
        await _faults(state, [*counted, *DISTURBED[order]])
        before = {name: cpu_s(pids[name]) for name in SERVICES}
        began = monotonic_s()
        await (by_owner if owned else by_group)(load, trees, order)
        done = await load.all_bound(MEMBERS * jobs, since=began)
        fired: list[int] = (await _faults(state))["fired"]
        following.cancel()
    return Figures(
        bound_s=done.last_bound_s,
        reads=dict(zip(("GET", "LIST", "WATCH"), fired, strict=False)),
        most_gets=max(fired[3 : 3 + len(names)]),
        peak_mib=peak_mib(pids["job-controller"]),
        partial=decisions.partial,
        pods=sum(map(sum, decisions.pods.values())),
        cpu_ms={name: 1000 * (cpu_s(pids[name]) - before[name]) / done.pods for name in SERVICES},
    )


async def _faults(state: Path, rules: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The API server's plan of faults, after `rules` became the plan; rules without an effect count requests."""
    config = json.loads((state / "kubeconfig").read_text())
    url = f"{config['clusters'][0]['cluster']['server']}/_sandbox/faults"
    body = None if rules is None else json.dumps({"rules": list(rules)}).encode()

    def ask() -> dict[str, Any]:
        with urlopen(Request(url, data=body, method="GET" if body is None else "PUT"), timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    return await asyncio.to_thread(ask)


def _line(what: str, value: str, limit: str, *, good: bool) -> None:
    print(f"{what:58} {value:>22}  limit {limit:8} {'ok' if good else 'MISSED'}", flush=True)


def main() -> None:
    jobs = max(1, int(JOBS * SIZE))
    wanted = os.environ.get("HBOX_BENCH_ORDERS", "")
    orders = [Order(name.strip()) for name in wanted.split(",")] if wanted else list(Order)
    print(f"{jobs:,} PyTorchJobs of {MEMBERS} pods of one card, {nodes_of(jobs):,} nodes of {CARDS} cards")
    for order in orders:
        print(order, flush=True)
        found: dict[bool, list[Figures]] = {False: [], True: []}
        for number in range(ROUNDS):
            for owned in (False, True) if number % 2 == 0 else (True, False):
                one = measure(order, owned=owned, jobs=jobs)
                found[owned].append(one)
                cost = ", ".join(f"{name} {ms:.2f}" for name, ms in one.cpu_ms.items())
                rate = MEMBERS * jobs / one.bound_s
                print(
                    f"  {'owners' if owned else 'PodGroups':10} all bound after {one.bound_s:6.1f} s ({rate:.0f} pods/s), "
                    f"job-controller {one.peak_mib:.0f} MiB at its peak; CPU ms a pod: {cost}",
                    flush=True,
                )
        groups, mine = found[False], found[True]
        ratio = statistics.median(one.bound_s for one in mine) / statistics.median(one.bound_s for one in groups)
        _line("  time to all bound, of that in PodGroups", f"{ratio:.2f} x", f"{RATIO:g}", good=ratio <= RATIO)
        worst = max(mine, key=lambda one: one.all_reads)
        verbs = ", ".join(f"{count} {verb}" for verb, count in worst.reads.items())
        reads = worst.all_reads / jobs
        _line(f"  reads of the kind an owner ({verbs})", f"{reads:.3f}", f"{READS:g}", good=reads <= READS)
        most = max(one.most_gets for one in mine)
        _line("  most GETs of one owner, of those sampled", f"{most}", "1", good=most <= 1)
        peak = max(one.peak_mib for one in mine)
        _line("  job-controller at its peak", f"{peak:.0f} MiB", f"{MEMORY_MIB:g}", good=peak < MEMORY_MIB)
        partial = sum(one.partial for one in (*mine, *groups))
        _line("  partial gangs", f"{partial}", "0", good=not partial)
