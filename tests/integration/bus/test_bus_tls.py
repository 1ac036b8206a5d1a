"""The broker by TLS: who signs its certificate has to be known, and where it verifies its clients they show theirs."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, find_binary, write_config
from hbox_common.bus.users import users
from hbox_common.errors import InvalidRequest
from hbox_common.ports import reserved
from hbox_common.telemetry.metrics import REGISTRY
from hbox_common.x509 import in_pem

from ...certificates import NONE, OPENSSL, make_certificates
from ...waiting import until
from .bus_world import job

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NONE)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def broker(folder: Path, certificates: Path) -> AsyncIterator[tuple[str, Access]]:
    """Its address, and how binder gets in."""
    with reserved(1) as [port]:
        config = write_config(folder / "nats", port=port, keys=keep(folder / "users", users()))
        files = {"cert_file": "broker.pem", "key_file": "broker.key", "ca_file": "ca.pem"}
        lines = "\n".join(f'  {name}: "{certificates / file}"' for name, file in files.items())
        config.write_text(config.read_text() + f"tls {{\n{lines}\n  verify: true\n}}\n")
        process = await asyncio.create_subprocess_exec(find_binary(), "--config", config, stderr=asyncio.subprocess.DEVNULL)
        try:

            async def listens() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    return False
                writer.close()
                return True

            await until(listens, "nats-server listens", timeout_s=20)
            access = Access(
                folder / "users" / "binder.nk",
                certificates / "ca.pem",
                certificates / "client.pem",
                certificates / "client.key",
            )
            yield f"tls://127.0.0.1:{port}", access
        finally:
            process.terminate()
            await process.wait()


async def test_certificates_of_both_sides_are_verified(tmp_path: Path, certificates: Path) -> None:
    async with broker(tmp_path, certificates) as (url, access):
        admin = replace(access, seed=tmp_path / "users" / "admin.nk")
        async with asyncio.timeout(20), Bus.connect(url, name="admin", instance="1", access=admin) as bus:
            await bus.publish(job("a"), "0")
        for wrong in (replace(access, ca=certificates / "other.pem"), replace(access, certificate=None, key=None)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5), Bus.connect(url, name="binder", instance="1", access=wrong):
                    pass


async def test_a_renewed_certificate_is_shown_at_the_next_connection(tmp_path: Path, certificates: Path) -> None:
    """As cert-manager renews it: another file under the same name. The one from before is of an authority that the broker does not know."""
    other = tmp_path / "other"
    other.mkdir()
    files = make_certificates(other)
    mine = tmp_path / "mine"
    shutil.copytree(certificates, mine)
    async with broker(tmp_path, certificates) as (url, access):
        seed = tmp_path / "users" / "admin.nk"
        admin = replace(access, seed=seed, certificate=mine / "client.pem", key=mine / "client.key")
        async with asyncio.timeout(20), Bus.connect(url, name="admin", instance="1", access=admin) as bus:
            client = bus._connection._client
            for name in ("client.pem", "client.key"):
                shutil.copy(files / name, mine / name)
            await _lose(bus)
            await asyncio.sleep(1.0)
            assert not bus.connected, "a certificate by a stranger lets nobody in: the files were read"
            (mine / "client.pem").write_text("half a fi")
            assert client.ssl_context is not None, "a file that is being changed ends nothing"
            for name in ("client.pem", "client.key"):
                shutil.copy(certificates / name, mine / name)
            await until(lambda: bus.connected, "a connection", timeout_s=10)


async def _lose(bus: Bus) -> None:
    lost = bus.connections
    transport = bus._connection._client._transport
    assert transport is not None
    transport.close()  # type: ignore[no-untyped-call]
    await until(lambda: not bus.connected or bus.connections > lost, "the connection is lost", timeout_s=10)


async def test_metrics_tell_when_certificates_end(tmp_path: Path, certificates: Path) -> None:
    async with broker(tmp_path, certificates) as (url, access):
        admin = replace(access, seed=tmp_path / "users" / "admin.nk")
        async with asyncio.timeout(20), Bus.connect(url, name="admin", instance="1", access=admin) as bus:
            watching = asyncio.create_task(bus.watch_certificates(access))
            server = url.removeprefix("tls://")
            ends = {("client", ""): "client", ("ca", ""): "ca", ("broker", server): "broker"}

            def told(name: str) -> dict[tuple[str, str], float]:
                return {
                    (certificate, shown): REGISTRY.get_sample_value(
                        f"hbox_certificate_{name}_timestamp_seconds", {"certificate": certificate, "server": shown}
                    )
                    or 0.0
                    for certificate, shown in ends
                }

            await until(lambda: all(told("not_before").values()), "all of them", timeout_s=10)
            watching.cancel()
            for key, name in ends.items():
                [one] = in_pem((certificates / f"{name}.pem").read_text())
                assert (told("not_before")[key], told("expiration")[key]) == (one.begins, one.ends)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"certificate": "client.pem"}, "needs its key"),
        ({"ca": "nowhere.pem"}, "cannot be used"),
        ({"certificate": "client.pem", "key": "broker.key"}, "cannot be used"),
    ],
)
async def test_certificates_that_cannot_be_used_are_said_to_be_so(certificates: Path, files: dict[str, str], said: str) -> None:
    access = Access(**{name: certificates / file for name, file in files.items()})
    with pytest.raises(InvalidRequest, match=said):
        async with Bus.connect("tls://127.0.0.1:1", name="binder", instance="1", access=access):
            pass
