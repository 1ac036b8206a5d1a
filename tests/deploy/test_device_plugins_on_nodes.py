"""Slices, whole cards and MIG instances on a real kubelet, handed over by a device plugin as HAMi's: what HBox chose is in the containers' environment, and the
kubelet and the ledger's books name the same cards.

Two plugins go through the same stories:

- the sandbox's (`hbox_sandbox.kubelet.served`), with cards that are not there;
- HAMi's own, where HBOX_HAMI_PLUGIN names a folder on the nodes with its program `device-plugin`, built from HAMi's sources, and a `libnvidia-ml.so.1` in which
  it finds cards (`tests/deploy/nvml` has the source of one for machines without cards).

Volcano's (volcano-vgpu-device-plugin, HBOX_VOLCANO_PLUGIN names such a folder) has one of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from .agents import books, install_with_agents, read
from .cluster import GPU, IMAGE, NAMESPACE, TENANT, Cluster, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

MEM, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
REGISTER, LOCK, PHASE = "hami.io/node-nvidia-register", "hami.io/mutex.lock", "hami.io/bind-phase"
INSTANCES = "hami.io/vgpu-mig-allocations"
VOLCANOS_REGISTER, VOLCANOS_LOCK = "volcano.sh/node-vgpu-register", "hamivgpu"
PLUGIN = "device-plugin"
KUBELET = "/var/lib/kubelet"
PLUGINS = f"{KUBELET}/device-plugins"

HAMI = os.environ.get("HBOX_HAMI_PLUGIN", "")
hami = pytest.mark.skipif(
    not HAMI, reason="HBOX_HAMI_PLUGIN is not set: a folder on the nodes with HAMi's device-plugin and a libnvidia-ml.so.1"
)
HOOK = f"{KUBELET}/hami"
DEVICE_CONFIG = """
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceMemoryPercentageName: nvidia.com/gpumem-percentage
  resourceCoreName: nvidia.com/gpucores
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  memoryFactor: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
  gpuCorePolicy: default
  libCudaLogLevel: 1
  migProfileAllowlist:
  - models: [A100-SXM4-40GB]
    profiles: [1g.5gb, 2g.10gb, 3g.20gb, 7g.40gb]
"""


@dataclass(frozen=True)
class World:
    cluster: Cluster
    node: str

    def annotation(self, name: str) -> str:
        return str(self.cluster.get("node", self.node)["metadata"].get("annotations", {}).get(name, ""))

    def cards(self) -> list[str]:
        """The ids of the node's cards, by index."""
        notes = self.cluster.get("node", self.node)["metadata"].get("annotations", {})
        found = json.loads(notes.get(REGISTER) or "[]")
        return [card["id"] for card in sorted(found, key=lambda card: int(card.get("index", 0)))]

    def lock(self) -> str:
        return str(self.cluster.get("node", self.node)["metadata"].get("annotations", {}).get(LOCK, ""))

    def ready_with(self, *objects: dict[str, Any], slots: int) -> None:
        """Starts a plugin; returns when the kubelet counts its slots."""
        self.cluster.apply(*objects)
        until(
            lambda: self.cluster.get("node", self.node)["status"]["allocatable"].get(GPU) == str(slots) and bool(self.cards()),
            timeout_s=120,
            what=lambda: self.cluster.kubectl("logs", "-n", NAMESPACE, PLUGIN, "--tail=50"),
        )

    def end_plugin(self) -> None:
        self.cluster.kubectl("delete", "pod", PLUGIN, "-n", NAMESPACE, "--grace-period=1", "--ignore-not-found")
        self.cluster.kubectl("annotate", "node", self.node, f"{REGISTER}-", f"{VOLCANOS_REGISTER}-")

    def create(self, name: str, *containers: dict[str, str], **notes: str) -> None:
        spec = {
            "schedulerName": "hbox",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": f"c{i}", "image": IMAGE, "command": ["sleep", "600"],
                    "resources": {"limits": {"cpu": "10m", "memory": "16Mi"} | limits},
                }
                for i, limits in enumerate(containers)
            ],
        }  # fmt: skip
        metadata = {"name": name, "namespace": TENANT, "annotations": notes}
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def run(self, name: str, *containers: dict[str, str], **notes: str) -> None:
        """Creates a pod, and waits until it runs."""
        self.create(name, *containers, **notes)
        self.runs(name)

    def runs(self, name: str) -> None:
        """Waits until the pod does."""

        def phase() -> str:
            return str(self.cluster.get("pod", name, "-n", TENANT)["status"]["phase"])

        until(
            lambda: phase() != "Pending",
            timeout_s=120,
            what=lambda: self.cluster.kubectl("describe", "pod", name, "-n", TENANT),
        )
        assert phase() == "Running", self.cluster.kubectl("describe", "pod", name, "-n", TENANT)

    def notes(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.cluster.get("pod", name, "-n", TENANT)["metadata"]["annotations"]
        return found

    def chosen(self, name: str) -> list[tuple[str, int, int]]:
        """The cards of a pod as HBox chose them: id, percent of its compute, MiB."""
        slices = [one.split(":") for one in self.notes(name)["hbox.io/cards"].split(",")]
        return [(one[1], int(one[2]), int(one[3])) for one in slices]

    def environment(self, name: str, container: int = 0) -> dict[str, str]:
        """What the plugin had put into a container, read in the container."""
        text = self.cluster.kubectl("exec", name, "-n", TENANT, "-c", f"c{container}", "--", "env")
        pairs = dict(line.partition("=")[::2] for line in text.splitlines())
        return {key: value for key, value in pairs.items() if key == "NVIDIA_VISIBLE_DEVICES" or key.startswith("CUDA_DEVICE_")}

    def held(self, name: str) -> list[str]:
        """The ids of the cards whose slots the kubelet gave to a pod, as node-agent reads them."""
        devices, _ = read(self.cluster, self.node)
        slots = [
            slot
            for one in devices["holds"]
            if one["pod"] == name
            for part in one["devices"]
            if part["resource"] == GPU
            for slot in part["ids"]
        ]
        return sorted(slot.rpartition("-")[0] for slot in slots)

    def booked(self, name: str) -> None:
        """The books have the cards that stand on the pod, and the handshake is over."""
        wanted = self.notes(name)["hbox.io/cards"]
        until(
            lambda: books(self.cluster).get(name) == wanted,
            timeout_s=30,
            what=lambda: f"{books(self.cluster)}, and not {wanted}",
        )
        assert self.notes(name)[PHASE] == "success"
        until(lambda: self.lock() == "", timeout_s=10, what=self.lock)

    def all_agree(self, name: str) -> None:
        """So do the slots that the kubelet gave out."""
        self.booked(name)
        assert self.held(name) == sorted(uuid for uuid, _, _ in self.chosen(name))


def folder(name: str, path: str, kind: str = "Directory") -> tuple[dict[str, Any], dict[str, Any]]:
    """A folder of the node: volume, and where it is mounted."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}, {"name": name, "mountPath": path}


def on_node(
    node: str, command: list[str], env: dict[str, str], *folders: tuple[dict[str, Any], dict[str, Any]], image: str = IMAGE
) -> list[dict[str, Any]]:
    """A plugin's pod, as root, with the rights that HAMi's has."""
    about = {"name": PLUGIN, "namespace": NAMESPACE}
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"test-{PLUGIN}"}
    container = {
        "name": "plugin", "image": image, "command": command, "securityContext": {"runAsUser": 0},
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [mount for _, mount in folders],
    }  # fmt: skip
    spec = {
        "nodeName": node, "serviceAccountName": PLUGIN, "containers": [container], "volumes": [volume for volume, _ in folders],
    }  # fmt: skip
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {"apiVersion": role["apiGroup"] + "/v1", "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": rules},
        {
            "apiVersion": role["apiGroup"] + "/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role["name"]}, "roleRef": role,
            "subjects": [{"kind": "ServiceAccount"} | about],
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[World]:
    install_with_agents(cluster)
    name: str = cluster.get("nodes")["items"][0]["metadata"]["name"]
    yield World(cluster, name)
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", f"test-{PLUGIN}", "--ignore-not-found")
    cluster.clear()


@pytest.fixture(autouse=True)
def cleared(installed: World) -> Iterator[None]:
    yield
    installed.cluster.kubectl("delete", "pods", "--all", "-n", TENANT, "--grace-period=1")
    installed.end_plugin()


def sandbox(world: World, mode: str) -> None:
    command = ["python", "-m", "hbox_sandbox.kubelet.served", "--node", world.node, "--cards", "4", "--mode", mode]
    slots = 4 * (7 if mode == "mig" else 10)
    world.ready_with(*on_node(world.node, command, {}, folder("plugins", PLUGINS)), slots=slots)


def story_of_slices_and_whole_cards(world: World) -> None:
    world.run("slice", {GPU: "1", MEM: "4000", CORES: "30"})
    [(card, cores, memory)] = world.chosen("slice")
    assert (cores, memory) == (30, 4000)
    wanted = {"NVIDIA_VISIBLE_DEVICES": card, "CUDA_DEVICE_MEMORY_LIMIT_0": "4000m", "CUDA_DEVICE_SM_LIMIT": "30"}
    assert wanted.items() <= world.environment("slice").items()

    world.run("whole", {GPU: "2"})
    (one, _, memory), (two, _, _) = world.chosen("whole")
    assert card not in (one, two)
    found = world.environment("whole")
    assert set(found["NVIDIA_VISIBLE_DEVICES"].split(",")) == {one, two}
    assert (found["CUDA_DEVICE_MEMORY_LIMIT_0"], found["CUDA_DEVICE_MEMORY_LIMIT_1"]) == (f"{memory}m", f"{memory}m")

    world.run("two", {GPU: "1", MEM: "3000", CORES: "20"}, {GPU: "1", MEM: "5000", CORES: "40"})
    first, second = world.environment("two", 0), world.environment("two", 1)
    assert (first["CUDA_DEVICE_MEMORY_LIMIT_0"], second["CUDA_DEVICE_MEMORY_LIMIT_0"]) == ("3000m", "5000m")
    assert {first["NVIDIA_VISIBLE_DEVICES"], second["NVIDIA_VISIBLE_DEVICES"]} == {uuid for uuid, _, _ in world.chosen("two")}


def story_of_instances(world: World) -> None:
    world.run("mig", {GPU: "1", MEM: "4000"})
    world.run("large", {GPU: "1", MEM: "18000"})
    for name, profile in (("mig", "1g.5gb"), ("large", "3g.20gb")):
        [(card, _, _)] = world.chosen(name)
        [made] = json.loads(world.notes(name)[INSTANCES])
        assert (made["gpuUUID"], made["profile"]) == (card, profile)
        assert made["migUUID"].startswith("MIG-")
        assert world.environment(name)["NVIDIA_VISIBLE_DEVICES"] == made["migUUID"]
        world.booked(name)


def test_a_slice_and_two_whole_cards_run_with_what_was_chosen(installed: World) -> None:
    sandbox(installed, "hami-core")
    story_of_slices_and_whole_cards(installed)
    for name in ("slice", "whole"):
        installed.all_agree(name)


def test_instances_run_with_what_was_chosen(installed: World) -> None:
    sandbox(installed, "mig")
    story_of_instances(installed)
    for name in ("mig", "large"):
        installed.all_agree(name)


VOLCANO = os.environ.get("HBOX_VOLCANO_PLUGIN", "")
VOLCANOS_CONFIG = """
nvidia:
  resourceCountName: volcano.sh/vgpu-number
  resourceMemoryName: volcano.sh/vgpu-memory
  resourceMemoryPercentageName: volcano.sh/vgpu-memory-percentage
  resourceCoreName: volcano.sh/vgpu-cores
  defaultGPUNum: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
  gpuMemoryFactor: 1
"""


def hamis_own(world: World, mode: str, *, prefers: bool, image: str = IMAGE) -> None:
    told = {"nodeconfig": [{"name": world.node, "operatingmode": mode, "enablegetpreferredallocation": prefers}]}
    files = {"config.json": json.dumps(told), "device-config.yaml": DEVICE_CONFIG}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hami", "namespace": NAMESPACE}, "data": files}
    program = f"{HAMI}/device-plugin --device-discovery-strategy nvml --config-file /config/device-config.yaml -v 3"
    start = f"mkdir -p {HOOK}/vgpu && touch {HOOK}/vgpu/libvgpu.so {HOOK}/vgpu/ld.so.preload && exec {program}"
    env = {
        "NODE_NAME": world.node, "HOOK_PATH": HOOK, "LD_LIBRARY_PATH": HAMI, "CONFIG_FILE": "/config/device-config.yaml",
        "DP_DISABLE_HEALTHCHECKS": "all", "FAKE_GPUS": "4",
    }  # fmt: skip
    mounted = {"name": "config", "configMap": {"name": "hami"}}, {"name": "config", "mountPath": "/config"}
    folders = (
        folder("plugins", PLUGINS),
        folder("hami", HAMI),
        folder("hook", HOOK, "DirectoryOrCreate"),
        folder("lock", "/tmp/vgpulock", "DirectoryOrCreate"),
        mounted,
    )
    world.ready_with(config, *on_node(world.node, ["sh", "-c", start], env, *folders, image=image), slots=40)


@hami
def test_hamis_own_plugin_hands_over_slices_and_whole_cards(installed: World) -> None:
    """As its chart has it: the kubelet's slots say nothing of the cards."""
    hamis_own(installed, "hami-core", prefers=False)
    story_of_slices_and_whole_cards(installed)
    for name in ("slice", "whole", "two"):
        installed.booked(name)


@hami
def test_hamis_own_plugin_makes_the_instances_that_were_chosen(installed: World) -> None:
    hamis_own(installed, "mig", prefers=True)
    story_of_instances(installed)
    for name in ("mig", "large"):
        installed.all_agree(name)


volcano = pytest.mark.skipif(
    not VOLCANO,
    reason="HBOX_VOLCANO_PLUGIN is not set: a folder on the nodes with Volcano's device-plugin and a libnvidia-ml.so.1",
)


def volcanos_own(world: World, *, image: str = IMAGE) -> None:
    """One card: its memory is devices too, and kubelets take no lists beyond 60,000."""
    about = {"name": "volcano-vgpu-device-config", "namespace": "kube-system"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"device-config.yaml": VOLCANOS_CONFIG}}
    program = f"{VOLCANO}/device-plugin --device-discovery-strategy nvml"
    start = f"mkdir -p {HOOK} && touch {HOOK}/libvgpu.so {HOOK}/ld.so.preload && exec {program}"
    env = {
        "NODE_NAME": world.node, "HOOK_PATH": HOOK, "LD_LIBRARY_PATH": VOLCANO, "DP_DISABLE_HEALTHCHECKS": "all", "FAKE_GPUS": "1",
    }  # fmt: skip
    folders = (
        folder("plugins", PLUGINS),
        folder("volcano", VOLCANO),
        folder("hook", HOOK, "DirectoryOrCreate"),
        folder("lock", "/tmp/vgpulock", "DirectoryOrCreate"),
    )
    world.cluster.apply(config, *on_node(world.node, ["sh", "-c", start], env, *folders, image=image))

    def counted() -> bool:
        has = world.cluster.get("node", world.node)["status"]["allocatable"]
        return bool(world.annotation(VOLCANOS_REGISTER)) and all(
            has.get(f"volcano.sh/vgpu-{of}", "0") != "0" for of in ("number", "memory", "cores")
        )

    until(counted, timeout_s=120, what=lambda: world.cluster.kubectl("logs", "-n", NAMESPACE, PLUGIN, "--tail=50"))


@volcano
def test_volcanos_plugin_hands_pods_of_one_second_their_own_cards(installed: World) -> None:
    """It tells pods apart by seconds and numbers of cards alone."""
    cluster = installed.cluster
    volcanos_own(installed)
    asked = {f"v{i}": 2000 + 500 * i for i in range(6)}
    for name, memory in asked.items():
        installed.create(
            name, {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(memory), "volcano.sh/vgpu-cores": "10"}
        )
    for name, memory in asked.items():
        installed.runs(name)
        found, notes = installed.environment(name), installed.notes(name)
        assert found["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{memory}m", name
        assert notes["volcano.sh/vgpu-ids-new"].startswith(f"{found['NVIDIA_VISIBLE_DEVICES']},NVIDIA,{memory},10")
        assert notes["volcano.sh/bind-phase"] == "success"
    until(lambda: not installed.annotation(VOLCANOS_LOCK), timeout_s=10, what=lambda: installed.annotation(VOLCANOS_LOCK))
    wanted = {name: installed.notes(name)["hbox.io/cards"] for name in asked}
    until(lambda: wanted.items() <= books(cluster).items(), timeout_s=30, what=lambda: f"{books(cluster)}, and not {wanted}")
    cluster.kubectl("delete", "configmap", "volcano-vgpu-device-config", "-n", "kube-system")
