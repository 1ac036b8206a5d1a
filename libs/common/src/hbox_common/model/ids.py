"""Identities. NewTypes, so that a pod's uid cannot be handed in where a job's is meant."""

from typing import NewType

NodeName = NewType("NodeName", str)
QueueName = NewType("QueueName", str)
PodUid = NewType("PodUid", str)

#: The uid of the PodGroup; for a bare pod the pod's own uid.
JobId = NewType("JobId", str)

PlanId = NewType("PlanId", str)
ClaimId = NewType("ClaimId", str)
DecisionId = NewType("DecisionId", str)

#: A proposer's instance: new with every start of a scheduler-core.
SchedulerId = NewType("SchedulerId", str)

#: A card, unique in the cluster and constant for its life: `gpu:UUID`, or `mig:UUID` for an instance that its plugin hands out as a card. For a card without
#: a UUID the inventory generates one from the node's name and the plugin's index. Older programs write the index alone (`devices.cardids`).
CardId = NewType("CardId", str)

#: Rises with every start of the quota-ledger: what carries an older one has no effect any more.
Epoch = NewType("Epoch", int)

#: Counts the changes of claims in the ledger, without gaps: the version of a view of them. It never decreases, also across epochs.
Index = NewType("Index", int)

#: Rises with every change of one node's inventory that scheduling can see.
Generation = NewType("Generation", int)

DEFAULT_QUEUE = QueueName("default")
SCHEDULER_NAME = "hbox"  #: default of `spec.schedulerName`

_MISSING_GROUP = "podgroup:"


def missing_group_job(key: str) -> JobId:
    """The job of pods that name a PodGroup (namespace/name) which does not exist."""
    return JobId(f"{_MISSING_GROUP}{key}")


def is_missing_group_job(job: JobId) -> bool:
    return job.startswith(_MISSING_GROUP)
