"""Faults that users of other monitors reported, by their number in the reference (part C7), where one input shows them."""

from dataclasses import replace

from hbox_common.health.dcgm import parse_exporter
from hbox_common.health.lines import read_text
from hbox_health.core.judge.assess import Context
from hbox_health.core.judge.burst import judge
from hbox_health.core.judge.exporter import judge_exporter
from hbox_health.core.judge.finding import Action, Severity
from hbox_health.core.judge.snapshot import Snapshot, judge_snapshot
from hbox_health.data import shipped_rules

RULES = shipped_rules()
H100 = RULES.profile("H100")
CONTEXT = Context(H100)


def action(line: str, context: Context = CONTEXT) -> Action | None:
    worst = judge(read_text(line), RULES, context).worst
    return worst.action if worst else None


def test_1_a_record_of_the_boot_before_restarts_nothing() -> None:
    assert action("BERT: Error records from previous boot:\n[Hardware Error]: event severity: fatal") is Action.REPORT


def test_4_a_fault_that_a_reset_cures_restarts_no_machine() -> None:
    for code in (48, 62, 95, 109, 119, 120, 136, 140, 143):
        assert action(f"NVRM: Xid (PCI:0000:18:00): {code}, pid=1, name=a, x") is Action.RESET


def test_7_boxes_of_one_cluster_have_rules_of_their_own() -> None:
    line = "NVRM: Xid (PCI:0000:18:00): 94, pid=1, name=a, Contained"
    assert (action(line), action(line, Context(RULES.profile("L20")))) == (Action.NOTIFY_OWNER, Action.RESET)


def test_9_codes_of_row_remaps_are_never_nothing() -> None:
    actions = [action(f"NVRM: Xid (PCI:0000:18:00): {code}, pid=1, x") for code in (63, 64)]
    assert actions == [Action.RESET_WHEN_IDLE, Action.REPLACE]


def test_10_a_fabric_manager_that_is_down_is_seen_in_the_unit_and_in_the_cards() -> None:
    by_unit = judge_snapshot(Snapshot(units={"nvidia-fabricmanager": "failed"}), H100)
    by_card = judge_snapshot(Snapshot(cards=[{"uuid": "GPU-0", "fabric": {"state": "not-started"}}]), H100)
    assert [f.action for f in by_unit + by_card] == [Action.RESTART_FM, Action.RESTART_FM]
    persistence = judge_snapshot(Snapshot(units={"nvidia-persistenced": "failed"}), H100)
    assert [(f.severity, f.action) for f in persistence] == [(Severity.MISCONFIGURED, Action.REPORT)]


def test_14_a_call_that_hangs_is_unknown_and_neither_well_nor_fatal() -> None:
    (finding,) = judge_snapshot(Snapshot(cards=[{"uuid": "GPU-0", "nvml_call_s": 45}]), H100)
    assert (finding.severity, finding.action) == (Severity.UNKNOWN, Action.REPORT)


def test_15_cards_without_an_exporter_are_not_lost() -> None:
    lost, absent = judge_exporter(parse_exporter(""), RULES, CONTEXT, inventory=["GPU-0"], empty_for_s=30)
    assert (lost, absent) == ([], [])
    (late,), absent = judge_exporter(parse_exporter(""), RULES, CONTEXT, inventory=["GPU-0"], nvml_count=1, empty_for_s=600)
    assert (late.severity, late.action, absent) == (Severity.UNKNOWN, Action.REPORT, [])


def test_each_row_of_part_c6_that_one_input_shows_is_decided_as_it_states() -> None:
    rows = {
        "card lost": ("NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=a, GPU has fallen off the bus.", Action.REBOOT),
        "double-bit error": ("NVRM: Xid (PCI:0000:18:00): 48, pid=1, name=a, DBE", Action.RESET),
        "row remap": ("NVRM: Xid (PCI:0000:18:00): 63, pid=1, x", Action.RESET_WHEN_IDLE),
        "program": ("NVRM: Xid (PCI:0000:18:00): 31, pid=1, name=a, Ch 00000001", Action.NOTIFY_OWNER),
        "adapter": ("mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised", Action.ISOLATE_RAIL),
    }
    assert {row: action(line) for row, (line, _) in rows.items()} == {row: expected for row, (_, expected) in rows.items()}
    snapshots = {
        "fabric manager": (Snapshot(units={"nvidia-fabricmanager": "failed"}), Action.RESTART_FM),
        "NVLink": (Snapshot(cards=[{"uuid": "GPU-0", "nvlinks_active": 17}]), Action.MULTI_GPU_OFF),
        "thermal": (Snapshot(cards=[{"uuid": "GPU-0", "clocks_event_reasons": 0x40, "polls": 3}]), Action.TICKET),
        "module": (Snapshot(modules={"nvidia_peermem": False}), Action.LOAD_MODULE),
    }
    for row, (snapshot, expected) in snapshots.items():
        assert (row, [f.action for f in judge_snapshot(snapshot, H100)]) == (row, [expected])


def test_16_the_decision_of_a_code_is_data() -> None:
    codes = {**RULES.codes, 63: replace(RULES.codes[63], action=Action.CORDON)}
    worst = judge(read_text("NVRM: Xid (PCI:0000:18:00): 63, pid=1, x"), replace(RULES, codes=codes), CONTEXT).worst
    assert worst is not None
    assert worst.action is Action.CORDON
