"""Kernel lines of one node become one judgement: each code, the order of authority, bursts and repetitions."""

import re

import pytest

from hbox_common.health.lines import read_text
from hbox_health.core.judge.assess import Context
from hbox_health.core.judge.burst import Judgement, judge
from hbox_health.core.judge.finding import Action, Blame, Finding, Scope, Severity
from hbox_health.data import shipped_rules

RULES = shipped_rules()
XID = "NVRM: Xid (PCI:0000:18:00): "
DBE = "48, pid=1, name=a, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
REMAP = "63, pid=1, Row Remapper: New row (0x000000000000abcd) marked for remapping, reset gpu to activate."
CONTAINED = "94, pid=1, name=a, Contained: SM (0x1). RST: No, D-RST: No"
UNCONTAINED = "95, pid=1, name=a, Uncontained: FBHUB. RST: Yes, D-RST: No"


def asked(value: int, before: int = 0) -> str:
    return f"154, GPU recovery action changed from {before:#x} (x) to {value:#x} (y)"


def judged(*texts: str, box: str = "H100", driver: int | None = None) -> Judgement:
    lines = "\n".join(XID + text if re.match(r"\d+, ", text) else text for text in texts)
    return judge(read_text(lines), RULES, Context(RULES.profile(box), driver))


def worst(*texts: str, box: str = "H100", driver: int | None = None) -> Finding:
    finding = judged(*texts, box=box, driver=driver).worst
    assert finding is not None
    return finding


#: What is decided for each code that is more than a note, without any other line.
DECISIONS = {
    13: ("info", "user", "tell-owner"),
    31: ("info", "user", "tell-owner"),
    43: ("info", "user", "tell-owner"),
    45: ("info", "user", "tell-owner"),
    46: ("fatal-gpu", "unknown", "reset"),
    48: ("fatal-gpu", "hardware", "reset"),
    51: ("suspect", "unknown", "report"),
    54: ("degraded", "hardware", "cordon"),
    61: ("suspect", "hardware", "watch"),
    62: ("fatal-gpu", "hardware", "reset"),
    63: ("degraded", "hardware", "reset-when-idle"),
    64: ("fatal-gpu", "hardware", "replace"),
    68: ("info", "user", "tell-owner"),
    69: ("info", "user", "tell-owner"),
    78: ("misconfigured", "software", "report"),
    79: ("fatal-node", "hardware", "reboot"),
    92: ("info", "hardware", "watch"),
    94: ("degraded", "hardware", "tell-owner"),
    95: ("fatal-gpu", "hardware", "reset"),
    109: ("fatal-gpu", "unknown", "reset"),
    110: ("fatal-gpu", "unknown", "reset"),
    119: ("fatal-gpu", "hardware", "reset"),
    120: ("fatal-gpu", "hardware", "reset"),
    121: ("info", "hardware", "watch"),
    136: ("fatal-gpu", "hardware", "reset"),
    137: ("info", "user", "tell-owner"),
    140: ("fatal-gpu", "hardware", "reset"),
    143: ("fatal-gpu", "hardware", "reset"),
    151: ("fatal-node", "unknown", "reboot"),
    155: ("fatal-gpu", "unknown", "reset"),
    156: ("fatal-gpu", "hardware", "reset"),
    157: ("degraded", "hardware", "report"),
    158: ("fatal-gpu", "hardware", "reset"),
    162: ("none", "none", "close-reason"),
    163: ("degraded", "hardware", "report"),
    167: ("suspect", "hardware", "read-recovery-action"),
    171: ("suspect", "hardware", "read-recovery-action"),
    172: ("suspect", "hardware", "read-recovery-action"),
    185: ("unknown", "unknown", "report"),
    99999: ("unknown", "unknown", "report"),
}


@pytest.mark.parametrize("code", DECISIONS)
def test_each_code_alone_is_decided_by_the_table(code: int) -> None:
    finding = worst(f"{code}, pid=1, name=a, text")
    assert (finding.severity, finding.blame, finding.action) == DECISIONS[code]


def test_no_code_that_no_table_has_restarts_anything() -> None:
    for code in range(173, 400):
        finding = worst(f"{code}, text")
        assert (finding.action, finding.also) == (Action.REPORT, Action.READ_RECOVERY_ACTION)


@pytest.mark.parametrize(
    ("value", "severity", "action"),
    [
        (1, "fatal-gpu", "reset"),
        (2, "fatal-node", "reboot"),
        (3, "degraded", "drain-p2p"),
        (4, "degraded", "drain-and-reset"),
        (5, "degraded", "report"),
        (6, "fatal-gpu", "reset"),
        (7, "fatal-node", "reboot"),
        (42, "fatal-gpu", "isolate-gpu"),
    ],
)
def test_the_recovery_action_decides(value: int, severity: str, action: str) -> None:
    finding = worst(asked(value))
    assert (finding.severity, finding.action, finding.authority) == (severity, action, "nvidia-recovery-action")


def test_the_recovery_action_has_a_higher_authority_than_the_code() -> None:
    assert worst("79, pid=1, name=a, GPU has fallen off the bus.", asked(1)).action is Action.RESET
    assert worst("31, pid=1, name=a, Ch 00000001", asked(2)).action is Action.REBOOT
    assert worst(asked(1), asked(4, 1)).action is Action.DRAIN_AND_RESET
    assert judged("62, pid=1, name=a, x", asked(1)).primary == {"0000:18:00": 62}


def test_a_recovery_action_taken_back_leaves_other_reasons_open() -> None:
    judgement = judged(REMAP, asked(0, 1))
    assert judgement.open_reasons == [63]
    assert judgement.worst is not None
    assert (judgement.worst.action, judgement.worst.also) == (Action.RESET_WHEN_IDLE, Action.CLOSE_REASON)
    closed = worst(DBE, asked(1), asked(0, 1))
    assert (closed.severity, closed.action) == (Severity.NONE, Action.CLOSE_REASON)


def test_a_double_bit_error_with_a_remapped_row_is_drained_first() -> None:
    assert worst(DBE).action is Action.RESET
    assert worst(DBE, REMAP).action is Action.DRAIN_AND_RESET
    assert worst(DBE, CONTAINED).action is Action.DRAIN_AND_RESET
    assert worst(DBE, "64, pid=1, Row Remapper: failure").also is Action.REPLACE
    assert worst(DBE, REMAP, UNCONTAINED).action is Action.RESET


def test_a_contained_error_is_contained_only_on_chips_that_can() -> None:
    contained, uncontained = worst(CONTAINED, box="H100"), worst(CONTAINED, box="L20")
    assert (contained.action, contained.severity) == (Action.NOTIFY_OWNER, Severity.DEGRADED)
    assert (uncontained.action, uncontained.severity) == (Action.RESET, Severity.FATAL_GPU)


def test_171_and_172_qualify_a_48() -> None:
    judgement = judged(DBE, "172, pid=1, name=a, x")
    assert (judgement.memory, judgement.primary) == ("sram", {"0000:18:00": 48})
    assert judged(DBE, "171, pid=1, name=a, x").memory == "framebuffer"
    assert judged("171, pid=1, name=a, x").memory is None


def test_162_ends_what_163_began() -> None:
    assert worst("163, x", "162, x").severity is Severity.NONE
    assert worst("162, x", "163, x").severity is Severity.DEGRADED


def test_159_asks_for_a_reset_only_with_an_error_of_unified_memory() -> None:
    assert worst("159, x").action is Action.REPORT
    judgement = judged("159, x", "nvidia-uvm: Fatal error on a channel")
    assert (judgement.worst and judgement.worst.action, judgement.incidents) == (Action.RESET, 1)


def test_the_worst_code_of_a_burst_decides_and_no_process_is_blamed() -> None:
    lost = "79, pid=7, name=python3, GPU has fallen off the bus."
    judgement = judged(lost, "45, pid=8, name=b, Ch 00000001", "43, pid=9, name=c, Ch 00000002", "119, pid=9, name=c, Timeout")
    assert (judgement.incidents, judgement.primary) == (1, {"0000:18:00": 79})
    assert [f.blame for f in judgement.findings] == [Blame.HARDWARE]


def test_45_follows_the_cause_that_it_names() -> None:
    finding = worst("45, pid=7, name=a, Ch 00000001 caused by previous Xid 149")
    assert (finding.code, finding.blame, finding.action) == ("149", Blame.HARDWARE, Action.READ_RECOVERY_ACTION)
    assert worst("45, pid=7, name=a, Ch 00000001 caused by previous Xid 79").action is Action.REBOOT


def test_13_at_the_same_place_in_another_run_asks_for_diagnostics() -> None:
    line = "[{at}.0] " + XID + "13, pid={pid}, name=a, Graphics SM Warp Exception on (GPC {gpc}, TPC 2, SM {sm}): x"
    again = [line.format(at=100, pid=1, gpc=1, sm=0), line.format(at=9000, pid=2, gpc=1, sm=1)]
    elsewhere = [line.format(at=100, pid=1, gpc=1, sm=0), line.format(at=9000, pid=2, gpc=3, sm=0)]
    burst = [
        line.format(at=100, pid=1, gpc=1, sm=0),
        line.format(at=101, pid=1, gpc=1, sm=1).replace("Graphics", "Ch 00000001 Graphics"),
    ]
    assert [worst(*lines).action for lines in (again, elsewhere, burst)] == [
        Action.RUN_DIAGNOSTICS,
        Action.NOTIFY_OWNER,
        Action.NOTIFY_OWNER,
    ]


def test_31_on_one_card_with_several_programs_asks_for_diagnostics_and_not_if_it_moves_with_one() -> None:
    line = "[{at}.0] NVRM: Xid (PCI:0000:{bus}:00): 31, pid={pid}, name={name}, Ch 00000001"
    several = [line.format(at=100, bus="18", pid=1, name="a"), line.format(at=9000, bus="18", pid=2, name="b")]
    moving = [*several, line.format(at=9500, bus="2a", pid=3, name="a"), line.format(at=9600, bus="2a", pid=4, name="b")]
    assert worst(*several).action is Action.RUN_DIAGNOSTICS
    assert worst(*moving).action is Action.NOTIFY_OWNER


def test_lost_cards_are_one_incident_of_the_node() -> None:
    judgement = judged(*(f"NVRM: GPU 0000:{bus}:00.0: GPU has fallen off the bus." for bus in ("18", "2a", "3c")))
    assert (judgement.incidents, len(judgement.findings)) == (1, 3)
    assert judgement.worst is not None
    assert judgement.worst.scope is Scope.NODE


def test_a_program_that_faults_on_many_cards_is_one_incident() -> None:
    judgement = judged(*(f"NVRM: Xid (PCI:0000:{bus}:00): 31, pid=1, name=a, Ch 00000001" for bus in ("18", "2a", "3c")))
    assert (judgement.incidents, judgement.worst and judgement.worst.blame) == (1, Blame.USER)


def test_a_line_without_an_address_is_about_the_sick_card() -> None:
    assertion = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)"
    assert worst(assertion).action is Action.READ_RECOVERY_ACTION
    assert [f.entity for f in judged("62, pid=1, name=a, x", assertion).findings] == ["gpu:0000:18:00"]


def test_the_uuid_names_the_card_once_the_log_has_it() -> None:
    uuid = "GPU-5e1f0000-0000-4000-8000-000000000002"
    finding = worst(f"NVRM: GPU at PCI:0000:18:00: {uuid}", "62, pid=1, name=a, x")
    assert finding.entity == f"gpu:{uuid}"


@pytest.mark.parametrize(
    ("code", "before", "since"),
    [(48, 564, 565), (109, 569, 570), (143, 574, 575), (160, 574, 575)],
)
def test_a_code_waits_for_the_recovery_action_from_its_driver_on(code: int, before: int, since: int) -> None:
    rule = RULES.codes[code]
    assert [rule.waits_for_recovery_action(driver) for driver in (before, since, None)] == [False, True, True]


def test_codes_without_linkage_wait_for_nothing() -> None:
    unlinked = (13, 31, 43, 45, 46, 54, 92, 93, 119, 121, 137, 140, 151, 157)
    linked = (48, 62, 63, 64, 74, 79, 94, 95, 109, 110, 120, 136, *range(144, 151), 155, 156, 143, 158, 159, 160, 161)
    assert not any(RULES.codes[code].waits_for_recovery_action(999) for code in unlinked)
    assert all(RULES.codes[code].waits_for_recovery_action(999) for code in linked)


@pytest.mark.parametrize(
    ("text", "severity", "action"),
    [
        ("24007, Fatal, Link 28 sourcetrack timeout error (First)", "fatal-gpu", "multi-gpu-off"),
        ("23001, Fatal, Link 28 x", "fatal-node", "reboot"),
        ("23001, Non-fatal, Link 28 x", "info", "report"),
        ("20009, Non-fatal, Link 04 RX Short Error Rate", "info", "report"),
        ("22013, Non-fatal, Link 44 Minion Link DLREQ interrupt", "info", "none"),
        ("99999, Fatal, x", "fatal-gpu", "multi-gpu-off"),
    ],
)
def test_an_sxid_is_as_fatal_as_its_line_states(text: str, severity: str, action: str) -> None:
    finding = worst(f"nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): {text}")
    assert (finding.severity, finding.action) == (severity, action)


@pytest.mark.parametrize(
    ("text", "severity", "blame", "action"),
    [
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "fatal-node", "hardware", "cordon"),
        ("Memory cgroup out of memory: Killed process 7 (a) total-vm", "info", "user", "tell-owner"),
        ("INFO: task nv_open_q:512 blocked for more than 122 seconds.", "suspect", "unknown", "read-recovery-action"),
        ("INFO: task jbd2/sda1-8:512 blocked for more than 122 seconds.", "suspect", "unknown", "report"),
        ("python3[9]: segfault at 0 ip 0 sp 0 error 4", "info", "user", "tell-owner"),
        ("mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised", "degraded", "hardware", "isolate-rail"),
        ("mlx5_core 0000:41:00.1: Port module event: module 1, Cable unplugged", "info", "operator", "report"),
        ("{1}[Hardware Error]: event severity: fatal", "fatal-node", "hardware", "cordon"),
        ("{1}[Hardware Error]: event severity: corrected", "info", "hardware", "watch"),
        ("BERT: Error records from previous boot:\n[Hardware Error]: event severity: fatal", "info", "hardware", "report"),
        ("nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer", "info", "hardware", "watch"),
        (
            "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).",
            "fatal-gpu",
            "hardware",
            "reset",
        ),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x1a:1227)", "fatal-gpu", "hardware", "reset"),
    ],
)
def test_other_kernel_messages_are_judged(text: str, severity: str, blame: str, action: str) -> None:
    finding = judge(read_text(text), RULES, Context(RULES.profile("H100"))).worst
    assert finding is not None
    assert (finding.severity, finding.blame, finding.action) == (severity, blame, action)


def test_many_corrected_pcie_errors_are_a_sick_link() -> None:
    line = "nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer"
    assert [worst(*[line] * count).action for count in (16, 17)] == [Action.WATCH, Action.TICKET]
