"""Faults and lies of node-agents, and a switch that takes many nodes: `python -m tests.chaos.sickness`. Exit status 1: a guarantee was violated.

Real agents read the hardware of 32 emulated nodes, 20 below one leaf switch. Each fault of FAULTS lasts for a while, then it is taken back and the cluster has
to be as before: no cordon, no restricted node, no open incident, and the next fault begins. Throughout,

- at no moment more nodes are cordoned by us, or closed by a verdict, than the breaker's share (max(2, 5 %)), as a watch and the broker show;
- the node that is cordoned by hand stays so, without marks of ours;
- health-monitor is the process that it was at the start: no message ends it.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg
from tests.broker import admin_bus, client_of, seed_of
from tests.e2e.platform_world import SLOWER, Up
from tests.waiting import until

from hbox_common.bus import Access, Bus
from hbox_common.clock import monotonic_s, new_id
from hbox_common.events import HealthReport, HealthVerdict
from hbox_common.events.codec import decode, encode
from hbox_common.health.report import Check, Fact, Value
from hbox_common.kube import HYPERNODES, NODES, Delta, Informer, KubeClient, Node
from hbox_common.model import NodeName
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.kubelet.inject import Fault, Injection

NAMES = tuple(f"n{number:02}" for number in range(32))
#: Of leaf-0.
BELOW = NAMES[:20]
FOREIGN = NAMES[-1]
OWNER = "hbox-health-monitor"
MODEL = "NVIDIA-H100-80GB-HBM3"
SIZE = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
NUMA = {"policy": "none", "cpuManager": "none", "box": "h100"}
SHARE, LEAST = 0.05, 2
SETTINGS = {"HBOX_NVML_POLL_S": "2", "HBOX_VALIDATED_S": "1"}
#: The share of nodes is the shipped one. What limits new restrictions in ten minutes, and debounces, is short, so that each fault finds the breaker closed;
#: a card that breaks for the third time in a campaign is no ticket.
POLICIES = (
    "{resets: 1000, reboots: 1000, limits: {window_s: 3}, waits: {port: 3, agent-silent: 1, nvml-nvlink: 2}, clean: {port: 2}, "
    "group_window_s: 20, flap_down_s: 1000}"
)
BOTH_S = 60.0 * SLOWER


class Violation(AssertionError):
    pass


class Observer:
    """What API server and broker show of all nodes."""

    def __init__(self) -> None:
        self.cordoned: set[str] = set()
        self.closed: set[str] = set()  #: by verdict, as nodes
        self.most_cordoned = self.most_closed = 0
        self.violations: list[str] = []

    async def on_nodes(self, deltas: Sequence[Delta[Node]]) -> None:
        for node in (delta.new for delta in deltas if delta.new is not None):
            name, by = node.metadata.name, node.metadata.annotations.get("hbox.io/cordoned-by", "")
            (self.cordoned.add if node.spec.unschedulable and by == OWNER else self.cordoned.discard)(name)
            if name == FOREIGN and (not node.spec.unschedulable or by):
                self.violations.append(f"the cordon of {FOREIGN} by hand was touched")
        self.most_cordoned = max(self.most_cordoned, len(self.cordoned))
        self._limit("cordoned", self.cordoned)

    async def on_verdict(self, message: Msg) -> None:
        event = decode(message.data, message.headers or {})
        assert isinstance(event, HealthVerdict)
        (self.closed.discard if event.verdict.healthy else self.closed.add)(str(event.verdict.node))
        self.most_closed = max(self.most_closed, len(self.closed))
        self._limit("closed", self.closed)

    def _limit(self, what: str, names: set[str]) -> None:
        if len(names) > max(LEAST, int(SHARE * len(NAMES))):
            self.violations.append(f"{len(names)} nodes are {what}: {' '.join(sorted(names))}")


class World:
    def __init__(self, platform: Up, client: KubeClient, bus: Bus, reader: Bus, observer: Observer, seed: int) -> None:
        self.platform, self.client, self.bus, self.reader, self.observer = platform, client, bus, reader, observer
        self.random = random.Random(seed)
        self.hardware: dict[str, NodeHardware] = {}
        self.judge = platform.pids()["health-monitor"]

    async def begin(self) -> None:
        for name in NAMES:
            labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": MODEL, "sandbox.hbox.io/numa": "x"}
            metadata = {"name": name, "labels": labels, "annotations": {"sandbox.hbox.io/numa": json.dumps(NUMA)}}
            spec = {"unschedulable": True} if name == FOREIGN else {}
            status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
            await self.client.json("POST", NODES.path(), body=body)
        for leaf, names in (("leaf-0", BELOW), ("leaf-1", NAMES[len(BELOW) :])):
            pattern = f"^({'|'.join(names)})$"
            members = [{"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}]
            body = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": leaf}}
            await self.client.json("POST", HYPERNODES.path(), body=body | {"spec": {"tier": 1, "members": members}})
        for name in NAMES:
            kubelet = self.platform.state / "kubelets" / name
            await until(kubelet.is_dir, f"the kubelet of {name}", timeout_s=60)
            self.hardware[name] = NodeHardware(kubelet)
        await until(self._reported, "reports of all agents", timeout_s=BOTH_S)

    async def _reported(self) -> bool:
        reports = await self.reports(*NAMES)
        return len(reports) == len(NAMES) and all(one.cards for one in reports.values())

    async def reports(self, *names: str) -> dict[str, HealthReport]:
        """The last report of each node."""
        found = [one.event for one in await self.reader.last(HealthReport, [(name,) for name in names])]
        return {str(one.node): one for one in found if isinstance(one, HealthReport)}

    async def report(self, name: str) -> HealthReport:
        async def found() -> HealthReport | None:
            return (await self.reports(name)).get(name)

        report: HealthReport = await until(found, f"a report of {name}", timeout_s=BOTH_S)
        return report

    def inject(self, fault: Fault, *names: str, adapter: str = "") -> None:
        for name in names:
            Injection(self.hardware[name]).inject(fault, adapter=adapter)

    def incidents(self) -> list[dict[str, Any]]:
        """By the database, also of groups."""
        with closing(sqlite3.connect(f"file:{self.platform.state}/health.db?mode=ro", uri=True, timeout=10)) as database:
            return [json.loads(row[0]) for row in database.execute("select body from incidents").fetchall()]

    def opened(self, before: set[str]) -> list[dict[str, Any]]:
        return [one for one in self.incidents() if one["id"] not in before]

    async def publish(self, node: str, *facts: Fact, boot_id: str, on: str = "") -> None:
        await self.bus.publish(
            HealthReport(node=NodeName(node), boot_id=boot_id, agent=new_id(), facts=facts), NodeName(on or node)
        )

    async def refused(self) -> float:
        """Reports that health-monitor refused so far, by its metrics."""
        address = json.loads((self.platform.state / "platform.json").read_text())["health"]["health-monitor"]
        reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        lines = [line for line in text.splitlines() if line.startswith("hbox_health_reports_refused_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def check(self, what: str) -> None:
        if self.observer.violations:
            raise Violation(f"{what}: {self.observer.violations[:3]}")
        if self.platform.pids()["health-monitor"] != self.judge:
            raise Violation(f"{what}: health-monitor was restarted")

    async def close_all(self) -> None:
        """As an operator, after the agents have reported again."""
        await asyncio.sleep(10)
        for one in self.incidents():
            if one["state"] != "closed":
                words = ("health", "close", one["id"], "--reason", "invented")
                done = await asyncio.to_thread(self.platform.hbox, *words)
                if done.returncode and "closed" not in done.stderr:
                    raise Violation(f"{one['id']} cannot be closed: {done.stderr}")

    async def as_before(self, what: str) -> None:
        """Wait until nothing is restricted and no incident is open."""

        def left() -> str:
            open_ = [
                f"{one['node']} {one['entity']} {one['kind']} {one['code']} {one['state']} {one['held_by']}"
                for one in self.incidents()
                if one["state"] != "closed"
            ]
            return "; ".join([*open_, *self.observer.cordoned, *self.observer.closed])

        end = monotonic_s() + BOTH_S
        while found := left():
            if monotonic_s() > end:
                raise Violation(f"{what} is over, and still there are {found[:500]}")
            await asyncio.sleep(0.2)


def lost(seq: int, card: str = "gpu:GPU-x", pci: str = "0000:18:00") -> Fact:
    """The kernel's record of a card that falls off the bus."""
    value: dict[str, Value] = {"kind": "xid", "code": 79, "pci": pci}
    return Fact(seq, 5.0, Check.KERNEL_LOG, card, "79", value, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")


# --- the faults


async def cards_fall_off(world: World) -> None:
    """All nodes of a leaf report a lost card at once: an agent's release that errs, or that lies."""
    before = {one["id"] for one in world.incidents()}
    world.inject(Fault.XID_79, *BELOW)
    await until(lambda: len({one["node"] for one in world.opened(before)}) == len(BELOW), "incidents", timeout_s=BOTH_S)
    await until(lambda: world.observer.cordoned, "a cordon", timeout_s=BOTH_S)  # else the limit means nothing
    await asyncio.sleep(5)


async def cards_flap(world: World) -> None:
    """Cards of all nodes of a leaf are lost and come back, at random."""
    for _ in range(40):
        hardware = world.hardware[world.random.choice(BELOW)]
        hardware.card(
            next(iter(hardware.listed())), lost=world.random.random() < 0.5, links_down=world.random.choice([(), (0,)])
        )
        await asyncio.sleep(0.3)


async def agents_flap(world: World) -> None:
    """Agents end and start again, with cards that break meanwhile."""
    for _ in range(30):
        name = world.random.choice(BELOW)
        world.hardware[name].agent(world.random.random() < 0.5)
        if world.random.random() < 0.2:
            world.inject(Fault.XID_79, name)
        await asyncio.sleep(0.3)


async def agents_fall_silent(world: World) -> None:
    """The agents of a leaf end together: one incident of the control plane, and no cordon."""
    before, world.observer.most_cordoned = {one["id"] for one in world.incidents()}, 0
    world.inject(Fault.AGENT_KILLED, *BELOW)

    def shared() -> bool:
        return any(one["entity"] == "control-plane" for one in world.opened(before))

    await until(shared, "an incident of the control plane", timeout_s=40 + BOTH_S)
    await asyncio.sleep(3)
    if world.observer.most_cordoned:
        raise Violation("a node was cordoned because its agent is silent")


async def agents_speak_for_others(world: World) -> None:
    """Reports about one node on the subject of another one are refused and counted."""
    before, refused = {one["id"] for one in world.incidents()}, await world.refused()
    for node, other in pairwise(BELOW):
        last = await world.report(other)
        await world.publish(other, lost(last.last_seq + 1), boot_id=last.boot_id, on=node)

    async def counted() -> bool:
        return await world.refused() == refused + len(BELOW) - 1

    await until(counted, "refused reports", timeout_s=BOTH_S)
    if found := world.opened(before):
        raise Violation(f"a report about another node opened {found}")


async def agents_go_back(world: World) -> None:
    """Facts of an earlier boot, and facts whose numbers were seen, count for nothing; a fact with the next number does."""
    node = BELOW[3]
    first = await world.report(node)
    world.hardware[node].boot()

    async def another_boot() -> bool:
        found = await world.report(node)
        return found.boot_id != first.boot_id and found.last_seq > 0

    await until(another_boot, "a report of the new boot", timeout_s=BOTH_S)
    before = {one["id"] for one in world.incidents()}
    last = await world.report(node)
    card = f"gpu:{next(iter(world.hardware[node].listed()))}"
    await world.publish(node, lost(first.last_seq + 1000, card), boot_id=first.boot_id)
    await world.publish(node, lost(last.last_seq, card), boot_id=last.boot_id)
    await world.publish(node, lost(1, card), boot_id=last.boot_id)
    await asyncio.sleep(3)
    if found := world.opened(before):
        raise Violation(f"obsolete facts opened {found}")
    world.hardware[node].agent(False)  # its next report would have the same number
    await world.publish(node, lost(last.last_seq + 1000, card), boot_id=last.boot_id)
    await until(lambda: world.opened(before), "an incident of a fact with a new number", timeout_s=BOTH_S)


async def agents_lie(world: World) -> None:
    """Values of any kind, about cards of others and things that do not exist. The liar's node may be closed, and no other one."""
    node, other = BELOW[5], BELOW[6]
    before = {one["id"] for one in world.incidents()}
    last, cards = await world.report(node), list(world.hardware[other].listed())
    entities = [
        f"gpu:{cards[0]}",
        "gpu:",
        "node",
        "",
        "rail:../../etc",
        "switch:x",
        "mig:x",
        f"node/{other}",
        "\u202e\x00" * 40,
    ]
    values: list[Any] = [None, -1, 2**62, 1e308, "x" * 200, True, tuple(range(64)), {str(i): i for i in range(64)}]
    keys = (
        "kind",
        "code",
        "pci",
        "recovery_action",
        "every_call",
        "count",
        "init",
        "inventory",
        "listed",
        "state",
        "since",
        "leaf",
    )
    seq = last.last_seq + 1000
    for _ in range(60):
        facts = []
        for _ in range(20):
            seq += 1
            check = world.random.choice([*Check, "no-such-check"])
            code = world.random.choice(["79", "card", "cards", "port", "units", "exporter", "hangs:x", "9" * 30, "", "started"])
            value = {key: world.random.choice(values) for key in world.random.sample(keys, 4)}
            at = world.random.choice([0.0, -1e9, 1e18, 5.0])
            facts.append(Fact(seq, at, str(check), world.random.choice(entities), code, value, "\x1b[2J"))
        await world.publish(node, *facts, boot_id=last.boot_id)
    world.hardware[node].agent(False)
    await world.publish(node, Fact(2**62, 5.0, Check.AGENT, "node", "started", {}), boot_id=last.boot_id)
    running = json.loads((world.platform.state / "platform.json").read_text())
    client = await client_of(running, "node-agent")
    try:
        subject = HealthReport.about.subject.format(node=node)
        body = encode(HealthReport(node=NodeName(node), boot_id=last.boot_id, agent="a", facts=(lost(seq + 1),)))
        headers = {
            "ce-type": HealthReport.ce_type(),
            "ce-source": "/hbox/node-agent/1",
            "ce-specversion": "1.0",
            "content-type": "application/msgpack",
        }
        for garbage in (b"", b"\xc1\xc1", body[:-3], body * 2, b"\x81" * 5000):
            await client.publish(subject, garbage, headers=headers | {"ce-id": new_id(), "Nats-Msg-Id": new_id()})
        await client.flush()
    finally:
        await client.close()
    await asyncio.sleep(5)
    if foreign := [one for one in world.opened(before) if one["node"] not in (node, "")]:
        raise Violation(f"lies about {node} opened {foreign}")
    # The judge still judges.
    world.inject(Fault.XID_79, NAMES[-2])
    await until(lambda: any(one["node"] == NAMES[-2] for one in world.opened(before)), "an incident", timeout_s=BOTH_S)


async def a_switch_dies(world: World) -> None:
    """The ports of 20 nodes go down: one incident of the switch, no cordon, and rails off."""
    before, world.observer.most_cordoned = {one["id"] for one in world.incidents()}, 0
    for name in BELOW:
        for adapter in world.hardware[name].adapters():
            world.inject(Fault.NIC_DOWN, name, adapter=adapter)

    def shared() -> list[dict[str, Any]]:
        return [one for one in world.opened(before) if one["entity"].startswith("switch:") and one["state"] != "closed"]

    await until(shared, "an incident of the switch", timeout_s=BOTH_S)
    await asyncio.sleep(10)
    if len(shared()) != 1:
        raise Violation(f"one switch is {len(shared())} incidents")
    if own := [one for one in world.opened(before) if one["node"] and one["state"] != "closed"]:
        raise Violation(f"in addition to the switch's, {len(own)} incidents are open: {own[:2]}")
    if world.observer.most_cordoned:
        raise Violation("a node was cordoned for its switch")


@dataclass(frozen=True, slots=True)
class Sickness:
    name: str
    act: Callable[[World], Awaitable[None]]
    invented: bool = (
        False  #: states of hardware that does not exist, which no agent takes back: an operator closes their incidents
    )


FAULTS = (
    Sickness("agents speak for others", agents_speak_for_others),
    Sickness("agents go back in time", agents_go_back),
    Sickness("agents lie", agents_lie, invented=True),
    Sickness("cards fall off the bus on 20 nodes", cards_fall_off),
    Sickness("cards flap", cards_flap),
    Sickness("agents flap", agents_flap),
    Sickness("a switch takes 20 nodes", a_switch_dies),
    Sickness("agents fall silent together", agents_fall_silent),
)


@asynccontextmanager
async def world_of(folder: Path, seed: int) -> AsyncIterator[World]:
    (folder / "rules").mkdir()
    (folder / "rules" / "policies.yaml").write_text(POLICIES)
    env = SETTINGS | {"HBOX_RULES_FOLDER": str(folder / "rules")}
    platform = await asyncio.to_thread(Up, folder / "state", env=env)
    try:
        running = json.loads((platform.state / "platform.json").read_text())
        access, observer = Access(seed=seed_of(running, "node-agent")), Observer()
        broker = await client_of(running)
        await broker.subscribe(HealthVerdict.filter(), cb=observer.on_verdict)
        async with (
            KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="chaos") as client,
            admin_bus(running) as reader,
            Bus.connect(running["nats_url"], name="node-agent", instance="liar", access=access, ensure=False) as bus,
        ):
            watching = asyncio.create_task(Informer(client, NODES, Node).run(observer.on_nodes))
            try:
                world = World(platform, client, bus, reader, observer, seed)
                await world.begin()
                yield world
            finally:
                watching.cancel()
                await broker.close()
    finally:
        await asyncio.to_thread(platform.stop)


async def campaign(folder: Path, faults: Sequence[Sickness], seed: int, rounds: int = 1) -> int:
    """How many faults there were. Raises Violation."""
    count = 0
    async with world_of(folder, seed) as world:
        for fault in [fault for _ in range(rounds) for fault in faults]:
            begin, world.observer.most_closed, world.observer.most_cordoned = monotonic_s(), 0, 0
            await fault.act(world)
            most = f"at most {world.observer.most_cordoned} cordoned, {world.observer.most_closed} closed"
            await world.check(fault.name)
            world.inject(Fault.REPAIRED, *NAMES)
            if fault.invented:
                await world.close_all()
            await world.as_before(fault.name)
            await world.check(fault.name)
            count += 1
            sys.stdout.write(f"{fault.name}: {most}; {monotonic_s() - begin:.0f} s\n")
            sys.stdout.flush()
    return count


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.sickness", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds of all faults")
    parser.add_argument("--only", default="", help="run only faults whose name contains this")
    parser.add_argument("--seed", type=int, default=1, help="seed of nodes, times and values")
    options = parser.parse_args(argv)
    faults = [fault for fault in FAULTS if options.only in fault.name]
    with tempfile.TemporaryDirectory(prefix="hbox-sickness-") as folder:
        try:
            count = asyncio.run(campaign(Path(folder), faults, options.seed, options.rounds))
        except (Violation, AssertionError) as e:
            sys.stderr.write(f"{e}\n")
            return 1
    sys.stdout.write(f"no violation in {count} faults\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
