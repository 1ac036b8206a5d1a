"""The gang that a pod belongs to by its owners, or the reason why it has none."""

from dataclasses import dataclass, field

from hbox_common.model import QueueName
from hbox_common.workloads import InGang, OwnerRef, defaults_of, preemptable_of, queue_of
from hbox_common.workloads.owner import NO_DEFAULTS, Defaults


@dataclass(frozen=True, slots=True)
class Membership:
    """Exactly one of three: a gang by owner (`key` and `gang`), an owner that is not read yet (`unread`), or a single pod (no `key`; `alone`: why)."""

    key: str = ""  #: of its job; empty: the pod is a job of its own
    name: str = ""  #: of its job, as users write it: `pytorchjob/train`
    role: str = ""
    alone: str = ""  #: why its owners make it no member of a gang, if its user has to know
    unread: OwnerRef | None = None
    queue: QueueName = QueueName("")  #: of a single pod: as its owners say
    preemptable: bool | None = None  #: likewise; None if they do not
    defaults: Defaults = NO_DEFAULTS  #: what counts if nothing else sets it
    gang: InGang | None = field(default=None, compare=False)
    extra_of: str = ""  #: key of the gang beyond whose declared number the pod is; it is a single pod then

    @property
    def extra(self) -> "Membership":
        """As a pod beyond the number that the owner of its gang declares."""
        assert self.gang is not None
        queue, preemptable = QueueName(queue_of(self.gang.chain)[0]), preemptable_of(self.gang.chain)
        defaults = defaults_of(self.gang.chain)
        return Membership(
            role=self.role, queue=queue, preemptable=preemptable, defaults=defaults, gang=self.gang, extra_of=self.key
        )
