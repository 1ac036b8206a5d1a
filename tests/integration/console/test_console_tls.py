"""TLS of the console: its own certificate, and clients with certificates of the cluster's client CA."""

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hbox_common.kube import CONFIGMAPS, Resource, apply
from hbox_console.adapters import clientca, owncertificate

from ...certificates import NONE, OPENSSL, make_certificates
from ...console_objects import a_job
from .conftest import PODS, World

SECRETS = Resource("", "v1", "secrets", namespaced=True)
SYSTEM, SECRET = "hbox-system", "hbox-console-tls"
NAMES = ("localhost", "127.0.0.1")


@pytest.fixture
async def installed(world: World) -> World:
    """What the chart makes."""
    for manifest in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM}, "type": "Opaque"},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "hbox-access", "namespace": "kube-public"},
            "data": {"url": "x"},
        },
    ):
        await apply(world.client, manifest, field_manager="test")
    world.jobs = [a_job("ns-a", "alpha")]
    return world


async def _ask(world: World, context: ssl.SSLContext, token: str = "") -> tuple[int, Any]:
    assert world.console is not None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{world.console.port}/api/v1/whoami"
    async with world.session.get(url, headers=headers, ssl=context) as answer:
        return answer.status, await answer.json(content_type=None)


async def _published(world: World) -> str:
    found = await world.client.json("GET", CONFIGMAPS.path("kube-public", "hbox-access"))
    text: str = found["data"]["ca.crt"]
    return text


async def test_a_service_makes_its_certificate_and_keeps_it(installed: World) -> None:
    settings = {"tls_secret": SECRET, "tls_names": ",".join(NAMES)}
    async with installed.running(**settings) as world:
        first = await _published(world)
        context = ssl.create_default_context(cadata=first)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        assert (await _ask(world, context, "sandbox:anna"))[1]["user"] == "anna"
        assert (await _ask(world, context))[0] == 401
    async with installed.running(**settings) as world:
        assert await _published(world) == first, "a restart does not make another one"
    async with installed.running(**settings | {"tls_names": "hbox.example.com,127.0.0.1"}) as world:
        assert await _published(world) != first, "it lacks a name"
        found = await world.client.json("GET", SECRETS.path(SYSTEM, SECRET))
        assert base64.b64decode(found["data"]["tls.crt"]).decode() == await _published(world)


async def test_replicas_that_start_together_have_one_certificate(installed: World, tmp_path: Path) -> None:
    kept = [
        owncertificate.keep(installed.client, namespace=SYSTEM, name=SECRET, names=NAMES, folder=tmp_path / str(i))
        for i in range(4)
    ]
    paths = await asyncio.gather(*kept)
    assert len({certificate.read_text() for certificate, _ in paths}) == 1
    assert len({key.read_text() for _, key in paths}) == 1


@pytest.mark.skipif(OPENSSL is None, reason=NONE)
async def test_a_certificate_of_the_clusters_authority_names_the_client(installed: World, tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    authority = {"client-ca-file": (made / "ca.pem").read_text()}
    metadata = {"name": clientca.NAME, "namespace": clientca.NAMESPACE}
    await apply(
        installed.client,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": authority},
        field_manager="test",
    )
    await installed.allow("client", "ns-a", rule=PODS)
    async with installed.running(tls_secret=SECRET, tls_names=",".join(NAMES)) as world:
        context = ssl.create_default_context(cadata=await _published(world))
        assert (await _ask(world, context))[0] == 401
        context = ssl.create_default_context(cadata=await _published(world))  # for a connection of its own
        context.load_cert_chain(made / "client.pem", made / "client.key")
        status, found = await _ask(world, context)
        assert (status, found["user"], found["groups"]) == (200, "client", ["system:authenticated"])
        assert (await _ask(world, context, "sandbox:bert"))[1]["user"] == "bert", "a token is the client's own choice"
        foreign = ssl.create_default_context(cadata=await _published(world))
        foreign.load_cert_chain(made / "other.pem", made / "other.key")
        with pytest.raises(aiohttp.ClientError):
            await _ask(world, foreign)
