"""`hbox bus callout` with a real API server and a real nats-server: the tokens of pods admit agents, each for its node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.brokerkeys import keep, keep_account
from hbox_common.bus import Access, Bus, EmbeddedServer, connection
from hbox_common.bus.callout import AUDIENCE
from hbox_common.bus.errors import NotPermitted
from hbox_common.bus.users import ADMIN, AGENT, CALLOUT, agent_user, users
from hbox_common.errors import InvalidRequest
from hbox_common.events import HealthReport
from hbox_common.kube import PODS, KubeClient, apply
from hbox_common.model import NodeName
from hbox_common.ports import free_port

from ..chart.rendered import NAMESPACE, objects
from ..waiting import until
from .admission_world import ACCOUNTS, account, pod
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

SPACE = "tenant"
API = "https://kubernetes.default.svc"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("callout"), programs=()) as plane:
        yield plane


class World:
    """`seeds`: the folder that `hbox bus users --agents-by-node` makes."""

    def __init__(self, admin: KubeClient, server: EmbeddedServer, kubeconfig: Path, folder: Path) -> None:
        self.admin, self.server, self.kubeconfig, self.folder = admin, server, kubeconfig, folder
        self.seeds = folder / "users"
        self.health = free_port()
        self.log = folder / "callout.log"

    @contextmanager
    def callout(self) -> Iterator[subprocess.Popen[bytes]]:
        words = ["bus", "callout", "--nats-url", self.server.url, "--keys", str(self.folder / "keys"), "--account", f"{NAMESPACE}:{AGENT}",
                 "--kubeconfig", str(self.kubeconfig), "--health-port", str(self.health)]  # fmt: skip
        with self.log.open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", "hbox_cli", *words], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    async def is_ready(self) -> bool:
        async with aiohttp.ClientSession() as session:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with session.get(f"http://127.0.0.1:{self.health}/readyz", timeout=aiohttp.ClientTimeout(1)) as answer:
                    return answer.status == 200
        return False

    async def token(self, of: str, *, space: str = NAMESPACE, name: str = AGENT, audience: str = AUDIENCE) -> str:
        """Bound to the pod `of`, as the kubelet of its node requests it."""
        found = await self.admin.json("GET", PODS.path(space, of))
        reference = {"kind": "Pod", "apiVersion": "v1", "name": of, "uid": found["metadata"]["uid"]}
        spec = {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": reference}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str((await self.admin.json("POST", ACCOUNTS.path(space, name, "token"), body=body))["status"]["token"])

    @asynccontextmanager
    async def agent(self, node: str, token: str) -> AsyncIterator[Bus]:
        file = self.folder / "token"
        file.write_text(token)
        access = Access(token=file)
        async with Bus.connect(self.server.url, name=AGENT, instance=node, access=access, user=agent_user(node)) as bus:
            yield bus


@pytest.fixture
async def world(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as admin:
        for name in (NAMESPACE, SPACE):
            await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, field_manager="test")
            made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": AGENT, "namespace": name}}
            await apply(admin, made, field_manager="test")
        for one in objects("node agents"):
            if one["metadata"]["name"] == "hbox:callout":
                await apply(admin, one, field_manager="test")
        kubeconfig = await account(admin, plane.kubeconfig, tmp_path, NAMESPACE, "callout")
        for node in ("node-1", "node-2"):
            await apply(admin, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}, field_manager="test")
            for space in (NAMESPACE, SPACE):
                with suppress(InvalidRequest):
                    await admin.json("DELETE", PODS.path(space, f"agent-{node}"), params={"gracePeriodSeconds": "0"})
                await admin.json("POST", PODS.path(space), body=pod(f"agent-{node}", nodeName=node, serviceAccountName=AGENT))
        keys = keep(tmp_path / "users", users())
        issuer = keep_account(tmp_path / "users/callout.issuer")
        (tmp_path / "keys").mkdir()
        (tmp_path / "keys/seed").symlink_to(tmp_path / f"users/{CALLOUT}.nk")
        (tmp_path / "keys/issuer").symlink_to(tmp_path / "users/callout.issuer")
        async with EmbeddedServer(tmp_path / "nats", keys=keys, issuer=issuer) as server:
            async with Bus.connect(server.url, name=ADMIN, instance="1", access=Access(seed=tmp_path / f"users/{ADMIN}.nk")):
                pass
            yield World(admin, server, kubeconfig, tmp_path)


def report(node: str) -> HealthReport:
    return HealthReport(node=NodeName(node), boot_id="b", agent="a", facts=())


async def test_the_token_of_a_pod_admits_the_agent_of_its_node_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.callout():
        await until(world.is_ready, timeout_s=60)
        async with world.agent("node-1", await world.token("agent-node-1")) as bus:
            await bus.publish(report("node-1"), "node-1")
            with pytest.raises(NotPermitted):
                await bus.publish(report("node-2"), "node-2", timeout_s=5)
        monkeypatch.setattr(connection, "REFUSED_S", 0.0)
        stolen = await world.token("agent-node-2")
        others = {
            "of a tenant's account with the same name": await world.token("agent-node-1", space=SPACE),
            "for the API server": await world.token("agent-node-1", audience=API),
            "with another signature": stolen[:-8] + "AAAAAAAA",
            "no token": "x" * 2000,
        }
        await world.admin.json("DELETE", PODS.path(NAMESPACE, "agent-node-2"), params={"gracePeriodSeconds": "0"})
        others["of a deleted pod"] = stolen
        for what, token in others.items():
            with pytest.raises(InvalidRequest, match="refuses us"):
                async with asyncio.timeout(20), world.agent("node-1", token):
                    pytest.fail(what)


async def test_agents_are_admitted_while_another_host_floods_the_broker(world: World) -> None:
    token = await world.token("agent-node-1")
    junk = await world.token("agent-node-1", space=SPACE)
    tried = 0

    connect = b"CONNECT " + json.dumps({"auth_token": junk, "verbose": False}).encode() + b"\r\nPING\r\n"

    async def flood() -> None:
        nonlocal tried
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port, local_addr=("127.0.0.2", 0))
            try:
                writer.write(connect)
                tried += 1
                await reader.read()
            except OSError:
                pass  # the broker closes the connection
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    with world.callout() as process:
        await until(world.is_ready, timeout_s=60)
        flooding = [asyncio.create_task(flood()) for _ in range(200)]
        try:
            await until(lambda: tried > 200, timeout_s=60)
            async with asyncio.timeout(15), world.agent("node-1", token) as bus:
                await bus.publish(report("node-1"), "node-1")
        finally:
            for one in flooding:
                one.cancel()
            await asyncio.gather(*flooding, return_exceptions=True)
        assert process.poll() is None
    assert world.log.read_text().count("is not admitted") < 60, "a line a second"


async def test_agents_go_on_while_the_callout_hangs_and_new_ones_wait(world: World) -> None:
    token = await world.token("agent-node-1")
    with world.callout() as process:
        await until(world.is_ready, timeout_s=60)
        async with world.agent("node-1", token) as bus:
            os.kill(process.pid, signal.SIGSTOP)
            await until(lambda: is_not(world), timeout_s=20)
            await bus.publish(report("node-1"), "node-1")  # an admitted agent stays connected
            waiting = asyncio.create_task(publish_when_admitted(world, token))
            await asyncio.sleep(3)  # longer than the server waits for the callout
            assert not waiting.done()
            os.kill(process.pid, signal.SIGCONT)
            await asyncio.wait_for(waiting, 60)


async def is_not(world: World) -> bool:
    return not await world.is_ready()


async def publish_when_admitted(world: World, token: str) -> None:
    async with world.agent("node-1", token) as bus:
        await bus.publish(report("node-1"), "node-1")
