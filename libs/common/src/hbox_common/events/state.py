"""HBOX_STATE: the last value of every node, verdict and queue. A new reader replays the last message of each subject and is up to date."""

from typing import ClassVar

from pydantic import Field

from hbox_common.model import (
    CardQuota,
    ClassQuota,
    FabricGap,
    HeldImage,
    HyperNode,
    Index,
    JobWait,
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

#: Number of messages of states that grow with tenants' objects: one message would be too large in a large cluster.
QUOTA_SHARDS, COUNT_SHARDS, IMAGE_SHARDS, RUN_TIME_SHARDS, WAIT_SHARDS = 16, 8, 16, 16, 64


@register
class NodeStateChanged(Event):
    """A node's present inventory; `node.gone` closes its subject."""

    about: ClassVar = About(
        "hbox.v1.node.state.{node}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core", "quota-ledger", "health-monitor", "binder", "cli", "console"),
    )
    node: NodeState

    @property
    def closes(self) -> bool:
        return self.node.gone


@register
class NodeDevicesChanged(Event):
    """Allocations of a node's kubelet; published on change, and every ten minutes. `NodeDevices.gone` closes its subject: topology-collector publishes it,
    since an agent ends with its node."""

    about: ClassVar = About(
        "hbox.v1.node.devices.{node}",
        Stream.STATE,
        ("node-agent", "topology-collector"),
        ("quota-ledger", "topology-collector", "cli", "console"),
        1024 * 1024,
    )
    devices: NodeDevices

    @property
    def closes(self) -> bool:
        return self.devices.gone


@register
class NodeNumaChanged(Event):
    """A node's hardware and its kubelet's allocation policies; published on change. `numa.gone` closes its subject, as in NodeDevicesChanged."""

    about: ClassVar = About(
        "hbox.v1.node.numa.{node}", Stream.STATE, ("node-agent", "topology-collector"), ("topology-collector", "cli", "console")
    )
    numa: NodeNuma

    @property
    def closes(self) -> bool:
        return self.numa.gone


@register
class NodeZonesChanged(Event):
    """Capacity and free amounts of a node's NUMA nodes, if its kubelet aligns pods to them; published on change. `zones.gone` closes its subject."""

    about: ClassVar = About(
        "hbox.v1.node.zones.{node}", Stream.STATE, ("topology-collector",), ("scheduler-core", "cli"), 1024 * 1024
    )
    zones: NodeZones

    @property
    def closes(self) -> bool:
        return self.zones.gone


@register
class HealthVerdict(Event):
    """The usable parts of a node from now on. `node_gone`: the node was deleted, and this is the last verdict on it."""

    about: ClassVar = About(
        "hbox.v1.health.verdict.{node}", Stream.STATE, ("health-monitor",), ("scheduler-core", "quota-ledger", "cli", "console")
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
        "hbox.v1.node.rest.{node}",
        Stream.STATE,
        ("job-controller",),
        ("scheduler-core", "binder", "job-controller", "cli", "console"),
    )
    rest: NodeRest

    @property
    def closes(self) -> bool:
        return not self.rest.refused


@register
class FabricChanged(Event):
    """The complete communication tree: domains of nodes by tier. A fabric that was removed is published empty."""

    about: ClassVar = About(
        "hbox.v1.fabric.graph.{fabric}",
        Stream.STATE,
        ("topology-collector",),
        ("scheduler-core", "quota-ledger", "health-monitor", "cli"),
        4 * 2**20,
        items=("hypernodes",),
        whole=True,
    )
    fabric: str
    hypernodes: tuple[HyperNode, ...]
    version: int = 0  #: increases with every change that a source reports of this fabric; 0 = not counted


@register
class FabricSeen(Event):
    """Age of the FabricChanged of a fabric from a source outside the cluster (UFM, an ibnetdiscover file): published repeatedly. A fabric without this message,
    or whose `source` is empty, never becomes stale."""

    about: ClassVar = About("hbox.v1.fabric.seen.{fabric}", Stream.STATE, ("topology-collector",), ("scheduler-core", "cli"))
    fabric: str
    version: int  #: of the FabricChanged that was confirmed
    seen_at: float  #: when its source confirmed it last, seconds since the epoch
    source: str = ""  #: what kind it is: ufm, ibnetdiscover, lldp
    held: str = ""  #: why the source's present data is not accepted or not available; "" = it is accepted


@register
class FabricGapsFound(Event):
    """All cabling faults of a fabric."""

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
    """Measured usage of nodes: all measured nodes, at every measurement."""

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
    """Nodes that have the larger images of one shard (IMAGE_SHARDS of them, by an image's first name): each message is complete."""

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
    """A queue's rules and the sum of its live claims: of its own pods, and in `total` including all its descendants. `gone`: the queue was deleted.

    `faults`: faults in the rules, such as one that closes the queue or contradicts other rules. `recent_cards`: moving average of the cards used by the queue
    and its descendants, in which the weight of an hour halves after `half_life_h` hours; 0 = not recorded.
    """

    about: ClassVar = About(
        "hbox.v1.queue.state.{queue}", Stream.STATE, ("quota-ledger",), ("scheduler-core", "job-controller", "cli", "console")
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
    """ResourceQuotas of cards, and of PriorityClasses with their usage, in the namespaces of one shard (QUOTA_SHARDS of them): each message is complete.
    `index`: of the claims that are counted; a reader behind it may treat free amounts as used."""

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
    """Limits and usage of ResourceQuotas without scopes in the namespaces of one shard: each message is complete."""

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
    """Disruptions that PodDisruptionBudgets allow, in the namespaces of one shard (QUOTA_SHARDS of them): each message is complete."""

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
    """PodGroups of one queue by Volcano's phases, according to their status; without a phase they are pending."""

    pending: int = 0
    inqueue: int = 0
    running: int = 0
    unknown: int = 0
    completed: int = 0


@register
class PodGroupsCounted(Event):
    """PodGroups by phase of each queue of one shard (COUNT_SHARDS of them); queues that are not named have none."""

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
    """Run times of pods, by queue and namespace, of one shard (RUN_TIME_SHARDS of them): each message is complete. A scheduler that starts continues from its
    predecessor's data."""

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
class WaitsAttributed(Event):
    """Waiting of jobs by code of the reason, of one shard (WAIT_SHARDS of them, by the job's id): each message is complete. A job-controller that starts
    continues from its predecessor's data."""

    about: ClassVar = About(
        "hbox.v1.job.waits.{shard}",
        Stream.STATE,
        ("job-controller",),
        ("job-controller", "cli", "console"),
        4 * 2**20,
        items=("waits",),
        whole=True,
    )
    waits: tuple[JobWait, ...]


@register
class PolicyFollowed(Event):
    """A scheduler's policy: its actions and plugins in order, and the weight of history in shares (`usageWeight`)."""

    about: ClassVar = About(
        "hbox.v1.policy.followed.{shard}", Stream.STATE, ("scheduler-core",), ("cli", "job-controller", "console")
    )
    actions: tuple[str, ...]
    plugins: tuple[str, ...]
    by_conf: bool  #: a policy of the user's, by which every job is placed
    usage_weight: float = 0.0

    @property
    def gated(self) -> bool:
        """Whether PodGroups wait for admission: a user-defined policy contains `enqueue`."""
        return self.by_conf and "enqueue" in self.actions
