"""The whole platform with its books in PostgreSQL: the primary dies, and its replica takes over with all that was committed, and without its end."""

import time
from collections.abc import Iterator

import pytest

from ..postgres_server import NoPostgres, PostgresServer, postgres_server
from .disturbed_replay import claims, replayed
from .platform_world import Up, up

pytestmark = pytest.mark.e2e

PODS, NODES, RATE = 240, 100, 60  # room for two replays

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

    replayed(platform, first, with_all, pods=PODS, nodes=NODES, rate=RATE)
    first.follow(second, synchronous=False)
    replayed(platform, second, without_its_end, pods=PODS, nodes=NODES, rate=RATE)
    assert platform.json("audit")["faults"] == []
