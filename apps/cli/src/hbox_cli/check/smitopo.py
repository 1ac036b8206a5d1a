"""The table of `nvidia-smi topo -m`, as printed by drivers of several years and vendors and copied by people: the links between a machine's cards and adapters.
/sys is more reliable; this table is for comparison.

Columns are cards, adapters (by a number, which a legend resolves) and affinities, whose names in the header contain blanks and are sometimes joined to their
neighbour. Cells are separated by blanks or tabs, and all cells behind the last device of a row are its affinity, however many there are (sources: numa-facts).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hbox_common.errors import InvalidRequest

MAX_TEXT, MAX_DEVICES = 1 << 20, 256

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_DEVICES = re.compile(r"(?:GPU|NIC|mlx5_|ib|bond)\w*?\d+(?=NIC|GPU|\s|$)|mlx5_\w+")
_LEGEND = re.compile(r"^\s*(NIC\d{1,4}): (\S{1,64})\s*$")
_CPUS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")
#: Kinds of links that stay below one PCIe host bridge.
NEAR = frozenset({"PIX", "PXB"})


@dataclass(frozen=True, slots=True)
class SmiTopology:
    gpus: tuple[str, ...]
    nics: tuple[str, ...]  #: in the order of the columns, by their names if a legend lists them
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)  #: kind, by card and card, card and adapter
    affinity: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: cells behind a card's row: CPUs, NUMA nodes, ...

    def near(self, gpu: str) -> list[str]:
        """Adapters below the card's own host bridge."""
        return [nic for nic in self.nics if self.links.get((gpu, nic)) in NEAR]

    def numa(self, gpu: str) -> int:
        """The NUMA node of a card; -1: none or several are given."""
        cells = self.affinity.get(gpu, ())
        if len(cells) >= 2 and not _is_node(cells[1]) and _is_node(cells[0]):
            return int(cells[0])  # MetaX writes the node first
        return int(cells[1]) if len(cells) >= 2 and _is_node(cells[1]) else -1

    def without_nvlink(self) -> list[str]:
        """Cards with no link of their own to any other, where the others have such: `NV12`, or what another maker calls it."""
        wired = {gpu for pair, kind in self.links.items() for gpu in pair if gpu in self.gpus and _is_direct(kind)}
        return [gpu for gpu in self.gpus if gpu not in wired] if wired else []


def _is_node(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) <= 4


def _is_direct(kind: str) -> bool:
    return kind == "HT" or (kind.startswith("NV") and kind[2:].isdigit())


def read(text: str) -> SmiTopology:
    """Raises InvalidRequest where it is no such table."""
    if len(text) > MAX_TEXT:
        raise InvalidRequest(f"a table of nvidia-smi has less than {MAX_TEXT} characters")
    lines = _ESCAPES.sub("", text).splitlines()
    header = next((number for number, line in enumerate(lines) if re.match(r"\s+GPU\d", line)), None)
    if header is None:
        raise InvalidRequest("no line with GPU0, GPU1, ... in it", hint="the output of: nvidia-smi topo -m")
    columns = _DEVICES.findall(re.split(r"CPU Affinity|Node Affinity|NUMA", lines[header])[0])
    if not 0 < len(columns) <= MAX_DEVICES or len(set(columns)) < len(columns):
        raise InvalidRequest(f"{len(columns)} devices in the header, or one twice")
    called = {match[1]: match[2] for line in lines if (match := _LEGEND.match(line))}
    names = [called.get(column, column) for column in columns]
    gpus = tuple(column for column in columns if column.startswith("GPU"))
    links: dict[tuple[str, str], str] = {}
    affinity: dict[str, tuple[str, ...]] = {}
    for line in lines[header + 1 :]:
        cells = line.split()
        if not cells or cells[0] not in gpus:
            continue
        if len(cells) <= len(columns):
            raise InvalidRequest(f"the row of {cells[0]} has {len(cells) - 1} cells, the header {len(columns)} devices")
        for name, kind in zip(names, cells[1:], strict=False):
            if kind != "X":
                links[cells[0], name] = kind
        affinity[cells[0]] = _affinity(cells[1 + len(columns) :])
    if missing := [gpu for gpu in gpus if gpu not in affinity]:
        raise InvalidRequest(f"there is no row of {missing[0]}")
    return SmiTopology(gpus, tuple(n for n, c in zip(names, columns, strict=True) if c not in gpus), links, affinity)


def _affinity(cells: list[str]) -> tuple[str, ...]:
    """Apart where they are glued: `0-31,64-950` is the CPUs 0-31,64-95 and the node 0."""
    if cells and len(cells) < 3 and (match := _glued(cells[0])):
        return (*match, *cells[1:])
    return tuple(cells)


def _glued(cell: str) -> tuple[str, str] | None:
    """CPUs and node. All nodes have equally many threads: the last range has the length of the one before once its last digit is cut off."""
    if not _CPUS.fullmatch(cell) or "," not in cell:
        return None
    before, last = (part.split("-") for part in cell.split(",")[-2:])
    if len(before) != 2 or len(last) != 2 or len(last[1]) < 2:
        return None
    length = int(before[1]) - int(before[0])
    cut = last[1][:-1]
    if int(last[1]) - int(last[0]) != length and int(cut) - int(last[0]) == length:
        return cell[:-1], last[1][-1]
    return None
