"""HBox with an agent on every node, and what agents and ledger say of a node's devices.

HBOX_DEPLOY_KUBELET_CONFIG names the kubelet's configuration on the nodes, where it is not config.yaml in its folder.
"""

from __future__ import annotations

import json
import os
from typing import Any

from .cluster import CHART, IMAGE, NAMESPACE, RELEASE, WAIT, Cluster

PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
CONFIG = os.environ.get("HBOX_DEPLOY_KUBELET_CONFIG", "")

#: In the agent's pod: what it reads, as JSON.
READ = """
import asyncio, dataclasses, json, pathlib, os
from hbox_agent.adapters.host import read_machine
from hbox_agent.adapters.kubelet import Kubelet
root = pathlib.Path("/var/lib/kubelet")
config = pathlib.Path("/host/kubelet-config/config.yaml")
name = os.environ["HBOX_NODE_NAME"]
devices = asyncio.run(Kubelet(name, root).ask())
numa = read_machine(name, host=pathlib.Path("/"), kubelet=root, config=config if config.exists() else None, at=0.0)
print(json.dumps([dataclasses.asdict(devices), dataclasses.asdict(numa)]))
"""
#: In the ledger's pod, which hears claims: the cards of a pod by the books.
BOOKS = """
import json, sqlite3
rows = sqlite3.connect("file:/data/ledger.db?mode=ro", uri=True).execute("SELECT pod, slices, reason FROM claims WHERE state <> 'void'").fetchall()
print(json.dumps(rows))
"""


def install_with_agents(cluster: Cluster, **more: str) -> None:
    """Anew, in namespaces that take pods of every kind. `more`: values by their path, with `__` for its dots."""
    cluster.clear()
    cluster.make_namespaces()
    cluster.kubectl("label", "namespace", NAMESPACE, *(f"{k}={v}" for k, v in PRIVILEGED.items()), "--overwrite")
    repository, _, tag = IMAGE.partition(":")
    values = {
        "profile": "dev", "image.repository": repository, "image.tag": tag, "services.node-agent.enabled": "true",
        "services.node-agent.kubeletConfig": CONFIG, **{key.replace("__", "."): value for key, value in more.items()},
    }  # fmt: skip
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    cluster.helm("upgrade", "--install", RELEASE, str(CHART), *words, *WAIT)


def agent(cluster: Cluster, node: str) -> str:
    [pod] = [
        pod["metadata"]["name"]
        for pod in cluster.pods(NAMESPACE, "-l", "app.kubernetes.io/component=node-agent")
        if pod["spec"]["nodeName"] == node
    ]
    return str(pod)


def read(cluster: Cluster, node: str) -> tuple[dict[str, Any], dict[str, Any]]:
    devices, numa = json.loads(cluster.kubectl("exec", "-n", NAMESPACE, agent(cluster, node), "--", "python", "-c", READ))
    return devices, numa


def books(cluster: Cluster) -> dict[str, str]:
    """The slices of each pod, by the ledger's books: `index:cores:MiB[:part]`, joined by commas."""
    said = cluster.kubectl("exec", "-n", NAMESPACE, f"deployment/{RELEASE}-quota-ledger", "--", "python", "-c", BOOKS)
    return {pod: slices for pod, slices, _ in json.loads(said) if slices}
