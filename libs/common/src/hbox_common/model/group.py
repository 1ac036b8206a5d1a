"""PodGroups with minimum resources: the data that `enqueue` needs, whether or not they have pods."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from .ids import JobId, QueueName
from .resources import Resources
from .wire import wire_names


class GroupPhase(StrEnum):
    """Volcano's PodGroup phases."""

    PENDING = "Pending"  #: not enqueued yet
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


@dataclass(frozen=True, slots=True)
class GroupState:
    """A PodGroup with `minResources`, as in Kubernetes now: published on each change, with a higher `revision`. PodGroups without it are enqueued at once."""

    __pydantic_config__: ClassVar = wire_names(annotations="notes", admitted="let_in")

    id: JobId
    namespace: str
    name: str
    queue: QueueName
    priority: int
    min_member: int
    created_at: float  #: seconds since the epoch
    min_resources: Resources  #: base units
    revision: int
    phase: GroupPhase = GroupPhase.PENDING  #: as written on the object; its pods may be placed once it is past Pending
    #: part of `min_resources` that pods with scheduling gates request: they cannot be placed yet
    gated: Resources = field(default_factory=dict)
    admitted: bool = False  #: the admission message was received: phase Inqueue is about to be written
    annotations: dict[str, str] = field(default_factory=dict)  #: its annotations that policies read
    gone: bool = False  #: it was deleted, or has no minResources any more
