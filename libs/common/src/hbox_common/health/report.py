"""Facts that node-agent reads on a node, for health-monitor to judge. Pure.

An event (a kernel record) is one fact. A state (a card, a port, a unit) is a fact whenever it changes, after each start of the agent and every
6 h; it is complete, so it replaces the last fact of the same check, entity and code, and a healthy state takes an unhealthy one back.

| check | entity | code | value |
|---|---|---|---|
| kernel-log | `gpu:<uuid>`, `gpu:<PCI>` while the uuid is unknown; `switch:<PCI>`; `node` | number of an XID or SXID, else the record's kind | the record |
| kernel-log | node | `gap` | `from`, `to`: sequence numbers of lost records; an NVML reading follows |
| nvml | `gpu:<uuid>` | `card` | state of the card, with `pci`, `index` |
| nvml | node | `cards` | `init`: NVML's code, `count`, `listed`, `inventory`: uuids of the boot, `driver`, `problem`, `asking` |
| nvml-events | `gpu:<uuid>` | number of an XID | an event: `kind`, `code`, `pci`, `gi`, `ci` (MIG); only if the kernel log has no line of it |
| nvml-events | `gpu:<uuid>` | `event` | an event that is no XID: `type` (NVML's bit), `data`; NVML is read at once, and its state decides |
| nvml-events | node | `events` | `state`: `waiting`, `released`, `unsupported`; `cards` whose events are received, `refused`: those that support none |
| nvml-events | node | `lost` | `count`: events that the agent dropped; NVML is read at once |
| ports | `rail:<HCA>` | `port` | state of the port, with `pci`; `best_gbps`: highest rate on the node; `growth`: of error counters in `growth_s` |
| dcgm | `gpu:<uuid>` | `card` | what DCGM's exporter shows of the card (`dcgm.card_states`) |
| dcgm | `gpu:<uuid>` | number of an XID | an event: `kind`, `code`, `pci`; only if the kernel log is not read |
| dcgm | node | `exporter` | `rows`: uuids of the cards that the exporter shows, `inventory`, `nvml_count`: how many NVML lists |
| units | node | `units` | state by systemd unit and by kernel module |
| units | node | `acs` | `redirecting`: PCI bridges that turn transfers between cards and adapters to the root complex |
| links | node | `kubelet` | `state`: `answers` or `silent` |
| agent | node | `started` | `agent`: id of its process |
| agent | node | `hangs:<reader>` | `reader`, `since`: the reader has not answered in time; `since` 0: it answers again |
| agent | node | `unread:<reader>` | `reader`, `why`: a right, a device or a file is missing; "": it reads again |
| agent | node | `lost` | `count`: facts that the agent dropped, because its memory for unpublished facts was full |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any, TypeAlias

from hbox_common.model.bounds import INT64_MAX, VALUE_BYTES, sanitized

Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = Scalar | tuple[Scalar | tuple[Scalar, ...], ...] | dict[str, Scalar | dict[str, Scalar]]

#: Of a fact's text.
TEXT_BYTES = 512
#: Of the keys of a fact's value, and of the items of one list in it.
MOST_KEYS, MOST_ITEMS = 48, 64

NODE = "node"


class Check(StrEnum):
    KERNEL_LOG = "kernel-log"
    NVML = "nvml"
    NVML_EVENTS = "nvml-events"
    PORTS = "ports"
    DCGM = "dcgm"
    UNITS = "units"
    LINKS = "links"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Fact:
    seq: int  #: rises per node and boot id; a missing number is a lost fact
    at: float  #: when the agent read it, in seconds since the epoch
    check: str  #: one of `Check`; of a newer agent another one
    entity: str
    code: str
    value: dict[str, Value]
    text: str = ""  #: the line, or a description


def value_of(record: Mapping[str, Any]) -> dict[str, Value]:
    """A record within the bounds of a fact: texts and numbers are those of a kernel or a driver, and may be anything."""
    return {sanitized(str(key), 64): _value(one) for key, one in list(record.items())[:MOST_KEYS]}


def _value(found: Any) -> Value:
    if isinstance(found, Mapping):
        return {
            sanitized(str(key), 64): {sanitized(str(k), 64): _scalar(v) for k, v in list(one.items())[:MOST_ITEMS]}
            if isinstance(one, Mapping)
            else _scalar(one)
            for key, one in list(found.items())[:MOST_ITEMS]
        }
    if isinstance(found, list | tuple):
        return tuple(
            tuple(map(_scalar, one[:MOST_ITEMS])) if isinstance(one, list | tuple) else _scalar(one)
            for one in found[:MOST_ITEMS]
        )
    return _scalar(found)


def _scalar(found: Any) -> Scalar:
    if found is None or isinstance(found, bool):
        return found
    if isinstance(found, int) and -INT64_MAX <= found <= INT64_MAX:
        return found
    if isinstance(found, float) and isfinite(found):
        return found
    return sanitized(str(found), VALUE_BYTES)
