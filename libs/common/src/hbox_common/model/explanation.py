"""Why a job waits, as one object: scheduler-core produces it; CLI, conditions, Events, bus and API render it (`hbox_common.reasons`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from .ids import JobId, NodeName, QueueName

#: Maximum names of nodes that an explanation lists for one code.
MAX_NODE_NAMES = 20

#: A value of a text's placeholder: a count, an amount in the unit that the placeholder's name states, a name, or names.
Fact = int | float | str | Sequence[str]


class Outcome(StrEnum):
    """What ends the wait."""

    WAIT = "wait"  #: time: other jobs end, cards are reclaimed, a node returns by itself
    CHANGE = "change"  #: a change of the job or of its queue: no wait helps
    ESCALATE = "escalate"  #: an operator: cordoned, faulty or absent nodes are in the way


class Owner(StrEnum):
    """Who acts next."""

    USER = "user"
    QUEUE_ADMIN = "queue-admin"
    OPERATOR = "operator"
    SYSTEM = "system"


class Stage(StrEnum):
    """The stages of a decision, in the order in which the platform applies them."""

    SPEC = "spec"
    HOLD = "hold"
    QUOTA = "quota"
    ORDER = "order"
    GANG = "gang"
    TOPOLOGY = "topology"
    NODE = "node"
    DEVICE = "device"
    RECLAIM = "reclaim"
    BIND = "bind"
    EXTERNAL = "external"


class ChangeKind(StrEnum):
    """What a proposed change alters."""

    PODS = "pods"  #: fewer pods
    CARDS = "cards"  #: fewer cards per pod
    RESOURCES = "resources"  #: less of another resource per pod
    MODEL = "model"  #: another card model
    TIER = "tier"  #: a wider topology domain, or a preferred one instead of a required one
    SELECTOR = "selector"  #: another value of a node label
    QUEUE = "queue"  #: another queue that the user may use
    LIMIT = "limit"  #: a higher limit or deserved share of the queue
    PRIORITY = "priority"  #: another PriorityClass
    WALLTIME = "walltime"  #: a shorter time limit
    NODES = "nodes"  #: uncordon or repair nodes
    MOVES = "moves"  #: move running pods


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage: passed where `code` is empty. `facts` fill the placeholders of the code's text."""

    stage: Stage
    code: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Nodes by code, before any of the gang's own pods is placed. `first` counts each node once, by the first rule that it fails, and sums to
    `total - fitting`; `only` counts nodes that fail this rule alone; `names` lists at most MAX_NODE_NAMES nodes of a code."""

    total: int = 0
    fitting: int = 0
    first: Mapping[str, int] = field(default_factory=dict)
    only: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, Sequence[NodeName]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A change by which, alone, the job starts in the state at `Explanation.at`: verified by the engine, not reserved. `command`: how to make it; "" = there is
    no command. `facts` fill the placeholders of the kind's text. `also`: changes that have to be made with it, of a pair."""

    kind: ChangeKind
    owner: Owner
    facts: Mapping[str, Fact]
    command: str = ""
    also: "Sequence[Change]" = ()


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Seconds from `Explanation.at` until the job starts, median and 90th percentile. `driver`: the event that the estimate depends on."""

    p50_s: float
    p90_s: float
    method: str
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one job waits.

    `code`: key of the catalogue (`hbox_common.reasons.CODES`). `need`, `have`: amounts by unit name, such as `cards`, `pods`, `cpu`: what one pod or the gang
    requests, and the largest amount that can be had. `since`, `at`: seconds since the epoch. `revision`: the ledger's index of the examined state;
    0 = unknown, as long as the ledger compares its claims with Kubernetes. `position`: 1 = first of its queue; 0 = unknown. `attribution`: seconds of waiting
    by code.
    """

    job: JobId
    name: str  #: namespace/name
    queue: QueueName
    outcome: Outcome
    code: str
    owner: Owner
    at: float
    revision: int
    since: float = 0.0
    facts: Mapping[str, Fact] = field(default_factory=dict)
    need: Mapping[str, float] = field(default_factory=dict)
    have: Mapping[str, float] = field(default_factory=dict)
    position: int = 0
    queued: int = 0  #: jobs that wait in the queue
    stages: Sequence[StageResult] = ()
    nodes: NodeCounts = field(default_factory=NodeCounts)
    changes: Sequence[Change] = ()
    start: StartEstimate | None = None
    attribution: Mapping[str, float] = field(default_factory=dict)
