"""The admission endpoint as the chart deploys it, with its own certificate and two replicas: slices that go through it to a kubelet, and pods that go in
all the same while none of it is there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .agents import install_with_agents
from .cluster import CHART, GPU, IMAGE, NAMESPACE, RELEASE, TENANT, WAIT, Cluster, until
from .test_device_plugins_on_nodes import MEM, PLUGIN, World, sandbox

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1500)]

ENDPOINT = f"{RELEASE}-admission"
REPLICAS = 2
#: As the chart has it: so long an API server waits for an answer, at most.
TIMEOUT_S = 5
#: Beside that: kubectl's own start, and a busy machine (7 s at a load of 45 on two cores).
SLACK_S = 15
#: For two replicas to answer there.
ANSWERS_S = 300
#: Of a slice's memory alone: whose pod it is and of how many cards is for the endpoint to say.
SLICE = {"cpu": "10m", "memory": "16Mi", MEM: "3000"}


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    install_with_agents(cluster, admission__webhook__enabled="true", services__admission__replicas=str(REPLICAS))
    found = World(cluster, cluster.get("nodes")["items"][0]["metadata"]["name"])
    sandbox(found, "hami-core")
    yield found
    found.end_plugin()
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", f"test-{PLUGIN}", "--ignore-not-found")
    cluster.clear()


def make(world: World, name: str) -> dict[str, Any]:
    """The pod as the API server has it."""
    container = {"name": "c0", "image": IMAGE, "command": ["sleep", "600"], "resources": {"limits": SLICE}}
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TENANT},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }  # fmt: skip
    made: dict[str, Any] = json.loads(world.cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(pod)))
    return made


def completed(pod: dict[str, Any]) -> bool:
    spec = pod["spec"]
    return bool(spec["schedulerName"] == "hbox") and GPU in spec["containers"][0]["resources"]["limits"]


def endpoints(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.pods(NAMESPACE, "-l", "app.kubernetes.io/component=admission")


def scale(cluster: Cluster, replicas: int) -> None:
    """Returns when so many answer, for the Service too."""
    cluster.kubectl("scale", "deployment", ENDPOINT, "-n", NAMESPACE, f"--replicas={replicas}")

    def answering() -> int:
        slices = cluster.get("endpointslices", "-n", NAMESPACE, "-l", f"kubernetes.io/service-name={ENDPOINT}")["items"]
        return sum(one["conditions"]["ready"] for each in slices for one in each["endpoints"] or ())

    until(
        lambda: answering() == replicas and len(endpoints(cluster)) == replicas,
        timeout_s=ANSWERS_S,
        what=lambda: cluster.kubectl("describe", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=admission")[
            -3000:
        ],
    )


def through(world: World, prefix: str) -> None:
    """Pods are completed again: kube-proxy may take a moment to know new replicas."""
    count = iter(range(1000))
    until(lambda: completed(make(world, f"{prefix}-{next(count)}")), timeout_s=60, what=lambda: "no pod is completed")


def clear(world: World) -> None:
    world.cluster.kubectl("delete", "pods", "--all", "-n", TENANT, "--grace-period=1")


def test_a_slice_that_names_neither_scheduler_nor_cards_runs(world: World) -> None:
    assert len(endpoints(world.cluster)) == REPLICAS
    pod = make(world, "slice")
    assert completed(pod)
    assert pod["spec"]["containers"][0]["resources"]["limits"][GPU] == "1"
    world.runs("slice")
    [(card, _, memory)] = world.chosen("slice")
    assert memory == 3000
    wanted = {"NVIDIA_VISIBLE_DEVICES": card, "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m"}
    assert wanted.items() <= world.environment("slice").items()
    world.all_agree("slice")
    clear(world)


def test_pods_go_in_while_replicas_are_killed(world: World) -> None:
    """One without a word, then both at once."""
    for killed in (1, REPLICAS):
        names = [pod["metadata"]["name"] for pod in endpoints(world.cluster)][:killed]
        world.cluster.kubectl("delete", "pods", "-n", NAMESPACE, *names, "--force", "--grace-period=0", "--wait=false")
        seen = []
        for i in range(5):
            began = time.monotonic()
            seen.append(completed(make(world, f"killed-{killed}-{i}")))
            assert time.monotonic() - began < TIMEOUT_S + SLACK_S, "no pod waits longer than for the endpoint's time"
        print(f"{killed} of {REPLICAS} killed: {sum(seen)} of {len(seen)} pods went through it, the others past it")
        scale(world.cluster, REPLICAS)
        through(world, f"after-{killed}")
    clear(world)


def test_while_nobody_answers_pods_go_in_as_they_were_made(world: World) -> None:
    scale(world.cluster, 0)
    began = time.monotonic()
    pod = make(world, "let-by")
    assert time.monotonic() - began < TIMEOUT_S + SLACK_S
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert GPU not in pod["spec"]["containers"][0]["resources"]["limits"]
    scale(world.cluster, REPLICAS)
    through(world, "again")
    clear(world)


def test_an_upgrade_keeps_the_certificate_and_pods_go_through(world: World) -> None:
    cluster = world.cluster
    secret = ("secret", f"{ENDPOINT}-tls", "-n", NAMESPACE)
    before = cluster.get(*secret)["data"]
    assert before["tls.crt"]
    cluster.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", "--set", "settings.log_level=debug", *WAIT)
    assert cluster.get(*secret)["data"] == before
    [hook] = cluster.get("mutatingwebhookconfiguration", ENDPOINT)["webhooks"]
    assert hook["clientConfig"]["caBundle"] == before["ca.crt"]
    pod = make(world, "upgraded")
    assert completed(pod), "with two replicas there is always one that answers"
    world.runs("upgraded")
    clear(world)


def test_uninstall_takes_the_webhook_away(world: World) -> None:
    cluster = world.cluster
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "3m")
    found = cluster.kubectl("get", "mutatingwebhookconfigurations", "-o", "name")
    assert ENDPOINT not in found
    assert make(world, "without")["spec"]["schedulerName"] == "default-scheduler"
    clear(world)
