"""conformance: what keeps the cluster itself alive is never a victim (reference volcano §4)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..session.nouns import Gang, Member

if TYPE_CHECKING:
    from ..policy.conf import PluginConf
    from ..session.session import Session

#: Values of system-cluster-critical and system-node-critical begin here (Kubernetes: HighestUserDefinablePriority is 1e9).
CRITICAL = 2_000_000_000


class Conformance:
    """Protects kube-system and pods of the system priority classes."""

    name = "conformance"
    guards = True

    def __init__(self, conf: "PluginConf") -> None:
        """No arguments."""

    def open(self, session: "Session") -> None:
        """Nothing to compute."""

    def preemptable(self, claimant: Member | Gang, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002  # the hook's signature
        return [m for m in candidates if m.namespace != "kube-system" and m.priority < CRITICAL]

    reclaimable = preemptable

    def evictable(self, claimant: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:  # noqa: ARG002
        return self.preemptable(claimant, candidates)
