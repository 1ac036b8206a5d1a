"""Independent clients agree: kubectl, the official Python client, lightkube."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..waiting import until
from .kube_world import KubeApi, Raw, a_pod

KUBECTL = Path(sys.executable).parent / "kubectl"


class Kubectl:
    def __init__(self, api: KubeApi, namespace: str, home: Path) -> None:
        self._options = ["--kubeconfig", str(api.kubeconfig), "--namespace", namespace, "--cache-dir", str(home / "cache")]

    async def __call__(self, *arguments: str, stdin: str = "", expect: int = 0) -> str:
        command = [str(KUBECTL), *self._options, *arguments]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(30):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode == expect, err.decode()
        return out.decode() if expect == 0 else err.decode()


@pytest.fixture
def kubectl(kube_api: KubeApi, namespace: str, tmp_path: Path) -> Kubectl:
    if not KUBECTL.exists():
        pytest.skip("kubectl is not installed beside this Python")
    return Kubectl(kube_api, namespace, tmp_path)


async def test_kubectl_creates_gets_patches_labels_and_deletes(kubectl: Kubectl) -> None:
    pod = json.dumps(a_pod("a", nodeName="n1", terminationGracePeriodSeconds=1))
    assert "pod/a created" in await kubectl("create", "-f", "-", stdin=pod)
    assert "AlreadyExists" in await kubectl("create", "-f", "-", stdin=pod, expect=1)
    assert json.loads(await kubectl("get", "po", "a", "-o", "json"))["status"]["phase"] == "Pending"
    assert "patched" in await kubectl("patch", "pod", "a", "--type=merge", "-p", '{"metadata":{"annotations":{"x":"1"}}}')
    assert "labeled" in await kubectl("label", "pod", "a", "queue=gold")
    assert "a" in await kubectl("get", "pods", "-l", "queue=gold", "--field-selector", "spec.nodeName=n1", "-o", "name")
    assert "deleted" in await kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    assert "NotFound" in await kubectl("get", "pod", "a", expect=1)


async def test_kubectl_applies_server_side(kubectl: Kubectl) -> None:
    def manifest(value: str) -> str:
        return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": value}})

    apply = ("apply", "--server-side", "-f", "-")
    assert "configmap/a serverside-applied" in await kubectl(*apply, stdin=manifest("1"))
    assert "conflict" in await kubectl(*apply, "--field-manager=other", stdin=manifest("2"), expect=1)
    await kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=manifest("2"))
    assert json.loads(await kubectl("get", "cm", "a", "-o", "json"))["data"] == {"x": "2"}


async def test_kubectl_applies_what_it_applied_before(kubectl: Kubectl) -> None:
    def manifest(**data: str) -> str:
        return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})

    assert "configmap/a created" in await kubectl("apply", "-f", "-", stdin=manifest(x="1", y="1"))
    assert "configmap/a unchanged" in await kubectl("apply", "-f", "-", stdin=manifest(x="1", y="1"))
    assert "configmap/a configured" in await kubectl("apply", "-f", "-", stdin=manifest(x="2"))
    assert json.loads(await kubectl("get", "cm", "a", "-o", "json"))["data"] == {"x": "2"}


async def test_kubectl_cordons_nodes(kubectl: Kubectl, raw: Raw, namespace: str) -> None:
    await raw.made("/api/v1/nodes", {"metadata": {"name": namespace}})
    assert "cordoned" in await kubectl("cordon", namespace)
    assert json.loads(await kubectl("get", "node", namespace, "-o", "json"))["spec"]["unschedulable"] is True
    assert "uncordoned" in await kubectl("uncordon", namespace)
    assert "deleted" in await kubectl("delete", "node", namespace)


async def test_kubectl_watches(
    kubectl: Kubectl, kube_api: KubeApi, raw: Raw, pods: str, namespace: str, tmp_path: Path
) -> None:
    await raw.made(pods, a_pod("a"))
    options = ["--kubeconfig", str(kube_api.kubeconfig), "-n", namespace, "--cache-dir", str(tmp_path / "cache")]
    process = await asyncio.create_subprocess_exec(
        str(KUBECTL), *options, "get", "pods", "-w", "-o", "name", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            assert await process.stdout.readline() == b"pod/a\n"
            await raw.made(pods, a_pod("b"))
            assert await process.stdout.readline() == b"pod/b\n"
    finally:
        process.terminate()
        await process.communicate()


async def test_kubectl_reads_errors(kubectl: Kubectl) -> None:
    bad = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Bad_Name"}})
    error = await kubectl("create", "-f", "-", stdin=bad, expect=1)
    assert 'The ConfigMap "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name"' in error


@pytest.fixture
async def official(kube_api: KubeApi) -> Any:
    from kubernetes.aio import client, config  # noqa: PLC0415 - 0.3 s that only these tests pay

    configuration = client.Configuration()
    load: Any = config.load_kube_config
    await load(config_file=str(kube_api.kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield client.CoreV1Api(api)


async def test_the_official_client_creates_lists_and_reads_errors(official: Any, namespace: str) -> None:
    from kubernetes.aio.client.exceptions import ApiException  # noqa: PLC0415 - as above

    created = await official.create_namespaced_pod(namespace, a_pod("a", annotations={"x": "1"}))
    assert created.metadata.uid
    listed = await official.list_namespaced_pod(namespace, limit=1)
    assert [pod.metadata.name for pod in listed.items] == ["a"]
    with pytest.raises(ApiException) as refused:
        await official.read_namespaced_pod("gone", namespace)
    assert refused.value.status == 404
    await official.delete_namespaced_pod("a", namespace, grace_period_seconds=0)


async def test_the_official_client_watches(official: Any, raw: Raw, pods: str, namespace: str) -> None:
    from kubernetes.aio import watch  # noqa: PLC0415 - as above

    await raw.made(pods, a_pod("a"))
    seen = []
    watching: Any = watch.Watch
    async with asyncio.timeout(10), watching() as stream:
        async for event in stream.stream(official.list_namespaced_pod, namespace, timeout_seconds=5):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                await raw.delete(f"{pods}/a")
            if event["type"] == "DELETED":
                break
    assert seen[0] == ("ADDED", "a")
    assert seen[-1] == ("DELETED", "a")


async def test_lightkube_creates_patches_and_lists(kube_api: KubeApi, namespace: str) -> None:
    from lightkube import AsyncClient, KubeConfig  # noqa: PLC0415 - as above
    from lightkube.models.meta_v1 import ObjectMeta  # noqa: PLC0415 - as above
    from lightkube.resources.core_v1 import ConfigMap  # noqa: PLC0415 - as above

    client: Any = AsyncClient(config=KubeConfig.from_file(str(kube_api.kubeconfig)), namespace=namespace, field_manager="tests")
    try:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}))
        patched = await client.patch(ConfigMap, "a", {"data": {"y": "2"}})
        assert patched.data == {"x": "1", "y": "2"}

        async def listed() -> set[str]:
            return {each.metadata.name async for each in client.list(ConfigMap, chunk_size=1)} - {"kube-root-ca.crt"}

        assert await until(listed) == {"a"}
        await client.delete(ConfigMap, "a")
    finally:
        await client.close()
