"""A finding: the judgement of one input about one entity. The words are those of the case format (`hbox health judge`)."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    NONE = "none"
    INFO = "info"
    SUSPECT = "suspect"  #: not enough to decide; the action names what to read next
    DEGRADED = "degraded"
    MISCONFIGURED = "misconfigured"
    UNKNOWN = "unknown"  #: a code or value that the table does not have
    FATAL_GPU = "fatal-gpu"
    FATAL_NODE = "fatal-node"


class Blame(StrEnum):
    HARDWARE = "hardware"
    USER = "user"
    SOFTWARE = "software"
    OPERATOR = "operator"
    UNKNOWN = "unknown"
    NONE = "none"


class Scope(StrEnum):
    """What the finding takes away, or would take away if it were confirmed."""

    NONE = "none"
    GPU = "gpu"
    MIG = "mig"
    MULTI_GPU = "multi-gpu"  #: work on more than one card of the node
    RAIL = "rail"
    JOB = "job"
    SWITCH = "switch"
    FABRIC = "fabric"
    NODE = "node"


class Action(StrEnum):
    NONE = "none"
    REPORT = "report"
    WATCH = "watch"
    NOTIFY_OWNER = "tell-owner"
    RUN_DIAGNOSTICS = "run-diagnostics"
    READ_RECOVERY_ACTION = "read-recovery-action"
    RESET_WHEN_IDLE = "reset-when-idle"
    DRAIN_P2P = "drain-p2p"
    DRAIN_AND_RESET = "drain-and-reset"
    RESET = "reset"
    REBOOT = "reboot"
    RESTART_FM = "restart-fm"
    RESTART_DEVICE_PLUGIN = "restart-device-plugin"
    LOAD_MODULE = "load-module"
    ACS_OFF = "acs-off"
    ISOLATE_GPU = "isolate-gpu"
    ISOLATE_RAIL = "isolate-rail"
    MULTI_GPU_OFF = "multi-gpu-off"
    CORDON = "cordon"
    TICKET = "ticket"
    REPLACE = "replace"
    RETEST = "retest"
    VALIDATE = "validate"
    CLOSE_REASON = "close-reason"


#: Severities from the least to the worst. SUSPECT and UNKNOWN wait for more evidence, hence below what is established.
_RANKS = (
    Severity.NONE,
    Severity.INFO,
    Severity.UNKNOWN,
    Severity.SUSPECT,
    Severity.MISCONFIGURED,
    Severity.DEGRADED,
    Severity.FATAL_GPU,
    Severity.FATAL_NODE,
)
RANK = {severity: rank for rank, severity in enumerate(_RANKS)}


@dataclass(frozen=True, slots=True)
class Finding:
    entity: str  #: gpu:UUID (gpu:PCI where no UUID is known), mig:UUID, rail:HCA, switch:GUID, node, job:NAMESPACE/NAME
    kind: str  #: of the input: xid, sxid, gpu-lost, aer, nvml, dcgm, port, nccl, ...
    code: str  #: within the kind: the XID, the check of a snapshot
    severity: Severity
    blame: Blame
    scope: Scope
    action: Action
    authority: str  #: whose rule it is
    why: str  #: one sentence
    also: Action | None = None  #: a second action that the first does not include
    evidence: tuple[str, ...] = ()  #: lines or values, as read
