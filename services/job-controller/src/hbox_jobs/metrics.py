"""What job-controller counts."""

from hbox_common.telemetry import counter, gauge, histogram

JOBS = gauge("jobs_known", "Jobs with a PodGroup or a pod")
PODS = gauge("jobs_pods", "Pods in the cache, those of other schedulers too")
ANNOUNCED = counter("jobs_announced", "Jobs said to be pending, repetitions after changes included")
WITHDRAWN = counter("jobs_withdrawn", "Jobs withdrawn")
FACTS = counter("jobs_pod_facts", "Facts about pods with a node")
PUBLISH = histogram("jobs_publish_seconds", "From taking a batch of changes to the broker's acknowledgement of all of it")
WRITES = counter("jobs_kube_writes", "Conditions, statuses and Events written", ["kind", "result"])
GROUP_READS = counter("jobs_group_reads", "Reads of PodGroups whose pods are newer than their watch", ["result"])
MALFORMED = counter("jobs_malformed_annotations", "Card annotations on pods that could not be read")
STRANGERS = counter("jobs_bound_by_others", "Pods of ours that somebody else gave a node")
HELD = gauge("jobs_held", "Jobs that are held back, since their namespace has too many that wait")
BACKLOG = gauge("jobs_feedback_backlog", "Writes to Kubernetes and phases that wait for their turn")
PHASES = counter("jobs_phases", "Phase messages for integrators", ["phase"])
REFUSED = counter("jobs_refused_pods", "Pods of HBox that kubelets refused to admit", ["reason"])
REFUSING = gauge(
    "jobs_refusing_nodes", "Nodes that get no pods of some kind for a while because their kubelets refused such pods"
)
WAITING = gauge(
    "jobs_waiting_by_shard",
    "Jobs with pods to place, by whose schedulers place them; where there are several shards",
    ["shard"],
)
SILENT = gauge(
    "jobs_shard_silent_seconds", "Since a scheduler of the shard was heard of; where there are several shards", ["shard"]
)
