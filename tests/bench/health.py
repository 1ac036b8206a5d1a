"""Sick hardware on the running platform: COUNT emulated nodes of eight cards, PER_S pods a second, and FAULTS faults of cards on which gangs run.

Run it as `python -m tests.bench health`; `HBOX_BENCH_SIZE=0.5` uses half of the nodes, of which the breaker lets health-monitor cordon half as many. The
hardware of the first 32 nodes is emulated, and node-agent reads it: faults are injected there. The reports of the other nodes are made by node-agent's own
code and published in its name every REPORT_S, all cards each time.

A fault is a card that falls off the bus (XID 79: the node is cordoned) or, in turn, a double-bit error (XID 48 with 154: the card is taken out). Times begin
before the record is written to the kernel's log, which the agent of emulated nodes reads every 0.5 s (on a machine every 0.25 s). Messages have the time of
their publication; cordons and deletions that at which a watch shows them. The time to bind is measured before and while agents report and faults happen.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from nats.aio.msg import Msg

from hbox_agent.core.reports import Observation, Reports
from hbox_common.bus import Access, Bus
from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.events import BindDecided, Event, HealthReport, HealthVerdict
from hbox_common.events.codec import decode
from hbox_common.health.nvmlfacts import cards_of
from hbox_common.health.report import NODE, Check
from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, Delta, Informer, KubeClient, Node, Pod
from hbox_common.model import NodeName, Verdict, parse_slices
from hbox_sandbox.kubelet.hardware import NVML, NodeHardware
from hbox_sandbox.kubelet.inject import Fault, Injection
from hbox_sandbox.kubelet.roots import MOST_NODES

from ..broker import client_of, seed_of
from .load import Load, node_name
from .platform import HBOX, cpu_s, peak_mib
from .scheduler import report

COUNT = int(1250 * float(os.environ.get("HBOX_BENCH_SIZE", "1")))
MODEL = "NVIDIA-H100-80GB-HBM3"
PER_S, LOAD_S, REPORT_S, QUIET_S = 100.0, 30.0, 10.0, 30.0
#: Of gangs on the nodes with faults, and, once these are over, of cards that are lost without a record; together fewer nodes than the breaker admits.
FAULTS, FAULT_S, LOST = 24, 1.0, 6
#: Pods that come and go on the nodes with faults, so that their cards are wanted.
SPACE, POOL, CHURN_PER_S, CHURN_RUN_S = "default", "hbox-bench-pool", 10.0, 1
PATIENCE_S = 90.0
#: Limits in seconds, and of health-monitor in percent of a core and MiB.
VERDICT_S, LOST_S, PLACED_S, CORDON_S, EVICTED_S = 2.0, 60.0, 0.05, 5.0, 3.0
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
    placed: float = 0.0  #: the last bind after the verdict that uses what it closes

    @property
    def seen(self) -> bool:
        return bool(
            self.verdict and (self.cordoned or self.fault is not Fault.XID_79) and (len(self.evicted) == 2 or not self.gang)
        )


class Watcher:
    """What broker and API server show of the faults."""

    def __init__(self) -> None:
        self.faults: dict[str, Injected] = {}  #: by node
        self.cards: dict[str, tuple[str, ...]] = {}  #: ids by pod that has its node

    async def on_verdict(self, message: Msg) -> None:
        event, at = _decoded(message)
        assert isinstance(event, HealthVerdict)
        fault = self.faults.get(event.verdict.node)
        if fault is not None and not fault.verdict and at >= fault.at and _closes(event.verdict, fault.card):
            fault.verdict = at

    async def on_binds(self, message: Msg) -> None:
        event, at = _decoded(message)
        for bind in event.binds if isinstance(event, BindDecided) else ():
            fault = self.faults.get(bind.node)
            if fault is None or not fault.verdict or at < fault.verdict:
                continue
            if fault.fault is not Fault.DBE or fault.card in {one.card for one in bind.slices}:
                fault.placed = at

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
    """The agents of nodes without emulated hardware."""

    def __init__(self, bus: Bus, nodes: Sequence[str], folder: Path) -> None:
        self._bus = bus
        self._nodes = [(Reports(NodeName(node), "boot-1", new_id()), _healthy(folder, node), node) for node in nodes]

    async def run(self) -> NoReturn:
        began, count = monotonic_s(), 0
        while True:
            reports, observed, node = self._nodes[count % len(self._nodes)]
            reports.restate()
            reports.add(observed, now=wall_s())
            due = reports.due(now=wall_s())
            assert due is not None
            await self._bus.publish(due, NodeName(node))
            reports.published()
            count += 1
            await asyncio.sleep(began + count * REPORT_S / len(self._nodes) - monotonic_s())


def _healthy(folder: Path, node: str) -> list[Observation]:
    """What the reader of NVML observes of eight healthy cards."""
    NodeHardware(folder).cards({f"GPU-{node}-{index}": f"0000:{0x18 + index:02x}:00.0" for index in range(8)})
    state, cards = cards_of((folder / NVML).read_text().splitlines())
    uuids = [uuid for uuid, _ in cards]
    return [
        Observation(Check.NVML, NODE, "cards", {**state, "inventory": uuids}),
        *(Observation(Check.NVML, f"gpu:{uuid}", "card", card) for uuid, card in cards),
    ]


def main() -> None:
    state = Path(tempfile.mkdtemp(prefix="hbox-bench-"))
    try:
        with _platform(state):
            asyncio.run(_main(state))
    finally:
        shutil.rmtree(state, ignore_errors=True)


@contextmanager
def _platform(state: Path) -> Iterator[None]:
    up = subprocess.Popen([HBOX, "up", "--state", state], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise SystemExit(f"hbox up did not get ready; see {state}/logs")
        yield
    finally:
        up.terminate()
        up.wait(60)


async def _main(state: Path) -> None:
    running = json.loads((state / "platform.json").read_text())
    pids = json.loads((state / "pids.json").read_text())
    watcher = Watcher()
    async with (
        Load.connect(Path(running["kubeconfig"])) as load,
        KubeClient.connect(running["kubeconfig"], user_agent="hbox-bench") as client,
        _watching(running, client, watcher),
        Bus.connect(
            running["nats_url"],
            name="node-agent",
            instance="bench",
            access=Access(seed=seed_of(running, "node-agent")),
            ensure=False,
        ) as bus,
        asyncio.TaskGroup() as tasks,
    ):
        await load.nodes(COUNT, labels={"nvidia.com/gpu.product": MODEL})
        real = await _emulated(bus, state / "kubelets")
        for node in real:
            await client.json(
                "PATCH", NODES.path(name=node), body={"metadata": {"labels": {POOL: "x"}}}, content_type=MERGE_PATCH
            )
        faults = await _gangs(client, watcher, real[:FAULTS])
        churn = tasks.create_task(_churn(client))
        await load.rate(COUNT, per_s=PER_S, scheduler="hbox")  # so that the first measurement starts nothing either
        await load.clean()
        count = min(int(PER_S * LOAD_S), 5 * COUNT)
        without = await load.rate(count, per_s=PER_S, scheduler="hbox")
        await load.clean()
        folder = state / "hardware"
        folder.mkdir()
        reporting = tasks.create_task(
            Agents(bus, [node_name(i) for i in range(COUNT) if node_name(i) not in real], folder).run()
        )
        await asyncio.sleep(REPORT_S)
        used, began = cpu_s(pids["health-monitor"]), monotonic_s()
        await asyncio.sleep(QUIET_S)
        share = 100 * (cpu_s(pids["health-monitor"]) - used) / (monotonic_s() - began)
        injecting = tasks.create_task(_inject(state / "kubelets", watcher, faults))
        within = await load.rate(count, per_s=PER_S, scheduler="hbox")
        await injecting
        await watcher.until_seen()
        reporting.cancel()
        _print_faults(faults)
        lost = [Injected(node, Fault.CARD_LOST, "", "") for node in real[FAULTS : FAULTS + LOST]]
        await _inject(state / "kubelets", watcher, lost)
        await watcher.until_seen()
        churn.cancel()
    _print(
        "NVML reports a lost card, no record: to its verdict",
        [one.verdict - one.at if one.verdict else PATIENCE_S for one in lost],
        LOST_S,
    )
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        before, after = without.wait_ms(quantile), within.wait_ms(quantile)
        print(f"time to bind at {PER_S:g} pods/s, {name}: {before:.0f} ms without reports and faults, {after:.0f} ms with them")
    report(
        "time to bind with health, of that without (p50)",
        within.wait_ms(0.5) / without.wait_ms(0.5),
        "times",
        TIMES_BIND,
        least=False,
    )
    report(f"health-monitor: {8 * COUNT:,} cards reported every {REPORT_S:g} s", share, "% core", SHARE, least=False)
    report("health-monitor: memory", peak_mib(pids["health-monitor"]), "MiB", MEMORY_MIB, least=False)


@asynccontextmanager
async def _watching(running: Mapping[str, Any], client: KubeClient, watcher: Watcher) -> AsyncIterator[None]:
    broker = await client_of(running)
    await broker.subscribe(HealthVerdict.filter(), cb=watcher.on_verdict)
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
    """Nodes with emulated hardware, once their agent has reported their cards."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            names = await asyncio.to_thread(lambda: sorted(path.name for path in kubelets.glob("[!.]*")))
            reports = [one.event for one in await bus.last(HealthReport, [(name,) for name in names])]
            if (
                len(names) == MOST_NODES
                and sum(isinstance(one, HealthReport) and len(one.cards) == 8 for one in reports) == MOST_NODES
            ):
                return names
            await asyncio.sleep(0.5)


async def _gangs(client: KubeClient, watcher: Watcher, nodes: Sequence[str]) -> list[Injected]:
    """On each node a pod of a gang of two, whose other pod is anywhere; the fault will be that of a card of the first."""
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
            await client.json("POST", PODS.path(SPACE), body=pod)
    names = {f"gang-{node}-{number}" for node in nodes for number in (0, 1)}
    async with asyncio.timeout(PATIENCE_S):
        while not names <= watcher.cards.keys():  # noqa: ASYNC110  the informer fills it
            await asyncio.sleep(0.05)
    kinds = (Fault.XID_79, Fault.DBE)
    return [
        Injected(node, kinds[place % 2], watcher.cards[f"gang-{node}-0"][0], f"gang-{node}") for place, node in enumerate(nodes)
    ]


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


def _print_faults(faults: Sequence[Injected]) -> None:
    missing = [fault.node for fault in faults if not fault.seen]
    print(f"{len(faults)} faults, {len(missing)} without all their consequences within {PATIENCE_S:g} s {' '.join(missing)}")
    for what, times, limit in (
        ("fault to verdict", [fault.verdict - fault.at if fault.verdict else PATIENCE_S for fault in faults], VERDICT_S),
        ("verdict to the last placement on what it closes", [max(0.0, fault.placed - fault.verdict) for fault in faults], PLACED_S),
        ("fault to cordon", [f.cordoned - f.at if f.cordoned else PATIENCE_S for f in faults if f.fault is Fault.XID_79], CORDON_S),
        ("fault to eviction of the last pod of its gang", [max(f.evicted.values()) - f.at if len(f.evicted) == 2 else PATIENCE_S for f in faults], EVICTED_S),
    ):  # fmt: skip
        _print(what, times, limit)


def _print(what: str, times: Sequence[float], limit_s: float) -> None:
    """The largest is the p99 of so few."""
    ordered = sorted(times)
    report(
        f"{what}, largest of {len(ordered)} (median {1000 * ordered[len(ordered) // 2]:.0f} ms)",
        1000 * ordered[-1],
        "ms",
        1000 * limit_s,
        least=False,
    )
