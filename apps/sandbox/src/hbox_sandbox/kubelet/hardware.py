"""Hardware faults of an emulated node: its kernel's log, its cards as NVML returns them, its ports in /sys, its boots. All are files below the folder of its
kubelet, from which node-agent reads them; any process may write them.

    hardware = NodeHardware(folder_of_kubelets / "node-0001")
    hardware.kernel("NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.")
    hardware.cards({"GPU-...": "0000:18:00.0"}); hardware.card("GPU-...", recovery_action=1)
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest

KERNEL_LOG, NVML = "host/dev/kmsg", "host/nvml.jsonl"
BOOT_ID = "host/proc/sys/kernel/random/boot_id"
_ADAPTERS = "host/sys/class/infiniband"
MODULES = "host/proc/modules"
_UNIT = "host/sys/fs/cgroup/system.slice/{}.service/cgroup.procs"
FABRIC_MANAGER = "nvidia-fabricmanager"
#: A node whose folder has this file has no agent.
NO_AGENT = "no-agent"

#: What the library returns of a healthy card with NVSwitches, as `hbox_agent.adapters.nvml_reader` prints it.
_WELL: Mapping[str, Any] = {
    "recovery_action": 0, "remapped": [0, 0, 0, 0], "histogram": [640, 0, 0, 0, 0], "sram": [0, 0, 0], "ecc_dbe_volatile": 0, "ecc_sbe_volatile": 0,
    "ecc_sbe_aggregate": 0, "ecc_dram_aggregate": 0, "repair": [0, 0], "unrepairable_memory": 0, "reasons": 1, "tlimit_margin": 50, "slowdown_tlimit": -2,
    "persistence": 1, "pcie_width": 16, "pcie_width_max": 16, "inforom_validate": 0,
}  # fmt: skip
#: NVLinks of a card with NVSwitches by words of its model; other models have none.
LINKS: Mapping[str, int] = {"A100": 12, "A800": 8, "H800": 8, "H100": 18, "H200": 18, "B200": 18, "B300": 18}
_LINKS = 18
_FABRIC: Mapping[str, Any] = {"cluster": "0" * 32, "clique": 0, "state": 3, "status": 0, "health": 0}

_SEQ = re.compile(rb"\d+,(\d+),")
_PORT_FILE = re.compile(r"[a-z_]{1,64}|(?:hw_)?counters/[a-z_]{1,64}")


class NodeHardware:
    """`root`: the folder of the node's kubelet. Raises InvalidRequest if the node has none."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InvalidRequest(f"node {root.name} has no emulated kubelet", hint="`hbox up` has them for its first nodes")
        self._root = root

    def kernel(self, *lines: str, facility: int = 0) -> None:
        """Append records to the kernel's log. `facility`: 0 for the kernel; programs that write to /dev/kmsg have another one."""
        path = self._path(KERNEL_LOG)
        seq = self._last_seq(path)
        usec = int(monotonic_s() * 1e6)
        records = (
            f"{facility << 3 | 3},{seq + place},{usec},-;{_escaped(line)}\n" for place, line in enumerate(lines, start=1)
        )
        with path.open("a") as file:
            file.write("".join(records))

    @property
    def node(self) -> str:
        return self._root.name

    def cards(self, addresses: Mapping[str, str], *, links: int = _LINKS) -> None:
        """The node's cards, all healthy, by uuid with their PCI addresses; they replace those of before. links: NVLinks of each."""
        cards = [
            {
                "index": index,
                "uuid": uuid,
                "address": address,
                "mig": [0, 0],
                "ecc": [1, 1],
                "links": [[link, "switch"] for link in range(links)],
                "fabric": dict(_FABRIC) if links else None,
                "errors": {},
                "health": dict(_WELL),
            }
            for index, (uuid, address) in enumerate(addresses.items())
        ]
        self._write_cards(cards)

    def listed(self) -> dict[str, str]:
        """PCI addresses by uuid of the cards that NVML lists."""
        return {str(card["uuid"]): str(card["address"]) for card in self._read_cards()}

    def card(self, uuid: str, *, lost: bool = False, links_down: tuple[int, ...] = (), **health: Any) -> None:
        """Change what NVML returns of a card: `health` by the reader's keys (`recovery_action`, `remapped`, `sram` ...). `lost`: error 15 for each question."""
        cards = self._read_cards()
        card = next((one for one in cards if one["uuid"] == uuid), None)
        if card is None:
            known = ", ".join(str(one["uuid"]) for one in cards) or "none: call `cards` first"
            raise InvalidRequest(f"NVML of node {self._root.name} lists no card {uuid}", hint=f"known: {known}")
        unknown = health.keys() - _WELL.keys()
        if unknown:
            raise InvalidRequest(f"unknown NVML values: {', '.join(sorted(unknown))}", hint=f"known: {', '.join(_WELL)}")
        card["health"] = {"every_call": 15} if lost else {**_WELL, **health}
        for link in card["links"]:
            link[1] = "" if link[0] in links_down else "switch"
        self._write_cards(cards)

    def remove_card(self, uuid: str) -> None:
        """NVML lists the card no more; indices of those after it change, as they do."""
        self._write_cards([one for one in self._read_cards() if one["uuid"] != uuid])

    def hang(self, hangs: bool) -> None:
        """A call about the last card does not return, as node-agent's reader reports it, until cards are written again; or all calls return."""
        self._write_cards(self._read_cards(), hangs=hangs)

    def unit(self, name: str, *, active: bool) -> None:
        """A unit of systemd, by the processes of its control group."""
        _replace(self._path(_UNIT.format(name)), "4711\n" if active else "")

    def agent(self, runs: bool) -> None:
        """Whether node-agent runs on the node."""
        path = self._path(NO_AGENT)
        if runs:
            path.unlink(missing_ok=True)
        else:
            path.touch()

    def adapters(self) -> list[str]:
        folder = self._root / _ADAPTERS
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def port(self, adapter: str, **files: str) -> None:
        """Write files of the adapter's port, such as state="1: DOWN", or, with `__` for a slash, counters__link_downed="1"."""
        folder = self._root / _ADAPTERS / adapter / "ports/1"
        if not folder.is_dir():
            raise InvalidRequest(f"node {self._root.name} has no adapter {adapter}")
        for name, text in files.items():
            path = name.replace("__", "/")
            if _PORT_FILE.fullmatch(path) is None:
                raise InvalidRequest(f"a port has no file {path!r}")
            _replace(folder / path, f"{text}\n")

    def link_downed(self, adapter: str) -> int:
        """How often the link of the adapter's port was down; 0 of a port without the counter."""
        path = self._root / _ADAPTERS / adapter / "ports/1/counters/link_downed"
        return int(path.read_text()) if path.is_file() else 0

    def boot(self) -> str:
        """Another boot: an empty log and a new boot id, which it returns."""
        boot_id = str(uuid4())
        _replace(self._path(KERNEL_LOG), "")
        _replace(self._path(BOOT_ID), f"{boot_id}\n")
        return boot_id

    def _path(self, name: str) -> Path:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _last_seq(self, path: Path) -> int:
        """Of the log's last record; 0 if it has none."""
        try:
            with path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 64 * 1024))
                found = [match[1] for line in file.read().splitlines() if (match := _SEQ.match(line)) is not None]
        except FileNotFoundError:
            return 0
        return int(found[-1]) if found else 0

    def _read_cards(self) -> list[dict[str, Any]]:
        try:
            lines = (self._root / NVML).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [card for line in lines if (card := (found := json.loads(line)).get("card") or found.get("hung"))]

    def _write_cards(self, cards: list[dict[str, Any]], *, hangs: bool = False) -> None:
        for index, card in enumerate(cards):
            card["index"] = index
        lines = [{"driver": "550.163.01"}, *({"card": card} for card in cards), {"count": len(cards)}]
        if hangs and cards:
            lines[-2:] = [{"asking": len(cards) - 1}, {"problem": "no answer within 30 s"}, {"hung": cards[-1]}]
        _replace(self._path(NVML), "".join(json.dumps(line) + "\n" for line in lines))


def _escaped(line: str) -> str:
    """As the kernel escapes control characters of a record."""
    return "".join(one if one.isprintable() and one != "\\" else f"\\x{ord(one) & 0xFF:02x}" for one in line)


def _replace(path: Path, text: str) -> None:
    """So that no reader sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text)
    draft.replace(path)
