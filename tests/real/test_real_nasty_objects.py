"""What one tenant writes costs nobody else, on an API server whose word it is what may be written: the same objects as on the emulated one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..e2e.platform_world import up
from ..nasty_objects import KINDS
from ..nasty_platform import stand

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

EACH = bool(os.environ.get("HBOX_NASTY_KILLS"))


async def test_an_innocent_pod_is_bound_beside_every_kind_of_nasty_object(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--api", "assets", "--nodes", "4x8") as platform:
        before = platform.pids()
        waits = await stand(platform, KINDS, node="node-0003", kills=EACH)
        print("\n".join(f"{wait:6.2f} s  {occasion}" for occasion, wait in sorted(waits.items(), key=lambda one: -one[1])[:12]))
        assert EACH or platform.pids() == before
