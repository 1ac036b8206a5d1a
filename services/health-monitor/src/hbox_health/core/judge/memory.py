"""What the engine remembers: plain values, so that a store can keep them. `Memory.nodes` holds one entry per node; a step names the nodes that it changed."""

from dataclasses import dataclass, field

from hbox_common.health.report import Value
from hbox_common.model import GateStep, Incident, IncidentState, StepResult
from hbox_common.model.healthorder import Exemption

from .blame import Blame
from .breaker import Breaker
from .finding import Finding
from .happenings import Found, PodOnCards, Remedy, Scopes

MOST_EVIDENCE, MOST_RECORDS, MOST_BOOTS, MOST_BURST = 16, 4096, 16, 64
#: Attempts at active steps of checks that an incident keeps.
MOST_ATTEMPTS = 16
#: Decisions on remedies of a node whose results are known to have been counted.
MOST_DECISIONS = 64


@dataclass(slots=True)
class Reason:
    finding: Finding
    since: float
    last: float
    wait_s: float
    source: str = ""
    state: bool = False  #: lasts until its source reports otherwise; else evidence of a moment
    group: str = ""
    ended: float | None = None  #: a state that is good again since then
    confirmed: bool = False  #: it lasted for its debounce
    cured: bool = False  #: a repair should have ended it; a check has to confirm that


@dataclass(slots=True)
class Step:
    """An active step of the check after the last repair (`gate.py`)."""

    name: str
    result: StepResult = StepResult.WAITING
    attempt: int = 0  #: of the step for this incident, over all its repairs; it names the decision
    tries: int = 0  #: attempts that failed since the repair
    at: float = 0.0  #: of the result, or of the beginning
    text: str = ""
    begun: bool = False  #: its executor has answered
    retry_at: float = 0.0
    deadline_s: int = 0  #: of a Job
    cards: list[str] = field(default_factory=list)  #: UUIDs of the cards that a Job is about


@dataclass(slots=True)
class Open:
    """An incident that is not closed."""

    id: str
    entity: str
    kind: str
    opened: float
    read_at: float | None = None  #: when the agent read its first evidence, by its clock
    detected: bool = False  #: it has been confirmed; the time until then was measured
    reasons: dict[str, Reason] = field(default_factory=dict)
    cards: list[str] = field(default_factory=list)  #: entities that it takes out of use
    state: IncidentState = IncidentState.SUSPECT
    changed: float = 0.0
    action: str = ""
    action_done: str = ""
    attempts: int = 0
    failures: int = 0
    asked_at: float = 0.0  #: when the remedy was requested last
    remedy: Remedy | None = None  #: requested, and without a result
    begun: bool = False  #: it has begun
    withdrawn: bool = (
        False  #: it must not begin now: its verb was disabled, or an exemption, a hand or a maintenance holds it back
    )
    retry_at: float = 0.0  #: a refused remedy is requested again
    ticket: str = ""  #: why only hands help
    next_step: str = ""  #: what a hand has to do, since no remedy of ours does it
    holders: list[str] = field(default_factory=list)
    validated_from: float = 0.0
    checks: list[str] = field(default_factory=list)  #: results of the check after the last repair
    steps: list[Step] = field(default_factory=list)  #: of that check
    attempted: list[GateStep] = field(default_factory=list)  #: attempts at steps that ended, also after earlier repairs
    counts: dict[str, int] = field(default_factory=dict)  #: attempts by step
    evicted: dict[str, float] = field(default_factory=dict)  #: job -> deadline of its notice; 0: evicted
    leaving: list[str] = field(default_factory=list)  #: cards that pods have to leave now
    leaving_jobs: list[str] = field(default_factory=list)  #: jobs that have to leave, if only they do: the cards are not sick
    notified: list[str] = field(default_factory=list)  #: pods whose owners were informed
    part_of: str = ""  #: id of the incident that covers it; then it is not published
    held_by: list[str] = field(default_factory=list)
    published: Incident | None = None


@dataclass(slots=True)
class Timed:
    """An incident that took something out of use which has not returned."""

    kind: str
    blame: str
    parts: list[str]  #: cards, adapters, `multi-gpu`, `node`
    since: float
    isolated: bool = False


@dataclass(slots=True)
class Burst:
    begun: float
    last: float
    records: list[dict[str, Value]] = field(default_factory=list)


@dataclass(slots=True)
class JobFault:
    at: float
    finding: Finding
    pid: int | None
    job: str = ""


@dataclass(slots=True)
class Counted:
    """What the node's agent counted since the boot."""

    cards: list[str] | None = None  #: entities of the cards that NVML lists and that answer; None: not read yet
    count: int = 0  #: of cards that NVML lists, lost ones included
    links: dict[str, int | None] = field(default_factory=dict)  #: card -> active NVLinks; None: MIG, or unknown
    ports: list[str] = field(default_factory=list)  #: compute ports in any state
    model: str = ""  #: of a card
    since: float | None = None


@dataclass(slots=True)
class Parts:
    """What the node had, over its boots (`inventory`)."""

    cards: dict[str, str] = field(default_factory=dict)  #: uuid -> PCI address; "": unknown
    links: dict[str, int] = field(default_factory=dict)  #: uuid -> most NVLinks that were active
    ports: dict[str, str] = field(default_factory=dict)  #: entity of a compute port -> PCI address
    removed: list[str] = field(default_factory=list)  #: uuids of cards without which an operator accepted the node


@dataclass(slots=True)
class Expected:
    """What a node of its profile has; None: unknown."""

    profile: str
    cards: int | None
    links: int | None  #: of each card
    ports: int | None


@dataclass(slots=True)
class NodeMemory:
    boot_id: str = ""
    seq: int = 0  #: of the newest fact of this boot; facts count once
    earlier_boots: list[str] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)
    unit: str = ""
    driver: int | None = None  #: major version
    labels: dict[str, str] = field(default_factory=dict)
    counted: Counted = field(default_factory=Counted)
    parts: Parts = field(default_factory=Parts)
    reads_cards: bool = False  #: whether the agent has ever listed cards
    expected: Expected | None = None  #: until it is accepted
    gated: bool = False  #: the check before its first work was begun
    accepted: int | None = None  #: number of cards with which the node joined, or an operator accepted it
    unschedulable: bool = False
    ours: bool = False
    ordered: bool = False  #: an operator's order closed the node, until it is open again or has another reason to be closed
    asked: str = ""  #: cordon | uncordon, not yet observed
    asked_at: float = 0.0
    agent_seen: float | None = None  #: None: its agent sends no heartbeats. Stored when it becomes known, not with each report
    pods: list[PodOnCards] = field(default_factory=list)
    known: list[str] | None = field(default_factory=list)  #: cards whose users are known; None: all
    offered: list[str] | None = None  #: cards that the device plugin may hand out; None: unknown
    pods_seen: dict[str, float] = field(default_factory=dict)  #: uid of a pod of `pods` -> when it was first seen; 0: unknown
    cards_out: dict[str, float] = field(default_factory=dict)  #: card out of use -> since when
    sick_allocations: dict[str, str] = field(
        default_factory=dict
    )  #: card that the plugin handed out although it was out of use -> its resource
    refused: list[str] = field(default_factory=list)  #: cards that the device plugin does not hand out
    parents: dict[str, str] = field(default_factory=dict)  #: MIG instance -> its card
    resetting: dict[str, float] = field(default_factory=dict)  #: card -> until when its errors are those of a reset
    records: dict[str, None] = field(default_factory=dict)  #: of this boot
    bursts: dict[str, Burst] = field(default_factory=dict)  #: card -> the kernel's newest records about it
    open: dict[str, Open] = field(default_factory=dict)  #: by entity and kind
    faults: list[JobFault] = field(
        default_factory=list
    )  #: of jobs that are not known yet, or that may turn out to fault everywhere
    held: dict[str, Found] = field(default_factory=dict)  #: states that a mute, a maintenance or a reset of ours keeps back
    mutes: dict[str, float] = field(default_factory=dict)
    maintenance_until: float = 0.0
    repairs: list[tuple[float, str, str]] = field(default_factory=list)  #: (when, verb, card)
    decisions: dict[str, str] = field(
        default_factory=dict
    )  #: ids of the newest decisions on remedies -> their last outcome; "": none yet
    flaps: dict[str, list[float]] = field(default_factory=dict)
    closed_cards: dict[str, float] = field(default_factory=dict)  #: card -> when our last incident of it closed
    timed: dict[str, Timed] = field(default_factory=dict)  #: by id of the incident
    verdict: Scopes = field(default_factory=Scopes)
    count: int = 0  #: of incidents, for their ids


@dataclass(slots=True)
class Group:
    """What several nodes share: a leaf, a rail of a unit, the control plane. More members than allowed are one incident."""

    members: dict[str, float] = field(default_factory=dict)  #: node -> since
    incident: Open | None = None
    below_since: float | None = None


@dataclass(slots=True)
class Memory:
    nodes: dict[str, NodeMemory] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    breaker: Breaker = field(default_factory=Breaker)
    blame: Blame = field(default_factory=Blame)
    exemptions: list[Exemption] = field(default_factory=list)
    jobs: dict[str, Open] = field(default_factory=dict)  #: incidents of jobs
    ended_jobs: dict[str, float] = field(default_factory=dict)
    count: int = 0
