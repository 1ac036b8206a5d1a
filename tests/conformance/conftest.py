"""One suite, any Kubernetes API: the emulator as a process of its own or what HBOX_CONFORMANCE_KUBECONFIG names; and, where tests marked
`real` are asked for, a real API server.
"""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from hbox_cli.platform.assets import API_SERVER, ETCD

from ..real.control_plane import control_plane
from .kube_world import KubeApi, Raw, start_sandbox, stop

#: Any other server, instead of the emulator.
GIVEN = os.environ.get("HBOX_CONFORMANCE_KUBECONFIG", "")
_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=["given" if GIVEN else "emulator", pytest.param("assets", marks=pytest.mark.real)])
def kube_api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """Without kubelets: a bound pod stays as it is, as on an API server with nothing else around it."""
    folder = tmp_path_factory.mktemp(request.param)
    match request.param:
        case "given":
            config = yaml.safe_load(Path(GIVEN).read_text())
            token = config["users"][0]["user"].get("token", "")
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            url = config["clusters"][0]["cluster"]["server"]
            yield KubeApi(url=url, kubeconfig=Path(GIVEN), headers=headers, emulated=False, tls=False)
        case "assets":
            # A server hands out changes since its own start alone: only a second one has versions that are too old for it.
            with control_plane(folder, programs=(ETCD, API_SERVER)):
                pass
            with control_plane(folder, programs=(ETCD, API_SERVER)) as plane:
                yield KubeApi(
                    url=plane.url,
                    kubeconfig=plane.kubeconfig,
                    headers={"Authorization": f"Bearer {plane.token}"},
                    emulated=False,
                    tls=ssl.create_default_context(cafile=str(plane.certificate)),
                )
        case _:
            process, api = start_sandbox(folder, "--kubelets=off", "--bookmark-seconds=0.2")
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
    connector = aiohttp.TCPConnector(ssl=kube_api.tls)
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
