"""HBOX_PLANS: proposals of scheduler-core, answers of quota-ledger, and the feed of claims that keeps views current."""

from dataclasses import dataclass
from typing import ClassVar

from hbox_common.model import (
    CardRequest,
    CardSlice,
    Claim,
    ClaimId,
    Generation,
    Index,
    JobId,
    NodeName,
    PlanId,
    PodUid,
    QueueName,
    RefusalReason,
    Resources,
    SchedulerId,
)
from hbox_common.model.consolidation import MoveTerms

from .base import About, Event, SaidEpoch, SaidIndex, Stream, register


@dataclass(slots=True)
class Placement:
    """One pod on one node. `generation` is the node state that the scheduler saw."""

    pod_uid: PodUid
    pod: str
    resource_version: str
    node: NodeName
    generation: Generation
    slices: tuple[CardSlice, ...] = ()
    requests: int = 0  #: which of the plan's `requests`
    rank: int = -1  #: of the pod in its job; -1: not known
    #: which container gets which of `slices` (`devices.layout`), where that does not follow from what the pod asks for
    layout: str = ""
    volume_claims: tuple[str, ...] = ()  #: of the pod, to be bound to volumes before it (`PodRef.volume_claims`)


class Victim(Event):
    """A claim that has to end for a plan. With `to` its pod moves: this place and these cards are reserved for its successor."""

    claim: ClaimId
    pod_uid: PodUid
    to: NodeName = NodeName("")
    slices: tuple[CardSlice, ...] = ()
    gang: bool = False  #: of one that moves, as the next: whether its successor has to be of the same job
    cards: CardRequest | None = None  #: what it asks for, which its successor has to ask for too


class PlanDomain(Event):
    """A fabric domain that placements of a plan must be in. `version`: of the FabricChanged used for planning; a reader with a newer one uses that.
    `placements`: the plan's placements concerned; none: all."""

    fabric: str
    domain: str
    version: int
    placements: tuple[int, ...] = ()


class Plan(Event):
    """All of `placements` or nothing. `bound` of the gang's members had a node or a live claim already; with this plan they reach `min_member`.

    A plan with victims asks for their eviction and claims nothing: its placements show what becomes possible. They are proposed again, in a plan
    without victims, once the victims are gone. One that places nothing asks no more than that its victims leave, all of them of its own job.
    """

    id: PlanId
    job: JobId
    namespace: str
    name: str
    queue: QueueName
    priority: int
    min_member: int
    bound: int
    requests: tuple[Resources, ...]  #: of one pod; equal pods share one
    placements: tuple[Placement, ...]
    victims: tuple[Victim, ...] = ()
    preemptable: bool = True  #: of the job
    created_at: float = 0.0  #: of the job
    deadline_s: float = 60.0  #: from commit: what is not bound whole by then is unwound
    traceparent: str = ""
    succeeds: tuple[PodUid, ...] = ()  #: pods that moved, whose nominated places its own pods take
    domains: tuple[PlanDomain, ...] = ()  #: in which its pods have to be, as their job asks
    moves: MoveTerms | None = None  #: of victims that move: cost and gain of the moves; None: not stated by the writer


class HeldNomination(Event):
    """Nominated places for which victims leave, as the ledger keeps them from the commit of a plan with victims until they are used, given up, or `until`. No
    claim: they reduce no amount in the ledger's accounts."""

    scheduler: SchedulerId  #: whose plan it was
    plan: Plan  #: its placements are those without a claim yet
    models: tuple[Resources, ...]  #: of each placement: its cards, by model
    #: of the victims that move: the claims that reserve their places until their successors have claims
    moved: tuple[Claim, ...]
    until: float  #: in seconds since the epoch
    #: of each placement: in which pool it counts (`hbox_common.model.pools`); none: all in `pooled`
    pools: tuple[str, ...] = ()


class GivenUp(Event):
    """A cancelled nomination: the places of its job, and those reserved for victims that have not left. With `moved` only the places of the successors of these
    pods, which were never created."""

    plan: PlanId
    moved: tuple[PodUid, ...] = ()


@register
class PlansProposed(Event):
    """Plans based on a view of the ledger at index `seen` in the named epoch. Nominations in `given_up` end before the plans are judged."""

    about: ClassVar = About(
        "hbox.v1.plan.proposed.{scheduler}",
        Stream.PLANS,
        ("scheduler-core",),
        ("quota-ledger",),
        8 * 2**20,
        items=("plans",),
    )
    scheduler: SchedulerId
    epoch: SaidEpoch
    seen: SaidIndex
    plans: tuple[Plan, ...]
    given_up: tuple[GivenUp, ...] = ()


class PlanAnswer(Event):
    """The one answer to a plan, the same at every repetition. A rejection names the ledger index that explains it: the scheduler plans again on a view at least
    as new."""

    plan: PlanId
    job: JobId
    committed: bool
    reason: RefusalReason | None = None
    message: str = ""
    refresh: SaidIndex = Index(0)


@register
class PlansAnswered(Event):
    about: ClassVar = About(
        "hbox.v1.plan.result.{scheduler}", Stream.PLANS, ("quota-ledger",), ("scheduler-core",), 2 * 2**20, items=("answers",)
    )
    epoch: SaidEpoch
    index: SaidIndex
    answers: tuple[PlanAnswer, ...]


@register
class VictimsStayed(Event):
    """Victims that the API server does not let the binder evict now, for example because a disruption budget is used up. Their evictions are revoked, and the
    plans that depend on them are cancelled."""

    about: ClassVar = About("hbox.v1.claim.stayed.{shard}", Stream.PLANS, ("quota-ledger",), ("scheduler-core",), 2**20)
    epoch: SaidEpoch
    pods: tuple[PodUid, ...]


class Leaving(Event):
    """A victim whose eviction was accepted, and its grace period in seconds from then on."""

    pod_uid: PodUid
    grace_s: int


@register
class ClaimsChanged(Event):
    """Claims made, posted and voided in the transactions after `previous`, up to `index`. A reader whose view is not at `previous` requests a snapshot.

    Current nominations, ended nominations and leaving victims do not advance the index: they apply from their receipt."""

    about: ClassVar = About(
        "hbox.v1.claim.changed.{shard}",
        Stream.PLANS,
        ("quota-ledger",),
        ("scheduler-core", "console", "health-monitor"),
        8 * 2**20,
    )
    epoch: SaidEpoch
    previous: SaidIndex
    index: SaidIndex
    claims: tuple[Claim, ...]
    nominations: tuple[HeldNomination, ...] = ()
    ended: tuple[PlanId, ...] = ()
    leaving: tuple[Leaving, ...] = ()
