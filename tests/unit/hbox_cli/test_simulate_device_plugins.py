"""What device plugins do, in a saved cluster as in the running platform (tests/e2e/test_e2e_device_plugins.py): a node whose plugin fails pods, instances of
divided cards that were handed over, and nodes in allocation."""

import json
from typing import Any

import pytest

from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.clock import wall_s
from hbox_common.kube import rfc3339

from .test_simulate_defragmentation import CORES, GPU, MEMORY

SLICE = {GPU: "1", MEMORY: "4000", CORES: "10"}
PROFILES = [
    {"name": "1g.5gb", "memoryMB": 4864, "core": 14, "sliceCount": 1, "placements": [{"start": i, "size": 1} for i in range(7)]},
    {"name": "3g.20gb", "memoryMB": 19_968, "core": 42, "sliceCount": 3, "placements": [{"start": 0, "size": 4}, {"start": 4, "size": 4}]},
]  # fmt: skip


def node(name: str, *, mig: bool = False, lock: str = "") -> dict[str, Any]:
    card = {
        "id": f"GPU-{name}",
        "index": 0,
        "count": 10,
        "devmem": 40_960,
        "devcore": 100,
        "type": "NVIDIA-A100",
        "health": True,
    }
    card |= {"mode": "mig", "migProfiles": PROFILES, "count": 7} if mig else {"mode": "hami-core"}
    locked = {lock: "2026-01-01T00:00:00Z,ns,other"} if lock else {}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(card["count"])}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": json.dumps([card])} | locked},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    name: str, limits: dict[str, str], *, on: str = "", status: dict[str, Any] | None = None, **notes: str
) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": limits}}
    about = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": notes}
    spec = {"schedulerName": "hbox", "containers": [container]} | ({"nodeName": on} if on else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec, "status": status or {"phase": "Pending"}}


def failed(name: str, *, ago_s: float, on: str = "bad") -> dict[str, Any]:
    """As a kubelet fails a pod whose device plugin did."""
    message = "Pod was rejected: Allocate failed due to rpc error: no NVML here, which is unexpected"
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
    return pod(name, SLICE, on=on, status=status | {"startTime": rfc3339(wall_s() - ago_s)})


def row_of(*documents: dict[str, Any]) -> Any:
    row = outcome_of("f", objects_of(list(documents)), Wish(now=wall_s()))
    assert row["error"] is None, row
    return row


def places(row: Any) -> dict[str, str]:
    return {one["pod"].removeprefix("ns/"): one["node"] for one in row["bindings"]}


def test_a_node_whose_plugin_fails_pods_is_steered_around() -> None:
    fails = [failed(f"f{i}", ago_s=ago_s) for i, ago_s in enumerate((40, 30, 20, 5))]
    row = row_of(node("bad"), node("good"), *fails, pod("a", SLICE), pod("b", SLICE), pod("plain", {"cpu": "1"}))
    assert {place for name, place in places(row).items() if name != "plain"} == {"good"}
    [said] = row["warnings"]
    assert said.startswith("node bad: its kubelet refuses pods, such as ns/f3: UnexpectedAdmissionError: Pod was rejected")
    alone = row_of(node("bad"), *fails, pod("a", SLICE))
    assert alone["pending"]["ns/a"]["reasons"] == {"NodeDevicePluginFails": 1}


@pytest.mark.parametrize("case", ["one failure whose rest is over", "one that began since", "long ago"])
def test_a_node_whose_plugin_may_hand_cards_over_again_is_none_to_steer_around(case: str) -> None:
    ago = {"long ago": 600.0, "one that began since": 2.0}.get(case, 4.0)
    fails = [failed(f"f{i}", ago_s=ago + i) for i in range(4 if case != "one failure whose rest is over" else 1)]
    began = {"phase": "Running", "startTime": rfc3339(wall_s())}
    since = [pod("well", SLICE, on="bad", status=began)] if case == "one that began since" else []
    assert places(row_of(node("bad"), *fails, *since, pod("a", SLICE))) == {"a": "bad"}


def test_instances_that_were_handed_over_keep_their_places_on_the_card() -> None:
    """The plugin wrote what it made: half of the card, from its fifth slice on."""
    made = {
        "containerIndex": 0, "deviceIndex": 0, "gpuUUID": "GPU-m", "profile": "3g.20gb", "placement": {"start": 4, "size": 4}, "migUUID": "MIG-1",
        "gpuInstanceID": 1, "computeInstanceID": 0,
    }  # fmt: skip
    notes = {
        "hami.io/vgpu-devices-allocated": "GPU-m,NVIDIA,19968,42:;", "hami.io/vgpu-mig-allocations": json.dumps([made]),
        "hami.io/bind-phase": "success",
    }  # fmt: skip
    large = {GPU: "1", MEMORY: "18000"}
    running = pod("there", large, on="m", status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}, **notes)
    row = row_of(node("m", mig=True), running, pod("a", large))
    assert places(row) == {"a": "m"}
    full = row_of(node("m", mig=True), running, pod("a", large), pod("b", large))
    assert len(places(full)) == 1
    [waits] = full["pending"].values()
    assert waits["reasons"] == {"CardInsufficientMemory": 1}, waits


@pytest.mark.parametrize("lock", ["hami.io/mutex.lock", "hamivgpu"])
def test_a_node_in_allocation_is_a_place_like_any_other(lock: str) -> None:
    """Its lock says whose turn it is with the plugin, and nothing of what is free: binder waits for it, the scheduler does not."""
    row = row_of(node("n", lock=lock), pod("a", SLICE), pod("b", SLICE))
    assert places(row) == {"a": "n", "b": "n"}
