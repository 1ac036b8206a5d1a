"""Families of kinds of incidents, for what has to be bounded: labels of metrics, pages of the documentation.

The kind of an incident may contain a code that an agent or a file of rules states, such as `nvml-return-999`. Its family contains none.
"""

from functools import cache

#: Kind of incidents, in the order of their pages -> what the incident means, for a heading. Each has a page docs/runbooks/incidents/FAMILY.md.
FAMILIES = {
    "card": "a card is faulty",
    "node-fault": "a fault that only a reboot of the node ends",
    "p2p": "a card refuses peer traffic",
    "multi-gpu": "NVLink or the fabric of the node is faulty",
    "fabric-manager": "the fabric manager does not run",
    "rail": "an RDMA adapter is faulty",
    "group": "several nodes show one fault",
    "plugin": "a device plugin hands out a sick card",
    "register": "a device plugin does not hand out a card",
    "module": "a kernel module is missing",
    "acs": "PCIe access control redirects peer traffic",
    "unit": "a systemd unit does not run",
    "joins": "a node joins incomplete",
    "agent-silent": "the agent of a node does not report",
    "hangs": "a reader of an agent hangs",
    "maintenance": "a node is in maintenance",
    "user-fault": "a program faults",
    "user-faults": "programs of two queues fault on one card",
    "nvml": "NVML reports a state of a card",
    "dcgm": "DCGM's exporter reports a state of a card",
    "port": "a port is slow or has errors",
    "xid": "the driver reports an XID",
    "sxid": "an NVSwitch reports an SXID",
    "aer": "PCIe errors",
    "cper": "the platform reports a hardware error",
    "mlx5": "an RDMA adapter reports an error",
    "filesystem-read-only": "a file system is read-only",
    "hung-task": "a task hangs",
    "records-lost": "records of the kernel log were lost",
    "reset-required": "the driver requires a reset",
    "uvm-error": "unified memory reports an error",
    "nccl": "a node is slow in a test",
    "fabric": "the fabric starts",
    "cards": "a card is missing",
    "other": "any other fault",
}
OTHER = "other"


@cache
def _longest_first() -> tuple[str, ...]:
    return tuple(sorted(FAMILIES, key=len, reverse=True))


def family_of(kind: str) -> str:
    """The family of an incident's kind, which begins with it; `other` if none does."""
    return next((name for name in _longest_first() if kind == name or kind.startswith(f"{name}-")), OTHER)
