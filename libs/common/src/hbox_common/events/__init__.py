"""Messages of the bus: their types, subjects and bytes."""

from .base import REGISTRY, About, Event, Stream, shard_of, token_of
from .codec import CONTENT_TYPE, MESSAGE_ID, TRACEPARENT, decode, encode, halves, headers
from .decisions import (
    Bind,
    BindDecided,
    BindOutcome,
    Evict,
    EvictDecided,
    EvictKind,
    NodeAction,
    NodeDecided,
    NodeObserved,
    NodeOutcome,
    Outcome,
    OutcomesObserved,
)
from .jobs import JobsAdmitted, JobsPending, JobsWaiting, JobsWithdrawn, PodsObserved
from .jobs import Verdict as JobVerdict
from .plans import ClaimsChanged, Placement, Plan, PlanAnswer, PlansAnswered, PlansProposed, Victim, VictimsStayed
from .public import BudgetUsed, DeadLetter, HealthChanged, JobPhase, JobPhaseChanged, QueueRefused
from .rpc import (
    MOST_PODS_READ,
    Budget,
    ClaimsAsked,
    ClaimsPage,
    JobsAsked,
    JobsPage,
    PodAsked,
    PodRead,
    PodsAsked,
    PodsRead,
    PodStanding,
    Usage,
    UsageAsked,
    UsageKey,
    UsagePage,
)
from .state import (
    COUNT_SHARDS,
    QUOTA_SHARDS,
    CardQuotasChanged,
    FabricChanged,
    GroupCounts,
    HealthVerdict,
    NamespaceQuotasChanged,
    NodesMeasured,
    NodeStateChanged,
    PodGroupsCounted,
    PolicyFollowed,
    QueueStateChanged,
)

__all__ = [
    "CONTENT_TYPE", "COUNT_SHARDS", "MESSAGE_ID", "MOST_PODS_READ", "QUOTA_SHARDS",
    "REGISTRY", "TRACEPARENT", "About", "Bind", "BindDecided", "BindOutcome", "Budget", "BudgetUsed",
    "CardQuotasChanged", "ClaimsAsked", "ClaimsChanged", "ClaimsPage", "DeadLetter", "Event", "Evict", "EvictDecided", "EvictKind", "FabricChanged",
    "GroupCounts", "HealthChanged", "HealthVerdict", "JobPhase", "JobPhaseChanged", "JobVerdict", "JobsAdmitted", "JobsAsked", "JobsPage", "JobsPending",
    "JobsWaiting", "JobsWithdrawn", "NamespaceQuotasChanged",
    "NodeAction", "NodeDecided", "NodeObserved", "NodeOutcome", "NodeStateChanged", "NodesMeasured", "Outcome",
    "OutcomesObserved", "Placement", "Plan", "PlanAnswer", "PlansAnswered", "PlansProposed", "PodAsked", "PodGroupsCounted", "PodRead", "PodStanding",
    "PodsAsked", "PodsObserved", "PodsRead", "PolicyFollowed",
    "QueueRefused", "QueueStateChanged", "Stream", "Usage", "UsageAsked", "UsageKey", "UsagePage", "Victim", "VictimsStayed", "decode", "encode", "halves",
    "headers",
    "shard_of", "token_of",
]  # fmt: skip
