"""The labels of reasons. Card labels are HAMi's own words (sources: hami-labels), `Insufficient <resource>` is kube-scheduler's."""

from enum import StrEnum


class Label(StrEnum):
    """In the order in which a node is judged; it gets the first that applies. Resources come between taints and cards."""

    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"  #: cordoned
    NODE_UNHEALTHY = "NodeUnhealthy"  #: health-monitor's verdict
    NODE_MULTI_CARD_OFF = "NodeMultiCardOff"  #: the verdict: no pods with more than one card
    NODE_MULTI_NODE_OFF = "NodeMultiNodeOff"  #: the verdict: no gangs that may run on several nodes
    NODE_RAIL_OFF = "NodeRailOff"  #: the verdict: an RDMA adapter is off, and the pod needs all of them
    NODE_RESTS = "NodeDevicePluginFails"  #: its kubelet refused a pod with cards recently, and it gets no such pod for a while
    NODE_REFUSES = "NodeRefusesPods"  #: its kubelet refused a pod of another kind recently, and it gets no such pod for a while
    NODE_POOL = "NodePoolMismatch"  #: the queue may not use the node's pool
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    VOLUME_NODE_MISMATCH = "VolumeNodeAffinityMismatch"  #: a volume of the pod cannot be reached from the node
    #: node-agent has not reported yet what the node's kubelet refuses, and the kubelet may refuse this pod
    KUBELET_POLICY = "KubeletPolicyNotKnown"
    NODE_PORTS_TAKEN = "NodePortsTaken"  #: another pod holds a host port that is asked for
    POD_AFFINITY = "PodAffinityMismatch"
    POD_ANTI_AFFINITY = "PodAntiAffinityMismatch"
    POD_ANTI_AFFINITY_OF_OTHERS = "ExistingPodAntiAffinity"  #: a pod that is there wants to be apart from this one
    SPREAD_NO_LABEL = "TopologySpreadMissingLabel"
    SPREAD_SKEW = "TopologySpreadSkew"
    NODE_GROUP = "NodeGroupMismatch"  #: the queue may not use the node's group
    NODE_GROUP_LIMIT = "NodeGroupLimitExceeded"
    REVOCABLE_ZONE = "RevocableZone"  #: lent by the hour: closed now, or not for pods that may not be taken away
    CARD_MODEL_KEPT = "CardModelKeptForOthers"  #: its idle cards are kept for gangs that can use no other model
    CARD_LINK = "CardLinkTooSlow"  #: for a pod or a gang over several cards
    RESERVED = "ReservedForLargeJob"  #: a gang that waits for long starts there
    CPU_LOAD = "NodeCpuLoadHigh"  #: really in use, above the threshold of the plugin `usage`
    MEMORY_LOAD = "NodeMemoryLoadHigh"
    EXTENDER_REFUSED = "ExtenderRefused"  #: a web service of the user's says no; what it says stands behind a colon
    EXTENDER_SILENT = "ExtenderWithoutAnswer"
    CARDS_ONLY = "NodeTakesCardsOnly"  #: the node is not meant for pods without cards
    PROPORTION_KEPT = "ResourcesKeptForIdleCards"  #: cpu or memory that idle cards of the node will need
    DEVICE_INSUFFICIENT = "NodeInsufficientDevice"  #: fewer cards on the node than asked for
    CARD_NOT_HEALTH = "CardNotHealth"
    CARD_TYPE_MISMATCH = "CardTypeMismatch"
    QUEUE_MODEL = "QueueCardModelLimit"  #: the queue, or one above it, may have no more cards of this model
    CARDS_IN_USE = "CardsInUse"  #: one pod at a time may use such a card, and one does
    CARD_SLOTS_EXHAUSTED = "CardTimeSlicingExhausted"
    CARD_QUOTA = "ResourceQuotaNotFit"  #: a ResourceQuota of the namespace does not pay for the card
    CARD_INSUFFICIENT_MEMORY = "CardInsufficientMemory"
    CARD_INSUFFICIENT_CORE = "CardInsufficientCore"
    CARD_EXCLUSIVE = "ExclusiveDeviceAllocateConflict"  #: a whole card is asked for, and somebody is on it
    CARD_UNITS_EXHAUSTED = "CardComputeUnitsExhausted"  #: all of its compute is promised to others
    CARDS_TOO_FEW = "AllocatedCardsInsufficientRequest"  #: some cards fit, fewer than asked for
    #: its kubelet's memory manager has no NUMA nodes that would give what is asked for
    MEMORY_MANAGER = "UnexpectedAdmissionError"
    SMT_ALIGNMENT = "SMTAlignmentError"  #: its kubelet gives out whole cores, and the CPUs asked for are no number of these
    #: its kubelet would refuse the pod: no NUMA nodes have together what is asked for
    TOPOLOGY_AFFINITY = "TopologyAffinityError"
    ROOM_SINCE_ATTEMPT = (
        "RoomSinceAttempt"  #: room appeared after the pod was tried in this cycle; the next cycle tries the pod again
    )

    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_INVALID = "QueueInvalid"
    QUEUE_BUDGET = "QueueBudgetSpent"
    QUEUE_NAMESPACE = "QueueNotForNamespace"
    QUEUE_PRIORITY_CLASS = "QueueNotForPriorityClass"
    QUEUE_CAPABILITY = "QueueCapabilityExceeded"
    QUEUE_SHARE = "QueueShareSpent"  #: a plugin of the policy gives the queue nothing more now; which stands behind the colon
    QUEUE_GUARANTEES = "QueueGuaranteedToOthers"
    NOT_ENQUEUED = "NotEnqueued"  #: a plugin of the policy has not let the PodGroup in; which and why stands behind a colon
    GANG_INCOMPLETE = "GangIncomplete"  #: fewer pods exist than the gang needs
    NO_BACKFILL = "NoBackfill"  #: the pod asks for nothing, and the policy places no such pods


#: Rules that the places of other pods decide, those of the same gang among them.
BY_PLACES_OF_OTHERS = (
    Label.VOLUME_NODE_MISMATCH,
    Label.POD_AFFINITY,
    Label.POD_ANTI_AFFINITY,
    Label.POD_ANTI_AFFINITY_OF_OTHERS,
    Label.SPREAD_SKEW,
)


def insufficient(resource: str) -> str:
    """kube-scheduler's words for a node with too little of a resource."""
    return f"Insufficient {resource}"
