"""Injected faults, as the agent's parsers read them and health-monitor judges them."""

from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.health.lines import KernelLog
from hbox_common.health.nvmlfacts import cards_of
from hbox_health.core.judge.assess import Context
from hbox_health.core.judge.burst import judge
from hbox_health.core.judge.finding import Finding
from hbox_health.core.judge.snapshot import judge_card
from hbox_health.data import shipped_rules
from hbox_sandbox.kubelet.hardware import FABRIC_MANAGER, KERNEL_LOG, LINKS, NVML, NodeHardware
from hbox_sandbox.kubelet.inject import Fault, Injection

RULES = shipped_rules()
FIRST, SECOND = "GPU-1", "GPU-2"
ADDRESSES = {FIRST: "0000:18:00.0", SECOND: "0000:19:00.0"}
PORT = "host/sys/class/infiniband/mlx5_0/ports/1"


@pytest.fixture
def node(tmp_path: Path) -> Injection:
    root = tmp_path / "n1"
    (root / PORT).mkdir(parents=True)
    hardware = NodeHardware(root)
    hardware.cards(ADDRESSES)
    hardware.unit(FABRIC_MANAGER, active=True)
    return Injection(hardware)


def findings(root: Path, box: str = "H100") -> list[Finding]:
    profile = RULES.profile(box)
    lines = (root / NVML).read_text().splitlines()
    found = [one for uuid, state in cards_of(lines)[1] for one in judge_card(state, f"gpu:{uuid}", profile)]
    log = KernelLog()
    records = (
        [one for raw in (root / KERNEL_LOG).read_text().splitlines() for one in log.raw(raw)]
        if (root / KERNEL_LOG).exists()
        else []
    )
    records += log.flush()
    uuids = {address.partition(".")[0]: uuid for uuid, address in ADDRESSES.items()}
    return [
        *found,
        *(judge([{**one, "at": 0.0} for one in records], RULES, Context(profile, None, uuids)).findings if records else ()),
    ]


@pytest.mark.parametrize("model", ["H100", "A100", "A800", "H800", "H200", "B200", "L20", "T4", ""])
def test_a_healthy_card_of_each_model_has_no_finding(tmp_path: Path, model: str) -> None:
    NodeHardware(tmp_path).cards(ADDRESSES, links=LINKS.get(model, 0))
    assert findings(tmp_path, model) == []


@pytest.mark.parametrize(
    ("fault", "decided"),
    [
        (Fault.CARD_LOST, {("gpu:GPU-2", "nvml", "reboot")}),
        (Fault.XID_79, {("gpu:GPU-2", "nvml", "reboot"), ("gpu:GPU-2", "xid", "reboot")}),
        (Fault.DBE, {("gpu:GPU-2", "nvml", "reset"), ("gpu:GPU-2", "xid", "reset")}),
        (Fault.CONTAINED, {("gpu:GPU-2", "nvml", "reset-when-idle"), ("gpu:GPU-2", "xid", "tell-owner")}),
        (Fault.REMAP, {("gpu:GPU-2", "nvml", "reset-when-idle"), ("gpu:GPU-2", "xid", "reset-when-idle")}),
        (Fault.NVLINK_DOWN, {("gpu:GPU-2", "nvml", "multi-gpu-off")}),
        (Fault.SLOW, {("gpu:GPU-2", "nvml", "ticket")}),
        (Fault.PROGRAM_ERROR, {("gpu:GPU-2", "xid", "tell-owner")}),
    ],
)  # fmt: skip
def test_a_fault_of_a_card_is_judged_as_that_fault_of_that_card(
    node: Injection, tmp_path: Path, fault: Fault, decided: set[tuple[str, str, str]]
) -> None:
    node.inject(fault, card="1")
    assert {(one.entity, one.kind, one.action.value) for one in findings(tmp_path / "n1")} == decided


def test_a_port_that_comes_back_counts_that_it_was_down(node: Injection, tmp_path: Path) -> None:
    port = tmp_path / "n1" / PORT
    for times in (1, 2):
        node.inject(Fault.NIC_DOWN)
        node.inject(Fault.NIC_UP)
        assert ((port / "state").read_text(), (port / "counters/link_downed").read_text()) == ("4: ACTIVE\n", f"{times}\n")


def test_a_burst_takes_all_cards(node: Injection, tmp_path: Path) -> None:
    node.inject(Fault.XID_79_BURST)
    assert (tmp_path / "n1" / KERNEL_LOG).read_text().count("): 79, ") == len(ADDRESSES)
    assert {one.entity for one in findings(tmp_path / "n1") if one.kind == "nvml"} == {f"gpu:{uuid}" for uuid in ADDRESSES}


def test_a_hanging_library_does_not_say_which_cards_are_listed(node: Injection, tmp_path: Path) -> None:
    node.inject(Fault.NVML_HUNG)
    state, cards = cards_of((tmp_path / "n1" / NVML).read_text().splitlines())
    assert (state["problem"], state["asking"], "listed" in state) == ("no answer within 30 s", 1, False)
    assert [uuid for uuid, _ in cards] == [FIRST]


def test_a_repaired_node_is_as_it_was(node: Injection, tmp_path: Path) -> None:
    root = tmp_path / "n1"
    before = (root / NVML).read_text()
    for fault in set(Fault) - {Fault.NIC_UP, Fault.REPAIRED}:
        node.inject(fault)
    unit = root / "host/sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/cgroup.procs"
    assert (root / PORT / "state").read_text() == "1: DOWN\n"
    assert unit.read_text() == ""
    assert (root / "no-agent").exists()
    node.inject(Fault.REPAIRED)
    assert (root / NVML).read_text() == before
    assert (root / KERNEL_LOG).read_text() == ""
    assert (root / PORT / "state").read_text() == "4: ACTIVE\n"
    assert unit.read_text() != ""
    assert not (root / "no-agent").exists()


@pytest.mark.parametrize(
    ("fault", "where"), [(Fault.DBE, {"card": "GPU-9"}), (Fault.DBE, {"card": "2"}), (Fault.NIC_DOWN, {"adapter": "mlx5_9"})]
)
def test_a_fault_of_what_the_node_does_not_have_is_refused(node: Injection, fault: Fault, where: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="has no "):
        node.inject(fault, **where)
