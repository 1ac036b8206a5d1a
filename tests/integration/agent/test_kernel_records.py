"""The kernel's log by its device and by syslog(2): of this machine, where the test may read it, and from bytes."""

from pathlib import Path

import pytest

from hbox_agent.adapters.kernellog import KMSG, MADE, OVERWRITTEN, KernelRecords, SystemCallRecords
from hbox_common.errors import Unavailable
from hbox_common.health.lines import KernelLog


def test_records_of_this_machines_kernel_are_read_once() -> None:
    records = KernelRecords(KMSG)
    try:
        found = list(records.new())
    except Unavailable as e:
        pytest.skip(f"the kernel's log is not readable here: {e}")
    if not found:
        pytest.skip("the kernel's log is empty")
    log = KernelLog()
    for record in found:
        log.raw(record)  # no record of a real kernel ends the reader
    seqs = [int(record.split(",")[1]) for record in found if record[:1].isdigit()]
    assert seqs == sorted(set(seqs))
    assert [record for record in records.new() if record in found] == []
    records.close()


def test_lines_of_the_system_call_are_records_with_numbers_made_of_their_times() -> None:
    records = SystemCallRecords(Unavailable("no device"))
    first = (
        b"<6>[   12.000001] Linux\n<3>[   12.500000] NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, text\n"
        b"<3>[   12.500000][ T1946] NVRM: Xid (PCI:0000:19:00): 48, pid=1, name=x, text\n<14>[   12.600000] NVRM: Xid (PCI:0000:20:00): 79\n"
    )
    found = list(records.records(first))
    assert [record.split(",")[0] for record in found] == ["6", "3", "3", "14"]
    assert found[1].split(",")[1:3] == [str(MADE + 12_500_000_000), "12500000"]
    assert found[2].split(",")[1] == str(MADE + 12_500_000_001)
    assert [one["code"] for record in found for one in KernelLog().raw(record)] == [79, 48], "a program wrote the last one"
    assert list(records.records(first + b"<6>[   13.000000] more\n")) == [f"6,{MADE + 13_000_000_000},13000000,-;more"]
    assert next(iter(records.records(b"<6>[   99.000000] the ring was overwritten\n"))) == OVERWRITTEN


def test_a_file_of_records_is_no_device_and_may_be_missing_on_an_emulated_node(tmp_path: Path) -> None:
    assert list(KernelRecords(tmp_path / "kmsg", emulated=True).new()) == []
    with pytest.raises(Unavailable, match="kernelLog"):
        list(KernelRecords(tmp_path / "kmsg").new())
