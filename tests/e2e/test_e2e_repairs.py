"""Broken cards are repaired by node-remedy while health-monitor, quota-ledger, binder, node-remedy and the broker are killed. `python -m tests.chaos.repairs`
has many more kills."""

from pathlib import Path

import pytest

from ..chaos.repairs import campaign

pytestmark = pytest.mark.e2e

KILLS = 8


async def test_kills_lose_and_double_no_incident_and_no_repair(tmp_path: Path) -> None:
    assert sum((await campaign(tmp_path, KILLS, seed=3)).values()) >= KILLS
