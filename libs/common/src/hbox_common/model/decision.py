"""Decisions that gave a job its places: scheduler-core records them; `hbox why --placed`, `hbox simulate replay` and the API render them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .ids import JobId, NodeName, PlanId


@dataclass(frozen=True, slots=True)
class Scored:
    """A node and its score; `terms` by plugin add up to it."""

    node: NodeName
    total: float
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """Pods of one plan on one node. `chosen`: None if no scores are kept, for the reason `why`; else `why` states why the runner-up lost."""

    node: NodeName
    pods: Sequence[str]
    chosen: Scored | None
    runner_up: Scored | None
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One plan that gave places. `at`: seconds since the epoch; `policy`: by which it was decided; `made_room`: the plan that evicted `victims` pods for it."""

    plan: PlanId
    job: JobId
    at: float
    policy: str
    nodes: Sequence[NodeDecision]
    made_room: PlanId | None = None
    victims: int = 0
