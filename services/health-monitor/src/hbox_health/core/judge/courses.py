"""What follows from a finding: how long it waits for confirmation, what it isolates, who leaves, which verb repairs it, and how it ends."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from hbox_common.model.remedy import Verb

from .breaker import Limits
from .finding import RANK, Action, Blame, Finding, Scope, Severity
from .happenings import Policy

#: Kind of an incident: a node in maintenance.
MAINTENANCE = "maintenance"
#: Kind of an incident: a node that joins is checked before it takes work.
NEW_NODE = "new-node"
#: Kind of an incident: a device plugin hands out cards that are out of use (`plugins.py`).
PLUGIN = "plugin"
WEEK_S, DAY_S, HOUR_S = 7 * 24 * 3600.0, 24 * 3600.0, 3600.0


class Isolation(StrEnum):
    NONE = "none"
    CARD = "card"
    RAIL = "rail"
    MULTI_GPU = "multi-gpu"
    NODE = "node"


class Leave(Enum):
    NONE = auto()
    CARD = auto()  #: gangs on the affected cards
    MULTI_GPU = auto()  #: gangs with several cards of the node
    MULTI_NODE = auto()  #: gangs on several nodes
    NODE = auto()  #: gangs on the affected cards now, the node's other pods after a notice
    ALL = auto()  #: all pods with cards of the node


@dataclass(frozen=True, slots=True)
class Course:
    kind: str  #: of the incident; findings of one entity with the same kind are one incident
    isolation: Isolation = Isolation.NONE
    leave: Leave = Leave.NONE
    verb: Verb | None = None
    cured_by_boot: bool = False  #: a boot of the node ends it, or shows it again


#: `kind` or `kind-code` of findings -> seconds. States are read every 10 s or so; 20 s are two polls.
WAITS = {
    "port": 240.0,
    "port-flap": 0.0,
    # an agent reads a port every 15 s: three readings, and four, since counters may grow once when a link is trained
    "port-slow": 45.0,
    "port-errors": 60.0,
    "unit": 60.0,
    "unit-nvidia-fabricmanager": 60.0,
    "fabric": 20.0,
    "cards": 20.0,
    "hangs": 30.0,
    "links": 340.0,
    "pair-test": 300.0,
    "agent-silent": 300.0,
    "register": 60.0,
    # an exporter that reloads shows no cards, or some, for a minute or two (`exporter.RELOAD_S`)
    "dcgm-absent": 120.0,
    "dcgm-rows": 120.0,
    "dcgm-silent": 120.0,
    "dcgm-hot": 75.0,
    # the exporter counts these in a window of 300 s
    "dcgm-hw_thermal_slowdown": 600.0,
    "dcgm-hw_slowdown": 600.0,
    "dcgm-hw_power_brake_slowdown": 600.0,
    # an agent reads a card every 25 s, and reports it only when it changes: as many readings as `snapshot.POLLS`
    "nvml-nvlink": 50.0,
    "nvml-clocks": 75.0,
    "nvml-margin": 75.0,
    "nvml-pcie": 75.0,
}
CLEAN = {
    "port": 600.0,
    "port-flap": 12 * HOUR_S,
    "unit-nvidia-fabricmanager": 600.0,
    "fabric": 600.0,
    "thermal": 1800.0,
    "power": 1800.0,
    "pcie": 1800.0,
    "nvml-clocks": 1800.0,
    "nvml-margin": 1800.0,
    "nvml-pcie": 1800.0,
    "dcgm-hot": 1800.0,
    "dcgm-hw_thermal_slowdown": 1800.0,
    "dcgm-hw_slowdown": 1800.0,
    "dcgm-hw_power_brake_slowdown": 1800.0,
}


@dataclass(frozen=True, slots=True)
class Policies:
    """Debounces, limits and enabled verbs."""

    version: str = "1"
    waits: dict[str, float] = field(default_factory=lambda: dict(WAITS))
    clean: dict[str, float] = field(
        default_factory=lambda: dict(CLEAN)
    )  #: so long a state has to be good before its reason ends
    group_nodes: int = 3  #: more nodes with a finding in common are one incident of what they share
    group_window_s: float = 300.0
    silent_s: float = 40.0
    silent_share: float = 0.05
    burst_s: float = 30.0  #: faults of a job are counted before a card is suspected
    flap_down_s: float = 25.0
    flaps: int = 3
    flap_window_s: float = 12 * HOUR_S
    repeat_window_s: float = WEEK_S
    resets: int = 2  #: of a card in the window; the next one is a ticket
    reboots: int = 1
    failures: int = 2  #: of a reset, before the node is rebooted
    fm_restart_every_s: float = HOUR_S
    fm_boot_grace_s: float = 600.0
    fm_answer_s: float = 300.0  #: a restart has to show within this time
    fixes_a_day: int = 3  #: of a module, of a device plugin
    neighbours_s: float = HOUR_S  #: notice for pods of a node that has to be rebooted for another's card
    mute_s: float = DAY_S  #: after an uncordon by hand
    expire_s: float = DAY_S  #: an observation without consequences ends after so long
    repeat_s: float = 60.0  #: a decision without effect is made again
    retry_s: float = 300.0  #: a remedy that was refused, or a reboot that failed, is requested again
    answer_s: float = 60.0  #: a requested remedy begins within this time, or its incident states that it waits
    verbs: frozenset[Verb] = frozenset()  #: that node-remedy executes
    validator: bool = False  #: whether checks run after a repair; else `validated_s` without a new reason count as one
    validated_s: float = 600.0
    unread: str = ""  #: why an operator's files have not been read since the start; nothing returns until they are, since they may demand a check
    job: str = ""  #: JSON of the operator's Job of the check; empty: none
    job_deadline_s: float = 900.0  #: of an attempt, if the Job has none of its own
    job_attempts: int = 2
    check_s: float = 600.0  #: what is still bad so long after a repair makes the repair a failure
    cordon: bool = True
    limits: Limits = field(default_factory=Limits)
    policy: Policy = Policy.RESTART  #: of jobs without one

    def wait(self, finding: Finding) -> float:
        return _of(self.waits, finding, 0.0)

    def clean_s(self, finding: Finding) -> float:
        return _of(self.clean, finding, 0.0)


def _of(table: dict[str, float], finding: Finding, default: float) -> float:
    return table.get(f"{finding.kind}-{finding.code}", table.get(finding.kind, default))


_CARD = Course("card", Isolation.CARD, cured_by_boot=True)
_BY_ACTION = {
    Action.RESET: Course("card", Isolation.CARD, Leave.CARD, Verb.RESET, True),
    Action.DRAIN_AND_RESET: Course("card", Isolation.CARD, Leave.CARD, Verb.RESET, True),
    Action.ISOLATE_GPU: _CARD,
    Action.DRAIN_P2P: Course("p2p", Isolation.MULTI_GPU, Leave.MULTI_GPU, cured_by_boot=True),
    Action.REBOOT: Course("node-fault", Isolation.NODE, Leave.NODE, Verb.REBOOT, True),
    Action.RESTART_FM: Course("fabric-manager", verb=Verb.RESTART_FM, cured_by_boot=True),
    Action.LOAD_MODULE: Course("module", verb=Verb.LOAD_MODULE, cured_by_boot=True),
    Action.ACS_OFF: Course("acs", verb=Verb.ACS_OFF, cured_by_boot=True),
    Action.RESTART_DEVICE_PLUGIN: Course("register", verb=Verb.RESTART_DEVICE_PLUGIN),
    Action.ISOLATE_RAIL: Course("rail", Isolation.RAIL, Leave.MULTI_NODE),
    Action.MULTI_GPU_OFF: Course("multi-gpu", Isolation.MULTI_GPU),
}
_OF_SCOPE = {
    Scope.GPU: Isolation.CARD,
    Scope.MIG: Isolation.CARD,
    Scope.RAIL: Isolation.RAIL,
    Scope.MULTI_GPU: Isolation.MULTI_GPU,
    Scope.NODE: Isolation.NODE,
}


def course_of(finding: Finding) -> Course:
    action = finding.action
    card = finding.entity.startswith(("gpu:", "mig:"))
    if finding.kind == MAINTENANCE:
        return Course(MAINTENANCE, Isolation.NODE, Leave.ALL)
    if finding.kind == NEW_NODE:
        return Course(NEW_NODE, Isolation.NODE)
    if finding.kind == PLUGIN:
        return Course(PLUGIN, Isolation.NODE, Leave.CARD)
    if contained(finding):
        return Course("card", Isolation.CARD, verb=Verb.RESET, cured_by_boot=True)
    if action in (Action.RESET, Action.DRAIN_AND_RESET, Action.ISOLATE_GPU) and not card:
        return Course("multi-gpu", Isolation.MULTI_GPU, cured_by_boot=True)
    if action is Action.RESET_WHEN_IDLE:  # a pending remap or repair: new work may begin on the card
        return Course("card", verb=Verb.RESET, cured_by_boot=True)
    if action in (Action.TICKET, Action.REPLACE):
        isolation = _OF_SCOPE.get(finding.scope, Isolation.NONE)
        return Course("card" if card and isolation is Isolation.CARD else _name(finding), isolation)
    if action is Action.CORDON:
        return Course(_name(finding), Isolation.NODE)
    if action in _BY_ACTION:
        return _BY_ACTION[action]
    if card and finding.kind == "xid":
        return Course("card", cured_by_boot=True)  # an observation; it is a reason of the card's incident like every other XID
    return Course(_name(finding))


def _name(finding: Finding) -> str:
    return f"{finding.kind}-{finding.code}" if finding.code else finding.kind


def contained(finding: Finding) -> bool:
    """A memory error that the hardware confined to one process: the card takes no new work, its neighbours go on, and it is reset when idle."""
    return (
        finding.blame is Blame.HARDWARE
        and Action.NOTIFY_OWNER in (finding.action, finding.also)
        and finding.entity.startswith(("gpu:", "mig:"))
    )


#: Actions from the least to the most, where findings of equal authority and severity differ.
_ORDER = (
    Action.NONE,
    Action.CLOSE_REASON,
    Action.REPORT,
    Action.WATCH,
    Action.READ_RECOVERY_ACTION,
    Action.VALIDATE,
    Action.RETEST,
    Action.RUN_DIAGNOSTICS,
    Action.LOAD_MODULE,
    Action.ACS_OFF,
    Action.RESTART_DEVICE_PLUGIN,
    Action.RESTART_FM,
    Action.RESET_WHEN_IDLE,
    Action.NOTIFY_OWNER,
    Action.ISOLATE_RAIL,
    Action.DRAIN_P2P,
    Action.MULTI_GPU_OFF,
    Action.ISOLATE_GPU,
    Action.DRAIN_AND_RESET,
    Action.RESET,
    Action.CORDON,
    Action.REBOOT,
    Action.TICKET,
    Action.REPLACE,
)
ORDER = {action: rank for rank, action in enumerate(_ORDER)}
#: Of NVIDIA's sources the card's own recovery action decides, then the line that reports it, then the catalogue.
_AUTHORITIES = ("nvidia-recovery-action", "nvidia-xid-154", "nvidia-xid-144-150-decode", "nvidia")


def authority_rank(finding: Finding) -> int:
    """Smaller decides. Only a finding that asks for something has a say; hopeless hardware, and a reset that failed, are above all."""
    if finding.action in (Action.REPLACE, Action.TICKET) or finding.kind == "reset":
        return -1
    if ORDER[finding.action] < ORDER[Action.RESET_WHEN_IDLE]:
        return len(_AUTHORITIES) + 1
    return next((rank for rank, prefix in enumerate(_AUTHORITIES) if finding.authority.startswith(prefix)), len(_AUTHORITIES))


def decides(finding: Finding) -> tuple[int, int, int]:
    """Sort key: the greatest of an incident's findings decides what is done."""
    return -authority_rank(finding), RANK[finding.severity], ORDER[finding.action]


def lasts(finding: Finding) -> bool:
    """Whether an incident is opened at all: what is known to be harmless, or the user's own, is not."""
    return RANK[finding.severity] >= RANK[Severity.UNKNOWN] and finding.action is not Action.NONE
