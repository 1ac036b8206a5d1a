"""Whether a node's lock is stale: by the status of its pod, and by the lock's age if the status proves nothing (sources: hami-node-lock).

HAMi releases a lock whose pod is gone, or which is five minutes old. The pod's status proves earlier that its cards were allocated, or never will be: the
kubelet writes the status only after it has admitted the pod, and it calls the plugin to admit it. Annotations of the pod prove nothing, because its owner may
have written them, and a lock that is released early gives the cards to another pod.
"""

from dataclasses import dataclass

from hbox_common.model.devices import NodeLock

#: Maximum seconds between a plugin's write of the phase and its release of the lock.
RELEASE_S = 2.0
#: Seconds after the lock until which a pod without a decision in this binder has to be bound: later, the process that locked for it was killed or gave up.
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
