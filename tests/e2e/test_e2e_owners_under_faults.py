"""Training jobs, JobSets, RayClusters and LeaderWorkerSets while services are killed and kinds of owners are silent, forbidden, gone, broken or removed.
`python -m tests.chaos.owners` runs for as long as one likes."""

from pathlib import Path

import pytest

from ..chaos.owners import campaign

pytestmark = pytest.mark.e2e

SECONDS = 25.0


async def test_no_gang_of_an_owner_starts_in_part_or_waits_for_ever(tmp_path: Path) -> None:
    world = await campaign(tmp_path, SECONDS, seed=3, slack=3.0)
    assert world.violations == []
    assert world.counts["workloads"] >= 10
    assert sum(world.faults.values()) >= 2
