"""Which ports of RDMA adapters carry traffic of jobs, and their state, from files of /sys. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hbox_common.model.devices.adapters import NEAR, PathKind, path_kind
from hbox_common.model.nodenuma import PciDevice, PciKind

from .records import Record, pci_of

HCAS = "/sys/class/infiniband"

#: Counters of faults: the others change all the time.
COUNTERS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "port_xmit_discards",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
)
HW_COUNTERS = ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart")
STATES = ("state", "phys_state", "rate", "link_layer")

_PORT = re.compile(rf"{HCAS}/([^/]{{1,64}})/ports/(\d{{1,3}})/(?:(?:hw_)?counters/)?([a-z_]{{1,64}})")
_NUMBER = re.compile(r"\d{1,20}")
_RATE = re.compile(r"(\d{1,6}(?:\.\d+)?) Gb/sec(?: \((\d{1,2})X)?")


def compute_ports(devices: Iterable[PciDevice]) -> dict[str, str]:
    """PCI address by name of the adapters that belong to cards: below a PCIe switch with a card, or, on a machine without such an adapter (most guests), on the
    NUMA node of a card. Storage and management adapters are below other switches; virtual functions are not in `devices`. Without a card no adapter counts."""
    cards = [one for one in devices if one.kind is PciKind.CARD]
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for one in devices:
        if one.kind is not PciKind.HCA or not one.name:
            continue
        kinds = {path_kind(card.path, one.path, one_numa=card.numa, other_numa=one.numa) for card in cards}
        if kinds & NEAR:
            found[one.name] = _address(one)
        elif kinds & {PathKind.PHB, PathKind.NODE}:
            others[one.name] = _address(one)
    return found or others


def _address(one: PciDevice) -> str:
    return pci_of(one.path.rpartition("/")[2]) or ""


def port_states(files: Mapping[str, str], ports: Mapping[str, str]) -> dict[str, Record]:
    """State by adapter. files: by path; ports: from `compute_ports`. Of an adapter with several ports, the names of further ports are `<adapter>:<port>`.

    `state`, `phys_state`, `rate` and `link_layer` as /sys writes them, `gbps` and `width` as numbers, and the counters that exist."""
    found: dict[str, Record] = {}
    for path, text in sorted(files.items()):
        match = _PORT.fullmatch(path)
        if match is None or match[1] not in ports:
            continue
        name = match[1] if match[2] == "1" else f"{match[1]}:{match[2]}"
        state = found.setdefault(name, {"pci": ports[match[1]]})
        word, what = text.strip()[:64], match[3]
        if what in STATES:
            state[what] = word
            if what == "rate" and (rate := _RATE.match(word)):
                state["gbps"] = float(rate[1])
                if rate[2]:
                    state["width"] = int(rate[2])
        elif (what in COUNTERS or what in HW_COUNTERS) and _NUMBER.fullmatch(word):
            state[what] = int(word)
    return found


def growth(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, int]:
    """By how much the error counters of a port grew between two readings. A counter that fell was reset, and counts from the next reading on."""
    names = (name for name in (*COUNTERS, *HW_COUNTERS) if name in before and name in now)
    return {name: more for name in names if (more := now[name] - before[name]) > 0}
