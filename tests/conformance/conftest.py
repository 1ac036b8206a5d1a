"""One suite, any Kubernetes API: the emulator as a process of its own, or the server that HBOX_CONFORMANCE_KUBECONFIG names."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from .kube_world import KubeApi, Raw, start_sandbox, stop

REAL = os.environ.get("HBOX_CONFORMANCE_KUBECONFIG", "")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """Without kubelets: a bound pod stays as it is, as on an API server with nothing else around it."""
    if REAL:
        config = yaml.safe_load(Path(REAL).read_text())
        token = config["users"][0]["user"].get("token", "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        yield KubeApi(url=config["clusters"][0]["cluster"]["server"], kubeconfig=Path(REAL), headers=headers, emulated=False)
        return
    process, api = start_sandbox(tmp_path_factory.mktemp("sandbox"), "--kubelets=off", "--bookmark-seconds=0.2")
    yield api
    assert stop(process) == 0


@pytest.fixture
def emulator(kube_api: KubeApi) -> KubeApi:
    """For what only the emulator has: fault knobs, forced compaction."""
    if not kube_api.emulated:
        pytest.skip("needs the emulator's own switches")
    return kube_api


@pytest.fixture
async def raw(kube_api: KubeApi) -> AsyncIterator[Raw]:
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(headers=kube_api.headers, connector=connector, read_bufsize=2**20) as session:
        yield Raw(session, kube_api.url)


@pytest.fixture
async def namespace(raw: Raw) -> AsyncIterator[str]:
    """A namespace of the test's own, deleted afterwards."""
    name = f"conformance-{os.getpid()}-{next(_numbers)}"
    await raw.made("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await raw.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    await raw.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"
