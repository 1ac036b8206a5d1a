"""Kernel lines become records: every prefix, every key, and no event from text that a program wrote."""

import json

import pytest

from hbox_common.health.lines import KernelLog, read_raw, read_text
from hbox_common.health.records import merged

XID = "NVRM: Xid (PCI:0000:3a:00): 79, pid=7, name=python3, GPU has fallen off the bus."

PREFIXES = (
    "",
    "[   12.345678] ",
    "[12.5] ",
    "[   12.345678][ T1946] ",
    "[   12.345678] [  T1946] ",
    "[  12.345678][  C12] ",
    "[Tue Jan 14 02:11:09 2025] ",
    "[Tue Jan  4 02:11:09 2025] ",
    "kernel: ",
    "kernel: [12345.678901] ",
    "May 19 07:08:57 h1 kernel: [680111.646286] ",
    "May  9 07:08:57 h1.example.org kernel: ",
    "2025-05-19T07:08:57.123456+00:00 h1 kernel: [680111.646286] ",
    "2025-05-19T07:08:57+0200 h1 kernel: ",
    "2025-05-19T07:08:57Z h1 kernel: ",
    "Mon 2025-05-19 07:08:57 UTC h1 kernel: ",
    "2025-05-19T07:08:57,123456+00:00 ",
    "[   12.345678] h1 kernel: ",
    "kern  :warn  : [   12.345678] ",
    "kern  :err   : [Tue Jan 14 02:11:09 2025] ",
    "<4>[   12.345678] ",
    "<3>",
    "[  +0.000012] ",  # dmesg -H
    "[Nov28 22:00] ",
    "[   12.345678 <    0.000012>] ",  # dmesg -d
    "[Tue Jan 14 02:11:09 2025 <    0.000012>] ",
    "1764338400.123456 h1 kernel: ",  # journalctl -o short-unix
    "<4>1 2025-05-19T07:08:57.123456+08:00 h1 kernel - - - ",  # RFC 5424
    "\x1b[32m[   12.345678] \x1b[0m\x1b[33m",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_event_is_found_behind_every_prefix(prefix: str) -> None:
    (record,) = read_text(prefix + XID + "\n")
    assert (record["code"], record["pci"], record["pid"], record["name"]) == (79, "0000:3a:00", 7, "python3")


@pytest.mark.parametrize(
    "line",
    [
        f"user  :notice: [   12.345678] {XID}",
        f"daemon:info  : [   12.345678] {XID}",
        f"<12>[   12.345678] {XID}",
        f"May 19 07:08:57 h1 myapp[123]: {XID}",
        f"May 19 07:08:57 h1 myapp: {XID}",
        f"2025-05-19T07:08:57+00:00 h1 systemd[1]: {XID}",
        f"1764338400.123456 h1 myapp[123]: {XID}",
        f"<4>1 2025-05-19T07:08:57+00:00 h1 myapp 123 - - {XID}",
        f"[   12.345678] systemd[1]: {XID}",
        f'[   12.345678] audit: type=1326 pid=4242 comm="{XID}" exe="/bin/x"',
        f"kernel: user said: {XID}",
        "NVRM: Xid 79",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: Xid (PCI:zz): 79, pid=1",
        "NVRM: GPU4 RPC history (CPU -> GSP):",
        "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2901)",
    ],
)
def test_text_of_a_program_and_text_of_no_event_give_no_record(line: str) -> None:
    assert read_text(line) == []


def test_only_facility_0_of_dev_kmsg_counts() -> None:
    assert [r["seq"] for r in read_raw(f"4,1,1,-;{XID}\n12,2,2,-;{XID}\n3,3,3,-,caller=T9;{XID}\n30,4,4,-;{XID}")] == [1, 3]


def test_a_line_break_in_a_raw_record_starts_no_second_event() -> None:
    quoted = f"4,1,1,-;NVRM: Xid (PCI:0000:18:00): 13, pid=1, name=a\\x0a{XID}"
    assert [(r["code"], r["pci"]) for r in read_raw(quoted)] == [(13, "0000:18:00")]
    assert read_raw(f"5,2,2,-;audit: comm=\\x0a{XID}") == []


def test_a_raw_record_prints_its_continuation_lines_for_nothing() -> None:
    records = read_raw(f"4,1,1000000,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3a:00.0")
    assert [(r["code"], r["seq"], r["at"]) for r in records] == [(79, 1, 1.0)]


def test_overwritten_records_are_reported_with_their_numbers() -> None:
    records = read_raw("6,100,1,-;a\n!EPIPE\n6,5000,2,-;NVRM: Xid (PCI:0000:18:00): 45, pid=9")
    assert [(r["kind"], r.get("from"), r.get("to")) for r in records] == [("records-lost", 101, 4999), ("xid", None, None)]
    assert read_raw("!EPIPE\n6,5000,2,-;a") == [{"kind": "records-lost", "to": 4999, "line": 2}]


def test_a_journal_entry_counts_by_its_transport_and_not_by_its_identifier() -> None:
    kernel = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": XID, "__MONOTONIC_TIMESTAMP": "2000000"}
    assert [(r["code"], r["at"]) for r in read_text(json.dumps(kernel))] == [(79, 2.0)]
    assert read_text(json.dumps(kernel | {"_TRANSPORT": "syslog"})) == []
    assert read_text(json.dumps(kernel | {"SYSLOG_FACILITY": "1"})) == []


def test_a_lost_card_is_one_message_of_three_lines() -> None:
    lines = (
        "NVRM: The NVIDIA GPU 0000:18:00.0",
        "NVRM: (PCI ID: 10de:2901) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(r["kind"], r["pci"]) for r in read_text("\n".join(f"[12.5] {line}" for line in lines))] == [
        ("gpu-lost", "0000:18:00.0")
    ]
    assert [(r["kind"], r["pci"]) for r in read_raw("3,1,1,-;" + "\\x0a".join(lines))] == [("gpu-lost", "0000:18:00.0")]
    assert read_text("\n".join(lines[:2]) + "\nNVRM: is not supported by this driver") == []
    (record,) = read_text("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.")
    assert (record["kind"], record["pci"]) == ("gpu-lost", "0000:18:00.0")


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ("31, pid='<unknown>', name=<unknown>, Ch 00000008, intr 10000000. MMU Fault", {"pid": None, "channel": "00000008"}),
        ("31, pid=5, name=a b, Ch 0000000A", {"pid": 5, "name": "a b", "channel": "0000000a"}),
        ("63, pid=1, Row Remapper: New row (0x00000000000ABC) marked for remapping", {"row": "0x00000000000abc"}),
        (
            "48, pid=1, name=x, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer",
            {"memory": "framebuffer"},
        ),
        ("48, An uncorrectable double bit error (DBE) has been detected on GPU in the L2 cache", {"memory": "sram"}),
        (
            "94, pid=1, name=x, Contained: LTC TAG (0x2,0x0). RST: No, D-RST: Yes",
            {"unit": "LTC TAG", "rst": False, "d_rst": True},
        ),
        ("95, pid=1, name=x, Uncontained: FBHUB. RST: Yes, D-RST: No", {"unit": "FBHUB", "rst": True, "d_rst": False}),
        ("74, pid=1, name=x, NVLink: fatal error detected on link 3(0x0, 0x2, 0x0, 0x0, 0x0, 0x0, 0x0)", {"link": 3}),
        ("154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", {"from": 0, "to": 2}),
        ("154, GPU recovery action changed from None to Drain P2P", {"from": 0, "to": 3}),
        ("154, GPU recovery action changed from 0x0 (None) to 0x63 (Something New)", {"from": 0, "to": 99}),
        (
            "150, MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0xffffffff)",
            {"unit": "MSE Degraded", "fatal": True, "link": None},
        ),
        (
            "145, RLW_CTRL Non-fatal XC0 i0 Link 07 (0x1 0x2 0x3 0x4)",
            {"fatal": False, "link": 7, "intr": "0x1", "status": "0x2"},
        ),
    ],
)
def test_an_xid_states_its_details(text: str, details: dict[str, object]) -> None:
    (record,) = read_text(f"NVRM: Xid (PCI:0000:3a:00): {text}")
    assert {key: record[key] for key in details} == details


def test_an_xid_of_a_mig_instance_names_it() -> None:
    (record,) = read_text("NVRM: Xid (PCI:00000000:3A:00 GPU-I:05 GPU-CI:00): 31, pid=1, name=x, Ch 00000008")
    assert (record["pci"], record["gpu_instance"], record["compute_instance"]) == ("0000:3a:00", 5, 0)


def test_the_name_of_a_process_is_no_detail() -> None:
    (record,) = read_text("NVRM: Xid (PCI:0000:3a:00): 94, pid=1, name=x RST: Yes, Contained: SM (0x1). RST: No, D-RST: No")
    assert record["rst"] is False
    (record,) = read_text("NVRM: Xid (PCI:0000:3a:00): 31, pid=1, name=caused by 79, Ch 00000001")
    assert "caused_by" not in record


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", {"kind": "filesystem-read-only", "device": "nvme0n1p2"}),
        (
            "XFS (sda1): Corruption of in-memory data (0x8) detected at x. Shutting down filesystem.",
            {"kind": "filesystem-read-only", "device": "sda1"},
        ),
        ("BTRFS info (device sda1 state E): forced readonly", {"kind": "filesystem-read-only", "device": "sda1"}),
        (
            "Out of memory: Killed process 17 (python3) total-vm:1kB",
            {"kind": "oom", "pid": 17, "name": "python3", "cgroup": False},
        ),
        (
            "Memory cgroup out of memory: Killed process 17 (a) b) total-vm",
            {"kind": "oom", "pid": 17, "name": "a", "cgroup": True},
        ),
        ("INFO: task nv_open_q:512 blocked for more than 122 seconds.", {"kind": "hung-task", "task": "nv_open_q", "pid": 512}),
        (
            "python3[9]: segfault at 0 ip 0 sp 0 error 4 in libcuda.so.1[7f00+1]",
            {"kind": "segfault", "pid": 9, "name": "python3", "module": "libcuda.so.1"},
        ),
        (
            "mlx5_core 0000:41:00.1: Port module event: module 1, Cable unplugged",
            {"kind": "mlx5", "what": "module-unplugged", "module": 1},
        ),
        ("mlx5_core 0000:41:00.0 ens1: TX timeout detected", {"kind": "mlx5", "what": "tx-timeout", "pci": "0000:41:00.0"}),
        (
            "nvidia 0000:18:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
            {"kind": "aer", "severity": "fatal", "driver": "nvidia", "pci": "0000:18:00.0"},
        ),
        (
            "nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            {"kind": "aer", "severity": "nonfatal"},
        ),
        ("{1}[Hardware Error]: event severity: fatal", {"kind": "cper", "severity": "fatal"}),
        (
            "pcieport 0000:15:01.0: AER: Correctable error message received from 0000:18:00.0",
            {"kind": "aer", "severity": "corrected", "pci": "0000:18:00.0", "count": 1},
        ),
        (
            "pcieport 0000:15:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:18:00.0",
            {"kind": "aer", "severity": "nonfatal"},
        ),
        (
            "nvidia 0000:18:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer",
            {"kind": "aer", "severity": "corrected"},
        ),
    ],
)
def test_other_kernel_messages_become_records(text: str, record: dict[str, object]) -> None:
    (found,) = read_text(f"[12.5] {text}")
    assert {**found, "at": None, "line": 0} == {**read_text(text)[0], "at": None, "line": 0}
    assert {key: found[key] for key in record} == record


def test_an_error_record_printed_after_a_boot_is_of_the_boot_before_and_takes_its_device() -> None:
    text = (
        "BERT: Error records from previous boot:\n"
        "[Hardware Error]: event severity: fatal\n"
        "[Hardware Error]:  Error 0, type: fatal\n"
        "[Hardware Error]:   section_type: PCIe error\n"
        "[Hardware Error]:   device_id: 0000:18:00.0\n"
    )
    (record,) = read_text(text)
    assert (record["severity"], record["previous_boot"], record["pci"]) == ("fatal", True, "0000:18:00.0")


def test_repeated_lines_of_one_fault_are_one_record_until_a_minute_passes() -> None:
    line = "[{at}.0] NVRM: Xid (PCI:0000:3a:00): 13, pid=5, name=x, Graphics SM Warp Exception on (GPC {gpc}, TPC 1, SM 0): Out Of Range"
    text = "\n".join(line.format(at=at, gpc=gpc) for at, gpc in ((100, 1), (101, 2), (102, 1), (900, 1)))
    assert [(r.get("count", 1), r["places"]) for r in merged(read_text(text))] == [
        (3, [[1, 1, 0], [2, 1, 0]]),
        (1, [[1, 1, 0]]),
    ]


def test_lines_about_a_switch_are_one_event_each_with_its_details() -> None:
    head = "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 20034,"
    text = f"{head} Fatal, Link 37 LTSSM Fault Up\n{head} Severity 1 Engine instance 37 Sub-engine instance 00\n{head} Data {{0x1}}\n{head} Fatal, Link 38 x"
    assert [(r["kind"], r["link"], r.get("severity_number")) for r in read_text(text)] == [("sxid", 37, 1), ("sxid", 38, None)]
    assert [r["kind"] for r in read_text(f"{head} Severity 1 Engine instance 37")] == ["sxid-detail"]


def test_a_record_that_a_later_line_may_extend_waits_for_it() -> None:
    log = KernelLog()
    assert log.line("nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 37 x") == []
    assert [r["kind"] for r in log.line("any other line")] == ["sxid"]
    assert log.flush() == []
