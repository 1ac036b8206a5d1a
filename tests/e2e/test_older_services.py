"""Each service in turn is one of an older commit, beside ours of all others on the same bus and database, and then ours again: an upgrade and its rollback,
under load with an audit at the end. `make chaos OLDER=COMMIT` has it with a longer hold.
"""

import os
from pathlib import Path

import pytest

from ..chaos.campaign import campaign
from ..chaos.machine import machine
from ..chaos.versions import checkout, each_in_turn, is_there
from .platform_world import up

pytestmark = pytest.mark.e2e

COMMIT = os.environ.get("HBOX_OLDER", "HEAD~10")
HOLD_S = 2.0


@pytest.mark.skipif(
    not is_there(COMMIT), reason=f"{COMMIT} is not in this clone: fetch more of it, or name another by HBOX_OLDER"
)
async def test_an_older_service_beside_newer_ones_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with checkout(COMMIT) as sources, machine(tmp_path) as one, up(one.state, *one.words, "--standby", env=one.env):
        suffered = each_in_turn(sources, HOLD_S)
        report = await campaign(one, suffered, seed=3, nodes=24, rate=4.0, slack=3.0, look_s=1.0)
    print(report.table(), *one.missing, sep="\n")
    assert report.violations == [], report.table()
    assert len(report.lines) == len(suffered)
