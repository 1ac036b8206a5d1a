"""Findings of kernel messages that carry no code of the driver: PCIe errors, the platform's error records, ConnectX cards, file systems, memory, tasks."""

from collections.abc import Mapping
from typing import Any

from .finding import Finding, Scope
from .rules import Rules

#: NVIDIA's DCGM rule for replays of one minute on a link of generation 4 with 16 lanes: more are a sick link.
PCIE_REPLAYS = 16

#: How threads of drivers are named. A program may take such a name too, which costs no more than one reading of the cards.
_DRIVER_THREADS = ("nv", "irq/", "mlx5", "UVM")


def kernel_finding(record: Mapping[str, Any], entity: str, rules: Rules) -> Finding | None:
    """The finding of a kernel message; None for one that states no event. `entity`: by the address in the record."""
    kind = str(record.get("kind"))
    variant = _variant(kind, record)
    rule = rules.messages.get(f"{kind} {variant}".strip())
    if rule is None:
        return None
    if rule.scope is Scope.RAIL:
        entity = f"rail:{record.get('pci')}"
    elif rule.scope in {Scope.NODE, Scope.JOB} and kind != "cper":
        entity = "node"
    why = rule.why.format_map(_Missing(record))
    return Finding(entity, kind, variant or kind, rule.severity, rule.blame, rule.scope, rule.action, rule.authority, why)


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
