"""The nouns of HBox: pure values, shared by every service, with no I/O and no library behind them."""

from .cardmodels import cards_by_model, cards_in, is_model, judged, model_of, model_resource, models_on, named_models
from .cardquota import CARD_LIMITS, CardQuota, CardQuotas, charge, charge_all
from .claim import CardBooks, Claim, ClaimState, NodeBooks, Refusal, RefusalReason, validate_claim
from .devices import Card, CardRequest, CardSlice, format_slices, parse_slices
from .group import GroupPhase, GroupState
from .holding import cards_held
from .hostports import HostPort, is_host_port, port_amounts
from .ids import (
    DEFAULT_QUEUE,
    SCHEDULER_NAME,
    ClaimId,
    DecisionId,
    Epoch,
    Generation,
    Index,
    JobId,
    NodeName,
    PlanId,
    PodUid,
    QueueName,
    SchedulerId,
)
from .job import (
    Job,
    Match,
    MatchOperator,
    NodeTerm,
    PodFact,
    PodPhase,
    PodRef,
    PreferredTerm,
    TaskSpec,
    Toleration,
    TolerationOperator,
)
from .lending import Held, Lending
from .node import NodeState, NodeUsage, Taint, TaintEffect, Verdict, usage_of
from .pools import POOL, POOLED, POOLS, PUBLIC, Pools, may_use, pool_of
from .queue import Queue, QueuePhase
from .queuefaults import faults
from .queuetree import ROOT_QUEUE, QueueTree, Room
from .quota import ResourceQuota
from .resources import Resources, capacity_units, parse_quantity, quantity, request_units
from .schedulers import scheduler_names
from .topology import HyperNode, SubGangPolicy, TopologyMode, TopologyWish
from .wishes import NO_WISHES, Neighbour, PodTerm, Selector, Spread, WeightedTerm, Wishes, selects

__all__ = [
    "CARD_LIMITS", "DEFAULT_QUEUE", "NO_WISHES", "POOL", "POOLED", "POOLS", "PUBLIC", "ROOT_QUEUE", "SCHEDULER_NAME", "Card", "CardBooks", "CardQuota",
    "CardQuotas", "CardRequest", "CardSlice", "Claim", "ClaimId", "ClaimState", "DecisionId", "Epoch", "Generation", "GroupPhase", "GroupState", "Held",
    "HostPort", "HyperNode", "Index", "Job", "JobId", "Lending", "Match", "MatchOperator", "Neighbour", "NodeBooks", "NodeName", "NodeState", "NodeTerm",
    "NodeUsage", "PlanId", "PodFact", "PodPhase", "PodRef", "PodTerm", "PodUid", "Pools", "PreferredTerm", "Queue", "QueueName", "QueuePhase",
    "QueueTree", "Refusal", "RefusalReason", "ResourceQuota", "Resources", "Room", "SchedulerId", "Selector", "Spread", "SubGangPolicy", "Taint",
    "TaintEffect", "TaskSpec", "Toleration", "TolerationOperator", "TopologyMode", "TopologyWish", "Verdict", "WeightedTerm", "Wishes", "capacity_units",
    "cards_by_model", "cards_held", "cards_in", "charge", "charge_all", "faults", "format_slices", "is_host_port", "is_model", "judged", "may_use",
    "model_of", "model_resource", "models_on", "named_models", "parse_quantity", "parse_slices", "pool_of", "port_amounts", "quantity", "request_units",
    "scheduler_names", "selects", "usage_of", "validate_claim",
]  # fmt: skip
