"""A replay on a platform with its books in PostgreSQL, disturbed in the middle."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

from ..postgres_server import PostgresServer
from .platform_world import HBOX, Up, until

DEADLINE_S = 120.0


def claims(postgres: PostgresServer) -> int:
    with postgres.connect() as connection:
        row = connection.execute("SELECT count(*) FROM claims").fetchone()
    assert row is not None
    return int(row[0])


def replayed(
    platform: Up, postgres: PostgresServer, disturb: Callable[[], None], *, pods: int, nodes: int, rate: int
) -> dict[str, Any]:
    """The report of a replay that was disturbed when a third of it was decided, as the books in `postgres` say."""
    before = claims(postgres)
    words = ["--limit", str(pods), "--limit-nodes", str(nodes), "--rate", str(rate)]
    with subprocess.Popen(
        [*HBOX, "--state", str(platform.state), "replay", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as replay:
        try:
            until(lambda: claims(postgres) >= before + pods // 3, timeout_s=DEADLINE_S, what="a third of the replay")
            assert replay.poll() is None
            disturb()
            said, _ = replay.communicate(timeout=DEADLINE_S)
        finally:
            replay.kill()
    assert replay.returncode == 0, said
    report: dict[str, Any] = json.loads((platform.state / "report.json").read_text())
    assert report["pods"]["submitted"] == pods
    assert report["pods"]["without_verdict"] == 0
    assert report["audit"]["faults"] == 0
    return report
