"""What this service reads of a node object: plain values, as the API server wrote them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node object. Quantities are as Kubernetes writes them; `taints` are (key, value, effect)."""

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    taints: tuple[tuple[str, str, str], ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str | float] = field(default_factory=dict)
    capacity: Mapping[str, str | float] = field(default_factory=dict)
