"""Named faults of an emulated node's hardware, for `hbox health inject` and benchmarks: what kernel log, NVML and /sys of a node with the fault show.

faulty = Injection(NodeHardware(folder_of_kubelets / "node-0001"))
faulty.inject(Fault.XID_79); faulty.inject(Fault.REPAIRED)
"""

from enum import StrEnum

from hbox_common.errors import InvalidRequest

from .hardware import FABRIC_MANAGER, NodeHardware

#: Of a fault of a program, and of what the driver writes about its card.
_PROGRAM, _DRIVER = "pid=4711, name=python", "pid='<unknown>', name=<unknown>"
_OFF_THE_BUS = "GPU has fallen off the bus."
_UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}
#: nvmlClocksEventReasons: hardware slowdown, and power brake.
_SLOWED = 0x8 | 0x80


class Fault(StrEnum):
    CARD_LOST = "card-lost"  #: NVML returns "GPU is lost"; the kernel wrote nothing
    XID_79 = "xid-79"  #: a card falls off the bus
    XID_79_BURST = "xid-79-burst"  #: all cards of the node
    DBE = "dbe"  #: a double-bit error that was not contained
    CONTAINED = "contained"  #: one that ended its process alone
    REMAP = "remap"  #: a row of memory waits for its remapping
    NVLINK_DOWN = "nvlink-down"
    FABRIC_MANAGER_DEAD = "fabric-manager-dead"
    SLOW = "slow"  #: the hardware slows the clocks
    NIC_DOWN = "nic-down"
    NIC_UP = "nic-up"  #: with `nic-down` before it, a flap
    NVML_HUNG = "nvml-hung"  #: a call into the driver does not return
    AGENT_KILLED = "agent-killed"  #: node-agent falls silent
    PROGRAM_ERROR = "program-error"  #: XID 31: a job's own fault
    REPAIRED = "repaired"  #: all of the above is well, and the node boots


class Injection:
    """One node."""

    def __init__(self, hardware: NodeHardware) -> None:
        self._hardware = hardware

    def inject(self, fault: Fault, *, card: str = "", adapter: str = "") -> None:
        """card: its uuid or its index, the first by default; adapter: its name, the first by default. Raises InvalidRequest if the node does not have it."""
        hardware = self._hardware
        match fault:
            case Fault.NIC_DOWN:
                hardware.port(self._adapter(adapter), state="1: DOWN", phys_state="3: Disabled")
            case Fault.NIC_UP:
                name = self._adapter(adapter)
                hardware.port(name, **_UP, counters__link_downed=str(hardware.link_downed(name) + 1))
            case Fault.FABRIC_MANAGER_DEAD:
                hardware.unit(FABRIC_MANAGER, active=False)
            case Fault.NVML_HUNG:
                hardware.hang(True)
            case Fault.AGENT_KILLED:
                hardware.agent(False)
            case Fault.XID_79_BURST:
                for uuid, address in hardware.listed().items():
                    self._of_card(Fault.XID_79, uuid, address)
            case Fault.REPAIRED:
                self._repair()
            case _:
                self._of_card(fault, *self._card(card))

    def _of_card(self, fault: Fault, uuid: str, address: str) -> None:
        hardware = self._hardware
        match fault:
            case Fault.CARD_LOST:
                hardware.card(uuid, lost=True)
            case Fault.XID_79:
                hardware.card(uuid, lost=True)
                self._xid(address, 79, _DRIVER, _OFF_THE_BUS)
            case Fault.DBE:
                hardware.card(uuid, ecc_dbe_volatile=1, recovery_action=1)
                self._xid(
                    address, 48, _DRIVER, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer."
                )
                self._xid(address, 154, _DRIVER, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
            case Fault.CONTAINED:
                hardware.card(uuid, remapped=[0, 1, 1, 0])
                self._xid(address, 94, _PROGRAM, "Contained memory error.")
            case Fault.REMAP:
                hardware.card(uuid, remapped=[0, 1, 1, 0])
                self._xid(address, 63, _DRIVER, "Row Remapper: New row marked for remapping, reset gpu to activate.")
            case Fault.NVLINK_DOWN:
                hardware.card(uuid, links_down=(0,))
            case Fault.SLOW:
                hardware.card(uuid, reasons=_SLOWED)
            case Fault.PROGRAM_ERROR:
                text = "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2e_00000000."
                self._xid(address, 31, _PROGRAM, f"{text} Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ")

    def _xid(self, address: str, code: int, where: str, text: str) -> None:
        self._hardware.kernel(f"NVRM: Xid (PCI:{address.rpartition('.')[0]}): {code}, {where}, {text}")

    def _repair(self) -> None:
        hardware = self._hardware
        hardware.hang(False)
        for uuid in hardware.listed():
            hardware.card(uuid)
        for adapter in hardware.adapters():
            hardware.port(adapter, **_UP)
        hardware.unit(FABRIC_MANAGER, active=True)
        hardware.boot()
        hardware.agent(True)

    def _card(self, card: str) -> tuple[str, str]:
        cards = self._hardware.listed()
        found = card
        if not card or card.isdigit():
            found = next((uuid for index, uuid in enumerate(cards) if index == int(card or 0)), card)
        if found not in cards:
            raise InvalidRequest(
                f"node {self._hardware.node} has no card {card}" if card else f"node {self._hardware.node} has no NVIDIA card",
                hint=f"known: {', '.join(cards) or 'none'}",
            )
        return found, cards[found]

    def _adapter(self, adapter: str) -> str:
        names = self._hardware.adapters()
        if not names or (adapter and adapter not in names):
            raise InvalidRequest(
                f"node {self._hardware.node} has no adapter{adapter and f' {adapter}'}",
                hint=f"known: {', '.join(names) or 'none'}",
            )
        return adapter or names[0]
