"""PCI trees of emulated servers in the layout of /sys: cards and RDMA adapters below a common switch, and adapters behind their own root ports.

From the matrices of `nvidia-smi topo -m` of such servers: H100, H200 and A800 have one adapter per card and two for storage on each socket, H800 one adapter
per card and one bond; DGX A100 and H20 two cards and two adapters below each switch; MI250X one adapter for two dies; L20 one adapter per socket, far from
all cards. PXB in the matrix means that the cards are one switch below their adapters.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

#: /sys below the kubelet's folder.
_SYS = "host/sys"


@dataclass(frozen=True, slots=True)
class Box:
    """`switches`: cards and adapters below each; `alone`: adapters with root ports of their own, by socket, on whose first NUMA node they are; `deep`: cards
    are one switch further down."""

    switches: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
    alone: tuple[tuple[int, tuple[str, ...]], ...] = ()
    deep: bool = False


_COMPUTE = tuple(f"mlx5_{i}" for i in (0, 3, 4, 5, 6, 9, 10, 11))
_OWN = tuple(((card,), (name,)) for card, name in enumerate(_COMPUTE))
_STORAGE = ((0, ("mlx5_1", "mlx5_2")), (1, ("mlx5_7", "mlx5_8")))
_PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
_DGX_A100 = tuple(
    zip(_PAIRS, (("mlx5_0", "mlx5_1"), ("mlx5_2", "mlx5_3"), ("mlx5_6", "mlx5_7"), ("mlx5_8", "mlx5_9")), strict=True)
)
_A100 = Box(_DGX_A100, ((0, ("mlx5_4", "mlx5_5")), (1, ("mlx5_10", "mlx5_11"))), deep=True)
_H100 = Box(_OWN, _STORAGE, deep=True)

TREES: Mapping[str, Box] = {
    **dict.fromkeys(("h100", "h200", "a800", "snc", "b300", "mi300x"), _H100),
    **dict.fromkeys(("a100", "nps4"), _A100),
    "h800": Box(tuple(((card,), (f"mlx5_{i}",)) for card, i in enumerate((0, 3, 4, 5, 6, 7, 8, 9))), ((0, ("mlx5_bond_0",)),)),
    "h20": Box(
        tuple((pair, (f"mlx5_{2 * i}", f"mlx5_{2 * i + 1}")) for i, pair in enumerate(_PAIRS)), ((1, ("mlx5_bond_0",)),)
    ),
    "mi250x": Box(tuple((pair, (f"mlx5_{i}",)) for i, pair in enumerate(_PAIRS))),
    "l20": Box(tuple((pair, ()) for pair in _PAIRS), ((0, ("mlx5_0",)), (1, ("mlx5_1",)))),
}


def compute_adapters(box: str, places: Sequence[int]) -> dict[str, int]:
    """Those below the cards' switches, all where there are none, with the NUMA node of each. places: of each card."""
    tree = TREES[box]
    near = {name: places[cards[0]] for cards, names in tree.switches for name in names}
    return near or {name: _zone(socket, places) for socket, names in tree.alone for name in names}


def _zone(socket: int, places: Sequence[int]) -> int:
    """The first NUMA node of one of two sockets."""
    return socket * (max(places) + 1) // 2


def tree_of(
    box: str, places: Sequence[int], *, down: Collection[str] = (), amd: bool = False, acs: bool = False
) -> tuple[dict[str, str | bytes], dict[str, str]]:
    """Files, and links with their targets, below the kubelet's folder. places: the NUMA node of each card; down: adapters without an active port; acs:
    switches redirect traffic between the devices below them."""
    tree, files, links = TREES[box], dict[str, str | bytes](), dict[str, str]()
    at: list[tuple[str, int, str]] = []  # path, NUMA node, name of an adapter or ""
    for number, (cards, names) in enumerate(tree.switches):
        bus = 16 * (number + 1)
        root = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
        for place, card in enumerate(cards):
            inner = f"/0000:{bus + 3 + place:02x}:00.0/0000:{bus + 5 + place:02x}:00.0" if tree.deep else ""
            at.append((f"{root}/0000:{bus + 2:02x}:{place:02x}.0{inner}/0000:{bus + 8 + place:02x}:00.0", places[card], ""))
        at += (
            (f"{root}/0000:{bus + 2:02x}:{place + 8:02x}.0/0000:{bus + 11 + place:02x}:00.0", places[cards[0]], name)
            for place, name in enumerate(names)
        )
    for number, (socket, names) in enumerate(tree.alone):
        bus = 16 * (len(tree.switches) + number + 1)
        at += (
            (f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.{function}", _zone(socket, places), name)
            for function, name in enumerate(names)
        )
    for path, zone, name in at:
        address = path.rpartition("/")[2]
        folder = f"{_SYS}/devices/{path}"
        files[f"{folder}/class"] = "0x020700" if name else "0x120000" if amd else "0x030200"
        files[f"{folder}/vendor"] = "0x15b3" if name else "0x1002" if amd else "0x10de"
        files[f"{folder}/numa_node"] = str(zone)
        root, *bridges, _ = path.split("/")
        for depth, bridge in enumerate(bridges, 1):
            above = "/".join((root, *bridges[:depth]))
            files[f"{_SYS}/devices/{above}/class"] = "0x060400"
            files[f"{_SYS}/devices/{above}/config"] = _config(acs=acs, downstream=depth % 2 == 1)
            links[f"{_SYS}/bus/pci/devices/{bridge}"] = f"../../../devices/{above}"
        links[f"{_SYS}/bus/pci/devices/{address}"] = f"../../../devices/{path}"
        if name:
            port = f"{folder}/infiniband/{name}/ports/1"
            files |= {
                f"{port}/phys_state": "5: LinkUp",
                f"{port}/rate": "400 Gb/sec (4X NDR)",
                f"{port}/link_layer": "InfiniBand",
            }
            files[f"{port}/state"] = "1: DOWN" if name in down else "4: ACTIVE"
            links[f"{folder}/infiniband/{name}/device"] = f"../../../{address}"
            links[f"{_SYS}/class/infiniband/{name}"] = f"../../devices/{path}/infiniband/{name}"
    return files, links


def _config(*, acs: bool, downstream: bool) -> bytes:
    """Of a PCI Express bridge: error reporting, and of a port that leads down ACS, as lspci -xxxx shows them. Redirect of requests and completions, upstream
    forwarding and source validation are what Linux turns on."""
    found = bytearray(4096)
    found[0x100:0x104] = (0x0001 | 2 << 16 | (0x148 if downstream else 0) << 20).to_bytes(4, "little")
    if downstream:
        found[0x148:0x150] = (0x000D | 1 << 16 | 0x005F << 32 | (0x001D if acs else 0) << 48).to_bytes(8, "little")
    return bytes(found)
