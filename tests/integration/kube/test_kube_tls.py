"""Certificates are the official client's business; that they reach our own connections is ours."""

import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.kube import KubeClient

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl, which is not here")


@dataclass
class TlsApi:
    url: str
    folder: Path

    def kubeconfig(self, **cluster: str) -> str:
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)


def make_certificate(folder: Path, host: str) -> None:
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={host}"]
    files = ["-keyout", str(folder / f"{host}.key"), "-out", str(folder / f"{host}.crt")]
    command = [
        "openssl",
        *request,
        "-addext",
        f"subjectAltName=DNS:{host}",
        "-addext",
        "keyUsage=digitalSignature,keyCertSign",
        *files,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture
async def tls_api(tmp_path: Path) -> AsyncIterator[TlsApi]:
    make_certificate(tmp_path, "kube.test")
    make_certificate(tmp_path, "other.test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "kube.test.crt", tmp_path / "kube.test.key")

    async def version(_request: web.Request) -> web.Response:
        return web.json_response({"major": "1"})

    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield TlsApi(f"https://127.0.0.1:{runner.addresses[0][1]}", tmp_path)
    await runner.cleanup()


async def test_the_kubeconfigs_authority_and_server_name_are_used(tls_api: TlsApi) -> None:
    authority = str(tls_api.folder / "kube.test.crt")
    config = tls_api.kubeconfig(**{"certificate-authority": authority, "tls-server-name": "kube.test"})
    async with KubeClient.connect(config, user_agent="t") as client:
        assert await client.json("GET", "/version") == {"major": "1"}


@pytest.mark.parametrize(("authority", "name"), [("other.test", "kube.test"), ("kube.test", "other.test")])
async def test_a_server_that_cannot_prove_who_it_is_gets_nothing(tls_api: TlsApi, authority: str, name: str) -> None:
    authority = str(tls_api.folder / f"{authority}.crt")
    config = tls_api.kubeconfig(**{"certificate-authority": authority, "tls-server-name": name})
    async with KubeClient.connect(config, user_agent="t") as client:
        with pytest.raises(Unavailable, match="cannot be trusted") as refused:
            await client.json("POST", "/version", body={})
    assert not refused.value.outcome_unknown


async def test_a_broken_authority_file_is_one_clear_line(tls_api: TlsApi) -> None:
    (tls_api.folder / "broken.crt").write_text("no certificate")
    config = tls_api.kubeconfig(**{"certificate-authority": str(tls_api.folder / "broken.crt")})
    with pytest.raises(InvalidRequest, match="kubeconfig"):
        async with KubeClient.connect(config, user_agent="t"):
            pass
