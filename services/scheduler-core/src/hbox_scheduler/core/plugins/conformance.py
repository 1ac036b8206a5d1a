"""conformance: what keeps the cluster itself alive is never a victim (sources: volcano-conformance)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cluster.entities import Gang, Member
from ..framework.hooks import Evictable, Preemptable, Reclaimable, ShuffleGuard
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf

#: Values of system-cluster-critical and system-node-critical begin here (Kubernetes: HighestUserDefinablePriority is 1e9).
CRITICAL = 2_000_000_000


class Conformance(Preemptable, Reclaimable, Evictable, ShuffleGuard):
    """Protects kube-system and pods of the system priority classes. No arguments."""

    name = "conformance"
    guards = True
    guards_owners = True
    guards_offline = True

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def preemptable(self, preemptor: Member | Gang, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002  # the hook's signature
        return self.may_leave(candidates)

    reclaimable = preemptable

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:  # noqa: ARG002
        return self.may_leave(candidates)

    def may_leave(self, members: Sequence[Member]) -> list[Member]:
        return [m for m in members if m.namespace != "kube-system" and m.priority < CRITICAL]
