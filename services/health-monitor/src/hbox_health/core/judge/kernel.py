"""Findings of kernel messages that carry no code of the driver: PCIe errors, the platform's error records, ConnectX cards, file systems, memory, tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .finding import Action, Blame, Finding, Scope, Severity

NPD = "node-problem-detector"
REQUIREMENTS = "hbox-requirements"
AER = "linux-aer"

#: NVIDIA's DCGM rule for replays of one minute on a link of generation 4 with 16 lanes: more are a sick link.
PCIE_REPLAYS = 16


@dataclass(frozen=True, slots=True)
class _Row:
    severity: Severity
    blame: Blame
    scope: Scope
    action: Action
    why: str
    authority: str = REQUIREMENTS


#: By kind and, where a kind has several, by its variant.
_ROWS: Mapping[tuple[str, str], _Row] = {
    ("gpu-init-failed", ""): _Row(
        Severity.FATAL_GPU,
        Blame.HARDWARE,
        Scope.GPU,
        Action.RESET,
        "The driver cannot initialise the card: it takes no work until a reset, perhaps never again.",
        "nvidia-xid-catalogue",
    ),
    ("reset-required", ""): _Row(
        Severity.SUSPECT,
        Blame.UNKNOWN,
        Scope.GPU,
        Action.READ_RECOVERY_ACTION,
        "The driver refuses new work until a reset; which card it is, NVML states.",
    ),
    ("uvm-error", ""): _Row(
        Severity.SUSPECT,
        Blame.UNKNOWN,
        Scope.NODE,
        Action.READ_RECOVERY_ACTION,
        "Unified memory reports an error; alone it decides nothing.",
    ),
    ("records-lost", ""): _Row(
        Severity.SUSPECT,
        Blame.NONE,
        Scope.NODE,
        Action.READ_RECOVERY_ACTION,
        "The kernel overwrote records before they were read: the cards have to be read at once.",
    ),
    ("filesystem-read-only", ""): _Row(
        Severity.FATAL_NODE,
        Blame.HARDWARE,
        Scope.NODE,
        Action.CORDON,
        "The file system on {device} is read-only: nothing starts there.",
        NPD,
    ),
    ("oom", ""): _Row(
        Severity.INFO,
        Blame.USER,
        Scope.JOB,
        Action.NOTIFY_OWNER,
        "Process {pid} was killed since memory ran out; this passes.",
        NPD,
    ),
    ("segfault", ""): _Row(
        Severity.INFO, Blame.USER, Scope.JOB, Action.NOTIFY_OWNER, "Process {pid} accessed memory that is not its own."
    ),
    ("hung-task", "driver"): _Row(
        Severity.SUSPECT,
        Blame.UNKNOWN,
        Scope.NODE,
        Action.READ_RECOVERY_ACTION,
        "A thread of the driver hangs: no verdict yet, but the cards are to be read at once.",
        NPD,
    ),
    ("hung-task", "other"): _Row(
        Severity.SUSPECT, Blame.UNKNOWN, Scope.NODE, Action.REPORT, "A task hangs; alone it is no verdict.", NPD
    ),
    ("aer", "corrected"): _Row(
        Severity.INFO,
        Blame.HARDWARE,
        Scope.GPU,
        Action.WATCH,
        "{count} corrected PCIe errors; many an hour are a sick link.",
        AER,
    ),
    ("aer", "corrected-often"): _Row(
        Severity.DEGRADED,
        Blame.HARDWARE,
        Scope.GPU,
        Action.TICKET,
        "{count} corrected PCIe errors in a minute: the link is sick.",
        AER,
    ),
    ("aer", "nonfatal"): _Row(
        Severity.DEGRADED,
        Blame.HARDWARE,
        Scope.GPU,
        Action.READ_RECOVERY_ACTION,
        "An uncorrected PCIe error that the link survived; the recovery action of the card decides.",
        AER,
    ),
    ("aer", "fatal"): _Row(
        Severity.FATAL_GPU,
        Blame.HARDWARE,
        Scope.GPU,
        Action.READ_RECOVERY_ACTION,
        "A fatal PCIe error: the link was reset below the driver; the recovery action of the card decides.",
        AER,
    ),
    ("cper", "previous-boot"): _Row(
        Severity.INFO,
        Blame.HARDWARE,
        Scope.NODE,
        Action.REPORT,
        "The error record is of the boot before: it explains that restart, and asks for no other.",
        NPD,
    ),
    ("cper", "fatal"): _Row(
        Severity.FATAL_NODE,
        Blame.HARDWARE,
        Scope.NODE,
        Action.CORDON,
        "The platform reports a fatal hardware error, which does not end by itself.",
        NPD,
    ),
    ("cper", "corrected"): _Row(
        Severity.INFO, Blame.HARDWARE, Scope.NODE, Action.WATCH, "The platform corrected a hardware error.", NPD
    ),
    ("cper", "recoverable"): _Row(
        Severity.DEGRADED,
        Blame.HARDWARE,
        Scope.NODE,
        Action.REPORT,
        "The platform recovered from an uncorrected hardware error.",
        NPD,
    ),
    ("mlx5", "access-reg-failed"): _Row(
        Severity.INFO,
        Blame.SOFTWARE,
        Scope.RAIL,
        Action.NONE,
        "The firmware does not let the driver read a register: harmless.",
    ),
    ("mlx5", "health-poll"): _Row(
        Severity.DEGRADED,
        Blame.HARDWARE,
        Scope.RAIL,
        Action.ISOLATE_RAIL,
        "The card does not answer its driver's health check.",
    ),
    ("mlx5", "fatal-error"): _Row(
        Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.ISOLATE_RAIL, "The card reports a fatal error."
    ),
    ("mlx5", "cmd-timeout"): _Row(
        Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.ISOLATE_RAIL, "The card does not answer a command."
    ),
    ("mlx5", "module-unplugged"): _Row(
        Severity.INFO, Blame.OPERATOR, Scope.RAIL, Action.REPORT, "A cable was unplugged; the state of the port decides."
    ),
    ("mlx5", "module-plugged"): _Row(Severity.INFO, Blame.OPERATOR, Scope.RAIL, Action.NONE, "A cable was plugged in."),
    ("mlx5", "module-hot"): _Row(Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.TICKET, "The transceiver is too hot."),
    ("mlx5", "module-power"): _Row(
        Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.TICKET, "The transceiver exceeds its power budget."
    ),
    ("mlx5", "module-error"): _Row(
        Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.TICKET, "The transceiver or cable reports an error."
    ),
    ("mlx5", "pcie-power"): _Row(
        Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.TICKET, "The slot gives the card too little power."
    ),
    ("mlx5", "tx-timeout"): _Row(
        Severity.SUSPECT, Blame.UNKNOWN, Scope.RAIL, Action.WATCH, "A transmit queue stalled; the state of the port decides."
    ),
}

#: How threads of drivers are named. A program may take such a name too, which costs no more than one reading of the cards.
_DRIVER_THREADS = ("nv", "irq/", "mlx5", "UVM")


def kernel_finding(record: Mapping[str, Any], entity: str) -> Finding | None:
    """The finding of a kernel message; None for one that states no event. `entity`: by the address in the record."""
    kind = str(record.get("kind"))
    variant = _variant(kind, record)
    row = _ROWS.get((kind, variant))
    if row is None:
        return None
    if row.scope is Scope.RAIL:
        entity = f"rail:{record.get('pci')}"
    elif row.scope in {Scope.NODE, Scope.JOB} and kind != "cper":
        entity = "node"
    why = row.why.format_map(_Missing(record))
    return Finding(entity, kind, variant or kind, row.severity, row.blame, row.scope, row.action, row.authority, why)


def kernel_rows() -> list[tuple[str, ...]]:
    """Kind, variant, severity, blame, scope, action and reason of each message, for the reference."""
    return [
        (kind, variant, row.severity, row.blame, row.scope, row.action, row.why.replace("{", "").replace("}", ""))
        for (kind, variant), row in _ROWS.items()
    ]


def _variant(kind: str, record: Mapping[str, Any]) -> str:
    match kind:
        case "aer":
            severity = str(record.get("severity"))
            return "corrected-often" if severity == "corrected" and int(record.get("count", 1)) > PCIE_REPLAYS else severity
        case "cper":
            if record.get("previous_boot"):
                return "previous-boot"
            severity = str(record.get("severity"))
            return {"info": "corrected", "fatal": "fatal", "corrected": "corrected"}.get(severity, "recoverable")
        case "mlx5":
            return str(record.get("what"))
        case "hung-task":
            return "driver" if str(record.get("task", "")).startswith(_DRIVER_THREADS) else "other"
    return ""


class _Missing(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"
