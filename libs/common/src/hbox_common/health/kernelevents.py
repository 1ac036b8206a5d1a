"""Kernel messages that are neither XID nor SXID: lost cards, PCIe errors, the platform's error records, ConnectX cards, file systems, memory, hung tasks."""

import re
from collections.abc import Callable

from .records import Record, pci_of

_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"

_UUID = re.compile(rf"NVRM: GPU at (?:PCI:)?({_ADDRESS}): (GPU-[0-9a-fA-F-]{{36}})\s*$")
_FALLEN = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?({_ADDRESS}):? (?:GPU )?has fallen off the bus")
_INIT = re.compile(rf"NVRM: (?:GPU (?:PCI:)?({_ADDRESS}): )?RmInitAdapter failed!")
_RESET = re.compile(rf"NVRM: (?:GPU(?: at)? ?(?:PCI:)?({_ADDRESS}|\d+):? )?.{{0,120}}Reset required \[NV_ERR_RESET_REQUIRED\]")
_RATE = re.compile(rf"NVRM: Rate limiting GSP RPC error prints for GPU at (?:PCI:)?({_ADDRESS}) \(printing 1 of every (\d+)\)")
_UVM = re.compile(r"nvidia-uvm: .{0,80}\b(?:fatal|error)\b", re.IGNORECASE)

_AER_RECEIVED = re.compile(
    rf"(\S+) {_ADDRESS}: AER: (?:Multiple )?(Correct(?:ed|able)|Uncorrect(?:ed|able))(?: \((Non-Fatal|Fatal)\))? "
    rf"error (?:message )?received(?: from|:) ({_ADDRESS})?"
)
_AER_ERROR = re.compile(
    rf"(\S+) ({_ADDRESS}): (?:AER: )?PCIe Bus Error: severity=(Correct(?:ed|able)|Uncorrect(?:ed|able))(?: \((Non-Fatal|Fatal)\))?(?:, type=([^,]+))?"
)
_BOOT_ERROR = re.compile(r"BERT: Error records? from previous boot")
_HARDWARE = re.compile(r"(?:\{\d+\})?\[Hardware Error\]:\s*(.*)")
_CPER_SEVERITY = re.compile(r"event severity: (\w+)")
_CPER_DEVICE = re.compile(rf"device_id: ({_ADDRESS})")
_CPER_SECTION = re.compile(r"section_type: (.{1,60})")

_MLX5 = re.compile(rf"mlx5_core ({_ADDRESS}):? ?(.*)", re.DOTALL)
_SYNDROME = re.compile(r"syndrome \(?(0x[0-9a-fA-F]+)")
_MODULE = re.compile(r"Port module event(?:\[error\])?: module (\d+), (.{1,80})")

_READ_ONLY = (
    re.compile(r"(?:EXT[234]-fs|F2FS-fs|JFS)\S* \(([^)\s]{1,64})\): Remounting filesystem read-only"),
    re.compile(r"BTRFS \w+ \(device ([^)\s]{1,64})[^)]*\).{0,120}forced readonly"),
    re.compile(r"XFS \(([^)\s]{1,64})\): .{0,160}(?:Shutting down filesystem|[Ff]ilesystem has been shut down)"),
)
_KILLED = re.compile(r"(Memory cgroup out of memory|Out of memory)\b.{0,40}?: Killed process (\d{1,10})(?:,)? \((.{0,64}?)\)")
_HUNG = re.compile(r"INFO: task (.{1,64}):(\d{1,10}) blocked for more than (\d+) seconds")
_SEGFAULT = re.compile(r"((?:(?!: )[^\[]){1,15})\[(\d{1,10})\]: segfault at ")
_SEGFAULT_IN = re.compile(r" in (\S{1,80}?)\[")
_PROTECTION = re.compile(r"traps: (.{1,15})\[(\d{1,10})\] (?:general protection|trap )")

#: What a ConnectX card's driver prints, and its name in the record.
_MLX5_EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("access-reg-failed", re.compile(r".*\bACCESS_REG\(0x805\).*\bfailed\b")),
    ("health-poll", re.compile(r".*device's health compromised")),
    ("fatal-error", re.compile(r".*(?:Fatal error \d+ detected|health issue observed.*(?:FATAL|CRITICAL))", re.IGNORECASE)),
    ("cmd-timeout", re.compile(r".*\b[A-Z_]+\(0x[0-9a-fA-F]+\) timeout\. Will cause a leak")),
    ("pcie-power", re.compile(r".*Detected insufficient power on the PCIe slot")),
    ("tx-timeout", re.compile(r".*\bTX timeout detected")),
)


def gpu_uuid(text: str) -> Record | None:
    found = _UUID.match(text)
    return {"kind": "gpu-uuid", "pci": pci_of(found[1]), "uuid": found[2]} if found else None


def gpu_lost(text: str) -> Record | None:
    found = _FALLEN.match(text)
    return {"kind": "gpu-lost", "pci": pci_of(found[1])} if found else None


def gpu_init_failed(text: str) -> Record | None:
    found = _INIT.match(text)
    return ({"kind": "gpu-init-failed"} | _pci(found[1])) if found else None


def reset_required(text: str) -> Record | None:
    found = _RESET.match(text)
    return ({"kind": "reset-required"} | _pci(found[1])) if found else None


def gsp_rate_limit(text: str) -> Record | None:
    found = _RATE.match(text)
    return {"kind": "gsp-rate-limit", "pci": pci_of(found[1]), "every": int(found[2])} if found else None


def uvm_error(text: str) -> Record | None:
    return {"kind": "uvm-error"} if _UVM.match(text) else None


def aer_received(text: str) -> Record | None:
    """The root port's line, which comes before the device's."""
    found = _AER_RECEIVED.match(text)
    if found is None or found[4] is None:
        return None
    return {"kind": "aer", "pci": pci_of(found[4]), "severity": _severity(found[2], found[3]), "count": 1}


def aer_error(text: str) -> Record | None:
    found = _AER_ERROR.match(text)
    if found is None:
        return None
    record: Record = {
        "kind": "aer",
        "pci": pci_of(found[2]),
        "severity": _severity(found[3], found[4]),
        "count": 1,
        "driver": found[1],
    }
    if found[5]:
        record["layer"] = found[5].strip()
    return record


def _severity(word: str, fatal: str | None) -> str:
    if word.startswith("Correct"):
        return "corrected"
    return "fatal" if fatal == "Fatal" else "nonfatal"


def boot_error(text: str) -> bool:
    """Whether the error records that follow are of the boot before."""
    return _BOOT_ERROR.match(text) is not None


def cper(text: str, *, previous_boot: bool) -> Record | None:
    """The head of a platform error record."""
    found = _HARDWARE.match(text)
    severity = _CPER_SEVERITY.match(found[1]) if found else None
    if severity is None:
        return None
    return {"kind": "cper", "severity": severity[1].lower()} | ({"previous_boot": True} if previous_boot else {})


def extend_cper(record: Record, text: str) -> bool:
    """Add a later line of the same error record; False if the text is no such line."""
    found = _HARDWARE.match(text)
    if found is None or _CPER_SEVERITY.match(found[1]):
        return False
    if (device := _CPER_DEVICE.match(found[1])) and "pci" not in record:
        record["pci"] = pci_of(device[1])
    if (section := _CPER_SECTION.search(found[1])) and "section" not in record:
        record["section"] = section[1].strip()
    return True


def mlx5(text: str) -> Record | None:
    found = _MLX5.match(text)
    if found is None:
        return None
    rest = found[2]
    if module := _MODULE.search(rest):
        return {"kind": "mlx5", "pci": pci_of(found[1]), "what": _module_event(module[2]), "module": int(module[1])}
    for what, pattern in _MLX5_EVENTS:
        if pattern.match(rest):
            record: Record = {"kind": "mlx5", "pci": pci_of(found[1]), "what": what}
            if syndrome := _SYNDROME.search(rest):
                record["syndrome"] = syndrome[1].lower()
            return record
    return None


def _module_event(text: str) -> str:
    text = text.lower()
    for word, what in (
        ("unplugged", "module-unplugged"),
        ("plugged", "module-plugged"),
        ("high temp", "module-hot"),
        ("power", "module-power"),
    ):
        if word in text:
            return what
    return "module-error"


def read_only(text: str) -> Record | None:
    for pattern in _READ_ONLY:
        if found := pattern.match(text):
            return {"kind": "filesystem-read-only", "device": found[1]}
    return None


def oom(text: str) -> Record | None:
    found = _KILLED.match(text)
    if found is None:
        return None
    return {"kind": "oom", "pid": int(found[2]), "name": found[3], "cgroup": found[1].startswith("Memory cgroup")}


def hung_task(text: str) -> Record | None:
    found = _HUNG.match(text)
    return {"kind": "hung-task", "task": found[1], "pid": int(found[2]), "blocked_s": int(found[3])} if found else None


def segfault(text: str) -> Record | None:
    found = _SEGFAULT.match(text) or _PROTECTION.match(text)
    if found is None:
        return None
    record: Record = {"kind": "segfault", "name": found[1], "pid": int(found[2])}
    if module := _SEGFAULT_IN.search(text):
        record["module"] = module[1]
    return record


def _pci(text: str | None) -> Record:
    pci = pci_of(text) if text else None
    return {"pci": pci} if pci else {}


#: The word that a line must contain, and the parsers of lines that contain it, in order.
PARSERS: tuple[tuple[str, tuple[Callable[[str], Record | None], ...]], ...] = (
    ("NVRM", (gpu_uuid, gpu_lost, gpu_init_failed, reset_required, gsp_rate_limit)),
    ("nvidia-uvm", (uvm_error,)),
    ("mlx5_core", (mlx5,)),
    ("PCIe Bus Error", (aer_error,)),
    ("read-only", (read_only,)),
    ("readonly", (read_only,)),
    ("hutting down filesystem", (read_only,)),
    ("been shut down", (read_only,)),
    ("Killed process", (oom,)),
    ("blocked for more than", (hung_task,)),
    ("segfault at", (segfault,)),
    ("traps: ", (segfault,)),
)
