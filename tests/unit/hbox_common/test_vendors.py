"""The vendors that HBox knows: what each reads of nodes and pods, and that their names stand nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, CardRequest, CardSlice, Vendor
from hbox_common.model.devices import Ask, NodeReport
from hbox_common.model.devices.amd import AMD
from hbox_common.model.devices.hygon import HYGON
from hbox_common.model.devices.nvidia import NVIDIA

ROOT = Path(__file__).parents[3]

#: Sandbox data that plays a vendor's plugin, and examples in help texts.
EXAMPLES = (
    "apps/sandbox/src/hbox_sandbox/trace/",
    "apps/sandbox/src/hbox_sandbox/kubelet/",
    "apps/cli/src/hbox_cli/commands/",
    "apps/cli/src/hbox_cli/usage.py",
)
AMD_REGISTER = (
    '[{"id":"AMD-0","index":0,"count":4,"devmem":196608,"devcore":304,"type":"AMD_Instinct_MI300X_VF","health":true}]'
)


def sources() -> dict[str, str]:
    """All code of libraries and services but the vendors' own, by its path from the root."""
    files = [path for top in ("apps", "libs", "services") for path in (ROOT / top).glob("*/src/**/*.py")]
    own = ROOT / "libs/common/src/hbox_common/model/devices"
    named = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files if path.parent != own}
    return {name: text for name, text in named.items() if not name.startswith(EXAMPLES)}


@pytest.mark.parametrize("vendor", list(VENDORS), ids=lambda vendor: vendor.name)
def test_what_is_a_vendors_stands_in_its_file_alone(vendor: Vendor) -> None:
    found = sources()
    assert len(found) > 400
    named = [vendor.cards, *vendor.parts, vendor.models_annotation, vendor.allocated_annotation, *vendor.unsupported]
    strangers = {path for path, text in found.items() if any(name in text for name in filter(None, named))}
    assert not strangers


#: Readers, rules and remedies of node health, which are NVIDIA's so far: its driver's lines, codes, units, modules and tools.
HEALTH = (
    "apps/cli/src/hbox_cli/health/",
    "libs/common/src/hbox_common/health/",
    "services/health-monitor/src/hbox_health/core/judge/",
    "services/health-monitor/src/hbox_health/page.py",
    "services/node-agent/src/hbox_agent/adapters/readers.py",
    "services/node-remedy/src/hbox_remedy/",
)


def test_nothing_of_the_first_vendor_is_left_elsewhere() -> None:
    """But for its own tools, the table that `hbox check node` reads and NVML, and for node health."""
    named = {path: text for path, text in sources().items() if "nvml" not in Path(path).name and not path.startswith(HEALTH)}
    found = {path: text.lower().replace("nvidia-smi", "") for path, text in named.items()}
    assert [path for path, text in found.items() if "nvidia" in text] == []


@pytest.mark.parametrize(
    ("vendor", "annotations", "card"),
    [
        (AMD, {"hami.io/node-amd-register": AMD_REGISTER}, Card(0, "AMD-0", "AMD_Instinct_MI300X_VF", 196_608, 4)),
        (
            HYGON,
            {"hami.io/node-dcu-register": "DCU-0,4,32768,100,DCU-Z100L,0,true:"},
            Card(0, "DCU-0", "DCU-Z100L", 32_768, 4, 0),
        ),
        (
            NVIDIA,
            {"hami.io/node-nvidia-register": "GPU-0,10,15360,100,NVIDIA-T4,0,true:"},
            Card(0, "GPU-0", "T4", 15_360, 10, 0),
        ),
    ],
)
def test_each_vendors_register_is_read(vendor: Vendor, annotations: Any, card: Card) -> None:
    [read] = vendor.register(NodeReport("n", {vendor.cards: 4}, {}, annotations))
    assert (read.index, read.uuid, read.model, read.memory_mib, read.shares, read.healthy) == (
        card.index, card.uuid, card.model, card.memory_mib, card.shares, True,
    )  # fmt: skip
    others = [other for other in VENDORS if other is not vendor]
    assert [other.register(NodeReport("n", {}, {}, annotations)) for other in others] == [()] * len(others)


def test_a_register_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"^annotation hami.io/node-amd-register: not valid JSON"):
        AMD.register(NodeReport("n", {}, {}, {"hami.io/node-amd-register": "[{"}))


def test_cards_of_a_plain_device_plugin_are_taken_whole() -> None:
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
    assert AMD.register(NodeReport("n", {AMD.cards: 2}, labels)) == tuple(
        Card(i, f"n-{i}", "AMD_Instinct_MI300X_OAM", 0, 1) for i in range(2)
    )


@pytest.mark.parametrize(
    ("vendor", "asked", "request_"),
    [
        (AMD, {"amd.com/gpu": 2}, CardRequest(2)),
        (AMD, {"amd.com/gpu": 1, "amd.com/gpumem": 1000, "amd.com/gpucores": 50}, CardRequest(1, cores=50, memory_mib=1000)),
        (AMD, {"amd.com/gpu": 1, "amd.com/gpumem": 1000}, CardRequest(1, cores=100, memory_mib=1000)),
        (HYGON, {"hygon.com/dcunum": 1, "hygon.com/dcumem": 16_000, "hygon.com/dcucores": 40}, CardRequest(1, 40, 16_000)),
        (NVIDIA, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}, CardRequest(1, cores=0, memory_mib=1000)),
    ],
)
def test_a_part_of_the_memory_promises_the_compute_that_the_vendors_plugin_does(
    vendor: Vendor, asked: Any, request_: Any
) -> None:
    assert vendor.request(asked, ()) == request_


def test_an_allocation_of_hamis_is_read_in_the_vendors_units() -> None:
    cards = [Card(0, "AMD-0", "AMD_Instinct_MI300X_VF", 196_608, 4)]
    half = [Ask("AMD", 1, cores=50, memory_mib=1000)]
    assert AMD.rebuild("AMD-0,AMD_Instinct_MI300X_VF,1000,152:;", cards, half) == ((CardSlice(0, 50, 1000),),)
    assert HYGON.rebuild("DCU-0,DCU,1000,40:;", [Card(0, "DCU-0", "Z100L", 32_768, 4)], ()) == ((CardSlice(0, 40, 1000),),)
    assert AMD.rebuild("of nobody's making", cards, half) == ()
