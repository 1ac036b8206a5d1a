"""The whole platform with its books in PostgreSQL: the server is killed in the middle of a replay, and so is the ledger that writes to it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..postgres_server import PostgresServer
from .platform_world import HBOX, Up, until, up

pytestmark = pytest.mark.e2e

LEASE_S = 3
PODS, NODES, RATE = 300, 120, 60  # room for two replays
DEADLINE_S = 120.0


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


def claims(postgres: PostgresServer) -> int:
    with postgres.connect() as connection:
        row = connection.execute("SELECT count(*) FROM claims").fetchone()
    assert row is not None
    return int(row[0])


def replayed(platform: Up, postgres: PostgresServer, disturb: Callable[[], None]) -> dict[str, Any]:
    """The report of a replay that was disturbed when a third of it was decided."""
    before = claims(postgres)
    words = ["--limit", str(PODS), "--limit-nodes", str(NODES), "--rate", str(RATE)]
    with subprocess.Popen(
        [*HBOX, "--state", str(platform.state), "replay", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as replay:
        try:
            until(lambda: claims(postgres) >= before + PODS // 3, timeout_s=DEADLINE_S, what="a third of the replay")
            assert replay.poll() is None
            disturb()
            said, _ = replay.communicate(timeout=DEADLINE_S)
        finally:
            replay.kill()
    assert replay.returncode == 0, said
    report: dict[str, Any] = json.loads((platform.state / "report.json").read_text())
    return report


def test_the_database_is_killed_in_the_middle_of_a_replay(platform: Up, postgres: PostgresServer) -> None:
    def disturb() -> None:
        postgres.kill()
        postgres.start()

    report = replayed(platform, postgres, disturb)
    assert report["pods"]["submitted"] == PODS
    assert report["pods"]["without_verdict"] == 0
    assert report["audit"]["faults"] == 0
    assert report["pods"]["bound"] >= PODS // 3


def test_the_ledger_is_killed_in_the_middle_of_a_replay(platform: Up, postgres: PostgresServer) -> None:
    report = replayed(platform, postgres, lambda: os.kill(platform.pids()["quota-ledger"], signal.SIGKILL))
    assert report["pods"]["without_verdict"] == 0
    assert report["audit"]["faults"] == 0


def test_the_password_is_not_told(platform: Up, postgres: PostgresServer) -> None:
    check = platform.json("check")
    assert {c["name"]: c["good"] for c in check["checks"]}["database"]
    secret = postgres.url().split(":")[2].split("@")[0]
    assert secret not in json.dumps(check)
    logs = [log.read_text() for log in (platform.state / "logs").iterdir()]
    assert not any(secret in text for text in [*logs, platform.err.read_text(), platform.out.read_text()])
