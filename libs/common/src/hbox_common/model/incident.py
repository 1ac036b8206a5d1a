"""An incident: a judgement of health-monitor on one entity of a node, from its first evidence to its end."""

from dataclasses import dataclass
from enum import StrEnum

from .ids import NodeName


class IncidentState(StrEnum):
    """In the order in which an incident passes them; it may skip some, and only `closed` is final."""

    SUSPECT = "suspect"  #: evidence that does not suffice yet: a debounce runs, or a second report is missing
    CONFIRMED = "confirmed"  #: isolated as far as the fault requires
    DRAINING = "draining"  #: pods leave what the repair needs
    REPAIRING = "repairing"  #: a remedy runs
    VALIDATING = "validating"  #: repaired, and not yet checked
    CLOSED = "closed"


class StepResult(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  #: the node has nothing that executes it


@dataclass(frozen=True, slots=True)
class GateStep:
    """One attempt at an active step of the check after a repair, or a step that waits."""

    name: str  #: diagnostics | job
    result: StepResult
    attempt: int = 0  #: 0: none has begun
    at: float = 0.0  #: of the result or, while it runs, of its beginning; seconds since the epoch
    text: str = ""  #: names of failed tests, or why it waits


@dataclass(frozen=True, slots=True)
class Incident:
    id: str  #: unique for ever
    node: NodeName  #: empty if the incident belongs to no single node (a switch, a job, the control plane)
    entity: str  #: gpu:UUID | mig:UUID | rail:HCA | switch:GUID | node | job:NAMESPACE/NAME | control-plane
    kind: str  #: of the fault; one entity has at most one open incident of a kind
    code: str  #: the worst code of the evidence
    state: IncidentState
    severity: str  #: none | info | suspect | degraded | misconfigured | unknown | fatal-gpu | fatal-node
    blame: str  #: hardware | user | software | operator | unknown | none
    scope: str  #: gpu | node | rail | job | switch
    action: str  #: what has to be done next, e.g. reset-when-idle
    opened: float  #: seconds since the epoch, like all times here
    changed: float
    boot_id: str = ""  #: of the node, at the last evidence
    action_done: str = ""  #: the last remedy that ended well
    authority: str = ""  #: the source of the rule: recovery-action, xid-154, the vendor's catalogue, ...
    rule_version: str = ""
    evidence: tuple[str, ...] = ()  #: the reports that led to it, oldest first; bounded
    closed: float | None = None
    held_by: tuple[str, ...] = ()  #: what delays the action or the return: breaker, exemption, mute, hand, device-plugin
    why: str = ""  #: one sentence
    checks: tuple[str, ...] = ()  #: results of the check after the last repair
    steps: tuple[GateStep, ...] = ()  #: of these checks: attempts that ended, oldest first and bounded, then what runs or waits
