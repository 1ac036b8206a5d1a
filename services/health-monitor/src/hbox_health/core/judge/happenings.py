"""What the incident engine is given, and what it asks for."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from hbox_common.health.gatejob import JobOutcome
from hbox_common.health.report import Fact
from hbox_common.model import Incident, NodeName
from hbox_common.model.healthorder import Exemption
from hbox_common.model.remedy import Decision, Outcome, Verb

from .finding import Finding


class Policy(StrEnum):
    """What happens to a job on sick hardware (F3)."""

    RESTART = "restart"  #: the whole gang ends at the verdict and starts elsewhere
    CHECKPOINT = "checkpoint"  #: the gang gets notice and leaves after its checkpoint, at the latest at its deadline
    SHRINK = "shrink"  #: an elastic gang gives up the affected pods, down to its minimum
    IGNORE = "ignore"  #: the job stays until it ends


@dataclass(frozen=True, slots=True)
class PodOnCards:
    pod: str  #: namespace/name
    job: str  #: namespace/name of its job
    queue: str
    cards: tuple[str, ...]  #: entities: gpu:UUID, mig:UUID
    policy: Policy = Policy.RESTART
    deadline_s: float = 0.0  #: of `checkpoint`
    multi_node: bool = False  #: whether its gang is on more than one node, and the pod uses RDMA adapters
    uid: str = ""
    given: str = ""  #: resource of which the kubelet, not HBox, chose the cards; "": HBox chose them
    pids: tuple[int, ...] = ()  #: if known, a kernel record's pid selects the pod among those of its card


# --- events


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of one fact of a node.

    The findings replace those that `source` (a state, a burst of records) had before. A record of the kernel log is evidence of a moment: `record` identifies
    it within the boot, so that it counts once however often an agent reports it. Without a record the findings are of a state, which lasts until replaced.
    """

    node: NodeName
    boot_id: str
    findings: tuple[Finding, ...]
    source: str = ""
    record: str = ""
    wait_s: float | None = None  #: instead of the debounce of the rules: a code behind which XID 154 follows waits for that
    pid: int | None = None
    group: str = ""  #: what this and other nodes' findings have in common: the leaf of a port, the rail of a unit
    earlier_boot: bool = False  #: the record states that it is about the boot before
    read_at: float | None = None  #: when the agent read it, by its clock; decides nothing


@dataclass(frozen=True, slots=True)
class FactSeen:
    """A fact of a report; becomes a `Found`."""

    node: NodeName
    boot_id: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """A report of a node's agent."""

    node: NodeName
    boot_id: str
    heartbeat: bool = True  #: it has no facts. An agent that never sent such a report is not expected to report regularly


@dataclass(frozen=True, slots=True)
class NodeSeen:
    node: NodeName
    cards: tuple[str, ...] = ()  #: entities of its cards
    parents: dict[str, str] = field(default_factory=dict)  #: MIG instance -> its card
    refused: tuple[str, ...] = ()  #: cards that its device plugin reports as unhealthy
    offered: tuple[str, ...] | None = None  #: cards that its device plugin may hand out; None: unknown
    unit: str = ""  #: the group of nodes of which at most a share is cordoned
    labels: dict[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    ours: bool = False  #: the cordon bears health-monitor's name
    gone: bool = False


@dataclass(frozen=True, slots=True)
class JobsSeen:
    """All pods with cards of a node."""

    node: NodeName
    pods: tuple[PodOnCards, ...]
    known: tuple[str, ...] | None = None  #: cards whose users are known; None: all. A card that is not known counts as used


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job ended or was cancelled: its processes' last errors are no evidence."""

    job: str


@dataclass(frozen=True, slots=True)
class Remedied:
    node: NodeName
    entity: str
    verb: Verb
    outcome: Outcome
    holders: tuple[str, ...] = ()
    decision: str = ""  #: id of the decision; empty: of no decision of ours
    text: str = ""  #: names of the tests of a diagnosis that failed, or why it was skipped or refused


@dataclass(frozen=True, slots=True)
class JobObserved:
    """What became of a Job of a check."""

    node: NodeName
    job: str  #: id of the `GateJob`
    outcome: JobOutcome
    text: str = ""


@dataclass(frozen=True, slots=True)
class HoldersStopped:
    """The clients that held a card are stopped (False: they run again)."""

    node: NodeName
    entity: str
    stopped: bool = True


@dataclass(frozen=True, slots=True)
class Validated:
    node: NodeName
    entity: str  #: "node": everything on it
    passed: bool


@dataclass(frozen=True, slots=True)
class OperatorCloses:
    node: NodeName
    entity: str = ""  #: empty: all incidents of the node
    incident: str = ""  #: only the incident of this id


@dataclass(frozen=True, slots=True)
class OperatorAccepts:
    """The node is complete as it is, although its profile has more."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class Exempted:
    exemption: Exemption


@dataclass(frozen=True, slots=True)
class ExemptionEnds:
    id: str


@dataclass(frozen=True, slots=True)
class Maintenance:
    node: NodeName
    until: float  #: 0: ends now
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scopes:
    """What of a node may not be used."""

    cards: tuple[str, ...] = ()  #: entities
    rails_off: tuple[str, ...] = ()
    multi_gpu: bool = True
    multi_node: bool = True
    node: bool = True  #: whether new work may use the node at all
    incidents: tuple[str, ...] = ()
    ordered: bool = False  #: an operator's order closes the node


@dataclass(frozen=True, slots=True)
class VerdictSeen:
    """A verdict as its readers receive it from the stream."""

    node: NodeName
    scopes: Scopes


@dataclass(frozen=True, slots=True)
class Tick:
    pass


Event: TypeAlias = (
    Found
    | FactSeen
    | AgentSeen
    | NodeSeen
    | JobsSeen
    | JobEnded
    | Remedied
    | JobObserved
    | HoldersStopped
    | Validated
    | OperatorAccepts
    | OperatorCloses
    | Exempted
    | ExemptionEnds
    | Maintenance
    | VerdictSeen
    | Tick
)


# --- effects


@dataclass(frozen=True, slots=True)
class IncidentChanged:
    incident: Incident


@dataclass(frozen=True, slots=True)
class VerdictChanged:
    node: NodeName
    boot_id: str
    scopes: Scopes


@dataclass(frozen=True, slots=True)
class Cordon:
    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class EvictGang:
    """The gang leaves by its policy; `deadline` in the future: it has notice until then, and the effect is repeated at the deadline."""

    node: NodeName
    job: str
    cards: tuple[str, ...]  #: of the gang on this node that are affected
    policy: Policy
    incident: str
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class TellOwner:
    node: NodeName
    pod: str
    job: str
    card: str
    code: str
    text: str
    incident: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A verb to execute, valid for this boot of the node only."""

    node: NodeName
    boot_id: str
    incident: str
    entity: str
    verb: Verb
    attempt: int

    @property
    def decision(self) -> str:
        return Decision(self.incident, self.entity, self.verb, self.attempt, 0.0).id


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nodes that the breaker holds back, in the order in which they will be admitted."""

    nodes: tuple[NodeName, ...]


class Step(StrEnum):
    """What of an incident was measured (`timing.py`)."""

    DETECT = "detect"
    ISOLATE = "isolate"
    RETURN = "return"


@dataclass(frozen=True, slots=True)
class Measured:
    step: Step
    family: str  #: of the incident's kind
    seconds: float | None  #: None: the agent's clock is wrong


Effect: TypeAlias = IncidentChanged | VerdictChanged | Cordon | Uncordon | EvictGang | TellOwner | Remedy | Waiting | Measured
