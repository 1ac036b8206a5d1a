"""HAMi's `device-config.yaml` on a running platform: other names, another unit of memory, and a plugin that oversubscribes its card's memory.

gpu-0   2 cards of 40 GiB, registered by its plugin as of 60 GiB (deviceMemoryScaling 1.5)

The same file in a saved cluster, as the ConfigMap that HAMi has it in, has to give the same answers in `hbox simulate cycle`.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbox_common.kube import NODES, KubeClient

from .platform_world import Up, hbox, until, up
from .test_e2e_device_plugins import SPACE, create, ended, no_locks
from .traced_jobs import node

pytestmark = pytest.mark.e2e

CARDS, MEMORY, CORES = "vendor.example/gpu", "vendor.example/gpu.memory", "vendor.example/gpu.cores"
SCALED_MIB = 61_440

CONFIG = f"""
nvidia:
  resourceCountName: {CARDS}
  resourceMemoryName: {MEMORY}
  resourceCoreName: {CORES}
  memoryFactor: 10
  deviceSplitCount: 4
  deviceMemoryScaling: 1.5
  resourceCuontName: a.b/c
"""


def registered() -> dict[str, Any]:
    """As HAMi's plugin with this configuration registers."""
    cards = [
        {
            "id": f"GPU-gpu-0-{i}", "index": i, "count": 4, "devmem": SCALED_MIB, "devcore": 100, "type": "NVIDIA-A100",
            "mode": "hami-core", "health": True,
        }
        for i in range(2)
    ]  # fmt: skip
    body = node("gpu-0")
    body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(cards)}
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", CARDS: "8"}
    body["status"] |= {"capacity": size, "allocatable": size}
    return body


def a_pod(name: str, **limits: int) -> dict[str, Any]:
    named = {"cards": CARDS, "memory": MEMORY, "cores": CORES, "nvidia": "nvidia.com/gpu"}
    container = {"name": "c", "image": "pause", "resources": {"limits": {named[what]: str(n) for what, n in limits.items()}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "device-config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Iterator[Up]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HBOX_DEVICE_CONFIG", str(config))
        with up(tmp_path_factory.mktemp("devices") / "state") as running:
            asyncio.run(_node(running))
            yield running


async def _node(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=registered())


async def test_slices_by_other_names_are_chosen_judged_and_handed_over(platform: Up, client: KubeClient) -> None:
    # 50,000 MiB is more than a card has, and less than its plugin gives away; 11,000 is left of each.
    await create(client, a_pod("ok-0", cards=1, memory=5000, cores=30), a_pod("ok-1", cards=1, memory=5000, cores=30))
    pods = await ended(client, "ok-", 2)
    assert [pod["status"]["phase"] for pod in pods] == ["Running", "Running"], [pod["status"] for pod in pods]
    assert sorted(pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] for pod in pods) == [
        f"GPU-gpu-0-{i},NVIDIA,50000,30:;" for i in range(2)
    ]
    await no_locks(client)
    await create(client, a_pod("late", cards=1, memory=1200), a_pod("fits", cards=1, memory=1100), a_pod("nobody", nvidia=1))
    [fits] = await ended(client, "fits", 1)
    assert fits["status"]["phase"] == "Running"

    def reasons() -> dict[str, str]:
        found = {job["name"].rpartition("/")[2]: str(job["reason"]) for job in platform.json("jobs")["items"] if job["reason"]}
        return found if {"late", "nobody"} <= found.keys() else {}

    told = await asyncio.to_thread(until, reasons, timeout_s=30, what="the reasons")
    assert "CardInsufficientMemory" in told["late"], told
    assert "nvidia.com/gpu" in told["nobody"], told
    assert platform.json("share", "default", "--resource", CARDS)["used"] == 3
    audit = platform.hbox("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_simulate_says_the_same_of_the_saved_cluster(tmp_path: Path) -> None:
    saved = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hami-scheduler-device", "namespace": "kube-system"},
        "data": {"device-config.yaml": CONFIG},
    }
    pods = [a_pod("ok-0", cards=1, memory=5000, cores=30), a_pod("ok-1", cards=1, memory=5000, cores=30)]
    pods += [a_pod("late", cards=1, memory=1200), a_pod("fits", cards=1, memory=1100)]
    for i, pod in enumerate(pods):
        pod["metadata"] |= {"namespace": SPACE, "uid": f"{i}", "creationTimestamp": f"2026-01-01T00:00:0{i}Z"}
        pod["status"] = {"phase": "Pending"}
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([saved, registered(), *pods]))
    done = hbox("simulate", "cycle", "-o", "ndjson", str(file), env={"HBOX_DEVICE_CONFIG": ""})
    row = json.loads(done.stdout)
    assert row["error"] is None, row
    assert sorted(binding["pod"] for binding in row["bindings"]) == [f"{SPACE}/{name}" for name in ("fits", "ok-0", "ok-1")]
    assert "CardInsufficientMemory" in row["pending"][f"{SPACE}/late"]["reasons"]
    assert row["warnings"][0] == (
        "device-config.yaml: nvidia.resourceCuontName is no key that HBox knows; did you mean resourceCountName?"
    )


def test_what_does_nothing_is_told_in_every_services_log(platform: Up) -> None:
    for service in ("scheduler-core", "quota-ledger", "job-controller", "topology-collector", "binder"):
        text = (platform.state / "logs" / f"{service}.log").read_text()
        assert "nvidia.resourceCuontName is no key that HBox knows" in text, service
