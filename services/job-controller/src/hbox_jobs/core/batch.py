"""What the bus is to hear of jobs, taken at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hbox_common.model import GroupState, Job, JobId, MissingPods, Neighbour, PodFact, PodPhase

from .job import Record
from .views import PodStatus, PodView

#: Phase of a bound pod in its fact.
FACT_PHASE = {
    PodStatus.PENDING: PodPhase.BOUND,
    PodStatus.RUNNING: PodPhase.RUNNING,
    PodStatus.SUCCEEDED: PodPhase.SUCCEEDED,
    PodStatus.FAILED: PodPhase.FAILED,
}


def fact_phase(new: PodView, old: PodView | None) -> PodPhase:
    """Phase of a bound pod in its fact. A pod that exits with 0 because it is deleted has not finished its work: its place is for its successor."""
    stopped = new.deleting and new.status is PodStatus.SUCCEEDED and old is not None and not old.status.terminal
    return PodPhase.FAILED if stopped else FACT_PHASE[new.status]


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes to publish now. `settled`: the computed jobs, whose feedback to Kubernetes may have changed."""

    pending: tuple[Job, ...] = ()
    withdrawn: tuple[tuple[JobId, int], ...] = ()  #: with revisions
    facts: tuple[PodFact, ...] = ()
    settled: tuple[Record, ...] = ()
    groups: tuple[GroupState, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    priority_classes: Mapping[str, int] | None = None  #: where one changed
    namespaces: Mapping[str, Mapping[str, str]] | None = None  #: labels that wishes ask about, where one changed
    shards: Mapping[JobId, str] = field(
        default_factory=dict
    )  #: of jobs above, where there are several; all are told of those not named
    left: tuple[tuple[str, JobId, int], ...] = ()  #: of jobs that went to another shard: the one that they left, with revisions
    groups_left: tuple[tuple[str, GroupState], ...] = ()  #: the same of PodGroups
    missing: tuple[MissingPods, ...] = ()  #: of workloads whose number of missing pods changed
