"""NVML's reader on this machine's cards, against `nvidia-smi -q -x`. Everything here only reads: nothing on a card is set, partitioned or reset."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hbox_agent.adapters.nvml import Nvml
from hbox_common.clock import monotonic_s
from hbox_common.health.nvmlfacts import cards_of
from hbox_common.health.records import Record, pci_of

SMI = shutil.which("nvidia-smi")
ROUNDS, ROUND_S = 1000, 1.0

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(SMI is None, reason="no nvidia-smi on this machine: nothing to compare NVML's reader with"),
]


def of_smi() -> dict[str, Mapping[str, str]]:
    """By uuid, the texts of nvidia-smi's document by path."""
    assert SMI is not None
    text = subprocess.run([SMI, "-q", "-x"], check=True, capture_output=True, timeout=60).stdout
    found: dict[str, Mapping[str, str]] = {}
    for gpu in ElementTree.fromstring(text).iter("gpu"):
        texts = {path: (gpu.findtext(path) or "").strip() for path in PATHS}
        found[(gpu.findtext("uuid") or "").strip()] = texts
    return found


PATHS = (
    "product_name", "pci/pci_bus_id", "persistence_mode", "ecc_mode/current_ecc", "mig_mode/current_mig", "remapped_rows/remapped_row_corr",
    "remapped_rows/remapped_row_unc", "remapped_rows/remapped_row_pending", "remapped_rows/remapped_row_failure", "gpu_recovery_action",
    "pci/pci_gpu_link_info/link_widths/current_link_width", "pci/pci_gpu_link_info/link_widths/max_link_width", "fabric/state",
    "ecc_errors/volatile/dram_uncorrectable", "ecc_errors/aggregate/dram_uncorrectable", "ecc_errors/aggregate/sram_threshold_exceeded",
)  # fmt: skip
RECOVERY = {"None": 0, "Reset": 1, "GPU Reset": 1, "Reboot": 2, "Node Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}


def ours(state: Record) -> dict[str, object]:
    rows = state.get("remapped_rows")
    rows = rows if isinstance(rows, dict) else {}
    return {
        "product_name": state.get("model"),
        "pci/pci_bus_id": state.get("pci"),
        "persistence_mode": state.get("persistence"),
        "ecc_mode/current_ecc": state.get("ecc"),
        "mig_mode/current_mig": state.get("mig"),
        "remapped_rows/remapped_row_corr": rows.get("correctable"),
        "remapped_rows/remapped_row_unc": rows.get("uncorrectable"),
        "remapped_rows/remapped_row_pending": rows.get("pending"),
        "remapped_rows/remapped_row_failure": rows.get("failure"),
        "gpu_recovery_action": state.get("recovery_action"),
        "pci/pci_gpu_link_info/link_widths/current_link_width": state.get("pcie_width"),
        "pci/pci_gpu_link_info/link_widths/max_link_width": state.get("pcie_width_max"),
        "fabric/state": (state.get("fabric") or {}).get("state"),
        "ecc_errors/aggregate/dram_uncorrectable": (state.get("ecc_aggregate") or {}).get("dram"),
        "ecc_errors/aggregate/sram_threshold_exceeded": state.get("sram_threshold_exceeded"),
    }


def theirs(path: str, text: str) -> object:
    """nvidia-smi's text in our terms; None: it does not have the value."""
    if text in ("", "N/A", "[N/A]") or text.startswith("Unknown"):
        return None
    if path == "pci/pci_bus_id":
        return pci_of(text, function=False)
    if path == "gpu_recovery_action":
        return RECOVERY.get(text, text)
    if path == "fabric/state":
        return text.lower().replace(" ", "-")
    if text.lower() in ("enabled", "disabled", "yes", "no"):
        return text.lower() in ("enabled", "yes")
    return int(text.removesuffix("x")) if text.removesuffix("x").isdigit() else text


async def test_each_field_is_that_of_nvidia_smi() -> None:
    smi = of_smi()
    answer = await Nvml(library=None, timeout_s=60).ask(inforom=True)
    node, cards = cards_of(answer.lines, problem=answer.problem)
    assert "problem" not in node, node
    assert sorted(uuid for uuid, _ in cards) == sorted(smi)
    differ = {
        (uuid, path): (value, theirs(path, smi[uuid][path]))
        for uuid, state in cards
        for path, value in ours(state).items()
        if smi[uuid][path] and theirs(path, smi[uuid][path]) not in (value, None)
    }
    for uuid, state in cards:
        print(
            uuid,
            sorted(state),
            "not supported or unknown:",
            sorted(path for path, value in ours(state).items() if value is None),
        )
    assert differ == {}


async def test_one_round_takes_less_than_a_second_and_a_thousand_leave_nothing() -> None:
    nvml = Nvml(library=None, timeout_s=60)
    await nvml.ask()  # the driver may be loaded by the first call
    took: list[float] = []
    before = _handles()
    for _ in range(ROUNDS):
        began = monotonic_s()
        answer = await nvml.ask()
        took.append(monotonic_s() - began)
        assert answer.problem == ""
    await asyncio.sleep(0.5)
    assert sorted(took)[ROUNDS // 2] < ROUND_S
    assert _handles() == before
    assert _children() == []


def _handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _children() -> list[str]:
    return [found for task in Path("/proc/self/task").glob("*/children") if (found := task.read_text().strip())]
