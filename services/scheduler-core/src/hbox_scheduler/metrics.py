"""What scheduler-core counts."""

from hbox_common.telemetry import counter, gauge, histogram

CYCLE = histogram("scheduler_cycle_seconds", "Seconds of one scheduling cycle, without publishing its plans")
PUBLISH = histogram("scheduler_publish_seconds", "Seconds from the end of a cycle to the broker's acknowledgement of its plans")
PLANS = counter("scheduler_plans", "Plans published", ["kind"])
PLACEMENTS = counter("scheduler_placements", "Pods in new plans")
ANSWERS = counter("scheduler_answers", "The ledger's answers to this scheduler's plans", ["result"])
CONFLICTS = counter("scheduler_conflicts", "Plans refused because another shard had taken the place or placed the pod")
SHARD = gauge("scheduler_shard", "1; the shard of this scheduler, if there are several", ["shard"])
VERDICTS = counter("scheduler_verdicts", "Pending-reason updates published")
ADMITTED = counter("scheduler_admitted", "PodGroup admissions by `enqueue` published, repetitions included")
SNAPSHOTS = counter("scheduler_snapshots", "Full snapshots read: at startup, after a gap, in a new epoch", ["of"])
FALSE = counter("scheduler_false_changes", "Claim changes dropped because they contradict the ledger's state")
JOBS = gauge("scheduler_jobs", "Jobs with pods to place", ["state"])
OLDEST = gauge("scheduler_oldest_job_seconds", "Age in seconds of the oldest job with pods to place; 0 = none", ["state"])
FAULTS = counter(
    "scheduler_faults", "Internal errors after which the scheduler restarted with the offending job or node quarantined"
)
QUARANTINED = gauge(
    "scheduler_quarantined", "Jobs, namespaces and nodes excluded from scheduling because the scheduler fails at them", ["kind"]
)
NODES = gauge("scheduler_nodes", "Known nodes")
POLICY_REFUSED = gauge(
    "scheduler_policy_refused", "1 while the file of HBOX_SCHEDULER_CONF is invalid and the previous policy remains active"
)
UNANSWERED = gauge("scheduler_unanswered_plans", "Published plans without an answer")
RECORD_BYTES = counter("scheduler_record_bytes", "Bytes written to the record of the scheduler's inputs (HBOX_RECORD)")
RECORD_STOPPED = counter(
    "scheduler_record_stopped", "Records that ended before the service: disk full or slow, or the size limit"
)
CHANGE_SEARCHES = counter(
    "scheduler_change_searches",
    "Searches for the smallest changes that start a pending job: complete, or ended by the limits of 32 trials and 200 ms",
    ["result"],
)
CHANGE_PROBES = counter("scheduler_change_probes", "Trials of pending jobs in searches for the smallest changes")
FRAGMENTS = gauge(
    "scheduler_fragment_cards", "Idle cards that pods of the current mix cannot use where they are (FGD's F), in cards"
)
FRAGMENTATION = gauge("scheduler_fragmentation", "scheduler_fragment_cards as a fraction of all cards of schedulable nodes")
IDLE_CARDS = gauge("scheduler_idle_cards", "Idle cards of schedulable nodes, with fractions of cards")
START_COVERAGE = gauge(
    "scheduler_start_coverage",
    "Fraction of recent starts before the 90th percentile of their estimate; 0 while there are too few",
)
LARGEST_GANG = gauge(
    "scheduler_largest_gang_pods", "Pods of the largest gang that could start on idle cards, by whole cards per pod", ["cards"]
)
