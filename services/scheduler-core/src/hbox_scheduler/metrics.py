"""What scheduler-core counts."""

from hbox_common.telemetry import counter, gauge, histogram

CYCLE = histogram("scheduler_cycle_seconds", "One planning cycle, without sending its plans")
PUBLISH = histogram("scheduler_publish_seconds", "From the end of a cycle to the broker's acknowledgement of its plans")
PLANS = counter("scheduler_plans", "Plans sent", ["kind"])
PLACEMENTS = counter("scheduler_placements", "Pods in new plans")
ANSWERS = counter("scheduler_answers", "Answers of the ledger to our plans", ["result"])
CONFLICTS = counter(
    "scheduler_conflicts", "Plans refused since somebody else had the place, or the pod had one, when they came: other shards'"
)
SHARD = gauge("scheduler_shard", "1: the shard of this scheduler; where there are several shards", ["shard"])
VERDICTS = counter("scheduler_verdicts", "Verdicts on jobs that wait")
ADMITTED = counter("scheduler_admitted", "PodGroups that `enqueue` admitted, as often as it was said")
SNAPSHOTS = counter("scheduler_snapshots", "States read whole: at the start, after a gap, in a new epoch", ["of"])
FALSE = counter("scheduler_false_changes", "Changes of claims that go beyond what the ledger says, or do not add up: dropped")
JOBS = gauge("scheduler_jobs", "Jobs with pods to place", ["state"])
OLDEST = gauge("scheduler_oldest_job_seconds", "Age of the oldest job with pods to place; 0: there is none", ["state"])
FAULTS = counter("scheduler_faults", "Errors of the scheduler's own after which it began anew, without whom they were about")
QUARANTINED = gauge(
    "scheduler_quarantined", "Jobs, namespaces and nodes that the scheduler leaves out, since it fails at them", ["kind"]
)
NODES = gauge("scheduler_nodes", "Nodes known")
POLICY_REFUSED = gauge(
    "scheduler_policy_refused", "1 while the file of HBOX_SCHEDULER_CONF is wrong and the policy before it stays in force"
)
UNANSWERED = gauge("scheduler_unanswered_plans", "Plans sent that have no answer yet")
RECORD_BYTES = counter("scheduler_record_bytes", "Written to the record of what the scheduler is told (HBOX_RECORD)")
RECORD_STOPPED = counter(
    "scheduler_record_stopped", "Records that ended before their service: a full or slow disk, or the bound"
)
FRAGMENTS = gauge(
    "scheduler_fragment_cards", "Idle cards that pods of today's mix cannot use where they are (FGD's F), in cards"
)
FRAGMENTATION = gauge("scheduler_fragmentation", "The same, of all cards of nodes that take pods")
IDLE_CARDS = gauge("scheduler_idle_cards", "Idle cards, parts of cards among them, of nodes that take pods")
LARGEST_GANG = gauge(
    "scheduler_largest_gang_pods", "Pods with so many whole cards each that would start together, by idle cards", ["cards"]
)
