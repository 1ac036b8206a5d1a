"""Kubelets on a clock of the test's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from hbox_sandbox.api.cluster import Cluster
from hbox_sandbox.api.pods import bind
from hbox_sandbox.api.resources import NODES, PODS
from hbox_sandbox.api.writes import Deletion, Options, Target, change, create, delete
from hbox_sandbox.kubelet import RUN_SECONDS, Kubelets


@dataclass
class World:
    """A cluster with one node, `n1`, at second 0."""

    now: float = 0.0
    cluster: Cluster = field(init=False)
    kubelets: Kubelets = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(clock=lambda: self.now, random=Random(1))
        self.kubelets = Kubelets(self.cluster, time_scale=10.0, start_s=1.0, stop_s=1.0, clock=lambda: self.now)
        self.add_node("n1")

    def add_node(self, name: str) -> None:
        create(self.cluster, Target(NODES, "", ""), {"metadata": {"name": name}}, Options())

    def add_pod(self, name: str, *, run_seconds: str | None = None, node: str = "n1") -> None:
        meta: dict[str, Any] = {"name": name, "annotations": {} if run_seconds is None else {RUN_SECONDS: run_seconds}}
        spec = {"containers": [{"name": "main", "image": "x"}]}
        create(self.cluster, Target(PODS, "default", ""), {"metadata": meta, "spec": spec}, Options())
        if node:
            body = {"metadata": {"name": name}, "target": {"name": node}}
            bind(self.cluster, Target(PODS, "default", name, "binding"), body, Options())

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.kubelets.work()

    def phase(self, name: str) -> str:
        pod = self.cluster.store.get(PODS.storage, f"default/{name}")
        return "" if pod is None else str(pod.load()["status"]["phase"])


@pytest.fixture
def world() -> World:
    return World()


def test_a_bound_pod_runs_and_succeeds_after_its_scaled_duration(world: World) -> None:
    world.add_pod("a", run_seconds="50")
    assert world.phase("a") == "Pending"
    world.after(1.0)
    assert world.phase("a") == "Running"
    world.after(4.9)
    assert world.phase("a") == "Running"
    world.after(0.2)
    assert world.phase("a") == "Succeeded"


def test_plugins_are_called_when_kubelet_admits_a_pod_and_not_when_it_runs(world: World) -> None:
    node = world.cluster.find(NODES, "", "n1")
    notes = {"hami.io/node-nvidia-register": "GPU-0,10,81920,100,A100,0,true:", "hami.io/mutex.lock": "x,default,a"}
    change(world.cluster, NODES, node, lambda obj: obj["metadata"].update(annotations=notes))
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    meta = {"name": "a", "annotations": {"hami.io/vgpu-devices-to-allocate": "GPU-0,NVIDIA,1000,10:;"}}
    create(world.cluster, Target(PODS, "default", ""), {"metadata": meta, "spec": spec}, Options())
    bind(
        world.cluster, Target(PODS, "default", "a", "binding"), {"metadata": {"name": "a"}, "target": {"name": "n1"}}, Options()
    )
    world.after(0.0)
    assert world.phase("a") == "Pending"
    assert "hami.io/mutex.lock" not in world.cluster.find(NODES, "", "n1").load()["metadata"]["annotations"]
    world.after(1.0)
    assert world.phase("a") == "Running"


@pytest.mark.parametrize("text", [None, "soon", "nan", "inf", "-1"])
def test_a_pod_without_a_proper_duration_runs_for_ever(world: World, text: str | None) -> None:
    world.add_pod("a", run_seconds=text)
    world.after(1.0)
    world.after(1e6)
    assert world.phase("a") == "Running"


def test_an_unbound_pod_stays_pending(world: World) -> None:
    world.add_pod("a", node="")
    world.after(100.0)
    assert world.phase("a") == "Pending"


def test_a_pod_waits_for_its_node_to_exist(world: World) -> None:
    world.add_pod("a", node="n2")
    world.after(100.0)
    assert world.phase("a") == "Pending"
    world.add_node("n2")
    world.after(0.0)
    assert world.phase("a") == "Running"


def test_a_deleted_pod_fails_first_and_then_goes(world: World) -> None:
    world.add_pod("a")
    world.after(1.0)
    seen: list[tuple[str, str]] = []
    world.cluster.store.listeners.append(
        lambda _, event: seen.append((event.type, event.version.load()["status"].get("phase", "")))
    )
    delete(world.cluster, Target(PODS, "default", "a"), Deletion())
    world.after(1.0)
    assert world.phase("a") == ""
    assert seen[0] == ("MODIFIED", "Running")
    assert seen[-1] == ("DELETED", "Failed")


def test_a_deleted_pod_with_a_finalizer_stays_until_it_is_removed(world: World) -> None:
    world.add_pod("a")
    pod = world.cluster.find(PODS, "default", "a")
    change(world.cluster, PODS, pod, lambda obj: obj["metadata"].update(finalizers=["hbox.io/held"]))
    delete(world.cluster, Target(PODS, "default", "a"), Deletion())
    world.after(1.0)
    assert world.phase("a") == "Failed"
    pod = world.cluster.find(PODS, "default", "a")
    change(world.cluster, PODS, pod, lambda obj: obj["metadata"].pop("finalizers"))
    assert world.phase("a") == ""


def test_a_namesake_is_not_stopped_in_place_of_the_pod_that_was_deleted(world: World) -> None:
    world.add_pod("a")
    delete(world.cluster, Target(PODS, "default", "a"), Deletion())
    delete(world.cluster, Target(PODS, "default", "a"), Deletion(grace_s=0))
    world.add_pod("a")
    world.after(1.0)
    assert world.phase("a") == "Running"
