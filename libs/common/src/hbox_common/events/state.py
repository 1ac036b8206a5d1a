"""HBOX_STATE: the last value of every node, verdict and queue. A newcomer replays the last message of each subject and is up to date."""

from typing import ClassVar

from pydantic import Field

from hbox_common.model import (
    CardQuota,
    ClassQuota,
    FabricGap,
    HeldImage,
    HyperNode,
    Index,
    NodeDevices,
    NodeName,
    NodeNuma,
    NodeRest,
    NodeState,
    NodeUsage,
    NodeZones,
    PodBudget,
    Queue,
    QueueName,
    RanFor,
    ResourceQuota,
    Resources,
    Verdict,
)

from .base import About, Event, SaidEpoch, SaidIndex, Stream, register

#: Parts in which states are said that grow with what tenants make: one message of each would be too large in a large cluster.
QUOTA_SHARDS, COUNT_SHARDS, IMAGE_SHARDS, RUN_TIME_SHARDS = 16, 8, 16, 16


@register
class NodeStateChanged(Event):
    """A node's inventory as it is now; `node.gone` closes its subject."""

    about: ClassVar = About(
        "hbox.v1.node.state.{node}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core", "quota-ledger", "health-monitor", "binder", "cli"),
    )
    node: NodeState

    @property
    def closes(self) -> bool:
        return self.node.gone


@register
class NodeDevicesChanged(Event):
    """What a node's kubelet gave to whom, as it says itself; said when it changes, and every ten minutes. `devices.gone` closes its subject: that is for
    topology-collector to say, since an agent ends with its node."""

    about: ClassVar = About(
        "hbox.v1.node.devices.{node}",
        Stream.STATE,
        ("node-agent", "topology-collector"),
        ("quota-ledger", "topology-collector", "cli"),
        1024 * 1024,
    )
    devices: NodeDevices

    @property
    def closes(self) -> bool:
        return self.devices.gone


@register
class NodeNumaChanged(Event):
    """How a node is made, and by which rules its kubelet gives it out; said when it changes. `numa.gone` closes its subject, as of NodeDevicesChanged."""

    about: ClassVar = About(
        "hbox.v1.node.numa.{node}", Stream.STATE, ("node-agent", "topology-collector"), ("topology-collector", "cli")
    )
    numa: NodeNuma

    @property
    def closes(self) -> bool:
        return self.numa.gone


@register
class NodeZonesChanged(Event):
    """What the NUMA nodes of a node have, and what of that is free, where its kubelet aligns pods to them; said when it changes. `zones.gone` closes its
    subject."""

    about: ClassVar = About(
        "hbox.v1.node.zones.{node}", Stream.STATE, ("topology-collector",), ("scheduler-core", "cli"), 1024 * 1024
    )
    zones: NodeZones

    @property
    def closes(self) -> bool:
        return self.zones.gone


@register
class HealthVerdict(Event):
    """What may be used of a node, from now on. `node_gone`: the node was deleted, and this was the last verdict on it."""

    about: ClassVar = About(
        "hbox.v1.health.verdict.{node}", Stream.STATE, ("health-monitor",), ("scheduler-core", "quota-ledger", "cli")
    )
    verdict: Verdict
    node_gone: bool = False

    @property
    def closes(self) -> bool:
        return self.node_gone


@register
class NodeRests(Event):
    """Kinds of requests that a node's kubelet refused, and until when the scheduler places no such pods there.

    job-controller publishes it with each refused pod. When the kubelet admits such pods again, or the refusals expire, job-controller publishes it once
    without kinds, which closes the subject. A kind whose `until` has passed has no effect."""

    about: ClassVar = About(
        "hbox.v1.node.rest.{node}", Stream.STATE, ("job-controller",), ("scheduler-core", "binder", "job-controller", "cli")
    )
    rest: NodeRest

    @property
    def closes(self) -> bool:
        return not self.rest.refused


@register
class FabricChanged(Event):
    """The communication tree, whole: domains of nodes by tier. One that is not there any more is said empty."""

    about: ClassVar = About(
        "hbox.v1.fabric.graph.{fabric}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core", "quota-ledger", "cli"),
        4 * 2**20,
        items=("hypernodes",),
        whole=True,
    )
    fabric: str
    hypernodes: tuple[HyperNode, ...]
    version: int = 0  #: rises with every change of what a source says of this fabric; 0 = nobody counts


@register
class FabricSeen(Event):
    """How old is what FabricChanged says of a fabric that a source outside of the cluster knows (UFM, a file of ibnetdiscover): said again and again. A
    fabric of which this is not said, or whose `source` is empty, never ages."""

    about: ClassVar = About("hbox.v1.fabric.seen.{fabric}", Stream.STATE, ("topology-collector",), ("scheduler-core", "cli"))
    fabric: str
    version: int  #: of the FabricChanged that was confirmed
    seen_at: float  #: when its source confirmed it last, seconds since the epoch
    source: str = ""  #: what kind it is: ufm, ibnetdiscover, lldp
    held: str = ""  #: why what the source says now is not believed, or not to be had; "" = it is


@register
class FabricGapsFound(Event):
    """What is wrong with the cables of a fabric, all of it."""

    about: ClassVar = About(
        "hbox.v1.fabric.gaps.{fabric}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core", "cli"),
        4 * 2**20,
        items=("gaps",),
        whole=True,
    )
    fabric: str
    version: int
    gaps: tuple[FabricGap, ...]
    degraded: dict[NodeName, tuple[int, ...]] = Field(default={})  #: rails of nodes that are down, slow or at another leaf


@register
class NodesMeasured(Event):
    """What nodes really used when they were measured last: all that are measured, at every measurement."""

    about: ClassVar = About(
        "hbox.v1.node.usage.{shard}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core",),
        4 * 2**20,
        items=("usages",),
        whole=True,
    )
    usages: tuple[NodeUsage, ...]


@register
class NodeImagesChanged(Event):
    """Which nodes have the larger images of one shard (IMAGE_SHARDS of them, by an image's first name): each message is the whole of it."""

    about: ClassVar = About(
        "hbox.v1.node.images.{shard}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core",),
        4 * 2**20,
        items=("images",),
        whole=True,
    )
    images: tuple[HeldImage, ...]


@register
class QueueStateChanged(Event):
    """A queue's rules and what its live claims add up to: of its own pods, and in `total` with those of all queues below it. `gone`: the queue was deleted.

    `faults` says what is wrong with the rules: what closes the queue, and what contradicts other rules. `recent_cards`: how many cards it and all below it used
    on average of late, where an hour weighs half after `half_life_h` hours; 0 = nobody keeps that.
    """

    about: ClassVar = About(
        "hbox.v1.queue.state.{queue}", Stream.STATE, ("quota-ledger",), ("scheduler-core", "job-controller", "cli")
    )
    queue: Queue
    used: Resources
    total: Resources = {}
    faults: tuple[str, ...] = ()
    epoch: SaidEpoch
    index: SaidIndex
    gone: bool = False
    recent_cards: float = 0.0
    half_life_h: float = 0.0

    @property
    def closes(self) -> bool:
        return self.gone


@register
class CardQuotasChanged(Event):
    """What ResourceQuotas say of cards, and of PriorityClasses with what is used of that, in the namespaces of one shard (QUOTA_SHARDS of them): each message
    is the whole of it. `index`: of the claims that are counted; who has not heard of them yet takes room that is free for room that others hold."""

    about: ClassVar = About(
        "hbox.v1.quota.cards.{shard}",
        Stream.STATE,
        ("quota-ledger",),
        ("scheduler-core",),
        4 * 2**20,
        items=("quotas", "classes"),
        whole=True,
    )
    quotas: tuple[CardQuota, ...]
    classes: tuple[ClassQuota, ...] = ()
    index: SaidIndex = Index(0)


@register
class NamespaceQuotasChanged(Event):
    """What namespaces of one shard may ask for and have asked for, by their ResourceQuotas without scopes: each message is the whole of it."""

    about: ClassVar = About(
        "hbox.v1.quota.namespaces.{shard}",
        Stream.STATE,
        ("quota-ledger",),
        ("scheduler-core",),
        4 * 2**20,
        items=("quotas",),
        whole=True,
    )
    quotas: tuple[ResourceQuota, ...]


@register
class BudgetsChanged(Event):
    """How many disruptions PodDisruptionBudgets allow, in the namespaces of one shard (QUOTA_SHARDS of them): each message is the whole of it."""

    about: ClassVar = About(
        "hbox.v1.budget.pods.{shard}",
        Stream.STATE,
        ("job-controller",),
        ("scheduler-core",),
        4 * 2**20,
        items=("budgets",),
        whole=True,
    )
    budgets: tuple[PodBudget, ...]


class GroupCounts(Event):
    """PodGroups of one queue by Volcano's phases, as their objects say; without any phase they are pending."""

    pending: int = 0
    inqueue: int = 0
    running: int = 0
    unknown: int = 0
    completed: int = 0


@register
class PodGroupsCounted(Event):
    """How many PodGroups each queue of one shard (COUNT_SHARDS of them) has, by phase; queues that are not named have none."""

    about: ClassVar = About(
        "hbox.v1.queue.podgroups.{shard}",
        Stream.STATE,
        ("job-controller",),
        ("quota-ledger",),
        4 * 2**20,
        items=("queues",),
        whole=True,
    )
    queues: dict[QueueName, GroupCounts]


@register
class RunTimesLearned(Event):
    """How long pods ran, by queue and namespace, of one shard (RUN_TIME_SHARDS of them): each message is the whole of it. A scheduler that starts goes on with
    what the one before it had learned."""

    about: ClassVar = About(
        "hbox.v1.policy.runtimes.{shard}",
        Stream.STATE,
        ("scheduler-core",),
        ("scheduler-core",),
        4 * 2**20,
        items=("learned",),
        whole=True,
    )
    learned: tuple[RanFor, ...]


@register
class PolicyFollowed(Event):
    """By what a scheduler places jobs: the actions and plugins of its policy, in their order, and how much history counts in shares (`usageWeight`)."""

    about: ClassVar = About("hbox.v1.policy.followed.{shard}", Stream.STATE, ("scheduler-core",), ("cli", "job-controller"))
    actions: tuple[str, ...]
    plugins: tuple[str, ...]
    by_conf: bool  #: a policy of the user's, by which every job is placed
    usage_weight: float = 0.0

    @property
    def gated(self) -> bool:
        """Whether PodGroups wait to be let in: a policy of the user's says `enqueue`."""
        return self.by_conf and "enqueue" in self.actions
