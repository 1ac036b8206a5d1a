"""Bridges that redirect transfers between cards and adapters: what the agent reports of them."""

from pathlib import Path

import pytest

from hbox_agent.adapters.readers import Inventory, UnitsReader
from hbox_common.model import NodeName, NodeNuma
from hbox_common.model.nodenuma import PciBridge, PciDevice, PciKind, Redirect, redirecting

ROOT = "pci0000:15/0000:15:01.0/0000:16:00.0"
CARD = PciDevice("0000:18:00.0", PciKind.CARD, path=f"{ROOT}/0000:17:00.0/0000:18:00.0")
ADAPTER = PciDevice("0000:19:00.0", PciKind.HCA, path=f"{ROOT}/0000:17:01.0/0000:19:00.0")


@pytest.mark.parametrize(
    ("card_bridge", "adapter_bridge", "guest", "found"),
    [
        (Redirect.OFF, Redirect.NONE, False, ()),
        (Redirect.ON, Redirect.OFF, False, ("0000:17:00.0",)),
        (Redirect.ON, Redirect.UNREAD, False, ("0000:17:00.0",)),
        (Redirect.OFF, Redirect.UNREAD, False, None),
        (Redirect.OFF, None, False, None),
        (Redirect.ON, Redirect.ON, True, None),
    ],
)
def test_redirecting_bridges_are_known_if_all_are_read_or_one_redirects(
    card_bridge: Redirect, adapter_bridge: Redirect | None, guest: bool, found: tuple[str, ...] | None
) -> None:
    states = {"0000:17:00.0": card_bridge, "0000:17:01.0": adapter_bridge}
    read = tuple(PciBridge(address, state) for address, state in states.items() if state is not None)
    above = PciBridge("0000:15:01.0", Redirect.ON)  # above both: no transfer between them passes it
    assert redirecting(NodeNuma(NodeName("n1"), 1.0, devices=(CARD, ADAPTER), bridges=(above, *read), guest=guest)) == found


def test_a_node_without_bridges_between_its_devices_reports_nothing() -> None:
    assert redirecting(NodeNuma(NodeName("n1"), 1.0, devices=(CARD,))) is None


async def test_redirecting_bridges_are_reported_once_they_are_known(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/modules").write_text("nvidia 1 0 - Live 0x0\n")
    inventory = Inventory()
    reader = UnitsReader(tmp_path, inventory)
    assert [one.code for one in await reader.read()] == ["units"]
    inventory.redirecting = ("0000:17:00.0",)
    assert [(one.code, one.value) for one in await reader.read()][1:] == [("acs", {"redirecting": ("0000:17:00.0",)})]
