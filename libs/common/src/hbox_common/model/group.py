"""PodGroups with a minimum of resources: what `enqueue` has to know of them, whether they have pods or not."""

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
    """A PodGroup with `minResources`, as Kubernetes has it now: told whenever it changes, with a higher `revision`. Those without are enqueued at once."""

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
    #: of `min_resources`, what its pods with scheduling gates ask for: nobody may place them yet
    gated: Resources = field(default_factory=dict)
    admitted: bool = False  #: the word that lets it in was heard: Inqueue is about to be written
    annotations: dict[str, str] = field(default_factory=dict)  #: its annotations that policies read
    gone: bool = False  #: it was deleted, or has no minResources any more
