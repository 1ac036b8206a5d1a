"""The controllers of workloads: Deployment, ReplicaSet, StatefulSet, Job."""

from collections.abc import Callable, Mapping

from ..resources import DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS
from ..store import Version
from .deployments import reconcile_deployment
from .jobs import reconcile_job
from .replicasets import reconcile_replica_set
from .statefulsets import reconcile_stateful_set
from .world import World

#: By collection. Each brings the world one step nearer to what the object wants; False: more is to be done at once.
RECONCILERS: Mapping[str, Callable[[World, Version], bool]] = {
    DEPLOYMENTS.storage: reconcile_deployment,
    REPLICA_SETS.storage: reconcile_replica_set,
    STATEFUL_SETS.storage: reconcile_stateful_set,
    JOBS.storage: reconcile_job,
}

__all__ = ["RECONCILERS", "World"]
