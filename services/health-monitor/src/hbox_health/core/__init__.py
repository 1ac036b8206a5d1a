"""What health-monitor decides, with no I/O: verdicts on nodes, and which nodes are closed."""

from .faults import NODE_CONDITIONS, Fault, FaultKind, Rules, faults_of
from .monitor import (
    OWNER,
    Breaker,
    Decide,
    Effect,
    Event,
    Monitor,
    NodeSeen,
    Publish,
    Retire,
    Synced,
    Ticked,
    VerdictHeard,
    VerdictsLost,
)
from .scopes import Judged, Scopes

__all__ = [
    "NODE_CONDITIONS",
    "OWNER",
    "Breaker",
    "Decide",
    "Effect",
    "Event",
    "Fault",
    "FaultKind",
    "Judged",
    "Monitor",
    "NodeSeen",
    "Publish",
    "Retire",
    "Rules",
    "Scopes",
    "Synced",
    "Ticked",
    "VerdictHeard",
    "VerdictsLost",
    "faults_of",
]
