"""What job-controller counts."""

from hbox_common.telemetry import counter, gauge, histogram

JOBS = gauge("jobs_known", "Jobs with a PodGroup or a pod")
PODS = gauge("jobs_pods", "Pods in the cache, including those of other schedulers")
ANNOUNCED = counter("jobs_announced", "Pending jobs published, updates included")
WITHDRAWN = counter("jobs_withdrawn", "Jobs withdrawn")
FACTS = counter("jobs_pod_facts", "States of bound pods published")
PUBLISH = histogram("jobs_publish_seconds", "Seconds from taking a batch of changes to the broker's acknowledgement of all")
WRITES = counter("jobs_kube_writes", "Conditions, statuses and Events written to Kubernetes", ["kind", "result"])
GROUP_READS = counter("jobs_group_reads", "Reads of PodGroups whose pods are newer than the PodGroup watch", ["result"])
OWNER_READS = counter(
    "jobs_owner_reads", "Reads of owners that the watch of their kind had not delivered, or not up to their pods", ["result"]
)
OWNERS = gauge("jobs_owners", "Owners of pods in the cache")
MALFORMED = counter("jobs_malformed_annotations", "Malformed card annotations on pods")
STRANGERS = counter("jobs_bound_by_others", "Pods of HBox that another scheduler bound")
HELD = gauge("jobs_held", "Jobs held back because their namespace exceeds its limit of pending jobs")
BACKLOG = gauge("jobs_feedback_backlog", "Pending writes to Kubernetes and pending phase messages")
PHASES = counter("jobs_phases", "Phase messages published for integrators", ["phase"])
REFUSED = counter("jobs_refused_pods", "Pods of HBox that a kubelet refused to admit", ["reason"])
REFUSING = gauge(
    "jobs_refusing_nodes", "Nodes that temporarily receive no pods of some kind because their kubelet refused such pods"
)
WAITING = gauge(
    "jobs_waiting_by_shard",
    "Jobs with pods to place, by scheduler shard",
    ["shard"],
)
SILENT = gauge("jobs_shard_silent_seconds", "Seconds since the last message of a scheduler shard", ["shard"])
