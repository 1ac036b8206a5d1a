"""`helm install` of the chart into namespaces and clusters as strangers have them, on a real API server with its controllers, which make the pods or are
refused them. No pod runs here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.check.install import Install, Level, Line, lines
from hbox_cli.platform.assets import API_SERVER, CONTROLLERS, ETCD
from hbox_common.kube import KubeClient

from .control_plane import control_plane
from .test_real_helm_rollback import Release, until

pytestmark = pytest.mark.timeout(600)

#: Quotas, ranges of limits and accounts, as everybody's API server has them.
ADMITS = {API_SERVER: {"disable-admission-plugins": None}}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with control_plane(tmp_path_factory.mktemp("plane"), (ETCD, API_SERVER, CONTROLLERS), ADMITS) as plane:
        yield plane.kubeconfig


@pytest.fixture
def release(kubeconfig: Path, request: pytest.FixtureRequest) -> Iterator[Release]:
    name = str(abs(hash(request.node.name)))[:8]
    one = Release(kubeconfig, f"gpu-{name}")
    one.kubectl("create", "namespace", one.namespace)
    until(lambda: bool(one.kubectl("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")))
    yield one
    subprocess.run(one.words("uninstall", "--no-hooks"), capture_output=True, timeout=60, check=False, env=one.env)


def pods(release: Release) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = release.get("pods")["items"]
    return found


def all_are_made(release: Release) -> bool:
    """As many pods as the chart's objects want."""
    wanted: int = sum(one["spec"]["replicas"] for one in release.get("deployments,statefulsets")["items"])
    return len(pods(release)) == wanted


async def looked(release: Release) -> Line:
    async with KubeClient.connect(str(release.kubeconfig), user_agent="test") as client:
        [line] = [line for line in await lines(client, Install(namespace=release.namespace)) if line.name == "namespace"]
    return line


async def test_a_quota_of_limits_is_said_before_and_met_by_one_value(release: Release) -> None:
    release.kubectl("create", "quota", "cpu", "--hard=requests.cpu=4,limits.cpu=8")
    until(lambda: bool(release.get("quota", "cpu").get("status", {}).get("hard")))
    line = await looked(release)
    assert line.level is Level.FAULT
    assert "must specify limits.cpu" in line.message
    with release.begun("install", "--set", "pods.resources.limits.cpu=500m"):
        until(lambda: [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods(release)] == ["definitions"])
    release.helm("uninstall")
    release.kubectl("delete", "job", "hbox-definitions")
    release.helm("install", "--no-hooks", "--set", "pods.resources.limits.cpu=500m")
    until(lambda: all_are_made(release))
    [binder] = [pod for pod in pods(release) if pod["metadata"]["name"].startswith("hbox-binder")]
    assert binder["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "192Mi"},
        "limits": {"cpu": "500m", "memory": "2Gi"},
    }


async def test_a_range_of_limits_is_said_before_and_met_by_one_value(release: Release) -> None:
    limits = release.kubeconfig.with_name("limits.yaml")
    limits.write_text(
        "{apiVersion: v1, kind: LimitRange, metadata: {name: most}, spec: {limits: [{type: Container, max: {memory: 1Gi}}]}}"
    )
    release.kubectl("apply", "-f", str(limits))
    line = await looked(release)
    assert line.level is Level.FAULT
    assert "maximum memory usage per Container is 1Gi" in line.message
    release.helm("install", "--no-hooks", "--set", "pods.resources.limits.memory=1Gi")
    until(lambda: all_are_made(release))


async def test_where_pod_security_is_restricted_every_pod_is_made(release: Release) -> None:
    release.kubectl("label", "namespace", release.namespace, "pod-security.kubernetes.io/enforce=restricted")
    assert (await looked(release)).level is Level.OK
    words = ("profile=production", "database.secret.name=pg", "admission.webhook.enabled=true", "shards=2")
    release.helm("install", "--no-hooks", *(word for value in words for word in ("--set", value)))
    until(lambda: all_are_made(release))


def test_after_a_hook_that_failed_uninstall_leaves_nobody_the_right_to_make_definitions(release: Release) -> None:
    with release.begun("install", "--timeout", "2s") as process:
        process.communicate(timeout=120)
    assert process.returncode != 0
    kinds = ("clusterroles,clusterrolebindings,serviceaccounts", "-l", "app.kubernetes.io/instance=hbox", "-o", "name")
    assert "serviceaccount/hbox-definitions" in release.kubectl("get", *kinds)
    release.helm("uninstall")
    assert release.kubectl("get", *kinds) == ""


def test_a_second_one_in_the_same_cluster_is_told_where_the_first_is(release: Release) -> None:
    release.helm("install", "--no-hooks")
    release.kubectl("create", "namespace", "another")
    second = Release(release.kubeconfig, "another")
    done = subprocess.run(second.words("install"), capture_output=True, text=True, timeout=60, check=False, env=second.env)
    assert done.returncode != 0
    assert f"release hbox in namespace {release.namespace} is an HBox, and there is one a cluster" in done.stderr
    release.helm("upgrade", "--no-hooks", "--set", "settings.log_level=debug")


def test_the_longest_name_of_a_release_makes_every_pod(release: Release) -> None:
    words = release.words("install", "--no-hooks", "--set", "shards=2", "--set", "profile=production")
    words[2] = "r" * 53
    subprocess.run(words, capture_output=True, timeout=60, check=True, env=release.env)
    until(lambda: all_are_made(release))
    words = release.words("uninstall", "--no-hooks")
    words[2] = "r" * 53
    subprocess.run(words, capture_output=True, timeout=60, check=True, env=release.env)
