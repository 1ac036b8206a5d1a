"""Requests that are answered with pages: how a newcomer gets a whole state at one moment."""

from enum import StrEnum
from typing import ClassVar

from hbox_common.model import (
    CardQuota,
    Claim,
    GroupState,
    Job,
    JobDemand,
    JobTerms,
    LeavingPod,
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
    """All live claims, please. `head`: only where the books stand, without any."""

    about: ClassVar = About("hbox.v1.rpc.ledger.claims", None, ("scheduler-core", "cli"), ("quota-ledger",))
    asker: str
    head: bool = False


@register
class EpochAsked(Event):
    """Which epoch is the ledger in, please: by its database, whoever of several ledgers answers."""

    about: ClassVar = About("hbox.v1.rpc.ledger.epoch", None, ("binder",), ("quota-ledger",))
    asker: str


@register
class EpochSaid(Event):
    about: ClassVar = About("hbox.v1.rpc.ledger.epoch-said", None, ("quota-ledger",), ("binder",))
    epoch: SaidEpoch


@register
class ClaimsPage(Event):
    """A page of the live claims as they were at `index`; the books may be `frozen` (no plan is accepted while they are), or plans be `held` for this
    reason. What is not claims is on the first pages, and goes on on the next where it is too much for one."""

    about: ClassVar = About(
        "hbox.v1.rpc.ledger.claims-page",
        None,
        ("quota-ledger",),
        ("scheduler-core", "cli"),
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
    """What usage may be summed up by."""

    DEPARTMENT = "department"  #: the topmost queue above the queue, as the tree stands now
    QUEUE = "queue"
    USER = "user"  #: the namespace of the pod
    MODEL = "model"
    HOUR = "hour"


@register
class UsageAsked(Event):
    """Card-seconds of the hours that begin in [since, until), please, by each combination of `by`. Seconds since the epoch; `until` 0 = now."""

    about: ClassVar = About("hbox.v1.rpc.ledger.usage", None, ("cli",), ("quota-ledger",))
    asker: str
    by: tuple[UsageKey, ...]
    since: int = 0
    until: int = 0


class Usage(Event):
    """Thousandths of card-seconds; what it is not summed up by is empty. Idle time belongs to a queue: it has neither user nor model."""

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
        "hbox.v1.rpc.ledger.usage-page", None, ("quota-ledger",), ("cli",), 2 * 2**20, items=("usage", "budgets")
    )
    usage: tuple[Usage, ...]
    budgets: tuple[Budget, ...] = ()  #: on the first page


@register
class JobsAsked(Event):
    """All jobs with a live pod, and all pods that have a node, please. `pods` and `verdicts` only where asked for; `ended`: also pods that ended lately;
    `terms`: of jobs with something to place, no more than what they are entitled to, or (`demand`) that and what they wait for. `gatekeeper`: the scheduler
    that asks; from the answer on nobody else's word lets PodGroups in. `placed`: also what pods ask for that have nodes. `held`: also jobs that are held back
    since their namespace has too many that wait: for people, not for who places them. `shard`: of jobs and PodGroups those of one shard alone; empty = all."""

    about: ClassVar = About("hbox.v1.rpc.jobs.list", None, ("scheduler-core", "quota-ledger", "cli"), ("job-controller",))
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


@register
class JobsPage(Event):
    """A page of what job-controller's caches hold; `complete` says that they were filled from the API before, and that its view of pods is not old:
    `age_s` ago it was proven to be complete, up to `resource_version`. `why`: what is wrong with it. `shard`: of its jobs, terms, demand and groups."""

    about: ClassVar = About(
        "hbox.v1.rpc.jobs.page",
        None,
        ("job-controller",),
        ("scheduler-core", "quota-ledger", "cli"),
        8 * 2**20,
        items=("neighbours", "groups", "jobs", "pods", "verdicts", "terms", "demand", "placed", "leaving"),
    )
    complete: bool
    jobs: tuple[Job, ...] = ()
    pods: tuple[PodFact, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()  #: where jobs were asked for
    priority_classes: dict[str, int] | None = None  #: values by name, on one page where jobs were asked for
    namespaces: dict[str, dict[str, str]] | None = None  #: labels that wishes ask about, on that page too
    groups: tuple[GroupState, ...] = ()  #: PodGroups with a minimum of resources, where jobs were asked for
    terms: tuple[JobTerms, ...] = ()
    demand: tuple[JobDemand, ...] = ()  #: in the place of `terms`
    #: jobs with those of their pods as `tasks` that have nodes: what they ask for, claims do not tell
    placed: tuple[Job, ...] = ()
    leaving: tuple[LeavingPod, ...] = ()  #: where pods were asked for
    resource_version: str = ""
    age_s: float = 0.0
    why: str = ""
    shard: str = ONE_SHARD


#: Pods in one question.
MOST_PODS_READ = 500


class PodAsked(Event):
    """One pod, by what cannot come back and by where it is to be found."""

    uid: PodUid
    namespace: str
    name: str


@register
class PodsAsked(Event):
    """What became of these pods, by a consistent read of each at the API server, please. At most MOST_PODS_READ."""

    about: ClassVar = About("hbox.v1.rpc.pods.read", None, ("quota-ledger",), ("binder",))
    asker: str
    pods: tuple[PodAsked, ...]


class PodStanding(StrEnum):
    """What a consistent read of a pod by its uid says."""

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
    """A page of the answer, one entry a pod that was asked for."""

    about: ClassVar = About("hbox.v1.rpc.pods.page", None, ("binder",), ("quota-ledger",), items=("pods",))
    pods: tuple[PodRead, ...]
