"""node-agent as pods on real kubelets, beside a device plugin that lets the kubelet choose: what it reads there, and that the books follow.

HBOX_DEPLOY_KUBELET_CONFIG names the kubelet's configuration on the nodes, where it is not config.yaml in its folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .agents import agent, books, install_with_agents, read
from .cluster import IMAGE, NAMESPACE, TENANT, Cluster, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

PLUGIN = Path(__file__).with_name("device_plugin.py")


#: In an agent's pod: publish about its own node and about another one, with the pod's token; as JSON, what the broker denied.
PUBLISH = """
import asyncio, json, os
from pathlib import Path
from hbox_common.bus import Access, Bus
from hbox_common.bus.errors import NotPermitted
from hbox_common.bus.users import agent_user
from hbox_common.events import HealthReport

async def main():
    node, denied = os.environ["HBOX_NODE_NAME"], []
    access = Access(token=Path(os.environ["HBOX_NATS_TOKEN"]))
    async with Bus.connect("nats://hbox-nats:4222", name="node-agent", instance="test", access=access, user=agent_user(node)) as bus:
        for name in (node, "another-node"):
            try:
                await bus.publish(HealthReport(node=name, boot_id="test", agent="test", facts=()), name, timeout_s=5)
            except NotPermitted:
                denied.append(name)
    print(json.dumps({"node": node, "denied": denied}))

asyncio.run(main())
"""


def plugin(node: str) -> list[dict[str, Any]]:
    """On one node, as root, with the kubelet's folder of plugins."""
    folder = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"}}
    program = {"name": "program", "configMap": {"name": "device-plugin"}}
    container = {
        "name": "plugin", "image": IMAGE, "command": ["python", "/program/device_plugin.py"], "securityContext": {"runAsUser": 0},
        "volumeMounts": [
            {"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"}, {"name": "program", "mountPath": "/program"},
        ],
    }  # fmt: skip
    spec = {"nodeName": node, "containers": [container], "volumes": [folder, program]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "device-plugin", "namespace": NAMESPACE}, "data": {PLUGIN.name: PLUGIN.read_text()}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "device-plugin", "namespace": NAMESPACE}, "spec": spec},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[str]:
    """The name of the one that has the plugin's cards."""
    install_with_agents(cluster)
    name: str = cluster.get("nodes")["items"][0]["metadata"]["name"]
    cluster.apply(*plugin(name))

    def counted() -> bool:
        return bool(cluster.get("node", name)["status"]["allocatable"].get("nvidia.com/gpu") == "4")

    until(counted, timeout_s=120, what=lambda: "the kubelet counts no cards")
    yield name
    cluster.kubectl("delete", "pod", "device-plugin", "-n", NAMESPACE, "--grace-period=1")
    cluster.clear()


def test_every_node_has_an_agent_that_is_ready(cluster: Cluster, node: str) -> None:
    [agents] = cluster.get("daemonsets", "-n", NAMESPACE)["items"]
    assert agents["status"]["numberReady"] == len(cluster.get("nodes")["items"])


def test_the_broker_admits_an_agent_for_its_own_node_only(cluster: Cluster, node: str) -> None:
    printed = cluster.kubectl("exec", "-n", NAMESPACE, agent(cluster, node), "--", "python", "-c", PUBLISH)
    assert json.loads(printed.splitlines()[-1]) == {"node": node, "denied": ["another-node"]}


def test_it_reads_a_real_kubelets_configuration_states_and_socket(cluster: Cluster, node: str) -> None:
    devices, numa = read(cluster, node)
    assert {id_: tuple(part["numa"]) for part in devices["allocatable"] for id_ in part["ids"]} == {
        f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd": (index // 2,) for index in range(4)
    }
    assert (numa["zones"] != [], numa["cpu_state"], numa["memory_state"]) == (True, "none", "None")
    assert numa["rules"] is not None
    assert numa["problems"] == []


def test_the_books_follow_the_cards_that_the_kubelet_gave(cluster: Cluster, node: str) -> None:
    limits = {"nvidia.com/gpu": "1", "cpu": "10m", "memory": "16Mi"}
    for name in ("one", "two", "three"):
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"], "resources": {"limits": limits}}
        spec = {"schedulerName": "hbox", "nodeName": None, "terminationGracePeriodSeconds": 1, "containers": [container]}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TENANT}, "spec": spec})
    until(
        lambda: all(pod["status"]["phase"] == "Running" for pod in cluster.pods(TENANT)),
        timeout_s=120,
        what=lambda: cluster.kubectl("describe", "pods", "-n", TENANT),
    )

    def given() -> dict[str, int]:
        devices, _ = read(cluster, node)
        return {one["pod"]: int(one["devices"][0]["ids"][0][11]) for one in devices["holds"]}

    def booked() -> dict[str, int]:
        return {pod: int(slices.partition(":")[0]) for pod, slices in books(cluster).items()}

    until(lambda: len(given()) == 3, timeout_s=30, what=lambda: f"{given()}")
    until(lambda: booked() == given(), timeout_s=60, what=lambda: f"books {booked()}, kubelet {given()}")
