"""`kubectl get queues` on a real API server, with the definitions that HBox brings and the rights that its ledger has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..e2e.platform_world import Up, until, up
from ..e2e.traced_jobs import node
from .control_plane import control_plane

pytestmark = pytest.mark.e2e

KUBECTL = Path(sys.executable).with_name("kubectl")
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Each service with its own account."""
    with (
        control_plane(tmp_path_factory.mktemp("queues")) as plane,
        up(tmp_path_factory.mktemp("platform") / "state", "--kubeconfig", str(plane.kubeconfig)) as running,
    ):
        running.kubeconfig = plane.kubeconfig  # type: ignore[attr-defined]
        yield running


def kubectl(platform: Up, *words: str, body: Any = None) -> str:
    done = subprocess.run(
        [KUBECTL, "--kubeconfig", platform.kubeconfig, "--cache-dir", platform.state / "kubectl", *words],  # type: ignore[attr-defined]
        input=json.dumps(body) if body is not None else "",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_kubectl_shows_what_queues_use_and_what_is_wrong_with_them(platform: Up) -> None:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1"}
    body = node("n0")
    kubectl(platform, "create", "-f", "-", body={"apiVersion": "v1", "kind": "Node", **body})
    kubectl(
        platform, "patch", "node", "n0", "--subresource=status", "--type=merge", "-p", json.dumps({"status": body["status"]})
    )
    for name, spec in (("research", {"deserved": {GPU: "4"}}), ("lost", {"parent": "nowhere"})):
        kubectl(platform, "create", "-f", "-", body={**head, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
    gang = {"minMember": 2, "queue": "research"}
    kubectl(platform, "create", "-f", "-", body={**head, "kind": "PodGroup", "metadata": {"name": "gang"}, "spec": gang})
    container = {"name": "main", "image": "pause", "resources": {"limits": {"cpu": "1", GPU: "3"}}}
    for number in range(2):
        note = {"scheduling.k8s.io/group-name": "gang"}
        meta = {"name": f"gang-{number}", "annotations": note}
        pod = {"metadata": meta, "spec": {"schedulerName": "hbox", "containers": [container]}}
        kubectl(platform, "create", "-f", "-", body={"apiVersion": "v1", "kind": "Pod", **pod})

    def rows() -> dict[str, list[str]]:
        title, *lines = (line.split() for line in kubectl(platform, "get", "queues").splitlines())
        assert title == ["NAME", "STATE", "PARENT", "DESERVED", "CARDS", "INQUEUE", "RUNNING", "AGE"]
        return {line[0]: line[1:-1] for line in lines}

    wanted = ["Open", "4", "6", "0", "1"]  # without a parent the column is empty
    until(lambda: rows()["research"] == wanted, timeout_s=30, what=f"{wanted}, found {rows()}")
    status = json.loads(kubectl(platform, "get", "queue", "research", "-o", "json"))["status"]
    assert status["allocated"] == {"cpu": "2", "pods": "2", GPU: "6"}

    def events() -> str:
        return kubectl(platform, "describe", "queue", "lost")

    until(lambda: "its parent nowhere does not exist" in events(), timeout_s=30, what="the event")
