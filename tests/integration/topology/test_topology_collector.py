import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import InvalidRequest
from hbox_common.events import FabricChanged, NodeStateChanged
from hbox_common.kube import EVENTS, HYPERNODES, MERGE_PATCH, apply, wait_established
from hbox_common.kube.definitions import HYPER_NODE
from hbox_topology.adapters.poolsfile import pools_file
from hbox_topology.app import run
from hbox_topology.settings import TopologySettings

from ...waiting import until
from ..jobs.edge_world import Kube, listening, process, running


@pytest.fixture
def settings(kubeconfig: Path, nats: EmbeddedServer) -> Any:
    return TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url)


def latest(heard: Any) -> Any:
    return {event.node.name: event.node for event in heard}


async def test_nodes_become_states_and_heartbeats_are_not_said(kube: Kube, bus: Bus, settings: Any) -> None:
    async with running(run, settings), listening(bus, NodeStateChanged) as heard:
        await kube.node("n1", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
        node = await until(lambda: (n := latest(heard).get("n1")) and n.ready and n)
        assert node.allocatable["nvidia.com/gpu"] == 8
        assert [card.memory_mib for card in node.cards] == [81920] * 8
        before = len(heard)
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T13:00:00Z"}
        await kube.patch_node("n1", {"status": {"conditions": [beat]}}, subresource="status")
        await kube.patch_node("n1", {"spec": {"unschedulable": True}})
        await until(lambda: latest(heard)["n1"].unschedulable)
        assert len(heard) == before + 1
        assert latest(heard)["n1"].generation > node.generation
        await kube.delete_node("n1")
        await until(lambda: latest(heard)["n1"].gone)


async def test_a_broken_register_is_a_condition_of_the_node(kube: Kube, bus: Bus, settings: Any) -> None:
    async with running(run, settings), listening(bus, NodeStateChanged) as heard:
        await kube.node("n1", annotations={"hami.io/node-nvidia-register": "broken"})
        node = await until(lambda: (n := latest(heard).get("n1")) and n.ready and n)
        assert (node.cards, node.conditions["hbox.io/InventoryProblem"]) == ((), "True")


async def test_a_restart_says_differences_and_tombstones_only(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer
) -> None:
    for name in ("same", "changed", "deleted"):
        await kube.node(name)
    async with listening(bus, NodeStateChanged) as heard:
        with process("hbox_topology", kubeconfig=kubeconfig, nats_url=nats.url):
            await until(lambda: len(latest(heard)) == 3)
        before = dict(latest(heard))
        await kube.patch_node("changed", {"spec": {"unschedulable": True}})
        await kube.delete_node("deleted")
        await kube.node("new")
        with process("hbox_topology", kubeconfig=kubeconfig, nats_url=nats.url):
            await until(
                lambda: "new" in latest(heard) and latest(heard)["deleted"].gone and latest(heard)["changed"].unschedulable
            )
        after = latest(heard)
        assert after["same"] == before["same"]
        assert all(after[name].generation > before[name].generation for name in ("changed", "deleted"))
        assert len(heard) == 6


async def test_a_broker_that_comes_back_empty_is_filled_again(kube: Kube, tmp_path: Path, kubeconfig: Path) -> None:
    for name in ("n1", "n2"):
        await kube.node(name)
    async with (
        EmbeddedServer(tmp_path / "nats2") as server,
        running(run, TopologySettings(kubeconfig=str(kubeconfig), nats_url=server.url)) as health,
    ):
        await server.kill()
        await until(lambda: not health.ready)
        await kube.patch_node("n2", {"spec": {"unschedulable": True}})
        shutil.rmtree(tmp_path / "nats2")
        async with (
            EmbeddedServer(tmp_path / "nats2", port=server.port) as again,
            Bus.connect(again.url, name="test", instance="test") as bus,
            listening(bus, NodeStateChanged) as heard,
        ):
            await until(lambda: latest(heard).keys() == {"n1", "n2"} and latest(heard)["n2"].unschedulable)
            await until(lambda: health.ready)


async def test_pools_follow_their_file_and_a_wrong_one_changes_nothing(
    kube: Kube, bus: Bus, kubeconfig: Path, nats: EmbeddedServer, tmp_path: Path
) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text("pools:\n- {name: lab, nodes: [n1]}\n")
    settings = TopologySettings(kubeconfig=str(kubeconfig), nats_url=nats.url, pools_file=file)

    def pools(heard: Any) -> dict[str, str]:
        return {name: node.labels.get("hbox.io/pool", "") for name, node in latest(heard).items()}

    async with running(run, settings), listening(bus, NodeStateChanged) as heard:
        await kube.node("n1", labels={"hbox.io/pool": "mine"})
        await kube.node("n2", labels={"team": "vision"})
        await until(lambda: pools(heard) == {"n1": "lab", "n2": ""})
        file.write_text("pools:\n- {name: vision, selector: {matchLabels: {team: vision}}}\n")
        await until(lambda: pools(heard) == {"n1": "mine", "n2": "vision"})
        file.write_text("pools:\n- {name: vision}\n")
        await kube.node("n3", labels={"team": "vision"})
        await until(lambda: pools(heard) == {"n1": "mine", "n2": "vision", "n3": "vision"})
        file.write_text("")
        await until(lambda: pools(heard) == {"n1": "mine", "n2": "", "n3": ""})


async def test_a_file_of_pools_that_is_wrong_at_the_start_ends_it_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text("pools:\n- {name: vision}\n")
    with pytest.raises(
        InvalidRequest,
        match=r"HBOX_POOLS_FILE: .*pools\.yaml: pools\.0: pool vision names neither nodes nor labels",
    ):
        pools_file(file)


def known(heard: Any) -> Any:
    return [event.hypernodes for event in heard]


def hypernode(name: str, *patterns: str) -> dict[str, Any]:
    members = [{"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}} for pattern in patterns]
    meta = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}}
    return {**meta, "spec": {"tier": 1, "members": members}}


async def test_one_hypernodes_pattern_keeps_no_node_and_no_other_hypernode_waiting(kube: Kube, bus: Bus, settings: Any) -> None:
    """`^([a-z0-9.-]+)+X$` on one node of a long name took Python's engine years, and the interpreter with it."""
    await apply(kube.client, HYPER_NODE, field_manager="test")
    await wait_established(kube.client, f"hypernodes.{HYPERNODES.group}")
    async with (
        running(run, settings),
        listening(bus, NodeStateChanged) as heard,
        listening(bus, FabricChanged) as fabric,
    ):
        await kube.client.json("POST", HYPERNODES.path(), body=hypernode("poison", "^([a-z0-9.-]+)+X$"))
        await kube.client.json("POST", HYPERNODES.path(), body=hypernode("wrong", "(?=n)"))
        await kube.client.json("POST", HYPERNODES.path(), body=hypernode("rack", "^node-with-a-long-name-[0-9]"))
        await kube.node("node-with-a-long-name-0123456789.zone.region.example.com")
        await until(lambda: len(latest(heard)) == 1)
        found = await until(lambda: next((f for f in known(fabric) if any(one.nodes for one in f)), None))
        assert {one.name: len(one.nodes) for one in found} == {"poison": 0, "rack": 1, "wrong": 0}


async def test_whoever_wrote_a_hypernode_is_told_what_of_it_counts_for_nothing(kube: Kube, bus: Bus, settings: Any) -> None:
    """However often it changes: an Event a second at most, one object for each HyperNode."""
    await apply(kube.client, HYPER_NODE, field_manager="test")
    await wait_established(kube.client, f"hypernodes.{HYPERNODES.group}")

    async def events() -> dict[str, Any]:
        items = (await kube.client.json("GET", EVENTS.path("default")))["items"]
        return {one["involvedObject"]["name"]: one for one in items if one["reason"] == "HyperNodeProblem"}

    async with running(run, settings), listening(bus, FabricChanged) as fabric:
        await kube.client.json("POST", HYPERNODES.path(), body=hypernode("right", "^n"))
        await kube.client.json("POST", HYPERNODES.path(), body=hypernode("wrong", "(?=n)", "^n", "(" + chr(0x1B) + "[2J"))
        await until(lambda: fabric and len(known(fabric)[-1]) == 2)
        said = (await until(events, "an Event"))["wrong"]
        assert (said["type"], said["involvedObject"]["kind"]) == ("Warning", "HyperNode")
        assert said["message"].startswith("spec.members[0].selector.regexMatch.pattern")
        assert "; spec.members[2].selector.regexMatch.pattern" in said["message"]
        assert said["message"].isprintable()
        for number in range(30):
            body = hypernode("wrong", f"[{number}")
            await kube.client.json("PATCH", HYPERNODES.path(name="wrong"), body=body, content_type=MERGE_PATCH)
            await asyncio.sleep(0.1)

        async def told_last() -> bool:
            return "missing ]: [29" in (await events())["wrong"]["message"]

        await until(told_last)
        assert (await events()).keys() == {"wrong"}
        assert (await events())["wrong"]["count"] < 10
