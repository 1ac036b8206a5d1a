"""The whole platform with its books in PostgreSQL: the primary dies, and its replica takes over with all that was committed, and without its end."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..postgres_server import NoPostgres, PostgresServer, postgres_server
from .platform_world import HBOX, Up, until, up

pytestmark = pytest.mark.e2e

PODS, NODES, RATE = 240, 100, 60  # room for two replays
DEADLINE_S = 120.0

#: Of work that a replica without it has not heard of.
TAIL_S = 1.0


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    try:
        with postgres_server() as first, postgres_server(empty=True) as second:
            second.follow(first, synchronous=True)
            yield first, second
    except NoPostgres as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def platform(servers: tuple[PostgresServer, PostgresServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    first, second = servers
    with up(tmp_path_factory.mktemp("platform") / "state", "--database", first.url_with(second)) as running:
        yield running


def claims(server: PostgresServer) -> int:
    with server.connect() as connection:
        row = connection.execute("SELECT count(*) FROM claims").fetchone()
    assert row is not None
    return int(row[0])


def replayed(platform: Up, primary: PostgresServer, fail_over: Callable[[], None]) -> dict[str, Any]:
    """The report of a replay in whose middle the other server takes over."""
    before = claims(primary)
    words = ["--limit", str(PODS), "--limit-nodes", str(NODES), "--rate", str(RATE)]
    with subprocess.Popen(
        [*HBOX, "--state", str(platform.state), "replay", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as replay:
        try:
            until(lambda: claims(primary) >= before + PODS // 3, timeout_s=DEADLINE_S, what="a third of the replay")
            assert replay.poll() is None
            fail_over()
            said, _ = replay.communicate(timeout=DEADLINE_S)
        finally:
            replay.kill()
    assert replay.returncode == 0, said
    report: dict[str, Any] = json.loads((platform.state / "report.json").read_text())
    assert report["pods"]["submitted"] == PODS
    assert report["pods"]["without_verdict"] == 0
    assert report["audit"]["faults"] == 0
    return report


def test_with_all_that_was_committed_and_then_without_its_end(
    platform: Up, servers: tuple[PostgresServer, PostgresServer]
) -> None:
    first, second = servers

    def with_all() -> None:
        first.kill()
        second.promote()

    def without_its_end() -> None:
        first.kill()
        time.sleep(TAIL_S)
        lost = claims(second)
        second.kill()
        first.start()
        first.promote()
        assert claims(first) < lost

    replayed(platform, first, with_all)
    first.follow(second, synchronous=False)
    replayed(platform, second, without_its_end)
    assert platform.json("audit")["faults"] == []
