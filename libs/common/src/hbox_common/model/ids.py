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

#: Rises with every start of the quota-ledger: what carries an older one has no effect any more.
Epoch = NewType("Epoch", int)

#: The ledger's transaction count within an epoch: what a view of its books is as new as.
Index = NewType("Index", int)

#: Rises with every change of one node's inventory that scheduling can see.
Generation = NewType("Generation", int)

DEFAULT_QUEUE = QueueName("default")
SCHEDULER_NAME = "hbox"
