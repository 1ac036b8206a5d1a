"""The gang that a pod belongs to by its owners, or the reason why it has none."""

from dataclasses import dataclass, field

from hbox_common.model import QueueName
from hbox_common.workloads import InGang, OwnerRef


@dataclass(frozen=True, slots=True)
class Membership:
    """Exactly one of three: a gang by owner (`gang`), an owner that is not read yet (`unread`), or a single pod (neither), for the reason `alone`."""

    key: str = ""  #: of its job; empty: the pod is a job of its own
    name: str = ""  #: of its job, as users write it: `pytorchjob/train`
    role: str = ""
    alone: str = ""  #: why its owners make it no member of a gang, if its user has to know
    unread: OwnerRef | None = None
    queue: QueueName = QueueName("")  #: of a single pod: as its owners say
    preemptable: bool | None = None  #: likewise; None if they do not
    gang: InGang | None = field(default=None, compare=False)
