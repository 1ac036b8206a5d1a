"""Leader and standby of the ledger on one PostgreSQL: a leader that is killed, or hangs, is replaced, and nothing that was committed is lost or doubled."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.events import BindDecided
from hbox_common.kube import KubeClient
from hbox_ledger.settings import LedgerSettings

from ... import forked
from ...postgres_server import PostgresServer
from ...waiting import until
from .conftest import Kit
from .ledger_world import others

pytestmark = pytest.mark.timeout(240)

LEASE_S = 5
TAKEOVER_S = 90.0
NAMES = ("a", "b")
PLANS = 30


@pytest.fixture
def database_url(postgres: PostgresServer) -> str:
    return postgres.empty_database()


@asynccontextmanager
async def pair(settings: LedgerSettings, logs: Path) -> AsyncIterator[dict[str, forked.Service]]:
    """Two processes of the service, by the names under which they hold the lease; one that ends is started again, as by a kubelet."""
    processes: dict[str, forked.Service] = {}

    async def keep(name: str) -> NoReturn:
        env = os.environ | {
            "HBOX_NATS_URL": settings.nats_url,
            "HBOX_KUBECONFIG": str(settings.kubeconfig),
            "HBOX_DATABASE_URL": settings.database_url,
            "HBOX_LEADER_ELECTION": "true",
            "HBOX_LEASE_DURATION_S": str(LEASE_S),
            "HBOX_INSTANCE": name,
            "HBOX_LOG_FORMAT": "text",
        }
        while True:
            (logs / name).touch()
            processes[name] = forked.service("hbox_ledger", env=env, err=logs / name)
            await processes[name].wait()

    keepers = [asyncio.create_task(keep(name)) for name in NAMES]
    try:
        yield processes
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.wait(keepers)
        for process in processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
async def api(kubeconfig: str) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(kubeconfig, user_agent="test") as client:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hbox-system"}}
        await client.json("POST", "/api/v1/namespaces", body=namespace)
        yield client


async def holder(api: KubeClient) -> str:
    lease = await api.json("GET", "/apis/coordination.k8s.io/v1/namespaces/hbox-system/leases/quota-ledger")
    return str(lease["spec"]["holderIdentity"])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_standby_takes_over_within_a_burst_of_plans(
    kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, api: KubeClient, tmp_path: Path, end: signal.Signals
) -> None:
    async with others(broker) as world, pair(settings, tmp_path) as ledgers:
        first = await world.open_epoch(TAKEOVER_S)
        leader = await holder(api)
        hit = ledgers[leader]
        plans = [kit.plan(f"p{n}", (f"pod{n}", "n0", ())) for n in range(PLANS)]
        await world.tell(
            plans
        )  # and then the one of "before": a plan whose job is not known yet waits in memory, and its scheduler would propose it again
        await world.propose(first, kit.plan("before", ("before", "n0", (kit.whole(0),))))
        for plan in plans:
            await world.propose(first, plan, wait=False, tell=False)
        hit.send_signal(end)

        second = await world.next_epoch(first, TAKEOVER_S)
        await until(lambda: len(world.answers()) == PLANS + 1, timeout_s=TAKEOVER_S)
        committed = {f"pod{id[1:]}" for id, answer in world.answers().items() if answer.committed and id != "before"}
        await world.propose(second, kit.plan("after", ("after", "n0", (kit.whole(1),))))
        assert world.answers()["after"].committed

        if end is signal.SIGSTOP:
            assert await holder(api) != leader
            hit.send_signal(signal.SIGCONT)
            async with asyncio.timeout(TAKEOVER_S):
                assert await hit.wait() != 0, "a leader whose lease is gone does not go on"
        pages = await world.claims()
        assert {page.epoch for page in pages} == {second}
        assert sorted(claim.pod for page in pages for claim in page.claims) == sorted({"before", "after"} | committed)
        epochs = [message.epoch for message in world.all(BindDecided)]
        assert epochs == sorted(epochs), "a decision of the old epoch came after one of the new"
