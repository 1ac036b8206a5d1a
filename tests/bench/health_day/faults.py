"""Faults of hardware and programs: how often, what a node's agent reads of them, what they do to a job, and what cures them.

Shares: interruptions of Llama 3 (arXiv 2407.21783, table 5), with the GPU's 148 spread over the codes that mean it. Silent data corruption leaves no evidence,
and dead hosts are Kubernetes' to find: neither is planted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Cure(Enum):
    RESET = auto()  #: of the card, or a reboot
    REBOOT = auto()
    HANDS = auto()


class Effect(Enum):
    """On a job with a pod at the fault."""

    NONE = auto()
    CRASH = auto()  #: once: the fault does no harm to the next job
    BREAKS = auto()  #: it makes no progress until NCCL's time-out; so does each restart on the same hardware
    SLOW = auto()


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    share: int
    cure: Cure
    effect: Effect = Effect.BREAKS
    lines: tuple[str, ...] = ()  #: of the kernel, with {pci} of the card
    state: Mapping[str, int] = field(default_factory=dict)  #: of the card in NVML, until it is cured
    port: bool = False  #: the port of an adapter is down
    leaf: bool = False  #: ... of all nodes of a leaf
    whole: bool = False  #: no card of the node works in a gang
    missing: bool = False  #: NVML does not list the card, and the kernel is silent


XID = "NVRM: Xid (PCI:{pci}): "
PROCESS = "pid='<unknown>', name=<unknown>, "
ACTION = XID + "154, GPU recovery action changed from 0x0 (None) to "
RESET, REBOOT, DRAIN = (
    ACTION + "0x1 (GPU Reset Required)",
    ACTION + "0x2 (Node Reboot Required)",
    ACTION + "0x4 (Drain and Reset)",
)

KINDS = (
    Kind("off the bus (79)", 60, Cure.REBOOT, lines=(XID + "79, " + PROCESS + "GPU has fallen off the bus.", REBOOT), state={"every_call": 15}),
    Kind("card lost, no log line", 8, Cure.REBOOT, missing=True),
    Kind(
        "NVLink (74)",
        45,
        Cure.RESET,
        lines=(XID + "74, " + PROCESS + "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", RESET),
        state={"recovery_action": 1},
    ),
    Kind("microcontroller (62)", 35, Cure.RESET, lines=(XID + "62, " + PROCESS + "1f9c(2d5c) 00000000 00000000", RESET), state={"recovery_action": 1}),
    Kind(
        "GSP (119)",
        17,
        Cure.RESET,
        lines=(XID + "119, pid=81204, name=python3, Timeout after 45s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL)", RESET),
        state={"recovery_action": 1},
    ),
    Kind(
        "HBM, double bit (48)",
        40,
        Cure.RESET,
        lines=(
            XID + "48, " + PROCESS + "DBE (double bit error) ECC Error",
            XID + "63, Row remapping event: Rows 0x1a and 0x2b have been remapped on GPU 00000000:{pci}.0",
            DRAIN,
        ),
        state={"recovery_action": 4},
    ),
    Kind(
        "HBM, contained (94)",
        25,
        Cure.RESET,
        Effect.CRASH,
        lines=(
            XID + "94, pid=81204, name=python3, Contained: SM (0x1). RST: No, D-RST: Yes",
            XID + "63, Row remapping event: Rows 0x1a and 0x2b have been remapped on GPU 00000000:{pci}.0",
            DRAIN,
        ),
        state={"recovery_action": 4},
    ),
    Kind("HBM, no row left (64)", 7, Cure.HANDS, lines=(XID + "64, Row remapping failure",)),
    Kind(
        "SRAM (95)",
        19,
        Cure.RESET,
        lines=(XID + "95, pid=81204, name=python3, Uncontained: L2 TAG (0x2). RST: Yes, D-RST: No", RESET),
        state={"recovery_action": 1},
    ),
    Kind("adapter", 7, Cure.HANDS, port=True, whole=True),
    Kind("cable", 32, Cure.HANDS, port=True, whole=True),
    Kind("leaf switch", 3, Cure.HANDS, port=True, leaf=True, whole=True),
    Kind("hot card", 6, Cure.HANDS, Effect.SLOW, state={"clocks_event_reasons": 0x40}),
    Kind("read-only root", 3, Cure.HANDS, lines=("EXT4-fs (nvme0n1p2): Remounting filesystem read-only",), whole=True),
)  # fmt: skip

#: What a program does to its own context; the card is well.
PROGRAMS = (
    (XID + "31, pid=91044, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1c_5e000000",
     XID + "45, pid=91044, name=python3, Ch 00000008"),
    (XID + "13, pid=91044, name=python3, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
     XID + "43, pid=91044, name=python3, Ch 00000008"),
)  # fmt: skip
