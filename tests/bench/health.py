"""Sick hardware on the running platform: COUNT emulated nodes of eight cards, PER_S pods a second, and FAULTS faults of cards on which gangs run.

Run it as `python -m tests.bench health`; `HBOX_BENCH_SIZE=0.5` uses half of the nodes, of which the breaker lets health-monitor cordon half as many. The
hardware of the first 32 nodes is emulated, and node-agent reads it: faults are injected there. The reports of the other nodes are made by node-agent's own
code and published in its name every REPORT_S, all cards each time.

A fault is a card that falls off the bus (XID 79: the node is cordoned) or, in turn, a double-bit error (XID 48 with 154: the card is taken out). Times begin
before the record is written to the kernel's log, which the agent of emulated nodes reads every 0.5 s (on a machine every 0.25 s). Messages have the time of
their publication; cordons and deletions that at which a watch shows them.

- Placements: all plans and bind decisions are recorded and compared with the verdicts at the end, in whatever order their messages arrived. Pods that come and
  go want the sick cards until the end, and the number of placements on the same cards and nodes before the verdict shows that they are placed there.
- Evictions: RULES raise the limits of evictions and restrictions in ten minutes above all jobs that leave here, so that latency is measured. The second pod
  of a gang never runs on a node with a fault.
- Reports come from a process of its own (`--agents`). While the time to bind without health is measured, it makes the same reports and stores them on another
  broker: in a cluster, agents do not run on the cores of the platform, and the difference must not contain their cost. The two are measured in
  turn, without, with, with, without, of which the second is the one with the faults. The processor time of the platform's processes for each bound pod is
  measured, too: it does not depend on other load of the machine.
"""

import argparse
import asyncio
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from nats.aio.msg import Msg

from hbox_agent.core.reports import Observation, Reports
from hbox_common.bus import Access, Bus, EmbeddedServer
from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.events import (
    BindDecided,
    ClaimsAsked,
    ClaimsPage,
    Event,
    HealthReport,
    HealthVerdict,
    NodeStateChanged,
    PlansProposed,
)
from hbox_common.events.codec import decode
from hbox_common.health.nvmlfacts import cards_of
from hbox_common.health.report import NODE, Check
from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, Delta, Informer, KubeClient, Node, Pod
from hbox_common.model import CardSlice, NodeName, Verdict, parse_slices
from hbox_sandbox.kubelet.hardware import NVML, NodeHardware
from hbox_sandbox.kubelet.inject import Fault, Injection
from hbox_sandbox.kubelet.roots import MOST_NODES

from ..broker import admin_bus, client_of, seed_of
from .load import Load, Measured, node_name
from .platform import HBOX, cpu_s, peak_mib
from .scheduler import report

COUNT = int(1250 * float(os.environ.get("HBOX_BENCH_SIZE", "1")))
MODEL = "NVIDIA-H100-80GB-HBM3"
PER_S, LOAD_S, REPORT_S, QUIET_S = 100.0, 30.0, 10.0, 30.0
#: Of gangs on the nodes with faults, and, once these are over, of cards that are lost without a record; together fewer nodes than the breaker admits.
FAULTS, FAULT_S, LOST = 24, 1.0, 6
#: More jobs than leave: latency is measured, not the limits of the breaker and of the ledger.
RULES = "{limits: {share: 0.5, new_share: 1.0}}"
SETTINGS = {"HBOX_EVICTIONS_MOST": "100000"}
#: Pods that come and go on the nodes with faults, so that their cards are wanted.
SPACE, POOL, CHURN_PER_S, CHURN_RUN_S = "default", "hbox-bench-pool", 10.0, 1
PATIENCE_S, STOPPED_S = 90.0, 20.0
#: What the process of the agents prints once it has reported for all nodes.
REPORTED = "reported\n"
#: What it reads.
GO, STOP = b"go\n", b"stop\n"
#: Limits in seconds, and of health-monitor in percent of a core and MiB.
VERDICT_S, LOST_S, PLACED_S, CORDON_S, EVICTED_S = 2.0, 60.0, 0.05, 5.0, 3.0
PLACING = ("scheduler-core", "quota-ledger", "binder", "job-controller", "topology-collector")
TIMES_BIND, SHARE, MEMORY_MIB = 1.05, 10.0, 200.0


@dataclass(slots=True)
class Injected:
    """One fault; times are seconds since the epoch, 0 until they are seen."""

    node: str
    fault: Fault
    card: str  #: id
    gang: str
    at: float = 0.0
    verdict: float = 0.0
    cordoned: float = 0.0
    evicted: dict[str, float] = field(default_factory=dict)  #: by pod of the gang

    @property
    def seen(self) -> bool:
        return bool(
            self.verdict and (self.cordoned or self.fault is not Fault.XID_79) and (len(self.evicted) == 2 or not self.gang)
        )

    @property
    def left_s(self) -> float:
        """From the fault to the eviction of the last pod of its gang."""
        return max(self.evicted.values()) - self.at if len(self.evicted) == 2 else PATIENCE_S

    def closes(self, placement: "Placed") -> bool:
        return self.node == placement.node and (self.fault is not Fault.DBE or self.card in placement.cards)


@dataclass(frozen=True, slots=True)
class Placed:
    """One placement of a plan or of a bind decision, with the time of its message."""

    at: float
    node: str
    cards: tuple[str, ...]


class Watcher:
    """What broker and API server show of the faults."""

    def __init__(self) -> None:
        self.faults: dict[str, Injected] = {}  #: by node
        self.cards: dict[str, tuple[str, ...]] = {}  #: ids by pod that has its node
        self.planned: list[Placed] = []  #: on nodes with faults to come, as they are proposed
        self.decided: list[Placed] = []  #: the same, as they are decided
        self.nodes: frozenset[str] = frozenset()  #: on which there are faults, or will be

    async def on_verdict(self, message: Msg) -> None:
        event, at = _decoded(message)
        assert isinstance(event, HealthVerdict)
        fault = self.faults.get(event.verdict.node)
        if fault is not None and not fault.verdict and at >= fault.at and _closes(event.verdict, fault.card):
            fault.verdict = at

    async def on_plans(self, message: Msg) -> None:
        event, at = _decoded(message)
        assert isinstance(event, PlansProposed)
        for plan in event.plans:
            self.planned += [self._placed(at, one.node, one.slices) for one in plan.placements if one.node in self.nodes]

    async def on_binds(self, message: Msg) -> None:
        event, at = _decoded(message)
        assert isinstance(event, BindDecided)
        self.decided += [self._placed(at, one.node, one.slices) for one in event.binds if one.node in self.nodes]

    def _placed(self, at: float, node: str, slices: Sequence[CardSlice]) -> Placed:
        return Placed(at, node, tuple(one.card for one in slices))

    async def on_nodes(self, deltas: Sequence[Delta[Node]]) -> None:
        for delta in deltas:
            if delta.new is not None and delta.new.spec.unschedulable and (fault := self.faults.get(delta.new.metadata.name)):
                fault.cordoned = fault.cordoned or wall_s()

    async def on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            pod = delta.new or delta.old
            assert pod is not None
            name = pod.metadata.name
            if delta.new is not None and pod.spec.node_name and name not in self.cards:
                self.cards[name] = tuple(one.card for one in parse_slices(pod.metadata.annotations.get("hbox.io/cards", "")))
            if delta.new is None or pod.metadata.deletion_timestamp:
                fault = next((one for one in self.faults.values() if name.rpartition("-")[0] == one.gang), None)
                if fault is not None:
                    fault.evicted.setdefault(name, wall_s())

    async def until_seen(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not all(fault.seen for fault in self.faults.values()):  # noqa: ASYNC110  messages of another process
                    await asyncio.sleep(0.05)


def _decoded(message: Msg) -> tuple[Event, float]:
    headers: Mapping[str, str] = message.headers or {}
    return decode(message.data, headers), datetime.fromisoformat(headers["ce-time"]).timestamp()


def _closes(verdict: Verdict, card: str) -> bool:
    return not verdict.healthy or card in verdict.cards


class Agents:
    """The agents of nodes without emulated hardware. They publish on `elsewhere` while not `reporting`."""

    def __init__(self, bus: Bus, nodes: Sequence[str], folder: Path, elsewhere: Bus | None = None) -> None:
        self._bus, self._elsewhere, self.reporting = bus, elsewhere or bus, True
        self.heartbeats, self.sent = False, 0  #: a heartbeat in place of each report; published so far
        self._nodes = [(Reports(NodeName(node), "boot-1", new_id()), _healthy(folder, node), node) for node in nodes]

    async def run(self) -> NoReturn:
        began, count = monotonic_s(), 0
        while True:
            bus = self._bus if self.reporting else self._elsewhere
            reports, observed, node = self._nodes[count % len(self._nodes)]
            if self.heartbeats:
                await bus.publish(reports.heartbeat(), NodeName(node))
            else:
                reports.restate()
                reports.add(observed, now=wall_s())
                due = reports.due(now=wall_s())
                assert due is not None
                await bus.publish(due, NodeName(node))
                reports.published()
            count += 1
            self.sent += 1
            if count == len(self._nodes):
                sys.stdout.write(REPORTED)
                sys.stdout.flush()
            await asyncio.sleep(began + count * REPORT_S / len(self._nodes) - monotonic_s())


def card_uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def _healthy(folder: Path, node: str) -> list[Observation]:
    """What the reader of NVML observes of eight healthy cards."""
    NodeHardware(folder).cards({card_uuid(node, index): f"0000:{0x18 + index:02x}:00.0" for index in range(8)})
    state, cards = cards_of((folder / NVML).read_text().splitlines())
    uuids = [uuid for uuid, _ in cards]
    return [
        Observation(Check.NVML, NODE, "cards", {**state, "inventory": uuids}),
        *(Observation(Check.NVML, f"gpu:{uuid}", "card", card) for uuid, card in cards),
    ]


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.health", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", metavar="STATE", type=Path, help="publish the reports of the nodes named on standard input")
    if (of := parser.parse_args(argv).agents) is not None:
        asyncio.run(_report_all(of))
        return
    state = Path(tempfile.mkdtemp(prefix="hbox-bench-"))
    try:
        with _platform(state):
            asyncio.run(_main(state))
    finally:
        shutil.rmtree(state, ignore_errors=True)


@contextmanager
def _platform(state: Path) -> Iterator[None]:
    rules = state / "rules"
    rules.mkdir()
    (rules / "policies.yaml").write_text(RULES)
    env = os.environ | SETTINGS | {"HBOX_RULES_FOLDER": str(rules)}
    up = subprocess.Popen([HBOX, "up", "--state", state], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise SystemExit(f"hbox up did not get ready; see {state}/logs")
        yield
    finally:
        up.terminate()
        up.wait(60)


@asynccontextmanager
async def _agents(state: Path, nodes: Sequence[str]) -> AsyncIterator[asyncio.StreamWriter]:
    """The process that reports for `nodes`, once it has reported for all of them; it stops until it reads GO."""
    words = (sys.executable, "-m", "tests.bench.health", "--agents", str(state))
    agents = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agents.stdin is not None
    assert agents.stdout is not None
    try:
        agents.stdin.write(json.dumps(nodes).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            if await agents.stdout.readline() != REPORTED.encode():
                raise SystemExit("the agents did not report")
        agents.stdin.write(STOP)
        yield agents.stdin
    finally:
        agents.stdin.close()  # at its end the agents stop their own broker
        try:
            async with asyncio.timeout(STOPPED_S):
                await agents.wait()
        except TimeoutError:
            agents.kill()
            await agents.wait()


async def _report_all(state: Path) -> None:
    running = json.loads((state / "platform.json").read_text())
    folder = state / "hardware"
    folder.mkdir()
    access = Access(seed=seed_of(running, "node-agent"))
    async with (
        Bus.connect(running["nats_url"], name="node-agent", instance="bench", access=access, ensure=False) as bus,
        EmbeddedServer(state / "elsewhere") as other,
        Bus.connect(other.url, name="node-agent", instance="bench") as elsewhere,
    ):
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        agents = Agents(bus, json.loads(await reader.readline()), folder, elsewhere)
        async with asyncio.TaskGroup() as tasks:
            reporting = tasks.create_task(agents.run())
            while word := await reader.readline():
                agents.reporting = word == GO
            reporting.cancel()


async def _main(state: Path) -> None:
    running = json.loads((state / "platform.json").read_text())
    pids = json.loads((state / "pids.json").read_text())
    watcher = Watcher()
    async with (
        Load.connect(Path(running["kubeconfig"])) as load,
        KubeClient.connect(running["kubeconfig"], user_agent="hbox-bench") as client,
        _watching(running, client, watcher),
        asyncio.TaskGroup() as tasks,
    ):
        await load.nodes(COUNT, labels={"nvidia.com/gpu.product": MODEL})
        async with admin_bus(running) as bus:
            real = await _emulated(bus, state / "kubelets")
        for node in real:
            await client.json(
                "PATCH", NODES.path(name=node), body={"metadata": {"labels": {POOL: "x"}}}, content_type=MERGE_PATCH
            )
        watcher.nodes = frozenset(real)
        faults = await _gangs(client, watcher, real[:FAULTS])
        churn = tasks.create_task(_churn(client))
        count = min(int(PER_S * LOAD_S), 5 * COUNT)

        used_by: list[dict[str, float]] = []  #: ms of a processor for each pod, by process

        async def measured() -> Measured:
            await load.clean()
            before = {name: cpu_s(pid) for name, pid in pids.items()}
            found = await load.rate(count, per_s=PER_S, scheduler="hbox")
            used_by.append({name: 1000 * (cpu_s(pid) - before[name]) / count for name, pid in pids.items()})
            return found

        await load.rate(COUNT, per_s=PER_S, scheduler="hbox")  # so that the first measurement starts nothing either
        others = [node_name(i) for i in range(COUNT) if node_name(i) not in watcher.nodes]
        async with _agents(state, others) as agents:
            times = [await measured()]
            agents.write(GO)
            await asyncio.sleep(REPORT_S)
            used, began = cpu_s(pids["health-monitor"]), monotonic_s()
            await asyncio.sleep(QUIET_S)
            share = 100 * (cpu_s(pids["health-monitor"]) - used) / (monotonic_s() - began)
            await _cards_held(running, faults)
            injecting = tasks.create_task(_inject(state / "kubelets", watcher, faults))
            times.append(await measured())
            await injecting
            await watcher.until_seen()
            times.append(await measured())
            agents.write(STOP)
            times.append(await measured())
            agents.write(GO)
            lost = [Injected(node, Fault.CARD_LOST, "", "") for node in real[FAULTS : FAULTS + LOST]]
            await _inject(state / "kubelets", watcher, lost)
            await watcher.until_seen()
        churn.cancel()
    _print_faults(faults, state)
    _print_placements(watcher, faults)
    to_lost = [one.verdict - one.at if one.verdict else PATIENCE_S for one in lost]
    _print("NVML reports a lost card, no record: to its verdict", to_lost, LOST_S)
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        waits = [round(one.wait_ms(quantile)) for one in times]
        print(f"time to bind at {PER_S:g} pods/s, {name}, without, with faults, with, without reports: {waits} ms")
    _print_processor(used_by)
    without, faulty, reporting, again = (one.wait_ms(0.5) for one in times)
    for what, mean in (("health", (faulty + reporting) / 2), ("reports alone", reporting)):
        ratio = 2 * mean / (without + again)
        report(f"time to bind with {what}, of that without (p50)", ratio, "times", TIMES_BIND, least=False)
    report(f"health-monitor: {8 * COUNT:,} cards reported every {REPORT_S:g} s", share, "% core", SHARE, least=False)
    report("health-monitor: memory", peak_mib(pids["health-monitor"]), "MiB", MEMORY_MIB, least=False)


@asynccontextmanager
async def _watching(running: Mapping[str, Any], client: KubeClient, watcher: Watcher) -> AsyncIterator[None]:
    broker = await client_of(running)
    await broker.subscribe(HealthVerdict.filter(), cb=watcher.on_verdict)
    await broker.subscribe(PlansProposed.filter(), cb=watcher.on_plans)
    await broker.subscribe(BindDecided.filter(), cb=watcher.on_binds)
    informers = [
        asyncio.create_task(Informer(client, NODES, Node).run(watcher.on_nodes)),
        asyncio.create_task(Informer(client, PODS, Pod, namespace=SPACE).run(watcher.on_pods)),
    ]
    try:
        yield
    finally:
        for task in informers:
            task.cancel()
        await broker.close()


async def _emulated(bus: Bus, kubelets: Path) -> list[str]:
    """Nodes with emulated hardware, once their agent has reported their cards, and topology-collector knows them by these UUIDs."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            names = await asyncio.to_thread(lambda: sorted(path.name for path in kubelets.glob("[!.]*")))
            reports = [one.event for one in await bus.last(HealthReport, [(name,) for name in names])]
            nodes = [one.event for one in await bus.last(NodeStateChanged, [(name,) for name in names])]
            known = [
                one.node
                for one in nodes
                if isinstance(one, NodeStateChanged) and all("GPU-" in card.id for card in one.node.cards)
            ]
            reported = sum(isinstance(one, HealthReport) and len(one.cards) == 8 for one in reports)
            if len(names) == len(known) == reported == MOST_NODES:
                return names
            await asyncio.sleep(0.5)


async def _gangs(client: KubeClient, watcher: Watcher, nodes: Sequence[str]) -> list[Injected]:
    """On each node a pod of a gang of two, whose other pod is on no node with a fault; the fault will be that of a card of the first."""
    elsewhere = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": POOL, "operator": "DoesNotExist"}]}]}}  # fmt: skip
    for node in nodes:
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": f"gang-{node}"},
            "spec": {"minMember": 2},
        }
        await client.json("POST", PODGROUPS.path(SPACE), body=body)
        for number, where in enumerate(({"kubernetes.io/hostname": node}, {})):
            pod = _pod(f"gang-{node}-{number}", 3, where, {"scheduling.k8s.io/group-name": f"gang-{node}"})
            if not where:
                pod["spec"]["affinity"] = {"nodeAffinity": elsewhere}
            await client.json("POST", PODS.path(SPACE), body=pod)
    names = {f"gang-{node}-{number}" for node in nodes for number in (0, 1)}
    async with asyncio.timeout(PATIENCE_S):
        while not names <= watcher.cards.keys():  # noqa: ASYNC110  the informer fills it
            await asyncio.sleep(0.05)
    kinds = (Fault.XID_79, Fault.DBE)
    return [
        Injected(node, kinds[place % 2], watcher.cards[f"gang-{node}-0"][0], f"gang-{node}") for place, node in enumerate(nodes)
    ]


async def _cards_held(running: Mapping[str, Any], faults: Sequence[Injected]) -> None:
    """A fault is that of a card on which the gang runs by the ledger: the kubelet may have given another one than the scheduler chose."""
    async with admin_bus(running) as bus:
        pages = await bus.ask(ClaimsAsked(asker="bench"), ClaimsPage, timeout_s=30)
    held = {claim.pod: claim.slices[0].card for page in pages for claim in page.claims if claim.slices}
    for fault in faults:
        fault.card = held[f"{fault.gang}-0"]


async def _inject(kubelets: Path, watcher: Watcher, faults: Sequence[Injected]) -> None:
    for fault in faults:
        hardware = NodeHardware(kubelets / fault.node)
        fault.card = fault.card or f"gpu:{next(iter(hardware.listed()))}"
        fault.at = wall_s()
        watcher.faults[fault.node] = fault
        Injection(hardware).inject(fault.fault, card=fault.card.partition(":")[2])
        await asyncio.sleep(FAULT_S)


async def _churn(client: KubeClient) -> NoReturn:
    count = 0
    while True:
        notes = {
            "hbox.io/run-seconds": str(CHURN_RUN_S),
            "hbox.io/on-sick-hardware": "ignore",
        }  # else the breaker counts their evictions
        pod = _pod(f"churn-{count}", 1, {POOL: "x"}, notes)
        await client.json("POST", PODS.path(SPACE), body=pod)
        count += 1
        await asyncio.sleep(1 / CHURN_PER_S)


def _pod(name: str, cards: int, where: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {
            "schedulerName": "hbox",
            "nodeSelector": dict(where),
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": limits, "limits": limits}}],
        },
    }


def _print_faults(faults: Sequence[Injected], state: Path) -> None:
    missing = [fault for fault in faults if not fault.seen]
    print(f"{len(faults)} faults, {len(missing)} without all their consequences within {PATIENCE_S:g} s")
    with closing(sqlite3.connect(f"file:{state}/health.db?mode=ro", uri=True)) as database:
        incidents = [json.loads(row[0]) for row in database.execute("select body from incidents").fetchall()]
    for fault in missing:
        print(
            f"  {fault.node} {fault.fault}: verdict {bool(fault.verdict)}, cordon {bool(fault.cordoned)}, left {sorted(fault.evicted)}"
        )
        for one in incidents:
            if one["node"] == fault.node and one["state"] != "closed":
                print(f"    {one['entity']} {one['kind']} {one['code']} {one['state']} held by {one['held_by']}")
    left = sum(len(fault.evicted) == 2 for fault in faults)
    report(f"gangs that left, of {len(faults)}", left, "gangs", len(faults), least=True)
    for what, times, limit in (
        ("fault to verdict", [fault.verdict - fault.at if fault.verdict else PATIENCE_S for fault in faults], VERDICT_S),
        ("fault to cordon", [f.cordoned - f.at if f.cordoned else PATIENCE_S for f in faults if f.fault is Fault.XID_79], CORDON_S),
        ("fault to eviction of the last pod of its gang", [fault.left_s for fault in faults], EVICTED_S),
    ):  # fmt: skip
        _print(what, times, limit)


def _print_placements(watcher: Watcher, faults: Sequence[Injected]) -> None:
    """Of what a verdict closes. Without placements before it, none after it proves nothing."""
    for what, placements in (("plans", watcher.planned), ("bind decisions", watcher.decided)):
        before, last, late = 0, [], 0
        for fault in faults:
            after = [one.at - fault.verdict for one in placements if fault.closes(one)] if fault.verdict else []
            before += sum(at <= 0 for at in after)
            late += sum(at > PLACED_S for at in after)
            last.append(max((at for at in after if at > 0), default=0.0) if fault.verdict else PATIENCE_S)
        report(f"{what} on the sick hardware before its verdict", before, what.split()[0], len(faults), least=True)
        report(f"{what} on it later than {1000 * PLACED_S:g} ms after the verdict", late, what.split()[0], 0, least=False)
        _print(f"verdict to the last of the {what}", last, PLACED_S)


def _print_processor(used_by: Sequence[Mapping[str, float]]) -> None:
    """Of the four measurements; the services that place pods do the same work in each of them."""
    for name in sorted(used_by[0]):
        print(
            f"ms of a processor a pod, without, with faults, with, without reports: {name} {[round(one[name], 2) for one in used_by]}"
        )
    without, _, reporting, again = (sum(one[name] for name in PLACING if name in one) for one in used_by)
    ratio = 2 * reporting / (without + again)
    report(
        f"processor time of {', '.join(PLACING)} with reports alone, of that without", ratio, "times", TIMES_BIND, least=False
    )


def _print(what: str, times: Sequence[float], limit_s: float) -> None:
    ordered = sorted(times)
    p50, p99 = (1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.99))
    report(
        f"{what}, p99 of {len(ordered)} (p50 {p50:.0f}, max {1000 * ordered[-1]:.0f} ms)",
        p99,
        "ms",
        1000 * limit_s,
        least=False,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
