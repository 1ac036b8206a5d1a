"""How near RDMA adapters are to cards, of a machine's PCI tree as /sys has it."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_agent.adapters.host import read_machine, read_ports
from hbox_agent.core import machine
from hbox_cli.check.findings import Level
from hbox_cli.check.machine import compared, findings
from hbox_cli.check.smitopo import read as smi
from hbox_common.errors import InvalidRequest
from hbox_common.model import Card, Generation, NodeName, NodeNuma, NodeNvml, NodeState, NvmlCard, PciKind
from hbox_common.model.cardadapters import addresses_of, nearest_by_address, with_adapters
from hbox_common.model.devices.adapters import (
    MAX_NEAR,
    NearAdapters,
    PathKind,
    asks_rdma,
    is_rdma,
    parse_card_adapters,
    path_kind,
    pci_path,
)
from hbox_common.views.node import node_item
from hbox_sandbox.kubelet.pci import TREES, tree_of
from hbox_sandbox.kubelet.topology import BOXES

N = NodeName("n1")
SMI = Path(__file__).parents[4] / "shared" / "samples" / "nvidia_smi_topo"
with_samples = pytest.mark.skipif(not SMI.exists(), reason="no folder ../shared/samples beside the project")


CARD = "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"
HCA = "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0"


def put(root: Path, box: str, **more: object) -> None:
    files, links = tree_of(box, BOXES[box][1], **more)  # type: ignore[arg-type]
    for name, text in files.items():
        path = root / name.removeprefix("host/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
    for name, leads in links.items():
        path = root / name.removeprefix("host/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(leads)


def box_of(root: Path, box: str, **more: object) -> NodeNuma:
    put(root, box, **more)
    return read_machine(N, host=root, kubelet=root, config=None, at=1.0)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT, errno.ENODEV])
def test_a_device_that_goes_while_it_is_looked_at_keeps_nobody_from_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Its folder was there a moment ago; the agent had ended of it."""
    whole = box_of(tmp_path, next(iter(BOXES)))
    scandir = os.scandir

    def scan(path: Any = ".") -> Any:
        if str(path).endswith(("/ports", "/sys/class/infiniband")):
            raise OSError(code, os.strerror(code), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    found = read_machine(N, host=tmp_path, kubelet=tmp_path, config=None, at=1.0)
    cards = [one.address for one in whole.devices if one.kind is PciKind.CARD]
    assert cards
    assert [one.address for one in found.devices if one.kind is PciKind.CARD] == cards
    assert read_ports(tmp_path) == {}


def names(numa: NodeNuma) -> list[tuple[str, ...]]:
    near = nearest_by_address(numa)
    return [near[card.address].names for card in numa.devices if card.kind is PciKind.CARD]


#: Of matrices that were printed on such boxes.
MATRICES = {
    "h100": "synth_h100_8gpu_12nic.txt",
    "h200": "synth_h200_8gpu_12nic.txt",
    "a800": "synth_a800_8gpu_12nic.txt",
    "h800": "real_h800_8gpu_9nic_baremetal.txt",
    "nps4": "part_real_dgx_a100_8gpu_12nic_nps4.txt",
    "l20": "synth_l20_8gpu_2nic_pcie.txt",
}


@with_samples
@pytest.mark.parametrize(("box", "file"), MATRICES.items())
def test_the_tree_of_a_box_says_what_nvidia_smi_prints_there(tmp_path: Path, box: str, file: str) -> None:
    numa, matrix = box_of(tmp_path, box), smi((SMI / file).read_text())
    differ = [one.message for one in compared(numa, matrix) if "differ" in one.message]
    assert differ == []
    expected = json.loads((SMI / "expected.json").read_text())[file]["nearest_nics_pix_or_pxb"]
    near = [
        own if path in ("PIX", "PXB") else () for own, path in ((n.names, n.path) for n in nearest_by_address(numa).values())
    ]
    assert [list(own) for own in near] == list(expected.values())


@with_samples
def test_a_matrix_that_says_otherwise_is_told(tmp_path: Path) -> None:
    numa, matrix = box_of(tmp_path, "h100"), smi((SMI / MATRICES["h800"]).read_text())
    [one] = [one for one in compared(numa, matrix) if "differ" in one.message]
    assert one.level is Level.WARNING
    assert "GPU0 and mlx5_0 PIX (PXB by /sys)" in one.message


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0", "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0", "PIX"),
        ("pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:10/0000:10:01.0/0000:11:00.1", "PIX"),
        ("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:15:00.0/0000:16:00.0/0000:17:00.0", HCA, "PXB"),
        ("pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:10/0000:10:02.0/0000:12:00.0", "PHB"),
        ("pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:20/0000:20:01.0/0000:21:00.0", "NODE"),
        ("", "pci0000:20/0000:20:01.0/0000:21:00.0", "NODE"),
    ],
)  # fmt: skip
def test_kinds_of_paths_are_nvidias(one: str, other: str, kind: str) -> None:
    assert path_kind(one, other, one_numa=0, other_numa=0) == kind
    if kind == "NODE":
        assert path_kind(one, other, one_numa=0, other_numa=1) is PathKind.SYS
        assert path_kind(one, other) is None, "nobody says where they are"


def test_an_adapter_that_goes_down_is_no_cards_and_its_neighbour_takes_its_place(tmp_path: Path) -> None:
    up = box_of(tmp_path / "up", "h100")
    assert names(up) == [(f"mlx5_{i}",) for i in (0, 3, 4, 5, 6, 9, 10, 11)]
    down = box_of(tmp_path / "down", "h100", down=("mlx5_3", "mlx5_9"))
    assert down.content != up.content, "the change is published"
    found = [near for _, near in sorted(nearest_by_address(down).items())]
    assert found[1] == NearAdapters(PathKind.NODE, ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_4", "mlx5_5"))
    assert not found[1].near
    assert found[0].near
    assert read_ports(tmp_path / "up") != read_ports(tmp_path / "down")
    dark = box_of(tmp_path / "dark", "h800", down=TREES_OF_H800)
    assert set(nearest_by_address(dark).values()) == {NearAdapters(PathKind.SYS)}, "known, and none"


TREES_OF_H800 = [name for _, own in (*TREES["h800"].switches, *TREES["h800"].alone) for name in own]
FILES = {
    "/sys/bus/pci/devices/0000:13:00.0/class": "0x030200",
    "/sys/bus/pci/devices/0000:13:00.0/vendor": "0x10de",
    "/sys/bus/pci/devices/0000:14:00.0/class": "0x020700",
    "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
}
LINKS = {
    "/sys/bus/pci/devices/0000:13:00.0": f"../../../devices/{CARD}",
    "/sys/class/infiniband/mlx5_0": f"../../devices/{HCA}/infiniband/mlx5_0",
}


def read(files: dict[str, str], links: dict[str, str]) -> NodeNuma:
    return machine(N, files, links=links, config="", at=1.0)


def test_virtual_functions_are_their_adapters() -> None:
    """Three hundred of them, whose class folders come and go with their pods."""
    files, links = dict(FILES), dict(LINKS)
    for i in range(300):
        address = f"0000:14:{1 + i // 8:02x}.{i % 8}"
        files |= {
            f"/sys/bus/pci/devices/{address}/class": "0x020700",
            f"/sys/class/infiniband/mlx5_{i + 10}/ports/1/state": "4: ACTIVE",
        }
        links |= {
            f"/sys/bus/pci/devices/{address}/physfn": "../0000:14:00.0",
            f"/sys/class/infiniband/mlx5_{i + 10}": f"../../devices/{HCA.rpartition('/')[0]}/{address}/infiniband/mlx5_{i + 10}",
        }
    numa = read(files, links)
    assert [one.name for one in numa.devices if one.kind is PciKind.HCA] == ["mlx5_0"]
    assert len([one for one in numa.devices if one.kind is PciKind.NIC]) == 1
    assert names(numa) == [("mlx5_0",)]
    alone = read(files, {k: v for k, v in links.items() if not k.endswith("/mlx5_0")})
    assert names(alone) == [("mlx5_10",)], "where its adapter is not seen, one function stands for it"


def test_hundreds_of_adapters_stay_within_a_message_and_cards_go_first() -> None:
    files, links = dict(FILES), dict(LINKS)
    for i in range(400):
        files[f"/sys/class/infiniband/hca{i}/ports/1/state"] = "4: ACTIVE"
        root = HCA.rpartition("/")[0]
        links[f"/sys/class/infiniband/hca{i}"] = f"../../devices/{root}/0000:15:{i // 8 % 32:02x}.{i % 8}/infiniband/x"
    numa = read(files, links)
    assert len(numa.devices) == 256
    assert numa.devices[0].kind is PciKind.CARD
    assert any("256 published" in problem for problem in numa.problems)
    assert len(names(numa)[0]) == MAX_NEAR


def test_links_that_lead_nowhere_leave_what_numa_nodes_say(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_8").symlink_to("../../nowhere")
    (tmp_path / "sys/class/infiniband/mlx5_9").symlink_to("mlx5_9")
    put(tmp_path, "l20", down=())
    shutil.rmtree(tmp_path / "sys/devices")
    numa = read_machine(N, host=tmp_path, kubelet=tmp_path, config=None, at=1.0)
    assert [one for one in numa.devices if one.kind is PciKind.CARD] == []
    assert nearest_by_address(numa) == {}
    kept = read(
        FILES | {"/sys/bus/pci/devices/0000:13:00.0/numa_node": "1", "/sys/class/infiniband/mlx5_0/device/numa_node": "1"}, {}
    )
    assert nearest_by_address(kept) == {"0000:13:00.0": NearAdapters(PathKind.NODE, ("mlx5_0",))}


WORDS = st.text(st.sampled_from("pci0000:1/.af-\n\0ü"), max_size=60)


@given(st.dictionaries(WORDS, WORDS, max_size=5), st.dictionaries(WORDS, WORDS, max_size=5), WORDS)
def test_no_link_breaks_the_reading(files: dict[str, str], links: dict[str, str], leads: str) -> None:
    below = {"/sys/class/infiniband/" + k: v for k, v in files.items()}
    numa = read(FILES | below, {**LINKS, "/sys/class/infiniband/mlx5_0": leads} | links)
    assert len(numa.devices) >= 1
    nearest_by_address(numa)


def test_a_path_is_what_a_link_leads_to() -> None:
    assert pci_path(f"../../devices/{HCA}/infiniband/mlx5_0") == HCA
    assert pci_path("../../devices/platform/vmbus/infiniband/x") == ""
    assert pci_path("") == ""
    assert pci_path("../pci0000:10") == ""
    assert pci_path("/".join(["pci0000:10", *["0000:10:01.0"] * 60])) == "", "no machine is so deep"


@pytest.mark.parametrize(
    ("name", "rdma"),
    [
        ("rdma/hca_shared_devices_a", True),
        ("rdma/ib", True),
        ("nvidia.com/mlnxnics", True),
        ("openshift.io/ib_rdma", True),
        ("aliyun/erdma", True),
        ("vpc.amazonaws.com/efa", True),
        ("nvidia.com/gpu", False),
        ("example.com/library", False),
        ("cpu", False),
        ("rdma/", False),
        ("example.com/ibex", False),
    ],
)
def test_who_asks_for_rdma(name: str, rdma: bool) -> None:
    assert is_rdma(name) is rdma
    assert asks_rdma({name: 1}) is rdma
    assert not asks_rdma({name: 0})


def test_adapters_are_written_by_hand_where_a_guest_hides_them() -> None:
    assert parse_card_adapters("0=mlx5_0; 1 = mlx5_1,mlx5_2 ;2=") == {
        0: NearAdapters(PathKind.PIX, ("mlx5_0",)),
        1: NearAdapters(PathKind.PIX, ("mlx5_1", "mlx5_2")),
        2: NearAdapters(PathKind.SYS),
    }


@pytest.mark.parametrize("text", ["0", "x=mlx5_0", "-1=a", "0=a;0=b", "0=a\x1bb", f"0={','.join(map(str, range(17)))}", "²=a"])
def test_what_is_written_wrongly_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"card|adapters"):
        parse_card_adapters(text)


def node(numa_of: tuple[int, ...] = (0, 0, 0, 0, 1, 1, 1, 1), *, registered: bool = True) -> NodeState:
    cards = tuple(Card(i, f"GPU-{i}", "H100", 81_920, numa=zone, kind="NVIDIA") for i, zone in enumerate(numa_of))
    return NodeState(N, "u", Generation(1), True, cards=cards, registered=("NVIDIA",) if registered else ())


def test_cards_are_known_by_nvmls_ids_or_by_the_order_of_a_register(tmp_path: Path) -> None:
    numa = box_of(tmp_path, "h100")
    addresses = [one.address for one in numa.devices if one.kind is PciKind.CARD]
    assert addresses_of(node(), numa) == dict(enumerate(addresses))
    assert addresses_of(node(registered=False), numa) == {}, "a kubelet's numbers are no order of the machine"
    assert addresses_of(node((1, 1, 1, 1, 0, 0, 0, 0)), numa) == {}, "two orders"
    assert addresses_of(node((0, 0, 1, 1)), numa) == {}, "some cards are not told"
    by_id = NodeNvml("d", tuple(NvmlCard(i, f"GPU-{7 - i}", f"0000{address.upper()}") for i, address in enumerate(addresses)))
    told = addresses_of(node(registered=False), replace(numa, nvml=by_id))
    assert told == dict(enumerate(reversed(addresses)))
    said = with_adapters(node(), numa)
    assert [card.adapters.names for card in said.cards if card.adapters] == names(numa)
    assert with_adapters(said, numa) is said
    assert with_adapters(node(), None) == node()


def test_what_is_written_by_hand_stands(tmp_path: Path) -> None:
    own = NearAdapters(PathKind.PIX, ("eth9",))
    by_hand = replace(node(), cards=(replace(node().cards[0], adapters=own), *node().cards[1:]))
    found = with_adapters(by_hand, box_of(tmp_path, "h100"))
    assert [card.adapters.names for card in found.cards[:2] if card.adapters] == [("eth9",), ("mlx5_3",)]


def levels(numa: NodeNuma) -> list[tuple[Level, str]]:
    return [(one.level, one.message) for one in findings(numa, None) if one.name == "adapters"]


def test_a_node_whose_cards_have_no_near_adapter_is_warned_of(tmp_path: Path) -> None:
    assert levels(box_of(tmp_path / "h100", "h100")) == [
        (Level.OK, "each of 8 cards has an RDMA adapter below its own host bridge")
    ]
    [(level, message)] = levels(box_of(tmp_path / "l20", "l20"))
    assert level is Level.WARNING
    assert "have no adapter below their own host bridge" in message
    [(_, down), (_, far)] = levels(box_of(tmp_path / "down", "h800", down=("mlx5_4",)))
    assert down == "no port of mlx5_4 is active"
    assert far.startswith("cards 0000:38:00.0 have no adapter")
    assert levels(read({k: v for k, v in FILES.items() if "infiniband" not in k}, {})) == [], "not meant for it"
    hidden = read(FILES, {})
    assert [level for level, _ in levels(hidden)] == [Level.WARNING]
    assert "the PCI distance between" in levels(hidden)[0][1]


def test_nearest_adapters_are_shown_card_by_card(tmp_path: Path) -> None:
    numa = box_of(tmp_path, "h100", down=("mlx5_3",))
    item = node_item(with_adapters(node(), numa), None, (), None, numa=numa, now=1.0)["numa"]
    first, second = item["adapters"][:2]
    assert (first["card"], first["path"], first["adapters"], first["near"]) == (0, "PXB", ["mlx5_0"], True)
    assert (second["card"], second["path"], second["near"]) == (1, "NODE", False)
    assert item["adaptersDown"] == ["mlx5_3"]
