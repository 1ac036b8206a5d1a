"""Hostile logs: no text raises, and text that is no event of the kernel gives no record. `make fuzz` reads a million lines."""

import os
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.health.dcgm import parse_exporter
from hbox_common.health.lines import KernelLog, read_raw, read_text
from hbox_common.health.nccl import parse_nccl
from hbox_common.health.sxid import parse_fabric_manager
from hbox_health.core.judge.assess import Context
from hbox_health.core.judge.burst import judge
from hbox_health.data import shipped_rules

pytestmark = pytest.mark.hypothesis

RULES = shipped_rules()
EVENTS = (
    "NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=python3, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:18:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 1(0x0, 0x0, 0x4, 0x0, 0x0, 0x0, 0x0)",
    "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000)",
    "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: fallen off the bus and is not responding to commands.",
    "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
    "mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised - reached miss count.",
    "nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    "{1}[Hardware Error]: event severity: fatal",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "Memory cgroup out of memory: Killed process 17 (python3) total-vm",
    "INFO: task nv_open_q:512 blocked for more than 122 seconds.",
    "python3[9]: segfault at 0 ip 0 sp 0 error 4 in libcuda.so.1[7f00+1]",
)
PIECES = (
    *" ".join(EVENTS).split(),
    "[12.5]",
    "kernel:",
    "<4>",
    "kern  :warn  :",
    "4,1,1,-;",
    "\\x0a",
    "!EPIPE",
    "\t",
    "(",
    ")",
    ",",
    "0x",
    "é",
    "\0",
)
#: What a program may print in its own name, in each form of log.
BY_PROGRAMS = (
    "user  :notice: ",
    "<12>",
    "May 19 07:08:57 h1 job[7]: ",
    "[12.5] job[7]: ",
    'audit: type=1326 comm="',
    "job: ",
)

EXAMPLES = int(os.environ.get("HBOX_FUZZ_LINES", "20000"))


def noise(source: random.Random) -> str:
    """A line of pieces of events in any order, or an event with some characters changed."""
    if source.random() < 0.5:
        return " ".join(source.choices(PIECES, k=source.randrange(1, 12)))
    line = list(source.choice(EVENTS))
    for _ in range(source.randrange(1, 6)):
        line[source.randrange(len(line))] = chr(source.choice((source.randrange(32, 127), source.randrange(0x2FFF))))
    return "".join(line)


def test_no_line_raises_in_parser_or_judge() -> None:
    source = random.Random(os.environ.get("PYTEST_XDIST_WORKER", "0") if EXAMPLES > 20000 else 7)
    context = Context(RULES.profile("H100"))
    log, raw = KernelLog(), KernelLog()
    for at in range(0, EXAMPLES, 100):
        lines = [noise(source) for _ in range(100)]
        records = [r for line in lines for r in log.line(line)]
        records += [r for n, line in enumerate(lines) for r in raw.raw(f"4,{at + n},{at + n},-;{line}")]
        judge(records, RULES, context)
        parse_fabric_manager(lines[0])
        parse_exporter("\n".join(lines[:5]))
        parse_nccl("\n".join(lines[:5]))


def test_no_program_makes_an_event() -> None:
    source = random.Random(11)
    for _ in range(EXAMPLES // 4):
        event = source.choice(EVENTS)
        assert read_text(source.choice(BY_PROGRAMS) + event) == []
        facility = source.randrange(1, 24)
        assert read_raw(f"{facility * 8 + source.randrange(8)},1,1,-;{event}") == []


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert isinstance(read_text(text), list)
    assert isinstance(read_raw(text), list)
    parse_exporter(text)
    parse_nccl(text)


def test_a_busy_log_costs_less_than_a_fifth_of_a_core() -> None:
    """10,000 lines a second of all kinds of messages with some events: the time of the processor alone counts."""
    source = random.Random(3)
    other = [
        f"[{n}.5] audit: type=1400 apparmor=DENIED pid={n} comm=python3 name=/proc/{n} requested_mask=r" for n in range(97)
    ]
    lines = [source.choice(EVENTS) if n % 500 == 0 else other[n % 97] for n in range(10_000)]
    log = KernelLog()
    spent = []
    for _ in range(3):
        start = time.process_time()
        for line in lines:
            log.line(line)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.2
