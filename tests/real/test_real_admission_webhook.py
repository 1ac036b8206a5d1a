"""The admission endpoint on a real control plane: kube-apiserver asks it over TLS by the chart's own configuration, and the platform places what comes out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hbox_common.errors import HBoxError
from hbox_common.kube import PODS, KubeClient, apply
from hbox_common.ports import free_ports

from .. import hamis_webhook
from ..certificates import NONE, OPENSSL, make_certificates
from ..chart.rendered import NAMESPACE, of
from ..e2e.platform_world import Up, up
from ..monitoring.exported import KUBERNETES
from ..nasty_objects import KINDS
from ..waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.skipif(OPENSSL is None, reason=NONE)]

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PRESETS = {"nvidia.com/gpu.product": "A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960", "kubernetes.io/hostname": "shared"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--api", "assets", "--nodes", "2x8") as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two authorities: each with a pair for this machine."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("old", "new"):
        (folder / name).mkdir()
        make_certificates(folder / name, broker="DNS:localhost,IP:127.0.0.1")
    return folder


@dataclass(frozen=True)
class Endpoint:
    port: int
    health: int
    secret: Path
    process: subprocess.Popen[bytes]

    def counts(self) -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{self.health}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^(hbox_admission_\w+(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def answered(self) -> float:
        return sum(value for name, value in self.counts().items() if name.startswith("hbox_admission_reviews_total"))


def put(certificates: Path, name: str, secret: Path) -> None:
    for source, file in (("broker.pem", "tls.crt"), ("broker.key", "tls.key")):
        shutil.copy(certificates / name / source, secret / file)


@contextmanager
def running(secret: Path) -> Iterator[Endpoint]:
    port, health = free_ports(2)
    env = os.environ | {
        "HBOX_TLS_CERTIFICATE": str(secret / "tls.crt"), "HBOX_TLS_KEY": str(secret / "tls.key"),
        "HBOX_LISTEN_PORT": str(port), "HBOX_HEALTH_PORT": str(health), "HBOX_SCHEDULER_NAMES": "hbox,hami-scheduler",
    }  # fmt: skip
    with (secret / "log").open("wb") as out:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("hbox-service"), "admission"], env=env, stdout=out, stderr=out
        )
    try:
        yield Endpoint(port, health, secret, process)
    finally:
        process.kill()
        process.wait()


def authorities(certificates: Path) -> str:
    return b64encode(b"".join((certificates / name / "ca.pem").read_bytes() for name in ("old", "new"))).decode()


@asynccontextmanager
async def configured(client: KubeClient, url: str, trusted: str, name: str = "") -> AsyncIterator[dict[str, Any]]:
    """The chart's configuration, with the address of this endpoint in place of the Service's: this control plane reaches no pods."""
    [found] = json.loads(json.dumps(of("admission", "MutatingWebhookConfiguration")))
    found["metadata"] = {"name": name or found["metadata"]["name"]}
    [hook] = found["webhooks"]
    hook["clientConfig"] = {"url": url, "caBundle": trusted}
    await client.json("POST", CONFIGURATIONS, body=found)
    try:
        yield found
    finally:
        await client.json("DELETE", f"{CONFIGURATIONS}/{found['metadata']['name']}")


@pytest.fixture
async def admin(platform: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for space in ("ml", NAMESPACE):
            await apply(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}, field_manager="test")
        yield client


@pytest.fixture
async def endpoint(admin: KubeClient, certificates: Path, tmp_path: Path) -> AsyncIterator[Endpoint]:
    """In front of all pods that are made, as soon as it answers for a pod."""
    put(certificates, "old", tmp_path)
    with running(tmp_path) as found:
        async with configured(admin, f"https://127.0.0.1:{found.port}/mutate", authorities(certificates)):
            await until(lambda: asked(admin), "an answer of the endpoint", timeout_s=60)
            yield found


async def asked(client: KubeClient) -> bool:
    """Whether a pod that nobody keeps comes back as HBox's."""
    made = await client.json("POST", PODS.path("ml"), params={"dryRun": "All"}, body=pod("probe"))
    return bool(made["spec"]["schedulerName"] == "hbox")


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    asks = {"limits": {"nvidia.com/gpumem": "3000", "nvidia.com/priority": "1"}}
    main = {"name": "main", "image": "busybox", "resources": asks}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 0, **spec},
    }  # fmt: skip


async def made(client: KubeClient, body: dict[str, Any], space: str = "ml") -> dict[str, Any]:
    return dict(await client.json("POST", PODS.path(space), body=body))


async def removed(client: KubeClient, *names: str, space: str = "ml") -> None:
    for name in names:
        await client.json("DELETE", PODS.path(space, name))


def resources(pod: dict[str, Any]) -> dict[str, dict[str, str]]:
    return dict(pod["spec"]["containers"][0]["resources"])


async def test_a_pod_that_leaves_things_out_is_completed_and_placed(admin: KubeClient, endpoint: Endpoint) -> None:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "50", "nvidia.com/gpu": "2"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "shared", "labels": PRESETS}}
    await admin.json("POST", "/api/v1/nodes", body=node | {"status": {"capacity": amounts, "allocatable": amounts}})
    found = await made(admin, pod("slice"))
    assert found["spec"]["schedulerName"] == "hbox"
    whole = {"nvidia.com/gpumem": "3k", "nvidia.com/priority": "1", "nvidia.com/gpu": "1"}
    assert resources(found) == {"limits": whole, "requests": whole}
    assert found["spec"]["containers"][0]["env"] == [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]

    async def bound() -> dict[str, Any]:
        now = await admin.json("GET", PODS.path("ml", "slice"))
        return now if now["spec"].get("nodeName") else {}

    now = await until(bound, "the pod's node", timeout_s=60)
    assert re.fullmatch(r"gpu:[^:,]+:0:3000", now["metadata"]["annotations"]["hbox.io/cards"])
    # A pod that is there may be changed, and is not asked about again.
    before = endpoint.answered()
    label = {"metadata": {"labels": {"a": "b"}}}
    await admin.json("PATCH", PODS.path("ml", "slice"), body=label, content_type="application/merge-patch+json")
    await removed(admin, "slice")
    assert endpoint.answered() == before


@pytest.mark.usefixtures("endpoint")
async def test_a_dry_run_shows_what_would_be_written_and_keeps_nothing(admin: KubeClient) -> None:
    found = await admin.json("POST", PODS.path("ml"), params={"dryRun": "All"}, body=pod("dry"))
    assert resources(found)["limits"]["nvidia.com/gpu"] == "1"
    with pytest.raises(HBoxError):
        await admin.json("GET", PODS.path("ml", "dry"))


async def test_what_is_excluded_is_not_asked_about(admin: KubeClient, endpoint: Endpoint) -> None:
    before = endpoint.answered()
    for space in ("kube-system", NAMESPACE):
        found = await made(admin, pod("apart"), space)
        assert (found["spec"]["schedulerName"], "nvidia.com/gpu" in resources(found)["limits"]) == ("default-scheduler", False)
        await removed(admin, "apart", space=space)
    for label in ("hbox.io/admission", "hami.io/webhook"):
        found = await made(admin, pod("apart", {label: "ignore"}))
        assert found["spec"]["schedulerName"] == "default-scheduler"
        await removed(admin, "apart")
    assert endpoint.answered() == before


async def test_whatever_a_tenant_writes_is_answered(admin: KubeClient, endpoint: Endpoint) -> None:
    """The same objects are taken as without the endpoint: none is refused by it, and none ends it."""
    began, accepted = endpoint.answered(), 0

    async def taken(space: str, body: dict[str, Any]) -> str:
        """Why it is refused; empty where it is not."""
        body["metadata"]["namespace"] = space
        try:
            await admin.json("POST", PODS.path(space), params={"dryRun": "All"}, body=body)
        except HBoxError as e:
            return e.message.replace(space, "")
        return ""

    for kind in KINDS:
        for one in kind.waiting("nasty"):
            if one["kind"] == "Pod":
                said = await taken("ml", one)
                assert said == await taken(NAMESPACE, one), kind.name
                accepted += not said
    many = pod("many")
    [main] = many["spec"]["containers"]
    many["spec"]["containers"] = [main | {"name": f"c{i}"} for i in range(2000)]
    many["metadata"]["annotations"] = {"note": "x" * 200_000}
    started = time.monotonic()
    found = await admin.json("POST", PODS.path("ml"), params={"dryRun": "All"}, body=many)
    assert all(one["resources"]["limits"]["nvidia.com/gpu"] == "1" for one in found["spec"]["containers"])
    assert time.monotonic() - started < 10
    assert endpoint.answered() >= began + accepted + 1
    assert accepted > 20
    assert not [name for name in endpoint.counts() if "requests_refused" in name]


@pytest.mark.parametrize("name", ["aaa-hami-webhook", "zzz-hami-webhook"])
async def test_beside_hamis_webhook_a_pod_belongs_to_who_is_asked_first(
    admin: KubeClient, endpoint: Endpoint, certificates: Path, name: str
) -> None:
    """The API server asks by name. `hami-webhook` comes before `hbox-admission`."""
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificates / "old" / "broker.pem", certificates / "old" / "broker.key")
    first = "hami-scheduler" if name < "hbox" else "hbox"
    async with (
        hamis_webhook.served(trust) as port,
        configured(admin, f"https://127.0.0.1:{port}/webhook", authorities(certificates), name),
    ):

        async def takes_part() -> bool:
            """HAMi refuses a pod with devices that has a node, and HBox does not."""
            try:
                body = pod("probe", nodeName="node-0001")
                await admin.json("POST", PODS.path("ml"), params={"dryRun": "All"}, body=body)
            except HBoxError:
                return True
            return False

        await until(takes_part, "HAMi's webhook", timeout_s=30)
        found = await admin.json("POST", PODS.path("ml"), params={"dryRun": "All"}, body=pod("both"))
        assert found["spec"]["schedulerName"] == first
        amounts = {"nvidia.com/gpumem": "3k", "nvidia.com/priority": "1", "nvidia.com/gpu": "1"}
        assert resources(found) == {"limits": amounts, "requests": amounts}
        env = {(one["name"], one["value"]) for one in found["spec"]["containers"][0]["env"]}
        assert env == {("CUDA_TASK_PRIORITY", "1")}, "at most said twice"
        named = await admin.json("POST", PODS.path("ml"), params={"dryRun": "All"}, body=pod("named", schedulerName="hbox"))
        assert named["spec"]["schedulerName"] == "hbox"
        assert resources(named)["limits"] == amounts


@pytest.mark.usefixtures("platform")
async def test_a_renewed_certificate_is_taken_without_a_pod_let_by(
    admin: KubeClient, endpoint: Endpoint, certificates: Path
) -> None:
    put(certificates, "new", endpoint.secret)
    trust = ssl.create_default_context(cafile=str(certificates / "new" / "ca.pem"))

    async def renewed() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port, ssl=trust)
        except ssl.SSLError:
            assert await asked(admin)
            return False
        writer.transport.abort()
        return True

    await until(renewed, "the new certificate", timeout_s=30)
    for _ in range(5):
        assert await asked(admin)


async def test_without_the_endpoint_pods_are_made_as_they_are_and_told_what_they_leave_out(
    admin: KubeClient, endpoint: Endpoint
) -> None:
    endpoint.process.kill()
    endpoint.process.wait()
    began = time.monotonic()
    found = await made(admin, pod("plain"))
    assert time.monotonic() - began < 10
    assert found["spec"]["schedulerName"] == "default-scheduler"
    await made(admin, pod("told", schedulerName="hbox"))

    async def said() -> str:
        now = await admin.json("GET", PODS.path("ml", "told"))
        messages = [one.get("message", "") for one in now["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
        return next((text for text in messages if "nvidia.com/gpumem" in text), "")

    message = await until(said, "the reason", timeout_s=60)
    assert "nvidia.com/gpumem given without nvidia.com/gpu" in message
    assert "add nvidia.com/gpu: 1" in message
    await removed(admin, "plain", "told")
    text = (await admin.request("GET", "/metrics")).body.decode()
    allowed = [line for line in text.splitlines() if line.startswith(tuple(f"{name}{{" for name in KUBERNETES))]
    assert any('name="pods.admission.hbox.io"' in line and not line.endswith(" 0") for line in allowed), "what the alert counts"
