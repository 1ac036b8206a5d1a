"""`hbox jobs` through the broker by one request: with the keys and certificates of a closed broker, and without an answer where there is none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hbox_cli.access import brokerjobs
from hbox_cli.access.brokerjobs import broker_jobs
from hbox_cli.access.source import Wanted
from hbox_cli.platform.layout import Running
from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, EmbeddedServer, Endpoint, find_binary, write_config
from hbox_common.bus.micro import PREFIX, inbox_of
from hbox_common.bus.users import OPERATOR, users
from hbox_common.errors import InvalidRequest
from hbox_common.ports import reserved
from hbox_jobs.api import ListingAnswer, ListingRequest

from ...certificates import NONE, OPENSSL, make_certificates
from ...waiting import until

ITEMS = ({"name": "ns/a", "queue": "q", "state": "WAITING"}, {"name": "ns/b", "queue": "other", "state": "RUNNING"})


async def listing(_: ListingRequest) -> ListingAnswer:
    return ListingAnswer(items=ITEMS)


@asynccontextmanager
async def job_controller(
    url: str, *, seed: Path | None = None, ca: Path | None = None, answer: object = listing
) -> AsyncIterator[None]:
    """Its endpoint, as the service offers it."""
    access = Access(seed=seed, ca=ca)
    async with Bus.connect(url, name="job-controller", instance="1", access=access, ensure=False) as bus:
        endpoint = Endpoint("listing", "Jobs", ListingRequest, ListingAnswer, answer)  # type: ignore[arg-type]
        task = asyncio.create_task(bus.offer([endpoint], version="1", about="Jobs"))
        try:
            yield
        finally:
            task.cancel()


def platform(url: str) -> Running:
    return Running(pid=0, nats_url=url, kubeconfig="", database_url="", emulated=False, policy="")


async def asked(running: Running, wanted: Wanted | None = None) -> list[str] | None:
    found = await asyncio.to_thread(broker_jobs, running, wanted or Wanted())
    return None if found is None else [item["name"] for item in found]


def test_names_are_those_of_the_bus() -> None:
    assert brokerjobs.USER == OPERATOR
    assert f"{PREFIX}.job-controller.listing" == brokerjobs.SUBJECT
    assert inbox_of(OPERATOR) == f"_INBOX_{brokerjobs.USER}"


async def test_jobs_of_an_open_broker_are_listed_and_filtered(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats") as nats, job_controller(nats.url):
        running = platform(f"nats://127.0.0.1:1,{nats.url}")  # the first server of the list is away
        await until(lambda: asked(running), "the endpoint answers")
        assert await asked(running) == ["ns/a", "ns/b"]
        assert await asked(running, Wanted(queue="q")) == ["ns/a"]


async def test_jobs_of_a_broker_with_users_are_listed_with_the_operators_key(tmp_path: Path) -> None:
    seeds = tmp_path / "users"
    async with (
        EmbeddedServer(tmp_path / "nats", keys=keep(seeds, users())) as nats,
        job_controller(nats.url, seed=seeds / "job-controller.nk"),
    ):
        running = replace(platform(nats.url), nats_users=str(seeds))
        await until(lambda: asked(running), "the endpoint answers")
        assert await asked(running) == ["ns/a", "ns/b"]
        assert await asked(platform(nats.url)) is None, "without a key"


async def test_nothing_is_listed_without_an_answer(tmp_path: Path) -> None:
    refused: list[ListingRequest] = []

    async def refusing(request: ListingRequest) -> ListingAnswer:
        refused.append(request)
        raise InvalidRequest("there are more than 2000 jobs")

    async def is_refused() -> bool:
        assert await asked(running) is None
        return bool(refused)

    async with EmbeddedServer(tmp_path / "nats") as nats:
        running = platform(nats.url)
        assert await asked(running) is None, "no job-controller"
        async with job_controller(nats.url, answer=refusing):
            await until(is_refused, "the endpoint answers with an error")
    assert await asked(running) is None, "no broker"


@pytest.mark.skipif(OPENSSL is None, reason=NONE)
async def test_a_broker_with_a_certificate_is_verified(tmp_path: Path) -> None:
    (tmp_path / "certificates").mkdir()
    certificates = make_certificates(tmp_path / "certificates")
    with reserved(1) as [port]:
        config = write_config(tmp_path / "nats", port=port)
        lines = f'  cert_file: "{certificates / "broker.pem"}"\n  key_file: "{certificates / "broker.key"}"'
        config.write_text(config.read_text() + f"tls {{\n{lines}\n}}\n")
        process = await asyncio.create_subprocess_exec(find_binary(), "--config", config, stderr=asyncio.subprocess.DEVNULL)
        try:
            url = f"tls://127.0.0.1:{port}"
            async with job_controller(url, ca=certificates / "ca.pem"):
                running = replace(platform(url), nats_ca=str(certificates / "ca.pem"))
                await until(lambda: asked(running), "the endpoint answers")
                assert await asked(running) == ["ns/a", "ns/b"]
                assert await asked(replace(running, nats_ca=str(certificates / "other.pem"))) is None
        finally:
            process.terminate()
            await process.wait()
