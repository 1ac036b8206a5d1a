"""Whether a node's lock is still somebody's: by what its pod shows, and only where that shows nothing by its age (sources: hami-node-lock).

HAMi frees a lock whose pod is gone, or which is five minutes old. That a pod's cards were handed over, or never will be, shows earlier: kubelet writes a pod's
status only after it has admitted it, and to admit it is to have called the plugin. What annotations of the pod say counts for nothing here: its owner could
have written them, and a lock that is freed early gives another pod's cards away.
"""

from dataclasses import dataclass

from hbox_common.model.devices import NodeLock

#: A plugin writes the phase, and then releases the lock; nobody comes between for so long.
RELEASE_S = 2.0
#: A pod that is not bound so long after its node was locked, and that this binder has no decision of: whoever locked for it was killed, or changed his mind.
UNBOUND_S = 10.0


@dataclass(frozen=True, slots=True)
class LockOwner:
    """The pod of a lock, by a consistent read."""

    node: str  #: where it is bound; empty: nowhere
    ended: bool  #: its phase is Succeeded or Failed
    admitted: bool  #: kubelet has written its status
    waited_for: bool  #: this binder has a decision to bind it that is not settled
    another: bool = False  #: this binder took the lock for an earlier pod of the same name

    def allocating(self, node: str) -> bool:
        """Whether the pod is bound to `node` and its kubelet has not admitted it yet. If its lock were removed, the plugin would hand it the cards of the next
        pod that locks the node (HAMi issue 3096)."""
        return self.node == node and not self.ended and not self.admitted


def stale(lock: NodeLock, owner: LockOwner | None, *, node: str, now: float, seen_s: float, expires_s: float) -> str:
    """Why the lock may be removed; empty: it may not. `owner`: None = no such pod. `seen_s`: for how long this lock has been seen; `now`: seconds since the
    epoch; `expires_s`: the age at which it may be, unless its pod is in allocation. If the lock's time is in the future or invalid, `seen_s` is its age."""
    age_s = max(seen_s, now - lock.at) if lock.at <= now else seen_s
    if age_s > expires_s and not (owner is not None and owner.allocating(node)):
        return "expired"
    if not lock.pod:
        return ""
    if owner is None:
        return "pod gone"
    if owner.ended:
        return "pod ended"
    if owner.node and owner.node != node:
        return "pod elsewhere"
    if owner.admitted and seen_s >= RELEASE_S:
        return "pod admitted"
    if owner.another and not owner.node and not owner.waited_for:
        return "pod gone"
    if not owner.node and not owner.waited_for and seen_s >= UNBOUND_S:
        return "never bound"
    return ""
