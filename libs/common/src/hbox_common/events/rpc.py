"""Requests answered with pages: how a new reader gets a complete state at one moment."""

from enum import StrEnum
from typing import ClassVar

from hbox_common.model import (
    CardQuota,
    Claim,
    GroupState,
    Job,
    JobDemand,
    JobTerms,
    JobWait,
    LeavingPod,
    MissingPods,
    Neighbour,
    NodeName,
    PodFact,
    PodUid,
    Queue,
    QueueName,
    Resources,
    SchedulerId,
)
from hbox_common.model.shards import ONE_SHARD

from .base import About, Event, SaidEpoch, SaidIndex, register
from .jobs import Verdict
from .plans import HeldNomination


@register
class ClaimsAsked(Event):
    """Requests all live claims. `head`: only the ledger's index, without claims."""

    about: ClassVar = About(
        "hbox.v1.rpc.ledger.claims", None, ("scheduler-core", "cli", "console", "health-monitor"), ("quota-ledger",)
    )
    asker: str
    head: bool = False


@register
class EpochAsked(Event):
    """Requests the ledger's epoch according to its database, from whichever ledger process answers."""

    about: ClassVar = About("hbox.v1.rpc.ledger.epoch", None, ("binder",), ("quota-ledger",))
    asker: str


@register
class EpochSaid(Event):
    about: ClassVar = About("hbox.v1.rpc.ledger.epoch-said", None, ("quota-ledger",), ("binder",))
    epoch: SaidEpoch


@register
class ClaimsPage(Event):
    """A page of the live claims at `index`; the ledger may be `frozen` (it accepts no plans), or plans may be `held` for this reason. Data other than claims is
    on the first pages, continued on the next if it is too large for one."""

    about: ClassVar = About(
        "hbox.v1.rpc.ledger.claims-page",
        None,
        ("quota-ledger",),
        ("scheduler-core", "cli", "console", "health-monitor"),
        4 * 2**20,
        items=("queues", "used", "quotas", "nominations", "claims"),
    )
    epoch: SaidEpoch
    index: SaidIndex
    frozen: bool
    claims: tuple[Claim, ...]
    queues: tuple[Queue, ...] = ()
    used: dict[str, Resources] = {}  #: by queue
    quotas: tuple[CardQuota, ...] = ()  #: what ResourceQuotas say of cards
    nominations: tuple[HeldNomination, ...] = ()
    held: str = ""
    shares: dict[str, Resources] = {}  #: by queue, of what there is by weight, where weights count
    paused: str = ""  #: of the head: why plans that take from others are refused now (`EvictionsPaused`)
    released: str = ""  #: of the head: with which word they were released last


class UsageKey(StrEnum):
    """Dimensions for sums of usage."""

    DEPARTMENT = "department"  #: the topmost ancestor of the queue in the present tree
    QUEUE = "queue"
    USER = "user"  #: the namespace of the pod
    MODEL = "model"
    HOUR = "hour"


@register
class UsageAsked(Event):
    """Requests card-seconds of the hours that begin in [since, until), by each combination of `by`. Seconds since the epoch; `until` 0 = now."""

    about: ClassVar = About("hbox.v1.rpc.ledger.usage", None, ("cli", "console"), ("quota-ledger",))
    asker: str
    by: tuple[UsageKey, ...]
    since: int = 0
    until: int = 0


class Usage(Event):
    """Thousandths of card-seconds; dimensions not requested are empty. Idle time belongs to a queue: it has neither user nor model."""

    department: QueueName = QueueName("")
    queue: QueueName = QueueName("")
    user: str = ""
    model: str = ""
    hour: int = 0  #: its first second, since the epoch
    own: int
    borrowed: int
    idle: int


class Budget(Event):
    """A queue's budget of the month that began at `month`."""

    queue: QueueName
    card_hours: int
    spent: int  #: thousandths of card-seconds
    month: int


@register
class UsagePage(Event):
    """A page of the usage accounts as they were when asked."""

    about: ClassVar = About(
        "hbox.v1.rpc.ledger.usage-page", None, ("quota-ledger",), ("cli", "console"), 2 * 2**20, items=("usage", "budgets")
    )
    usage: tuple[Usage, ...]
    budgets: tuple[Budget, ...] = ()  #: on the first page


@register
class JobsAsked(Event):
    """Requests all jobs with a live pod, and all pods on nodes. `pods` and `verdicts` only on request; `ended`: also recently ended pods; `terms`: of jobs with
    pods to place, only their entitlements, or (`demand`) these and their demand. `gatekeeper`: the requesting scheduler; from the answer on only this scheduler
    admits PodGroups. `placed`: also the requests of pods on nodes. `held`: also jobs held back because their namespace has too many pending ones: for display,
    not for scheduling. `waits`: also their waiting by code. `shard`: only jobs and PodGroups of this shard; empty = all. `complete`, `computed`: if the
    pages would not be complete or computed, the answer is one empty page, since a list of all pods that the requester discards costs seconds."""

    about: ClassVar = About(
        "hbox.v1.rpc.jobs.list", None, ("scheduler-core", "quota-ledger", "cli", "console"), ("job-controller",)
    )
    asker: str
    jobs: bool = True
    pods: bool = False
    verdicts: bool = False
    ended: bool = False
    terms: bool = False
    demand: bool = False
    gatekeeper: SchedulerId = SchedulerId("")
    placed: bool = False
    held: bool = False
    shard: str = ""
    waits: bool = False
    complete: bool = False
    computed: bool = False


@register
class JobsPage(Event):
    """A page of job-controller's caches; `complete`: they were filled from the API, and its view of pods is fresh: it was proven complete `age_s` seconds ago,
    up to `resource_version`. `why`: the fault, if not. `shard`: of its jobs, terms, demand and groups. `computed`: no job is missing; for a moment after
    job-controller's start some are, which messages announce only where they have pods to place."""

    about: ClassVar = About(
        "hbox.v1.rpc.jobs.page",
        None,
        ("job-controller",),
        ("scheduler-core", "quota-ledger", "cli", "console"),
        8 * 2**20,
        items=("neighbours", "groups", "missing", "jobs", "pods", "verdicts", "terms", "demand", "placed", "leaving", "waits"),
    )
    complete: bool
    jobs: tuple[Job, ...] = ()
    pods: tuple[PodFact, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()  #: where jobs were asked for
    priority_classes: dict[str, int] | None = None  #: values by name, on one page where jobs were asked for
    namespaces: dict[str, dict[str, str]] | None = None  #: labels that wishes ask about, on that page too
    groups: tuple[GroupState, ...] = ()  #: PodGroups with a minimum of resources, where jobs were asked for
    missing: tuple[MissingPods, ...] = ()  #: workloads with missing pods, where jobs were asked for
    terms: tuple[JobTerms, ...] = ()
    demand: tuple[JobDemand, ...] = ()  #: in the place of `terms`
    #: jobs whose `tasks` are the pods on nodes: claims do not contain their requests
    placed: tuple[Job, ...] = ()
    leaving: tuple[LeavingPod, ...] = ()  #: where pods were asked for
    resource_version: str = ""
    age_s: float = 0.0
    why: str = ""
    shard: str = ONE_SHARD
    waits: tuple[JobWait, ...] = ()
    computed: bool = True


#: Pods in one question.
MOST_PODS_READ = 500


class PodAsked(Event):
    """One pod, by its uid, which is never reused, and its namespace and name."""

    uid: PodUid
    namespace: str
    name: str


@register
class PodsAsked(Event):
    """Requests the state of these pods by a consistent read of each at the API server. At most MOST_PODS_READ."""

    about: ClassVar = About("hbox.v1.rpc.pods.read", None, ("quota-ledger",), ("binder",))
    asker: str
    pods: tuple[PodAsked, ...]


class PodStanding(StrEnum):
    """Result of a consistent read of a pod by its uid."""

    HOLDS = "holds"  #: it is there, and has not ended
    ENDED = "ended"  #: it is there, and Succeeded or Failed
    GONE = "gone"  #: there is no such pod, or one of another uid in its place: that uid never comes back
    UNKNOWN = "unknown"  #: it could not be read, which is evidence of nothing


class PodRead(Event):
    uid: PodUid
    standing: PodStanding
    node: NodeName = NodeName("")  #: of a pod that is there
    message: str = ""


@register
class PodsRead(Event):
    """A page of the answer, one entry per requested pod."""

    about: ClassVar = About("hbox.v1.rpc.pods.page", None, ("binder",), ("quota-ledger",), items=("pods",))
    pods: tuple[PodRead, ...]
