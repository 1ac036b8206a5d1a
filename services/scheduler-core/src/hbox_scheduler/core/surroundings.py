"""What sessions see of the cluster beside its nodes, its pods and the rules of its queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.model import CardRequest, HyperNode, NodeUsage, QueueName, ResourceQuota


@dataclass(slots=True)
class Surroundings:
    """As it was told last. What is not told by anybody is empty."""

    hypernodes: list[HyperNode] = field(default_factory=list)  #: the fabric
    priority_classes: Mapping[str, int] = field(default_factory=dict)  #: values by name
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: those that wishes ask about
    quotas: Sequence[ResourceQuota] = ()  #: of namespaces
    usage: Sequence[NodeUsage] = ()  #: what nodes really use
    recent_cards: dict[QueueName, float] = field(
        default_factory=dict
    )  #: what queues, with all below them, used on average of late
    demand: Mapping[CardRequest, float] = field(default_factory=dict)  #: cards asked for so far, by what is asked of each
    wall: float = 0.0  #: what time it is, in seconds since the epoch
