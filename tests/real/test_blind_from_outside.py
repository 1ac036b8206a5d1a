"""Cards are given out once while the platform does not see the pods of a real API server: its cluster is full, as many wait, and nodes join."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import KubeClient

from ..chaos.blindness import CARDS_IN_ALL, go_blind
from ..chaos.load import CARDS
from ..e2e.platform_world import Up
from .control_plane import control_plane
from .fault_proxy import Asked, Blind, fault_proxy

pytestmark = pytest.mark.e2e

HOLD_S = 60.0


def platform(asked: Asked) -> bool:
    return asked.client.startswith("hbox-") and asked.pods


SILENT: dict[str, Blind | None] = {
    "open watches fall silent": lambda asked: platform(asked) and asked.watch and asked.open,
    "all watches are silent": lambda asked: platform(asked) and asked.watch,
    "lists and watches are refused": None,
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """One of its own: every pod on it counts."""
    with control_plane(tmp_path / "plane") as own:
        yield own


@pytest.mark.parametrize("how", SILENT)
async def test_blind_from_outside_no_card_is_given_out_twice_and_work_goes_on_soon(
    plane: ControlPlane, tmp_path: Path, how: str
) -> None:
    async with (
        fault_proxy(plane.kubeconfig) as proxy,
        KubeClient.connect(str(plane.kubeconfig), user_agent="observer", timeout_s=30) as client,
    ):
        words = ("--kubeconfig", str(proxy.kubeconfig(tmp_path / "blind")), "--as-given")
        running = await asyncio.to_thread(Up, tmp_path / "state", *words)
        try:

            async def begin() -> None:
                proxy.begin(silent=SILENT[how], refused=platform if SILENT[how] is None else None)

            async def end() -> None:
                proxy.heal()

            seen = await go_blind(client, begin, end, hold_s=HOLD_S)
        finally:
            await asyncio.to_thread(running.kill)
    print(how, seen, f"fired {proxy.fired}")
    assert proxy.fired, "the fault met nobody"
    assert seen.most <= CARDS
    assert seen.bound == CARDS_IN_ALL
    assert seen.after_s is not None
