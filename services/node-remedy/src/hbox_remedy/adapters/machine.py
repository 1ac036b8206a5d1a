"""Files and processes of the node, below its root."""

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hbox_common.model.devices.adapters import pci_path
from hbox_common.model.nodenuma import PciDevice, PciKind, bridges_between

from ..core.nvidia import Card, card_of

_MOST_BYTES = 64 * 1024
#: nvidia-persistenced closes a card when its persistence mode is switched off. Linux keeps 15 characters of a name.
_PERSISTENCE = "nvidia-persistenced"[:15]


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    name: str
    program: str  #: file name of its command
    unit: str  #: systemd unit that it belongs to, without `.service`; empty: none

    def __str__(self) -> str:
        return f"{self.pid} {self.name}"


class Machine:
    def __init__(self, root: Path) -> None:
        self._proc, self._sys = root / "proc", root / "sys"

    def boot_id(self) -> str:
        return _text(self._proc / "sys/kernel/random/boot_id").strip()

    def cards(self) -> list[Card]:
        """Cards that the driver reaches."""
        files = (self._proc / "driver/nvidia/gpus").glob("*/information")
        return [card for path in sorted(files) if (card := card_of(path.parent.name, _text(path))) is not None]

    def has_switches(self) -> bool:
        """Whether the driver of NVSwitches has any."""
        return any((self._proc / "driver/nvidia-nvswitch/devices").glob("*"))

    def driver(self) -> str:
        """The loaded driver's version; empty: none is loaded."""
        return _text(self._sys / "module/nvidia/version").strip()

    def bridges(self) -> list[str]:
        """Addresses of the PCI bridges between cards, or between cards and RDMA adapters, as `setpci -s` takes them."""
        cards = [self._sys / "bus/pci/devices" / card.pci.lower() for card in self.cards()]
        adapters = [path / "device" for path in (self._sys / "class/infiniband").glob("*")]
        devices = [
            PciDevice("", kind, path=pci_path(str(link.resolve())))
            for kind, links in ((PciKind.CARD, cards), (PciKind.HCA, adapters))
            for link in links
        ]
        return sorted(bridges_between(devices))

    def holders(self, card: Card) -> list[Process]:
        """Processes that have the card open, also those that use only a MIG instance of it."""
        device = f"nvidia{card.minor}"
        return [one for pid in self._pids() if self._has_open(pid, device) and (one := self._process(pid)).name != _PERSISTENCE]

    def running(self, program: str) -> list[int]:
        """Processes that run the program."""
        return [pid for pid in self._pids() if self._process(pid).program == program]

    def terminate(self, pid: int, program: str) -> None:
        """SIGTERM, if the process still runs this program: its number may be another process' by now."""
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if self._process(pid).program == program:
                signal.pidfd_send_signal(process, signal.SIGTERM)
        except ProcessLookupError:
            pass
        finally:
            os.close(process)

    def _pids(self) -> Iterator[int]:
        return (int(path.name) for path in self._proc.iterdir() if path.name.isdecimal())

    def _process(self, pid: int) -> Process:
        path = self._proc / str(pid)
        program = Path(_text(path / "cmdline").partition("\0")[0]).name
        unit = re.search(r"/([^/\n]+)\.service\b", _text(path / "cgroup"))
        return Process(pid, _text(path / "comm").strip(), program, unit[1] if unit else "")

    def _has_open(self, pid: int, device: str) -> bool:
        try:
            files = list((self._proc / str(pid) / "fd").iterdir())
        except OSError:  # it ended
            return False
        return any(_leads(file).endswith(f"/{device}") for file in files)


def _leads(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
