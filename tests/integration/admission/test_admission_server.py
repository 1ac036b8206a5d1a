"""The admission endpoint over TLS: API servers' requests, renewed certificates, and what strangers may try."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hbox_admission.adapters.server import MOST_BODY_BYTES, PATH, VALIDATE_PATH, AdmissionServer
from hbox_admission.core import Rules
from hbox_common.errors import InvalidRequest
from hbox_common.runtime.certificate import Certificate

from ...certificates import NONE, OPENSSL, make_certificates
from ...json_patch import patched
from ...waiting import until

pytestmark = pytest.mark.skipif(OPENSSL is None, reason=NONE)

NAME = "admission.hbox.svc"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two authorities: each with a pair for the endpoint's name."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("old", "new"):
        (folder / name).mkdir()
        make_certificates(folder / name, broker=f"DNS:{NAME},IP:127.0.0.1")
    return folder


def put(certificates: Path, name: str, secret: Path, *, key: str = "") -> None:
    shutil.copy(certificates / (key or name) / "broker.key", secret / "tls.key")
    shutil.copy(certificates / name / "broker.pem", secret / "tls.crt")


@pytest.fixture
def secret(tmp_path: Path, certificates: Path) -> Path:
    folder = tmp_path / "secret"
    folder.mkdir()
    put(certificates, "old", folder)
    return folder


def trusting(certificates: Path, name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates / name / "ca.pem"))


@pytest.fixture
async def server(secret: Path) -> AsyncIterator[AdmissionServer]:
    certificate = Certificate(secret / "tls.crt", secret / "tls.key")
    async with AdmissionServer(
        certificate, Rules, host="127.0.0.1", port=0, body_s=0.5, idle_s=30.0, most_connections=4
    ) as server:
        server.certificate = certificate  # type: ignore[attr-defined]
        yield server


def pod(count: int = 1, **annotations: str) -> dict[str, Any]:
    asks = {"resources": {"limits": {"nvidia.com/gpumem": "3000"}, "requests": {"nvidia.com/gpumem": "3000"}}}
    containers = [{"name": f"c{i}", "image": "i", **asks} for i in range(count)]
    return {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"schedulerName": "default-scheduler", "containers": containers},
    }


def asked(body: Any, **fields: Any) -> dict[str, Any]:
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "object": body,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | fields}


async def post(port: int, trust: ssl.SSLContext, body: Any, path: str = PATH) -> tuple[int, str]:
    data = BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    url, limit = f"https://127.0.0.1:{port}{path}", aiohttp.ClientTimeout(20)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
        session.post(url, data=data, timeout=limit) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_pod_comes_back_with_a_patch(server: AdmissionServer, certificates: Path) -> None:
    for more in ({}, {"dryRun": True}):
        status, text = await post(server.port, trusting(certificates, "old"), asked(pod(), **more))
        answer = json.loads(text)
        assert (status, answer["apiVersion"], answer["kind"]) == (200, "admission.k8s.io/v1", "AdmissionReview")
        assert answer["response"].items() >= {"uid": "u-1", "allowed": True, "patchType": "JSONPatch"}.items()
        found = patched(pod(), json.loads(b64decode(answer["response"]["patch"])))
        assert found["spec"]["schedulerName"] == "hbox"
        assert found["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpumem": "3000", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "UPDATE"}, {"operation": "DELETE", "object": None}, {"operation": "CONNECT"}, {"subResource": "resize"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}, {"kind": {"group": "", "version": "v1", "kind": "Node"}},
    ],
)  # fmt: skip
async def test_what_is_no_pod_that_is_made_is_let_by(
    server: AdmissionServer, certificates: Path, fields: dict[str, Any]
) -> None:
    status, text = await post(server.port, trusting(certificates, "old"), asked(pod(), **fields))
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u-1", "allowed": True})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "this is no AdmissionReview"),
        (b"\xff" * 100, "this is no AdmissionReview"),
        (b"[" * 200_000, "this is no AdmissionReview"),
        ({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u", "kind": {}}}, "admissionReviewVersions"),
        (asked(None), "request.object is not there"),
        (asked(pod(), uid="u" * 1000), "request.uid has 1000 characters"),
        (asked({"spec": {"containers": 7}}), "$.spec.containers"),
    ],
)  # fmt: skip
async def test_what_cannot_be_understood_is_told(server: AdmissionServer, certificates: Path, body: Any, said: str) -> None:
    status, text = await post(server.port, trusting(certificates, "old"), body)
    assert status == 400
    assert said in text
    assert len(text) < 1000


async def test_large_pods_are_answered_and_larger_ones_refused(server: AdmissionServer, certificates: Path) -> None:
    trust = trusting(certificates, "old")
    began = time.process_time()
    status, text = await post(server.port, trust, asked(pod(5000, note="x" * 250_000)))
    assert status == 200
    assert len(json.loads(b64decode(json.loads(text)["response"]["patch"]))) == 5001
    assert time.process_time() - began < 5, "of both sides: a pod of 1 MB with 5,000 containers"
    with suppress(aiohttp.ClientError):  # the connection may end before all is sent
        assert (await post(server.port, trust, b"x" * (MOST_BODY_BYTES + 1)))[0] == 413
    assert (await post(server.port, trust, asked(pod())))[0] == 200


async def test_other_paths_and_methods_are_none(server: AdmissionServer, certificates: Path) -> None:
    trust = trusting(certificates, "old")
    assert (await post(server.port, trust, b"", "/"))[0] == 404
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        assert (await session.get(f"https://127.0.0.1:{server.port}{PATH}")).status == 405


async def test_a_body_that_does_not_come_is_not_waited_for(server: AdmissionServer, certificates: Path) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(certificates, "old"))
    writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode())
    async with asyncio.timeout(10):
        assert b" 408 " in await reader.readline()
    writer.transport.abort()


async def test_strangers_who_say_nothing_make_way(server: AdmissionServer, certificates: Path) -> None:
    trust = trusting(certificates, "old")
    silent = [await asyncio.open_connection("127.0.0.1", server.port, ssl=trust) for _ in range(12)]
    assert (await post(server.port, trust, asked(pod())))[0] == 200
    async with asyncio.timeout(10):
        assert await silent[0][0].read() == b"", "the one that came first has ended"
    for _, writer in silent:
        writer.transport.abort()


async def test_connections_are_used_again(server: AdmissionServer, certificates: Path) -> None:
    connector = aiohttp.TCPConnector(ssl=trusting(certificates, "old"), limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        large = json.dumps(asked(pod(note="x" * 1_000_000)))
        for _ in range(12):  # more than one connection may say at once
            async with session.post(f"https://127.0.0.1:{server.port}{PATH}", data=large) as answer:
                assert answer.status == 200
                await answer.read()
        assert len(server._open) == 1


async def test_a_renewed_certificate_is_taken_and_a_wrong_one_is_not(
    server: AdmissionServer, certificates: Path, secret: Path
) -> None:
    certificate: Certificate = server.certificate  # type: ignore[attr-defined]
    old, new = trusting(certificates, "old"), trusting(certificates, "new")
    ends = certificate.validity.ends
    assert time.time() + 86_400 < ends < time.time() + 3 * 86_400
    put(certificates, "new", secret, key="old")
    assert not certificate.look()
    assert "no certificate and its key" in certificate.problem
    assert (await post(server.port, old, asked(pod())))[0] == 200
    (secret / "tls.crt").unlink()
    assert not certificate.look()
    assert "cannot be read" in certificate.problem
    put(certificates, "new", secret)
    assert certificate.look()
    assert not certificate.problem
    assert (await post(server.port, new, asked(pod())))[0] == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await post(server.port, old, asked(pod()))
    assert not certificate.look()


async def test_without_a_certificate_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="mount the Secret"):
        Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")


async def test_the_service_answers_renews_and_ends(secret: Path, certificates: Path, tmp_path: Path) -> None:
    """As a process, as the image runs it."""
    sizes, log = tmp_path / "sizes.yaml", tmp_path / "log"
    sizes.write_text("- {name: whole, ways: [whole], becomes: {kind: NVIDIA, way: whole}}\n")
    env = os.environ | {
        "HBOX_TLS_CERTIFICATE": str(secret / "tls.crt"), "HBOX_TLS_KEY": str(secret / "tls.key"), "HBOX_SIZES_FILE": str(sizes), "HBOX_LINGER_S": "1",
    }  # fmt: skip
    program = Path(sys.executable).with_name("hbox-service")
    with (
        log.open("wb") as out,
        subprocess.Popen(  # noqa: ASYNC220
            [program, "admission"], env=env, stdout=out, stderr=out
        ) as process,
    ):
        try:
            found: dict[str, int] = {}

            def told() -> bool:
                assert process.poll() is None, log.read_text()
                found.update({name: int(port) for name, port in re.findall(r'"(health_port|port)": ?(\d+)', log.read_text())})
                return len(found) == 2

            await until(told, timeout_s=60)
            port = found["port"]
            sized = pod() | {"spec": {"containers": [{"name": "a", "resources": {"limits": {"sizes.hbox.io/whole": "2"}}}]}}

            async def becomes() -> dict[str, str]:
                _, text = await post(port, trusting(certificates, "old"), asked(sized))
                return dict(
                    patched(sized, json.loads(b64decode(json.loads(text)["response"]["patch"])))["spec"]["containers"][0][
                        "resources"
                    ]["limits"]
                )

            assert await becomes() == {"nvidia.com/gpu": "2"}
            sizes.write_text("- {name: whole, ways: [whole], becomes: {kind: DCU, way: whole}}\n")

            async def becomes_dcus() -> bool:
                return await becomes() == {"hygon.com/dcunum": "2"}

            await until(becomes_dcus)
            put(certificates, "new", secret)

            async def trusted() -> bool:
                with suppress(aiohttp.ClientConnectorCertificateError):
                    return (await post(port, trusting(certificates, "new"), asked(pod())))[0] == 200
                return False

            await until(trusted)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{found['health_port']}/readyz") as answer:
                    assert answer.status == 200
                async with session.get(f"http://127.0.0.1:{found['health_port']}/metrics") as answer:
                    text = await answer.text()
            assert 'hbox_admission_reviews_total{outcome="mutated"}' in text
            assert re.search(
                r'hbox_certificate_expiration_timestamp_seconds{certificate="admission",server=""} 1\.\d+e\+09', text
            )
            process.send_signal(signal.SIGTERM)
            assert (await post(port, trusting(certificates, "new"), asked(pod())))[0] == 200, "it answers on for linger_s"
            assert await asyncio.to_thread(process.wait, 20) == 0
        finally:
            process.kill()


async def test_a_queue_is_validated_and_other_kinds_are_let_by(server: AdmissionServer, certificates: Path) -> None:
    queue = {"metadata": {"name": "a"}, "spec": {"parent": "a", "wieght": 2}}
    kind = {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "Queue"}
    status, text = await post(server.port, trusting(certificates, "old"), asked(queue, kind=kind), VALIDATE_PATH)
    response = json.loads(text)["response"]
    assert (status, response["allowed"], response["status"]["code"]) == (200, False, 422)
    assert "the parents form a cycle (a -> a)" in response["status"]["message"]
    assert response["warnings"] == ["spec.wieght: unknown field, ignored; did you mean spec.weight?"]
    status, text = await post(server.port, trusting(certificates, "old"), asked(pod()), VALIDATE_PATH)
    assert (status, json.loads(text)["response"]) == (200, {"uid": "u-1", "allowed": True})
    status, text = await post(server.port, trusting(certificates, "old"), asked({"spec": 7}, kind=kind), VALIDATE_PATH)
    assert (status, "this is no Queue" in text) == (400, True)
