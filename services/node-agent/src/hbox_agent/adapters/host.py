"""What there is to read of the node itself, below its root."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from hbox_common.errors import InvalidRequest
from hbox_common.health.ports import COUNTERS, HW_COUNTERS, STATES
from hbox_common.model import NodeName
from hbox_common.model.nodenuma import NodeNuma

from ..core.acs import CONFIG_BYTES
from ..core.facts import STATE_BYTES
from ..core.machine import (
    CONFIG,
    CPU_INFO,
    CPU_STATE,
    CPUS,
    HCAS,
    MEMORY_STATE,
    MOUNTS,
    NODES,
    PCI,
    bridge_addresses,
    machine,
)

#: Files of /sys have a page.
_MOST_BYTES = 2**20
#: Of a kubelet's configuration, which people write.
_CONFIG_BYTES = 2**18
#: How often a file that is written while it is read is read again.
_TRIES = 3
_MOST_FILES = 20_000
_MOST_BRIDGES = 1024


def read_machine(node: NodeName, *, host: Path, kubelet: Path, config: Path | None, at: float) -> NodeNuma:
    """Blocks for some ten milliseconds. Never raises: what cannot be read is a problem of the value."""
    files: dict[str, str] = {}
    for path in _paths(host):
        text = _text(path)
        if text is not None and len(files) < _MOST_FILES:
            files["/" + str(path.relative_to(host))] = text
    links: dict[str, str] = {}
    for path in _links(host):
        if len(links) < _MOST_FILES and (leads := _leads(path)):
            links["/" + str(path.relative_to(host))] = leads
    bridges = bridge_addresses(files)[:_MOST_BRIDGES]
    unread: dict[str, str] = {}

    def kubelets(what: str, path: Path, most: int) -> str | None:
        try:
            found = whole(path, most)
        except InvalidRequest as e:
            unread[what] = e.message
            return None
        return None if found is None else found.decode(errors="replace")

    return machine(
        node,
        files,
        links=links,
        configs={bridge: bytes_of(host / PCI.lstrip("/") / bridge / "config", CONFIG_BYTES) or b"" for bridge in bridges},
        config=kubelets(CONFIG, config or kubelet / "config.yaml", _CONFIG_BYTES),
        cpu_state=kubelets(CPU_STATE, kubelet / CPU_STATE, STATE_BYTES) or "",
        memory_state=kubelets(MEMORY_STATE, kubelet / MEMORY_STATE, STATE_BYTES) or "",
        unread=unread,
        iommu_groups=_count(host / "sys/kernel/iommu_groups"),
        at=at,
    )


def _paths(host: Path) -> Iterator[Path]:
    below: dict[str, tuple[str, ...]] = {NODES: ("online", "node*/cpulist", "node*/distance", "node*/meminfo")}
    below |= {CPUS: ("cpu[0-9]*/topology/physical_package_id", "cpu[0-9]*/topology/thread_siblings_list")}
    below |= {PCI: ("*/class", "*/vendor", "*/numa_node"), HCAS: ("*/device/numa_node", "*/ports/*/state")}
    for folder, patterns in below.items():
        for pattern in patterns:
            yield from _found(host / folder.lstrip("/"), pattern)
    yield host / MOUNTS.lstrip("/")
    yield host / CPU_INFO.lstrip("/")


def _links(host: Path) -> Iterator[Path]:
    """The links of devices. Their targets state where the devices are attached; they are not followed."""
    for folder, patterns in {PCI: ("*", "*/physfn"), HCAS: ("*", "*/device")}.items():
        for pattern in patterns:
            yield from _found(host / folder.lstrip("/"), pattern)


def _found(folder: Path, pattern: str) -> list[Path]:
    """The matching paths; none if the folder disappears during the search or cannot be read, as during a reset of the device."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def read_ports(host: Path) -> dict[str, str]:
    """What ports of RDMA adapters say of themselves, by path: some ten small files, to be looked at often."""
    return {str(path): text for path in _found(host / HCAS.lstrip("/"), "*/ports/*/state") if (text := _text(path)) is not None}


def read_counters(host: Path, adapters: Sequence[str]) -> dict[str, str]:
    """State and error counters of the ports of these adapters, by path below the host's root. The firmware returns counters."""
    found: dict[str, str] = {}
    for adapter in adapters:
        for port in _found(host / HCAS.lstrip("/") / adapter, "ports/*"):
            names = (*STATES, *(f"counters/{name}" for name in COUNTERS), *(f"hw_counters/{name}" for name in HW_COUNTERS))
            for name in names:
                if (text := _text(port / name)) is not None:
                    found["/" + str((port / name).relative_to(host))] = text
    return found


def _leads(path: Path) -> str:
    try:
        return str(path.readlink())[:4096]
    except OSError:
        return ""


def _text(path: Path) -> str | None:
    found = bytes_of(path, _MOST_BYTES)
    return None if found is None else found.decode(errors="replace")


def bytes_of(path: Path, most: int) -> bytes | None:
    """None: it cannot be read, or is no file: a pipe would be waited for."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None


def whole(path: Path, most: int) -> bytes | None:
    """All of a file as it was at one moment; None where there is none. Raises InvalidRequest in words for what cannot be read, is no file, or is too large."""
    for _ in range(_TRIES):
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise InvalidRequest("it is no file")
                found = file.read(most + 1)
                after = os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        except OSError as e:
            raise InvalidRequest(f"it cannot be read: {e.strerror or type(e).__name__}") from e
        if len(found) > most:
            raise InvalidRequest(f"it has more than {most >> 10} KiB")
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
            return found
    raise InvalidRequest("it is written all the time")


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0
