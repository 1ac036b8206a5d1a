"""The order of pods that use a claim of mode ReadWriteOncePod: first the pod that has a node, then the oldest waiting pod (kube-scheduler's
VolumeRestrictions).

The first pod of each claim is cached and compared with each changed pod, so that a claim with ten thousand waiting pods costs one walk when its first pod ends.
"""

from collections.abc import Callable, Iterable

from .views import PodView


class ClaimTurns:
    """Claims are namespace/name."""

    def __init__(self, users: Callable[[str], Iterable[PodView]]) -> None:
        """`users`: returns the pods that name a claim, in their latest versions."""
        self._users = users
        self._first: dict[str, PodView] = {}  #: first pod by claim; filled by `first`

    def first(self, claim: str) -> PodView | None:
        """The pod that uses the claim, or uses it next; None if no pod does."""
        found = self._first.get(claim)
        if found is None:
            found = min((pod for pod in self._users(claim) if _takes_part(pod)), key=_order, default=None)
            if found is not None:
                self._first[claim] = found
        return found

    def changed(self, claim: str, pod: PodView) -> None:
        """A pod that names the claim was added or modified."""
        known = self._first.get(claim)
        if known is None:
            return
        if known.uid == pod.uid:
            del self._first[claim]
            if _takes_part(pod) and _order(pod) <= _order(known):
                self._first[claim] = pod
        elif _takes_part(pod) and _order(pod) < _order(known):
            self._first[claim] = pod

    def gone(self, claim: str, uid: str) -> None:
        """A pod that named the claim is deleted."""
        known = self._first.get(claim)
        if known is not None and known.uid == uid:
            del self._first[claim]


def _takes_part(pod: PodView) -> bool:
    return not pod.status.terminal and (bool(pod.node) or pod.placeable)


def _order(pod: PodView) -> tuple[bool, float, str]:
    return not pod.node, pod.created_at, pod.name
