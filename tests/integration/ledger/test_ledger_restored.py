"""LedgerState that lost their end while everything else went on: a backup is restored, or a failover of PostgreSQL drops the last commits."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.errors import Conflict
from hbox_common.events import Bind, BindDecided, BindOutcome, EvictDecided, EvictKind, Outcome, OutcomesObserved
from hbox_common.model import Epoch
from hbox_common.runtime import Health
from hbox_ledger.app import run
from hbox_ledger.settings import LedgerSettings

from ...postgres_server import PostgresServer
from ...waiting import until
from .conftest import Kit
from .ledger_world import DEADLINE_S, Others, others, running

pytestmark = pytest.mark.timeout(180)


def bind_of(world: Others, pod: str) -> Bind:
    return next(bind for event in world.all(BindDecided) for bind in event.binds if bind.pod == pod)


async def states(world: Others) -> dict[str, str]:
    return {claim.pod: claim.state.value for page in await world.claims() for claim in page.claims}


async def goes_on_with_a_lost_end(kit: Kit, world: Others, first: Epoch, settings: LedgerSettings) -> None:
    """`under-way` and `bound` were committed after what is restored; the latter runs by now."""
    world.pods.append(kit.fact("bound", "n0", claim=bind_of(world, "bound").claim, slices=(kit.whole(2),)))
    async with running(settings):
        second = await world.open_epoch()
        assert second > first
        assert await states(world) == {"before": "pending", "under-way": "pending", "bound": "posted"}

        await world.propose(
            second, kit.plan("second", ("second", "n0", (kit.whole(1),))), kit.plan("third", ("third", "n0", (kit.whole(2),)))
        )
        assert {world.answers()[plan].reason for plan in ("second", "third")} == {"CardTaken"}
        await world.propose(second, kit.plan("lost", ("under-way", "n0", (kit.whole(1),))))
        assert world.answers()["lost"].committed, "a plan that was committed stays so"

        await until(lambda: world.all(EvictDecided), timeout_s=DEADLINE_S)
        revoked = next(e for event in world.all(EvictDecided) for e in event.evictions if e.pod == "under-way")
        assert revoked.kind is EvictKind.REVOKE
        said = Outcome(
            decision=revoked.id, claim=revoked.claim, generation=revoked.generation, job=revoked.job, pod_uid=revoked.pod_uid,
            outcome=BindOutcome.REVOKED,
        )  # fmt: skip
        await world.bus.publish(OutcomesObserved(epoch=second, outcomes=(said,)), "0")

        async def free() -> bool:
            return "under-way" not in await states(world)

        await until(free, timeout_s=DEADLINE_S)
        await world.propose(second, kit.plan("fourth", ("fourth", "n0", (kit.whole(1),))))
        assert world.answers()["fourth"].committed


async def is_lost(kit: Kit, world: Others, epoch: Epoch) -> None:
    await world.propose(
        epoch, kit.plan("lost", ("under-way", "n0", (kit.whole(1),))), kit.plan("lost-too", ("bound", "n0", (kit.whole(2),)))
    )
    await until(
        lambda: {"under-way", "bound"} <= {bind.pod for event in world.all(BindDecided) for bind in event.binds},
        timeout_s=DEADLINE_S,
    )


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
async def test_a_backup_is_restored(kit: Kit, broker: EmbeddedServer, settings: LedgerSettings, tmp_path: Path) -> None:
    database = Path(settings.database_url.removeprefix("sqlite:///"))
    backup = tmp_path / "backup.db"
    async with others(broker) as world:
        async with running(settings):
            first = await world.open_epoch()
            await world.propose(first, kit.plan("before", ("before", "n0", (kit.whole(0),))))
            with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(backup)) as target:
                source.backup(target)
            await is_lost(kit, world, first)
        for path in database.parent.glob(f"{database.name}-*"):
            path.unlink()
        backup.replace(database)
        await goes_on_with_a_lost_end(kit, world, first, settings)


async def test_a_failover_loses_the_last_commits_under_a_running_ledger(
    kit: Kit, broker: EmbeddedServer, kubeconfig: str, postgres: PostgresServer
) -> None:
    url = postgres.empty_database()
    settings = LedgerSettings(nats_url=broker.url, kubeconfig=kubeconfig, database_url=url, instance="l1", reconcile_s=1.0)
    async with others(broker) as world:
        ledger = asyncio.create_task(run(settings, Health("quota-ledger")))
        first = await world.open_epoch()
        await world.propose(first, kit.plan("before", ("before", "n0", (kit.whole(0),))))
        await asyncio.to_thread(postgres.copy)
        await is_lost(kit, world, first)
        await asyncio.to_thread(postgres.fall_back)
        await world.propose(first, kit.plan("after", ("after", "n0", ())), wait=False)
        with pytest.raises(ExceptionGroup) as ended:
            await ledger
        assert ended.group_contains(Conflict, match="it lost its end")
        await goes_on_with_a_lost_end(kit, world, first, settings)
