"""Certificates, authorities, tokens and kubeconfigs that are renewed while a client goes on: against a server that asks for certificates by TLS."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hbox_common.errors import Unavailable
from hbox_common.kube import KubeClient, renewal
from hbox_common.kube.status import Busy

from ...certificates import NONE, OPENSSL, make_certificates
from ...waiting import until

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NONE)


@dataclass(eq=False)
class Server:
    """Tells who came. `known`: the serial numbers that it lets in; empty: it asks for a token instead."""

    context: ssl.SSLContext
    url: str = ""
    known: set[str] = field(default_factory=set)
    tokens: list[str] = field(default_factory=list)  #: as they were shown
    connections: set[Any] = field(default_factory=set)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)  #: for what asks for /slow

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.connections.add(request.transport)
        if request.path == "/slow":
            await self.go_on.wait()
        peer = request.transport.get_extra_info("peercert") or {}
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.known and peer.get("serialNumber") not in self.known:
            return web.json_response({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)
        return web.Response(text=json.dumps({"serial": peer.get("serialNumber", "")}) + "\n")

    def hang_up(self) -> None:
        """So that the next request is one on a new connection."""
        for transport in self.connections:
            if not transport.is_closing():  # one that was closed twice cannot be aborted in Python 3.11.2, Debian 12's
                transport.abort()
        self.connections.clear()


@dataclass(frozen=True)
class World:
    """Two generations of certificates, and a server with those of the first."""

    server: Server
    old: Path
    new: Path
    files: Path  #: ca.pem, client.pem and client.key as a service has them mounted: the first generation's

    def kubeconfig(self, **user: Any) -> str:
        user = user or {"client-certificate": "client.pem", "client-key": "client.key"}
        cluster = {"server": self.server.url, "certificate-authority": "ca.pem"}
        return self.write(cluster, user)

    def write(self, cluster: dict[str, Any], user: dict[str, Any]) -> str:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        }  # fmt: skip
        path = self.files / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    def renew(self, *names: str) -> None:
        for name in names:
            shutil.copy(self.new / name, self.files / name)


@pytest.fixture(scope="module")
def generations(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificates")
    old, new = folder / "old", folder / "new"
    for one in (old, new):
        one.mkdir()
        make_certificates(one)
    return old, new


@asynccontextmanager
async def serving(old: Path, new: Path) -> AsyncIterator[Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(old / "broker.pem", old / "broker.key")
    for authority in (old, new):
        context.load_verify_locations(authority / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    server = Server(context)
    runner = web.ServerRunner(web.Server(server.handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def world(generations: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(renewal, "LOOK_S", 0.0)
    old, new = generations
    files = tmp_path / "mounted"
    files.mkdir()
    for name in ("ca.pem", "client.pem", "client.key"):
        shutil.copy(old / name, files / name)
    async with serving(old, new) as server:
        yield World(server, old, new, files)


async def whoami(client: KubeClient) -> str:
    return str((await client.json("GET", "/whoami"))["serial"])


async def watched(client: KubeClient) -> str:
    """As `whoami`, by the way that watches go."""
    async with client.stream("/whoami", params={}, lasts_s=5.0) as lots:
        return str(json.loads((await anext(lots))[0])["serial"])


async def test_a_renewed_client_certificate_is_shown_from_the_next_request_on(world: World) -> None:
    async with KubeClient.connect(world.kubeconfig(), user_agent="t") as client:
        before = await whoami(client)
        assert before
        assert await watched(client) == before
        world.renew("client.pem", "client.key")
        after = await whoami(client)
        assert await watched(client) == after
    assert after not in ("", before)


async def test_a_request_under_way_ends_with_its_own_connection(world: World) -> None:
    async with KubeClient.connect(world.kubeconfig(), user_agent="t") as client:
        async with asyncio.TaskGroup() as tasks:
            slow = tasks.create_task(client.json("GET", "/slow"))
            await until(lambda: world.server.connections, "the request")
            (first,) = world.server.connections
            world.renew("client.pem", "client.key")
            assert await whoami(client) != (first.get_extra_info("peercert") or {})["serialNumber"]
            world.server.go_on.set()
            assert (await slow)["serial"]
        await until(first.is_closing, "the end of the connection with the former certificate")


async def test_authorities_may_be_added_and_the_old_one_removed_while_the_server_changes_its_own(world: World) -> None:
    async with KubeClient.connect(world.kubeconfig(), user_agent="t") as client:
        await whoami(client)
        both = (world.old / "ca.pem").read_text() + (world.new / "ca.pem").read_text()
        (world.files / "ca.pem").write_text(both)
        await whoami(client)
        world.server.context.load_cert_chain(world.new / "broker.pem", world.new / "broker.key")
        world.server.hang_up()
        await whoami(client)
        await watched(client)
        world.renew("ca.pem")
        await whoami(client)
        # The one that was removed is trusted no more.
        world.server.context.load_cert_chain(world.old / "broker.pem", world.old / "broker.key")
        world.server.hang_up()
        with pytest.raises(Unavailable, match="cannot be trusted"):
            await whoami(client)
        with pytest.raises(Unavailable, match="cannot be trusted"):
            await watched(client)


async def test_files_half_written_leave_those_before_in_use(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with KubeClient.connect(world.kubeconfig(), user_agent="t") as client:
        before = await whoami(client)
        world.renew("client.pem")  # its key is not there yet
        (world.files / "ca.pem").write_text("")
        for _ in range(3):
            assert await whoami(client) == before
        world.renew("client.key")
        world.server.hang_up()
        assert await whoami(client) == before
        shutil.copy(world.old / "ca.pem", world.files / "ca.pem")
        assert await whoami(client) not in ("", before)
    said = [record.message for record in caplog.records if "stays in use" in record.message]
    assert 1 <= len(said) <= 2, "once for each thing that is wrong"


async def test_a_kubeconfig_with_everything_in_it_may_be_replaced(world: World) -> None:
    def inline(folder: Path) -> str:
        def data(name: str) -> str:
            return b64encode((folder / name).read_bytes()).decode()

        cluster = {
            "server": world.server.url,
            "certificate-authority-data": b64encode((world.old / "ca.pem").read_bytes()).decode(),
        }
        return world.write(cluster, {"client-certificate-data": data("client.pem"), "client-key-data": data("client.key")})

    async with KubeClient.connect(inline(world.old), user_agent="t") as client:
        before = await whoami(client)
        inline(world.new)
        assert await whoami(client) not in ("", before)


async def test_a_plugin_is_asked_again_when_the_server_knows_us_no_longer_but_not_for_each_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = world.files / "asked"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {}}
    script = f"""echo x >> {asked}; cat {world.files}/credential"""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script],
        "interactiveMode": "Never",
    }

    def hold(folder: Path) -> None:
        pair = {
            "clientCertificateData": (folder / "client.pem").read_text(),
            "clientKeyData": (folder / "client.key").read_text(),
        }
        (world.files / "credential").write_text(json.dumps({**credential, "status": pair}))

    hold(world.old)
    async with KubeClient.connect(world.kubeconfig(exec=plugin), user_agent="t") as client:
        before = await whoami(client)
        world.server.known = {"another"}
        for _ in range(20):
            with pytest.raises(Busy, match="401"):
                await whoami(client)
        assert len(asked.read_text().splitlines()) == 2, "at the start, and once since"
        monkeypatch.setattr(renewal, "REFUSED_S", 0.0)
        hold(world.new)
        with pytest.raises(Busy, match="401"):
            await whoami(client)
        world.server.known = set()
        assert await whoami(client) not in ("", before)


async def test_the_token_and_the_authorities_of_a_service_account_are_read_as_kubelet_writes_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.aio.config import incluster_config  # noqa: PLC0415  heavy

    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(world.files / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(world.files / "ca.pem"))
    host, _, port = world.server.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    token = world.files / "token"
    token.write_text("first")
    async with KubeClient.connect(None, user_agent="t") as client:
        await whoami(client)
        token.write_text("second")
        await whoami(client)
        token.unlink()
        world.renew("ca.pem")  # while the token is away, nothing is read anew
        await whoami(client)
        token.write_text("third")
        world.server.context.load_cert_chain(world.new / "broker.pem", world.new / "broker.key")
        world.server.hang_up()
        await whoami(client)
    assert world.server.tokens == ["Bearer first", "Bearer second", "Bearer second", "Bearer third"]
