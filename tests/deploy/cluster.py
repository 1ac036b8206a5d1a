"""kubectl and helm on the cluster that the tests were given."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..version import source

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "hbox"
NAMESPACE = "hbox-system"
RELEASE = "hbox"
TENANT = "tenant"
CARDS = 8
GPU = "nvidia.com/gpu"

#: A kubelet keeps the devices of a plugin that is gone for five minutes (endpointStopGracePeriod).
FORGETS_S = 360

#: One image by two names: an upgrade to the second starts new pods.
IMAGE = "hbox:test"
NEXT = "hbox:test2"

#: The image of the guide, and the image that its first gang runs.
RELEASED = f"hbox:{source(ROOT)}"
BUSYBOX = "busybox:1.36"

SERVICES = ("topology-collector", "job-controller", "scheduler-core", "quota-ledger", "binder", "health-monitor", "console")
WAIT = ("--wait", "--timeout", "5m")

#: What stays after `helm uninstall`, on purpose; the last two are the API server's, for the definitions.
KEPT = frozenset(
    {
        "CustomResourceDefinition /queues.scheduling.volcano.sh",
        "CustomResourceDefinition /podgroups.scheduling.volcano.sh",
        "CustomResourceDefinition /hypernodes.topology.volcano.sh",
        "PriorityClass /high",
        "PriorityClass /medium",
        "PriorityClass /low",
        "PriorityClass /offline",
        "Queue /root",
        "Queue /default",
        "APIService /v1beta1.scheduling.volcano.sh",
        "APIService /v1alpha1.topology.volcano.sh",
    }
)

#: What changes by itself, or tells of what was.
_RESTLESS = ("events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io", "componentstatuses")
_NODE_LEASES = "kube-node-lease"
_PROBE = "asks-for-a-card"


@dataclass(frozen=True, slots=True)
class Cluster:
    kubeconfig: Path

    def kubectl(self, *words: str, stdin: str = "", timeout_s: float = 60, check: bool = True) -> str:
        return self._run("kubectl", *words, stdin=stdin, timeout_s=timeout_s, check=check)

    def shell(self, line: str, timeout_s: float = 400, **env: str) -> str:
        """A line as somebody types it, in the checkout."""
        told = dict(os.environ) | {"KUBECONFIG": str(self.kubeconfig)} | env
        done = subprocess.run(
            ["bash", "-c", line], cwd=ROOT, env=told, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def helm(self, *words: str, timeout_s: float = 400) -> str:
        return self._run("helm", *words, "--namespace", NAMESPACE, timeout_s=timeout_s)

    def _run(self, *words: str, stdin: str = "", timeout_s: float, check: bool = True) -> str:
        env = dict(os.environ) | {"KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False, env=env)
        assert not check or done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def set_cards(self, cards: int) -> None:
        """Gives every node so many cards, in its status: kubelet admits pods that ask for them, once it has forgotten a device plugin that had them."""
        until(
            lambda: not self._remembered(), timeout_s=FORGETS_S, what=lambda: f"plugins are remembered on {self._remembered()}"
        )
        names = [node["metadata"]["name"] for node in self.get("nodes")["items"]]
        patch = [
            {"op": "add", "path": f"/status/{part}/nvidia.com~1gpu", "value": str(cards)}
            for part in ("capacity", "allocatable")
        ]
        for name in names:
            self.kubectl("patch", "node", name, "--subresource=status", "--type=json", "-p", json.dumps(patch))
            if cards:
                until(
                    partial(self._admits, name),
                    timeout_s=60,
                    what=lambda: self.kubectl("describe", "pod", _PROBE, "-n", "default"),
                )

    def _admits(self, node: str) -> bool:
        """Whether its kubelet takes a pod with a card. The first one after a plugin is gone it refuses, and forgets then what pods of the past had."""
        limits = {"cpu": "1m", "memory": "16Mi", GPU: "1"}
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"], "resources": {"limits": limits}}
        about = {"name": _PROBE, "namespace": "default"}
        self.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {"nodeName": node, "containers": [container]}}
        )

        def seen() -> str:
            status = self.get("pod", _PROBE, "-n", "default")["status"]
            return str(status.get("reason", "")) or ("admitted" if status.get("startTime") else "")

        until(lambda: bool(seen()), timeout_s=30, what=lambda: self.kubectl("describe", "pod", _PROBE, "-n", "default"))
        admitted = seen() == "admitted"
        self.kubectl("delete", "pod", _PROBE, "-n", "default", "--force", "--grace-period=0")
        return admitted

    def _remembered(self) -> list[str]:
        """Nodes whose kubelet counts the cards of a plugin that is gone: none of them can be had."""
        statuses = [(node["metadata"]["name"], node["status"]) for node in self.get("nodes")["items"]]
        return [
            name
            for name, status in statuses
            if status["capacity"].get(GPU, "0") != "0" and status["allocatable"].get(GPU, "0") == "0"
        ]

    def objects(self) -> set[str]:
        """Every object there is, as `kind namespace/name`."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        asked = ",".join(kind for kind in kinds if kind not in _RESTLESS)
        text = self.kubectl(
            "get", asked, "-A", "--ignore-not-found", "-o",
            'jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}',
        )  # fmt: skip
        return {line for line in text.splitlines() if _NODE_LEASES not in line}

    def left(self, before: set[str]) -> set[str]:
        """Objects that were not there before, are no tenant's and were not to stay."""
        return {line for line in self.objects() - before if f" {TENANT}/" not in line} - KEPT

    def make_namespaces(self) -> None:
        """HBox's, where pods have to be restricted, and a tenant's."""
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}},
        )

        def accounts() -> int:
            wanted = ("get", "serviceaccounts", "default", "--ignore-not-found", "-o", "name")
            return sum(bool(self.kubectl(*wanted, "-n", namespace)) for namespace in (NAMESPACE, TENANT))

        until(lambda: accounts() == 2, timeout_s=30, what=lambda: "no default account in a new namespace")

    def pods(self, namespace: str, *words: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.get("pods", "-n", namespace, *words)["items"]
        return pods

    def running(self, name: str, members: int, *, timeout_s: float = 120) -> list[dict[str, Any]]:
        """The pods of that gang of the tenant's, waited for until all of them run."""
        mine = ("-n", TENANT, "-l", f"gang={name}")

        def good() -> bool:
            pods = self.pods(*mine[1:])
            return len(pods) == members and all(pod["status"]["phase"] == "Running" for pod in pods)

        until(good, timeout_s=timeout_s, what=lambda: self.kubectl("describe", "pods", *mine)[-3000:])
        return self.pods(*mine[1:])

    def assert_no_restarts(self) -> None:
        for pod in self.pods(NAMESPACE, "-l", "app.kubernetes.io/instance=hbox"):
            for container in pod["status"].get("containerStatuses", ()):
                assert container["restartCount"] == 0, (pod["metadata"]["name"], container)

    def clear(self) -> None:
        """What a failed test left; whoever gave us the cluster wants it back."""
        env = dict(os.environ) | {"KUBECONFIG": str(self.kubeconfig)}
        for words in (
            ["helm", "uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait"],
            ["kubectl", "delete", "job,podgroup", "first-gang", "--namespace", "default", "--ignore-not-found"],
            ["kubectl", "delete", "namespace", NAMESPACE, TENANT, "gpu-platform", "--ignore-not-found", "--timeout=90s"],
        ):
            subprocess.run(words, capture_output=True, timeout=200, check=False, env=env)


def gang(name: str, *, members: int, cards: int, image: str, namespace: str = TENANT) -> list[dict[str, Any]]:
    """A PodGroup and its pods, which sleep."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": members, "queue": "default"},
    }
    limits = {"cpu": "10m", "memory": "16Mi", "nvidia.com/gpu": str(cards)}
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
        "resources": {"limits": limits},
    }
    return [
        group,
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{i}",
                    "namespace": namespace,
                    "annotations": {"scheduling.k8s.io/group-name": name},
                    "labels": {"gang": name},
                },
                "spec": {"schedulerName": "hbox", "restartPolicy": "Never", "containers": [container]},
            }
            for i in range(members)
        ),
    ]


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def until(good: Callable[[], bool], *, timeout_s: float, what: Callable[[], str]) -> None:
    end = time.monotonic() + timeout_s
    while not good():
        assert time.monotonic() < end, what()
        time.sleep(0.5)
