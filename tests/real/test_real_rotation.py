"""Certificates that are renewed on both sides of a real API server: a client goes on, by requests and watches, and is never started again."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane
from hbox_common.errors import HBoxError
from hbox_common.kube import NODES, Delta, Informer, KubeClient, Node, apply

from ..certificates import NONE, OPENSSL, make_certificates
from ..waiting import until
from .control_plane import control_plane

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(OPENSSL is None, reason=NONE)]

#: kube-apiserver looks at its files when they change, and once a minute.
RENEWED_S = 90.0

#: The certificates are for the user `client`.
OURS = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "client"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "client"}],
}  # fmt: skip


def put(path: Path, text: str) -> None:
    """In one step, as a mounted Secret changes."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


def kubeconfig(folder: Path, plane: ControlPlane) -> str:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": plane.url, "certificate-authority": "ca.pem"}}],
        "users": [{"name": "u", "user": {"client-certificate": "client.pem", "client-key": "client.key"}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(json.dumps(config))
    return str(folder / "kubeconfig")


async def lets_in(plane: ControlPlane, trust: Path, generation: Path) -> bool:
    """Whether the server shows a certificate that `trust` vouches for, and knows the client of this generation."""
    context = ssl.create_default_context(cafile=str(trust))
    context.load_cert_chain(generation / "client.pem", generation / "client.key")

    def ask() -> bool:
        connection = HTTPSConnection("127.0.0.1", plane.ports[0], timeout=10, context=context)
        try:
            connection.request("GET", "/api/v1/nodes?limit=1")
            return connection.getresponse().status == HTTPStatus.OK
        except ssl.SSLError:
            return False
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def ignore(_: Sequence[Delta[Node]]) -> None:
    pass


async def seen(client: KubeClient, nodes: Informer[Node], name: str) -> None:
    """A node that is made is told by the watch."""
    await client.json("POST", NODES.path(), body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await until(lambda: name in {node.metadata.name for node in nodes.store.values()}, name, timeout_s=30)
    assert not nodes.freshness().old


@pytest.fixture
def generations(tmp_path: Path) -> tuple[Path, Path]:
    """Of certificates: those before and those after."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        make_certificates(folder)
    return old, new


@pytest.fixture
def clients(tmp_path: Path, generations: tuple[Path, Path]) -> Path:
    """By whom the server knows its clients."""
    path = tmp_path / "clients.pem"
    path.write_text((generations[0] / "ca.pem").read_text())
    return path


@pytest.fixture
def plane(tmp_path: Path, clients: Path) -> Iterator[ControlPlane]:
    flags = {"client-ca-file": str(clients)}
    with control_plane(tmp_path / "plane", (ETCD, API_SERVER), {API_SERVER: flags}) as own:
        yield own


async def test_certificates_are_renewed_on_both_sides_and_nothing_is_started_again(
    plane: ControlPlane, generations: tuple[Path, Path], clients: Path, tmp_path: Path
) -> None:
    (old, new), files = generations, tmp_path / "files"
    files.mkdir()
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as admin:
        await apply(admin, OURS, field_manager="test")
    put(files / "ca.pem", plane.certificate.read_text())
    for name in ("client.pem", "client.key"):
        put(files / name, (old / name).read_text())
    failures: list[HBoxError] = []
    async with KubeClient.connect(kubeconfig(files, plane), user_agent="rotated") as client, asyncio.TaskGroup() as tasks:
        nodes: Informer[Node] = Informer(client, NODES, Node)
        watching = tasks.create_task(nodes.run(ignore))

        async def ask() -> None:
            while True:
                try:
                    await client.json("GET", NODES.path(), params={"limit": "1"})
                except HBoxError as e:
                    failures.append(e)
                await asyncio.sleep(0.2)

        asking = tasks.create_task(ask())
        await seen(client, nodes, "before")

        # The client's own: the server knows both authorities for a while.
        put(clients, (old / "ca.pem").read_text() + (new / "ca.pem").read_text())
        await until(lambda: lets_in(plane, plane.certificate, new), "the new client's authority", timeout_s=RENEWED_S)
        for name in ("client.pem", "client.key"):
            put(files / name, (new / name).read_text())
        await asyncio.sleep(2.0)
        put(clients, (new / "ca.pem").read_text())

        async def forgotten() -> bool:
            return not await lets_in(plane, plane.certificate, old)

        await until(forgotten, "the old client is not let in any more", timeout_s=RENEWED_S)
        await seen(client, nodes, "with-the-new-client-certificate")

        # The server's: the client knows both authorities for a while.
        put(files / "ca.pem", plane.certificate.read_text() + (new / "ca.pem").read_text())
        await asyncio.sleep(2.0)
        for name, suffix in (("broker.key", ".key"), ("broker.pem", ".crt")):
            put(plane.certificate.with_suffix(suffix), (new / name).read_text())
        await until(lambda: lets_in(plane, new / "ca.pem", new), "the new server's certificate", timeout_s=RENEWED_S)
        put(files / "ca.pem", (new / "ca.pem").read_text())
        await asyncio.sleep(2.0)
        await seen(client, nodes, "by-the-new-authority")
        watching.cancel()
        asking.cancel()
    assert failures == []
