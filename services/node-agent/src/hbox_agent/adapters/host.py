"""What there is to read of the node itself, below its root."""

from collections.abc import Iterator
from pathlib import Path

from hbox_common.model import NodeName
from hbox_common.model.nodenuma import NodeNuma

from ..core.machine import CPUS, HCAS, MOUNTS, NODES, PCI, machine

#: Files of /sys have a page, a configuration some kilobytes, a state some hundred.
_MOST_BYTES = 2**20
_MOST_FILES = 20_000


def read_machine(node: NodeName, *, host: Path, kubelet: Path, config: Path | None, at: float) -> NodeNuma:
    """Blocks for some ten milliseconds. Never raises: what cannot be read is a problem of the value."""
    files: dict[str, str] = {}
    for path in _paths(host):
        text = _text(path)
        if text is not None and len(files) < _MOST_FILES:
            files["/" + str(path.relative_to(host))] = text
    return machine(
        node,
        files,
        config=_text(config or kubelet / "config.yaml"),
        cpu_state=_text(kubelet / "cpu_manager_state") or "",
        memory_state=_text(kubelet / "memory_manager_state") or "",
        iommu_groups=_count(host / "sys/kernel/iommu_groups"),
        at=at,
    )


def _paths(host: Path) -> Iterator[Path]:
    below: dict[str, tuple[str, ...]] = {NODES: ("online", "node*/cpulist", "node*/distance", "node*/meminfo")}
    below |= {CPUS: ("cpu[0-9]*/topology/physical_package_id", "cpu[0-9]*/topology/thread_siblings_list")}
    below |= {PCI: ("*/class", "*/vendor", "*/numa_node"), HCAS: ("*/device/numa_node",)}
    for folder, patterns in below.items():
        for pattern in patterns:
            yield from sorted((host / folder.lstrip("/")).glob(pattern))
    yield host / MOUNTS.lstrip("/")


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return None


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0
