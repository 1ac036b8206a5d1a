"""Facts of agents in the incident engine: each counts once, in its boot, and the states of cards, ports and units are judged."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.health.report import Check, Fact
from hbox_common.model import IncidentState, NodeName
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor, box_of
from hbox_health.core.judge.happenings import FactSeen, NodeSeen
from hbox_health.core.judge.incidents import Incidents
from hbox_health.data import shipped_rules

from .incident_world import GPU, OTHER, World, pod


class Node(World):
    """A node whose agent reports facts; nothing repairs it."""

    def __init__(self, model: str = "NVIDIA-H100-80GB-HBM3") -> None:
        super().__init__(Policies())
        self.engine = Incidents(self.policies, Assessor(shipped_rules()))
        self.seq = 0
        self.step(NodeSeen(NodeName("n0"), (GPU, OTHER), labels={"nvidia.com/gpu.product": model}))

    def fact(self, check: Check, entity: str, name: str, /, boot: str = "b1", seq: int | None = None, **value: Any) -> None:
        self.seq += seq is None
        self.step(FactSeen(NodeName("n0"), boot, Fact(self.seq if seq is None else seq, 5.0, check, entity, name, value)))

    def card(self, action: int = 0, entity: str = GPU, **value: Any) -> None:
        self.fact(Check.NVML, entity, "card", recovery_action=action, **value)

    def xid(self, code: int, entity: str = GPU, boot: str = "b1") -> None:
        self.fact(Check.KERNEL_LOG, entity, str(code), boot, kind="xid", code=code, pci="0000:18:00")


def test_a_fact_that_was_judged_changes_nothing_when_it_is_delivered_again() -> None:
    node = Node()
    node.card(1)
    node.card(4)
    node.fact(Check.NVML, GPU, "card", seq=1, recovery_action=0)
    assert node.only().action == "drain-and-reset"


def test_numbers_of_facts_begin_again_with_a_boot_and_facts_of_the_boot_before_change_nothing() -> None:
    node = Node()
    for _ in range(5):
        node.card()
    node.fact(Check.NVML, GPU, "card", "b2", 1, recovery_action=1)
    assert node.verdict().cards == (GPU,)
    node.fact(Check.NVML, OTHER, "card", "b1", 99, recovery_action=1)
    assert node.verdict().cards == (GPU,)


@pytest.mark.parametrize(
    ("action", "wanted"), [(1, "reset"), (2, "reboot"), (4, "drain-and-reset"), (6, "reset"), (7, "reboot"), (8, "isolate-gpu")]
)
def test_a_recovery_action_takes_the_card_out_of_use(action: int, wanted: str) -> None:
    node = Node()
    node.card(action)
    incident = node.only()
    assert (incident.action, incident.authority) == (wanted, "nvidia-recovery-action")
    assert node.verdict().cards == (GPU,)


def test_an_imex_domain_to_recover_leaves_local_work_alone() -> None:
    node = Node()
    node.card(5)
    assert node.verdict().cards == ()


def test_a_recovery_action_that_ends_cures_what_the_kernel_reported_too() -> None:
    node = Node()
    node.xid(48)
    node.after(3)
    node.card(1)
    node.card(0)
    assert node.only().state is IncidentState.VALIDATING
    assert node.verdict().cards == (GPU,), "until it was well for a while"
    node.after(node.policies.validated_s)
    assert (node.open(), node.verdict().cards) == ([], ())


def test_a_recovery_action_that_was_never_set_cures_nothing() -> None:
    node = Node()
    node.xid(48)
    node.after(3)
    node.card(0)
    assert node.verdict().cards == (GPU,)
    assert node.only().state is IncidentState.DRAINING, "its users are unknown"


@pytest.mark.parametrize(
    ("value", "wait_s", "action"),
    [
        ({"remapped_rows": {"correctable": 0, "uncorrectable": 1, "pending": True, "failure": False}}, 0, "reset-when-idle"),
        ({"sram_threshold_exceeded": True}, 0, "replace"),
        ({"every_call": 15}, 0, "reboot"),
        ({"nvlinks_active": 17, "nvlinks_inactive": (3,)}, 50, "multi-gpu-off"),
        ({"clocks_event_reasons": 0x40}, 75, "ticket"),
    ],
)
def test_a_state_of_a_card_is_judged_once_it_lasted(value: dict[str, Any], wait_s: float, action: str) -> None:
    node = Node()
    node.card(0, **value)
    if wait_s:
        assert node.only().state is IncidentState.SUSPECT
        node.after(wait_s)
    assert node.only().state is not IncidentState.SUSPECT
    assert node.only().action == action


def test_a_port_that_is_missing_is_down() -> None:
    node = Node()
    node.fact(Check.PORTS, "rail:mlx5_0", "port", pci="0000:19:00", missing=True)
    node.after(240)
    assert node.verdict().rails_off == ("rail:mlx5_0",)


@pytest.mark.parametrize(("model", "multi_gpu"), [("NVIDIA-H100-80GB-HBM3", False), ("NVIDIA-L20", True)])
def test_a_fabric_manager_that_does_not_run_matters_with_nvswitches(model: str, multi_gpu: bool) -> None:
    node = Node(model)
    node.fact(Check.UNITS, "node", "units", units={"nvidia-fabricmanager": "inactive", "openibd": "inactive"}, modules={})
    node.after(60)
    assert node.verdict().multi_gpu is multi_gpu


def test_bridges_that_redirect_are_a_misconfiguration_until_none_does() -> None:
    node = Node()
    node.fact(Check.UNITS, "node", "acs", redirecting=())
    assert not node.open()
    node.fact(Check.UNITS, "node", "acs", redirecting=("0000:16:00.0", "0000:17:00.0"))
    assert (node.only().severity, node.only().action) == ("misconfigured", "acs-off")
    assert node.only().why.endswith("adapters: 0000:16:00.0, 0000:17:00.0")
    node.fact(Check.UNITS, "node", "acs", redirecting=())
    assert not node.open()


def leaving(node: Node) -> list[list[str]]:
    return [incident.leaving for incident in node.engine.dump().nodes["n0"].open.values()]


def test_pods_have_to_leave_a_card_only_while_a_reason_demands_it() -> None:
    node = Node()
    node.pods(pod("ns/p1", GPU, OTHER))
    node.card(every_call=16)
    assert leaving(node) == [[GPU]], "not the healthy card of the same pod"
    node.card(remapped_rows={"pending": True})
    assert node.only().action == "reset-when-idle"
    assert leaving(node) == [[]]


def test_neighbours_of_a_lost_card_stay_if_nothing_reboots_the_node() -> None:
    node = Node()
    node.pods(pod("ns/p1", GPU), pod("ns/p2", OTHER, job="ns/j2"))
    node.xid(79)
    node.after(3)
    assert leaving(node) == [[GPU]]
    node.after(node.policies.neighbours_s + 1)
    assert leaving(node) == [[GPU]]


def leaving_jobs(node: Node) -> list[list[str]]:
    return [incident.leaving_jobs for incident in node.engine.dump().nodes["n0"].open.values()]


def test_jobs_with_several_cards_leave_a_node_whose_cards_do_not_reach_each_other() -> None:
    node = Node()
    node.pods(pod("ns/p1", GPU, OTHER, job="ns/wide"), pod("ns/p2", OTHER, job="ns/narrow"))
    node.card(3)
    assert not node.verdict().multi_gpu
    assert (leaving_jobs(node), leaving(node)) == ([["ns/wide"]], [[GPU, OTHER]])
    node.card(0)
    node.after(601)
    assert leaving_jobs(node) == []


def test_a_pod_that_arrives_later_leaves_with_its_job() -> None:
    node = Node()
    node.pods(pod("ns/p1", GPU, OTHER, job="ns/wide"))
    node.card(3)
    node.pods(pod("ns/p2", "gpu:GPU-c", "gpu:GPU-d", job="ns/wide"))
    assert leaving(node) == [[GPU, OTHER, "gpu:GPU-c", "gpu:GPU-d"]]


def test_a_pod_on_one_mig_instance_does_not_have_several_cards() -> None:
    node = Node()
    node.step(NodeSeen(NodeName("n0"), ("mig:MIG-1", GPU, OTHER), {"mig:MIG-1": GPU}))
    node.pods(pod("ns/p1", "mig:MIG-1", GPU, job="ns/part"))
    node.card(3, OTHER)
    assert leaving_jobs(node) == [[]]


def test_gangs_over_several_nodes_leave_a_node_with_a_port_down() -> None:
    node = Node()
    spanning = replace(pod("ns/p1", GPU, job="ns/gang"), multi_node=True)
    node.pods(spanning, pod("ns/p2", OTHER, job="ns/alone"))
    node.fact(Check.PORTS, "rail:mlx5_0", "port", state="1: DOWN")
    node.after(240)
    assert leaving_jobs(node) == [["ns/gang"]]
    node.fact(Check.PORTS, "rail:mlx5_0", "port", state="4: ACTIVE")
    node.after(601)
    assert leaving_jobs(node) == []


@pytest.mark.parametrize(
    ("code", "action", "closed"),
    [(18, "reboot", True), (9, "cordon", True), (12, "cordon", True), (4, "report", False), (999, "report", False)],
)
def test_nvml_that_does_not_start_is_a_fault_of_the_node(code: int, action: str, closed: bool) -> None:
    node = Node("unknown")
    node.fact(Check.NVML, "node", "cards", init=code, problem="NVML does not start", inventory=())
    assert node.verdict().node, "the driver may be about to be loaded"
    node.after(60)
    assert (node.only().action, node.verdict().node) == (action, not closed)
    node.fact(Check.NVML, "node", "cards", init=0, count=2, listed=("GPU-a", "GPU-b"), inventory=("GPU-a", "GPU-b"))
    assert node.open() == []
    assert node.verdict().node


def test_a_node_without_cards_needs_no_driver() -> None:
    node = Node()
    node.step(NodeSeen(NodeName("n0"), ()))
    node.fact(Check.NVML, "node", "cards", init=9, problem="NVML does not start", inventory=())
    node.after(60)
    assert node.open() == []


def test_ports_of_more_than_three_nodes_of_a_unit_are_one_incident() -> None:
    world = Node()
    names = [f"n{index}" for index in range(5)]
    for name in names:
        world.step(NodeSeen(NodeName(name), (GPU, OTHER), unit="lg7" if name != "n4" else "lg8"))
    for name in names:
        for rail in ("mlx5_0", "mlx5_1"):
            world.seq += 1
            fact = Fact(world.seq, 5.0, Check.PORTS, f"rail:{rail}", "port", {"state": "1: DOWN"})
            world.step(FactSeen(NodeName(name), "b1", fact))
    current = [one for one in world.incidents.values() if one.state is not IncidentState.CLOSED]
    assert {one.entity for one in current if not one.node} == {"switch:lg7"}
    assert {one.node for one in current if one.node} == {"n4"}
    world.after(240)
    assert world.verdicts["n0"].rails_off == ("rail:mlx5_0", "rail:mlx5_1")
    world.seq += 1
    world.step(FactSeen(NodeName("n0"), "b1", Fact(world.seq, 5.0, Check.PORTS, "rail:mlx5_0", "port", {"state": "4: ACTIVE"})))
    assert set(world.engine.dump().groups["switch:lg7"].members) == {"n0", "n1", "n2", "n3"}, "its other port is down"


def test_a_card_without_rows_is_lost_once_the_exporter_had_time_to_reload() -> None:
    node = Node()
    rows: dict[str, Any] = {"inventory": ("GPU-0", "GPU-1"), "nvml_count": None}
    for shown in ((), ("GPU-0",)):
        node.fact(Check.DCGM, "node", "exporter", rows=shown, **rows)
        node.after(100)
        assert (node.verdict().cards, node.verdict().node) == ((), True)
        node.fact(Check.DCGM, "node", "exporter", rows=("GPU-0", "GPU-1"), **rows)
        node.after(100)
        assert node.verdict().cards == ()
    node.fact(Check.DCGM, "node", "exporter", rows=("GPU-0",), **rows)
    node.after(120)
    assert node.only().action == "reboot"
    assert node.verdict().node is False


def test_a_card_without_rows_that_nvml_lists_is_well() -> None:
    node = Node()
    node.fact(Check.DCGM, "node", "exporter", rows=("GPU-0",), inventory=("GPU-0", "GPU-1"), nvml_count=2)
    node.after(600)
    assert (node.verdict().cards, node.verdict().node) == ((), True)


def test_an_exporter_without_rows_states_nothing_about_cards() -> None:
    node = Node()
    node.fact(Check.DCGM, "node", "exporter", rows=(), inventory=("GPU-0", "GPU-1"), nvml_count=None)
    node.after(600)
    assert (node.only().kind, node.verdict().cards, node.verdict().node) == ("dcgm-silent", (), True)


def test_values_of_the_exporter_are_judged_until_it_shows_others() -> None:
    node = Node()
    node.fact(Check.DCGM, GPU, "card", DCGM_FI_DEV_ROW_REMAP_PENDING=1.0)
    assert node.only().action == "reset-when-idle"
    node.fact(Check.DCGM, GPU, "card", DCGM_FI_DEV_ROW_REMAP_PENDING=1.0, DCGM_FI_DEV_ECC_DBE_VOL_TOTAL=1.0)
    assert node.only().action == "reset"
    assert node.verdict().cards == (GPU,)


def test_xids_of_the_exporter_on_two_cards_at_one_moment_count_as_those_of_the_kernel_log() -> None:
    node = Node()
    for entity, pci in ((GPU, "0000:18:00"), (OTHER, "0000:2a:00")):
        node.fact(Check.DCGM, entity, "95", kind="xid", code=95, pci=pci)
    node.after(3)
    assert set(node.verdict().cards) == {GPU, OTHER}


def test_an_xid_of_an_event_of_nvml_is_judged_as_one_of_the_kernel_log() -> None:
    node, other = Node(), Node()
    node.fact(Check.NVML_EVENTS, GPU, "79", kind="xid", code=79, pci="0000:18:00")
    other.xid(79)
    for each in (node, other):
        each.after(30)
    assert (node.only().kind, node.only().action, node.verdict()) == (other.only().kind, other.only().action, other.verdict())


@pytest.mark.parametrize("event_first", [False, True])
def test_one_xid_of_the_kernel_log_and_of_nvmls_events_is_one_record(event_first: bool) -> None:
    """Also with details that only the log has: of XID 74 the registers decide, here bits that decide nothing."""
    registers = ("0x1", *["0x0"] * 6)
    node, without = Node(), Node()

    def line(of: Node) -> None:
        of.fact(Check.KERNEL_LOG, GPU, "74", kind="xid", code=74, pci="0000:18:00", link=3, registers=registers)

    def event() -> None:
        node.fact(Check.NVML_EVENTS, GPU, "74", kind="xid", code=74, pci="0000:18:00")

    line(without)
    if event_first:
        event()
        line(node)
    else:
        line(node)
        event()
    for one in (node, without):
        one.after(30)
    assert (node.open(), node.verdict()) == (without.open(), without.verdict())
    (burst,) = node.engine.dump().nodes["n0"].bursts.values()
    assert [record.get("registers") for record in burst.records] == [registers]


def test_a_fault_of_a_program_that_both_report_counts_once() -> None:
    node = Node()
    node.fact(Check.NVML_EVENTS, GPU, "31", kind="xid", code=31, pci="0000:18:00")
    node.fact(Check.KERNEL_LOG, GPU, "31", kind="xid", code=31, pci="0000:18:00", pid=4711)
    node.fact(Check.NVML_EVENTS, GPU, "31", kind="xid", code=31, pci="0000:18:00", count=2)
    assert [fault.pid for fault in node.engine.dump().nodes["n0"].faults] == [4711]


@pytest.mark.parametrize("code", ["154", "event", "events", "lost"])
def test_an_event_of_nvml_whose_meaning_is_in_its_state_decides_nothing(code: str) -> None:
    node = Node()
    if code == "154":
        node.fact(Check.NVML_EVENTS, GPU, code, kind="xid", code=154, pci="0000:18:00")
    else:
        node.fact(Check.NVML_EVENTS, GPU, code, type=0x8000, state="waiting", count=1)
    node.after(30)
    assert (node.open(), node.verdict().node, node.verdict().cards) == ([], True, ())


def test_an_incomplete_answer_of_nvml_takes_no_lost_card_back_and_ends_that_nvml_does_not_start() -> None:
    node = Node()
    inventory = ("GPU-a", "GPU-b")
    node.fact(Check.NVML, "node", "cards", listed=("GPU-b",), inventory=inventory, count=1)
    node.after(21)
    assert not node.verdict().node
    node.fact(Check.NVML, "node", "cards", problem="no answer", init=999, inventory=inventory)
    codes = {reason.finding.code for one in node.engine.dump().nodes["n0"].open.values() for reason in one.reasons.values()}
    assert codes == {"lost", "init-999"}
    node.fact(Check.NVML, "node", "cards", problem="it ended", inventory=inventory)
    node.after(120)
    codes = {reason.finding.code for one in node.engine.dump().nodes["n0"].open.values() for reason in one.reasons.values()}
    assert codes == {"lost"}
    assert not node.verdict().node


def test_an_exporter_that_could_not_be_read_takes_nothing_back_and_shows_no_absence() -> None:
    node = Node()
    node.fact(Check.DCGM, "node", "exporter", rows=("GPU-b",), inventory=("GPU-a", "GPU-b"), nvml_count=1)
    node.after(130)
    assert node.only().code == "absent"
    node.fact(Check.DCGM, "node", "exporter", inventory=("GPU-a", "GPU-b"), nvml_count=1)
    node.fact(Check.DCGM, "node", "exporter", rows=None, inventory=("GPU-a", "GPU-b"), nvml_count=1)
    node.after(700)
    assert node.only().code == "absent"
    well = Node()
    well.fact(Check.DCGM, "node", "exporter", rows=None, inventory=("GPU-a", "GPU-b"), nvml_count=2)
    well.after(700)
    assert well.open() == []


def test_each_reader_that_hangs_is_named_and_returns_by_itself() -> None:
    node = Node()
    for reader in ("nvml", "ports"):
        node.fact(Check.AGENT, "node", f"hangs:{reader}", reader=reader, since=5.0)
    node.after(31)
    assert {(one.code, one.why) for one in node.open()} == {
        ("nvml", "reader nvml does not answer"),
        ("ports", "reader ports does not answer"),
    }
    node.fact(Check.AGENT, "node", "hangs:nvml", reader="nvml", since=0.0)
    assert [one.code for one in node.open()] == ["ports"]


def test_the_profile_of_an_operator_counts_before_the_model_of_the_cards() -> None:
    assert box_of({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "hbox.io/profile": "H100"}) == "H100"
    assert box_of({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "hbox.io/profile": ""}) == "NVIDIA-A100-SXM4-80GB"
