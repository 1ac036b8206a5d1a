"""NVML snapshots against the profile of the box; the thresholds, and what is no fault by design."""

from typing import Any

import pytest

from hbox_common.health.nvmlfacts import card_state
from hbox_health.core.judge.finding import Finding, Scope
from hbox_health.core.judge.snapshot import Snapshot, fabric_flags, judge_snapshot, lost_cards
from hbox_health.data import shipped_rules

RULES = shipped_rules()
UUIDS = [f"GPU-{n}" for n in range(8)]


def judged(box: str = "H100", cards: dict[int, dict[str, Any]] | None = None, **node: Any) -> list[Finding]:
    profile = RULES.profile(box)
    every = [{"uuid": UUIDS[n], "nvlinks_active": profile.nvlinks, **(cards or {}).get(n, {})} for n in range(8)]
    return judge_snapshot(Snapshot(cards=every, **node), profile)


def decided(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.severity, f.action) for f in findings]


@pytest.mark.parametrize("box", ["A100", "A800", "H800", "H100", "H200", "L20", "generic"])
def test_a_well_node_of_each_box_has_no_finding(box: str) -> None:
    assert judged(box) == []


@pytest.mark.parametrize(
    ("card", "decision"),
    [
        ({"recovery_action": 1, "last_xid": 120}, ("fatal-gpu", "reset")),
        ({"recovery_action": 2}, ("fatal-node", "reboot")),
        ({"recovery_action": 99}, ("fatal-gpu", "isolate-gpu")),
        ({"every_call": 15}, ("fatal-node", "reboot")),
        ({"every_call": 16}, ("fatal-gpu", "reset")),
        ({"every_call": 999}, ("unknown", "report")),
        ({"remapped_rows": {"pending": True, "failure": False}}, ("degraded", "reset-when-idle")),
        ({"remapped_rows": {"pending": False, "failure": True}}, ("fatal-gpu", "replace")),
        ({"remapped_rows": {"uncorrectable": 512}}, ("fatal-gpu", "replace")),
        ({"remapped_rows": {"uncorrectable": 511}}, ("info", "watch")),
        ({"sram_threshold_exceeded": True}, ("fatal-gpu", "replace")),
        ({"ecc_aggregate": {"sram_parity": 9}, "sram_threshold_exceeded": False}, ("info", "watch")),
        ({"ecc_aggregate": {"sram_parity": 2, "sram_secded": 2}}, ("degraded", "ticket")),
        ({"ecc_dbe_volatile": 1}, ("fatal-gpu", "reset")),
        ({"ecc_sbe_per_s": 0.02}, ("info", "watch")),
        ({"channel_repair_pending": True}, ("degraded", "reset-when-idle")),
        ({"tpc_repair_pending": True}, ("degraded", "reset-when-idle")),
        ({"unrepairable_memory": True}, ("fatal-gpu", "replace")),
        ({"inforom_validate": 14}, ("degraded", "reboot")),
        ({"histogram": {"low": 0, "none": 1}}, ("degraded", "ticket")),
        ({"histogram": {"low": 1, "none": 0}}, ("info", "watch")),
        ({"nvlinks_active": 17}, ("degraded", "multi-gpu-off")),
        ({"fabric": {"state": 2}}, ("degraded", "restart-fm")),
        ({"fabric": {"state": "completed", "status": 9}}, ("degraded", "multi-gpu-off")),
        ({"fabric": {"state": 3, "health": 0x1}}, ("degraded", "multi-gpu-off")),
        ({"fabric": {"state": 3, "health": 0x10}}, ("degraded", "multi-gpu-off")),
        ({"fabric": {"state": 3, "health": 0x400}}, ("misconfigured", "multi-gpu-off")),
        ({"persistence": False}, ("misconfigured", "report")),
        ({"ecc": "disabled"}, ("misconfigured", "report")),
        ({"clocks_event_reasons": 0x40}, ("degraded", "ticket")),
        ({"clocks_event_reasons": 0x40, "polls": 2}, ("suspect", "watch")),
        ({"clocks_event_reasons": 0x40, "polls": 3}, ("degraded", "ticket")),
        ({"tlimit_margin": -2, "slowdown_tlimit": -2}, ("degraded", "ticket")),
        ({"tlimit_margin": -3, "slowdown_tlimit": -2, "polls": 2}, ("suspect", "watch")),
        ({"nvml_call_s": 45}, ("unknown", "report")),
        ({"nvml_call_s": 45, "polls": 3}, ("fatal-node", "cordon")),
        ({"pcie": {"cur_width": 8, "max_width": 16}}, ("degraded", "ticket")),
        ({"pcie": {"cur_gen": 1, "max_gen": 5}, "load": True}, ("degraded", "ticket")),
    ],
)
def test_a_fault_of_a_card_is_judged(card: dict[str, Any], decision: tuple[str, str]) -> None:
    (finding,) = judged(cards={3: card})
    assert ((finding.severity, finding.action), finding.entity) == (decision, "gpu:GPU-3")


@pytest.mark.parametrize(
    "card",
    [
        {"recovery_action": 0, "last_xid": 79},
        {"recovery_action": "NOT_SUPPORTED"},
        {"every_call": 3},
        {"every_call": 13},
        {"remapped_rows": "NOT_SUPPORTED", "mig": True, "nvlinks_active": 0},
        {"clocks_event_reasons": 0x4, "power_of_limit": 0.99},
        {"clocks_event_reasons": 0x1},
        {"tlimit_margin": 0, "slowdown_tlimit": -2, "polls": 5},
        {"tlimit_margin": -1, "slowdown_tlimit": -2, "polls": 5},
        {"ecc_sbe_aggregate": 50000, "ecc_sbe_volatile": 900},
        {"ecc_sbe_per_s": 0.01},
        {"fabric": {"state": 0}},
        {"fabric": {"state": 3, "health": 0xAA}},
        {"pcie": {"cur_gen": 1, "max_gen": 5, "cur_width": 16, "max_width": 16}},
        {"nvml_call_s": 9},
    ],
)
def test_what_is_by_design_is_no_fault(card: dict[str, Any]) -> None:
    assert judged(cards={3: card}) == []


def test_the_recovery_action_has_a_higher_authority_than_counters() -> None:
    card = {"recovery_action": 4, "remapped_rows": {"pending": True}, "ecc_dbe_volatile": 1}
    assert decided(judged(cards={3: card})) == [("degraded", "drain-and-reset")]
    failed = {"recovery_action": 1, "remapped_rows": {"failure": True}}
    assert [(f.action, f.also) for f in judged(cards={3: failed})] == [("reset", "replace")]


def test_a_card_that_is_not_listed_is_lost_after_two_readings() -> None:
    assert decided(judged(inventory=UUIDS, listed=UUIDS[:7])) == [("fatal-node", "reboot")]
    assert decided(judged(inventory=UUIDS, listed=UUIDS[:7], polls=1)) == [("suspect", "watch")]
    assert decided(judged(inventory=UUIDS, count=7)) == [("fatal-node", "reboot")]
    assert decided(judged(inventory=UUIDS, listed=[*UUIDS[:7], "GPU-new"])) == [("info", "validate")]
    assert lost_cards(Snapshot(inventory=UUIDS, listed=UUIDS[:7])) == ["GPU-7"]


def test_a_node_that_joins_with_fewer_cards_is_closed() -> None:
    assert decided(judged(count=7)) == [("degraded", "cordon")]


def test_maintenance_and_our_own_resets_give_no_finding() -> None:
    assert judged(inventory=UUIDS, listed=UUIDS[:7], maintenance=True) == []


@pytest.mark.parametrize(
    ("code", "inventory", "decision"),
    [
        (12, [], []),
        (9, [], []),
        (12, UUIDS, [("fatal-node", "cordon")]),
        (9, UUIDS, [("fatal-node", "cordon")]),
        (18, UUIDS, [("fatal-node", "reboot")]),
        (4, UUIDS, [("misconfigured", "report")]),
        (999, UUIDS, [("unknown", "report")]),
    ],
)
def test_a_library_that_does_not_start_is_judged_by_its_return_code(
    code: int, inventory: list[str], decision: list[Any]
) -> None:
    assert decided(judged(init=code, inventory=inventory)) == decision


def test_a_fabric_manager_that_is_down_counts_ten_minutes_after_the_boot_and_only_with_nvswitches() -> None:  # C7: 10, 17
    units = {"nvidia-fabricmanager.service": "failed"}
    assert decided(judged(units=units)) == [("degraded", "restart-fm")]
    assert decided(judged(units=units, uptime_s=599)) == [("info", "watch")]
    assert judged("L20", units=units) == []


def test_the_power_brake_points_at_the_chassis() -> None:
    assert [f.scope for f in judged(cards={3: {"clocks_event_reasons": 0x88}})] == [Scope.NODE]


def test_a_module_that_is_missing_is_loaded() -> None:
    assert decided(judged(modules={"nvidia_peermem": False})) == [("misconfigured", "load-module")]


def test_dcgm_decides_nothing_against_nvml() -> None:
    assert decided(judged(cards={1: {"recovery_action": 1}}, dcgm="Healthy")) == [("fatal-gpu", "reset")]
    assert decided(judged(dcgm="Failure")) == [("suspect", "run-diagnostics")]


def test_the_health_mask_has_fields_of_two_bits() -> None:
    assert fabric_flags(0b01_10_00_01) == {
        "degraded_bw": True,
        "route_recovery": False,
        "route_unhealthy": False,
        "access_timeout": True,
        "incorrect_configuration": 0,
    }
    assert fabric_flags(0x500)["incorrect_configuration"] == 5


#: What node-agent's reader returns for an H100 card that is well.
RAW: dict[str, Any] = {
    "index": 3, "address": "00000000:4E:00.0", "recovery_action": 0, "remapped": [0, 0, 0, 0], "histogram": [640, 0, 0, 0, 0], "sram": [0, 0, 0],
    "ecc_dbe_volatile": 0, "reasons": 4, "persistence": 1, "tlimit_margin": 48, "slowdown_tlimit": -2, "links": [[n, "switch"] for n in range(18)],
    "mig": [0, 0], "ecc": [1, 1], "fabric": {"state": 3, "status": 0, "health": 0}, "pcie_width": 16, "pcie_width_max": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({}, []),
        ({"recovery_action": 3}, ["recovery-action"]),
        ({"remapped": [0, 1, 1, 0]}, ["row-pending"]),
        ({"histogram": [639, 0, 0, 0, 1]}, ["histogram"]),
        ({"sram": [5, 0, 1]}, ["sram"]),
        ({"ecc_dbe_volatile": 1}, ["dbe"]),
        ({"repair": [0, 1]}, ["repair-pending"]),
        ({"unrepairable_memory": 1}, ["unrepairable"]),
        ({"inforom_validate": 14}, ["inforom"]),
        ({"persistence": 0}, ["persistence"]),
        ({"ecc": [0, 0]}, ["ecc"]),
        ({"reasons": 0x80}, ["clocks"]),
        ({"pcie_width": 8}, ["pcie"]),
        ({"links": [[n, "switch" if n else ""] for n in range(18)]}, ["nvlink"]),
        ({"mig": [1, 1], "links": [[n, ""] for n in range(18)], "fabric": {"error": 3}}, []),
        ({"fabric": {"state": 2, "status": 0, "health": 0}}, ["manager"]),
        ({"fabric": {"state": 3, "status": 0, "health": 1}}, ["fabric"]),
        ({"tlimit_margin": -3}, ["margin"]),
        ({"lost": True}, ["return-15"]),
    ],
)
def test_the_state_of_a_card_as_an_agent_publishes_it_is_judged(raw: dict[str, Any], found: list[str]) -> None:
    """Reader and judge agree on the names of all values."""
    state = {"uuid": UUIDS[3], **card_state({**RAW, **raw})}
    assert [finding.code for finding in judge_snapshot(Snapshot(cards=[state]), RULES.profile("H100"))] == found
