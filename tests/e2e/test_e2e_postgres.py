"""The whole platform with its books in PostgreSQL: the server is killed in the middle of a replay, and so is the ledger that writes to it."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from ..postgres_server import PostgresServer
from .disturbed_replay import replayed
from .platform_world import Up, until, up

pytestmark = pytest.mark.e2e

LEASE_S = 3
PODS, NODES, RATE = 300, 120, 60  # room for two replays


@pytest.fixture(scope="module")
def platform(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HBOX_LEASE_DURATION_S", str(LEASE_S))
        state = tmp_path_factory.mktemp("platform") / "state"
        with up(state, "--database", postgres.empty_database(), "--standby") as running:
            # A standby is ready before it leads, and the one that leads makes the tables.
            until(lambda: has_tables(postgres), timeout_s=60, what="the ledger's tables")
            yield running


def has_tables(postgres: PostgresServer) -> bool:
    with postgres.connect() as connection:
        row = connection.execute("SELECT to_regclass('claims') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def test_the_database_is_killed_in_the_middle_of_a_replay(platform: Up, postgres: PostgresServer) -> None:
    def disturb() -> None:
        postgres.kill()
        postgres.start()

    report = replayed(platform, postgres, disturb, pods=PODS, nodes=NODES, rate=RATE)
    assert report["pods"]["bound"] >= PODS // 3


def test_the_ledger_is_killed_in_the_middle_of_a_replay(platform: Up, postgres: PostgresServer) -> None:
    def disturb() -> None:
        os.kill(platform.pids()["quota-ledger"], signal.SIGKILL)

    replayed(platform, postgres, disturb, pods=PODS, nodes=NODES, rate=RATE)


def test_the_password_is_not_told(platform: Up, postgres: PostgresServer) -> None:
    check = platform.json("check")
    assert {c["name"]: c["good"] for c in check["checks"]}["database"]
    secret = postgres.url().split(":")[2].split("@")[0]
    assert secret not in json.dumps(check)
    logs = [log.read_text() for log in (platform.state / "logs").iterdir()]
    assert not any(secret in text for text in [*logs, platform.err.read_text(), platform.out.read_text()])
