"""Facts that node-agent reads on a node, for health-monitor to judge. Pure.

An event (a kernel record) is one fact. A state (a card, a port, a unit) is a fact whenever it changes, and once after each start of the agent; it is complete,
so it replaces the last fact of the same check, entity and code, and a healthy state takes an unhealthy one back.

| check | entity | code | value |
|---|---|---|---|
| kernel-log | `gpu:<uuid>`, `gpu:<PCI>` while the uuid is unknown; `switch:<PCI>`; `node` | number of an XID or SXID, else the record's kind | the record |
| kernel-log | node | `gap` | `from`, `to`: sequence numbers of lost records; an NVML reading follows |
| nvml | `gpu:<uuid>` | `card` | state of the card, with `pci`, `index` |
| nvml | node | `cards` | `init`: NVML's return code (0), `count`, `listed`: uuids, `inventory`: uuids seen since the boot, `driver` |
| ports | `rail:<HCA>` | `port` | state of the port, with `pci` |
| dcgm | `gpu:<uuid>` | `fields` | the exporter's values by field name |
| units | node | `units` | state by systemd unit and by kernel module |
| links | node | `kubelet`, `clock`, `filesystem` | state of the link |
| agent | node | `started` | `version` |
| agent | node | `hangs` | `reader`, `since`: a reader has not answered in time; `since` 0: it answers again |
| agent | node | `lost` | `count`: facts that the agent dropped, because its memory for unpublished facts was full |
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = Scalar | tuple[Scalar | tuple[Scalar, ...], ...] | dict[str, Scalar]

#: Of a fact's text; of a report's facts.
TEXT_BYTES, MOST_FACTS = 512, 256
#: Of a fact's value, encoded.
FACT_BYTES = 8 * 1024

NODE = "node"


class Check(StrEnum):
    KERNEL_LOG = "kernel-log"
    NVML = "nvml"
    PORTS = "ports"
    DCGM = "dcgm"
    UNITS = "units"
    LINKS = "links"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Fact:
    seq: int  #: per node and boot id, from 1, without gaps; a missing number is a lost report
    at: float  #: when the agent read it, in seconds since the epoch
    check: str  #: one of `Check`; of a newer agent another one
    entity: str
    code: str
    value: dict[str, Value]
    text: str = ""  #: the line, or a description
