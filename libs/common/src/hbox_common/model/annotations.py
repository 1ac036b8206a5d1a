"""Names that HBox reads and writes on Kubernetes objects."""

import json
from collections.abc import Mapping

from hbox_common.errors import InvalidRequest

from .bounds import sanitized
from .offline import OFFLINE

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
#: "true" on a pod or PodGroup: other jobs may preempt it, whatever its queue's rules for its class
PREEMPTABLE = "volcano.sh/preemptable"

NAMESPACES = "hbox.io/namespaces"  #: on a Queue: whose pods may use it; `*` = all
PRIORITY_CLASSES = "hbox.io/priority-classes"  #: on a Queue: PriorityClasses of which its jobs have to be
#: on a Queue: PriorityClasses that are not preempted within the queue's deserved amount
NON_PREEMPTIBLE_CLASSES = "hbox.io/non-preemptible-classes"
POOL_AMOUNTS = "hbox.io/pool-amounts"  #: on a Queue: JSON by pool, its `capability`, `deserved` and `guarantee` there
LENT_POOLS = "hbox.io/lent-pools"  #: on a Queue: of the pools that it owns, those that other queues may use while they are idle
LENT_TO = "hbox.io/lent-to"  #: on a Queue: the queues, with their descendants, that may use its lent pools; absent = all
BUDGET = "hbox.io/budget-card-hours"  #: on a Queue: what it may use in a calendar month (UTC)
EVICTIONS_RELEASED = "hbox.io/evictions-released"  #: on the Queue `default`: a new value lets evictions go on that pause, once
RECENT_CARDS = "hbox.io/recent-cards"  #: on a Queue of a saved cluster: average number of cards used recently

TRACE_ID = "hbox.io/trace-id"  #: on an Event about a job, by job-controller: the job's trace
TRACEPARENT = "hbox.io/traceparent"  #: on a PodGroup or a bare pod: its submitter's W3C trace context, to which its trace links

CLAIM = "hbox.io/claim"
CLAIM_GENERATION = "hbox.io/claim-gen"  #: also the condition that makes older bindings fail on their resourceVersion
CARDS = "hbox.io/cards"
RANK = "hbox.io/rank"  #: on a pod of a gang, from its binding on: which of its job it is, from 0 on
CARD_ADAPTERS = "hbox.io/card-adapters"  #: on a node: by card index, the nearest RDMA adapters, for guests that hide them: 0=mlx5_0;1=mlx5_1,mlx5_2
HEALTH_TAINT = "hbox.io/health"  #: key of the taint of nodes that part of the work may not use
CORDONED_BY = "hbox.io/cordoned-by"
CORDON_REASON = "hbox.io/cordon-reason"
RUN_SECONDS = "hbox.io/run-seconds"  #: the sandbox's kubelets end a pod after so long

INDEXED_JOBS = "hbox.io/indexed-jobs"  #: label of a namespace: gang or single, for its Indexed Jobs

NETWORK_TOPOLOGY = "hbox.io/network-topology"  #: none, bestEffort or singleSwitch, on a PodGroup
NETWORK_TOPOLOGY_LEVEL = (
    "hbox.io/network-topology-level"  #: with singleSwitch: the tier that all pods share: leafgroup (default), pod, fabric
)
KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
KAI_REQUIRED = "kai.scheduler/topology-required-placement"
KAI_PREFERRED = "kai.scheduler/topology-preferred-placement"

#: What a gang may say of the fabric besides `networkTopology`.
TOPOLOGY_ANNOTATIONS = (NETWORK_TOPOLOGY, KUEUE_REQUIRED, KUEUE_PREFERRED, KUEUE_UNCONSTRAINED, KAI_REQUIRED, KAI_PREFERRED)

WALLTIME = "hbox.io/walltime"  #: how long a pod runs at most, as a duration such as 2h30m; on a Queue: those of its pods that do not say it
MIN_RUN_TIME = "hbox.io/min-run-time"  #: on a pod or its PodGroup: a shorter time than the policy's
QUEUE_MIN_RUN_TIME = MIN_RUN_TIME  #: on a Queue: minimum run time before its pods may be preempted (`minruntime`)
COOL_DOWN = "hbox.io/cool-down"  #: on a Queue: the same for jobs that were evicted recently
CHECKPOINTED_AT = "hbox.io/checkpointed-at"  #: when it wrote its last checkpoint: RFC 3339, or seconds since the epoch
CHECKPOINT_INTERVAL = "hbox.io/checkpoint-interval"  #: how often it writes one, as a duration
#: on a pod: time that it needs to write a checkpoint after an eviction notice, as a duration
CHECKPOINT_ON_NOTICE = "hbox.io/checkpoint-on-notice"
#: on a pod being evicted, by the binder: time at which it must have ended, RFC 3339
EVICTION_DEADLINE = "hbox.io/eviction-deadline"
EVICTION_REASON = "hbox.io/eviction-reason"  #: on the same pod: the job that needs its place
CHECKPOINT_EVERY = "hbox.io/checkpoint-every"  #: the older name of it
#: on a PodGroup, a pod without one, or a Queue: restart, checkpoint, shrink or ignore (`sickhardware`)
ON_SICK_HARDWARE = "hbox.io/on-sick-hardware"
COOLDOWN = "volcano.sh/cooldown-time"  #: how long a pod is protected, as a duration; annotation or label
TASK_PRIORITY = "volcano.sh/task-priority"  #: a member's priority among its gang, in place of the pod's
TASK_AFFINITY = "volcano.sh/task-topology-affinity"
TASK_ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER = "volcano.sh/task-topology-task-order"
#: label of a node: its zone. Annotation of a pod or its gang: `*` = may run in revocable zones
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
WAITING_TIME = "sla-waiting-time"

#: What plugins of a policy read on pods and PodGroups.
POLICY_ANNOTATIONS = (
    *TOPOLOGY_ANNOTATIONS,
    NETWORK_TOPOLOGY_LEVEL,
    WALLTIME,
    MIN_RUN_TIME,
    CHECKPOINTED_AT,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_EVERY,
    ON_SICK_HARDWARE,
    COOLDOWN,
    TASK_PRIORITY,
    TASK_AFFINITY,
    TASK_ANTI_AFFINITY,
    TASK_ORDER,
    REVOCABLE_ZONE,
    JDB_MIN_AVAILABLE,
    JDB_MAX_UNAVAILABLE,
    PREEMPTABLE,
    WAITING_TIME,
    f"volcano.sh/{WAITING_TIME}",
)

HIERARCHY = "volcano.sh/hierarchy"  #: on a Queue: its path in the tree of `drf` with enableHierarchy, as `root/eng/dev`
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"  #: on a Queue: one weight for each name of that path
NODE_GROUP_LIMITS = "volcano.sh/nodegroup-resource-limits"  #: on a Queue: JSON by node group, what its members may use there
OVER_QUOTA_WEIGHT = "kai.scheduler/over-quota-weight"  #: on a Queue: its weight beyond what it deserves

#: What plugins of a policy, and the ledger, read on queues.
QUEUE_POLICY_ANNOTATIONS = (
    HIERARCHY,
    HIERARCHY_WEIGHTS,
    NODE_GROUP_LIMITS,
    OVER_QUOTA_WEIGHT,
    WALLTIME,
    QUEUE_MIN_RUN_TIME,
    COOL_DOWN,
    ON_SICK_HARDWARE,
)


#: What `POOL_AMOUNTS` may name of each pool.
POOL_SHARES = ("capability", "deserved", "guarantee")


def parse_pool_amounts(text: str) -> dict[str, dict[str, dict[str, str | float]]]:
    """Pool, share, resource, quantity, as written; the quantities are still to be read. Raises InvalidRequest."""
    hint = 'write it like {"lab": {"deserved": {"cpu": 8}}}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InvalidRequest(f"{POOL_AMOUNTS} is no JSON", hint=hint) from e
    if not isinstance(found, dict) or not all(isinstance(shares, dict) for shares in found.values()):
        raise InvalidRequest(f"{POOL_AMOUNTS} is no object of pools", hint=hint)
    for pool, shares in found.items():
        for share, quantities in shares.items():
            if share not in POOL_SHARES:
                raise InvalidRequest(
                    f"{POOL_AMOUNTS} has {sanitized(share, 64)!r} for pool {sanitized(pool, 64)!r}",
                    hint=f"it may have {', '.join(POOL_SHARES)}",
                )
            if pool == OFFLINE and share != "capability":
                raise InvalidRequest(
                    f"{POOL_AMOUNTS} has {share} for {OFFLINE}: offline jobs have no deserved or guaranteed share",
                    hint='write it like {"~offline": {"capability": {"cpu": 64}}}',
                )
            if not isinstance(quantities, dict) or not all(_is_quantity(one) for one in quantities.values()):
                raise InvalidRequest(
                    f"{POOL_AMOUNTS}: {share} of pool {sanitized(pool, 64)!r} has no amounts by resource", hint=hint
                )
    return found


def _is_quantity(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def offered(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a pod's or PodGroup's tenant made it preemptable, regardless of its queue's rules for its class, for example to run on lent nodes. An annotation
    takes precedence over a label. A tenant cannot make a pod non-preemptible."""
    written = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE, ""))
    return written.lower() in ("true", "1", "t") or annotations.get(REVOCABLE_ZONE) == "*"


def parse_names(annotation: str, text: str) -> tuple[str, ...]:
    """Names with commas between, each once. Raises InvalidRequest."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise InvalidRequest(f"{annotation} is {text!r}, in which a name is empty", hint="write it like one, two")
    return names
