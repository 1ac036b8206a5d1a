"""Labels of namespaces and checks of Queues and PodGroups on a real control plane, by the chart's own webhooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.kube import NAMESPACES, PODGROUPS, PODS, QUEUES, KubeClient, apply
from hbox_common.ports import free_ports

from ..certificates import NONE, OPENSSL
from ..chart.rendered import of
from ..e2e.platform_world import Up, up
from ..waiting import until
from .test_real_admission_webhook import authorities, certificates, put  # noqa: F401 - a fixture

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.skipif(OPENSSL is None, reason=NONE)]

GROUP = "admissionregistration.k8s.io/v1"
QUEUE = "scheduling.volcano.sh/queue-name"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--api", "assets", "--nodes", "2x8") as running:
        yield running


@contextmanager
def endpoint(platform: Up, secret: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """As the chart starts it; its kubeconfig is the administrator's."""
    port, health = free_ports(2)
    env = os.environ | {
        "HBOX_TLS_CERTIFICATE": str(secret / "tls.crt"), "HBOX_TLS_KEY": str(secret / "tls.key"), "HBOX_LISTEN_PORT": str(port),
        "HBOX_HEALTH_PORT": str(health), "HBOX_WATCH_CLUSTER": "true", "HBOX_KUBECONFIG": str(platform.state / "kubeconfig"),
    }  # fmt: skip
    with (secret / "log").open("wb") as out:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("hbox-service"), "admission"], env=env, stdout=out, stderr=out
        )
    try:
        ready_by = time.monotonic() + 60
        while not _ready(health):
            assert process.poll() is None, (secret / "log").read_text()
            assert time.monotonic() < ready_by, (secret / "log").read_text()
            time.sleep(0.1)
        yield port, process
    finally:
        process.kill()
        process.wait()


def _ready(health: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
async def admin(platform: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        yield client


@pytest.fixture
async def webhooks(
    platform: Up,
    admin: KubeClient,
    certificates: Path,  # noqa: F811
    tmp_path: Path,
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The chart's configurations, with the address of this endpoint in place of the Service's."""
    put(certificates, "old", tmp_path)
    made = []
    with endpoint(platform, tmp_path) as (port, process):
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            [found] = json.loads(json.dumps(of("admission", kind)))
            found["metadata"] = {"name": found["metadata"]["name"]}
            for hook in found["webhooks"]:
                address = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
                hook["clientConfig"] = {"url": address, "caBundle": authorities(certificates)}
            path = f"/apis/{GROUP}/{kind.lower()}s"
            await admin.json("POST", path, body=found)
            made.append(f"{path}/{found['metadata']['name']}")

        async def in_force() -> bool:
            try:
                await admin.json("POST", QUEUES.path(), params={"dryRun": "All"}, body=queue("probe", parent="probe"))
            except InvalidRequest:
                made = await admin.json("POST", PODS.path("default"), params={"dryRun": "All"}, body=pod("probe", cards=1))
                return bool(made["spec"]["schedulerName"] == "hbox")
            return False

        try:
            await until(in_force, "the webhooks are in force", timeout_s=60)
            yield process
        finally:
            for path in made:
                await admin.json("DELETE", path)


def pod(name: str, cards: int = 0, **metadata: Any) -> dict[str, Any]:
    asks = {"resources": {"limits": {"nvidia.com/gpu": str(cards)}}} if cards else {}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "busybox", **asks}], "terminationGracePeriodSeconds": 0},
    }  # fmt: skip


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def space(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {f"hbox.io/{key}": value for key, value in labels.items()}},
    }  # fmt: skip


@pytest.mark.usefixtures("webhooks")
async def test_pods_of_a_labelled_namespace_run_in_its_queue(platform: Up, admin: KubeClient) -> None:
    await apply(admin, queue("research"), field_manager="test")
    # The namespace and its first pod come in the same moment.
    await admin.json("POST", NAMESPACES.path(), body=space("labelled", scheduler="true", queue="research"))
    made = await admin.json("POST", PODS.path("labelled"), body=pod("plain", cards=1))
    assert made["spec"]["schedulerName"] == "hbox"
    assert made["metadata"]["annotations"][QUEUE] == "research"
    without = await admin.json("POST", PODS.path("labelled"), body=pod("without-cards"))
    assert without["spec"]["schedulerName"] == "hbox"
    own = await admin.json(
        "POST", PODS.path("labelled"), params={"dryRun": "All"}, body=pod("own", annotations={QUEUE: "default"})
    )
    assert own["metadata"]["annotations"][QUEUE] == "default"

    async def bound() -> bool:
        return bool((await admin.json("GET", PODS.path("labelled", "plain")))["spec"].get("nodeName"))

    await until(bound, "the pod is bound", timeout_s=60)
    [found] = [one for one in platform.json("jobs")["items"] if one["name"] == "labelled/plain"]
    assert found["queue"] == "research"


@pytest.mark.usefixtures("webhooks")
async def test_a_changed_label_counts_for_the_next_pods(admin: KubeClient) -> None:
    await admin.json("POST", NAMESPACES.path(), body=space("changing"))
    before = await admin.json("POST", PODS.path("changing"), params={"dryRun": "All"}, body=pod("before"))
    assert before["spec"]["schedulerName"] == "default-scheduler"
    labels = {"metadata": {"labels": {"hbox.io/scheduler": "true"}}}
    await admin.json("PATCH", NAMESPACES.path(name="changing"), body=labels, content_type="application/merge-patch+json")

    async def taken() -> bool:
        made = await admin.json("POST", PODS.path("changing"), params={"dryRun": "All"}, body=pod("after"))
        return bool(made["spec"]["schedulerName"] == "hbox")

    await until(taken, "the label counts", timeout_s=10)


async def test_without_the_endpoint_pods_and_queues_are_admitted_unchanged(
    admin: KubeClient, webhooks: subprocess.Popen[bytes]
) -> None:
    await admin.json("POST", NAMESPACES.path(), body=space("down", scheduler="true", queue="research"))
    webhooks.kill()
    webhooks.wait()
    made = await admin.json("POST", PODS.path("down"), body=pod("plain"))
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert QUEUE not in made["metadata"].get("annotations", {})
    await admin.json("POST", QUEUES.path(), params={"dryRun": "All"}, body=queue("circle", parent="circle"))


@pytest.mark.usefixtures("webhooks")
async def test_faults_of_queues_and_podgroups_are_refused_or_told(admin: KubeClient) -> None:
    with pytest.raises(HBoxError, match=r"spec.parent is 'circle', and the parents form a cycle \(circle -> circle\)"):
        await admin.json("POST", QUEUES.path(), body=queue("circle", parent="circle"))
    with pytest.raises(HBoxError, match=r"capability of nvidia\.com/gpu: -1 is negative"):
        await admin.json("POST", QUEUES.path(), body=queue("negative", capability={"nvidia.com/gpu": "-1"}))
    body = queue("odd", capability={"nvidia.com/gpu": "4"}, guarantee={"resource": {"nvidia.com/gpu": "8"}})
    answer = await admin.request("POST", QUEUES.path(), body=body)
    assert answer.status == 201
    warnings = answer.headers.get("warning", "")  # the last of several
    assert "spec.guarantee.resource: nvidia.com/gpu is 8, above spec.capability (4)" in warnings
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 1, "minTaskMember": {"worker": 4}},
    }  # fmt: skip
    answer = await admin.request("POST", PODGROUPS.path("default"), body=group)
    assert answer.status == 201
    assert "write minMember: 4" in answer.headers.get("warning", "")
