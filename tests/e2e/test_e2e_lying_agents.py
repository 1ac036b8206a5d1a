"""Agents lie, go back in time, speak for others, and fall off the bus together; a switch takes 20 nodes. `python -m tests.chaos.sickness` has all faults."""

from pathlib import Path

import pytest

from ..chaos.sickness import FAULTS, campaign

pytestmark = pytest.mark.e2e

#: Those that take a minute or are random.
LONG = {"agents fall silent together", "agents flap", "cards flap"}


async def test_no_lie_and_no_loss_restricts_more_nodes_than_the_breaker_allows(tmp_path: Path) -> None:
    faults = [fault for fault in FAULTS if fault.name not in LONG]
    assert len(faults) == len(FAULTS) - len(LONG)
    assert await campaign(tmp_path, faults, seed=1) == len(faults)
