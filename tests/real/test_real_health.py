"""Cordons and taints of ours on a real API server: with those of others, with writers that cause conflicts, and while the API server is away.

node-agent reads the hardware of emulated nodes and publishes what it finds; health-monitor judges; the binder writes. kwok keeps the nodes ready. For AWAY_S
there is no API server, and faults begin and end. WITHIN_S after its return all nodes have to be as intended. No cordon and no taint of another client may
change at any time.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from uuid import NAMESPACE_DNS, uuid5

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError
from hbox_common.events import NodeStateChanged
from hbox_common.kube import MERGE_PATCH, NODES, Delta, Informer, KubeClient, Node
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    ContainerDevices,
    encode_allocatable,
    encode_list,
    listening,
)
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.kubelet.inject import Fault, Injection

from .. import forked
from ..broker import admin_bus, seed_of
from ..e2e.platform_world import SLOWER, Up, up
from ..waiting import until
from .control_plane import api_server, control_plane, kill_api_server

pytestmark = pytest.mark.e2e

AWAY_S, WITHIN_S, STABLE_S = 60.0, 30.0 * SLOWER, 10.0
OWNER = "hbox-health-monitor"
#: What the tests do to each node, by its name.
NAMES = (
    "hand-sick",  # cordoned by hand, then faulty
    "heals-away",  # cordoned by us, heals while the API server is away
    "link-heals-away",  # tainted by us, heals while the API server is away
    "breaks-away",
    "link-breaks-away",
    "breaks-and-heals-away",
    "hand-breaks-away",  # cordoned by hand before, breaks while the API server is away
    "opened-by-hand",  # cordoned by us, then uncordoned by hand
    "well",
)
#: Taints of others: also one with our key and another effect.
FOREIGN = (
    {"key": "example.com/team", "value": "a", "effect": "NoSchedule"},
    {"key": "hbox.io/health", "value": "theirs", "effect": "NoSchedule"},
)
BY_HAND = ("hand-sick", "hand-breaks-away")
OURS = {"key": "hbox.io/health", "value": "degraded", "effect": "PreferNoSchedule"}
FAST = {"HBOX_NVML_POLL_S": "0.5", "HBOX_VALIDATED_S": "1", "HBOX_MAX_CORDONED_FRACTION": "1"}
POLICIES = "{limits: {least: 50, unit_share: 1, window_s: 1}, waits: {nvml-nvlink: 1}}"


class World:
    def __init__(self, client: KubeClient, stack: AsyncExitStack, folder: Path) -> None:
        self.client, self.stack, self.kubelets = client, stack, folder / "kubelets"
        self.violations: list[str] = []
        self.watched = 0

    async def begin(self) -> None:
        size = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
        for name in NAMES:
            labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
            spec = {"taints": list(FOREIGN), **({"unschedulable": True} if name in BY_HAND else {})}
            body = {
                "metadata": {"name": name, "labels": labels},
                "spec": spec,
                "status": {"capacity": size, "allocatable": size},
            }
            await self.client.json("POST", NODES.path(), body={"apiVersion": "v1", "kind": "Node"} | body)
            root = self.kubelets / name
            (root / "host/dev").mkdir(parents=True)
            (root / "host/proc/sys/kernel/random").mkdir(parents=True)
            hardware = NodeHardware(root)
            uuids = [f"GPU-{uuid5(NAMESPACE_DNS, f'{name}-{index}')}" for index in range(8)]
            hardware.cards({uuid: f"0000:{0x18 + index:02x}:00.0" for index, uuid in enumerate(uuids)})
            hardware.boot()
            await self._kubelet(root, uuids)

    async def _kubelet(self, root: Path, uuids: Sequence[str]) -> None:
        """The socket of the node's kubelet, which has these cards and no pods. kwok has none."""
        devices = AllocatableResources(devices=(ContainerDevices("nvidia.com/gpu", tuple(uuids)),))

        async def list_pods(_: bytes) -> bytes:
            return encode_list(())

        async def allocatable(_: bytes) -> bytes:
            return encode_allocatable(devices)

        methods = {LIST: list_pods, ALLOCATABLE: allocatable}
        await self.stack.enter_async_context(listening(root / "pod-resources" / "kubelet.sock", methods))

    async def until_cards_known(self, bus: Bus) -> None:
        """Wait until topology-collector knows the cards by their UUIDs."""

        async def known() -> bool:
            nodes = [one.event for one in await bus.last(NodeStateChanged, [(name,) for name in NAMES])]
            by_uuid = [
                one for one in nodes if isinstance(one, NodeStateChanged) and all("GPU-" in card.id for card in one.node.cards)
            ]
            return len(by_uuid) == len(NAMES)

        await until(known, "cards by their UUIDs", timeout_s=60)

    def inject(self, fault: Fault, *names: str) -> None:
        for name in names:
            Injection(NodeHardware(self.kubelets / name)).inject(fault)

    async def states(self) -> dict[str, str]:
        return {one["metadata"]["name"]: state_of(one) for one in (await self.client.json("GET", NODES.path()))["items"]}

    async def until_states(self, timeout_s: float, **expected: str) -> None:
        wanted = {name.replace("_", "-"): state for name, state in expected.items()}
        found: dict[str, str] = {}

        async def reached() -> bool:
            nonlocal found
            found = await self.states()
            return wanted.items() <= found.items()

        try:
            await until(reached, timeout_s=timeout_s)
        except AssertionError:
            pytest.fail(f"not within {timeout_s:g} s: {wanted.items() - found.items()}, found {found}")

    # --- others

    async def beat(self, name: str) -> NoReturn:
        """Writes the node again and again, so that a resourceVersion is soon obsolete."""
        count = 0
        while True:
            count += 1
            body = {"metadata": {"annotations": {"example.com/beat": str(count)}}}
            with suppress(HBoxError):
                await self.client.json("PATCH", NODES.path(name=name), body=body, content_type=MERGE_PATCH)
            await asyncio.sleep(0.01)

    async def rewrite(self, name: str) -> NoReturn:
        """Reads and writes the whole node, as many controllers do: with a taint more, then without it."""
        busy = {"key": "example.com/busy", "value": "", "effect": "PreferNoSchedule"}
        while True:
            with suppress(HBoxError):
                node = await self.client.json("GET", NODES.path(name=name))
                taints = [one for one in node["spec"].get("taints", []) if one["key"] != busy["key"]]
                node["spec"]["taints"] = taints if len(taints) < len(node["spec"].get("taints", [])) else [*taints, busy]
                await self.client.json("PUT", NODES.path(name=name), body=node)
            await asyncio.sleep(0.2)

    async def on_nodes(self, deltas: Sequence[Delta[Node]]) -> None:
        """Each version of a node that a watch shows."""
        for node in (delta.new for delta in deltas if delta.new is not None):
            self.watched += 1
            name = node.metadata.name
            shown = {(taint.key, taint.value, taint.effect) for taint in node.spec.taints}
            if not {(one["key"], one["value"], one["effect"]) for one in FOREIGN} <= shown:
                self.violations.append(f"{name}: a taint of another client is missing in {shown}")
            if name in BY_HAND and (not node.spec.unschedulable or "hbox.io/cordoned-by" in node.metadata.annotations):
                self.violations.append(f"{name}: the cordon by hand was changed")


def state_of(node: dict[str, Any]) -> str:
    """Who cordoned a node, and the taint of ours."""
    by = node["metadata"].get("annotations", {}).get("hbox.io/cordoned-by", "")
    closed = "open" if not node["spec"].get("unschedulable") else {OWNER: "ours", "": "hand"}.get(by, by)
    marks = " with marks" if closed == "open" and by else ""
    return closed + marks + (" degraded" if OURS in node["spec"].get("taints", []) else "")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """One of its own, since its API server is killed."""
    with control_plane(tmp_path / "plane") as own:
        yield own


@asynccontextmanager
async def world_of(plane: ControlPlane, tmp_path: Path, platform: Up) -> AsyncIterator[World]:
    running = json.loads((platform.state / "platform.json").read_text())
    async with (
        KubeClient.connect(str(plane.kubeconfig), user_agent="observer", timeout_s=10) as client,
        AsyncExitStack() as stack,
    ):
        world = World(client, stack, tmp_path)
        await world.begin()
        log = tmp_path / "agent.log"
        log.touch()
        env = FAST | {
            "HBOX_NATS_URL": running["nats_url"], "HBOX_NATS_SEED": str(seed_of(running, "node-agent")), "HBOX_HEALTH_PORT": "0",
            "HBOX_KUBELETS": str(world.kubelets), "PATH": os.environ["PATH"],
        }  # fmt: skip
        stack.callback(forked.service("hbox_agent", env=env, out=log, err=log).kill)
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(Informer(client, NODES, Node).run(world.on_nodes))]
            others += [tasks.create_task(write(name)) for name in NAMES for write in (world.beat, world.rewrite)]
            async with admin_bus(running) as bus:
                await world.until_cards_known(bus)
            yield world
            for task in others:
                task.cancel()


def conflicts(plane: ControlPlane) -> int:
    """Writes of nodes by the binder that the API server refused, since another client had written the node."""
    events = map(json.loads, plane.audit_log.read_text().splitlines())
    return sum(
        one.get("userAgent", "").startswith("hbox-binder")
        and one["verb"] == "patch"
        and (one.get("objectRef") or {}).get("resource") == "nodes"
        and one.get("responseStatus", {}).get("code") == 409
        for one in events
    )


async def test_nodes_are_as_intended_soon_after_the_api_server_returns(plane: ControlPlane, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "policies.yaml").write_text(POLICIES)
    words = ("--kubeconfig", str(plane.kubeconfig), "--as-given")
    with up(tmp_path / "state", *words, env=FAST | {"HBOX_RULES_FOLDER": str(rules)}) as platform:
        async with world_of(plane, tmp_path, platform) as world, AsyncExitStack() as stack:
            await world.until_states(60, well="open", hand_sick="hand")
            world.inject(Fault.XID_79, "hand-sick", "heals-away", "opened-by-hand")
            world.inject(Fault.NVLINK_DOWN, "link-heals-away")
            await world.until_states(60, heals_away="ours", opened_by_hand="ours", link_heals_away="open degraded")
            await world.client.json(
                "PATCH", NODES.path(name="opened-by-hand"), body={"spec": {"unschedulable": None}}, content_type=MERGE_PATCH
            )
            await world.until_states(60, opened_by_hand="open", hand_sick="hand")

            kill_api_server(plane)
            begin = monotonic_s()
            world.inject(Fault.XID_79, "breaks-away", "breaks-and-heals-away", "hand-breaks-away")
            world.inject(Fault.NVLINK_DOWN, "link-breaks-away")
            world.inject(Fault.REPAIRED, "heals-away", "link-heals-away")
            await asyncio.sleep(AWAY_S / 2)
            world.inject(Fault.REPAIRED, "breaks-and-heals-away")
            await asyncio.sleep(begin + AWAY_S - monotonic_s())
            started = monotonic_s()
            await stack.enter_async_context(api_server(plane))
            ready = monotonic_s()

            expected = {
                "hand_sick": "hand", "heals_away": "open", "link_heals_away": "open", "breaks_away": "ours", "link_breaks_away": "open degraded",
                "breaks_and_heals_away": "open", "hand_breaks_away": "hand", "opened_by_hand": "open", "well": "open",
            }  # fmt: skip
            await world.until_states(WITHIN_S, **expected)
            times = f"{monotonic_s() - started:.1f} s after the start of the API server, {monotonic_s() - ready:.1f} s after it was ready"
            print(f"as intended {times}; {conflicts(plane)} conflicts")
            await asyncio.sleep(STABLE_S)
            assert {name.replace("-", "_"): state for name, state in (await world.states()).items()} == expected
            assert world.violations == []
            assert world.watched > 100
            assert conflicts(plane) > 0, "no writer interfered"
