"""Distance of RDMA adapters from cards, in the terms of `nvidia-smi topo -m`, and requests for RDMA devices.

A PCI device's path names every bridge between it and its host bridge. Two devices below a common switch meet there (PIX; PXB across several switches), others
below one host bridge meet in it (PHB), others of one NUMA node in the processor (NODE), all others across sockets (SYS). If the first components differ, only
NUMA nodes determine the distance; if these are unknown, it is unknown.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from hbox_common.errors import InvalidRequest

from ..bounds import KEY_BYTES, is_plain, sanitized

#: Adapters published per card: 256 virtual functions of one NUMA node need not all be listed.
MAX_NEAR = 16
#: Bridges between a device and the root of its tree: real boxes have up to eight.
MAX_DEPTH = 24

_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DEVICE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DIGITS = re.compile(r"(\d{1,9})")

#: Resources of device plugins that say rdma, RoCE or InfiniBand in a word of their name; and those of clouds that say neither.
_RDMA_NAME = re.compile(r"(?:^|[._/-])(?:e?rdma|roce|ib|infiniband|hcas?|mlnxnics?|verbs)(?:$|[._-])")
_RDMA_NAMES = frozenset({"vpc.amazonaws.com/efa"})


class PathKind(StrEnum):
    """Nearest first."""

    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"


_RANK = {kind: rank for rank, kind in enumerate(PathKind)}
#: What stays below one host bridge, where an adapter reads a card's memory without the processor.
NEAR = frozenset({PathKind.PIX, PathKind.PXB})


@dataclass(frozen=True, slots=True)
class NearAdapters:
    """The nearest adapters of a card that are up: how near, and their names. SYS: none is nearer than that, and none is named."""

    path: PathKind
    names: tuple[str, ...] = ()

    @property
    def near(self) -> bool:
        """Whether the card has an adapter below its own host bridge."""
        return self.path in NEAR and bool(self.names)

    @classmethod
    def none(cls) -> "NearAdapters":
        """There are adapters, and none that this card has."""
        return cls(PathKind.SYS)


@dataclass(frozen=True, slots=True)
class Adapter:
    """`path`: as from `pci_path`; `numa` -1: unknown."""

    name: str
    path: str
    numa: int = -1


def pci_path(link: str) -> str:
    """Where a device is, by what its link in /sys leads to: `pci0000:15/0000:15:01.0/0000:16:00.0`. "" where that is no place of a PCI device."""
    parts = link.strip().split("/")
    start = next((place for place, part in enumerate(parts) if _ROOT.fullmatch(part)), None)
    if start is None:
        return ""
    end = start + 1
    while end < len(parts) and _DEVICE.fullmatch(parts[end]):
        end += 1
    return "/".join(parts[start:end]) if 1 < end - start <= MAX_DEPTH else ""


@lru_cache(maxsize=16_384)
def path_kind(one: str, other: str, *, one_numa: int = -1, other_numa: int = -1) -> PathKind | None:
    """Path kind of two devices from their paths and NUMA nodes; None: unknown."""
    if one and other:
        a, b = one.split("/"), other.split("/")
        shared = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        if shared == 1:
            return PathKind.PHB
        if shared > 1:  # a switch has a bridge above and one for each device: at most that one is each device's own
            return PathKind.PIX if max(len(a), len(b)) - shared <= 2 else PathKind.PXB
    if one_numa < 0 or other_numa < 0:
        return None
    return PathKind.NODE if one_numa == other_numa else PathKind.SYS


def nearest(path: str, numa: int, adapters: Iterable[Adapter]) -> NearAdapters | None:
    """Of a card at this place. None: nothing is known of it, or there is no adapter."""
    found: dict[PathKind, list[str]] = {}
    for one in adapters:
        kind = path_kind(path, one.path, one_numa=numa, other_numa=one.numa)
        if kind is not None:
            found.setdefault(kind, []).append(one.name)
    if not found:
        return None
    best = min(found, key=_RANK.__getitem__)
    names = () if best is PathKind.SYS else tuple(sorted(found[best], key=natural)[:MAX_NEAR])
    return NearAdapters(best, names)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """As people sort: mlx5_2 before mlx5_10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name))


@lru_cache(maxsize=4096)
def is_rdma(resource: str) -> bool:
    """Whether a resource counts RDMA devices: `rdma/...` of the shared device plugin, and the names used by the plugins of SR-IOV and clouds."""
    domain, _, name = resource.partition("/")
    return bool(name) and (domain == "rdma" or resource in _RDMA_NAMES or _RDMA_NAME.search(name.lower()) is not None)


def asks_rdma(requests: Mapping[str, int]) -> bool:
    """Whether a pod asks for an RDMA device."""
    return any(units > 0 and "/" in name and is_rdma(name) for name, units in requests.items())


def parse_card_adapters(text: str) -> dict[int, NearAdapters]:
    """By index of the card, of a node's annotation `hbox.io/card-adapters`: `0=mlx5_0;1=mlx5_1,mlx5_2`. Raises InvalidRequest."""
    found: dict[int, NearAdapters] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        index, equals, names = part.partition("=")
        own = tuple(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
        card = index.strip()
        if not (equals and card.isascii() and card.isdigit() and len(card) <= 5 and int(card) not in found):
            raise InvalidRequest(
                f"{sanitized(part, 60)!r} names no card, or one twice", hint="write it like 0=mlx5_0;1=mlx5_1,mlx5_2"
            )
        if len(own) > MAX_NEAR or not all(is_plain(name, KEY_BYTES) for name in own):
            raise InvalidRequest(
                f"card {card} has {len(own)} adapters, or one with a name that none can have",
                hint=f"at most {MAX_NEAR} for a card",
            )
        found[int(card)] = NearAdapters(PathKind.PIX if own else PathKind.SYS, own)
    return found
